"""Lightning's Fabric with devices="auto"."""
import os

import torch
from lightning.fabric import Fabric

fabric = Fabric(devices="auto")
fabric.launch()
assert fabric.world_size == int(os.environ["WORLD_SIZE"]), fabric.world_size
assert fabric.global_rank == int(os.environ["RANK"])

fabric.seed_everything(7)
model = torch.nn.Linear(8, 1)
model, optimizer = fabric.setup(model, torch.optim.SGD(model.parameters(), lr=0.05))
for step in range(5):
    loss = model(torch.full((4, 8), float(fabric.global_rank + 1))).square().mean()
    fabric.backward(loss)
    optimizer.step()
    optimizer.zero_grad()
sums = fabric.all_gather(sum(p.detach().sum() for p in model.parameters())).reshape(-1)
assert torch.equal(sums, sums[0].expand_as(sums)), sums
if fabric.is_global_zero:
    print(f"peer: trained on {fabric.world_size}")
