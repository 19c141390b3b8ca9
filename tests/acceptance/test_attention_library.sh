#!/bin/sh
# A run takes the library's attention (tests/backend/sim/fake_attention.c stands for it) in bf16-mixed, and with
# --deterministic or LOCKSTEP_CUDNN_ATTENTION=0 its own, in training and validation.
set -u
. "$LS_SOURCE_DIR/tests/acceptance/acceptance.sh"
finish() { rm -rf "$work"; }
export LOCKSTEP_PLUGIN_DIR="$LS_BINARY_DIR/tests/fake/attention"
head -c 8000 "$LS_SOURCE_DIR/docs/gpu.md" >"$work/text"

by_library() { # NAME FLAG...: how many passes over one shape it computes
    name=$1
    shift
    "$lockstep" train gpt --data "$work/text" --layers 2 --heads 2 --width 32 --context 32 --batch-size 4 --micro-batches 1 \
        --max-steps 2 --validate-every 2 --devices sim:1 --seed 7 --json --name "$name" "$@" >"$work/out" 2>"$work/err" ||
        fail "$name: $(tail -n 5 "$work/err")"
    grep -c "attention of .* by cuDNN$" "$work/err"
}
[ "$(by_library plain --precision bf16-mixed)" -ge 2 ] || fail "not chosen: $(cat "$work/err")"
bits=$(field weights_xxh3 <"$work/out")
[ "$(by_library ordered --precision bf16-mixed --deterministic)" -eq 0 ] || fail "chosen in spite of --deterministic"
[ "$(field weights_xxh3 <"$work/out")" = "$bits" ] || fail "the library's kernels are our own here, and other bits came out"
[ "$(export LOCKSTEP_CUDNN_ATTENTION=0; by_library off --precision bf16-mixed)" -eq 0 ] || fail "chosen though it is off"
[ "$(by_library full --precision 32)" -eq 0 ] || fail "chosen in f32"
done_testing
