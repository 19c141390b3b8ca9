# shellcheck shell=sh disable=SC2034
# Sourced by ./quickstart and ./check: says what it will install, and installs it. Debian 12 names.

# What building and running needs, and why (the README's table says the same).
LS_BUILD_PACKAGES="gcc g++ libc6-dev cmake ninja-build pkg-config libdnnl-dev libhwloc-dev libdw-dev libjansson-dev libxxhash-dev nettle-dev zlib1g-dev libpcre2-dev libpng-dev libjpeg62-turbo-dev scdoc"
# Several machines: optional, each for one of --comm's engines.
LS_ENGINE_PACKAGES="libgloo-dev libopenmpi-dev openmpi-bin"
LS_DATA_PACKAGES="dataset-fashion-mnist bible-kjv"
LS_TEST_PACKAGES="libcmocka-dev libc6-dbg clang libomp-dev libclang-rt-14-dev python3-numpy python3-torch git procps"
# For ./check --long: other launchers (SLURM does nothing without a configuration; its test has its own), and pip.
LS_PEER_PACKAGES="openmpi-bin mpich slurmctld slurmd slurm-client munge python3-venv"

# ls_install PACKAGE...: nothing to do when all are there; sudo when not root.
ls_install() {
    missing=""
    for package in "$@"; do
        if [ "$(dpkg-query -W -f '${db:Status-Abbrev}' "$package" 2>/dev/null)" != "ii " ]; then
            missing="$missing $package"
        fi
    done
    if [ -z "$missing" ]; then return 0; fi
    echo "Installing with apt-get:$missing"
    sudo=""
    if [ "$(id -u)" != 0 ]; then
        if ! command -v sudo >/dev/null; then
            echo "$0: not root and no sudo: install the packages above, then use --no-install" >&2
            return 1
        fi
        sudo=sudo
    fi
    $sudo apt-get update -qq || return 1
    # shellcheck disable=SC2086
    $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >/dev/null || return 1
}
