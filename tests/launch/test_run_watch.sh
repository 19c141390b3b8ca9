#!/bin/sh
# What lockstep run notices: who failed first, silence, hangs, early ends; events, injections, restarts, metrics.
set -u
. "$LS_SOURCE_DIR/tests/launch/launch.sh"

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
has err "there is no rank 2; the last is 1"
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
run 0 --nproc-per-node 1 --silence-warning 500ms sh -c 'timeout 1.2 sh -c "while :; do :; done"; sleep 0.4'
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
exit $bad
