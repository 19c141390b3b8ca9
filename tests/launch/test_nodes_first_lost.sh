#!/bin/sh
# The first node is killed, every process of it, and started again by the same command line: the run goes on where restarts were
# asked for. And who must not be mistaken for it.
set -u
. "$(dirname "$0")/launch.sh"
mark=first-lost-$$
port=$((20000 + $$ % 10000))
unset LOCKSTEP_SECRET

# The last start of a case is $LAST; the ones before go on until they are ended.
cat >rank.sh <<'END'
echo "rank $RANK of $WORLD_SIZE node $GROUP_RANK restart $TORCHELASTIC_RESTART_COUNT run $TORCHELASTIC_RUN_ID"
: >went-$TORCHELASTIC_RESTART_COUNT-$RANK
[ $TORCHELASTIC_RESTART_COUNT -ge $LAST ] || exec sleep 30
END
LAST=1
export LAST NODES_MARK=$mark

survivors() { env -u NODES_MARK grep -l -a -z -x "NODES_MARK=$mark" /proc/[0-9]*/environ 2>/dev/null; }
tree() { for p in $(pgrep -P "$1"); do tree "$p"; done; echo "$1"; }
appears() {
    for _ in $(seq 400); do [ -e "$1" ] && return; sleep 0.02; done
    cp err0 err; cp out0 out
    fail "$case: $1 does not appear"
}
says() { # FILE TEXT
    for _ in $(seq 400); do grep -q -F -e "$2" "$1" 2>/dev/null && return; sleep 0.02; done
    cp "$1" err; fail "$case: \"$2\" does not come in $1"
}
ended() { # PID CODE NAME
    wait "$1"
    code=$?
    cp "out$3" out; cp "err$3" err
    [ $code -eq "$2" ] || fail "$case: $3 ended with $code (expected $2)"
}
first() { "$lockstep" run --nnodes 2 --nproc-per-node 2 "$@" sh rank.sh >out0 2>err0 & p0=$!; }
other() { "$lockstep" run "$@" sh rank.sh >out1 2>err1 & p1=$!; }
lose() { kill -KILL $(tree "$1") 2>/dev/null; } # some may be gone before their turn
lose_first() { lose $p0; wait $p0 2>/dev/null; }
begin() { case=$1; rm -rf went-* runs out? err?; }

begin "a secret that the first node made"
first --max-restarts 3
says err0 "--join"
join=$(sed -n 's/.*\(--join [^ ]*\) .*/\1/p' err0)
other $join --nproc-per-node 1
appears went-0-0; appears went-0-2
run_name=$(ls runs)
[ "$(stat -c %a "runs/$run_name/first-node.json")" = 600 ] || fail "$case: first-node.json has mode $(stat -c %a runs/*/first-node.json)"
lose_first
says err1 "the first node (host"
has err1 "for it to come back"
begun=$(date +%s%N)
first --max-restarts 3
ended $p0 0 0
took=$((($(date +%s%N) - begun) / 1000000))
[ $took -lt 10000 ] || fail "$case: resumed and ended after $took ms"
has out0 "rank 0 of 3 node 0 restart 1 run $run_name"
has out0 "run $run_name" && [ "$(ls runs)" = "$run_name" ] || fail "$case: runs are $(ls runs)"
has err0 "starting again (1 of 3): the first node is back"
has "runs/$run_name/logs/rank-2.log" "rank 2 of 3 node 1 restart 1"
has "runs/$run_name/report.json" '"restarts": 1'
[ ! -e "runs/$run_name/first-node.json" ] || fail "$case: first-node.json is left"
ended $p1 0 1

begin "another run at the same address"
export LOCKSTEP_SECRET=of-this-test
static="--nnodes 2 --master-addr 127.0.0.1 --master-port $port --nproc-per-node 1 --max-restarts"
start_both() {
    "$lockstep" run $static "$@" --node-rank 0 sh rank.sh >out0 2>err0 & p0=$!
    "$lockstep" run $static "$@" --node-rank 1 sh rank.sh >out1 2>err1 & p1=$!
    appears went-0-0; appears went-0-1
}
start_both 3 --name one
lose_first
"$lockstep" run $static 3 --node-rank 0 --name two --timeout 20s sh rank.sh >out2 2>err2 & p2=$!
ended $p1 69 1
has err "this is run two, and it was part of run one"
kill -TERM $p2
ended $p2 143 2
has err "was not let in: this is run two"

begin "lost twice, and once more than restarts are left"
LAST=9
start_both 1 --name one
lose_first
"$lockstep" run $static 1 --name one --node-rank 0 sh rank.sh >out0 2>err0 & p0=$!
appears went-1-0; appears went-1-1
lose_first
ended $p1 69 1
has err "the first node (host"
LAST=1

begin "it does not come back"
start_both 3 --timeout 1s --log-dir none
lose_first
ended $p1 69 1
has err "it did not come back within 1 s (--timeout)"

begin "the same command line while it runs"
LAST=9
unset LOCKSTEP_SECRET
first --max-restarts 3 --timeout 1s
says err0 "--join"
other $(sed -n 's/.*\(--join [^ ]*\) .*/\1/p' err0) --nproc-per-node 1
appears went-0-2
"$lockstep" run --nnodes 2 --nproc-per-node 2 --max-restarts 3 --timeout 1s sh rank.sh >out2 2>err2 & p2=$!
ended $p2 69 2
lacks err "taken up again"
[ "$(ls runs | wc -l)" = 2 ] || fail "$case: runs are $(ls runs)"
kill -TERM $p1
ended $p0 143 0; ended $p1 143 1
LAST=1

begin "agents: the node of rank 0 is lost, and it is not the one that launches"
cat >agent.sh <<'END'
#!/bin/sh
exec sh -c "$2"
END
chmod +x agent.sh
"$lockstep" run --hosts nowhere1*1,nowhere2*2 --agent ./agent.sh --master-addr 127.0.0.1 --max-restarts 2 --tee 3 sh rank.sh >out0 2>err0 & p0=$!
appears went-0-0; appears went-0-2
for p in $(tree $p0); do ! tr "\0" " " <"/proc/$p/cmdline" 2>/dev/null | grep -q -e "run .*--node-rank 0 " || lost=$p; done
lose "$lost"
ended $p0 0 0
has out "rank 0 of 3 node 0 restart 1"
has err "node 0 (host"

for _ in $(seq 100); do [ -z "$(survivors)" ] && break; sleep 0.02; done
[ -z "$(survivors)" ] || fail "processes are left: $(survivors)"
exit $bad
