#!/bin/sh
# PyTorch over Gloo (where Debian's python3-torch is) and our own training, started by lockstep run.
set -u
lockstep=$LS_BINARY_DIR/bin/lockstep
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
for name in RANK LOCAL_RANK WORLD_SIZE MASTER_ADDR MASTER_PORT; do unset $name; done
bad=0

# Rank 0 listens on the port that is held, and the others find it there.
cat >meet.py <<'EOF'
import os, socket, time
address = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
if os.environ["RANK"] == "0":
    server = socket.create_server(address)
    for _ in range(int(os.environ["WORLD_SIZE"]) - 1):
        server.accept()[0].sendall(b"hello")
else:
    while True:
        try:
            peer = socket.create_connection(address)
            break
        except ConnectionRefusedError:
            time.sleep(0.02)
    assert peer.recv(5) == b"hello"
EOF
"$lockstep" run --nproc-per-node 3 meet.py >out 2>err || { echo "no meeting at MASTER_PORT"; cat err; bad=1; }

# Ranks of PyTorch that never meet are warned of after a minute, those that do are not.
if [ -n "${LS_LONG:-}" ]; then
    cat >minute.py <<'EOF'
import mmap, os, socket, sys, time
with open("libtorch_cpu.so", "w+b") as f:
    f.truncate(4096)
    library = mmap.mmap(f.fileno(), 4096)
if sys.argv[1:] and os.environ["RANK"] == "0":
    server = socket.create_server((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])))
time.sleep(63)
EOF
    "$lockstep" run --nproc-per-node 2 minute.py >out_alone 2>err_alone &
    "$lockstep" run --nproc-per-node 2 minute.py together >out 2>err_together
    wait
    grep -q "2 ranks run PyTorch, and after a minute" err_alone || { echo "ranks alone"; cat err_alone; bad=1; }
    ! grep -q "ranks run PyTorch" err_together || { echo "ranks together"; cat err_together; bad=1; }
fi

# The same bits as our own launch.
digest() { python3 -c 'import json,sys; print(json.loads(sys.stdin.read().splitlines()[-1]).get("weights_xxh3"))'; }
python3 - <<'EOF'
import os, random, struct
os.mkdir("data")
random.seed(1)
for part, count in (("train", 256), ("t10k", 64)):
    with open(f"data/{part}-images-idx3-ubyte", "wb") as f:
        f.write(struct.pack(">IIII", 0x803, count, 28, 28) + random.randbytes(784 * count))
    with open(f"data/{part}-labels-idx1-ubyte", "wb") as f:
        f.write(struct.pack(">II", 0x801, count) + bytes(i % 10 for i in range(count)))
EOF
one=$("$lockstep" train image --data data --devices 2 --max-steps 5 --json --name one 2>err1 | digest)
two=$("$lockstep" run --nproc-per-node 2 "$lockstep" train image --data data --max-steps 5 --json --name two 2>err2 | digest)
if [ -z "$one" ] || [ "$one" = None ] || [ "$one" != "$two" ]; then
    echo "lockstep train alone: $one, under lockstep run: $two"
    cat err1 err2
    bad=1
fi

if ! /usr/bin/python3 -c 'import torch' 2>/dev/null; then
    echo "python3-torch is not here"
    exit $bad
fi
cat >ddp.py <<'EOF'
import os, sys, torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
assert rank == int(os.environ["LOCAL_RANK"]) and size == 2
assert torch.get_num_threads() == int(os.environ["OMP_NUM_THREADS"])
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    optimizer.zero_grad()
    model(torch.full((2, 4), float(rank + 1))).mean().backward()
    optimizer.step()
total = torch.stack([p.sum() for p in model.parameters()]).sum()
both = [torch.zeros(()) for _ in range(size)]
dist.all_gather(both, total.detach())
assert both[0] == both[1], both
if rank == 1 and "--break" in sys.argv:
    raise ValueError("broken on purpose")
dist.barrier()
print(f"trained on {size}")
dist.destroy_process_group()
EOF
PYTHON_EXEC=/usr/bin/python3 "$lockstep" run --nproc-per-node 2 ddp.py >out 2>err
code=$?
[ $code -eq 0 ] && grep -q "trained on 2" out || { echo "DDP over Gloo: exit code $code"; cat out err; bad=1; }
PYTHON_EXEC=/usr/bin/python3 "$lockstep" run --nproc-per-node 2 --report report.json ddp.py --break >out 2>err
code=$?
# PyTorch may abort after the traceback: its threads outlive an interpreter that leaves without destroy_process_group.
{ [ $code -eq 1 ] || [ $code -eq 134 ]; } && grep -q '"rank": 1' report.json && grep -q "ValueError: broken on purpose" report.json || {
    echo "DDP with a failing rank: exit code $code"
    cat err report.json
    bad=1
}
exit $bad
