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

# peer FILE WORDS...: on one process, on two, and on three, unchanged.
peer() {
    program=$peers/$1
    shift
    for size in 1 2 3; do
        PYTHON_EXEC=$python run 0 --nproc-per-node $size "$program" "$@"
        has out "peer: trained on $size"
        [ "$(grep -c "peer: trained" out)" -eq 1 ] || fail "$program $*: not one line of one job"
    done
}
