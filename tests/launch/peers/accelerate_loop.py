"""Hugging Face's Accelerate: the training loop of its quick tour."""
import os

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset

accelerator = Accelerator()
assert accelerator.num_processes == int(os.environ["WORLD_SIZE"]), accelerator.num_processes
assert accelerator.process_index == int(os.environ["RANK"])

torch.manual_seed(0)
x = torch.randn(64, 8)
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
model, optimizer, data = accelerator.prepare(model, optimizer, DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=8))
for inputs, targets in data:
    loss = torch.nn.functional.mse_loss(model(inputs), targets)
    accelerator.backward(loss)
    optimizer.step()
    optimizer.zero_grad()
assert len(data) == -(-8 // accelerator.num_processes), len(data)
sums = accelerator.gather(sum(p.detach().sum() for p in model.parameters()).reshape(1))
assert torch.equal(sums, sums[0].expand_as(sums)), sums
if accelerator.is_main_process:
    print(f"peer: trained on {accelerator.num_processes}")
accelerator.end_training()
