#!/bin/sh
# --profile: the table, the document, the trace; on one device and several, with threads.
set -eu
lockstep=$LS_BINARY_DIR/bin/lockstep
source=/usr/share/datasets/fashion-mnist
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

fail() {
    echo "FAILED: $*" >&2
    exit 1
}

train() {
    "$lockstep" train image --data "$source" --model cnn --batch-size 64 --max-steps 6 --validate-every none \
        --save-every none --seed 3 --micro-batches 2 --threads-per-device 2 "$@" 2>err || fail "$* exits with $?: $(cat err)"
}

train --devices cpu:2 --profile --name table >out
for row in 'profile of 5 steps of rank 0 of 2, 2 threads' 'conv2d+relu conv2' 'linear_grad_weight fc1' 'optimizer' 'exchange' \
    'data' 'trace   runs/table/trace.json'; do
    grep -qF "$row" out || fail "the table lacks \"$row\": $(cat out)"
done
! grep -q "$(printf '\033')" out || fail "colours in a pipe"
[ "$(awk '{ if (length > 80) n++ } END { print n + 0 }' out)" = 0 ] || fail "wider than 80 columns: $(cat out)"

train --devices 1 --profile --name document --json >out
tail -n 1 out >line
for run in table document; do
    python3 - "$run" <<'END' || fail "the profile of $run"
import json, sys
name = sys.argv[1]
p = json.load(open(f"runs/{name}/profile.json"))
assert p["schema"] == "lockstep.profile/1" and p["steps"] == 5
# Every microsecond of a step is somewhere.
share = sum(r["share"] for r in p["operations"]) + sum(r["share"] for r in p["rest"])
assert abs(share - 1) < 0.02, share
conv = [r for r in p["operations"] if r["name"] == "conv2d+relu" and r["layer"] == "conv2"][0]
assert conv["calls"] >= 5 and 0.1 < conv["gflops"] < 1e4 and conv["gb_per_s"] > 0, conv
seconds = [r["seconds"] for r in p["operations"]]
assert seconds == sorted(seconds, reverse=True)
events = json.load(open(p["trace"]))
names = {e["name"] for e in events}
assert {"conv2d+relu conv2", "linear_grad_x head", "optimizer", "data"} <= names, names
last = {}
for e in sorted((e for e in events if e["ph"] == "X"), key=lambda e: e["ts"]):
    assert e["ts"] >= last.get(e["tid"], 0) - 0.002, e  # a thread does one thing at a time
    last[e["tid"]] = e["ts"] + e["dur"]
assert len(last) == 2
if name == "document":
    assert json.load(open("line"))["profile"] == p
END
done

# The same bits, and nothing of it in a run that was not asked.
bits=$(sed -n 's/.*"weights_xxh3":"\([^"]*\)".*/\1/p' line)
train --devices 1 --name plain --json >out
grep -q "\"weights_xxh3\":\"$bits\"" out || fail "a profiled run has other weights"
[ ! -e runs/plain/profile.json ] || fail "a profile that nobody wanted"
! grep -q '"profile":{"schema' out || fail "a profile in the document"
