"""PyTorch as its tutorials have it: DistributedDataParallel over gloo, the process group from the environment."""
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
assert rank == int(os.environ["LOCAL_RANK"])
assert torch.get_num_threads() == int(os.environ["OMP_NUM_THREADS"])

torch.manual_seed(rank)  # DistributedDataParallel starts all ranks from rank 0's parameters
model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1)))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
x = torch.randn(64, 8, generator=torch.Generator().manual_seed(1))
y = x.sum(1, keepdim=True)
losses = []
for step in range(50):
    loss = torch.nn.functional.mse_loss(model(x[rank::size]), y[rank::size])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())

digest = torch.stack([p.detach().sum() for p in model.parameters()]).sum()
both = [torch.zeros(()) for _ in range(size)]
dist.all_gather(both, digest)
assert all(torch.equal(b, both[0]) for b in both), both
assert losses[-1] < losses[0] / 4, losses
dist.barrier()
dist.destroy_process_group()
print(f"peer: trained on {size}")
