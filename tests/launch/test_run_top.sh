#!/bin/sh
# lockstep top: what each rank of a run is doing.
set -u
. "$LS_SOURCE_DIR/tests/launch/launch.sh"

# Rank 2 stays behind.
cat >beats.py <<'END_PY'
import os, time
rank, step = int(os.environ["RANK"]), 0
while not os.path.exists("enough"):
    step += 1
    if rank != 2 or step < 3:
        with open(os.environ["LOCKSTEP_HEARTBEAT"], "w") as f:
            f.write(f"{step}\n")
    time.sleep(0.05)
END_PY
"$lockstep" run --nproc-per-node 3 --name watched beats.py >run_out 2>run_err &
for _ in $(seq 200); do
    grep -q '"running"' runs/watched/launch.json 2>/dev/null && break
    sleep 0.02
done
sleep 1.5
"$lockstep" top watched >out 2>err || fail "lockstep top"
has out "watched: running, 3 ranks"
grep -q '^ *2 .* behind$' out || fail "rank 2 is not marked"
"$lockstep" top watched --json >out 2>err || fail "lockstep top --json"
python3 - out <<'END_PY' || fail "--json"
import json, sys
d = json.load(open(sys.argv[1]))
assert d["schema"] == "lockstep.top/1" and len(d["ranks"]) == 3, d
assert all(r["memory"] > 1 << 20 and r["cpus"] is not None and r["state"] in "SRD" for r in d["ranks"]), d
assert 0.04 < d["ranks"][0]["step_seconds"] < 5 and d["ranks"][0]["step"] > 3, d
assert d["ranks"][2]["mark"] == "behind" and d["ranks"][2]["step"] == 2, d
END_PY
: >enough
wait
"$lockstep" top watched >out 2>err
[ $? -eq 2 ] || fail "a run that has ended"
has err "is not running"
"$lockstep" top nobody >out 2>err
[ $? -eq 2 ] || fail "no such run"
exit $bad
