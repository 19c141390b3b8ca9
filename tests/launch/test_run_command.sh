#!/bin/sh
# lockstep run: what the ranks see, what is refused, exit codes and the report.
set -u
. "$LS_SOURCE_DIR/tests/launch/launch.sh"

# --- what ranks see ---
run 0 --nproc-per-node 2 --tee 3 env
for rank in 0 1; do
    for line in RANK=$rank LOCAL_RANK=$rank WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 GROUP_RANK=0 GROUP_WORLD_SIZE=1 NODE_RANK=0 \
        ROLE_NAME=default ROLE_RANK=$rank ROLE_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 TORCHELASTIC_RESTART_COUNT=0 \
        TORCHELASTIC_MAX_RESTARTS=0 TORCHELASTIC_USE_AGENT_STORE=False TORCH_NCCL_ASYNC_ERROR_HANDLING=1 LOCAL_SIZE=2 \
        CROSS_RANK=0 CROSS_SIZE=1 JAX_NUM_PROCESSES=2 JAX_PROCESS_ID=$rank JAX_LOCAL_DEVICE_IDS=$rank PYTHONUNBUFFERED=1; do
        [ $rank -eq 1 ] && line="[1] $line"
        grep -q -x -F -e "$line" out || fail "rank $rank does not see $line"
    done
done
ports=$(sed -n 's/^.*MASTER_PORT=//p' out | sort -u | wc -l)
[ "$ports" -eq 1 ] || fail "the ranks see $ports different ports"
port=$(sed -n 's/^MASTER_PORT=//p' out)
has out "JAX_COORDINATOR_ADDRESS=127.0.0.1:$port"

# The words of another launcher about us do not reach the ranks; those about the job do.
SLURM_JOB_ID=7 SLURM_PROCID=1 SLURM_STEP_ID=0 SLURM_LOCALID=1 PMI_RANK=1 PMIX_RANK=1 OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=4 \
    "$lockstep" run --nproc-per-node 1 env >out 2>err
for name in SLURM_PROCID SLURM_STEP_ID SLURM_LOCALID PMI_RANK PMIX_RANK OMPI_COMM_WORLD; do lacks out "$name"; done
has out "SLURM_JOB_ID=7"

# Lightning and Accelerate are told of the ranks; one rank needs nothing.
run 0 --devices cpu:2 --tee 3 env
for line in LT_DEVICES=2 PL_TRAINER_DEVICES=2 ACCELERATE_USE_CPU=true; do has out "[1] $line"; done
LT_DEVICES=1 ACCELERATE_USE_CPU=false "$lockstep" run --devices cpu:2 env >out 2>err
has out LT_DEVICES=1
has out ACCELERATE_USE_CPU=false
run 0 --nproc-per-node 1 env
lacks out PL_TRAINER
lacks out ACCELERATE

# Lightning's devices="auto" written out beats every variable: what it counts on CPUs are the ranks, on one machine. The
# path of Python programs, and a sitecustomize of somebody's own, stay.
mkdir -p path/lightning/pytorch/accelerators
echo 'print("own sitecustomize")' >path/sitecustomize.py
cat >path/lightning/pytorch/accelerators/cpu.py <<'END'
class CPUAccelerator:
    @staticmethod
    def auto_device_count():
        return 1
END
echo 'from lightning.pytorch.accelerators.cpu import CPUAccelerator
import sys
print("devices", CPUAccelerator.auto_device_count(), [p for p in sys.path if p.endswith("lockstep_python")])' >auto.py
for ranks in 3 1; do
    PYTHONPATH=$PWD/path "$lockstep" run --devices cpu:$ranks auto.py >out 2>err
    has out "devices $ranks []"
    has out "own sitecustomize"
done
printf 'import os, subprocess, sys\ndel os.environ["LOCAL_WORLD_SIZE"]\nsubprocess.run([sys.executable, "auto.py"], check=True)\n' >other.py
PYTHONPATH=$PWD/path "$lockstep" run --devices cpu:2 other.py >out 2>err
has out "devices 1 []"

# What somebody has set stays; what nobody has is shared out among the ranks.
OMP_NUM_THREADS=5 PYTHONUNBUFFERED=0 "$lockstep" run --nproc-per-node 1 env >out 2>err
has out OMP_NUM_THREADS=5
has out PYTHONUNBUFFERED=0
run 0 --nproc-per-node 1 env
has out "OMP_NUM_THREADS=$(nproc)"
run 0 --nproc-per-node "$(nproc)" env
has out "OMP_NUM_THREADS=1"
run 0 --nproc-per-node 1 --threads-per-device 3 env
has out "OMP_NUM_THREADS=3"
run 0 --nproc-per-node 1 --master-port 0 --rdzv-id job-5 --role trainer --max-restarts 2 env
has out TORCHELASTIC_RUN_ID=job-5
has out ROLE_NAME=trainer
has out TORCHELASTIC_MAX_RESTARTS=2

# --- which processes ---
run 0 --nproc-per-node 3 sh -c 'echo "$RANK of $WORLD_SIZE" >&2'
has err "[2] 2 of 3"
has err "1 node x 3 processes = 3 ranks"
run 0 --devices cpu:2 sh -c 'echo $WORLD_SIZE on $LOCKSTEP_DEVICES'
has out "2 on cpu:2"
run 0 --nproc_per_node=cpu sh -c 'echo $WORLD_SIZE'
has out "$(nproc)"
PET_NPROC_PER_NODE=3 "$lockstep" run sh -c 'echo $WORLD_SIZE' >out 2>err
has out 3
PET_NPROC_PER_NODE=3 "$lockstep" run --nproc-per-node 2 sh -c 'echo $WORLD_SIZE' >out 2>err
has out 2
run 0 --nproc-per-node 2 -- sh -c 'echo "<$*>"' sh --nproc-per-node 9
has out "<--nproc-per-node 9>"

# --- Python ---
printf 'import sys\nprint("argv", sys.argv[1:], flush=False)\nsys.stdin.read()\n' >script.py
run 0 --nproc-per-node 1 script.py --devices 9
has out "argv ['--devices', '9']"
mkdir -p package && printf 'import sys\nprint("module", __name__, sys.argv[1:])\n' >package/tool.py && : >package/__init__.py
run 0 --nproc-per-node 1 -m package.tool -x
has out "module __main__ ['-x']"
printf '#!/bin/sh\necho not python\n' >plain.py && chmod +x plain.py
run 0 --nproc-per-node 1 --no-python ./plain.py
has out "not python"

# --- what is refused, with the reason ---
refused() {
    text=$1
    shift
    run 2 "$@"
    has err "$text"
}
refused "no program" --nproc-per-node 2
refused "did you mean --nproc-per-node?" --nproc-per-nod 2 true
refused "-n: no such flag; here it is --nproc-per-node N" -n 2 true
refused "where is the first node?" --nnodes 2 --node-rank 1 true
refused "one machine, --nnodes 2 are more" --nnodes 2 --standalone true
refused "the number of processes does not change" --nnodes 1:4 true
refused "nothing is polled here" --monitor_interval 5 true
refused "--node-rank 1 of one machine" --node-rank 1 true
refused "must be a whole number from 1 to" --nproc-per-node 0 true
ls /dev/nvidia0 >/dev/null 2>&1 || refused "no GPU is visible here" --nproc-per-node gpu true
refused "leave one out" --devices cpu:2 --nproc-per-node 3 true
refused "is not an address of this machine" --master-addr 192.0.2.1 true
refused "machines meet at the first one" --rdzv-backend c10d true
refused "say where machines meet" --rdzv_endpoint=localhost:0 true
refused "from 0 to 65535" --master-port 65536 true
refused "from 0 to 1" --nproc-per-node 2 --local-ranks-filter 2 true
refused "from 0 to 3" --tee 4 true
refused "leave one of them out" --standalone --master-port 1234 true
PET_NNODES=2 PET_NODE_RANK=1 "$lockstep" run true >out 2>err
[ $? -eq 2 ] || fail "PET_NNODES=2 without the first node was accepted"
has err "with PET_NNODES=2, PET_NODE_RANK=1 from the environment"
run 0 --standalone --nnodes 1 --node-rank 0 true
run 0 --nnodes 1:1 true

# --- codes ---
run 127 no-such-program
has err "no-such-program: no such program"
run 127 missing.py
run 126 ./package
: >not-executable
run 126 ./not-executable
has err "chmod +x"
printf 'nothing known' >nonsense && chmod +x nonsense
run 126 ./nonsense
has err "nor a script with a #! line"
printf '#!/no/such/shell\n' >lost && chmod +x lost
run 127 ./lost
has err "the interpreter of its first line, /no/such/shell, is not there"
printf '#!/bin/sh\r\ntrue\r\n' >windows && chmod +x windows
run 127 ./windows
has err "its first line ends as on Windows"
for files in $(seq 5 60); do # the same code whichever is the one too many
    (ulimit -n "$files" && "$lockstep" run --nproc-per-node 2 true) >out 2>err
    code=$?
    [ $code -eq 0 ] && break
    [ $code -eq 1 ] || fail "with $files open files: exit code $code"
    has err "Too many open files (ulimit -n"
done
[ "$files" -gt 15 ] && [ "$files" -lt 60 ] || fail "$files files are enough?"
timeout 20 "$lockstep" run --nproc-per-node 2 sh -c 'echo hi; echo there >&2; exit 4' <&- >&- 2>&-
[ $? -eq 4 ] || fail "closed standard streams were not survived"
run 7 --nproc-per-node 3 sh -c '[ $RANK = 1 ] || exec sleep 60; echo it is broken >&2; exit 7'
has err "rank 1 (host $(hostname), process "
has err "exited with code 7"
has err "[1] it is broken"
lacks err "last lines" # it stands right above
run 139 --nproc-per-node 2 --report report.json sh -c '[ $RANK = 0 ] || exec sleep 60; kill -SEGV $$'
has err "rank 0"
has err "was killed by SIGSEGV (signal 11)"
has report.json '"verdict": "signalled"'
has report.json '"rank": 0'
has report.json '"signal_name": "SIGSEGV"'
has report.json "\"host\": \"$(hostname)\""
run 3 --nproc-per-node 1 --json sh -c 'echo result; exit 3'
[ "$(tail -1 out | python3 -c 'import json,sys; d=json.load(sys.stdin); print(d["schema"], d["verdict"], d["exit_code"], d["tail"])')" = \
    "lockstep.report/1 failed 3 ['result']" ] || fail "--json: the last line is not the report"
cat >record.py <<'END_PY'
import json, os, sys
if os.environ["RANK"] == "1":
    json.dump({"message": {"message": "ValueError: no such layer\nmore", "extraInfo": {"timestamp": "1"}}}, open(os.environ["TORCHELASTIC_ERROR_FILE"], "w"))
    sys.exit(1)
END_PY
run 1 --nproc-per-node 2 record.py
has err "exited with code 1: ValueError: no such layer"

# --- a failure ends the others: at once those that let SIGTERM end them, after the grace the rest ---
begin=$(date +%s)
run 4 --nproc-per-node 2 --grace-period 1 sh -c '[ $RANK = 0 ] && { sleep 0.3; exit 4; }; trap "" TERM; while :; do sleep 0.1; done'
[ $(($(date +%s) - begin)) -le 4 ] || fail "the others were not ended after --grace-period"

# --- restarts ---
run 0 --nproc-per-node 2 --max-restarts 3 sh -c 'echo "start $TORCHELASTIC_RESTART_COUNT" >&2; [ $TORCHELASTIC_RESTART_COUNT = 2 ] || exit 5'
has err "start 2"
lacks err "start 3"
has err "(2 of 3)"
run 5 --nproc-per-node 1 --max-restarts 1 sh -c 'echo "start $TORCHELASTIC_RESTART_COUNT" >&2; exit 5'
has err "start 1"
lacks err "start 2"

# --- streams, logs, dry run ---
run 0 --nproc-per-node 2 --name streams sh -c 'echo "out $RANK"; echo "err $RANK" >&2'
has out "out 0"
lacks out "out 1"
has err "[1] err 1"
has runs/streams/logs/rank-1.log "out 1"
has runs/streams/report.json '"verdict": "finished"'
run 0 --nproc-per-node 2 --local-ranks-filter 1 --tee 1:1 sh -c 'echo "out $RANK"; echo "err $RANK" >&2'
has out "[1] out 1"
lacks out "out 0"
lacks err "err 0"
run 0 --nproc-per-node 2 --redirects 2 sh -c 'echo "err $RANK" >&2'
lacks err "err 0"
rm -rf runs
run 0 --dry-run --nproc-per-node 2 touch started
has out "RANK=0"
run 0 --dry-run --json --nproc-per-node 2 touch started
python3 - out <<'END_PY' || fail "--dry-run --json"
import json, sys
d = json.load(open(sys.argv[1]))
assert d["schema"] == "lockstep.launch/1" and d["world_size"] == 2 and d["argv"] == ["touch", "started"], d
assert [r["variables"]["RANK"] for r in d["ranks"]] == ["0", "1"], d
END_PY
[ ! -e started ] && [ ! -e runs ] || fail "a dry run did something"
exit $bad
