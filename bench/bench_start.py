#!/usr/bin/env python3
"""From exec to the end of the first step with two ranks, and 01_hello_ranks against a process that does nothing.

The first step's end is the moment the run exits when it is one step long, without saving: an upper bound.
Usage: bench_start.py [--rounds 15]
"""
import argparse, os, statistics, subprocess, tempfile, time
from plain_data import plain_data

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.path.join(HERE, "../build/release")


def seconds(command):
    begin = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    return time.perf_counter() - begin


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--rounds", type=int, default=15)
    o = p.parse_args()
    with tempfile.TemporaryDirectory() as work:
        train = [BUILD + "/bin/lockstep", "train", "image", "--data", plain_data(work), "--model", "mlp", "--devices", "cpu:2",
                 "--max-steps", "1", "--save-every", "none", "--validate-every", "none", "--runs-dir", work + "/runs"]
        commands = {"true": ["/bin/true"], "hello, 1 rank": [BUILD + "/bin/01_hello_ranks", "--devices", "cpu:1"],
                    "hello, 2 ranks": [BUILD + "/bin/01_hello_ranks", "--devices", "cpu:2"], "first step, 2 ranks": train}
        times = {name: [] for name in commands}
        for _ in range(o.rounds):
            for name, command in commands.items():
                times[name].append(seconds(command) * 1e3)
    for name, values in times.items():
        print(f"{name:22} median {statistics.median(values):7.1f} ms   {min(values):.1f}..{max(values):.1f}")
    print(f"hello on 2 ranks - true: {statistics.median(times['hello, 2 ranks']) - statistics.median(times['true']):.1f} ms")


main()
