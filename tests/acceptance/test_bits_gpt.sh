#!/bin/sh
# The language model: the same micro-batches give the same bits on any number of devices, with clipping,
# dropout, recomputation, grouped queries and bf16; and after a kill, on another number of devices.
set -u
. "$LS_SOURCE_DIR/tests/acceptance/acceptance.sh"
steps=6
[ -n "${LS_LONG:-}" ] && steps=100
cat "$LS_SOURCE_DIR"/docs/*.md "$LS_SOURCE_DIR/README.md" >"$work/text"

train() { # NAME DEVICES FLAG...; replaces the shell
    name=$1 devices=$2
    shift 2
    exec "$lockstep" train gpt --data "$work/text" --layers 2 --heads 4 --width 32 --context 33 --batch-size 27 --micro-batches 4 \
        --lr 0.01 --warmup-steps 2 --devices "cpu:$devices" --threads-per-device 1 --seed 7 --json --name "$name" "$@"
}
check() { # WHAT FLAG...
    what=$1 first=""
    shift
    for devices in 1 2 3 4; do
        (train "$what-$devices" $devices --max-steps $steps "$@") >"$work/out" 2>"$work/err"
        bits="$(field weights_xxh3 <"$work/out") $(field val <"$work/out")" ||
            fail "$what on $devices: $(tail -n 5 "$work/err")"
        [ -n "$first" ] || first=$bits
        [ "$bits" = "$first" ] || fail "$what: $devices devices give $bits, not $first"
    done
}
check plain
plain=$first
check recompute --recompute
[ "$first" = "$plain" ] || fail "recomputation changes the bits: $first, not $plain"
check dropout --dropout 0.2 --gradient-clip-val 0.1
dropout=$first
[ "$dropout" = "$plain" ] && fail "dropout changes nothing"
check dropout-recompute --dropout 0.2 --gradient-clip-val 0.1 --recompute
[ "$first" = "$dropout" ] || fail "recomputation draws another dropout: $first, not $dropout"
check grouped --kv-heads 2 --gradient-clip-val none
check bf16 --precision bf16-mixed
bf16=$first
[ "$bf16" = "$plain" ] && fail "bf16-mixed changes nothing"
check bf16-recompute --precision bf16-mixed --recompute
[ "$first" = "$bf16" ] || fail "recomputation changes the bits of bf16: $first, not $bf16"

# Killed on three devices, it goes on on two, killed again, on one: as if it had never been stopped.
kill_behind() { # NAME STEP DEVICES FLAG...
    name=$1 step=$2 devices=$3
    shift 3
    (train "$name" "$devices" "$@") >"$work/out" 2>"$work/err" &
    pid=$!
    i=0
    until [ -e "$work/runs/$name/checkpoints/step-$step" ] || [ $i -gt 1000 ]; do
        i=$((i + 1))
        sleep 0.02
    done
    kill -KILL $pid 2>/dev/null
    wait $pid 2>/dev/null
    code=$?
    [ $code = 137 ] || fail "$name: exit $code before it was killed: $(tail -n 3 "$work/err")"
    gone_within 2 || fail "$name: processes survive"
}
for precision in 32 bf16-mixed; do
    flags="--precision $precision --dropout 0.1 --recompute --max-steps 150 --save-every 10 --keep-last all --validate-every 75"
    # shellcheck disable=SC2086
    {
        (train never-$precision 4 $flags) >"$work/out" 2>"$work/err" || fail "never-$precision: $(tail -n 3 "$work/err")"
        never="$(field weights_xxh3 <"$work/out") $(field val <"$work/out")"
        kill_behind kill-$precision 00000020 3 $flags
        kill_behind kill-$precision 00000050 2 $flags
        (train kill-$precision 1 $flags) >"$work/out" 2>"$work/err" || fail "resume: $(tail -n 3 "$work/err")"
        grep -q "resumes from step" "$work/err" || fail "it began anew: $(head -n 5 "$work/err")"
    }
    after="$(field weights_xxh3 <"$work/out") $(field val <"$work/out")"
    [ "$after" = "$never" ] || fail "$precision: $after after two kills, not $never"
done
done_testing
