#!/bin/sh
# lockstep train image and lockstep eval, as people type them, on a small part of Fashion-MNIST.
set -eu
lockstep=$LS_BINARY_DIR/bin/lockstep
source=/usr/share/datasets/fashion-mnist
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
data=$work/data
mkdir "$data"
cd "$work"

fail() {
    echo "FAILED: $*" >&2
    exit 1
}

u32() { printf "\\$(printf %o $(($1 >> 24 & 255)))\\$(printf %o $(($1 >> 16 & 255)))\\$(printf %o $(($1 >> 8 & 255)))\\$(printf %o $(($1 & 255)))"; }

# cut PART COUNT: the first COUNT samples of a part.
cut_part() {
    { printf '\0\0\10\3'; u32 "$2"; u32 28; u32 28; zcat "$source/$1-images-idx3-ubyte.gz" | tail -c +17 | head -c $((784 * $2)); } >"$data/$1-images-idx3-ubyte"
    { printf '\0\0\10\1'; u32 "$2"; zcat "$source/$1-labels-idx1-ubyte.gz" | tail -c +9 | head -c "$2"; } >"$data/$1-labels-idx1-ubyte"
}
cut_part train 1500
cut_part t10k 301

# value DOCUMENT KEY: the text behind "KEY": in a line of JSON.
value() { printf '%s' "$1" | sed -n "s/.*\"$2\":\([^,}]*\).*/\1/p"; }

# The same numbers on every number of devices, and from eval.
for model in mlp cnn resnet; do
    first=
    for devices in 1 3; do
        line=$("$lockstep" train image --data "$data" --model $model --devices cpu:$devices --micro-batches 4 \
            --threads-per-device 1 --max-steps 4 --batch-size 64 --seed 7 --gradient-clip-val 1 \
            --name $model-$devices --json 2>err | tail -n 1) || fail "$model on $devices: $(cat err)"
        [ "$(value "$line" schema)" = '"lockstep.fit/1"' ] || fail "no document: $line"
        seen="$(value "$line" weights_xxh3) $(printf '%s' "$line" | sed -n 's/.*"val":\({[^}]*}\).*"test":\({[^}]*}\).*/\1 \2/p')"
        [ -n "$first" ] || first=$seen
        [ "$seen" = "$first" ] || fail "$model: $first on 1, $seen on $devices devices"
    done
    "$lockstep" eval $model-3 --devices cpu:2 --json >eval 2>err || fail "eval $model: $(cat err)"
    test=$(printf '%s' "$line" | sed -n 's/.*"test":{\([^}]*\)}.*/\1/p')
    grep -q "\"values\":{$test}" eval || fail "eval says $(cat eval), train said $test"
done

# refused CODE TEXT ARGUMENTS: exits with CODE and says TEXT.
refused() {
    code=$1 text=$2
    shift 2
    status=0
    "$lockstep" "$@" >out 2>err || status=$?
    [ "$status" = "$code" ] || fail "lockstep $*: exit code $status, not $code: $(cat err)"
    grep -q -e "$text" err || fail "lockstep $*: \"$(cat err)\" does not say \"$text\""
}
refused 2 'mlp, cnn and resnet' train image --data "$data" --model vgg --devices 1
refused 2 'dataset-fashion-mnist' train image --devices 1
refused 2 "$work/nowhere" train image --data "$work/nowhere" --devices 2
mkdir small
cp "$data"/train-* small
{ printf '\0\0\10\3'; u32 2; u32 16; u32 16; head -c 512 /dev/zero; } >small/t10k-images-idx3-ubyte
{ printf '\0\0\10\1'; u32 2; head -c 2 /dev/zero; } >small/t10k-labels-idx1-ubyte
refused 2 'images are 28x28, the test images 16x16' train image --data small --devices 1
refused 2 'did you mean --batch-size' train image --data "$data" --batch-sise 64
refused 2 'batch-size' train image --data "$data" --batch-size 0
refused 2 'no-such-run' eval no-such-run --devices 1
refused 2 'one run is needed' eval

# Data that is cut off, and a label that is not one.
cp -r "$data" bad
head -c 100000 "$data/train-images-idx3-ubyte" >bad/train-images-idx3-ubyte
refused 2 'bad/train-images-idx3-ubyte' train image --data bad --devices 2 --model mlp
cp "$data/train-images-idx3-ubyte" bad/
printf '\310' | dd of=bad/train-labels-idx1-ubyte bs=1 seek=$((8 + 77)) conv=notrunc 2>/dev/null
refused 2 '77' train image --data bad --devices 2 --model mlp --name bad-label

# A line that cannot be read is reported where its readers look.
refused 2 'batch-size' train image --data "$data" --batch-size 0 --json --report line.json
tail -n 1 out | grep -q '"verdict":"usage"' || fail "no document for a wrong line: $(cat out)"
grep -q '"batch-size\|--batch-size 0' line.json || fail "no report of a wrong line"

# Results that cannot be written are no success, however many devices; nor do they end up in a file that took the place of
# a closed stdout.
for devices in 1 2; do
    status=0
    "$lockstep" train image --data "$data" --model mlp --devices $devices --max-steps 2 --name full-$devices >/dev/full 2>err || status=$?
    [ "$status" = 74 ] || fail "exit code $status for a full stdout on $devices devices: $(cat err)"
    grep -q 'cannot write to standard output' err || fail "a full stdout is not told: $(cat err)"
    "$lockstep" train image --data "$data" --model mlp --devices $devices --max-steps 2 --name closed-$devices >&- 2>&- <&- ||
        fail "exit code $? with closed streams on $devices devices"
    "$lockstep" checkpoint verify closed-$devices >out || fail "damaged with closed streams: $(cat out)"
    ! grep -q "run closed" runs/closed-$devices/metrics.jsonl runs/closed-$devices/run.json || fail "printed into a file"
done

# A folder of pictures, a sub-folder per class: learnt, validated on a part, evaluated, on any number of devices.
/usr/bin/python3 - <<'PYTHON'
import os, random, struct, zlib
def png(path, width, height, pixel):
    rows = b"".join(b"\0" + b"".join(bytes(pixel(x, y)) for x in range(width)) for y in range(height))
    chunk = lambda kind, data: struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    open(path, "wb").write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))
random.seed(1)
for c, name in enumerate(("blue", "green", "red")):
    os.makedirs(f"pictures/{name}")
    for i in range(40):
        png(f"pictures/{name}/{i}.png", 20 + i % 5, 24, lambda x, y: [random.randrange(180) + (75 if k == 2 - c else 0) for k in range(3)])
PYTHON
first=
for devices in 1 3; do
    line=$("$lockstep" train image --data pictures --image-size 16 --model cnn --devices cpu:$devices --micro-batches 4 \
        --threads-per-device 1 --max-epochs 6 --batch-size 16 --seed 7 --warmup-steps 0 --val-fraction 0.2 --flip --crop 2 \
        --name pictures-$devices --json 2>err | tail -n 1) || fail "pictures on $devices: $(cat err)"
    seen="$(value "$line" weights_xxh3) $(printf '%s' "$line" | sed -n 's/.*"val":\({[^}]*}\).*/\1/p')"
    [ -n "$first" ] || first=$seen
    [ "$seen" = "$first" ] || fail "pictures: $first on 1, $seen on $devices devices"
done
printf '%s' "$seen" | grep -q '"accuracy":1.0' || fail "colors are not learnt: $seen"
"$lockstep" eval pictures-3 --devices cpu:2 --json >eval 2>err || fail "eval of pictures: $(cat err)"
grep -q '"samples":24' eval && grep -q '"accuracy":1.0' eval || fail "eval of pictures: $(cat eval)"
"$lockstep" eval pictures-3 --data pictures --devices 1 --json >eval 2>err || fail "eval of all pictures: $(cat err)"
grep -q '"samples":120' eval || fail "not all pictures: $(cat eval)"
cp -r pictures others && mv others/green others/yellow
refused 2 'not the classes of the run' eval pictures-3 --data others --devices 1
refused 2 'not the classes of the run' train image --data others --image-size 16 --model cnn --devices 1 --micro-batches 4 \
    --max-epochs 7 --batch-size 16 --seed 7 --val-fraction 0.2 --name pictures-1
refused 2 'has 3 sub-folders' train image --data pictures --classes 2 --devices 1
refused 2 'image-size 2' train image --data pictures --image-size 2 --devices 1
refused 2 'val-fraction 1.5' train image --data pictures --val-fraction 1.5 --devices 1
refused 2 'channels 2' train image --data pictures --channels 2 --devices 1
refused 2 'image-size and --channels are for folders' train image --data "$data" --image-size 8 --devices 1
mkdir -p nothing
refused 2 'nor a sub-folder' train image --data nothing --devices 1
mkdir -p nothing/cat
refused 2 'one sub-folder (cat)' train image --data nothing --devices 1
head -c 100 pictures/red/7.png >cut && mv cut pictures/red/7.png
refused 2 'red/7.png' train image --data pictures --devices 2 --max-epochs 1
