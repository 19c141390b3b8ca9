#!/bin/sh
# A SLURM of this test's own (munged, slurmctld, slurmd on this machine) starts us: one task per device, one per node, a training of
# ours, and the batch script that --slurm-script writes, which queues a job again that ended with code 75. With LS_LONG=1 only;
# skipped where SLURM is not installed (Debian: slurmctld slurmd slurm-client munge) or this is not root.
set -u
here=$(cd "$(dirname "$0")" && pwd)
[ "${LS_LONG:-0}" = 1 ] || { echo "skipped: LS_LONG=1 runs it"; exit 77; }
for command in munged slurmctld slurmd srun sbatch scontrol; do
    PATH=$PATH:/usr/sbin
    command -v $command >/dev/null || { echo "skipped: there is no $command (SLURM is not installed)"; exit 77; }
done
[ "$(id -u)" = 0 ] || { echo "skipped: the daemons need root"; exit 77; }
. "$here/launch.sh"
host=$(uname -n)
port=$((30000 + $$ % 1000 * 2))
export SLURM_CONF=$work/slurm.conf
daemons=
trap 'kill -9 $daemons 2>/dev/null; rm -rf "$work"' EXIT

dd if=/dev/urandom of=munge.key bs=1024 count=1 2>/dev/null
chmod 700 . && chmod 600 munge.key
mkdir state spool munge cgroup
munged --foreground --force --key-file="$work/munge.key" --socket="$work/munge/socket" --pid-file="$work/munge/pid" \
    --log-file="$work/munge/log" --seed-file="$work/munge/seed" >munge/out 2>&1 &
daemons="$daemons $!"
cat >slurm.conf <<END
ClusterName=lockstep
SlurmctldHost=$host(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$work/munge/socket
CredType=cred/munge
SlurmctldPort=$port
SlurmdPort=$((port + 1))
SlurmctldPidFile=$work/ctld.pid
SlurmdPidFile=$work/slurmd.pid
SlurmctldLogFile=$work/ctld.log
SlurmdLogFile=$work/slurmd.log
StateSaveLocation=$work/state
SlurmdSpoolDir=$work/spool
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
MpiDefault=none
JobRequeue=1
MinJobAge=60
NodeName=$host NodeAddr=127.0.0.1 CPUs=4 State=UNKNOWN
PartitionName=all Nodes=$host Default=YES OverSubscribe=FORCE:4 State=UP
SlurmdParameters=config_overrides
END
printf 'CgroupPlugin=cgroup/v1\nCgroupMountpoint=%s\n' "$work/cgroup" >cgroup.conf # not used: tasks are tracked by /proc
for _ in $(seq 100); do [ -S munge/socket ] && break; sleep 0.05; done
slurmctld -D -f "$SLURM_CONF" >ctld.out 2>&1 &
daemons="$daemons $!"
slurmd -D -f "$SLURM_CONF" >slurmd.out 2>&1 &
daemons="$daemons $!"
for _ in $(seq 100); do sinfo -h -o %T 2>/dev/null | grep -q idle && break; sleep 0.1; done
sinfo -h -o %T 2>/dev/null | grep -q idle || { tail -n 5 ctld.log slurmd.log ctld.out slurmd.out munge/out munge/log; echo "SLURM does not come up"; exit 1; }

# task CODE WORDS...: srun with these ends with this code.
task() {
    expected=$1
    shift
    timeout 100 srun "$@" >out 2>err
    code=$?
    [ $code -eq "$expected" ] || fail "srun $*: exit code $code (expected $expected)"
}

echo 'echo "rank $RANK local $LOCAL_RANK/$LOCAL_WORLD_SIZE of $WORLD_SIZE node $GROUP_RANK/$GROUP_WORLD_SIZE ${SLURM_PROCID-none}"; eval "${ACT:-:}"' >rank.sh
task 0 -n 2 "$lockstep" run --tee 3 sh rank.sh
has out "rank 0 local 0/2 of 2 node 0/1 none"
has out "rank 1 local 1/2 of 2 node 0/1 none"
task 0 -n 1 -c 2 "$lockstep" run --nproc-per-node 2 --tee 3 sh rank.sh
has out "rank 1 local 1/2 of 2 node 0/1 none"
export ACT='[ $RANK = 1 ] && exit 5; sleep 30'
task 5 -n 2 "$lockstep" run sh rank.sh
has err "rank 1 (host"
unset ACT

# A training: srun starts our own program as it is, and through lockstep run; the same weights as by ourselves.
train="train image --data /usr/share/datasets/fashion-mnist --model mlp --threads-per-device 1 --max-steps 20 --micro-batches 2 --batch-size 64 --seed 3"
"$lockstep" $train --devices cpu:2 --name own >out 2>err || fail "training by ourselves"
task 0 -n 2 "$lockstep" run "$lockstep" $train --name by-run
task 0 -n 2 "$lockstep" $train --name by-srun
weights() { find runs/"$1"/checkpoints/ -name model.safetensors | sort | tail -1 | xargs cat | cksum; }
for name in by-run by-srun; do
    [ "$(weights own)" = "$(weights $name)" ] || fail "srun, $name: other weights than by ourselves"
done

# A job that is stopped and saved is queued again, and goes on.
cat >stops.sh <<'END'
if [ -e "$PWD/began-$RANK" ]; then echo "goes on"; exit 0; fi
: >"$PWD/began-$RANK"
echo "stopped"
exit 75
END
PATH=$(dirname "$lockstep"):$PATH
lockstep run --slurm-script --nproc-per-node 2 --tee 3 sh stops.sh >job.sbatch || fail "--slurm-script"
cp job.sbatch out
id=$(sbatch --parsable --output="$work/job.out" job.sbatch)
# SLURM keeps a job that was queued again for two minutes, unless it is told to begin.
for _ in $(seq 1200); do
    grep -q "goes on" job.out 2>/dev/null && break
    scontrol show job "$id" 2>/dev/null | grep -q "JobState=PENDING.*BeginTime" && scontrol update jobid="$id" starttime=now 2>/dev/null
    sleep 0.1
done
cp job.out out
has out "stopped"
has out "goes on"
exit $bad
