#!/bin/sh
# --precision bf16-mixed, as people use it: it learns as fp32 does, is recorded, and evaluated alike.
set -eu
lockstep=$LS_BINARY_DIR/bin/lockstep
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

fail() {
    echo "FAILED: $*" >&2
    exit 1
}

# A text with some order in it: the words of one sentence, drawn with a fixed seed.
awk 'BEGIN { split("in the beginning god created heaven and earth and the earth was without form", w, " "); s = 7
    for (i = 0; i < 12000; i++) { s = (s * 1103515245 + 12345) % 2147483648; printf "%s ", w[1 + int(s / 65536) % 14] } }' >text

# train STEPS FLAGS: the document.
train() {
    steps=$1
    shift
    "$lockstep" train gpt --data text --layers 2 --heads 2 --width 64 --context 32 --batch-size 8 --lr 0.003 --seed 5 \
        --max-steps "$steps" --micro-batches 2 --threads-per-device 1 --json "$@" 2>err | tail -n 1 || fail "$*: $(cat err)"
}
value() { printf '%s' "$1" | sed -n "s/.*\"$2\":\([^,}]*\).*/\1/p"; }
val_loss() { printf '%s' "$1" | sed -n 's/.*"val":{[^}]*"loss":\([0-9.]*\).*/\1/p'; }

full=$(train 60 --name full --devices 1)
half=$(train 60 --name half --devices 1 --precision bf16-mixed)
other=$(train 60 --name other --devices 2 --precision bf16-mixed)
for run in "$full" "$half" "$other"; do [ -n "$(val_loss "$run")" ] || fail "no document: $run"; done
[ "$(value "$half" weights_xxh3)" = "$(value "$other" weights_xxh3)" ] || fail "other bits on two devices"
[ "$(value "$half" weights_xxh3)" != "$(value "$full" weights_xxh3)" ] || fail "--precision changes nothing"
awk -v a="$(val_loss "$full")" -v b="$(val_loss "$half")" 'BEGIN { exit !(b > 0 && b < a * 1.03 && b > a * 0.97) }' ||
    fail "val loss $(val_loss "$half") in bf16-mixed, $(val_loss "$full") in fp32"
grep -q '"precision"' runs/half/run.json || fail "run.json does not say the precision"

# An evaluation computes as the run did, or as it is told.
"$lockstep" eval half@last --devices 1 --json >eval 2>err || fail "eval: $(cat err)"
grep -q "\"loss\":$(val_loss "$half")" eval || fail "eval says $(cat eval), train $(val_loss "$half")"
"$lockstep" eval half@last --devices 1 --json --precision 32 >eval32 2>err || fail "eval: $(cat err)"
! grep -q "\"loss\":$(val_loss "$half")" eval32 || fail "eval --precision 32 computes in bf16"
status=0
"$lockstep" eval half@last --devices 1 --precision 16 >out 2>err || status=$?
[ $status = 2 ] && grep -q 'there are 32, tf32 and bf16-mixed' err || fail "--precision 16: $status, $(cat err)"

# A resume in another precision goes on, and says so.
train 61 --name half --devices 1 --precision 32 >/dev/null
grep -q 'changed since the checkpoint: .*precision bf16-mixed -> 32' err || fail "a silent change: $(cat err)"

# Where the machine cannot, it works and a notice says what to expect.
ONEDNN_MAX_CPU_ISA=AVX2 train 60 --name old --devices 1 --precision bf16-mixed >line
grep -q 'does not multiply bf16' err || fail "no notice: $(cat err)"
awk -v a="$(val_loss "$half")" -v b="$(val_loss "$(cat line)")" 'BEGIN { exit !(b < a * 1.03 && b > a * 0.97) }' ||
    fail "val loss $(val_loss "$(cat line)") without bf16 instructions, $(val_loss "$half") with"
