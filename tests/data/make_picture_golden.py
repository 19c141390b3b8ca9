#!/usr/bin/env python3
"""Writes tests/data/picture_golden: small PNG and JPEG files of every kind that is read, what Pillow
decodes them to (NAME.rgb: width and height as u16, then pixels; grey files three times the same), and
the middle square of one of them averaged to several sizes by numpy in fp64 (scaled.f32). Run with
Pillow and numpy; the files are checked in, so tests do not need it."""
import os
import struct
import zlib

import numpy as np
from PIL import Image

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "picture_golden")
W, H = 21, 14


def write_rgb(name, pixels):
    pixels = np.asarray(pixels, dtype=np.uint8)
    with open(os.path.join(FOLDER, name.replace(".", "_") + ".rgb"), "wb") as f:
        f.write(struct.pack("<HH", pixels.shape[1], pixels.shape[0]) + pixels.tobytes())


def save(name, image, rgb=None, **options):
    path = os.path.join(FOLDER, name)
    image.save(path, **options)
    write_rgb(name, rgb if rgb is not None else Image.open(path).convert("RGB"))


def smooth(w, h):
    y, x = np.mgrid[0:h, 0:w]
    return np.stack([x * 255 / (w - 1), y * 255 / (h - 1), (x + y) * 255 / (w + h - 2)], -1).astype(np.uint8)


def interlaced(pixels):
    """A PNG in Adam7 order, which Pillow reads but does not write."""
    h, w, _ = pixels.shape
    data = b""
    for x0, y0, dx, dy in ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)):
        part = pixels[y0::dy, x0::dx]
        if part.size:
            data += b"".join(b"\0" + row.tobytes() for row in part)

    def chunk(kind, body):
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", w, h, 8, 2, 0, 0, 1)) +
            chunk(b"IDAT", zlib.compress(data)) + chunk(b"IEND", b""))


def area(pixels, size):
    """The middle square, averaged: the exact integral over each output pixel's area."""
    h, w, _ = pixels.shape
    side = min(h, w)
    top, left = (h - side) // 2, (w - side) // 2
    square = pixels[top:top + side, left:left + side].astype(np.float64)
    m = np.zeros((size, side))
    for i in range(size):
        for j in range(side):
            m[i, j] = max(0, min((i + 1) * side / size, j + 1) - max(i * side / size, j)) / (side / size)
    return np.einsum("iy,jx,yxc->cij", m, m, square)


def main():
    r = np.random.RandomState(1)
    noise = r.randint(0, 256, (H, W, 3), np.uint8)
    grey = r.randint(0, 256, (H, W), np.uint8)
    rgba = np.concatenate([noise, r.randint(0, 256, (H, W, 1), np.uint8)], -1)
    save("rgb.png", Image.fromarray(noise))
    save("grey.png", Image.fromarray(grey))
    save("rgba.png", Image.fromarray(rgba), rgb=noise)
    save("grey_alpha.png", Image.fromarray(np.stack([grey, grey[::-1]], -1), "LA"), rgb=np.repeat(grey[..., None], 3, -1))
    save("palette.png", Image.fromarray(noise).quantize(16))
    save("bits1.png", Image.fromarray(grey > 128))
    sixteen = r.randint(0, 65536, (H, W)).astype(np.uint16)
    rounded = (sixteen.astype(np.float64) * 255 / 65535 + 0.5).astype(np.uint8)
    save("grey16.png", Image.fromarray(sixteen), rgb=np.repeat(rounded[..., None], 3, -1))
    save("rgb.jpg", Image.fromarray(smooth(W, H)), quality=92)
    save("progressive.jpg", Image.fromarray(smooth(W, H)), quality=92, progressive=True)
    save("grey.jpg", Image.fromarray(smooth(W, H)).convert("L"), quality=92)
    save("cmyk.jpg", Image.fromarray(smooth(W, H)).convert("CMYK"), quality=95)
    with open(os.path.join(FOLDER, "interlaced.png"), "wb") as f:
        f.write(interlaced(noise))
    write_rgb("interlaced.png", Image.open(os.path.join(FOLDER, "interlaced.png")))
    Image.fromarray(smooth(301, 203)).save(os.path.join(FOLDER, "large.jpg"), quality=80)
    with open(os.path.join(FOLDER, "scaled.f32"), "wb") as f:
        for size in (1, 2, 5, 7, 13, 14):
            f.write(area(noise, size).astype("<f4").tobytes())


main()
