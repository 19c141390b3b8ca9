#!/usr/bin/env python3
"""All-reduce between machines of one rank each, beside what the engines have themselves.

    bench/bench_nodes.py [--nodes 2,4] [--rounds 5] [--sizes BYTES,...] [--gloo-python PYTHON]

The "machines" are processes of this one that deal with each other only by the engine: Gloo over TCP on the loopback, Open MPI over
TCP (pml ob1, btl tcp,self), Open MPI over whatever it likes, which is shared memory. Peers run by turns with ours, in each round each
once; the table shows the medians of times and the median of the rounds' ratios. PYTHON (default: python3) must have torch, else Gloo is
left out; without mpirun MPI is. LOCKSTEP names our command (default: build/release/bin/lockstep).
"""
import argparse
import json
import os
import secrets
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
LOCKSTEP = os.environ.get("LOCKSTEP", os.path.join(HERE, "../build/release/bin/lockstep"))
TCP = ["--mca", "pml", "ob1", "--mca", "btl", "tcp,self"]


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return str(s.getsockname()[1])


def started_by_hand(nodes, command):
    """One process per node with torchrun's environment; the first one's output."""
    common = dict(os.environ, MASTER_ADDR="127.0.0.1", MASTER_PORT=free_port(), WORLD_SIZE=str(nodes), LOCAL_RANK="0",
                  LOCAL_WORLD_SIZE="1", GROUP_WORLD_SIZE=str(nodes), LOCKSTEP_SECRET=secrets.token_hex(16))
    ranks = [subprocess.Popen(command, env=dict(common, RANK=str(r), GROUP_RANK=str(r)), text=True,
                              stdout=subprocess.PIPE if r == 0 else subprocess.DEVNULL, stderr=subprocess.DEVNULL)
             for r in range(nodes)]
    out = ranks[0].communicate(timeout=300)[0]
    codes = [r.wait(timeout=60) for r in ranks]
    if any(codes):
        sys.exit(f"{' '.join(command)}: exit codes {codes}")
    return out


def mpirun(nodes, options, command):
    # Each rank is a machine of its own to us: the mapping is ours to tell.
    shell = ("export RANK=$OMPI_COMM_WORLD_RANK GROUP_RANK=$OMPI_COMM_WORLD_RANK WORLD_SIZE=$OMPI_COMM_WORLD_SIZE "
             "LOCAL_RANK=0 LOCAL_WORLD_SIZE=1; exec \"$@\"")
    env = dict(os.environ, MASTER_ADDR="127.0.0.1", MASTER_PORT=free_port(), GROUP_WORLD_SIZE=str(nodes),
               LOCKSTEP_SECRET=secrets.token_hex(16))
    return subprocess.run(["mpirun", "--allow-run-as-root", "--oversubscribe", *options, "-np", str(nodes), "sh", "-c", shell, "sh",
                           *command], env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True,
                          timeout=300).stdout


def ours(start, engine, sizes):
    times = {}
    for size in sizes:
        text = start([LOCKSTEP, "bench", "comm", "--all-reduce-only", "--comm", engine, "--min-bytes", str(size), "--max-bytes",
                      str(size), "--log-level", "error", "--json"])
        for row in json.loads(text)["results"]:
            if row.get("memory") == "private":
                times[size] = row["median_us"]
    return times


def peers(text):
    return {int(line.split()[0]): float(line.split()[1]) for line in text.splitlines() if line.strip()}


def comparisons(args, mpi_program):
    """(name, our times, peer's times), each a function of nodes and sizes."""
    found = []
    if subprocess.run([args.gloo_python, "-c", "import torch.distributed"], stderr=subprocess.DEVNULL).returncode == 0:
        program = [args.gloo_python, os.path.join(HERE, "peer_gloo_all_reduce.py")]
        found.append(("gloo", lambda n, sizes: ours(lambda c: started_by_hand(n, c), "gloo", sizes),
                      lambda n, sizes: peers(started_by_hand(n, program + [str(s) for s in sizes]))))
    else:
        print(f"Gloo is left out: {args.gloo_python} has no torch", file=sys.stderr)
    if not mpi_program:
        print("Open MPI is left out: apt install libopenmpi-dev openmpi-bin", file=sys.stderr)
        return found
    for name, options in (("mpi, TCP", TCP), ("mpi, shared memory", [])):
        found.append((name, lambda n, sizes, o=options: ours(lambda c: mpirun(n, o, c), "mpi", sizes),
                      lambda n, sizes, o=options: peers(mpirun(n, o, [mpi_program] + [str(s) for s in sizes]))))
    return found


def compare(name, our, their, nodes, sizes, rounds):
    mine, theirs = {s: [] for s in sizes}, {s: [] for s in sizes}
    for _ in range(rounds):
        for times, run in ((mine, our), (theirs, their)):
            for size, us in run(nodes, sizes).items():
                times[size].append(us)
    print(f"\n{name}, {nodes} nodes: microseconds\n{'bytes':>10} {'ours':>10} {'its own':>10} {'ratio':>6}   of rounds")
    for size in sizes:
        ratios = [a / b for a, b in zip(mine[size], theirs[size])]
        print(f"{size:>10} {statistics.median(mine[size]):>10.0f} {statistics.median(theirs[size]):>10.0f} "
              f"{statistics.median(ratios):>6.2f}   {min(ratios):.2f} to {max(ratios):.2f}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", default="2,4")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--sizes", default="65536,262144,1048576,4194304,16777216,67108864")
    parser.add_argument("--gloo-python", default="python3")
    args = parser.parse_args()
    sizes = [int(s) for s in args.sizes.split(",")]
    print(f"load {open('/proc/loadavg').read().split()[0]} on {os.cpu_count()} CPUs: figures count only on an otherwise idle machine")
    with tempfile.TemporaryDirectory() as folder:
        program = None
        if shutil.which("mpicc") and shutil.which("mpirun"):
            program = os.path.join(folder, "mpi")
            subprocess.run(["mpicc", "-O3", "-march=native", os.path.join(HERE, "peer_mpi_all_reduce.c"), "-o", program], check=True)
        for nodes in (int(n) for n in args.nodes.split(",")):
            for name, our, their in comparisons(args, program):
                compare(name, our, their, nodes, sizes, args.rounds)


if __name__ == "__main__":
    main()
