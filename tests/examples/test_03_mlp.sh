#!/bin/sh
# 03_mlp on small IDX files; and what it says when one of them is cut off.
set -eu
program=$LS_BINARY_DIR/bin/03_mlp
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

# 300 images of digits' codes, labels 1 to 9.
for part in train t10k; do
    { printf '\000\000\010\003\000\000\001\054\000\000\000\034\000\000\000\034'
      seq 1 100000 | head -c 235200; } >$part-images-idx3-ubyte
    { printf '\000\000\010\001\000\000\001\054'
      awk 'BEGIN { for (i = 0; i < 300; i++) printf "%c", i % 9 + 1 }'; } >$part-labels-idx1-ubyte
done
gzip -q t10k-images-idx3-ubyte

out=$("$program" --data . --devices cpu:2 --threads-per-device 1 --hidden 16 --max-steps 5 2>log) ||
    { cat log; exit 1; }
case $out in
"test accuracy 0."*", in runs/"*) ;;
*) echo "unexpected: $out"; exit 1 ;;
esac

head -c 100000 train-images-idx3-ubyte >cut
mv cut train-images-idx3-ubyte
code=0
"$program" --data . --devices cpu:2 2>log || code=$?
[ $code = 2 ] || { echo "exit code $code"; cat log; exit 1; }
grep -q "train-images-idx3-ubyte: truncated: 100000 bytes, but its header promises 235216" log ||
    { cat log; exit 1; }
