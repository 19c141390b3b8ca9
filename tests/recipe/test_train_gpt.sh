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
    says " tokens/s"
    works eval $tokens --devices cpu:2
    says "perplexity"
    works eval $tokens --data text --devices 1 --json
    says '"bits_per_token":'
    [ "$(sed -n 's/.*"samples":\([0-9]*\).*/\1/p' out)" = 206 ] || fail "eval saw $(cat out)"
done
grep -q '"vocabulary": 256' runs/bytes/gpt.json || fail "not 256 bytes: $(cat runs/bytes/gpt.json)"
grep -q '"vocabulary": 18' runs/characters/gpt.json || fail "not 18 characters: $(cat runs/characters/gpt.json)"

# --- generating: greedily, it knows the one sentence it has seen ---
for tokens in bytes characters; do
    works generate $tokens --prompt "In the beg" --temperature 0 --max-tokens 100
    says "^In the beginning God created the heaven and the earth.$"
    works generate $tokens@last --prompt "In the" --seed 3 --max-tokens 40
    cp out first
    works generate $tokens@last --prompt "In the" --seed 3 --max-tokens 40
    cmp -s out first || fail "another text with the same seed: $(cat first) $(cat out)"
    works generate $tokens --prompt "" --max-tokens 5 --json
    says '"schema":"lockstep.generate/1"'
    says '"tokens":5'
    [ "$(wc -l <out)" = 1 ] || fail "more than a document: $(cat out)"
done
refused 2 'U+0025) at byte 7' generate characters --prompt "In the %"
[ ! -s out ] || fail "a refused prompt was printed: $(cat out)"
works generate bytes --prompt "%" --max-tokens 2 # every text is bytes
status=0
"$lockstep" generate bytes --prompt "In" >/dev/full 2>err || status=$?
[ $status = 74 ] || fail "exit code $status for a full stdout: $(cat err)"

# --- to Hugging Face's format and back: the same numbers ---
works checkpoint export bytes --out hf
says 'hf: model.safetensors, config.json'
works train gpt --data text --tokens bytes --init-from hf --lr 1e-30 --weight-decay none --max-steps 1 --batch-size 8 \
    --devices 1 --name back
works eval bytes --data text --devices 1 --json
sed 's/.*"values"/"values"/; s/,"world.*//' out >first
works eval back --data text --devices 1 --json
sed 's/.*"values"/"values"/; s/,"world.*//' out >second
cmp -s first second || fail "other numbers after export and import: $(cat first second)"
# --- to go on from another run: its sizes, its tokens ---
sed 's/heaven/goat/' text >second-text
works train gpt --data second-text --init-from characters@best --lr 1e-30 --weight-decay none --max-steps 1 --batch-size 8 \
    --devices 2 --name from
cmp -s runs/from/gpt.json runs/characters/gpt.json || fail "other sizes: $(cat runs/from/gpt.json)"
cmp -s runs/from/tokenizer.json runs/characters/tokenizer.json || fail "other tokens"
works eval from --data text --devices 1 --json
sed 's/.*"values"/"values"/; s/,"world.*//' out >first
works eval characters --data text --devices 1 --json
sed 's/.*"values"/"values"/; s/,"world.*//' out >second
cmp -s first second || fail "other numbers from the same weights: $(cat first second)"
works train gpt --data second-text --init-from runs/characters/checkpoints/best --context 8 --max-steps 1 --devices 1
refused 2 'heads 4' train gpt --data second-text --init-from characters --heads 4 --devices 1
# A run elsewhere, by path; a checkpoint that has left its run remembers its flags.
mkdir elsewhere
cp -r runs/bytes elsewhere/copy
cp -rL runs/bytes/checkpoints/last left
works train gpt --data text --init-from elsewhere/copy/ --max-steps 1 --devices 1
works train gpt --data text --init-from copy --runs-dir elsewhere --name again --max-steps 1 --devices 1
refused 2 'no run "nobody"' train gpt --data text --resume nobody --name branch --devices 1
[ ! -e runs/branch ] || fail "a refused --resume left a folder"
works train gpt --data text --init-from elsewhere/copy/checkpoints/last/model.safetensors --max-steps 1 --devices 1
works train gpt --data text --init-from left --max-steps 1 --devices 1
refused 2 'is not among the 18' train gpt --data "$LS_SOURCE_DIR/CMakeLists.txt" --init-from characters --devices 1

refused 2 'not a language model\|only language models\|not trained by a recipe\|no run' checkpoint export nothing
refused 2 'there is huggingface' checkpoint export bytes --format onnx
refused 2 'layers 3' train gpt --data text --init-from hf --layers 3 --tokens bytes
head -c 3000 hf/model.safetensors >cut
mv cut hf/model.safetensors
refused 2 'hf/model.safetensors' train gpt --data text --init-from hf --tokens bytes
printf 'version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n' >hf/model.safetensors
refused 2 'git lfs pull' train gpt --data text --init-from hf --tokens bytes
rm -f hf/tokenizer.json hf/vocab.bpe hf/encoder.json # as in a clone without git-lfs: that is not the point
refused 2 'cd hf && git lfs pull' train gpt --data text --init-from hf

# The run goes on with the same command only with the same text.
sed 's/God/Gods/' text >longer
sed 's/God/Qod/' text >other
# shellcheck disable=SC2086
{
    refused 2 'begun with 185' train gpt --data longer --tokens characters $tiny --max-epochs 30 --lr 0.01 --name characters
    refused 2 'heads 4: runs/bytes began with 2' train gpt --data text --layers 1 --heads 4 --width 16 --context 16 \
        --batch-size 8 --max-epochs 30 --name bytes --devices 2
    refused 2 'other tokens' train gpt --data other --tokens characters $tiny --max-epochs 30 --lr 0.01 --name characters
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
    refused 2 'tokens.bin: token' train gpt --data "$golden/tokens.bin" $tiny --vocabulary 20 --name high
    grep -q 'tokens.bin: [0-9]* tokens of 16 bits, without a header' err || fail "a file without a header is not told of"
    [ ! -e runs/high ] || fail "tokens beyond the vocabulary were found after the start"
    refused 2 '13' train gpt --data "$golden/tokens.bin" --init-from "$golden" --context 13
    printf 'a short text' >short
    refused 2 'short' train gpt --data short
    refused 2 'no such folder; looked at nowhere and runs/nowhere' train gpt --data text --init-from nowhere
    mkdir -p empty
    refused 2 'no weights in it' train gpt --data text --init-from empty
    refused 2 'did you mean --temperature' generate bytes --temprature 1
    refused 2 'token files' generate golden-1
    refused 2 'one run' generate
    refused 2 'temperature' generate bytes --temperature -1
    refused 2 'max-tokens 0' generate bytes --max-tokens 0
}
[ $failures = 0 ]
