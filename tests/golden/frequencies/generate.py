#!/usr/bin/env python3
"""Makes use.json, the golden means of tests/test_frequency.c, with PyTorch in float64 (made with torch 2.13, safetensors
0.8, tokenizers 0.23).

    generate.py [--shared DIR]     DIR/models/rope-29m and pope-29m; without them their means stay as they are

For each model: {"n": tokens, "q": [n_layer][n_freq], "k"}: the mean over tokens and heads of the 2-norm of each rotary
pair (rope, before the turn) or of softplus(x) of each element (pope), where the texts are cut into windows of `length`
inputs side by side, and each text's last token is read by none. The model is written out plainly below, from the
papers' formulas: nothing of it is the engine's.
"""
import argparse
import glob
import json
import math
import os

import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))
LENGTH = 48
TEXTS = [
    "The harbour master kept two ledgers. In the first he wrote the ships as they came, their masts, their cargo, and "
    "the hour; in the second, which nobody read, he wrote what the sailors said of the places they had seen. \"There "
    "is an island,\" one of them told him, \"where the tide waits for the moon to be introduced.\" He wrote it down, "
    "and the date beside it, and he blotted the line with great care.\n\nWhen the harbour silted up and the ships went "
    "elsewhere, it was the second ledger that people came to ask for. The first told them only what had been; the "
    "other, page after page, told them how far it was possible to go, and who had said so, and on what day.",
    "Rain again.",
    "Count with me: one, two, three, four, five, six, seven, eight, nine, ten; and back, ten, nine, eight, seven, six, "
    "five, four, three, two, one. Then once more, a little slower, until the kettle boils and the toast is done.",
]


def frequencies(config):
    """Radians a token of each frequency, and the amplitude on cosine and sine."""
    d, base = config["head_dim"], config["rope_theta"]
    if config["position_embedding_type"] == "pope":
        return base ** (-torch.arange(d, dtype=torch.float64) / d), 1.0
    theta = base ** (-2 * torch.arange(d // 2, dtype=torch.float64) / d)
    yarn = config.get("rope_scaling")
    if not yarn:
        return theta, 1.0
    assert yarn["rope_type"] == "yarn"

    def pair(turns):
        return d * math.log(yarn["original_max_position_embeddings"] / (2 * math.pi * turns)) / (2 * math.log(base))

    low = max(math.floor(pair(yarn["beta_fast"])), 0)
    high = min(math.ceil(pair(yarn["beta_slow"])), d - 1)
    ramp = ((torch.arange(d // 2, dtype=torch.float64) - low) / max(high - low, 0.001)).clamp(0, 1)
    return theta / yarn["factor"] * ramp + theta * (1 - ramp), 0.1 * math.log(yarn["factor"]) + 1


class Model:
    def __init__(self, path):
        self.config = json.load(open(os.path.join(path, "config.json")))
        self.tokenizer = Tokenizer.from_file(os.path.join(path, "tokenizer.json"))
        self.weights = {}
        for name in sorted(glob.glob(os.path.join(path, "*.safetensors"))):
            self.weights |= {k: v.double() for k, v in load_file(name).items()}
        self.theta, self.amplitude = frequencies(self.config)
        assert self.config["num_key_value_heads"] == self.config["num_attention_heads"]
        assert not self.config["mlp_gated"] and self.config["hidden_act"] == "gelu_pytorch_tanh"

    def norm(self, x, name):
        return x / (x.pow(2).mean(-1, keepdim=True) + self.config["rms_norm_eps"]).sqrt() * self.weights[name + ".weight"]

    def heads(self, h, name):
        """[heads, tokens, head_dim]"""
        y = h @ self.weights[name + ".weight"].T
        return y.view(len(y), -1, self.config["head_dim"]).transpose(0, 1)

    def turned(self, x, delta=None):
        """What is multiplied in scores, and its magnitudes [heads, tokens, n_freq]."""
        phase = torch.arange(x.shape[1], dtype=torch.float64)[:, None] * self.theta
        if self.config["position_embedding_type"] == "pope":
            size = torch.nn.functional.softplus(x)
            phase = phase + (0 if delta is None else delta.clamp(-2 * math.pi, 0)[:, None, :])
            return torch.cat([size * phase.cos(), size * phase.sin()], -1), size
        a, b = x.chunk(2, -1)
        cos, sin = phase.cos() * self.amplitude, phase.sin() * self.amplitude
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1), (a * a + b * b).sqrt()

    def magnitudes(self, ids):
        """[n_layer, 2, n_freq]: sums over tokens and heads."""
        x = self.weights["model.embed_tokens.weight"][ids]
        mask = torch.ones(len(ids), len(ids), dtype=torch.bool).tril()
        sums = []
        for i in range(self.config["num_hidden_layers"]):
            at = f"model.layers.{i}."
            h = self.norm(x, at + "input_layernorm")
            q, q_size = self.turned(self.heads(h, at + "self_attn.q_proj"))
            k, k_size = self.turned(self.heads(h, at + "self_attn.k_proj"), self.weights.get(at + "self_attn.pope_delta"))
            sums.append(torch.stack([q_size.sum((0, 1)), k_size.sum((0, 1))]))
            scores = q @ k.transpose(1, 2) * self.config["head_dim"] ** -0.5
            p = scores.masked_fill(~mask, -math.inf).softmax(-1)
            y = (p @ self.heads(h, at + "self_attn.v_proj")).transpose(0, 1).reshape(len(ids), -1)
            x = x + y @ self.weights[at + "self_attn.o_proj.weight"].T
            h = self.norm(x, at + "post_attention_layernorm") @ self.weights[at + "mlp.up_proj.weight"].T
            x = x + torch.nn.functional.gelu(h, approximate="tanh") @ self.weights[at + "mlp.down_proj.weight"].T
        return torch.stack(sums)


def use(path):
    model = Model(path)
    total, n = 0, 0
    for text in TEXTS:
        inputs = model.tokenizer.encode(text, add_special_tokens=False).ids[:-1]
        for at in range(0, len(inputs), LENGTH):
            total = total + model.magnitudes(inputs[at : at + LENGTH])
            n += len(inputs[at : at + LENGTH])
    means = total / (n * model.config["num_attention_heads"])
    short = [[[float(f"{x:.9g}") for x in part] for part in layer] for layer in means.tolist()]
    return {"n": n, "theta": model.theta.tolist(), "q": [layer[0] for layer in short], "k": [layer[1] for layer in short]}


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("--shared", default=os.path.join(os.path.dirname(ROOT), "shared"))
    shared = args.parse_args().shared
    out = os.path.join(HERE, "use.json")
    before = json.load(open(out))["models"] if os.path.exists(out) else {}
    models = {name: use(os.path.join(ROOT, "eval/demo", name)) for name in ("rope-demo", "pope-demo", "yarn-demo")}
    for name in ("rope-29m", "pope-29m"):
        path = os.path.join(shared, "models", name)
        if os.path.exists(path):
            models[name] = use(path)
        elif name in before:
            models[name] = before[name]
    with open(out, "w") as f:
        f.write('{"length": %d,\n"texts": %s,\n"models": {\n' % (LENGTH, json.dumps(TEXTS, indent=1)))
        f.write(",\n".join(f"{json.dumps(name)}: {json.dumps(m)}" for name, m in models.items()))
        f.write("\n}}\n")


main()
