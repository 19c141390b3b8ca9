#!/bin/sh
# A training of ours under lockstep run goes on after a restart, without a name of its own.
set -u
. "$LS_SOURCE_DIR/tests/launch/launch.sh"

python3 - <<'END_PY'
import random
random.seed(1)
with open("table.csv", "w") as f:
    f.write("a,b,y\n")
    for _ in range(400):
        a, b = random.random(), random.random()
        f.write(f"{a:.4f},{b:.4f},{a - b:.4f}\n")
END_PY

# once RESTARTS: waits until the run has been restarted so often and has saved; prints a rank's process.
once() {
    python3 - "$1" <<'END_PY'
import glob, json, sys, time
for _ in range(600):
    try:
        run = json.load(open(glob.glob("runs/*/launch.json")[0]))
        if run["restarts"] == int(sys.argv[1]) and glob.glob("runs/*/checkpoints/step-*") and run["ranks"]:
            print(run["ranks"][1])
            break
    except (IndexError, ValueError):
        pass
    time.sleep(0.02)
END_PY
}

train="$lockstep train table --data table.csv --target y --threads-per-device 1 --log-every none --batch-size 8"
"$lockstep" run --nproc-per-node 2 --max-restarts 2 $train --max-epochs 1000000 --save-every 300 --resume none >out 2>err &
launcher=$!
kill -9 "$(once 0)"
once 1 >/dev/null
for _ in $(seq 500); do
    grep -q '"rewind"' runs/*/metrics.jsonl && break
    sleep 0.02
done
kill $launcher
wait $launcher
[ $? -eq 75 ] || fail "the training was not stopped"
has err "starting again (1 of 2)"
[ "$(ls runs | wc -l)" -eq 1 ] || fail "more than one run: $(ls runs)"
grep -q '"rewind"' runs/*/metrics.jsonl || fail "it did not go on"

# Of several trainings in one job the first has the name; the others make theirs up.
rm -rf runs
cat >two.sh <<END_SH
$train --max-steps 5
$train --max-steps 6
END_SH
run 0 --nproc-per-node 1 --name pair sh two.sh
has err "another command has trained in runs/pair"
[ "$(ls runs | wc -l)" -eq 2 ] || fail "not two runs: $(ls runs)"
exit $bad
