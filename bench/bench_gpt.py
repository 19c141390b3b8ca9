#!/usr/bin/env python3
"""Training speed and memory of the language model beside PyTorch's and llm.c's, interleaved in one call.

Per preset, precision and number of threads: medians of tokens/s, the medians of the rounds' ratios, peak memory (the
process's share of its pages), and the fraction of oneDNN's best matrix product that training reaches.
--scaling instead: two devices against two independent pinned copies on half the batch each.
Usage: bench_gpt.py --torch PYTHON [--presets tiny,baby,gpt2] [--precisions 32,bf16-mixed] [--threads 1,2] [--rounds 5]
                    [--compile] [--llmc DIR] [--context N --batch N] [--unfused-attention] [--scaling] [--json]
"""
import argparse, array, json, os, random, re, statistics, subprocess, sys, tempfile, threading, time

HERE = os.path.dirname(os.path.abspath(__file__))
# layers, heads, width, context, vocabulary, batch, steps of a run
PRESETS = {"tiny": (4, 4, 128, 64, 128, 12, 200), "baby": (6, 6, 384, 256, 128, 8, 14), "gpt2": (12, 12, 768, 64, 50257, 4, 10)}
NAMES = ("layers", "heads", "width", "context", "vocabulary", "batch", "steps")


def setting(o, preset):
    s = dict(zip(NAMES, PRESETS[preset]), preset=preset)
    if o.context: s["context"] = o.context
    if o.batch: s["batch"] = o.batch
    if o.steps: s["steps"] = o.steps
    return s


def flops_per_token(s):
    """Matrix products, forward and backward; attention counts what a causal mask leaves."""
    weights = s["layers"] * 12 * s["width"] ** 2 + s["vocabulary"] * s["width"]
    return 6 * weights + 6 * s["layers"] * s["width"] * s["context"]


def write_tokens(path, vocabulary):
    draw = random.Random(1)
    with open(path, "wb") as f:
        array.array("H", (draw.randrange(vocabulary) for _ in range(500_000))).tofile(f)


# --- one run: a group of processes, its peak memory ---

def shared_out(pids):
    """Sum of the processes' proportional set sizes, bytes."""
    total = 0
    for pid in pids:
        try:
            with open(f"/proc/{pid}/smaps_rollup") as f:
                total += 1024 * int(re.search(r"^Pss:\s+(\d+)", f.read(), re.M).group(1))
        except (OSError, AttributeError):
            pass
    return total


def family(pid):
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as f:
            children = [int(c) for c in f.read().split()]
    except OSError:
        return []
    return [pid] + [p for c in children for p in family(c)]


def run(commands, env=None):
    """Runs the commands side by side; the first one's output and the peak memory of all."""
    processes = [subprocess.Popen(c, env=e, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
                 for c, e in zip(commands, env or [None] * len(commands))]
    outputs = [None] * len(processes)

    def wait(i): outputs[i] = processes[i].communicate()
    waiting = [threading.Thread(target=wait, args=(i,)) for i in range(len(processes))]
    for t in waiting: t.start()
    peak = 0
    while any(t.is_alive() for t in waiting):
        peak = max(peak, shared_out([p for q in processes for p in family(q.pid)]))
        time.sleep(0.3)
    for c, q, out in zip(commands, processes, outputs):
        if q.returncode: sys.exit(f"{' '.join(c)}: exit {q.returncode}\n{out[1][-2000:]}")
    return [out[0] for out in outputs], peak


def ours_command(o, s, data, runs, precision, devices, threads, cpu=None, batch=None):
    pin = ["taskset", "-c", str(cpu)] if cpu is not None else []
    return pin + [o.lockstep, "train", "gpt", "--data", data, "--preset", s["preset"], "--context", str(s["context"]),
                  "--vocabulary", str(s["vocabulary"]), "--batch-size", str(batch or s["batch"]), "--max-steps", str(s["steps"]),
                  "--devices", f"cpu:{devices}", "--threads-per-device", str(threads), "--precision", precision,
                  "--gradient-clip-val", "1", "--save-every", "none", "--validate-every", "none", "--json",
                  "--runs-dir", runs] + o.flags.split()


def ours_rate(text, s, batch=None):
    return 1e3 * (batch or s["batch"]) * s["context"] / json.loads(text.strip().splitlines()[-1])["step_ms"]["median"]


def ours(o, s, data, runs, precision, threads, devices=1):
    out, peak = run([ours_command(o, s, data, runs, precision, devices, threads)])
    return ours_rate(out[0], s), peak


def torch(o, s, data, precision, threads, compiled=False, world=1):
    commands, envs = [], []
    for r in range(world):
        env = {k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "OPENBLAS_CORETYPE")}
        env.update(OMP_NUM_THREADS=str(threads), OPENBLAS_CORETYPE="SkylakeX", MALLOC_MMAP_THRESHOLD_="4294967296",
                   MALLOC_TRIM_THRESHOLD_="4294967296", MALLOC_TOP_PAD_="268435456")
        if world > 1:
            env.update(RANK=str(r), LOCAL_RANK=str(r), WORLD_SIZE=str(world), MASTER_ADDR="127.0.0.1", MASTER_PORT="29533")
        command = ["taskset", "-c", str(r)] if world > 1 else []
        command += [o.torch, os.path.join(HERE, "torch_gpt.py"), "--data", data, "--precision", precision, "--threads", str(threads)]
        command += [word for n in NAMES for word in (f"--{n}", str(s[n]))]
        commands.append(command + ["--compile"] * compiled + ["--unfused-attention"] * o.unfused_attention)
        envs.append(env)
    out, peak = run(commands, envs)
    return json.loads(out[0].strip().splitlines()[-1])["tokens_per_s"], peak


def llmc(o, threads):
    """Its program has no flags: GPT-2 124M, batch 4, context 64."""
    env = dict(os.environ, OMP_NUM_THREADS=str(threads))
    process = subprocess.Popen(["stdbuf", "-oL", "./train_gpt2"], cwd=o.llmc, env=env, stdout=subprocess.PIPE, text=True)
    took = []
    for line in process.stdout:
        found = re.match(r"step \d+: train loss .*took ([0-9.]+) ms", line)
        if found: took.append(float(found.group(1)))
        if len(took) == 4: break
    process.kill()
    process.wait()
    return 4 * 64 / statistics.median(took[1:]) * 1e3


# --- what is compared ---

def compare(o, s, data, work, precision, threads, peak_rate):
    rates, peaks = {}, {}

    def note(name, result):
        rate, memory = result if isinstance(result, tuple) else (result, 0)
        rates.setdefault(name, []).append(rate)
        peaks.setdefault(name, []).append(memory)
    for i in range(o.rounds):
        note("lockstep", ours(o, s, data, os.path.join(work, f"{s['preset']}-{precision}-{threads}-{i}"), precision, threads))
        if o.torch: note("torch", torch(o, s, data, precision, threads))
        if o.torch and o.compile: note("torch_compiled", torch(o, s, data, precision, threads, True))
        if o.llmc and s["preset"] == "gpt2" and precision == "32": note("llmc", llmc(o, threads))
    peak = peak_rate["f32" if precision == "32" else "bf16"]
    reached = 1e-9 * statistics.median(rates["lockstep"]) * flops_per_token(s)
    return {"preset": s["preset"], "precision": precision, "threads": threads, "batch": s["batch"], "context": s["context"],
            "tokens_per_s": {k: statistics.median(v) for k, v in rates.items()},
            "ratio": {k: statistics.median(a / b for a, b in zip(rates["lockstep"], v)) for k, v in rates.items() if k != "lockstep"},
            "peak_bytes": {k: max(v) for k, v in peaks.items() if max(v)},
            "gflops": reached, "matmul_gflops": peak, "fraction": reached / peak if peak else 0}


def scaling(o, s, data, work, precision):
    two, copies, memory, ddp = [], [], [], []
    for i in range(o.rounds):
        runs = os.path.join(work, f"{s['preset']}-{precision}-{i}")
        rate, peak = ours(o, s, data, runs, precision, 1, 2)
        two.append(rate)
        half = s["batch"] // 2
        out, _ = run([ours_command(o, s, data, f"{runs}-copy{c}", precision, 1, 1, c, half) for c in (0, 1)])
        copies.append(sum(ours_rate(text, s, half) for text in out))
        memory.append(peak)
        if o.torch: ddp.append(torch(o, s, data, precision, 1, world=2))
    result = {"preset": s["preset"], "precision": precision, "tokens_per_s": statistics.median(two),
              "limit": statistics.median(copies), "two_over_limit": statistics.median(a / b for a, b in zip(two, copies)),
              "peak_bytes": max(memory)}
    if ddp:
        result.update(ddp_tokens_per_s=statistics.median(d[0] for d in ddp), ddp_peak_bytes=max(d[1] for d in ddp))
    return result


def show(r):
    if "limit" in r:
        print(f"{r['preset']:5} {r['precision']:10} two devices {r['tokens_per_s']:9.0f} tokens/s, limit {r['limit']:9.0f}: "
              f"{r['two_over_limit']:.3f}   memory {r['peak_bytes'] / 2**20:.0f} MiB", end="")
        if "ddp_tokens_per_s" in r:
            print(f", DDP {r['ddp_tokens_per_s']:.0f} tokens/s, {r['ddp_peak_bytes'] / 2**20:.0f} MiB", end="")
        print()
        return
    print(f"{r['preset']:5} {r['precision']:10} {r['threads']} threads: {r['gflops']:.0f} of {r['matmul_gflops']:.0f} GFLOP/s "
          f"({100 * r['fraction']:.0f} %)")
    for name, rate in r["tokens_per_s"].items():
        ratio = f"   {r['ratio'][name]:6.2f} x" if name in r["ratio"] else " " * 11
        memory = f"   {r['peak_bytes'][name] / 2**20:7.0f} MiB" if name in r["peak_bytes"] else ""
        print(f"      {name:15} {rate:10.0f} tokens/s{ratio}{memory}")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--torch", metavar="PYTHON"); p.add_argument("--presets", default="tiny,baby,gpt2")
    p.add_argument("--precisions", default="32,bf16-mixed"); p.add_argument("--threads", default="1,2")
    p.add_argument("--rounds", type=int, default=5); p.add_argument("--compile", action="store_true")
    p.add_argument("--llmc", metavar="DIR", help="a checkout of llm.c with train_gpt2 built and its data in place")
    for name in ("context", "batch", "steps"): p.add_argument(f"--{name}", type=int)
    p.add_argument("--unfused-attention", action="store_true"); p.add_argument("--scaling", action="store_true")
    p.add_argument("--flags", default="", help="more flags for lockstep"); p.add_argument("--json", action="store_true")
    p.add_argument("--lockstep", default=os.path.join(HERE, "../build/release/bin/lockstep"))
    o = p.parse_args()
    results = []
    with tempfile.TemporaryDirectory() as work:
        peak = os.path.join(work, "peak_matmul")
        subprocess.run(["cc", "-O2", "-fopenmp", os.path.join(HERE, "peak_matmul.c"), "-o", peak, "-ldnnl"], check=True)
        for preset in o.presets.split(","):
            s = setting(o, preset)
            data = os.path.join(work, f"{preset}.bin")
            write_tokens(data, s["vocabulary"])
            for precision in o.precisions.split(","):
                if o.scaling:
                    results.append(scaling(o, s, data, work, precision))
                    if not o.json: show(results[-1])
                    continue
                for threads in map(int, o.threads.split(",")):
                    rate = json.loads(subprocess.run([peak, str(threads)], check=True, stdout=subprocess.PIPE, text=True).stdout)
                    results.append(compare(o, s, data, work, precision, threads, rate))
                    if not o.json: show(results[-1])
    if o.json: print(json.dumps({"schema": "lockstep.bench/1", "results": results}))


main()
