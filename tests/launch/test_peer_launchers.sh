#!/bin/sh
# Other launchers start our own training: the same bits as our own launch.
set -u
. "$LS_SOURCE_DIR/tests/launch/peer.sh"
python3 - <<'END_PY'
import os, random, struct
os.mkdir("data")
random.seed(1)
for part, count in (("train", 512), ("t10k", 64)):
    with open(f"data/{part}-images-idx3-ubyte", "wb") as f:
        f.write(struct.pack(">IIII", 0x803, count, 28, 28) + random.randbytes(784 * count))
    with open(f"data/{part}-labels-idx1-ubyte", "wb") as f:
        f.write(struct.pack(">II", 0x801, count) + bytes(i % 10 for i in range(count)))
END_PY
digest() { grep -a -o '"weights_xxh3":"[0-9a-f]*"' "$1" | sort -u; }
train="$lockstep train image --data data --model cnn --batch-size 32 --max-steps 12 --threads-per-device 1 --json"
$train --devices 2 --name ours >ours 2>err || fail "our own launch"
expected=$(digest ours)
[ -n "$expected" ] || fail "no sum of the weights"

# started NAME LAUNCHER...: ran well, and computed the same.
started() {
    name=$1
    shift
    "$@" $train --name "$name" >out 2>err || fail "$name: exit code $?"
    [ "$(digest out)" = "$expected" ] || fail "$name: $(digest out), not $expected"
    tried="$tried $name"
}
tried=""
started run "$lockstep" run --nproc-per-node 2
[ -x "$venv/bin/torchrun" ] && started torchrun "$venv/bin/torchrun" --nproc-per-node 2 --no-python
command -v mpirun.openmpi >/dev/null &&
    started openmpi env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun.openmpi --oversubscribe --bind-to none -np 2
command -v mpiexec.hydra >/dev/null && started mpich mpiexec.hydra -n 2
echo "started by:$tried"
exit $bad
