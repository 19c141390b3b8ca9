#!/bin/sh
# 02_your_own_loop: the same bits on 1, 2 and 4 devices, and when it was stopped and resumed.
set -eu
program=$LS_BINARY_DIR/bin/02_your_own_loop
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

run() { "$program" --micro-batches 4 --threads-per-device 1 "$@" 2>>log || { cat log; exit 1; }; }

one=$(run --devices cpu:1)
case $one in
"loss 0.0"*) ;; # the noise's variance is 0.01
*) echo "it did not learn: $one"; exit 1 ;;
esac
for n in 2 4; do
    many=$(run --devices cpu:$n)
    [ "$many" = "$one" ] || { echo "$n devices: $many, one: $one"; exit 1; }
done

run --devices cpu:2 --name demo --max-steps 100 >/dev/null
resumed=$(run --devices cpu:4 --name demo --max-steps 192)
[ "$resumed" = "$one" ] || { echo "resumed: $resumed, at once: $one"; exit 1; }
grep -q "resumes from step 100" log || { cat log; exit 1; }
