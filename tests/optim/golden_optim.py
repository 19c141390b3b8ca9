"""Writes golden_optim.h: what PyTorch's optimizers and schedulers make of a small vector.

    /usr/bin/python3 golden_optim.py > golden_optim.h

Made with torch 1.13.1. Gradients are small integers over 64 and parameters begin as such, so both
sides begin with the same bits.
"""
import warnings

import torch

warnings.filterwarnings("ignore")
N, STEPS = 7, 10


def start():
    return torch.tensor([((37 * i + 11) % 64 - 32) / 64 for i in range(N)])


def gradient(step):
    return torch.tensor([((29 * i + 17 * step * step + 5) % 128 - 64) / 64 for i in range(N)])


def optimize(make):
    p = torch.nn.Parameter(start())
    optimizer = make([p])
    rows = []
    for step in range(STEPS):
        p.grad = gradient(step)
        optimizer.step()
        rows.append(p.detach().tolist())
    return rows


def rates(make, steps):
    p = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([p], lr=0.5)
    scheduler = make(optimizer)
    out = []
    for _ in range(steps):
        out.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return out


def show_rows(name, rows):
    print(f"static const float {name}[GOLDEN_STEPS][GOLDEN_COUNT] = {{")
    for row in rows:
        print("    { " + ", ".join(f"{float(x):.9g}" + ("" if "." in f"{x:.9g}" or "e" in f"{x:.9g}" else ".0") + "F" for x in row) + " },")
    print("};")


def show_rates(name, values):
    print(f"static const double {name}[GOLDEN_RATES] = {{")
    for v in values:
        print(f"    {v:.17g},")
    print("};")


def warm(after, w, **options):
    def make(optimizer):
        s = torch.optim.lr_scheduler
        first = s.LinearLR(optimizer, start_factor=1 / w, end_factor=1, total_iters=w - 1)
        return s.SequentialLR(optimizer, [first, after(optimizer, **options)], milestones=[w])
    return make


sgd, adamw, s = torch.optim.SGD, torch.optim.AdamW, torch.optim.lr_scheduler
print("/* Written by golden_optim.py with torch " + torch.__version__ + ". */")
print("/* clang-format off */")
print(f"enum {{ GOLDEN_COUNT = {N}, GOLDEN_STEPS = {STEPS}, GOLDEN_RATES = 20 }};")
show_rows("golden_sgd_plain", optimize(lambda p: sgd(p, lr=0.1)))
show_rows("golden_sgd_decay", optimize(lambda p: sgd(p, lr=0.1, weight_decay=0.05)))
show_rows("golden_sgd_momentum", optimize(lambda p: sgd(p, lr=0.05, momentum=0.9, weight_decay=0.01)))
show_rows("golden_nesterov", optimize(lambda p: sgd(p, lr=0.05, momentum=0.9, weight_decay=0.01, nesterov=True)))
show_rows("golden_adamw", optimize(lambda p: adamw(p, lr=0.01, weight_decay=0.0)))
show_rows("golden_adamw_decay", optimize(lambda p: adamw(p, lr=0.01, betas=(0.8, 0.95), weight_decay=0.1)))
show_rates("golden_linear", rates(lambda o: s.LinearLR(o, start_factor=1, end_factor=0, total_iters=20), 20))
show_rates("golden_cosine", rates(lambda o: s.CosineAnnealingLR(o, T_max=20), 20))
show_rates("golden_step", rates(lambda o: s.StepLR(o, step_size=6, gamma=0.3), 20))
show_rates("golden_warm_cosine", rates(warm(s.CosineAnnealingLR, 5, T_max=15), 20))
show_rates("golden_warm_linear", rates(warm(s.LinearLR, 4, start_factor=1, end_factor=0, total_iters=16), 20))
