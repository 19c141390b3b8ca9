#!/bin/sh
# lockstep runs, logs and stop.
set -u
. "$LS_SOURCE_DIR/tests/launch/launch.sh"
# Here it is any of the command's words.
run() {
    expected=$1
    shift
    "$lockstep" "$@" >out 2>err
    got=$?
    [ $got -eq "$expected" ] || fail "lockstep $*: exit code $got (expected $expected)"
}
field() { python3 -c "import json; runs = {r['name']: r for r in json.load(open('out'))['runs']}; print(runs['$1']['$2'])"; }

run 0 runs
[ ! -s out ] || fail "runs where there are none"
run 2 logs nothing
has err "no run \"nothing\": $work/runs holds no runs (--runs-dir)"
run 2 stop nothing
run 2 stop
run 2 logs a b

run 0 run --nproc-per-node 2 --name first sh -c 'echo "out $RANK"; echo "err $RANK" >&2'
run 3 run --nproc-per-node 2 --name second sh -c 'exit 3'
for command in logs stop top; do
    run 2 $command frist
    has err "no run \"frist\" in $work/runs; did you mean first?"
    run 2 $command nothing
    has err "no run \"nothing\" in $work/runs; there are: first, second"
    run 2 $command ./nothing
    has err "./nothing: not the folder of a run"
done
run 0 logs first
has out "[0] out 0"
has out "[1] err 1"
run 0 logs first -r 1
has out "out 1"
lacks out "out 0"
lacks out "["
run 0 logs runs/first --rank 0
has out "err 0"
run 2 logs first -r 2
has err "has 2 ranks"

"$lockstep" run --nproc-per-node 2 --name third --grace-period 5 sh -c 'trap "exit 0" TERM; i=0; while :; do echo "line $i"; i=$((i + 1)); sleep 0.1; done' >/dev/null 2>third &
job=$!
for _ in $(seq 100); do grep -q "line 1" runs/third/logs/rank-1.log 2>/dev/null && break; sleep 0.05; done
run 0 runs --json
[ "$(field third status)" = running ] && [ "$(field third live)" = True ] || fail "a run that runs is not shown so"
[ "$(field first status)" = finished ] && [ "$(field second status)" = failed ] || fail "the ends of runs are not shown"
run 0 runs --live
has out third
lacks out first
run 2 run --name third true
has err "is running already"
"$lockstep" logs third -f -r 1 >followed 2>&1 &
follower=$!
sleep 0.7
run 0 stop third
has err "finished"
wait $job || fail "the stopped job did not end well"
wait $follower || fail "logs --follow did not end with the run"
cmp -s followed runs/third/logs/rank-1.log || fail "logs --follow lost something: $(wc -l <followed) of $(wc -l <runs/third/logs/rank-1.log)"
[ "$(wc -l <followed)" -gt 5 ] || fail "logs --follow showed nothing while the run went on"
run 0 stop third
has err "is not running"

# One that does not want to stop.
"$lockstep" run --nproc-per-node 1 --name deaf --grace-period 60 sh -c 'trap "" TERM; echo ready; while :; do sleep 0.1; done' >deaf 2>&1 &
job=$!
for _ in $(seq 100); do grep -q ready deaf && break; sleep 0.05; done
run 69 stop deaf --wait 0.3
has err "still runs"
sleep 1.1
run 0 stop deaf --now
wait $job
code=$?
[ $code -eq 143 ] || fail "a job that was stopped at once: exit code $code"

# One whose processes are all gone without a word.
"$lockstep" run --nproc-per-node 1 --name gone sh -c 'echo ready; exec sleep 60' >gone 2>&1 &
job=$!
for _ in $(seq 100); do grep -q ready gone && break; sleep 0.05; done
all="$job $(pgrep -P $job)"
kill -STOP $all # so that none of them sees another go, which would be a word
kill -KILL $all
wait $job 2>/dev/null
for _ in $(seq 100); do
    run 0 runs --json
    [ "$(field gone status)" = running ] || break
    sleep 0.05
done
[ "$(field gone status)" = died ] || fail "a run that died is $(field gone status)"
exit $bad
