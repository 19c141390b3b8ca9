#!/usr/bin/env python3
"""Two jobs at once on one machine, against each alone: with one thread per device, with two, and on one device each.

Usage: bench_jobs.py [--model cnn] [--steps 150] [--rounds 3]
"""
import argparse, json, os, statistics, subprocess, tempfile
from plain_data import plain_data

HERE = os.path.dirname(os.path.abspath(__file__))


def start(o, data, runs, devices, threads):
    command = [os.path.join(HERE, "../build/release/bin/lockstep"), "train", "image", "--data", data, "--model", o.model,
               "--devices", f"cpu:{devices}", "--threads-per-device", str(threads), "--max-steps", str(o.steps),
               "--save-every", "none", "--validate-every", "none", "--json", "--runs-dir", runs]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def rate(job):
    return json.loads(job.communicate()[0].strip().splitlines()[-1])["samples_per_s"]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--model", default="cnn"); p.add_argument("--steps", type=int, default=150)
    p.add_argument("--rounds", type=int, default=3)
    o = p.parse_args()
    with tempfile.TemporaryDirectory() as work:
        data, n = plain_data(work), 0
        for devices, threads, goal in ((2, 1, 0.4), (2, 2, 0.4), (1, 2, 0.4), (1, 1, 0.9)):
            alone, shared = [], []
            for _ in range(o.rounds):
                alone.append(rate(start(o, data, f"{work}/runs{n}", devices, threads)))
                pair = [start(o, data, f"{work}/runs{n}-{i}", devices, threads) for i in (1, 2)]
                shared += [rate(job) for job in pair]
                n += 1
            ratio = [s / statistics.median(alone) for s in shared]
            print(f"{devices} devices x {threads} threads: alone {statistics.median(alone):8.0f} samples/s, two at once "
                  f"{statistics.median(shared):8.0f} each = {statistics.median(ratio):.2f} (worst {min(ratio):.2f}; goal {goal})")


main()
