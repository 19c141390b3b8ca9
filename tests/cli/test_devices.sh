#!/bin/sh
# lockstep devices: the table, the document, and what wrong choices say.
set -eu
lockstep=$LS_BINARY_DIR/bin/lockstep
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cpus=$(nproc)

fail() {
    echo "$1"
    cat "$work/out" "$work/err" 2>/dev/null
    exit 1
}

"$lockstep" devices --devices cpu:3 --threads-per-device 2 >"$work/out" 2>"$work/err"
grep -q "^--devices cpu:3: 3 CPU devices with 2 threads each" "$work/out" || fail "no plan"
grep -q "^CPUs *$cpus usable" "$work/out" || fail "not nproc's count of CPUs"
[ "$(grep -c '^cpu:[012]  *2  ' "$work/out")" -eq 3 ] || fail "not three devices"
[ -s "$work/err" ] && fail "text on stderr"

LOCKSTEP_DEVICES=cpu:3 "$lockstep" devices --json >"$work/out"
[ "$(wc -l <"$work/out")" -eq 1 ] || fail "not one line"
python3 - "$work/out" "$cpus" <<'END' || fail "the document is wrong"
import json, sys
d = json.load(open(sys.argv[1]))
assert d["schema"] == "lockstep.devices/1"
assert d["cpu"]["usable"] == int(sys.argv[2])
assert d["plan"]["spec"] == "cpu:3" and d["plan"]["count"] == 3
assert [x["name"] for x in d["devices"]] == ["cpu:0", "cpu:1", "cpu:2"]
assert 0 < d["memory"]["usable_bytes"] <= d["memory"]["machine_bytes"]
END

# Only the first CPU of the mask.
first=$(taskset -cp $$ | sed 's/.*: \([0-9]*\).*/\1/')
taskset -c "$first" "$lockstep" devices >"$work/out"
grep -q "^--devices auto: 1 CPU device with 1 thread$" "$work/out" || fail "the affinity mask does not count"

for wrong in 10000 0 two gpu:1; do
    set +e
    "$lockstep" devices --json --devices $wrong >"$work/out" 2>"$work/err"
    code=$?
    set -e
    [ $code -eq 2 ] || fail "--devices $wrong: exit code $code"
    grep -q -e "--devices $wrong: .*(usable here: $cpus)" "$work/err" || fail "--devices $wrong: no reason"
    grep -q '"schema":"lockstep.report/1","verdict":"usage".*"exit_code":2' "$work/out" || fail "--devices $wrong: no report"
done
