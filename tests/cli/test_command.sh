#!/bin/sh
# The frame of the lockstep command: what finds a subcommand, what does not, and which stream and exit code that has.
set -u
lockstep=$LS_BINARY_DIR/bin/lockstep
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
bad=0

# expect CODE STREAM TEXT WORDS...: exit code, and TEXT on that stream while the other stays empty.
expect() {
    code=$1 stream=$2 text=$3
    shift 3
    "$lockstep" "$@" >"$work/out" 2>"$work/err"
    got=$?
    [ $stream = out ] && other=err || other=out
    if [ $got -ne "$code" ] || ! grep -q -F -e "$text" "$work/$stream" || [ -s "$work/$other" ]; then
        echo "lockstep $*: exit code $got (expected $code), expected \"$text\" on $stream only:"
        sed 's/^/  out: /' "$work/out"
        sed 's/^/  err: /' "$work/err"
        bad=1
    fi
}

expect 2 err "lockstep devices"
expect 0 out "lockstep devices" --help
expect 0 out "lockstep devices" -h
expect 0 out "lockstep devices" help
expect 0 out "lockstep 0." --version
expect 0 out "lockstep 0." devices --version
expect 0 out "usage: lockstep devices" devices --help
expect 0 out "usage: lockstep devices" devices -h
expect 0 out "usage: lockstep devices" help devices
expect 2 err "device: no such command; did you mean lockstep devices?" device
expect 2 err "did you mean lockstep devices?" help devcies
expect 2 err "frobnicate: no such command; lockstep --help lists them" frobnicate
expect 2 err "--json: flags stand behind the command" --json
expect 2 err "--jsom: no such flag; did you mean --json?" devices --jsom
expect 2 err "word: not a flag" devices word
expect 2 err "no such command" ""

for words in "" train "train image" eval devices "bench comm" checkpoint "checkpoint show" "checkpoint verify"; do
    # shellcheck disable=SC2086
    "$lockstep" $words --help >"$work/out" || bad=1
    if grep -q '.\{81\}' "$work/out"; then
        echo "lockstep $words --help: wider than 80 columns"
        bad=1
    fi
done

"$lockstep" --help >/dev/full 2>"$work/err"
if [ $? -ne 74 ] || ! grep -q "cannot write to standard output" "$work/err"; then
    echo "a full disk behind --help went unnoticed"
    bad=1
fi
exit $bad
