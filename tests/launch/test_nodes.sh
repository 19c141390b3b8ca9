#!/bin/sh
# Several launchers that meet over loopback, as machines would: places, the first failure on all, restarts, stop signals, a
# launcher that is lost, who is not let in, and that nothing of a job is left.
set -u
. "$(dirname "$0")/launch.sh"
export LOCKSTEP_SECRET=of-this-test
port=$((10000 + $$ % 10000))
mark=nodes-$$

cat >rank.sh <<'END'
echo "rank $RANK local $LOCAL_RANK/$LOCAL_WORLD_SIZE of $WORLD_SIZE node $GROUP_RANK/$GROUP_WORLD_SIZE cross $CROSS_RANK/$CROSS_SIZE at $MASTER_ADDR"
[ ${#LOCKSTEP_SECRET} -eq 32 ] || echo "no secret for ranks"
eval "${ACT:-:}"
END

survivors() { grep -l -a -z -x "NODES_MARK=$mark" /proc/[0-9]*/environ 2>/dev/null | wc -l; }

# nodes CODE0 CODE1 WORDS...: two launchers with these words; DO happens when all three ranks wrote a line to went. pids in $p0, $p1.
nodes() {
    want="$1 $2"
    shift 2
    port=$((port + 1))
    rm -f out0 err0 out1 err1 went
    NODES_MARK=$mark "$lockstep" run --nnodes 2 --node-rank 0 --master-addr 127.0.0.1 --master-port $port --nproc-per-node 2 "$@" >out0 2>err0 &
    p0=$!
    NODES_MARK=$mark "$lockstep" run --nnodes 2 --node-rank 1 --master-addr 127.0.0.1 --master-port $port --nproc-per-node 1 "$@" >out1 2>err1 &
    p1=$!
    if [ -n "${DO:-}" ]; then
        for _ in $(seq 400); do [ "$(cat went 2>/dev/null | wc -l)" -eq 3 ] && break; sleep 0.02; done
        eval "$DO"
    fi
    wait $p0; c0=$?
    wait $p1; c1=$?
    cp out0 out; cat err0 err1 >err
    [ "$c0 $c1" = "$want" ] || fail "lockstep run $*: exit codes $c0 $c1 (expected $want)"
    for _ in $(seq 100); do [ "$(survivors)" -eq 0 ] && break; sleep 0.02; done # a launcher whose guardian was killed
    [ "$(survivors)" -eq 0 ] || fail "lockstep run $*: processes are left"
}

nodes 0 0 --tee 3 sh rank.sh
has out0 "rank 0 local 0/2 of 3 node 0/2 cross 0/2 at 127.0.0.1"
host=$(uname -n)
has out0 "[$host:1] rank 1 local 1/2 of 3 node 0/2 cross 0/2 at 127.0.0.1"
has out0 "[$host:2] rank 2 local 0/1 of 3 node 1/2 cross 1/2 at 127.0.0.1"
lacks out0 "no secret"
[ -s out1 ] && fail "the other node's output is not on its own streams"
logs=$(ls -d runs/*/logs | tail -1)
has "$logs/rank-2.log" "rank 2 local 0/1"

export ACT='[ $RANK = 2 ] && exit 7; sleep 30'
nodes 7 7 --events ev --report rep sh rank.sh
has err0 "rank 2 (host $host, process"
has err0 "exited with code 7"
has rep '"rank": 2'
has ev '"event":"failure"'
has ev '"node":1'
ACT='[ $RANK = 0 ] && kill -SEGV $$; sleep 30'
nodes 139 139 sh rank.sh
has err1 "rank 0 (host $host, process"
ACT='[ $RANK = 2 ] && [ $TORCHELASTIC_RESTART_COUNT -lt 2 ] && exit 3; [ $TORCHELASTIC_RESTART_COUNT = 2 ] || sleep 30'
nodes 0 0 --max-restarts 3 sh rank.sh
has err0 "starting again"
has err1 "starting again (2 of 3)"

ACT='trap "exit 0" TERM; echo >>went; while :; do sleep 0.05; done'
DO='kill -TERM $p1'
nodes 0 0 sh rank.sh
has err0 "SIGTERM was passed on to every rank"
ACT='echo >>went; while :; do sleep 0.05; done'
DO='kill -INT $p0'
nodes 130 130 sh rank.sh
DO='kill -KILL $p1' # its guardian: everything there ends
nodes 69 137 sh rank.sh
has err0 "node 1 (host $host, rank 2)"
DO='kill -KILL $p0'
nodes 137 69 sh rank.sh
has err1 "the first node (host $host)"
DO=

# a training whose machines do not share the folder of its runs: said before it trains, by whose it is
mkdir -p own/runs/apart/checkpoints
write_table own/table.csv
cp own/table.csv .
begin_training() { # NODE
    "$lockstep" run --nnodes 2 --node-rank $1 --master-addr 127.0.0.1 --master-port $((port + 1)) --nproc-per-node 1 --log-dir none \
        "$lockstep" train table --data table.csv --target y --batch-size 8 --threads-per-device 1 --max-epochs 1 --name apart
}
begin_training 0 >out 2>err &
p0=$!
(cd own && begin_training 1) >out1 2>err1
c1=$?
wait $p0
c0=$?
[ "$c0 $c1" = "2 2" ] || fail "a training without one folder: exit codes $c0 $c1 (expected 2 2)"
has err "on host $host there is no folder runs/apart/checkpoints, or another than rank 0's"
lacks err "epoch 1"
[ -z "$(ls -A runs/apart/checkpoints)" ] || fail "left behind: $(ls -A runs/apart/checkpoints)"
port=$((port + 1))

# the line that the first one prints; a wrong secret; too late
unset LOCKSTEP_SECRET
ACT=:
NODES_MARK=$mark "$lockstep" run --nnodes 2 --nproc-per-node 1 sh rank.sh >out0 2>err0 &
p0=$!
for _ in $(seq 200); do grep -q -e --join err0 && break; sleep 0.02; done
line=$(sed -n 's/.*lockstep run \(--join .*\)/\1/p' err0)
wrong=$(echo "$line" | sed 's|\(--join [^/]*\)/[0-9a-f]*|\1/0123456789abcdef|')
"$lockstep" run $wrong >out1 2>err1 && fail "a wrong secret was let in"
has err1 "does not know this job's secret"
"$lockstep" run $line >out1 2>err1 || fail "the printed line does not join: $line"
wait $p0 || fail "the first of two nodes fails"
cp err0 err
run 69 --nnodes 2 --timeout 1s sh rank.sh
has err "1 of 2 nodes came within 1 s (--timeout); node 1 is missing"
run 69 --join 127.0.0.1:$port/x --timeout 1s sh rank.sh
has err "could not be reached within 1 s"
# Kubernetes' variables need no flags: PyTorchJob's, and those of TrainJob, which are flags
kube() {
    port=$((port + 1))
    for i in 1 0; do
        env KUBERNETES_SERVICE_HOST=10.0.0.1 MASTER_PORT=$port RANK=$i PET_MASTER_PORT=$port PET_NODE_RANK=$i "$@" "$lockstep" run --tee 3 --devices cpu:1 sh rank.sh >out$i 2>err$i &
        eval "p$i=$!"
    done
    wait $p0 && wait $p1 || fail "Kubernetes: $*"
    cp out0 out; cp err0 err
    has out "rank 1 local 0/1 of 2 node 1/2"
}
kube WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 PET_NODE_RANK= PET_MASTER_PORT=
has err "without a secret"
kube PET_NNODES=2 PET_MASTER_ADDR=127.0.0.1
if [ "${LS_LONG:-0}" = 1 ] && command -v mpirun >/dev/null; then
    for expected in 0 6; do
        ACT="[ \$RANK = 1 ] && exit $expected; [ $expected = 0 ] || sleep 20"
        mpirun $([ "$(id -u)" = 0 ] && echo --allow-run-as-root) --oversubscribe -np 2 "$lockstep" run --tee 3 sh rank.sh >out 2>err
        code=$?
        [ $code -eq $expected ] || fail "mpirun: exit code $code (expected $expected)"
        has out "rank 0 local 0/2 of 2 node 0/1"
    done
fi
run 2 --nnodes 1:2 true
has err "does not change while a job runs"
run 2 --nnodes 2 --node-rank 2 true
run 2 --join nonsense true
has err "HOST:PORT/SECRET"
exit $bad
