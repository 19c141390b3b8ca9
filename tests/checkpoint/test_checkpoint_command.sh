#!/bin/sh
# Checkpoints from the command line: show and verify, damage, a read-only folder, a full disk.
set -eu
# A name space of our own lets anybody mount; where that is forbidden too, a part is skipped.
if [ "$(id -u)" -ne 0 ] && [ -z "${LS_UNSHARED:-}" ] && unshare -rm true 2>/dev/null; then
    LS_UNSHARED=1 exec unshare -rm sh "$0"
fi
lockstep=$LS_BINARY_DIR/bin/lockstep
work=$(mktemp -d)
mounted=""
trap 'cd /; [ -z "$mounted" ] || umount "$work/disk"; rm -rf "$work"' EXIT
cd "$work"

fail() {
    echo "$1"
    cat out err 2>/dev/null
    exit 1
}

# Small images of ten classes, the class in the brightest row.
python3 - <<'END'
import os, struct
os.mkdir("data")
for part, n in ("train", 96), ("t10k", 40):
    labels = bytes(i % 10 for i in range(n))
    pixels = bytes((200 if y == c else 7 * x % 50) for c in labels for y in range(10) for x in range(10))
    open(f"data/{part}-images-idx3-ubyte", "wb").write(struct.pack(">4I", 0x803, n, 10, 10) + pixels)
    open(f"data/{part}-labels-idx1-ubyte", "wb").write(struct.pack(">2I", 0x801, n) + labels)
END

# train RUNS STEPS ARGS...: exit code in $code
train() {
    runs=$1 steps=$2
    shift 2
    set +e
    "$lockstep" train image --data data --model mlp --batch-size 16 --devices cpu:2 --runs-dir "$runs" \
        --max-steps "$steps" --save-every 2 --validate-every none --keep-last 9 --name fox "$@" >out 2>err
    code=$?
    set -e
}

# run CODE ARGS...
run() {
    wanted=$1
    shift
    set +e
    "$lockstep" "$@" >out 2>err
    code=$?
    set -e
    [ "$code" -eq "$wanted" ] || fail "lockstep $*: exit code $code"
}

train runs 6
[ "$code" -eq 0 ] || fail "training: exit code $code"

# --- show and verify ---
run 0 checkpoint show fox
grep -q "^checkpoint  *runs/fox/checkpoints/step-00000006 (last" out || fail "not the newest"
grep -q "^fc1.weight  *F32  *(256,100)  *25600$" out || fail "no tensor"
grep -q "^Checkpoints of this run: 2, 4, 6" out || fail "no list"
run 0 checkpoint show fox@4 --json
[ "$(wc -l <out)" -eq 1 ] || fail "not one line"
python3 - out <<'END' || fail "the document is wrong"
import json, os, sys
d = json.load(open(sys.argv[1]))
assert d["schema"] == "lockstep.checkpoint/1" and d["step"] == 4 and not d["last"]
assert d["trainer"]["step"] == 4 and [c["step"] for c in d["checkpoints"]] == [2, 4, 6]
for f in d["files"]:
    assert os.path.getsize(os.path.join(d["path"], f["name"])) == f["bytes"]
t = {t["name"]: t for t in d["tensors"]}
assert t["fc1.weight"]["shape"] == [256, 100] and t["fc1.weight"]["dtype"] == "F32"
END
run 0 checkpoint verify fox
grep -q "step-00000006: 3 files, .*, all checksums are right" out || fail "not verified"
run 0 checkpoint verify runs/fox/checkpoints/step-00000002 --json
grep -q '"verified":true' out || fail "not verified"
run 0 checkpoint verify runs/fox/checkpoints/step-00000002/model.safetensors
run 2 checkpoint verify foy
grep -q "did you mean fox" err || fail "no suggestion"
run 2 checkpoint verify fox@5
grep -q "the steps 2, 4, 6" err || fail "no list of steps"
run 2 checkpoint verify
run 2 checkpoint verify fox fox

# What we write, the rules of the safetensors package read.
python3 - runs/fox/checkpoints/step-00000006 <<'END' || fail "not by the format's rules"
import json, os, struct, sys
for name in "model.safetensors", "optimizer.safetensors":
    data = open(os.path.join(sys.argv[1], name), "rb").read()
    n = struct.unpack("<Q", data[:8])[0]
    assert data[8:9] == b"{" and (8 + n) % 4096 == 0
    header = json.loads(data[8:8 + n].decode("utf-8"))
    assert header.pop("__metadata__") == {"format": "pt"}
    end = 0
    for t in sorted(header.values(), key=lambda t: t["data_offsets"]):
        begin, stop = t["data_offsets"]
        size = 4
        for d in t["shape"]:
            size *= d
        assert t["dtype"] == "F32" and begin == end and stop - begin == size
        end = stop
    assert 8 + n + end == len(data)
END

# --- damage: named, passed over, and the run goes on from the one before ---
model=runs/fox/checkpoints/step-00000006/model.safetensors
printf '\377' | dd of="$model" bs=1 seek=5000 conv=notrunc status=none
run 2 checkpoint verify fox --json
grep -q "error: .*step-00000006/model.safetensors: damaged: the checksum of bytes" err || fail "damage not named"
grep -q '"schema":"lockstep.report/1"' out || fail "no report"
run 0 checkpoint verify fox@4
train runs 8
[ "$code" -eq 0 ] || fail "going on past damage: exit code $code"
grep -q "warning: checkpoint passed over: .*step-00000006/model.safetensors: damaged" err || fail "no warning"
run 0 checkpoint verify fox
grep -q "step-00000008" out || fail "it did not go on"
run 0 checkpoint verify fox@6

# --- a folder that cannot be written ---
if [ "$(id -u)" -ne 0 ]; then
    mkdir closed
    chmod 555 closed
    train closed 2
    grep -q "closed/fox: .*Permission denied" err || fail "no reason"
else
    train /proc/runs 2
    grep -q "/proc/runs.*: cannot create the folder" err || fail "no reason"
fi
[ "$code" -eq 74 ] || fail "a read-only folder: exit code $code"

# --- a full disk, and one that nobody may write to, where we may mount one ---
mkdir disk
if ! mount -t tmpfs -o size=20m tmpfs disk 2>/dev/null; then
    echo "nothing can be mounted here: full and read-only disks were not tried"
    exit 0
fi
mounted=yes
head -c 19000000 /dev/zero >disk/filler
train disk 20
[ "$code" -eq 74 ] || fail "a full disk: exit code $code"
grep -q "error: .*the checkpoint of step [0-9]* was not saved.*: disk/fox/checkpoints/.*No space left on device" err ||
    fail "no reason"
before=$(readlink disk/fox/checkpoints/last)
run 0 checkpoint verify fox --runs-dir disk
grep -q "$before: 3 files" out || fail "the one before is not there"
[ -z "$(ls -A disk/fox/checkpoints | grep '^\.')" ] || fail "half a checkpoint is left"
rm disk/filler
train disk 20
[ "$code" -eq 0 ] || fail "with room again: exit code $code"
run 0 checkpoint verify fox@20 --runs-dir disk
mount -o remount,ro disk 2>/dev/null || {
    echo "nothing can be mounted read-only here: that was not tried"
    exit 0
}
train disk 30
[ "$code" -eq 74 ] || fail "a read-only disk: exit code $code"
grep -q "Read-only file system" err || fail "no reason"
