#!/bin/sh
# mpirun and mpiexec start our own program on two machines made of network namespaces, with no address
# given: the same bits as one machine. With LS_LONG=1 also over MPI itself, and a rank that dies.
set -u
. "$LS_SOURCE_DIR/tests/launch/launch.sh"
. "$LS_SOURCE_DIR/tests/launch/netns.sh"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
[ -f "$LS_BINARY_DIR/lib/lockstep_gloo.so" ] || netns_skip "not over Gloo: libgloo-dev is not installed"
command -v mpirun.openmpi >/dev/null || command -v mpiexec.hydra >/dev/null || netns_skip "neither Open MPI nor MPICH is here"
trap 'netns_clean; rm -rf "$work"' EXIT
netns_make 2
netns_agent agent
first=$(netns_address 0) second=$(netns_address 1)
write_table data.csv
train="$lockstep train table --data data.csv --target y --batch-size 32 --max-steps 8 --micro-batches 4 --threads-per-device 1 --timeout 20s --json"
$train --devices cpu:4 --name one >out 2>err || fail "one machine"
expected=$(digest out)
[ -n "$expected" ] || fail "no sum of the weights"

openmpi() { machine 0 timeout 60 mpirun.openmpi --mca plm_rsh_agent "$work/agent" --host "$first:2,$second:2" "$@"; }
mpich() { machine 0 timeout 60 mpiexec.hydra -localhost "$first" -launcher ssh -launcher-exec "$work/agent" -hosts "$first,$second" -ppn 2 -n 4 "$@"; }
# same NAME ENGINE LAUNCHER WORDS...: came together over this engine, and computed the same.
same() {
    name=$1 engine=$2
    shift 2
    "$@" $train --name "$name" --comm "$engine" >out 2>err || fail "$name: exit code $?"
    has err "2 machines, connected by $engine"
    lacks err "has no secret"
    [ "$(digest out)" = "$expected" ] || fail "$name: $(digest out), not $expected"
    tried="$tried $name"
}

tried=""
sanitized=$(ldd "$lockstep" | grep 'lib[at]san')
if command -v mpiexec.hydra >/dev/null; then
    same mpich gloo mpich
    [ "${LS_LONG:-0}" = 1 ] && LOCKSTEP_SECRET="one of the user's own" same mpich-secret gloo mpich
fi
if command -v mpirun.openmpi >/dev/null && [ -z "$sanitized" ]; then
    same openmpi gloo openmpi
    if [ "${LS_LONG:-0}" = 1 ]; then
        LOCKSTEP_SECRET=x same openmpi-secret gloo openmpi # which mpirun does not hand on
        [ -f "$LS_BINARY_DIR/lib/lockstep_mpi.so" ] && same openmpi-mpi mpi openmpi
    fi
fi
echo "started by:$tried"
exit $bad
