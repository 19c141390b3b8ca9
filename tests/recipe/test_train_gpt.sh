#!/bin/sh
# lockstep train gpt and what comes behind it, as people type them: the losses are PyTorch's, texts of
# bytes and characters, token files, wrong flags and files.
set -u
lockstep=$LS_BINARY_DIR/bin/lockstep
golden=$LS_SOURCE_DIR/tests/recipe/golden/gpt
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
failures=0

fail() {
    echo "FAILED: $*" >&2
    failures=$((failures + 1))
}

# refused CODE TEXT ARGUMENTS: exits with CODE and says TEXT.
refused() {
    code=$1 text=$2
    shift 2
    status=0
    "$lockstep" "$@" >out 2>err || status=$?
    [ "$status" = "$code" ] || fail "lockstep $*: exit code $status, not $code: $(cat err)"
    grep -q -e "$text" err || fail "lockstep $*: \"$(cat err)\" does not say \"$text\""
}
works() {
    "$lockstep" "$@" >out 2>err || fail "lockstep $*: exit code $?: $(tail -n 3 err)"
}
says() {
    grep -q -e "$1" out || fail "\"$(cat out)\" does not say \"$1\""
}

# --- the first 20 losses of PyTorch, on any number of devices ---
for devices in 1 2 3; do
    works train gpt --data "$golden/tokens.bin" --val-data "$golden/tokens.bin" --init-from "$golden" --batch-size 8 \
        --max-steps 20 --log-every 1 --validate-every none --lr 0.003 --schedule constant --warmup-steps 0 --seed 3 \
        --devices cpu:$devices --threads-per-device 1 --name golden-$devices
    /usr/bin/python3 - "$golden/losses.json" runs/golden-$devices/metrics.jsonl <<'PYTHON' || fail "not PyTorch's losses on $devices"
import json, sys
expected = json.load(open(sys.argv[1]))["losses"]
lines = [json.loads(line) for line in open(sys.argv[2])]
losses = [line["train"]["loss"] for line in lines if "loss" in line.get("train", {})]
assert len(losses) == len(expected) == 20, len(losses)
worst = max(abs(a - b) / b for a, b in zip(losses, expected))
assert worst < 1e-4, f"differ by {worst:g}"
PYTHON
done

# --- texts ---
tiny="--layers 1 --heads 2 --width 16 --context 16 --batch-size 8 --warmup-steps 0 --devices cpu:2 --threads-per-device 1"
i=0
while [ $i -lt 60 ]; do
    echo "In the beginning God created the heaven and the earth."
    i=$((i + 1))
done >text
for tokens in bytes characters; do
    # shellcheck disable=SC2086
    works train gpt --data text --tokens $tokens $tiny --max-epochs 20 --lr 0.01 --name $tokens
    says "val     loss"
    works eval $tokens --devices cpu:2
    says "perplexity"
    works eval $tokens --data text --devices 1 --json
    says '"bits_per_token":'
    [ "$(sed -n 's/.*"samples":\([0-9]*\).*/\1/p' out)" = 206 ] || fail "eval saw $(cat out)"
done
grep -q '"vocabulary": 256' runs/bytes/gpt.json || fail "not 256 bytes: $(cat runs/bytes/gpt.json)"
grep -q '"vocabulary": 18' runs/characters/gpt.json || fail "not 18 characters: $(cat runs/characters/gpt.json)"

# The run goes on with the same command only with the same text.
sed 's/God/Gods/' text >longer
sed 's/God/Qod/' text >other
# shellcheck disable=SC2086
{
    refused 2 'begun with 185' train gpt --data longer --tokens characters $tiny --max-epochs 30 --lr 0.01 --name characters
    refused 1 'other tokens' train gpt --data other --tokens characters $tiny --max-epochs 30 --lr 0.01 --name characters
}

# A loss that is no number ends the run, and says at which step.
cp -r "$golden" nan
/usr/bin/python3 -c 'import os; f = open("nan/model.safetensors", "r+b"); f.seek(-4, os.SEEK_END); f.write(b"\0\0\xc0\x7f")'
# shellcheck disable=SC2086
refused 3 'step 1' train gpt --data "$golden/tokens.bin" --init-from nan --devices 2 --name nan

# --- what people get wrong ---
# shellcheck disable=SC2086
{
    refused 2 'bible-kjv' train gpt
    refused 2 'nowhere' train gpt --data nowhere --devices 1
    refused 2 'tiny, baby and gpt2' train gpt --data text --preset huge
    refused 2 'bytes, characters and gpt2' train gpt --data text --tokens words
    refused 2 'huggingface.co' train gpt --data text --tokens gpt2
    refused 2 'not a multiple of --heads 3' train gpt --data text --heads 3
    refused 2 'tokenizer has 256' train gpt --data text --vocabulary 100
    refused 2 'holds tokens' train gpt --data "$golden/tokens.bin" --tokens bytes
    refused 2 'sample' train gpt --data "$golden/tokens.bin" $tiny --vocabulary 20 --max-epochs 1
    refused 2 '13' train gpt --data "$golden/tokens.bin" --init-from "$golden" --context 13
    printf 'a short text' >short
    refused 2 'short' train gpt --data short
    refused 2 'no run "nowhere"' train gpt --data text --init-from nowhere
    refused 2 'did you mean --temperature' generate bytes --temprature 1
    refused 2 'token files' generate golden-1
    refused 2 '3 were given\|one run' generate
}
[ $failures = 0 ]
