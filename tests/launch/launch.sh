# What the scripts of this folder share: a folder of their own, and asking a command for its exit code and words.
# out and err are the last command's; a script ends with: exit $bad
lockstep=$LS_BINARY_DIR/bin/lockstep
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
for name in RANK LOCAL_RANK WORLD_SIZE MASTER_ADDR MASTER_PORT OMP_NUM_THREADS; do unset $name; done
bad=0

fail() {
    echo "$*"
    sed 's/^/  out: /' out | head -40
    sed 's/^/  err: /' err | head -40
    bad=1
}

# run CODE WORDS...: lockstep run with these words ends with this code, after $took milliseconds.
run() {
    expected=$1
    shift
    begin=$(date +%s%N)
    "$lockstep" run "$@" >out 2>err
    got=$?
    took=$((($(date +%s%N) - begin) / 1000000))
    [ $got -eq "$expected" ] || fail "lockstep run $*: exit code $got (expected $expected)"
}
# has FILE TEXT: a line of FILE contains TEXT.
has() { grep -q -F -e "$2" "$1" || fail "\"$2\" is not in $1"; }
lacks() { ! grep -q -F -e "$2" "$1" || fail "\"$2\" is in $1"; }
# write_table FILE: 256 rows of a,b,c,y for lockstep train table.
write_table() {
    awk 'BEGIN {
        srand(1); print "a,b,c,y"
        for (i = 0; i < 256; i++) { a = rand(); b = rand(); c = rand(); printf "%.4f,%.4f,%.4f,%.4f\n", a, b, c, a - b * c }
    }' >"$1"
}
# digest FILE: the sum of the weights that a training with --json printed there.
digest() { grep -a -o '"weights_xxh3":"[0-9a-f]*"' "$1" | sort -u; }
