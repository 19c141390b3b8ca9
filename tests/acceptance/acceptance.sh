# shellcheck shell=sh
# Sourced by the acceptance tests: the command as a person uses it, on a small cut of Fashion-MNIST.
# LS_LONG=1 runs what the issue asks for in full (more steps, more kills).

lockstep=$LS_BINARY_DIR/bin/lockstep
work=$(mktemp -d)
export LOCKSTEP_RUNS_DIR="$work/runs"
failures=0

finish() {
    pkill -KILL -f "$work" 2>/dev/null
    rm -rf "$work"
}
trap finish EXIT
trap 'exit 1' INT TERM

fail() {
    echo "FAILED: $*"
    failures=$((failures + 1))
}

# cut_data DIR TRAIN VAL: the first samples of Fashion-MNIST as plain IDX files.
cut_data() {
    mkdir -p "$1"
    /usr/bin/python3 - "$1" "$2" "$3" <<'PYTHON'
import gzip, struct, sys
folder, counts = sys.argv[1], {"train": int(sys.argv[2]), "t10k": int(sys.argv[3])}
for part, n in counts.items():
    for kind, head, size in (("images-idx3", 16, 784), ("labels-idx1", 8, 1)):
        with gzip.open(f"/usr/share/datasets/fashion-mnist/{part}-{kind}-ubyte.gz") as f:
            header, body = bytearray(f.read(head)), f.read(n * size)
        header[4:8] = struct.pack(">I", n)
        with open(f"{folder}/{part}-{kind}-ubyte", "wb") as f:
            f.write(header + body)
PYTHON
}

# field NAME < JSON document on the last line: prints the value, dots go down.
field() {
    tail -n 1 | /usr/bin/python3 -c 'import json,sys
d = json.loads(sys.stdin.read())
for k in sys.argv[1].split("."): d = d[k]
print(json.dumps(d) if isinstance(d, (dict, list)) else d)' "$1"
}

# expect CODE TEXT COMMAND...: the exit code, and a text that stdout or stderr must say.
expect() {
    expected=$1 text=$2
    shift 2
    timeout 100 "$@" >"$work/out" 2>&1 </dev/null
    code=$?
    [ $code = "$expected" ] || fail "exit $code, not $expected: $* : $(tail -n 3 "$work/out")"
    grep -q -e "$text" "$work/out" || fail "does not say \"$text\": $* : $(tail -n 5 "$work/out")"
}

# survivors: processes of this test's runs that are still there.
survivors() { pgrep -f "lockstep train.*$work" | wc -l; }

# gone_within SECONDS: no process of a run is left.
gone_within() {
    i=0
    while [ "$(survivors)" != 0 ]; do
        i=$((i + 1))
        [ $i -gt $(($1 * 20)) ] && return 1
        sleep 0.05
    done
}

done_testing() {
    [ $failures = 0 ] || echo "$failures failures"
    exit $((failures > 0))
}
