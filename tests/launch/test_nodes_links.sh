#!/bin/sh
# Training on machines made of network namespaces, over links that take 20 ms and lose 1 % of the frames:
# the same bits as one machine. With LS_LONG=1 on two to four machines, over Gloo and over MPI; and a
# machine that is cut off, rebooted, stopped, or far away (200 ms): named, and the run goes on.
set -u
. "$LS_SOURCE_DIR/tests/launch/launch.sh"
. "$LS_SOURCE_DIR/tests/launch/netns.sh"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
long=${LS_LONG:-0}
[ -f "$LS_BINARY_DIR/lib/lockstep_gloo.so" ] || netns_skip "not over Gloo: libgloo-dev is not installed"
sanitized=$(ldd "$lockstep" | grep 'lib[at]san')
[ -z "$sanitized" ] || [ "$long" = 1 ] || netns_skip "the short form is about time, of which sanitizers need their own"
trap 'netns_clean; rm -rf "$work"' EXIT
machines=2
[ "$long" = 1 ] && machines=4
netns_make $machines
netns_links
every() { for i in $(seq 0 $((machines - 1))); do netns_link "$i" "$@"; done; }
every 20 1
first=$(netns_address 0)
export LOCKSTEP_SECRET=of-this-test
write_table data.csv
train="$lockstep train table --data data.csv --target y --width 32 --batch-size 32 --micro-batches 8 --threads-per-device 1 --timeout 30s --json"

# one STEPS: on one machine; what has to come out is in $expected.
one() {
    $train --devices cpu:2 --max-steps "$1" --name "one$1" >out 2>err || fail "one machine"
    expected=$(digest out)
    [ -n "$expected" ] || fail "no sum of the weights"
}
# start NODE NAME STEPS WORDS...: training on that machine, in the background; outN, errN, codeN.
start() {
    node=$1 name=$2 steps=$3
    shift 3
    rm -f "code$node"
    { machine "$node" "$lockstep" run --nnodes "$nodes" --node-rank "$node" --master-addr "$first" --master-port 29500 \
        --nproc-per-node "$ranks" "$@" $train --max-steps "$steps" --name "$name" >"out$node" 2>"err$node"
      echo $? >"code$node"; } &
}
# ended NODE CODE SECONDS
ended() {
    for _ in $(seq $(($3 * 20))); do [ -s "code$1" ] && break; sleep 0.05; done
    cp "out$1" out; cp "err$1" err
    [ "$(cat "code$1" 2>/dev/null)" = "$2" ] || fail "$case: machine $1 ended with $(cat "code$1" 2>/dev/null || echo nothing), not $2"
}
# until_has FILE TEXT SECONDS
until_has() {
    for _ in $(seq $(($3 * 20))); do grep -q -F -e "$2" "$1" 2>/dev/null && return; sleep 0.05; done
    cp "$1" err; cp "$1" out
    fail "$case: \"$2\" does not come in $1"
}
gloo() {
    for i in $(seq 0 $((nodes - 1))); do start "$i" "$@"; done
    for i in $(seq 0 $((nodes - 1))); do ended "$i" 0 60; done
    has err0 "$nodes machines, connected by gloo"
    [ "$(digest out0)" = "$expected" ] || fail "$case: $(digest out0), not $expected"
}

nodes=2 ranks=1 case="two machines"
one 4
gloo two 4

if [ "$long" = 1 ]; then
    one 40
    for nodes in 2 3 4; do
        ranks=2 case="$nodes machines over Gloo"
        gloo "gloo$nodes" 40
        [ -f "$LS_BINARY_DIR/lib/lockstep_mpi.so" ] && command -v mpirun.openmpi >/dev/null && [ -z "$sanitized" ] || continue
        case="$nodes machines over MPI"
        netns_agent agent
        hosts=$(for i in $(seq 0 $((nodes - 1))); do printf '%s:2,' "$(netns_address "$i")"; done)
        machine 0 timeout 120 mpirun.openmpi --mca plm_rsh_agent "$work/agent" --host "${hosts%,}" $train --max-steps 40 \
            --name "mpi$nodes" >out 2>err || fail "$case: exit code $?"
        has err "$nodes machines, connected by mpi"
        [ "$(digest out)" = "$expected" ] || fail "$case: $(digest out), not $expected"
    done
fi

# Training on two machines until some steps are saved; then what happens to the second one. It is named, begins again
# when it can, and the training ends with the bits of one that nothing has happened to. It comes back by itself, or, when
# its launcher is gone (code 137), with the same command.
trouble() {
    case=$1 happens=$2 comes=$3 mends=$4
    start 0 "$5" 40 --max-restarts 2 --tee 3
    start 1 "$5" 40 --max-restarts 2
    for _ in $(seq 600); do [ -e "runs/$5/checkpoints/step-00000010" ] && break; sleep 0.05; done
    $happens
    until_has err0 "node 1 (host" 20
    has err0 "node1"
    $mends
    begin=$(date +%s%N)
    [ "$comes" = "by itself" ] || { ended 1 "$comes" 20; start 1 "$5" 40 --max-restarts 2; }
    until_has err0 "resumes from step" 20
    took=$((($(date +%s%N) - begin) / 1000000))
    echo "$case: went on after $took ms"
    [ $took -lt 10000 ] || fail "$case: went on after $took ms"
    ended 0 0 60
    ended 1 0 10
    [ "$(digest out0)" = "$expected" ] || fail "$case: $(digest out0), not $expected"
}
stop() { ip netns pids "$net-1" | xargs -r kill -STOP; }
awake() { ip netns pids "$net-1" | xargs -r kill -CONT; }
if [ "$long" = 1 ]; then
    nodes=2 ranks=1
    train="$train --save-every 5"
    trouble "a machine is cut off" "netns_cut 1" "by itself" "netns_join 1" cut
    trouble "a machine is rebooted" "netns_lose 1" 137 "netns_join 1" rebooted
    trouble "a machine is stopped" stop "by itself" awake stopped
    case="a machine is far away"
    netns_link 1 200 1
    gloo far 40
    lacks err0 "restart"
fi

case="frames"
netns_frames >lost; lost=$(cat lost)
echo "$lost"
case $lost in *[1-9]*" were lost"*) ;; *) fail "no frame was lost: $lost" ;; esac
exit $bad
