#!/bin/sh
# What lockstep run notices: who failed first, silence, hangs, early ends; events, injections, restarts, metrics, and what of the
# output is shown and kept.
set -u
lockstep=$LS_BINARY_DIR/bin/lockstep
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
for name in RANK LOCAL_RANK WORLD_SIZE MASTER_ADDR MASTER_PORT; do unset $name; done
bad=0

fail() {
    echo "$*"
    sed 's/^/  out: /' out | head -40
    sed 's/^/  err: /' err | head -40
    bad=1
}

run() {
    expected=$1
    shift
    begin=$(date +%s%N)
    "$lockstep" run "$@" >out 2>err
    got=$?
    took=$((($(date +%s%N) - begin) / 1000000))
    [ $got -eq "$expected" ] || fail "lockstep run $*: exit code $got (expected $expected)"
}
has() { grep -q -F -e "$2" "$1" || fail "\"$2\" is not in $1"; }
lacks() { ! grep -q -F -e "$2" "$1" || fail "\"$2\" is in $1"; }

# --- the cause, not the victim that is seen first ---
cat >slow_to_die.py <<'EOF'
import os, time, traceback
if os.environ["RANK"] == "1":
    try:
        raise ValueError("the cause")
    except ValueError:
        traceback.print_exc()
    open("cause", "w").close()
    time.sleep(0.6)
    os._exit(1)
while not os.path.exists("cause"):
    time.sleep(0.01)
time.sleep(0.1)
try:
    raise ConnectionError("peer closed")
except ConnectionError:
    traceback.print_exc()
os._exit(1)
EOF
run 1 --nproc-per-node 2 slow_to_die.py
has err "rank 1 (host"
has err "    ValueError: the cause"
run 7 --nproc-per-node 2 sh -c '[ $RANK = 1 ] && exit 69; sleep 0.3; exit 7'
has err "rank 0 (host"
run 69 --nproc-per-node 2 sh -c '[ $RANK = 1 ] && exit 69; exec sleep 60'
has err "rank 1 (host"
[ $took -lt 8000 ] || fail "a lone victim was waited for too long: $took ms"
run 139 --nproc-per-node 2 sh -c '[ $RANK = 0 ] && exit 1; sleep 0.01; kill -SEGV $$'

# --- injections and events ---
run 137 --nproc-per-node 3 --inject kill:rank=2@200ms --events events.jsonl sleep 60
has err "injected: SIGKILL to rank 2"
has err "rank 2 (host"
python3 - <<'EOF' || fail "events: $(cat events.jsonl)"
import json
events = [json.loads(line) for line in open("events.jsonl")]
names = [e["event"] for e in events]
assert events[0]["schema"] == "lockstep.events/1"
assert names.count("start") == 3 and names.count("exit") == 3, names
assert names.index("inject") < names.index("exit") < names.index("failure") < names.index("end")
failure = events[names.index("failure")]
assert failure["rank"] == 2 and failure["signal"] == "SIGKILL", failure
assert events[-1]["event"] == "end" and events[-1]["exit_code"] == 137 and events[-1]["verdict"] == "signalled"
assert all(isinstance(e["time"], float) for e in events)
EOF
run 2 --inject boil:rank=0@1s true
has err "SIGNAL:rank=R@TIME"
run 2 --nproc-per-node 2 --inject kill:rank=2@1s true
run 2 --inject "kill:rank=0@1s " true

# --- silence and hangs ---
run 124 --nproc-per-node 2 --hang-timeout 500ms --report report.json sh -c 'echo started; exec sleep 60'
has err "no rank gave a sign of life for 0.5 s"
has err "rank 1 (process"
has report.json '"verdict": "hung"'
[ $took -lt 5000 ] || fail "the hang was noticed after $took ms"
# A heartbeat is enough, also without a line; and one rank's is missed though another prints.
run 0 --nproc-per-node 1 --hang-timeout 600ms sh -c 'for i in 1 2 3 4 5 6 7 8 9 10; do echo $i >"$LOCKSTEP_HEARTBEAT"; sleep 0.15; done'
run 124 --nproc-per-node 2 --hang-timeout 600ms --report report.json sh -c 'echo 41 >"$LOCKSTEP_HEARTBEAT"; [ $RANK = 1 ] && exec sleep 60; while :; do echo 50 >"$LOCKSTEP_HEARTBEAT"; echo line; sleep 0.1; done'
has err "rank 1 (host"
has err "gave no sign of life for 0.6 s at step 41 and was killed"
has report.json '"rank": 1'
has report.json '"step": 41'
run 124 --nproc-per-node 2 --hang-timeout 1s --inject stop:rank=1@100ms sh -c 'while :; do date +%N >"$LOCKSTEP_HEARTBEAT"; sleep 0.05; done'
has err "rank 1 (host"
has err "stopped by a signal"
run 0 --nproc-per-node 2 --silence-warning 500ms sleep 1.5
has err "nothing was printed for"
has err "sleeping"
run 0 --nproc-per-node 1 --silence-warning 500ms sh -c 'i=0; while [ $i -lt 10 ]; do echo $i; sleep 0.15; i=$((i+1)); done'
lacks err "nothing was printed"
run 0 --nproc-per-node 1 --silence-warning 500ms sh -c 'timeout 1.5 sh -c "while :; do :; done"; true'
lacks err "nothing was printed"
run 0 --nproc-per-node 2 sh -c '[ $RANK = 1 ] || sleep 7'
has err "rank 1 ended with code 0"
has err "1 of 2 still run"

# --- restarts: when they help, and when not ---
run 5 --nproc-per-node 1 --max-restarts 9 sh -c 'echo "start $TORCHELASTIC_RESTART_COUNT" >&2; exit 5'
has err "start 2"
lacks err "start 3"
has err "not started again: it failed in the same way within 30 s, 3 times in a row"
run 5 --nproc-per-node 1 --max-restarts 9 sh -c 'echo 7 >"$LOCKSTEP_HEARTBEAT"; exit 5'
has err "not started again: 3 starts in a row came no further than step 7"
run 0 --nproc-per-node 1 --max-restarts 5 sh -c 'echo $TORCHELASTIC_RESTART_COUNT >"$LOCKSTEP_HEARTBEAT"; [ $TORCHELASTIC_RESTART_COUNT = 3 ] || exit 5'
[ $took -ge 3000 ] || fail "no backoff between starts: $took ms"
run 2 --nproc-per-node 1 --max-restarts 3 sh -c 'echo one >&2; exit 2'
[ "$(grep -c one err)" -eq 1 ] || fail "a usage error was started again"

# --- metrics of any program ---
cat >metrics.sh <<'EOF'
for step in 1 2 3; do echo "{\"step\": $step, \"loss\": 0.$step, \"val\": {\"accuracy\": 0.9}, \"note\": \"text\"}" >>"$LOCKSTEP_METRICS"; done
EOF
run 0 --nproc-per-node 2 --name metered sh metrics.sh
python3 - <<'EOF' || fail "metrics: $(cat runs/metered/metrics.jsonl)"
import json
lines = [json.loads(line) for line in open("runs/metered/metrics.jsonl")]
points = [l for l in lines if "step" in l and "event" not in l]
assert [p["step"] for p in points] == [1, 2, 3], lines
assert points[1]["train"]["loss"] == 0.2 and points[2]["val"]["accuracy"] == 0.9, points
run = json.load(open("runs/metered/run.json"))
assert run["schema"] == "lockstep.run/1" and run["status"] == "finished" and run["world_size"] == 2 and run["step"] == 3, run
EOF
run 0 --nproc-per-node 1 --name garbled sh -c 'echo "loss 3" >"$LOCKSTEP_METRICS"; sleep 0.1'
has err 'are not recorded: "loss 3" is not'
run 0 --nproc-per-node 1 --name none-written true
[ ! -e runs/none-written/metrics.jsonl ] || fail "a run without metrics has some"

# --- output ---
run 0 --nproc-per-node 4 --name folded sh -c 'echo "the same" >&2; echo "the same" >&2; echo "rank $RANK" >&2'
[ "$(grep -c 'the same' err)" -eq 4 ] || fail "equal lines were not folded"
[ "$(grep -c -x -F -e '[1-3] the same' err)" -eq 2 ] || fail "equal lines were not folded"
for rank in 1 2 3; do has err "[$rank] rank $rank"; done
[ "$(grep -c 'the same' runs/folded/logs/rank-2.log)" -eq 2 ] || fail "a log is not whole"
cat >bar.py <<'EOF'
import os, sys, time
for i in range(200):
    sys.stderr.write(f"\r{i} of 200")
    sys.stderr.flush()
    time.sleep(0.001)
sys.stderr.write("\rdone\r\nplain\r\n")
EOF
run 0 --nproc-per-node 2 --name bar bar.py
[ "$(wc -l <runs/bar/logs/rank-1.log)" -le 4 ] || fail "a progress bar fills the log: $(wc -l <runs/bar/logs/rank-1.log)"
has err "[1] done"
grep -q -x done runs/bar/logs/rank-1.log && grep -q -x plain runs/bar/logs/rank-1.log || fail "the end of a progress bar is lost"
# Rank 0's stdout is what it is, byte by byte, also a lot of it into a slow reader; nothing of anybody's log is lost.
head -c 3000000 /dev/urandom >bytes
"$lockstep" run --nproc-per-node 2 --name bytes cat bytes 2>err | { sleep 0.5; cat; } | cmp - bytes || fail "rank 0's stdout is not what it wrote"
cat >many.py <<'EOF'
import os, sys
for i in range(20000):
    sys.stdout.write(f"{os.environ['RANK']}:{i}:" + "x" * 300 + "\n")
EOF
"$lockstep" run --nproc-per-node 2 --tee 3 --name many many.py 2>err >out
for rank in 0 1; do [ "$(grep -c "^$rank:[0-9]*:x\{300\}$" runs/many/logs/rank-$rank.log)" -eq 20000 ] || fail "torn lines in the log of rank $rank"; done
[ "$(grep -c -v '^\(\[1\] 1\|0\):[0-9]*:x\{300\}$' out)" -eq "$(grep -c 'were not shown' out)" ] || fail "torn lines on stdout"
# A reader that is stuck does not stop ranks whose lines need not be whole.
mkfifo stuck
sleep 30 <stuck &
"$lockstep" run --nproc-per-node 2 --tee 1:1 --redirects 0:3 --name stuck many.py >stuck 2>err &
launcher=$!
for _ in $(seq 200); do
    [ "$(grep -c . runs/stuck/logs/rank-1.log 2>/dev/null)" = 20000 ] && break
    sleep 0.05
done
[ "$(grep -c . runs/stuck/logs/rank-1.log)" -eq 20000 ] || fail "a rank waited for a stuck terminal"
kill %1 2>/dev/null
wait $launcher
# Logs are rotated.
run 0 --nproc-per-node 1 --redirects 3 --name long sh -c 'head -c 70000000 /dev/zero | tr "\0" "\n"'
[ -s runs/long/logs/rank-0.log.1 ] && [ "$(cat runs/long/logs/rank-0.log.1 runs/long/logs/rank-0.log | wc -c)" -eq 70000000 ] || fail "the log was not rotated: $(ls -l runs/long/logs)"
# A log directory of one's own; none at all.
run 0 --nproc-per-node 2 --log-dir here sh -c 'echo "line $RANK"'
has here/rank-1.log "line 1"
rm -rf runs
run 0 --nproc-per-node 1 --log-dir none true
[ ! -e runs ] || fail "--log-dir none left something"
# Where nothing can be kept a program runs all the same, unless somebody asked for it.
mkdir closed
chmod 500 closed
if ! touch closed/x 2>/dev/null; then
    (cd closed && "$lockstep" run --nproc-per-node 1 true 2>../err) || fail "a read-only folder kept a program from running"
    has err "no logs and no report are kept"
fi
exit $bad
