#!/usr/bin/env python3
"""Peer: f32 sum all-reduce over Gloo. RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT say who joins whom.
For each size given prints the bytes and rank 0's median in microseconds; every round writes its own buffer first."""
import statistics
import sys
import time

import torch
import torch.distributed as dist

WARMUP = 3
dist.init_process_group("gloo")
torch.set_num_threads(1)
for nbytes in map(int, sys.argv[1:]):
    x = torch.zeros(nbytes // 4)
    rounds = 9 if nbytes > 4 << 20 else 60
    seconds = []
    for i in range(-WARMUP, rounds):
        x.fill_(float(i))
        dist.barrier()
        begin = time.perf_counter()
        dist.all_reduce(x)
        if i >= 0:
            seconds.append(time.perf_counter() - begin)
    if dist.get_rank() == 0:
        print(nbytes, f"{1e6 * statistics.median(seconds):.3f}", flush=True)
dist.destroy_process_group()
