#!/bin/sh
# Simulated GPUs, with the plugin's own kernels: with --deterministic the same bits on 1 to 4 of them, in f32 and
# bf16-mixed; losses near the CPU's, with and without; a run that is killed goes on on the other kind of device; a device that fails ends with a report.
set -u
. "$LS_SOURCE_DIR/tests/acceptance/acceptance.sh"
finish() { rm -rf "$work"; }
[ -e "$LS_BINARY_DIR/lib/lockstep_sim.so" ] || { echo "lockstep_sim.so is not here"; exit 0; }
counts="1 3"
[ -n "${LS_LONG:-}" ] && counts="1 2 3 4"
cut_data "$work/data" 300 30 # validated in three chunks, the last of them short
cat "$LS_SOURCE_DIR"/docs/*.md >"$work/text"

image() { # NAME DEVICES MODEL FLAG...; replaces the shell
    name=$1 devices=$2 model=$3
    shift 3
    exec "$lockstep" train image --data "$work/data" --model "$model" --devices "$devices" --micro-batches 4 --batch-size 12 \
        --seed 7 --json --name "$name" "$@"
}
gpt() { # NAME DEVICES - FLAG...; replaces the shell
    name=$1 devices=$2
    shift 3
    head -c 8000 "$work/text" >"$work/short"
    exec "$lockstep" train gpt --data "$work/short" --layers 2 --heads 2 --kv-heads 1 --width 32 --context 33 --batch-size 8 \
        --micro-batches 4 --dropout 0.1 --lr 0.01 --devices "$devices" --seed 7 --json --name "$name" "$@"
}
near() { # A B TOLERANCE
    awk "BEGIN { d = $1 - $2; m = $2 < 0 ? -$2 : $2; exit !(d <= $3 * m && -d <= $3 * m) }"
}

check() { # RECIPE MODEL PRECISION TOLERANCE DEVICES...
    recipe=$1 model=$2 precision=$3 tolerance=$4 first=""
    shift 4
    for devices in cpu:2 "$@"; do
        ($recipe "$recipe-$model-$precision-$devices" "$devices" "$model" --precision "$precision" --max-steps 3 --log-every 1 \
            --deterministic) >"$work/out" 2>"$work/err"
        loss=$(field train.loss <"$work/out") && bits="$(field weights_xxh3 <"$work/out") $(field val <"$work/out")" ||
            { fail "$recipe $model $precision on $devices: $(tail -n 5 "$work/err")"; continue; }
        [ "$devices" = cpu:2 ] && { truth=$loss; continue; }
        near "$loss" "$truth" "$tolerance" || fail "$recipe $model $precision: loss $loss on $devices, $truth on CPUs"
        [ -n "$first" ] || first=$bits
        [ "$bits" = "$first" ] || fail "$recipe $model $precision: $devices give $bits, not $first"
    done
}
loosely() { # RECIPE MODEL PRECISION TOLERANCE DEVICES: sums in the library's order; on three devices other bits
    recipe=$1 model=$2 precision=$3 tolerance=$4 devices=$5
    for flag in "" --deterministic; do
        # shellcheck disable=SC2086
        ($recipe "loose-$recipe-$precision$flag" "$devices" "$model" --precision "$precision" --max-steps 3 --log-every 1 \
            --gradient-clip-val 0.5 $flag) >"$work/out$flag" 2>"$work/err" || fail "$recipe $flag: $(tail -n 3 "$work/err")"
    done
    grep -q "with --deterministic " "$work/err" && fail "$recipe: it has been asked for: $(cat "$work/err")"
    near "$(field train.loss <"$work/out")" "$(field train.loss <"$work/out--deterministic")" "$tolerance" ||
        fail "$recipe $precision: loss $(field train.loss <"$work/out"), with --deterministic $(field train.loss <"$work/out--deterministic")"
    [ "$(field weights_xxh3 <"$work/out")" != "$(field weights_xxh3 <"$work/out--deterministic")" ] ||
        fail "$recipe $precision on $devices: --deterministic changes nothing"
}
all="" few=""
for n in 1 2 3 4; do all="$all sim:$n"; done
for n in $counts; do few="$few sim:$n"; done
# shellcheck disable=SC2086
{
    check image mlp 32 1e-5 $all
    check image mlp bf16-mixed 1e-2 $all
    check gpt - 32 1e-5 $all
    check gpt - bf16-mixed 1e-2 $all
    check image cnn 32 1e-5 $few
    [ -z "${LS_LONG:-}" ] || check image cnn bf16-mixed 1e-2 $few
    [ -z "${LS_LONG:-}" ] || check image resnet 32 1e-4 $few
}

loosely image mlp bf16-mixed 1e-5 sim:3
[ -z "${LS_LONG:-}" ] || { loosely image cnn 32 1e-5 sim:4; loosely gpt - bf16-mixed 1e-2 sim:3; }

# Killed on one kind of device, it goes on on another: a checkpoint knows no device.
kill_behind() { # STEP DEVICES
    (image moved "$2" mlp --max-steps 40 --save-every 5 --keep-last all) >"$work/out" 2>"$work/err" &
    pid=$!
    i=0
    until [ -e "$work/runs/moved/checkpoints/step-$1" ] || [ $i -gt 1000 ]; do
        i=$((i + 1))
        sleep 0.02
    done
    kill -KILL $pid 2>/dev/null
    wait $pid 2>/dev/null
    [ $? = 137 ] || fail "on $2: it ended before it was killed: $(tail -n 3 "$work/err")"
    gone_within 2 || fail "on $2: processes survive"
}
(image stayed cpu:2 mlp --max-steps 40) >"$work/out" 2>"$work/err" || fail "on CPUs: $(tail -n 3 "$work/err")"
truth=$(field train.loss <"$work/out")
kill_behind 00000005 cpu:2
kill_behind 00000015 sim:2
kill_behind 00000025 cpu:1
(image moved sim:3 mlp --max-steps 40) >"$work/out" 2>"$work/err" || fail "resume: $(tail -n 3 "$work/err")"
grep -q "resumes from step" "$work/err" || fail "it began anew: $(head -n 5 "$work/err")"
[ "$(field steps <"$work/out")" = 40 ] || fail "it did not go to the end: $(tail -n 1 "$work/out")"
near "$(field train.loss <"$work/out")" "$truth" 1e-3 || fail "loss $(field train.loss <"$work/out"), $truth on CPUs alone"

# A rank that dies takes the devices' communicator with it. Its rebuilding is that of the processes: all begin again with
# a fresh one, on as many devices (--max-restarts) or on fewer (the same command), from the last checkpoint; with
# --deterministic nothing of that shows in the weights.
lose_a_rank() { # STEP NAME DEVICES FLAG...; leaves the job's exit code in $code
    step=$1 name=$2 devices=$3
    shift 3
    (image "$name" "$devices" mlp --max-steps 20 --save-every 5 --keep-last all --deterministic "$@") >"$work/out" 2>"$work/err" &
    pid=$! i=0
    until [ -e "$work/runs/$name/checkpoints/step-$step" ] || [ $i -gt 1000 ]; do
        i=$((i + 1))
        sleep 0.02
    done
    pkill -KILL -P $pid -n || fail "$name: no rank to kill: $(tail -n 3 "$work/err")"
    wait $pid
    code=$?
}
(image never sim:1 mlp --max-steps 20 --deterministic) >"$work/out" 2>"$work/err" || fail "never: $(tail -n 3 "$work/err")"
truth=$(field weights_xxh3 <"$work/out")
for kept in ${LS_LONG:+stays} shrinks; do
    if [ $kept = stays ]; then
        lose_a_rank 00000005 lost sim:3 --max-restarts 1
        grep -q "starting again (1 of 1)" "$work/err" || fail "not started again: $(tail -n 5 "$work/err")"
    else
        lose_a_rank 00000005 fewer sim:3
        [ $code = 137 ] || fail "a rank was killed: exit code $code: $(tail -n 3 "$work/err")"
        (image fewer sim:2 mlp --max-steps 20 --deterministic) >"$work/out" 2>"$work/err"
        code=$?
        grep -q "resumes from step" "$work/err" || fail "it began anew: $(head -n 5 "$work/err")"
    fi
    [ $code = 0 ] || fail "$kept: exit code $code: $(tail -n 3 "$work/err")"
    [ "$(field weights_xxh3 <"$work/out")" = "$truth" ] || fail "$kept: other bits behind a lost rank"
    gone_within 2 || fail "$kept: processes survive"
done

# What a device does wrong ends the job, and is told.
for devices in sim:1 sim:2; do
    export LOCKSTEP_SIM_FAIL=malloc:2
    expect 1 "GPU . is out of memory" "$lockstep" train image --data "$work/data" --model mlp --devices $devices --max-steps 3 \
        --name "memory-$devices" --report "$work/report.json"
    grep -q '"verdict": "out-of-memory"' "$work/report.json" || fail "the report: $(cat "$work/report.json")"
    export LOCKSTEP_SIM_FAIL=async:40
    expect 69 "GPU . was lost: .*unspecified launch failure" "$lockstep" train image --data "$work/data" --model mlp --devices $devices \
        --max-steps 3 --name "launch-$devices" --report "$work/report.json"
    grep -q '"rank": [0-9]' "$work/report.json" || fail "the report: $(cat "$work/report.json")"
    unset LOCKSTEP_SIM_FAIL
    [ $devices = sim:1 ] && continue
    export LOCKSTEP_SIM_FAIL=collective:5
    expect 69 "GPU .: exchange of [a-z]*: unhandled error" "$lockstep" train image --data "$work/data" --model mlp --devices $devices \
        --max-steps 3 --name "exchange-$devices" --report "$work/report.json"
    grep -q '"rank": [0-9]' "$work/report.json" || fail "the report: $(cat "$work/report.json")"
    unset LOCKSTEP_SIM_FAIL
    gone_within 2 || fail "$devices: processes survive a failure"
done

# A label that is none is named as on CPUs.
/usr/bin/python3 - "$work/data/train-labels-idx1-ubyte" <<'PYTHON'
import sys
with open(sys.argv[1], "r+b") as f:
    f.seek(8 + 123)
    f.write(bytes([77]))
PYTHON
for devices in cpu:1 sim:1; do
    expect 2 "77" "$lockstep" train image --data "$work/data" --model mlp --devices $devices --max-steps 20 --name "label-$devices"
    grep -o "label .*" "$work/out" | head -n 1 >"$work/said-$devices"
done
cmp -s "$work/said-cpu:1" "$work/said-sim:1" || fail "other words: $(cat "$work"/said-*)"
done_testing
