"""Lightning's Trainer as it comes, devices="auto" being its default; with the word auto that is written out."""
import os
import sys
import warnings

import lightning as L
import torch
from torch.utils.data import DataLoader, TensorDataset

warnings.filterwarnings("ignore")


class Model(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 1)

    def training_step(self, batch, _):
        loss = torch.nn.functional.mse_loss(self.layer(batch[0]), batch[1])
        self.log("loss", loss, sync_dist=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.05)


x = torch.randn(64, 8, generator=torch.Generator().manual_seed(1))
data = DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=8)
size = int(os.environ["WORLD_SIZE"])
trainer = L.Trainer(max_epochs=2, logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
                    **({"devices": "auto"} if "auto" in sys.argv else {}))
trainer.fit(Model(), data)
assert trainer.world_size == size, (trainer.world_size, size)
assert trainer.global_rank == int(os.environ["RANK"])
assert trainer.global_step == 2 * -(-8 // size), trainer.global_step
if trainer.is_global_zero:
    print(f"peer: trained on {trainer.world_size}")
