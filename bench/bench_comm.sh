#!/bin/sh
# All-reduce of two ranks and the training exchange, beside Open MPI, Gloo (by PyTorch) and a bare prototype that is the limit.
# The programs run one after another for each size, several rounds; the table shows medians over rounds, and ratios.
#
#     bench/bench_comm.sh [PYTHON]      PYTHON: an interpreter that has torch (default python3); without torch Gloo is left out
#
# LOCKSTEP (build/release/bin/lockstep), ROUNDS (5) and SIZES (bytes) may be set in the environment.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
lockstep=${LOCKSTEP:-$here/../build/release/bin/lockstep}
python=${1:-python3}
rounds=${ROUNDS:-5}
sizes=${SIZES:-8 512 4096 65536 262144 1048576 2097152 16777216 67108864}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT INT TERM

[ -x "$lockstep" ] || { echo "$lockstep is not there; build it: cmake --preset release && cmake --build --preset release" >&2; exit 2; }
gcc -O3 -march=native "$here/peer_zero_copy.c" -o "$work/zero_copy"
mpi=
if command -v mpicc >/dev/null && command -v mpirun >/dev/null; then
    mpicc -O3 -march=native "$here/peer_mpi_all_reduce.c" -o "$work/mpi" && mpi=yes
else
    echo "Open MPI is left out: apt install libopenmpi-dev openmpi-bin" >&2
fi
gloo=
if "$python" -c 'import torch.distributed' 2>/dev/null; then gloo=yes; else echo "Gloo is left out: $python has no torch" >&2; fi

# Each prints "WHO BYTES MICROSECONDS" lines.
run_lockstep() {
    "$lockstep" bench comm --devices cpu:2 --threads-per-device 1 --log-level error --min-bytes "$1" --max-bytes "$1" |
        awk -v n="$1" '$1 == n && NF >= 10 { print "private", n, $2; print "communicator", n, $5; print "exchange", n, $8; print "pass", n, $9 }'
}
run_zero_copy() { "$work/zero_copy" "$1" | sed 's/^/prototype /'; }
run_mpi() { mpirun --allow-run-as-root --oversubscribe -np 2 "$work/mpi" "$1" 2>/dev/null | sed 's/^/mpi /'; }
run_gloo() (
    MASTER_ADDR=127.0.0.1 MASTER_PORT=$((20000 + $$ % 20000)) WORLD_SIZE=2
    export MASTER_ADDR MASTER_PORT WORLD_SIZE
    RANK=1 "$python" "$here/peer_gloo_all_reduce.py" $sizes >/dev/null &
    RANK=0 "$python" "$here/peer_gloo_all_reduce.py" $sizes | sed 's/^/gloo /'
    wait $!
)

echo "load $(cut -d' ' -f1-3 /proc/loadavg) on $(nproc) CPUs: figures count only on an otherwise idle machine" >&2
round=1
while [ "$round" -le "$rounds" ]; do
    echo "round $round of $rounds" >&2
    for n in $sizes; do
        run_lockstep "$n"
        run_zero_copy "$n"
        [ -z "$mpi" ] || run_mpi "$n"
    done
    [ -z "$gloo" ] || run_gloo
    round=$((round + 1))
done >"$work/times"

# Medians by program and size, then the table.
sort -k1,1 -k2,2n -k3,3g "$work/times" | awk '
    { key = $1 " " $2; value[key, n[key]++] = $3 }
    END { for (key in n) print key, value[key, int(n[key] / 2)] }' >"$work/medians"
awk -v sizes="$sizes" '
    { t[$1, $2] = $3 }
    function us(who, n) { return (who, n) in t ? sprintf("%10.2f", t[who, n]) : sprintf("%10s", "-") }
    function ratio(a, b, n) { return (a, n) in t && (b, n) in t ? sprintf("%7.2f", t[a, n] / t[b, n]) : sprintf("%7s", "-") }
    END {
        print "\nAll-reduce of 2 ranks, f32 sum, each having just written its own buffer; microseconds (bus bandwidth in GB/s = bytes / us / 1000)\n"
        printf "%10s | %10s %10s %10s %10s %10s | %s\n", "bytes", "ours", "ours", "prototype", "Open MPI", "Gloo", "how many times faster ours is: communicator memory than"
        printf "%10s | %10s %10s %10s %10s %10s | %7s %7s %7s   %s\n", "", "commun.", "private", "= limit", "", "", "limit", "MPI", "Gloo", "private than MPI"
        count = split(sizes, size, " ")
        for (i = 1; i <= count; i++) {
            n = size[i]
            printf "%10d | %s %s %s %s %s | %s %s %s   %s\n", n, us("communicator", n), us("private", n), us("prototype", n), us("mpi", n), us("gloo", n),
                ratio("prototype", "communicator", n), ratio("mpi", "communicator", n), ratio("gloo", "communicator", n), ratio("mpi", "private", n)
        }
        print "\nOne step of the exchange of that many bytes of parameters with AdamW in it; limit: its bytes read and written once\n"
        printf "%10s | %10s %10s | %7s\n", "bytes", "exchange", "limit", "ratio"
        for (i = 1; i <= count; i++) printf "%10d | %s %s | %s\n", size[i], us("exchange", size[i]), us("pass", size[i]), ratio("exchange", "pass", size[i])
    }' "$work/medians"
