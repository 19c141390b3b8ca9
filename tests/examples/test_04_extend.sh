#!/bin/sh
# 04_extend: its gradient check passes, and one and two devices end with the same numbers; a wrong gradient is refused.
set -eu
program=$LS_BINARY_DIR/bin/04_extend
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
export ASAN_OPTIONS="$ASAN_OPTIONS:detect_leaks=0" # an example leaves its memory to the end of the process
export LOCKSTEP_LOG_LEVEL=warn LOCKSTEP_MICRO_BATCHES=2 LOCKSTEP_MAX_STEPS=30
one=$("$program" --name one --devices cpu:1)
two=$("$program" --name two --devices cpu:2)
echo "$one"
[ "$one" = "$two" ] || { echo "two devices: $two"; exit 1; }
case $one in "accuracy 0."*", worst loss "*) ;; *) exit 1 ;; esac
grep -q '"worst_loss"' runs/one/metrics.jsonl

sed 's/ls_mul(grad,/ls_mul(in[0],/' "$LS_SOURCE_DIR/examples/04_extend/main.c" > wrong.c
! cmp -s wrong.c "$LS_SOURCE_DIR/examples/04_extend/main.c"
sanitize=$(sed -n 's/^LS_SANITIZE:STRING=\(..*\)/-fsanitize=\1/p' "$LS_BINARY_DIR/CMakeCache.txt")
compiler=$(sed -n 's/^CMAKE_C_COMPILER:[A-Z]*=//p' "$LS_BINARY_DIR/CMakeCache.txt")
"$compiler" -std=c11 $sanitize -I "$LS_SOURCE_DIR/include" wrong.c -o wrong -L "$LS_BINARY_DIR/lib" -llockstep -lm \
    -Wl,-rpath,"$LS_BINARY_DIR/lib"
code=0
text=$(./wrong --devices 1 2>&1) || code=$?
echo "$text"
[ $code = 2 ]
case $text in *"ls_gradient_check: parameter fc1."*"furthest off"*) ;; *) exit 1 ;; esac
