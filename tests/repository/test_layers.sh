#!/bin/sh
# A room may include only rooms above it in the house's list; file names are unique in the repository.
set -eu
cd "$LS_SOURCE_DIR"
rooms="base device comm world graph backend nn optim data metric checkpoint record run trainer recipe launch cli"
bad=0
above=" "
for room in $rooms; do
    above="$above$room "
    [ -d "src/$room" ] || continue
    for file in $(find "src/$room" -name '*.[ch]'); do
        for include in $(sed -n 's/^#include "\([^"]*\)".*/\1/p' "$file"); do
            target=${include%%/*}
            case "$above" in
            *" $target "*) ;;
            *) echo "$file includes $include: $target is not above $room"; bad=1 ;;
            esac
        done
    done
done
if grep -n '^#include "' src/recipe/*.c 2>/dev/null | grep -v '"recipe/'; then
    echo "recipes use public headers only"
    bad=1
fi
twice=$(git ls-files -co --exclude-standard src include tests bench | sed 's|.*/||' | grep -v -x -e CMakeLists.txt -e README.md -e main.c | sort | uniq -d)
if [ -n "$twice" ]; then
    echo "file names that stand twice:" $twice
    bad=1
fi
exit $bad
