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

# kill_when_saved: SIGKILL to a rank of the newest run, once it has a checkpoint.
kill_when_saved() {
    for _ in $(seq 400); do
        pid=$(python3 - 2>/dev/null <<'END_PY'
import glob, json
run = json.load(open(glob.glob("runs/*/launch.json")[0]))
if glob.glob("runs/*/checkpoints/step-*") and run["restarts"] == 0:
    print(run["ranks"][1])
END_PY
)
        [ -n "$pid" ] && break
        sleep 0.05
    done
    kill -9 "$pid"
}

train="$lockstep train table --data table.csv --target y --threads-per-device 1 --log-every none --batch-size 8"
"$lockstep" run --nproc-per-node 2 --max-restarts 2 $train --max-steps 1200 --save-every 300 --resume none >out 2>err &
kill_when_saved
wait $! || fail "the training was not finished"
has err "starting again (1 of 2)"
[ "$(ls runs | wc -l)" -eq 1 ] || fail "more than one run: $(ls runs)"
grep -q '"rewind"' runs/*/metrics.jsonl || fail "it did not go on"
"$lockstep" runs >out 2>err
has out " 1200 "

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
