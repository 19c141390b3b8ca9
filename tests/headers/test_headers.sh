#!/bin/sh
# Each public header stands alone, in C and in C++, without warnings.
set -eu
cd "$LS_SOURCE_DIR"
for header in include/lockstep/*.h; do
    echo "#include <lockstep/${header##*/}>" | cc -std=c11 -Iinclude -Wall -Wextra -Wpedantic -Werror -fsyntax-only -x c -
    echo "#include <lockstep/${header##*/}>" | c++ -std=c++17 -Iinclude -Wall -Wextra -Werror -fsyntax-only -x c++ -
done
