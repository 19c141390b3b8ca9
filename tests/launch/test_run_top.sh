#!/bin/sh
# lockstep top: what each rank of a run is doing.
set -u
. "$LS_SOURCE_DIR/tests/launch/launch.sh"

# shows RUN FILE WORDS...: what lockstep top RUN --json prints is, sooner or later, as the program FILE says.
shows() {
    for _ in $(seq 30); do
        "$lockstep" top "$1" --json >out 2>err && python3 "$2" out "${3:-}" "${4:-}" 2>why && return
    done
    cp why err
    fail "lockstep top $1 --json is not what $2 says"
}
cat >watched.py <<'END_PY'
import json, sys
d = json.load(open(sys.argv[1]))
assert d["schema"] == "lockstep.top/1" and len(d["ranks"]) == 3, d
assert all(r["memory"] > 1 << 20 and r["cpus"] is not None and r["state"] in "SRD" for r in d["ranks"]), d
assert 0.04 < (d["ranks"][0]["step_seconds"] or 0) < 5 and d["ranks"][0]["step"] > 3, d
assert d["ranks"][2]["mark"] == "behind" and d["ranks"][2]["step"] == 2, d
END_PY
cat >ours.py <<'END_PY'
import json, sys
d, n, pid = json.load(open(sys.argv[1])), int(sys.argv[2]), int(sys.argv[3])
assert len(d["ranks"]) == n and d["missing"] == 0, d
assert all(r["step"] > 0 and 0 <= r["heartbeat_age"] < 5 and 0 < (r["step_seconds"] or 0) < 1 for r in d["ranks"]), d
assert all(r["memory"] > 1 << 20 and (r["pid"] == pid) == (n == 1) for r in d["ranks"]), d
END_PY
cat >both.py <<'END_PY'
import json, sys
d = json.load(open(sys.argv[1]))
assert [r["rank"] for r in d["ranks"]] == [0, 1, 2] and d["missing"] == 0, d
assert all(r["pid"] > 0 and r["memory"] > 1 << 20 and r["cpus"] is not None for r in d["ranks"]), d
assert d["ranks"][2]["mark"] == "behind" and d["ranks"][0]["step"] > d["ranks"][2]["step"] == 2, d
END_PY

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
shows watched watched.py
"$lockstep" top watched >out 2>err || fail "lockstep top"
has out "watched: running, 3 ranks"
grep -q '^ *2 .* behind$' out || fail "rank 2 is not marked"
: >enough
wait
"$lockstep" top watched >out 2>err
[ $? -eq 2 ] || fail "a run that has ended"
has err "is not running"

# A training of ours that nobody launched, on two devices and on one.
python3 -c 'for i in range(200): print(i % 7, i % 3, sep=",")' >rows.csv
sed -i '1i a,y' rows.csv
for devices in cpu:2 cpu:1; do
    "$lockstep" train table --data rows.csv --target y --devices $devices --threads-per-device 1 --batch-size 8 --name ours-$devices \
        --max-epochs 1000000 --validate-every none --save-every none --log-every none >/dev/null 2>&1 &
    ours=$!
    for _ in $(seq 200); do
        [ -e runs/ours-$devices/board.json ] && break
        sleep 0.02
    done
    shows ours-$devices ours.py "${devices#cpu:}" $ours
    kill $ours
    wait $ours
    "$lockstep" top ours-$devices >out 2>err
    [ $? -eq 2 ] || fail "a training that has ended"
done

# Two launchers: the first one asks the other.
export LOCKSTEP_SECRET=of-this-test
port=$((10000 + $$ % 10000))
launch() {
    "$lockstep" run --nnodes 2 --node-rank $1 --master-addr 127.0.0.1 --master-port $port --nproc-per-node $2 --name both beats.py >run_out$1 2>run_err$1 &
}
rm -f enough
launch 0 2
launch 1 1
for _ in $(seq 200); do
    grep -q '"running"' runs/both/launch.json 2>/dev/null && break
    sleep 0.02
done
shows both both.py
"$lockstep" top both >out 2>err
grep -q '^ *2  [^ ]* .* behind$' out || fail "rank 2 of the other machine is not marked"
: >enough
wait

"$lockstep" top nobody >out 2>err
[ $? -eq 2 ] || fail "no such run"
exit $bad
