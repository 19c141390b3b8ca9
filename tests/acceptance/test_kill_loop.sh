#!/bin/sh
# SIGKILL at any moment, of a rank, the supervisor or both: nothing survives, the report names rank and
# signal, and the resumed run ends with the bits of the undisturbed one, also on other device counts.
set -u
. "$LS_SOURCE_DIR/tests/acceptance/acceptance.sh"
rounds=6
[ -n "${LS_LONG:-}" ] && rounds=50
cut_data "$work/data" 1031 263

train() { # NAME DEVICES [MORE...]
    name=$1 devices=$2
    shift 2
    exec "$lockstep" train image --data "$work/data" --model cnn --name "$name" --devices "cpu:$devices" --micro-batches 4 \
        --batch-size 96 --threads-per-device 1 --max-steps 60 --save-every 4 --validate-every 20 --seed 7 --json "$@"
}
(train undisturbed 1) >"$work/out" 2>"$work/err" || fail "undisturbed: $(tail -n 3 "$work/err")"
truth="$(field weights_xxh3 <"$work/out") $(field val <"$work/out")"

round=0
while [ $round -lt $rounds ]; do
    name=kill-$round tries=0 devices=2
    while :; do
        rm -f "$work/report.json"
        (train "$name" $devices --report "$work/report.json") >"$work/out" 2>"$work/err" &
        pid=$!
        delay=$(awk "BEGIN{srand($round*97+$tries*31+$$); printf \"%.3f\", 0.05+rand()*${LS_KILL_WINDOW:-1.5}}")
        sleep "$delay"
        ranks=$(pgrep -P $pid)
        victim=$(((round + tries) % 3))
        hit=$(echo "$ranks" | head -n 1)
        case $victim in
        0) [ -n "$hit" ] && kill -KILL "$hit" 2>/dev/null ;;
        1) kill -KILL $pid 2>/dev/null ;;
        2) kill -KILL $pid $ranks 2>/dev/null ;;
        esac
        wait $pid 2>/dev/null
        code=$?
        gone_within 2 || fail "round $round: $(survivors) processes survive: $(pgrep -af "$work")"
        [ $code = 0 ] && break
        if [ $victim = 0 ] && [ $code = 137 ]; then
            grep -q '"rank"' "$work/report.json" && grep -q 'SIGKILL\|signal 9' "$work/report.json" ||
                fail "round $round: the report does not name rank and signal: $(cat "$work/report.json")"
        elif [ $code != 137 ]; then
            fail "round $round: exit $code: $(tail -n 5 "$work/err")"
            break
        fi
        tries=$((tries + 1))
        devices=$((tries % 4 + 1))
        if [ $tries -ge 4 ]; then # enough for this run: let it finish
            (train "$name" $devices) >"$work/out" 2>"$work/err" || fail "round $round: resume: $(tail -n 5 "$work/err")"
            break
        fi
    done
    bits="$(field weights_xxh3 <"$work/out") $(field val <"$work/out")"
    [ "$bits" = "$truth" ] || fail "round $round after $tries kills: $bits, not $truth"
    round=$((round + 1))
done
done_testing
