#!/bin/sh
# Every command has a manual page, and every flag that its --help shows is in that page. Where scdoc is missing there are no pages
# to look at.
set -u
lockstep=$LS_BINARY_DIR/bin/lockstep
man=$LS_BINARY_DIR/man
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
command -v scdoc >/dev/null || { echo "scdoc is not here"; exit 0; }

# "lockstep train image   train an ..." -> "train image"
"$lockstep" --help | sed -n 's/^  lockstep \([a-z ]*[a-z]\)  .*/\1/p' >"$work/commands"
[ -s "$work/commands" ] || { echo "no commands"; exit 1; }
bad=0
while read -r words; do
    case $words in
    checkpoint*) page=$man/lockstep-checkpoint.1 ;;
    *) page=$man/lockstep-$(echo "$words" | tr ' ' '-').1 ;;
    esac
    if [ ! -s "$page" ]; then
        echo "lockstep $words: no $page"
        bad=1
        continue
    fi
    grep -q -F "lockstep\\-$(echo "$words" | cut -d' ' -f1)" "$man/lockstep.1" || grep -q "$words" "$man/lockstep.1" || {
        echo "lockstep $words: not in lockstep.1"
        bad=1
    }
    # shellcheck disable=SC2086
    "$lockstep" $words --help | grep -o -E -e '^  --[a-z0-9-]+' >"$work/flags"
    tr -d '\\' <"$page" >"$work/page"
    while read -r flag; do
        grep -q -F -e "$flag" "$work/page" || { echo "lockstep $words $flag: not in $(basename "$page")"; bad=1; }
    done <"$work/flags"
    grep -q -e '--json' "$work/flags" || { echo "lockstep $words: no flags found in --help"; bad=1; }
done <"$work/commands"
exit $bad
