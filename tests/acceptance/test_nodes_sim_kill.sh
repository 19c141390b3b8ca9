#!/bin/sh
# Training state on the devices of two machines: two launchers, each with memory of its own for its ranks,
# and simulated GPUs, whose exchange goes from device to device. The bits are those of one machine with as
# many devices, in f32 and bf16-mixed. LS_LONG: a job one of whose ranks is killed ends on both machines, and
# goes on to the bits of one that was never stopped.
set -u
. "$LS_SOURCE_DIR/tests/acceptance/acceptance.sh"
finish() { rm -rf "$work"; }
[ -e "$LS_BINARY_DIR/lib/lockstep_sim.so" ] || { echo "lockstep_sim.so is not here"; exit 77; }
[ -e "$LS_BINARY_DIR/lib/lockstep_gloo.so" ] || { echo "libgloo-dev is not installed"; exit 77; }
export LOCKSTEP_SECRET=of-this-test
port=$((20000 + $$ % 10000))
cut_data "$work/data" 300 60
cat "$LS_SOURCE_DIR"/docs/*.md | head -c 20000 >"$work/text"

recipe() { # NAME FLAG...: words of a command, in $words
    name=$1
    shift
    case $name in
    gpt*) words="gpt --data $work/text --layers 1 --heads 2 --width 16 --context 17 --batch-size 8 --dropout 0.1 --lr 0.01" ;;
    *) words="image --data $work/data --batch-size 24" ;;
    esac
    words="$words --micro-batches 4 --deterministic --seed 7 --json --log-every 1 --name $name $*"
}
one() { # NAME DEVICES FLAG...
    recipe "$1" "$3"
    # shellcheck disable=SC2086
    "$lockstep" train $words --devices "$2" >"$work/out" 2>"$work/err" || fail "$1 on $2: $(tail -n 3 "$work/err")"
}
start() { # NAME N M FLAG...: two machines with N and M devices; pids in $p0 and $p1
    recipe "$1" "$4"
    port=$((port + 1))
    # shellcheck disable=SC2086
    {
        "$lockstep" run --nnodes 2 --node-rank 0 --master-addr 127.0.0.1 --master-port $port --devices "sim:$2" \
            "$lockstep" train $words >"$work/out" 2>"$work/err" &
        p0=$!
        "$lockstep" run --join 127.0.0.1:$port/$LOCKSTEP_SECRET --devices "sim:$3" "$lockstep" train $words \
            >"$work/out1" 2>"$work/err1" &
        p1=$!
    }
}
two() {
    start "$@"
    wait $p0 && wait $p1 || fail "$1 on sim:$2 and sim:$3: $(tail -n 3 "$work/err" "$work/err1")"
    grep -q "2 machines, connected by gloo" "$work/err" || fail "$1: not two machines: $(cat "$work/err")"
    ! grep -q "through the host's memory" "$work/err" || fail "$1: training state is not on the devices"
}
bits() { field weights_xxh3 <"$work/out"; }
same() { # NAME N M FLAG...
    two "$@"
    got=$(bits)
    one "$1-one" "sim:$(($2 + $3))" "$4"
    [ -n "$got" ] && [ "$got" = "$(bits)" ] || fail "$1: two machines give $got, one gives $(bits)"
}

clip="--gradient-clip-val 0.5"
same image 2 1 "--model mlp --max-steps 3 $clip"
same gpt-half 1 1 "--max-steps 2 --precision bf16-mixed"
[ -n "${LS_LONG:-}" ] || done_testing
for n in 1 2; do
    same "image-half-$n" $n 1 "--model mlp --max-steps 20 --precision bf16-mixed $clip"
    same "image-cnn-$n" $n 1 "--model cnn --max-steps 3"
    same "gpt-$n" $n 1 "--max-steps 5 $clip"
    same "gpt-half-$n" 1 $n "--max-steps 5 --precision bf16-mixed"
done

# killed STEP RANK: a rank is killed behind a checkpoint, and everything ends on both machines.
killed() {
    step=$1 rank=$2
    start moved 2 1 "--model mlp --max-steps 40 --save-every 5 --keep-last all"
    i=0
    until [ -e "$work/runs/moved/checkpoints/step-$step" ] || [ $i -gt 1000 ]; do
        i=$((i + 1))
        sleep 0.02
    done
    victim=$(grep -l -a -z -x "RANK=$rank" $(grep -l -a "$work" /proc/[0-9]*/environ 2>/dev/null) 2>/dev/null | head -n 1 | cut -d / -f 3)
    kill -KILL "$victim" 2>/dev/null || fail "rank $rank is not found"
    wait $p0
    c0=$?
    wait $p1
    c1=$?
    [ "$c0 $c1" = "137 137" ] || fail "a killed rank $rank: exit codes $c0 $c1: $(tail -n 3 "$work/err" "$work/err1")"
    grep -q "rank $rank (host" "$work/err" || fail "the first machine does not name rank $rank: $(tail -n 5 "$work/err")"
    gone_within 2 || fail "processes survive"
}
one stayed sim:2 "--model mlp --max-steps 40"
want=$(bits)
killed 00000005 2
killed 00000015 0
two moved 1 2 "--model mlp --max-steps 40"
grep -q "resumes from step" "$work/err" || fail "it began anew: $(head -n 5 "$work/err")"
[ "$(bits)" = "$want" ] || fail "killed and resumed: $(bits), never stopped: $want"
done_testing
