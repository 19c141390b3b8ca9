#!/usr/bin/env python3
"""Training speed on one device beside PyTorch's: same model, batch and threads, A/B/A/B in one call.

Prints, per model, the median samples/s of both and the median of the rounds' ratios; the two runs of a round follow
each other.
Usage: bench_train.py --torch PYTHON [--models cnn,resnet,mlp] [--batch 256] [--threads 1] [--steps 60] [--rounds 5] [--json]
"""
import argparse, json, os, statistics, subprocess, sys, tempfile
from plain_data import plain_data

HERE = os.path.dirname(os.path.abspath(__file__))


def last_line(command, env=None):
    done = subprocess.run(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(f"{command}: exit {done.returncode}\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def ours(o, model, data, runs):
    return last_line([o.lockstep, "train", "image", "--data", data, "--model", model, "--devices", "cpu:1",
                      "--threads-per-device", str(o.threads), "--batch-size", str(o.batch), "--max-steps", str(o.steps),
                      "--seed", "1", "--save-every", "none", "--validate-every", "none", "--json", "--runs-dir", runs])


def peer(o, model, layout):
    env = {k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "OPENBLAS_CORETYPE")}
    env.update(OMP_NUM_THREADS=str(o.threads), OPENBLAS_CORETYPE="SkylakeX", MALLOC_MMAP_THRESHOLD_="4294967296",
               MALLOC_TRIM_THRESHOLD_="4294967296", MALLOC_TOP_PAD_="268435456")
    return last_line([o.torch, os.path.join(HERE, "torch_image.py"), "--model", model, "--batch", str(o.batch),
                      "--steps", str(o.steps), "--threads", str(o.threads)] + layout, env)


def best_layout(o, model):
    layouts = [[], ["--channels-last"]] * 2 # twice: one run may be disturbed
    trials = [(peer(o, model, layout)["samples_per_s"], layout) for layout in layouts]
    return max(trials)[1]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--torch", required=True, metavar="PYTHON", help="a Python that has PyTorch")
    p.add_argument("--models", default="cnn,resnet,mlp"); p.add_argument("--batch", type=int, default=256)
    p.add_argument("--threads", type=int, default=1); p.add_argument("--steps", type=int, default=60)
    p.add_argument("--rounds", type=int, default=5); p.add_argument("--json", action="store_true")
    p.add_argument("--lockstep", default=os.path.join(HERE, "../build/release/bin/lockstep"))
    o = p.parse_args()
    results = []
    with tempfile.TemporaryDirectory() as work:
        data = plain_data(work)
        for model in o.models.split(","):
            rates, theirs, layout = [], [], best_layout(o, model)
            for i in range(o.rounds):
                rates.append(ours(o, model, data, os.path.join(work, f"{model}{i}"))["samples_per_s"])
                theirs.append(peer(o, model, layout))
            pairs = [a / b["samples_per_s"] for a, b in zip(rates, theirs)]
            results.append({"model": model, "lockstep": statistics.median(rates),
                            "torch": statistics.median(t["samples_per_s"] for t in theirs),
                            "ratio": statistics.median(pairs), "ratio_range": [min(pairs), max(pairs)],
                            "peer": " ".join([theirs[0]["peer"]] + layout)})
            if not o.json:
                r = results[-1]
                print(f"{model:7} batch {o.batch}, {o.threads} thread(s): lockstep {r['lockstep']:9.0f} samples/s   "
                      f"{r['peer']} {r['torch']:9.0f}   ratio {r['ratio']:.2f} "
                      f"({min(pairs):.2f}..{max(pairs):.2f})", flush=True)
    if o.json:
        print(json.dumps({"schema": "lockstep.bench/1", "batch": o.batch, "threads": o.threads, "models": results}))


main()
