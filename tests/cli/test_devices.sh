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

# Simulated GPUs are shown to who asks for them.
grep -q sim "$work/out" && fail "a simulation that nobody asked for"
if [ -e "$LS_BINARY_DIR/lib/lockstep_sim.so" ]; then
    "$lockstep" devices --devices sim:2 >"$work/out"
    grep -q "^--devices sim:2: 2 simulated GPUs$" "$work/out" || fail "no simulated GPUs"
    [ "$(grep -c '^sim:[01]  *1  ' "$work/out")" -eq 2 ] || fail "not two simulated GPUs"
fi

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

# GPUs, by a library that stands for the driver's.
export LD_LIBRARY_PATH="$LS_BINARY_DIR/tests/fake"
export FAKE_NVML_GPUS=3
"$lockstep" devices >"$work/out" 2>"$work/err"
grep -q "^GPUs *3, driver 999.12.34, CUDA up to 13.2$" "$work/out" || fail "no GPUs"
grep -q "^GPU 0 *Fake GPU 0, compute capability 9.0$" "$work/out" || fail "not the first GPU"
grep -q "utilization 97 %, 88 C, 640 W of 700 W, 1125 MHz of 1980 MHz" "$work/out" || fail "not what it does"
grep -q "not free: busy: process 812" "$work/out" || fail "not who uses it"
grep -q "MIG-00000001-fake, 40.0 GiB" "$work/out" || fail "not its parts"
grep -q "^GPU 2 *not reached" "$work/out" || fail "a lost GPU is not told"
[ -s "$work/err" ] && fail "text on stderr"
"$lockstep" devices --json >"$work/out"
python3 - "$work/out" <<'END' || fail "the document is wrong about GPUs"
import json, sys
g = json.load(open(sys.argv[1]))["gpu"]
assert g["note"] is None and g["driver"] == "999.12.34" and g["cuda"] == "13.2"
busy, divided, lost = g["gpus"]
assert busy["uuid"] == "GPU-00000000-fake" and busy["memory_bytes"] == 80 << 30
assert busy["processes"] == [{"pid": 812, "memory_bytes": 2 << 30}, {"pid": 813, "memory_bytes": None}]
assert busy["power_watts"] == 640.5 and "busy" in busy["trouble"] and not busy["mig"]
assert [m["uuid"] for m in divided["mig_devices"]] == ["MIG-00000000-fake", "MIG-00000001-fake"]
assert divided["trouble"] is None and divided["processes"] == [] and divided["mig"]
assert lost["lost"] and lost["memory_bytes"] is None and lost["name"] is None
assert g["links"] == [[None, "nvlink", "host"], ["nvlink", None, "host"], ["host", "host", None]]
END
FAKE_NVML_FAIL=18 "$lockstep" devices >"$work/out"
grep -q "^GPUs *none: the NVIDIA driver was updated" "$work/out" || fail "a broken driver is not told"
