#!/bin/sh
# --numa-binding: CPUs and memory of a rank, on a machine with two NUMA nodes that hwloc makes up of the CPUs that are here.
set -u
. "$LS_SOURCE_DIR/tests/launch/launch.sh"
[ "$(nproc)" -ge 2 ] && grep -q '^Cpus_allowed_list:.*[-,]' /proc/self/status || exit 77
export HWLOC_SYNTHETIC="node:2 pu:1" HWLOC_THISSYSTEM=1
first=$(sed -n 's/^Cpus_allowed_list:[[:space:]]*\([0-9]*\).*/\1/p' /proc/self/status)
[ "$first" = 0 ] || exit 77

run 0 --nproc-per-node 2 --numa-binding node --tee 1 sh -c 'grep Cpus_allowed_list /proc/self/status; head -n 1 /proc/self/numa_maps'
grep -q '^Cpus_allowed_list:[[:space:]]*0$' out || fail "rank 0 is not on CPU 0"
grep -q '^\[1\] Cpus_allowed_list:[[:space:]]*1$' out || fail "rank 1 is not on CPU 1"
# Memory can be bound to a node that is really there; the made-up second one is refused, and that is said.
really=$(sed -n 's/^Mems_allowed_list:[[:space:]]*//p' /proc/self/status)
if [ -r /proc/self/numa_maps ] && [ "$really" = 0 ]; then
    has err "--numa-binding node: the memory of rank 1 cannot be bound"
    grep -q '^[0-9a-f]* bind[^ ]*:0 ' out || fail "rank 0's memory is not bound to node 0"
    run 0 --nproc-per-node 1 --numa-binding node head -n 1 /proc/self/numa_maps
    grep -q '^[0-9a-f]* bind[^ ]*:0 ' out || fail "the one rank's memory is not bound to node 0"
    lacks err "cannot be bound"
fi
run 0 --nproc-per-node 2 --numa-binding none --tee 1 sh -c 'grep Cpus_allowed_list /proc/self/status'
! grep -q 'Cpus_allowed_list:[[:space:]]*[01]$' out || fail "bound although told not to"
run 0 --nproc-per-node 2 --numa_binding=exclusive --dry-run true
has out "bound to CPUs     memory of nodes"
grep -q '^ *0  0  *0 ' out || fail "the plan has no memory"
run 2 --numa-binding nodes true
has err "core-complex"
ls /dev/nvidia0 >/dev/null 2>&1 || { run 2 --isolate-devices true; has err "leave it out"; }
exit $bad
