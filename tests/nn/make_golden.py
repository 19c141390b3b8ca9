#!/usr/bin/env python3
"""Writes tests/nn/golden/*.safetensors: what PyTorch computes, in double precision, for operations on
odd shapes. Run with Debian's python3-torch; the files are checked in, so tests do not need it.

A file holds arrays: input.NAME, param.NAME, out.NAME, grad.NAME (of parameters and inputs) and
sum.NAME (running statistics); its metadata say which operation and with which options. The objective
is the sum of out.y * input.g, or of the losses."""
import json
import os
import struct
import zlib

import torch
import torch.nn.functional as F

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "golden")
TYPES = {torch.float32: "F32", torch.int32: "I32", torch.int64: "I64", torch.uint8: "U8"}


def save(name, arrays, **metadata):
    header = {"__metadata__": {k: str(v) for k, v in metadata.items()}}
    blobs, at = [], 0
    for key, value in sorted(arrays.items()):
        value = value.detach()
        value = value.float() if value.dtype == torch.float64 else value
        blob = value.contiguous().numpy().tobytes()
        header[key] = {"dtype": TYPES[value.dtype], "shape": list(value.shape), "data_offsets": [at, at + len(blob)]}
        blobs.append(blob)
        at += len(blob)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(os.path.join(FOLDER, name + ".safetensors"), "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + b"".join(blobs))


def normal(*shape, scale=1.0):
    """Values that f32 holds exactly, so that both sides start from the same numbers."""
    return (scale * torch.randn(shape)).float().double().requires_grad_()


def objective(arrays, y):
    """The sum of y * g; fills out.y, input.g and the gradients of all inputs and parameters."""
    g = normal(*y.shape).detach()
    (y * g).sum().backward()
    arrays.update({"out.y": y, "input.g": g})
    gradients(arrays)


def gradients(arrays):
    for key, value in list(arrays.items()):
        kind, name = key.split(".", 1)
        if kind in ("input", "param") and value.dtype == torch.float64 and value.grad is not None:
            arrays["grad." + name] = value.grad


def linear(name, batch, inputs, features):
    x, w, b = normal(batch, inputs), normal(features, inputs), normal(features)
    arrays = {"input.x": x, "param.layer.weight": w, "param.layer.bias": b}
    objective(arrays, F.linear(x, w, b))
    save(name, arrays, op="linear", features=features)


def conv(name, batch, channels, height, width, out, kernel, stride=1, padding=0, bias=True):
    x, w = normal(batch, channels, height, width), normal(out, channels, kernel, kernel)
    arrays = {"input.x": x, "param.layer.weight": w}
    if bias:
        arrays["param.layer.bias"] = normal(out)
    objective(arrays, F.conv2d(x, w, arrays.get("param.layer.bias"), stride, padding))
    save(name, arrays, op="conv2d", channels=out, kernel=kernel, stride=stride, padding=padding, bias=int(bias))


def pool(name, op, batch, channels, height, width, size=0, ties=False):
    x = normal(batch, channels, height, width)
    if ties:
        x = x.detach().round().requires_grad_()
    arrays = {"input.x": x}
    forward = {"max_pool2d": lambda: F.max_pool2d(x, size), "avg_pool2d": lambda: F.avg_pool2d(x, size),
               "global_avg_pool2d": lambda: x.mean((2, 3))}[op]
    objective(arrays, forward())
    save(name, arrays, op=op, size=size)


def normalize(x, w, b, group, sums):
    """Batch norm by groups of consecutive samples; sums: name -> running sum of statistics."""
    parts = []
    for part in x.split(group):
        mean, variance = torch.zeros_like(w), torch.ones_like(w)
        n = part.numel() // part.shape[1]
        if n > 1:
            parts.append(F.batch_norm(part, mean, variance, w, b, True, 1.0, 1e-5))
        else:  # PyTorch refuses a single value
            mean, variance = part.detach().reshape(-1), torch.zeros_like(w)
            parts.append((part - part) * w.reshape(1, -1) + b.reshape(1, -1))
        sums["mean"] += len(part) * mean.detach()
        sums["var"] += len(part) * variance.detach()
    return torch.cat(parts)


def batch_norm(name, group, *shape):
    x, w, b = normal(*shape), normal(shape[1]), normal(shape[1])
    x = (x.detach() * 2 + 3).float().double().requires_grad_()
    arrays = {"input.x": x, "param.layer.weight": w, "param.layer.bias": b}
    sums = {"mean": torch.zeros(shape[1]).double(), "var": torch.zeros(shape[1]).double()}
    y = normalize(x, w, b, group, sums)
    arrays["sum.layer.running_mean"], arrays["sum.layer.running_var"] = sums["mean"], sums["var"]
    objective(arrays, y)
    save(name, arrays, op="batch_norm", group=group)


def batch_norm_inference(name, *shape):
    x, w, b, m = normal(*shape), normal(shape[1]), normal(shape[1]), normal(shape[1]).detach()
    v = (normal(shape[1]).detach().abs() + 0.1).float().double()
    y = F.batch_norm(x, m, v, w, b, False, 0.1, 1e-5)
    save(name, {"input.x": x, "param.layer.weight": w, "param.layer.bias": b, "param.layer.running_mean": m,
                "param.layer.running_var": v, "out.y": y}, op="batch_norm", stage="predict")


def cross_entropy(name, kind, scale, classes, *shape):
    scores = normal(*shape, classes, scale=scale)
    labels = torch.randint(0, classes, shape).to(kind)
    if kind != torch.uint8:
        labels.view(-1)[1::3] = -100
    flat = scores.reshape(-1, classes)
    losses = F.cross_entropy(flat, labels.reshape(-1).long(), reduction="none").reshape(shape)
    correct = (scores.argmax(-1) == labels).double()
    weights = (labels.long() != -100).double()
    losses.sum().backward()
    arrays = {"input.x": scores, "input.label": labels, "out.loss": losses, "out.accuracy": correct,
              "out.weights": weights, "grad.x": scores.grad}
    save(name, arrays, op="cross_entropy")


def residual_block(name, batch, channels, height, width, out, group, classes):
    """Two convolutions with norms, a strided shortcut, pool, head, loss: how layers work together."""
    x = normal(batch, channels, height, width)
    p = {}

    def conv_norm(x, key, inputs, kernel, stride, padding):
        p[key + ".weight"] = normal(out, inputs, kernel, kernel, scale=0.3)
        p[key + "_norm.weight"], p[key + "_norm.bias"] = normal(out), normal(out)
        sums = {"mean": torch.zeros(out).double(), "var": torch.zeros(out).double()}
        return normalize(F.conv2d(x, p[key + ".weight"], None, stride, padding), p[key + "_norm.weight"],
                         p[key + "_norm.bias"], group, sums)

    h = conv_norm(torch.relu(conv_norm(x, "conv1", channels, 3, 2, 1)), "conv2", out, 3, 1, 1)
    h = torch.relu(h + conv_norm(x, "shortcut", channels, 1, 2, 0))
    p["head.weight"], p["head.bias"] = normal(classes, out), normal(classes)
    labels = torch.randint(0, classes, (batch,)).int()
    losses = F.cross_entropy(F.linear(h.mean((2, 3)), p["head.weight"], p["head.bias"]), labels.long(), reduction="none")
    losses.sum().backward()
    arrays = {"param." + key: value for key, value in p.items()}
    arrays.update({"input.x": x, "input.label": labels, "out.loss": losses})
    gradients(arrays)
    save(name, arrays, op="residual_block", channels=out, group=group, classes=classes)


def rotate(x, theta):
    """(B,T,heads,D), pairs (i, i + D/2)."""
    tokens, width = x.shape[1], x.shape[3]
    speeds = theta ** (-2.0 * torch.arange(width // 2).double() / width)
    angles = torch.outer(torch.arange(tokens).double(), speeds).reshape(1, tokens, 1, width // 2)
    u, v = x[..., :width // 2], x[..., width // 2:]
    return torch.cat((u * angles.cos() - v * angles.sin(), u * angles.sin() + v * angles.cos()), -1)


def attention(name, batch, tokens, heads, kv_heads, width, causal=True, theta=0, scale=0.0):
    x = normal(batch, tokens, (heads + 2 * kv_heads) * width)
    q, k, v = x.reshape(batch, tokens, -1, width).split((heads, kv_heads, kv_heads), 2)
    if theta:
        q, k = rotate(q, theta), rotate(k, theta)
    q, k, v = (t.repeat_interleave(heads // t.shape[2], 2).transpose(1, 2) for t in (q, k, v))
    scores = q @ k.transpose(-1, -2) * (scale or width ** -0.5)
    if causal:
        scores = scores.masked_fill(torch.ones(tokens, tokens).triu(1).bool(), -float("inf"))
    y = (scores.softmax(-1) @ v).transpose(1, 2).reshape(batch, tokens, heads * width)
    arrays = {"input.x": x}
    objective(arrays, y)
    save(name, arrays, op="attention", heads=heads, kv_heads=kv_heads, full=int(not causal), theta=theta, scale=scale)


def rotary(name, batch, tokens, heads, kv_heads, width, theta):
    x = normal(batch, tokens, (heads + 2 * kv_heads) * width)
    parts = x.reshape(batch, tokens, -1, width)
    y = torch.cat((rotate(parts[:, :, :heads + kv_heads], theta), parts[:, :, heads + kv_heads:]), 2)
    arrays = {"input.x": x}
    objective(arrays, y.reshape(x.shape))
    save(name, arrays, op="rotary", heads=heads, kv_heads=kv_heads, theta=theta)


def softmax(name, scale, *shape):
    x = normal(*shape, scale=scale)
    arrays = {"input.x": x}
    objective(arrays, x.softmax(-1))
    save(name, arrays, op="softmax")


def binary(name, op, shape, p_shape, swapped=False):
    """A parameter that broadcasts to x's shape, on either side."""
    x, p = normal(*shape), normal(*p_shape)
    if op == "div":
        x, p = ((v.detach().abs() + 0.5).float().double().requires_grad_() for v in (x, p))
    forward = {"add": torch.add, "sub": torch.sub, "mul": torch.mul, "div": torch.div}[op]
    arrays = {"input.x": x, "param.p": p}
    objective(arrays, forward(p, x) if swapped else forward(x, p))
    save(name, arrays, op=op, swapped=int(swapped))


def reduce(name, op, dim, *shape):
    x = normal(*shape)
    arrays = {"input.x": x}
    forward = {"sum": lambda: x.sum(dim), "mean": lambda: x.mean(dim), "max": lambda: x.max(dim).values}[op]
    objective(arrays, forward())
    save(name, arrays, op=op, dim=dim)


def moves(name, *shape):
    """(B,T,H,D): heads beside each other, then parts of them put together in another order."""
    x = normal(*shape)
    y = x.transpose(1, 2)
    y = torch.cat([y.narrow(3, 1, shape[3] - 1), y.narrow(-1, 0, 2), y], 3)
    arrays = {"input.x": x}
    objective(arrays, y.transpose(-1, -2))
    save(name, arrays, op="moves")


def elementwise_loss(name, op, scale, *shape, beta=1.0):
    x, target = normal(*shape, scale=scale), normal(*shape).detach()
    if op == "bce":
        target = torch.rand(*shape).float().double()
    forward = {"mse": lambda: F.mse_loss(x, target, reduction="none"),
               "bce": lambda: F.binary_cross_entropy_with_logits(x, target, reduction="none"),
               "smooth_l1": lambda: F.smooth_l1_loss(x, target, reduction="none", beta=beta)}[op]
    losses = forward()
    losses.sum().backward()
    arrays = {"input.x": x, "input.target": target, "out.loss": losses}
    gradients(arrays)
    save(name, arrays, op=op, beta_thousandths=int(beta * 1000))


def rows(name, op, *shape, scale=1.0):
    """Norms over the last dimension, activations, linear layers for each row."""
    x, width = normal(*shape, scale=scale), shape[-1]
    arrays = {"input.x": x}
    if op in ("layer_norm", "rms_norm", "linear_rows"):
        arrays["param.layer.weight"] = w = normal(11, width) if op == "linear_rows" else normal(width)
    if op in ("layer_norm", "linear_rows"):
        arrays["param.layer.bias"] = normal(11 if op == "linear_rows" else width)
    bias = arrays.get("param.layer.bias")
    forward = {"layer_norm": lambda: F.layer_norm(x, (width,), w, bias, 1e-5),
               "rms_norm": lambda: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * w,
               "linear_rows": lambda: F.linear(x, w, bias),
               "gelu": lambda: F.gelu(x), "gelu_tanh": lambda: F.gelu(x, approximate="tanh"),
               "silu": lambda: F.silu(x), "tanh": lambda: torch.tanh(x), "sigmoid": lambda: torch.sigmoid(x)}[op]
    objective(arrays, forward())
    save(name, arrays, op=op)


def embedding(name, kind, vocabulary, width, context, *shape):
    tokens = torch.randint(0, vocabulary, shape).to(kind)
    arrays = {"input.tokens": tokens, "param.layer.weight": normal(vocabulary, width)}
    y = F.embedding(tokens.long(), arrays["param.layer.weight"])
    if context:
        arrays["param.wpe.weight"] = normal(context, width)
        y = y + arrays["param.wpe.weight"][:shape[1]]
    objective(arrays, y)
    save(name, arrays, op="embedding", vocabulary=vocabulary, width=width, context=context)


def gpt(name, batch, tokens, heads, width, vocabulary, context):
    """One block of GPT-2 between its embeddings and the tied head; a third of the targets is ignored."""
    p = {"wte.weight": normal(vocabulary, width), "wpe.weight": normal(context, width)}
    for norm in ("ln1", "ln2", "lnf"):
        p[norm + ".weight"], p[norm + ".bias"] = normal(width), normal(width)
    for layer, n, k in (("qkv", 3, 1), ("proj", 1, 1), ("fc", 4, 1), ("out", 1, 4)):
        p[layer + ".weight"], p[layer + ".bias"] = normal(n * width, k * width, scale=0.3), normal(n * width)
    ids = torch.randint(0, vocabulary, (batch, tokens)).int()
    labels = torch.randint(0, vocabulary, (batch, tokens)).int()
    labels.view(-1)[1::3] = -100
    linear = lambda x, layer: F.linear(x, p[layer + ".weight"], p[layer + ".bias"])
    norm = lambda x, layer: F.layer_norm(x, (width,), p[layer + ".weight"], p[layer + ".bias"], 1e-5)
    x = F.embedding(ids.long(), p["wte.weight"]) + p["wpe.weight"][:tokens]
    q, k, v = linear(norm(x, "ln1"), "qkv").reshape(batch, tokens, 3, heads, -1).permute(2, 0, 3, 1, 4)
    scores = q @ k.transpose(-1, -2) * (width // heads) ** -0.5
    scores = scores.masked_fill(torch.ones(tokens, tokens).triu(1).bool(), -float("inf"))
    x = x + linear((scores.softmax(-1) @ v).transpose(1, 2).reshape(batch, tokens, width), "proj")
    x = x + linear(F.gelu(linear(norm(x, "ln2"), "fc"), approximate="tanh"), "out")
    scores = F.linear(norm(x, "lnf"), p["wte.weight"])
    flat = scores.reshape(-1, vocabulary)
    losses = F.cross_entropy(flat, labels.reshape(-1).long(), reduction="none").reshape(batch, tokens)
    losses.sum().backward()
    arrays = {"param." + key: value for key, value in p.items()}
    arrays.update({"input.tokens": ids, "input.label": labels, "out.loss": losses,
                   "out.weights": (labels != -100).double(), "out.accuracy": (scores.argmax(-1) == labels).double()})
    gradients(arrays)
    save(name, arrays, op="gpt", heads=heads, width=width, vocabulary=vocabulary, context=context)


def make(function, name, *args, **options):
    """Each file has its own seed, so that adding one leaves the others as they are."""
    torch.manual_seed(zlib.crc32(name.encode()))
    function(name, *args, **options)


def main():
    os.makedirs(FOLDER, exist_ok=True)
    make(linear, "linear_1_1_1", 1, 1, 1)
    make(linear, "linear_1_17_5", 1, 17, 5)
    make(linear, "linear_7_33_19", 7, 33, 19)
    make(linear, "linear_16_16_32", 16, 16, 32)
    make(conv, "conv_1_1_5x7_k1", 1, 1, 5, 7, 1, 1)
    make(conv, "conv_2_3_7x9_k3_p1", 2, 3, 7, 9, 5, 3, padding=1)
    make(conv, "conv_3_17_6x5_k3_s2_p1", 3, 17, 6, 5, 19, 3, stride=2, padding=1)
    make(conv, "conv_2_16_4x4_k3_p1_nobias", 2, 16, 4, 4, 16, 3, padding=1, bias=False)
    make(conv, "conv_5_2_11x8_k5_s2_p2", 5, 2, 11, 8, 3, 5, stride=2, padding=2)
    make(conv, "conv_1_3_8x7_k2_s3", 1, 3, 8, 7, 2, 2, stride=3)
    make(conv, "conv_2_1_3x3_k7_p3", 2, 1, 3, 3, 4, 7, padding=3)
    make(pool, "max_pool_2_3_7x6_2", "max_pool2d", 2, 3, 7, 6, 2)
    make(pool, "max_pool_1_17_9x10_3_ties", "max_pool2d", 1, 17, 9, 10, 3, ties=True)
    make(pool, "avg_pool_2_3_7x6_2", "avg_pool2d", 2, 3, 7, 6, 2)
    make(pool, "avg_pool_3_1_5x5_3", "avg_pool2d", 3, 1, 5, 5, 3)
    make(pool, "global_avg_pool_2_19_3x5", "global_avg_pool2d", 2, 19, 3, 5)
    make(batch_norm, "batch_norm_7_5_4x3_g3", 3, 7, 5, 4, 3)
    make(batch_norm, "batch_norm_9_17_g4", 4, 9, 17)
    make(batch_norm, "batch_norm_5_16_3x3_g16", 16, 5, 16, 3, 3)
    make(batch_norm, "batch_norm_3_1_3x2_g1", 1, 3, 1, 3, 2)
    make(batch_norm_inference, "batch_norm_predict_3_7_2x5", 3, 7, 2, 5)
    make(batch_norm_inference, "batch_norm_predict_4_17", 4, 17)
    make(cross_entropy, "cross_entropy_1_10", torch.int32, 1, 10, 1)
    make(cross_entropy, "cross_entropy_13_17_i64", torch.int64, 3, 17, 13)
    make(cross_entropy, "cross_entropy_5_3_7", torch.int32, 2, 7, 5, 3)
    make(cross_entropy, "cross_entropy_6_11_u8_large", torch.uint8, 300, 11, 6)
    make(residual_block, "residual_block_5_3_7x6_g2", 5, 3, 7, 6, 6, 2, 4)
    make(attention, "attention_1_1_h1_1", 1, 1, 1, 1, 1)
    make(attention, "attention_2_17_h3_3", 2, 17, 3, 3, 3)
    make(attention, "attention_1_67_h1_64", 1, 67, 1, 1, 64)
    make(attention, "attention_2_13_h6_2_17", 2, 13, 6, 2, 17)
    make(attention, "attention_3_19_h5_1_16_full", 3, 19, 5, 1, 16, causal=False)
    make(attention, "attention_1_66_h1_5_full_scale", 1, 66, 1, 1, 5, causal=False, scale=0.3)
    make(attention, "attention_2_11_h4_2_8_rotary", 2, 11, 4, 2, 8, theta=10000)
    make(rotary, "rotary_2_9_h3_1_6", 2, 9, 3, 1, 6, 100)
    make(rotary, "rotary_1_33_h2_2_34", 1, 33, 2, 2, 34, 10000)
    make(softmax, "softmax_3_1", 1, 3, 1)
    make(softmax, "softmax_2_5_19", 2, 2, 5, 19)
    make(softmax, "softmax_4_33_large", 100, 4, 33)
    for op in ("add", "sub", "mul", "div"):
        make(binary, f"{op}_5_7_3_row", op, (5, 7, 3), (3,))
        make(binary, f"{op}_3_7_17_column", op, (3, 7, 17), (7, 1), swapped=True)
        make(binary, f"{op}_2_1_5_scalar", op, (2, 1, 5), ())
        make(binary, f"{op}_4_3_19_samples", op, (4, 3, 19), (4, 1, 19), swapped=True)
    for op in ("sum", "mean", "max"):
        make(reduce, f"{op}_3_7_5_2_dim1", op, 1, 3, 7, 5, 2)
        make(reduce, f"{op}_2_3_33_dim2", op, 2, 2, 3, 33)
        make(reduce, f"{op}_1_1_1_dim1", op, 1, 1, 1, 1)
    make(moves, "moves_3_7_2_5", 3, 7, 2, 5)
    make(moves, "moves_1_17_3_16", 1, 17, 3, 16)
    for op in ("mse", "bce", "smooth_l1"):
        make(elementwise_loss, f"{op}_7", op, 1, 7)
        make(elementwise_loss, f"{op}_3_5_17", op, 3, 3, 5, 17, beta=0.25)
    make(elementwise_loss, "bce_5_3_large", "bce", 60, 5, 3)
    make(rows, "layer_norm_3_1", "layer_norm", 3, 1)
    make(rows, "rms_norm_3_2", "rms_norm", 3, 2)
    for op in ("layer_norm", "rms_norm"):
        make(rows, f"{op}_7_17", op, 7, 17, scale=3)
        make(rows, f"{op}_2_3_5_47", op, 2, 3, 5, 47)
        make(rows, f"{op}_5_3_64", op, 5, 3, 64)
    make(rows, "linear_rows_3_5_13", "linear_rows", 3, 5, 13)
    make(rows, "linear_rows_1_2_3_1", "linear_rows", 1, 2, 3, 1)
    for op in ("gelu", "gelu_tanh", "silu", "tanh", "sigmoid"):
        make(rows, f"{op}_1_1", op, 1, 1)
        make(rows, f"{op}_5_3_19", op, 5, 3, 19, scale=3)
    make(embedding, "embedding_1_1_1", torch.int32, 1, 1, 0, 1, 1)
    make(embedding, "embedding_65_17_i64", torch.int64, 65, 17, 13, 3, 11)
    make(embedding, "embedding_7_48_u8", torch.uint8, 7, 48, 5, 5, 5)
    make(gpt, "gpt_3_9_h3_12", 3, 9, 3, 12, 29, 10)
    make(gpt, "gpt_2_17_h2_34", 2, 17, 2, 34, 67, 17)


main()
