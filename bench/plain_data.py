"""Uncompressed Fashion-MNIST for benchmarks, so that no process spends its start in zlib."""
import gzip, os, shutil

DATA = "/usr/share/datasets/fashion-mnist"


def plain_data(folder):
    for name in os.listdir(DATA):
        if name.endswith(".gz"):
            with gzip.open(os.path.join(DATA, name)) as f, open(os.path.join(folder, name[:-3]), "wb") as g:
                shutil.copyfileobj(f, g)
    return folder
