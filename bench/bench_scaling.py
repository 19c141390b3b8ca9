#!/usr/bin/env python3
"""Two devices against their limit: two independent one-device copies side by side, each on half the batch.

Runs, interleaved, ROUNDS times: one device; two devices on the same global batch; two pinned copies on
half the batch each; and, with --torch PYTHON, PyTorch alone and with DistributedDataParallel over Gloo.
Prints medians of samples/s and the ratios.
Usage: bench_scaling.py [--model cnn] [--batch 256] [--steps 150] [--rounds 5] [--torch PYTHON] [--json]
"""
import argparse, json, os, statistics, subprocess, sys, tempfile
from plain_data import plain_data

HERE = os.path.dirname(os.path.abspath(__file__))


def ours(o, data, runs, devices, batch, cpu=None):
    pin = ["taskset", "-c", str(cpu)] if cpu is not None else []
    command = pin + [o.lockstep, "train", "image", "--data", data, "--model", o.model, "--devices", f"cpu:{devices}",
                     "--threads-per-device", "1", "--batch-size", str(batch), "--max-steps", str(o.steps), "--seed", "1",
                     "--save-every", "none", "--validate-every", "none", "--json", "--runs-dir", runs]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def rate(process):
    out = process.communicate()[0]
    if process.returncode:
        sys.exit(f"{process.args}: exit {process.returncode}")
    return json.loads(out.strip().splitlines()[-1])["samples_per_s"]


def torch(o, world):
    ranks = []
    for r in range(world):
        env = dict(os.environ, RANK=str(r), LOCAL_RANK=str(r), WORLD_SIZE=str(world), MASTER_ADDR="127.0.0.1",
                   MASTER_PORT="29531", OMP_NUM_THREADS="1", MALLOC_MMAP_THRESHOLD_="4294967296",
                   MALLOC_TRIM_THRESHOLD_="4294967296", MALLOC_TOP_PAD_="268435456")
        if world == 1:
            for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
                env.pop(name)
        command = ["taskset", "-c", str(r), o.torch, os.path.join(HERE, "torch_image.py"), "--model", o.model,
                   "--batch", str(o.batch), "--steps", str(o.steps), "--threads", "1"]
        ranks.append(subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True))
    outs = [p.communicate()[0] for p in ranks]
    return json.loads(outs[0].strip().splitlines()[-1])["samples_per_s"]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--model", default="cnn"); p.add_argument("--batch", type=int, default=256)
    p.add_argument("--steps", type=int, default=150); p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--torch"); p.add_argument("--json", action="store_true")
    p.add_argument("--lockstep", default=os.path.join(HERE, "../build/release/bin/lockstep"))
    o = p.parse_args()
    rates = {"one": [], "two": [], "copies": [], "torch_one": [], "torch_two": []}
    with tempfile.TemporaryDirectory() as work:
        data = plain_data(work)
        for i in range(o.rounds):
            runs = os.path.join(work, f"runs{i}")
            rates["one"].append(rate(ours(o, data, runs, 1, o.batch)))
            rates["two"].append(rate(ours(o, data, runs, 2, o.batch)))
            pair = [ours(o, data, os.path.join(work, f"copy{i}-{c}"), 1, o.batch // 2, c) for c in (0, 1)]
            rates["copies"].append(sum(rate(c) for c in pair))
            if o.torch:
                rates["torch_one"].append(torch(o, 1))
                rates["torch_two"].append(torch(o, 2))
    median = {k: statistics.median(v) for k, v in rates.items() if v}
    paired = statistics.median(t / c for t, c in zip(rates["two"], rates["copies"]))
    result = {"schema": "lockstep.bench/1", "model": o.model, "batch": o.batch, "samples_per_s": median,
              "two_over_limit": paired, "two_over_one": median["two"] / median["one"]}
    if o.torch:
        result["one_over_torch"] = statistics.median(a / b for a, b in zip(rates["one"], rates["torch_one"]))
        result["torch_two_over_one"] = median["torch_two"] / median["torch_one"]
    if o.json:
        print(json.dumps(result))
        return
    for name, text in (("one", "one device"), ("two", "two devices, same batch"), ("copies", "limit: two copies, half the batch each"),
                       ("torch_one", "PyTorch, one process"), ("torch_two", "PyTorch DDP over Gloo, two processes")):
        if name in median:
            print(f"{text:42} {median[name]:10.0f} samples/s   {min(rates[name]):.0f}..{max(rates[name]):.0f}")
    print(f"two devices / limit  {paired:.3f}      two / one  {result['two_over_one']:.3f}")
    if o.torch:
        print(f"one device / PyTorch {result['one_over_torch']:.2f}       PyTorch two / one {result['torch_two_over_one']:.3f}")


main()
