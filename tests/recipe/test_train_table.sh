#!/bin/sh
# lockstep train table, as people type it: a number and a class, on any number of devices, missing values and
# categories, other files, and what people get wrong.
set -u
lockstep=$LS_BINARY_DIR/bin/lockstep
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
failures=0

fail() {
    echo "FAILED: $*" >&2
    failures=$((failures + 1))
}
refused() { # CODE TEXT ARGUMENTS
    code=$1 text=$2
    shift 2
    status=0
    "$lockstep" "$@" >out 2>err || status=$?
    [ "$status" = "$code" ] || fail "lockstep $*: exit code $status, not $code: $(cat err)"
    grep -q -e "$text" err || fail "lockstep $*: \"$(cat err)\" does not say \"$text\""
}
works() {
    "$lockstep" "$@" >out 2>err || fail "lockstep $*: exit code $?: $(tail -n 3 err)"
}
value() { sed -n "s/.*\"$1\":\"*\([^,\"}]*\).*/\1/p" out | tail -n 1; }
below() { awk -v a="$2" -v b="$3" 'BEGIN { exit !(a < b) }' || fail "$1: $2, not below $3"; }

# y = 3 x + 100 for "up", - 100 for "down"; its deviation is about 130. kind says whether y is above 0.
/usr/bin/python3 - <<'PYTHON'
import random
random.seed(5)
def table(path, n):
    with open(path, "w") as f:
        f.write('id,x,"way, of it",kind,y\n')
        for i in range(n):
            x, way = random.uniform(-50, 50), random.choice(("up", "down"))
            y = 3 * x + (100 if way == "up" else -100) + random.gauss(0, 2)
            f.write(f'{i},{"" if i % 20 == 3 else f"{x:.3f}"},"{way}",{"high" if y > 0 else "low"},{y:.3f}\n')
table("train.csv", 900)
table("new.csv", 200)
PYTHON

usual="--drop id,kind --target y --test-data new.csv --threads-per-device 1 --seed 3 --micro-batches 4"
first=
for devices in 1 2 3 4; do
    # shellcheck disable=SC2086
    works train table --data train.csv $usual --max-epochs 12 --devices cpu:$devices --name number-$devices --json
    seen="$(value weights_xxh3) $(sed -n 's/.*"val":\({[^}]*}\).*"test":\({[^}]*}\).*/\1 \2/p' out)"
    [ -n "$first" ] || first=$seen
    [ "$seen" = "$first" ] || fail "a number: $first on 1, $seen on $devices devices"
done
test=$(sed -n 's/.*"test":{\([^}]*\)}.*/\1/p' out)
below "rmse of a number whose deviation is 130" "$(echo "{$test}" | sed -n 's/.*"rmse":\([^,}]*\).*/\1/p')" 40
works eval number-4 --devices cpu:2 --json
grep -q "\"values\":{$test}" out || fail "eval says $(cat out), train said $test"
works eval number-4 --data train.csv --devices cpu:1 --json
[ "$(value samples)" = 900 ] || fail "not all lines: $(cat out)"

# shellcheck disable=SC2086
works train table --data train.csv --drop id,y --target kind --max-epochs 10 --devices 2 --dropout 0.1 --name class --json
below "error of a class" "$(awk -v a="$(value accuracy)" 'BEGIN { print 1 - a }')" 0.1
works eval class --data new.csv
grep -q accuracy out || fail "no accuracy: $(cat out)"

# The same command goes on only with the columns it began with.
sed 's/down/left/' train.csv >other.csv
# shellcheck disable=SC2086
{
    refused 2 'other columns' train table --data other.csv $usual --max-epochs 20 --devices 1 --name number-1
    works train table --data train.csv $usual --max-epochs 14 --devices 3 --name number-1
}

refused 2 'CSV file' train table
refused 2 'nowhere.csv' train table --data nowhere.csv --devices 2
refused 2 'price' train table --data train.csv --target price --devices 1
refused 2 'size' train table --data train.csv --drop size --devices 1
refused 2 'layers -1' train table --data train.csv --layers -1 --devices 1
refused 2 'width 0' train table --data train.csv --width 0 --devices 1
printf '"x,y\n1,2\n' >broken.csv
refused 2 'broken.csv' train table --data broken.csv --devices 1
sed '50s/$/,7/' train.csv >ragged.csv
refused 2 'ragged.csv.*50\|line 50' train table --data ragged.csv --devices 1
cut -d, -f1-4 new.csv >short.csv
refused 2 'short.csv' eval number-4 --data short.csv --devices 1
refused 2 'not a language model' generate number-4
refused 2 'only language models' checkpoint export number-4
[ $failures = 0 ]
