#!/usr/bin/env python3
"""Writes tests/data/gpt2_golden: a small byte-level BPE vocabulary in both kinds of files, and what
Hugging Face's `tokenizers` (pip install tokenizers; 0.23.3 was used) makes of texts that are hard to
cut. The files are checked in, so tests do not need it."""
import json
import os
import random

from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers, trainers

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "gpt2_golden")
LEARN = [
    "The device counts the tokens, and the tokens count on the device. It's what they'll learn, isn't it?",
    "We've trained on every device there is; the number of devices never changes the mathematics.",
    "for (int i = 0; i < n; i++) {\n        sum += x[i] * y[i];\n    }\n    return sum;\n",
    "In 2019, 1024 tokens; in 2026, 131072 tokens. 3.14159, 2.71828 and 1.41421 are numbers too.",
    "Der schnelle Fuchs läuft über die Brücke. Где устройство? 设备在哪里? \U0001F600\U0001F600",
] * 3
TEXTS = [
    "", " ", "  ", "\n", "a", " a", "  a", "   a", "a ", "a  ", "a   b", "a\nb", "a\n\nb", "a \n b", "a\t\tb", "\r\n a\r\n",
    "The device's tokens", "they'll, I'd, we've, it's, can't, I'm, you're", "IT'S THEY'LL", "'s 's's ''s ' s",
    "tokens123devices", "123 456", " 3.14159e-10", "x[i]+=y[i];", "!!!???...", "a!b?c", " !a", "$100 and €100",
    "über die Brücke", "Где устройство", "设备在哪里", "\U0001F600 \U0001F600\U0001F600", "e\u0301 \u0301", "½²٣ Ⅳ",
    "a\u00a0b\u00a0\u00a0c", "a\u3000\u3000b", "a\u2003 b", "a\u0085\u0085b", "a\u180e\u180eb", "a\u200bb", "a\x1c\x1fb", "a\x0b\x0c b",
    "\x00\x01\x7f", "\u00ff\u0100\uffff\U0010ffff", "<|endoftext|>", "a <|endoftext|> b", "tokentokentokentoken" * 8,
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "    return sum;\n\n\n", "the the the  the   the", "\ufeffThe",
]


def noise(seed):
    r = random.Random(seed)
    parts = ["the", " the", "device", "'s", "'ll", " ", "  ", "\n", "\t", "12", "3", "!", "é", "设", "\u00a0", "\u3000", "<|", "X"]
    return "".join(r.choice(parts) for _ in range(120))


def line(case):
    return json.dumps(case, ensure_ascii=True, separators=(",", ":"))


def write(name, value):
    with open(os.path.join(FOLDER, name), "w") as f:
        f.write("{%s}\n" % ",\n".join('"%s":[\n%s]' % (k, ",\n".join(map(line, v))) for k, v in value.items()))


def main():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(vocab_size=400, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
                                  show_progress=False)
    tokenizer.train_from_iterator(LEARN, trainer)
    tokenizer.model.save(FOLDER)  # vocab.json, merges.txt
    texts = TEXTS + [noise(seed) for seed in range(12)]
    plain = [{"text": t, "tokens": tokenizer.encode(t).ids} for t in texts]
    tokenizer.add_special_tokens([AddedToken("<|endoftext|>", normalized=False)])
    tokenizer.save(os.path.join(FOLDER, "tokenizer.json"), pretty=False)
    joined = ["<|endoftext|>".join(texts[i:i + 4]) for i in range(0, len(texts), 4)]
    special = [{"text": t, "tokens": tokenizer.encode(t).ids} for t in joined]
    write("cases.json", {"plain": plain, "special": special})


main()
