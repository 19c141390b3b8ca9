# What the tests with other people's programs share. They run in the long form only, in a virtual environment that ./check --long has
# filled; what is not there is skipped (77 tells CTest).
[ -n "${LS_LONG:-}" ] || exit 77
. "$LS_SOURCE_DIR/tests/launch/launch.sh"
venv=${LS_PEERS:-$HOME/.cache/lockstep/venv}
python=$venv/bin/python
peers=$LS_SOURCE_DIR/tests/launch/peers
export HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false JAX_PLATFORMS=cpu

# needs MODULE: without it there is nothing to test.
needs() {
    "$python" -c "import $1" >out 2>err && return
    echo "no $1 in $venv: ./check --long installs it"
    exit 77
}

# aborted: PyTorch's threads outlive Python's end now and then, whoever started it, and the process aborts after its last line
# (its issues 179291 and 190489). That is told, and tried again.
aborted() {
    [ $code -eq 134 ] && grep -q -F "terminate called without an active exception" err &&
        echo "PyTorch aborted at Python's end: once more"
}

# job WORDS...: lockstep run ends well.
job() {
    for _ in 1 2 3 4 5; do
        PYTHON_EXEC=$python "$lockstep" run "$@" >out 2>err
        code=$?
        aborted || break
    done
    [ $code -eq 0 ] || fail "lockstep run $*: exit code $code"
}

# peer FILE WORDS...: on one process, on two, and on three, unchanged.
peer() {
    program=$peers/$1
    shift
    for size in 1 2 3; do
        job --nproc-per-node $size "$program" "$@"
        has out "peer: trained on $size"
        [ "$(grep -c "peer: trained" out)" -eq 1 ] || fail "$program $*: not one line of one job"
    done
}
