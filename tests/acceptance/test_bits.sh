#!/bin/sh
# The same micro-batches give the same bits on any number of devices, for each model, clipped or not,
# for a validation set that no device count divides, and with more ranks than cores.
set -u
. "$LS_SOURCE_DIR/tests/acceptance/acceptance.sh"
steps=5 models="mlp cnn resnet"
[ -n "${LS_LONG:-}" ] && steps=100
cut_data "$work/data" 1031 263

run() { # MODEL DEVICES MICRO CLIP -> document
    "$lockstep" train image --data "$work/data" --model "$1" --devices "cpu:$2" --micro-batches "$3" \
        --gradient-clip-val "$4" --batch-size 96 --threads-per-device 1 --max-steps $steps --seed 7 --json \
        --name "bits-$1-$2-$3-$4" 2>"$work/err" | tail -n 1
}
check() { # MODEL MICRO CLIP DEVICES...
    model=$1 micro=$2 clip=$3 first=""
    shift 3
    for devices in "$@"; do
        document=$(run "$model" "$devices" "$micro" "$clip")
        bits="$(echo "$document" | field weights_xxh3) $(echo "$document" | field val)" ||
            fail "$model on $devices: $(tail -n 5 "$work/err")"
        [ -n "$first" ] || first=$bits
        [ "$bits" = "$first" ] || fail "$model, clip $clip, $micro micro-batches: $devices devices give $bits, not $first"
    done
}
for model in $models; do
    check $model 4 none 1 2 3 4
    check $model 4 0.5 1 2 3 4
done
check mlp 6 none 1 2 3 6
check resnet 6 0.5 1 6
done_testing
