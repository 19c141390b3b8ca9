#!/bin/sh
# What people get wrong: each ends with a clear text and the documented code, and nothing is lost.
set -u
. "$LS_SOURCE_DIR/tests/acceptance/acceptance.sh"
cut_data "$work/data" 1031 263
data="--data $work/data --model mlp --max-steps 3 --batch-size 64"

# shellcheck disable=SC2086
{
    expect 2 "batch-size" "$lockstep" train image $data --batch-size 0
    expect 2 "did you mean --batch-size" "$lockstep" train image $data --batch-sise 64
    expect 2 "10000" "$lockstep" train image $data --devices 10000
    expect 2 "micro-batches" "$lockstep" train image $data --devices cpu:4 --micro-batches 2
    expect 2 "no-such-folder" "$lockstep" train image --data "$work/no-such-folder"
    expect 2 "model" "$lockstep" train image $data --model vgg
    expect 2 "did you mean" "$lockstep" trian image $data
    expect 0 "usage" "$lockstep" train image --help
    expect 0 "lockstep" "$lockstep" --version
    expect 2 "no/such" "$lockstep" eval no/such

    # data files cut short, garbled, with a label out of range
    cp -r "$work/data" "$work/short"; truncate -s 100000 "$work/short/train-images-idx3-ubyte"
    expect 2 "train-images-idx3-ubyte" "$lockstep" train image --data "$work/short" --max-steps 3
    cp -r "$work/data" "$work/garbled"; printf 'garbage!' | dd of="$work/garbled/train-labels-idx1-ubyte" conv=notrunc status=none
    expect 2 "train-labels-idx1-ubyte" "$lockstep" train image --data "$work/garbled" --max-steps 3
    cp -r "$work/data" "$work/label"; printf '\013' | dd of="$work/label/train-labels-idx1-ubyte" bs=1 seek=508 conv=notrunc status=none
    for n in 1 2; do
        expect 2 "500" "$lockstep" train image --data "$work/label" --model mlp --devices cpu:$n --max-epochs 1
    done

    # stale variables
    expect 0 "LOCAL_RANK" env LOCAL_RANK=3 "$lockstep" train image $data --devices cpu:1
    expect 0 "" env WORLD_SIZE=8 MASTER_PORT=29500 "$lockstep" train image $data --devices cpu:2
    expect 2 "RANK" env RANK=5 LOCAL_RANK=5 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 "$lockstep" train image $data

    # run folders
    expect 0 "" "$lockstep" train image $data --name once
    expect 0 "" "$lockstep" train image $data --name once # finished: left alone
    expect 2 "once" "$lockstep" train image $data --name once --resume none
    if [ "$(id -u)" != 0 ]; then
        mkdir -p "$work/locked"; chmod 500 "$work/locked"
        expect 74 "locked" "$lockstep" train image $data --runs-dir "$work/locked"
    fi
    expect 74 "/proc/lockstep" "$lockstep" train image $data --runs-dir /proc/lockstep

    # a corrupt checkpoint: verify names it, resume passes over it
    expect 0 "" "$lockstep" train image --data "$work/data" --model mlp --batch-size 64 --name corrupt --max-steps 6 --save-every 3 --keep-last 2
    newest=$(readlink -f "$work/runs/corrupt/checkpoints/last")
    printf 'XXXX' | dd of="$newest/model.safetensors" bs=1 seek=5000 conv=notrunc status=none
    expect 2 "model.safetensors" "$lockstep" checkpoint verify corrupt
    expect 0 "model.safetensors" "$lockstep" train image --data "$work/data" --model mlp --batch-size 64 --name corrupt --max-steps 9
}

# two ranks started by a shell script with only the five variables: the same bits as our own launch
own=$("$lockstep" train image --data "$work/data" --model mlp --max-steps 5 --batch-size 64 --devices cpu:2 --json --name own 2>"$work/err" | field weights_xxh3)
for rank in 1 0; do
    env RANK=$rank LOCAL_RANK=$rank WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29517 \
        "$lockstep" train image --data "$work/data" --model mlp --max-steps 5 --batch-size 64 --json --name script \
        >"$work/script-$rank" 2>"$work/script-$rank.err" &
done
wait
script=$(field weights_xxh3 <"$work/script-0")
[ -n "$own" ] && [ "$own" = "$script" ] || fail "started by a script: $script, not $own: $(tail -n 3 "$work/script-0.err")"

# more devices than at the start: goes on, and says that the bits differ from here
"$lockstep" train image --data "$work/data" --model mlp --batch-size 64 --name more --devices cpu:1 --max-steps 4 2>"$work/err" >/dev/null || fail "more: $(cat "$work/err")"
"$lockstep" train image --data "$work/data" --model mlp --batch-size 64 --name more --devices cpu:2 --max-steps 8 >"$work/out" 2>&1 || fail "more: $(tail -n 5 "$work/out")"
grep -q -i "differ" "$work/out" || fail "no notice that the bits differ: $(cat "$work/out")"
done_testing
