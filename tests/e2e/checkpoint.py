"""Checkpoints made from other ones by adding noise to their weights; plain Python, quick enough for a test."""

import json
import random
import shutil
import struct
import sys
from array import array
from pathlib import Path

N_NOISE = 1 << 18


def read_safetensors(path):
    """{name: (shape, array of floats)} of a file of BF16 or F32."""
    data = Path(path).read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    tensors = {}
    for name, t in json.loads(data[8:8 + size]).items():
        if name == "__metadata__":
            continue
        begin, end = (8 + size + o for o in t["data_offsets"])
        if t["dtype"] == "BF16":  # the upper half of a float
            values = array("H", data[begin:end])
            wide = bytearray(2 * (end - begin))
            wide[2::4], wide[3::4] = values.tobytes()[::2], values.tobytes()[1::2]
            values = array("f", bytes(wide))
        elif t["dtype"] == "F32":
            values = array("f", data[begin:end])
        else:
            raise ValueError(f"{path}: {name} is {t['dtype']}")
        tensors[name] = (t["shape"], values)
    return tensors


def write_safetensors(path, tensors):
    """As F32."""
    header, at = {}, 0
    for name, (shape, values) in tensors.items():
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [at, at + 4 * len(values)]}
        at += 4 * len(values)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for _, values in tensors.values():
            values.tofile(f)


class Noise:
    """Gaussian noise from one pool: a stretch of it for each tensor, from a place that the seed gives."""

    def __init__(self):
        rng = random.Random(20)
        pool = array("f", (rng.gauss(0, 1) for _ in range(N_NOISE)))
        self.pool = pool + pool  # so that a stretch may begin anywhere

    def stretch(self, rng, n):
        out = array("f")
        while len(out) < n:
            at = rng.randrange(N_NOISE)
            out += self.pool[at:at + min(N_NOISE, n - len(out))]
        return out

    def add(self, tensors, size, seed):
        """A copy whose matrices w became w + size * rms(w) * noise."""
        rng = random.Random(seed)
        noisy = {}
        for name, (shape, values) in tensors.items():
            if len(shape) == 2:
                rms = (sum(v * v for v in values[::16]) / len(values[::16])) ** 0.5
                scale = size * rms
                values = array("f", [v + scale * g for v, g in zip(values, self.stretch(rng, len(values)))])
            noisy[name] = (shape, values)
        return noisy


def copy_model(source, target, tensors=None):
    """A model's folder; with other weights when they are given."""
    target.mkdir(parents=True)
    for name in ("config.json", "tokenizer.json"):
        shutil.copy(source / name, target / name)
    if tensors is None:
        shutil.copy(source / "model.safetensors", target / "model.safetensors")
    else:
        write_safetensors(target / "model.safetensors", tensors)


assert sys.byteorder == "little"
