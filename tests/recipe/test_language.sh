#!/bin/sh
# The language model learns a language of known entropy down to its floor, and no further; and targets
# that are ignored weigh nothing, however they lie in micro-batches and on devices.
set -u
prog=$LS_BINARY_DIR/tests/prog_language
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
steps=400 most=0.02
[ -n "${LS_LONG:-}" ] && steps=4000 most=0.003
failures=0

fail() {
    echo "FAILED: $*" >&2
    failures=$((failures + 1))
}
field() { # NAME: a value of out's document
    sed -n "s/.*\"$1\":\"*\([^,\"}]*\).*/\1/p" out | tail -n 1
}
val_loss() { sed -n 's/.*"val":{[^}]*"loss":\([^,}]*\).*/\1/p' out; }
train() {
    "$prog" --threads-per-device 1 --json "$@" >out 2>err || fail "$*: exit code $?: $(tail -n 3 err)"
}
check() { # WHAT CONDITION VALUES...: an awk condition over a, b, c
    awk -v a="$3" -v b="$4" -v c="$5" "BEGIN { exit !($2) }" || fail "$1: $3 $4 $5"
}

train --devices cpu:2 --max-steps $steps --samples $((steps * 32)) --name zipf
floor=$(sed -n 's/floor //p' out)
check "the language's entropy and what its own probabilities say" "a - b < 0.05 && b - a < 0.05" "$(sed -n 's/entropy //p' out)" "$floor" ""
check "validation loss, floor, most above it" "a - b < c && a - b > -0.004" "$(val_loss)" "$floor" $most

# Targets of varying length: as many bits as ever, and one micro-batch says what four say.
first=
for devices in 1 2 3 4; do
    train --ragged --optimizer sgd --lr 0.3 --gradient-clip-val none --devices cpu:$devices --micro-batches 4 --max-steps 30 --name ragged-$devices
    seen="$(field weights_xxh3) $(val_loss)"
    [ -n "$first" ] || first=$seen
    [ "$seen" = "$first" ] || fail "ragged: $devices devices give $seen, not $first"
done
four=$(val_loss)
train --ragged --optimizer sgd --lr 0.3 --gradient-clip-val none --devices cpu:1 --micro-batches 1 --max-steps 30 --name ragged-whole
check "one micro-batch and four" "a - b < 2e-5 && b - a < 2e-5" "$(val_loss)" "$four" ""
[ $failures = 0 ]
