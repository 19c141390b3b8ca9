#!/usr/bin/env python3
"""Writes tests/recipe/golden/gpt: a small GPT-2 with weights in Hugging Face's format, its scores for two
sequences, and the losses of its first 20 steps of training, all by plain PyTorch (2 groups of AdamW as
everybody has them: matrices decay, biases and norms do not).
Run with Debian's python3-torch; the files are checked in, so tests do not need it.
Usage: make_golden_gpt.py BUILD   (a build folder: its prog_sample_order says in which order samples come)"""
import json, math, os, struct, subprocess, sys
import torch
import torch.nn as nn
import torch.nn.functional as F

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "golden", "gpt")
LAYERS, HEADS, WIDTH, CONTEXT, VOCABULARY = 2, 2, 16, 12, 40
WINDOWS, BATCH, STEPS, SEED = 37, 8, 20, 3


class Conv1D(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight = nn.Parameter(0.2 * torch.randn(inputs, outputs))
        self.bias = nn.Parameter(0.1 * torch.randn(outputs))

    def forward(self, x):
        return x @ self.weight + self.bias


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.c_attn, self.c_proj = Conv1D(WIDTH, 3 * WIDTH), Conv1D(WIDTH, WIDTH)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (y.view(b, t, HEADS, c // HEADS).transpose(1, 2) for y in self.c_attn(x).split(c, 2))
        a = q @ k.transpose(-2, -1) / math.sqrt(c // HEADS)
        mask = torch.ones(t, t, dtype=torch.bool).tril()
        y = a.masked_fill(~mask, float("-inf")).softmax(-1) @ v
        return self.c_proj(y.transpose(1, 2).reshape(b, t, c))


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.c_fc, self.c_proj = Conv1D(WIDTH, 4 * WIDTH), Conv1D(4 * WIDTH, WIDTH)

    def forward(self, x):
        return self.c_proj(F.gelu(self.c_fc(x), approximate="tanh"))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1, self.attn, self.ln_2, self.mlp = nn.LayerNorm(WIDTH), Attention(), nn.LayerNorm(WIDTH), MLP()

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.h, self.ln_f = nn.ModuleList(Block() for _ in range(LAYERS)), nn.LayerNorm(WIDTH)
        with torch.no_grad():
            self.wte.weight.mul_(0.5)
            self.wpe.weight.mul_(0.3)
            for name, p in self.named_parameters():
                if "ln_" in name:
                    p.add_(0.1 * torch.randn_like(p))

    def forward(self, x):
        y = self.wte(x) + self.wpe(torch.arange(x.shape[1]))
        for block in self.h:
            y = block(y)
        return self.ln_f(y) @ self.wte.weight.T


def save(path, tensors):
    header, blobs, at = {"__metadata__": {"format": "pt"}}, [], 0
    for name, tensor in sorted(tensors.items()):
        blob = tensor.detach().contiguous().numpy().tobytes()
        kind = "F32" if tensor.dtype == torch.float32 else "U8"
        header[name] = {"dtype": kind, "shape": list(tensor.shape), "data_offsets": [at, at + len(blob)]}
        blobs.append(blob)
        at += len(blob)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + b"".join(blobs))


def windows(tokens):
    data = torch.tensor(tokens).long()
    at = range(0, WINDOWS * CONTEXT, CONTEXT)
    return torch.stack([data[i:i + CONTEXT] for i in at]), torch.stack([data[i + 1:i + 1 + CONTEXT] for i in at])


def train(model, x, y, order):
    matrices = [p for p in model.parameters() if p.dim() > 1]
    others = [p for p in model.parameters() if p.dim() == 1]
    optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}],
                                  lr=3e-3, betas=(0.9, 0.95))
    losses = []
    for step in range(STEPS):
        samples = order[step * BATCH:(step + 1) * BATCH]
        loss = F.cross_entropy(model(x[samples]).view(-1, VOCABULARY), y[samples].view(-1))
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss))
    return losses


def main():
    build = sys.argv[1]
    torch.manual_seed(1)
    torch.set_num_threads(1)
    os.makedirs(FOLDER, exist_ok=True)
    tokens = torch.randint(0, VOCABULARY, (WINDOWS * CONTEXT + 1,)).tolist()
    tokens = [(t * t // 7) % VOCABULARY for t in tokens]  # some are likelier
    with open(os.path.join(FOLDER, "tokens.bin"), "wb") as file:
        file.write(struct.pack(f"<{len(tokens)}H", *tokens))
    model = GPT()
    tensors = dict(model.named_parameters())
    for i in range(LAYERS):  # as in the original file
        tensors[f"h.{i}.attn.bias"] = torch.ones(1, 1, CONTEXT, CONTEXT).tril().byte()
    tensors["lm_head.weight"] = model.wte.weight  # as in a saved one
    save(os.path.join(FOLDER, "model.safetensors"), tensors)
    config = {"model_type": "gpt2", "n_layer": LAYERS, "n_head": HEADS, "n_embd": WIDTH, "n_positions": CONTEXT,
              "vocab_size": VOCABULARY, "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5}
    json.dump(config, open(os.path.join(FOLDER, "config.json"), "w"), indent=2)
    x, y = windows(tokens)
    program = [os.path.join(build, "tests", "prog_sample_order"), str(SEED), str(WINDOWS), str(BATCH * STEPS)]
    order = [int(line) for line in subprocess.run(program, capture_output=True, text=True, check=True).stdout.split()]
    with torch.no_grad():
        scores = model(x[:2])
    save(os.path.join(FOLDER, "scores.safetensors"), {"scores": scores})
    json.dump({"seed": SEED, "losses": train(model, x, y, order)}, open(os.path.join(FOLDER, "losses.json"), "w"), indent=1)


main()
