#!/usr/bin/env python3
"""Peer: the models of `lockstep train image` in plain PyTorch; DistributedDataParallel over Gloo when WORLD_SIZE > 1.

Prints one JSON line: samples/s over all ranks from the median step, median ms a step, last loss.
Usage: torch_image.py [--model mlp|cnn|resnet] [--batch 256] [--steps 150] [--threads 1] [--channels-last] [--compile]
"""
import argparse, json, os, statistics, time, warnings
warnings.filterwarnings("ignore")
import torch, torch.nn as nn, torch.nn.functional as F
import torch.distributed as dist


class Block(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norm1, self.norm2 = nn.BatchNorm2d(outputs), nn.BatchNorm2d(outputs)
        self.shortcut = nn.Identity()
        if stride > 1:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        h = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.shortcut(x) + self.norm2(self.conv2(h)))


def model(name):
    if name == "mlp":
        return nn.Sequential(nn.Flatten(), nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 10))
    if name == "cnn":
        return nn.Sequential(nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(),
                             nn.MaxPool2d(2), nn.Flatten(), nn.Linear(64 * 49, 128), nn.ReLU(), nn.Dropout(0.3), nn.Linear(128, 10))
    return nn.Sequential(nn.Conv2d(1, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU(), Block(16, 16, 1), Block(16, 32, 2),
                         Block(32, 64, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--model", default="cnn"); p.add_argument("--batch", type=int, default=256)
    p.add_argument("--steps", type=int, default=150); p.add_argument("--threads", type=int, default=1)
    p.add_argument("--channels-last", action="store_true"); p.add_argument("--compile", action="store_true")
    o = p.parse_args()
    torch.manual_seed(1); torch.set_num_threads(o.threads)
    world = int(os.environ.get("WORLD_SIZE", 1)); rank = int(os.environ.get("RANK", 0))
    if world > 1: dist.init_process_group("gloo")
    net, batch = model(o.model), o.batch // world
    form = torch.channels_last if o.channels_last else torch.contiguous_format
    net = net.to(memory_format=form)
    if world > 1: net = nn.parallel.DistributedDataParallel(net, gradient_as_bucket_view=True)
    if o.compile: net = torch.compile(net)
    try: optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, fused=True)
    except (TypeError, RuntimeError): optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3) # before 2.4
    # Batches lie ready in memory: the peer pays for no loader.
    images = [torch.randn(batch, 1, 28, 28).to(memory_format=form) for _ in range(8)]
    labels = [torch.randint(0, 10, (batch,)) for _ in range(8)]
    times = []
    for i in range(o.steps):
        begin = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        loss = F.cross_entropy(net(images[i % 8]), labels[i % 8])
        loss.backward()
        optimizer.step()
        times.append(time.perf_counter() - begin)
    step = statistics.median(times[min(10, o.steps // 2):])
    if rank == 0:
        print(json.dumps({"peer": "torch " + torch.__version__, "model": o.model, "world": world, "batch": o.batch,
                          "samples_per_s": o.batch / step, "step_ms": step * 1e3, "loss": float(loss)}))
    if world > 1: dist.destroy_process_group()


main()
