#!/bin/sh
# What is installed works from where it was installed, in a prefix of the user's choice: README's program built as README
# says, with pkg-config; another with the CMake package; the command, which finds its library; the manual pages.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset LOCKSTEP_PLUGIN_DIR LD_LIBRARY_PATH
export ASAN_OPTIONS=detect_leaks=0 # README's program leaves its datasets to the process's end
prefix=$work/prefix

fail() {
    echo "$1"
    cat "$work/log" 2>/dev/null
    exit 1
}

cached() { # a variable of the build, such as the sanitizers that the library was built with
    sed -n "s/^$1:[A-Z]*=//p" "$LS_BINARY_DIR/CMakeCache.txt"
}

cc=$(cached CMAKE_C_COMPILER)
sanitize=$(cached LS_SANITIZE)
flags=${sanitize:+-fsanitize=$sanitize}

cmake --install "$LS_BINARY_DIR" --prefix "$prefix" >"$work/log" 2>&1 || fail "cmake --install failed"
PKG_CONFIG_PATH=$(dirname "$(find "$prefix" -name lockstep.pc)")
export PKG_CONFIG_PATH
libdir=$(pkg-config --variable=libdir lockstep)

# The command needs no LD_LIBRARY_PATH, nor does the plugin.
"$prefix/bin/lockstep" --version >"$work/log" 2>&1 || fail "the installed command does not run"
grep -q "^lockstep $(pkg-config --modversion lockstep)$" "$work/log" || fail "the command's version is another"
"$prefix/bin/lockstep" run --devices cpu:2 --runs-dir "$work/runs" env >"$work/log" 2>&1 || fail "the installed launcher does not run"
grep -q "PYTHONPATH=$prefix/.*/lockstep/lockstep_python$" "$work/log" || fail "the installed launcher has no sitecustomize.py"
if ldd "$libdir/lockstep/lockstep_cpu.so" 2>&1 | grep liblockstep >"$work/log" && ! grep -q "$prefix" "$work/log"; then
    fail "the installed plugin takes another liblockstep"
fi
if ! cached SCDOC | grep -q NOTFOUND; then
    for page in lockstep lockstep-train-image lockstep-eval lockstep-devices lockstep-bench-comm lockstep-checkpoint; do
        [ -s "$prefix/share/man/man1/$page.1" ] || fail "no manual page $page.1"
    done
fi

# README's program, compiled as printed there. 96 images, so that an epoch is one batch.
cd "$work"
# shellcheck disable=SC2016
sed -n '/^```c$/,/^```$/p' "$LS_SOURCE_DIR/README.md" | grep -v '^```' >train.c
line=$(sed -n 's/^    \(cc train\.c -o train .*\)/\1/p' "$LS_SOURCE_DIR/README.md")
[ -n "$line" ] || fail "README no longer says how to compile its program"
eval "$cc $flags ${line#cc}" >"$work/log" 2>&1 || fail "README's program does not compile: $line"
for part in train t10k; do
    { printf '\0\0\010\003\0\0\0\140\0\0\0\034\0\0\0\034'; head -c $((96 * 28 * 28)) /dev/zero | tr '\0' '\7'; } >$part-images-idx3-ubyte
    { printf '\0\0\010\001\0\0\0\140'; head -c 96 /dev/zero; } >$part-labels-idx1-ubyte
done
LD_LIBRARY_PATH=$libdir ./train --devices cpu:2 --name tiny --json >out 2>"$work/log" || fail "README's program does not run"
grep -q '"world_size": *2' runs/tiny/run.json out || fail "README's program ran on another number of devices than 2"

# Another program through the CMake package.
mkdir other
cat >other/CMakeLists.txt <<'END'
cmake_minimum_required(VERSION 3.25)
project(other LANGUAGES C)
find_package(lockstep REQUIRED)
add_executable(other other.c)
target_link_libraries(other PRIVATE lockstep::lockstep)
END
cat >other/other.c <<'END'
#include <lockstep/lockstep.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    ls_world *world;
    ls_check(ls_world_init(&argc, &argv, NULL, &world));
    printf("rank %d of %d\n", ls_world_rank(world), ls_world_size(world));
    return ls_world_finish(world);
}
END
cmake -G Ninja -S other -B other/build -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_C_COMPILER="$cc" -DCMAKE_C_FLAGS="$flags" >"$work/log" 2>&1 ||
    fail "CMake does not find the package"
cmake --build other/build >"$work/log" 2>&1 || fail "the program with find_package(lockstep) does not build"
other/build/other --devices cpu:2 >out 2>"$work/log" || fail "the program with find_package(lockstep) does not run"
grep -q "rank 0 of 2" out || fail "it ran on another number of devices than 2"
