#!/bin/sh
# bf16-mixed: the same bits with 1, 2 and 3 threads, at every alignment.
set -eu
bits="$LS_BINARY_DIR/tests/prog_cpu_bits"
one=$("$bits" 1 bf16-mixed)
echo "$one"
[ "$(echo "$one" | wc -l)" = 3 ]
echo "$one" | while read -r _ model _ batch aligned moved; do
    [ "$aligned" = "$moved" ] || { echo "model $model, batch $batch: bits depend on alignment"; exit 1; }
done
for threads in 2 3; do
    other=$("$bits" "$threads" bf16-mixed)
    [ "$one" = "$other" ] || { echo "other bits with $threads threads:"; echo "$other"; exit 1; }
done
