#!/bin/sh
# lockstep bench comm: the table, the document, any number of ranks, wrong flags.
set -eu
lockstep=$LS_BINARY_DIR/bin/lockstep
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
    echo "$1"
    cat "$work/out" "$work/err" 2>/dev/null
    exit 1
}

for n in 1 2 3; do
    "$lockstep" bench comm --devices cpu:$n --max-bytes 4096 --factor 8 >"$work/out" 2>"$work/err" || fail "$n ranks"
    grep -q "^$n ranks, f32 sums" "$work/out" || fail "no heading"
    [ "$(grep -cE '^ +(8|64|512|4096) ' "$work/out")" -eq 4 ] || fail "not four sizes"
done

"$lockstep" bench comm --devices cpu:2 --min-bytes 12 --max-bytes 70000 --factor 70 --json >"$work/out" 2>"$work/err" || fail "json"
[ "$(wc -l <"$work/out")" -eq 1 ] || fail "not one line"
python3 - "$work/out" <<'END' || fail "the document is wrong"
import json, sys
d = json.load(open(sys.argv[1]))
assert d["schema"] == "lockstep.bench/1" and d["bench"] == "comm" and d["world_size"] == 2 and d["verified"] is True
found = [(r["operation"], r["memory"], r["bytes"]) for r in d["results"]]
assert found[0] == ("barrier", "none", 0)
for n in (12, 840, 58800):
    for kind in (("all_reduce", "private"), ("all_reduce", "communicator"), ("exchange_adamw", "communicator")):
        assert kind + (n,) in found
for r in d["results"]:
    assert 0 < r["best_us"] <= r["median_us"] <= r["p95_us"] and r["rounds"] >= 7
    if r["operation"] == "all_reduce":
        assert abs(r["bus_gb_per_s"] - r["bytes"] / r["median_us"] / 1e3) <= 1e-6 * r["bus_gb_per_s"]
END

"$lockstep" bench comm --devices cpu:2 --all-reduce-only --max-bytes 8 --json >"$work/out" 2>"$work/err" || fail "no exchange"
grep -q exchange_adamw "$work/out" && fail "the exchange was measured"

for wrong in --min-bytes=6 --min-bytes=0 --max-bytes=4 --factor=1 --max-byts=8; do
    set +e
    "$lockstep" bench comm --devices cpu:2 $wrong >"$work/out" 2>"$work/err"
    code=$?
    set -e
    [ $code -eq 2 ] || fail "$wrong: exit $code"
    grep -q -e "${wrong%=*}" "$work/err" || fail "$wrong is not named"
done
