#!/bin/sh
# The same bits with 1, 2 and 3 threads, in every process, at every alignment.
set -eu
bits="$LS_BINARY_DIR/tests/prog_cpu_bits"
one=$("$bits" 1)
echo "$one"
[ "$(echo "$one" | wc -l)" = 24 ]
echo "$one" | while read -r _ model _ batch aligned moved; do
    [ "$aligned" = "$moved" ] || { echo "model $model, batch $batch: bits depend on alignment"; exit 1; }
done
for threads in 1 2 3; do
    other=$("$bits" "$threads")
    [ "$one" = "$other" ] || { echo "other bits with $threads threads:"; echo "$other"; exit 1; }
done
