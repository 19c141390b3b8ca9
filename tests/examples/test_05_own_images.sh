#!/bin/sh
# 05_own_images: draws its folder, learns, the same on one and two devices; a broken image is named.
set -eu
program=$LS_BINARY_DIR/bin/05_own_images
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

run() {
    "$program" --micro-batches 2 --threads-per-device 1 --max-epochs 10 "$@" 2>>log ||
        { cat log; exit 1; }
}
accuracy() { run "$@" | sed -n 's/^test accuracy \([0-9.]*\) with .*/\1/p'; }

two=$(accuracy --devices cpu:2)
[ "$(find images -name '*.ppm' | wc -l)" = 300 ] || { echo "images are missing"; exit 1; }
one=$(accuracy --devices cpu:1)
[ -n "$one" ] && [ "$one" = "$two" ] || { echo "one device: $one, two: $two"; exit 1; }
awk "BEGIN { exit !($one > 0.5) }" || { echo "it did not learn: $one"; exit 1; }

echo broken >images/ring/07.ppm
code=0
"$program" --devices cpu:2 --max-epochs 2 2>log || code=$?
[ $code = 2 ] || { echo "exit code $code"; cat log; exit 1; }
grep -q "of the dataset (image, label): images/ring/07.ppm is not a PPM" log || { cat log; exit 1; }
