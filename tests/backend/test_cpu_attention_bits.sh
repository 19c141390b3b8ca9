#!/bin/sh
# Attention has the same bits with 1, 2 and 3 threads, whether tiles or heads are dealt to them.
set -eu
bits="$LS_BINARY_DIR/tests/prog_cpu_attention_bits"
one=$("$bits" 1)
echo "$one"
[ "$(echo "$one" | sort -u | wc -l)" = 4 ]
for threads in 1 2 3; do
    other=$("$bits" "$threads")
    [ "$one" = "$other" ] || { echo "other bits with $threads threads:"; echo "$other"; exit 1; }
done
