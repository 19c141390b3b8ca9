#!/bin/sh
# SIGTERM and SIGINT, to the supervisor, to one rank, to a single process: saved at the next step and 75
# or 130; a second one more than a second later stops at once.
set -u
. "$LS_SOURCE_DIR/tests/acceptance/acceptance.sh"
cut_data "$work/data" 1031 263

start() { # NAME DEVICES
    "$lockstep" train image --data "$work/data" --model mlp --name "$1" --devices "cpu:$2" --batch-size 64 \
        --max-epochs none --max-steps 1000000 --validate-every none --save-every none --seed 1 >"$work/out" 2>"$work/err" &
    pid=$!
    i=0
    until grep -q '"step"' "$work/runs/$1/metrics.jsonl" 2>/dev/null; do
        i=$((i + 1))
        [ $i -gt 600 ] && { fail "$1 does not begin: $(tail -n 3 "$work/err")"; break; }
        sleep 0.05
    done
}
ends() { # CODE WHAT
    wait $pid
    code=$?
    [ $code = "$1" ] || fail "$2: exit $code, not $1: $(tail -n 3 "$work/err")"
    gone_within 2 || fail "$2: processes survive"
}
saved() { "$lockstep" checkpoint verify "$1@last" >/dev/null 2>&1 || fail "$1: no checkpoint"; }

for n in 1 2 3; do
    start term-$n $n; kill -TERM $pid; ends 75 "SIGTERM to $n"; saved term-$n
    grep -q "SIGTERM: stopping at the next step" "$work/err" || fail "SIGTERM to $n is not answered"
    start int-$n $n; kill -INT $pid; ends 130 "SIGINT to $n"; saved int-$n
    grep -q "SIGINT: stopping at the next step; once more, a second later, to stop now" "$work/err" || fail "SIGINT to $n is not answered"
done
start rank 2; kill -TERM "$(pgrep -P $pid | tail -n 1)"; ends 75 "SIGTERM to a rank"; saved rank
start both 2; kill -TERM $pid; kill -TERM $pid; ends 75 "two at once are one"; saved both
# a stopped rank cannot agree: the first request waits, the second ends it
start second 2; kill -STOP "$(pgrep -P $pid | tail -n 1)"; kill -TERM $pid; sleep 1.3; kill -TERM $pid
begin=$(date +%s); ends 143 "a second SIGTERM"; [ $(($(date +%s) - begin)) -le 3 ] || fail "the second SIGTERM was slow"
done_testing
