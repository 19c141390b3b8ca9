#!/usr/bin/env python3
"""Peer: the model of `lockstep train gpt` in plain PyTorch; DistributedDataParallel over Gloo when WORLD_SIZE > 1.

Prints one JSON line: tokens/s over all ranks from the median step, median ms a step, losses first and last.
Usage: torch_gpt.py --data TOKENS.bin [--layers 4] [--heads 4] [--width 128] [--context 64] [--vocabulary 128] [--batch 12]
                    [--steps 50] [--threads 1] [--precision 32|bf16-mixed] [--compile] [--unfused-attention]
                    [--device cpu|cuda]
"""
import argparse, json, math, os, statistics, time, warnings
warnings.filterwarnings("ignore")
import torch, torch.nn as nn, torch.nn.functional as F
import torch.distributed as dist


class Block(nn.Module):
    def __init__(self, width, heads, fused):
        super().__init__()
        self.heads, self.fused = heads, fused
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.projection = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.fc, self.out = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def attention(self, q, k, v):
        if self.fused:
            return F.scaled_dot_product_attention(q, k, v, is_causal=True)
        scores = (q @ k.transpose(-2, -1)) / math.sqrt(q.shape[-1])
        later = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        return scores.masked_fill(later, float("-inf")).softmax(-1) @ v

    def forward(self, x):
        batch, tokens, width = x.shape
        q, k, v = (t.view(batch, tokens, self.heads, -1).transpose(1, 2) for t in self.qkv(self.norm1(x)).split(width, 2))
        x = x + self.projection(self.attention(q, k, v).transpose(1, 2).reshape(batch, tokens, width))
        return x + self.out(F.gelu(self.fc(self.norm2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self, o):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(o.vocabulary, o.width), nn.Embedding(o.context, o.width)
        self.blocks = nn.ModuleList(Block(o.width, o.heads, not o.unfused_attention) for _ in range(o.layers))
        self.norm = nn.LayerNorm(o.width)
        self.head = nn.Linear(o.width, o.vocabulary, bias=False)
        self.head.weight = self.tokens.weight
        for p in self.parameters():
            if p.dim() > 1: nn.init.normal_(p, 0, 0.02)

    def forward(self, x, y):
        h = self.tokens(x) + self.positions.weight[:x.shape[1]]
        for block in self.blocks: h = block(h)
        scores = self.head(self.norm(h))
        return F.cross_entropy(scores.view(-1, scores.shape[-1]), y.view(-1))


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--data", required=True)
    for name, value in (("layers", 4), ("heads", 4), ("width", 128), ("context", 64), ("vocabulary", 128), ("batch", 12),
                        ("steps", 50), ("threads", 1)):
        p.add_argument(f"--{name}", type=int, default=value)
    p.add_argument("--precision", default="32"); p.add_argument("--compile", action="store_true")
    p.add_argument("--unfused-attention", action="store_true"); p.add_argument("--device", default="cpu")
    o = p.parse_args()
    torch.manual_seed(1); torch.set_num_threads(o.threads); torch.set_flush_denormal(True)
    world = int(os.environ.get("WORLD_SIZE", 1)); rank = int(os.environ.get("RANK", 0))
    if world > 1: dist.init_process_group("gloo")
    with open(o.data, "rb") as f: data = torch.frombuffer(bytearray(f.read()), dtype=torch.uint16).long()
    gpu = o.device == "cuda"
    if gpu: torch.set_float32_matmul_precision("high")
    net, batch = Gpt(o).to(o.device), o.batch // world
    if o.compile: net = torch.compile(net)
    if world > 1: net = nn.parallel.DistributedDataParallel(net, gradient_as_bucket_view=True)
    settings = dict(lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1)
    try: optimizer = torch.optim.AdamW(net.parameters(), fused=True, **settings)
    except (TypeError, RuntimeError): optimizer = torch.optim.AdamW(net.parameters(), **settings) # before 2.4
    draw = torch.Generator().manual_seed(1000 + rank)
    times, losses = [], []
    for _ in range(o.steps):
        at = torch.randint(len(data) - o.context - 1, (batch,), generator=draw)
        x = torch.stack([data[i:i + o.context] for i in at])
        y = torch.stack([data[i + 1:i + 1 + o.context] for i in at])
        begin = time.perf_counter()
        if gpu: x, y = x.pin_memory().to(o.device, non_blocking=True), y.pin_memory().to(o.device, non_blocking=True)
        with torch.autocast(o.device, dtype=torch.bfloat16, enabled=o.precision != "32"): loss = net(x, y)
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step(); optimizer.zero_grad(set_to_none=True)
        losses.append(loss.item()) # waits for the device
        times.append(time.perf_counter() - begin)
    median = statistics.median(times[min(3, len(times) // 2):])
    if rank == 0:
        print(json.dumps({"tokens_per_s": world * batch * o.context / median, "step_ms": 1e3 * median, "first_loss": losses[0],
                          "last_loss": losses[-1],
                          **({"allocated_mib": torch.cuda.max_memory_allocated() >> 20} if gpu else {})}))
    if world > 1: dist.destroy_process_group()


main()
