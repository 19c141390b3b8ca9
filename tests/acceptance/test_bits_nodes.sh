#!/bin/sh
# Ranks that take themselves for several machines (LOCAL_WORLD_SIZE, each its own shared memory) train
# to the bits of one machine over each engine that is built, also with unequal machines, clipping and
# bf16, and go on where one machine has stopped and the other way round.
set -u
. "$LS_SOURCE_DIR/tests/acceptance/acceptance.sh"
steps=6 models="mlp"
[ -n "${LS_LONG:-}" ] && steps=60 models="mlp cnn"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
cut_data "$work/data" 1031 263

free_port() {
    /usr/bin/python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

# one NAME DEVICES ARG...: on one machine.
one() {
    name=$1 devices=$2
    shift 2
    "$lockstep" train image --data "$work/data" --devices "cpu:$devices" --batch-size 96 --seed 7 \
        --threads-per-device 1 --timeout 60s --name "$name" "$@" >"$work/out" 2>&1 || fail "$name: $(tail -n 5 "$work/out")"
}

# nodes NAME ENGINE "SIZE SIZE..." ARG...: machines of so many ranks each.
nodes() {
    name=$1 engine=$2 sizes=$3 size=0 rank=0 node=0 pids=""
    shift 3
    for n in $sizes; do size=$((size + n)); done
    MASTER_ADDR=127.0.0.1 MASTER_PORT=$(free_port) WORLD_SIZE=$size
    export MASTER_ADDR MASTER_PORT WORLD_SIZE
    for n in $sizes; do
        local=0
        while [ $local -lt "$n" ]; do
            RANK=$rank LOCAL_RANK=$local LOCAL_WORLD_SIZE=$n GROUP_RANK=$node "$lockstep" train image \
                --data "$work/data" --batch-size 96 --seed 7 --threads-per-device 1 --timeout 60s \
                --comm "$engine" --name "$name" "$@" >"$work/out$rank" 2>&1 &
            pids="$pids $!"
            local=$((local + 1)) rank=$((rank + 1))
        done
        node=$((node + 1))
    done
    for pid in $pids; do wait "$pid" || fail "$name: $(tail -n 3 "$work"/out[0-9]*)"; done
    unset MASTER_ADDR MASTER_PORT WORLD_SIZE
}

# by_mpirun NAME ARG...: two machines of one rank, started and connected by MPI.
by_mpirun() {
    name=$1
    shift
    MASTER_PORT=$(free_port) mpirun --oversubscribe -np 2 sh -c 'export RANK=$OMPI_COMM_WORLD_RANK \
        WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 GROUP_RANK=$OMPI_COMM_WORLD_RANK MASTER_ADDR=127.0.0.1; exec "$@"' \
        sh "$lockstep" train image --data "$work/data" --batch-size 96 --seed 7 --threads-per-device 1 \
        --timeout 60s --name "$name" "$@" >"$work/out" 2>&1 || fail "$name: $(tail -n 5 "$work/out")"
    grep -q "2 machines, connected by mpi" "$work/out" || fail "$name is not connected by MPI: $(cat "$work/out")"
}

# same A B: their newest checkpoints.
same() {
    for file in model.safetensors optimizer.safetensors; do
        cmp "$work/runs/$1/checkpoints/last/$file" "$work/runs/$2/checkpoints/last/$file" ||
            fail "$1 and $2 differ in $file"
    done
}

if [ -f "$LS_BINARY_DIR/lib/lockstep_gloo.so" ]; then
    for model in $models; do
        set -- --model "$model" --micro-batches 4 --max-steps $steps
        one "$model-one" 2 "$@"
        nodes "$model-two" gloo "1 1" "$@"
        same "$model-one" "$model-two"
        set -- --model "$model" --micro-batches 6 --max-steps $steps --gradient-clip-val 0.5 --precision bf16-mixed
        one "$model-clip" 1 "$@"
        nodes "$model-unequal" gloo "2 1" "$@"
        same "$model-clip" "$model-unequal"
    done
    set -- --model mlp --micro-batches 4 --max-steps $((2 * steps))
    one mlp-one 2 "$@"
    nodes mlp-two gloo "1 1" "$@"
    same mlp-one mlp-two
    one mlp-two 1 --model mlp --micro-batches 4 --max-steps $((3 * steps)) # begun on two machines
    nodes mlp-one gloo "1 1 1" --model mlp --micro-batches 4 --max-steps $((3 * steps))
    same mlp-one mlp-two
else
    echo "not over Gloo: libgloo-dev is not installed"
fi
if ldd "$lockstep" | grep -q 'lib[at]san'; then
    echo "not over MPI: its library does not run under sanitizers"
elif [ -f "$LS_BINARY_DIR/lib/lockstep_mpi.so" ] && command -v mpirun >/dev/null; then
    one mpi-one 2 --model mlp --micro-batches 4 --max-steps $steps
    by_mpirun mpi-two --model mlp --micro-batches 4 --max-steps $steps
    same mpi-one mpi-two
else
    echo "not over MPI: it is not installed"
fi
done_testing
