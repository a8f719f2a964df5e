#!/usr/bin/env python3
"""Scoring speed against PyTorch on the same cores, checkpoint and token windows, in one run.

    bench_peer.py [--bench build/bench_score] [--models DIR] [--lengths 1024,10240] [--threads 2] [--rounds 3] [NAME...]

The peer is what a PyTorch expert writes: a plain decoder in inference mode, SDPA, the logits in chunks of 4096 rows, best of eager
and compiled; in bf16 the better of a bf16 model and autocast. CPU flash attention wants q and v of one width, so PoPE pads v to
q's and cuts the output. Our binary and the peers take turns, and each figure is a median: the machine is noisy, so only
ratios within one run count. Needs torch, numpy, safetensors: a virtual environment that only this benchmark uses.
"""
import argparse
import glob
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import load_file


class Model(torch.nn.Module):
    """The project's family (design: Checkpoints), all heads with their own keys, no biases, plain MLP."""

    def __init__(self, path, max_length):
        super().__init__()
        self.config = c = json.load(open(os.path.join(path, "config.json")))
        weights = {}
        for f in sorted(glob.glob(os.path.join(path, "*.safetensors"))):
            weights.update(load_file(f))
        self.n_layer, self.n_head, self.d = c["num_hidden_layers"], c["num_attention_heads"], c["head_dim"]
        self.eps, self.pope = c["rms_norm_eps"], c["position_embedding_type"] == "pope"
        assert c["num_key_value_heads"] == self.n_head and not c["mlp_gated"] and not c["attention_bias"]
        assert c["hidden_act"] == "gelu_pytorch_tanh" and not c.get("rope_scaling")
        get = lambda name: torch.nn.Parameter(weights[name].float(), requires_grad=False)
        self.embed = get("model.embed_tokens.weight")
        self.norm = get("model.norm.weight")
        self.head = self.embed if c["tie_word_embeddings"] else get("lm_head.weight")
        per_layer = lambda name: torch.nn.ParameterList([get(f"model.layers.{i}.{name}") for i in range(self.n_layer)])
        self.n1, self.n2 = per_layer("input_layernorm.weight"), per_layer("post_attention_layernorm.weight")
        self.qkv = torch.nn.ParameterList(
            [
                torch.nn.Parameter(
                    torch.cat([weights[f"model.layers.{i}.self_attn.{p}_proj.weight"].float() for p in "qkv"]),
                    requires_grad=False,
                )
                for i in range(self.n_layer)
            ]
        )
        self.o, self.up, self.down = (per_layer(f"{n}.weight") for n in ("self_attn.o_proj", "mlp.up_proj", "mlp.down_proj"))
        n = self.d if self.pope else self.d // 2
        theta = c["rope_theta"] ** (-torch.arange(n, dtype=torch.float64) / n)
        angle = torch.arange(max_length, dtype=torch.float64)[:, None] * theta
        self.cos, self.sin = angle.cos().float(), angle.sin().float()
        if self.pope:
            delta = [weights[f"model.layers.{i}.self_attn.pope_delta"].float() for i in range(self.n_layer)]
            self.delta = [d.clamp(-2 * math.pi, 0)[None, :, None, :] for d in delta]

    def rotate(self, x, layer, key):
        """x [batch, head, length, d] -> what SDPA multiplies"""
        n, t = x.shape[2], x.dtype
        cos, sin = self.cos[:n], self.sin[:n]
        if not self.pope:
            a, b = x.float().chunk(2, -1)
            return torch.cat([a * cos - b * sin, b * cos + a * sin], -1).to(t)
        mu = F.softplus(x.float())
        if key:
            cd, sd = self.delta[layer].cos(), self.delta[layer].sin()
            cos, sin = cos * cd - sin * sd, sin * cd + cos * sd
        return torch.cat([mu * cos, mu * sin], -1).to(t)

    def attend(self, h, i):
        batch, n, _ = h.shape
        q, k, v = F.linear(h, self.qkv[i]).view(batch, n, 3, self.n_head, self.d).permute(2, 0, 3, 1, 4)
        q, k = self.rotate(q, i, False), self.rotate(k, i, True)
        if self.pope:
            v = F.pad(v, (0, self.d))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=self.d**-0.5)[..., : self.d]
        return F.linear(y.transpose(1, 2).reshape(batch, n, self.n_head * self.d), self.o[i])

    def hidden(self, ids):
        x = F.embedding(ids, self.embed)
        for i in range(self.n_layer):
            x = x + self.attend(F.rms_norm(x, x.shape[-1:], self.n1[i].to(x.dtype), self.eps), i)
            h = F.rms_norm(x, x.shape[-1:], self.n2[i].to(x.dtype), self.eps)
            x = x + F.linear(F.gelu(F.linear(h, self.up[i]), approximate="tanh"), self.down[i])
        return F.rms_norm(x, x.shape[-1:], self.norm.to(x.dtype), self.eps)

    def forward(self, ids, targets):
        h = self.hidden(ids).flatten(0, 1)
        t = targets.flatten()
        return torch.cat([
            F.cross_entropy(F.linear(h[i : i + 4096], self.head).float(), t[i : i + 4096], reduction="none")
            for i in range(0, len(h), 4096)
        ])


def peers(path, dtype, length):
    """name -> callable(ids, targets)"""
    torch._dynamo.reset()  # else the models of earlier rows count towards its limit of recompilations
    out = {}
    variants = [("f32", False)] if dtype == "f32" else [("bf16", False), ("autocast", True)]
    for name, autocast in variants:
        model = Model(path, length).eval()
        if name == "bf16":
            model = model.bfloat16()
        for kind in ("eager", "compiled"):
            f = model if kind == "eager" else torch.compile(model, dynamic=False)

            def call(ids, targets, f=f, autocast=autocast):
                with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16, enabled=autocast):
                    return f(ids, targets)

            out[f"{kind} {name}"] = call
    return out


def timed(call, *args):
    wall, cpu = time.perf_counter(), time.process_time()
    result = call(*args)
    return time.perf_counter() - wall, time.process_time() - cpu, result


def run_ours(bench, path, ids_file, args, length, dtype, tokens):
    out = subprocess.run(
        [bench, "--model", path, "--length", str(length), "--tokens", str(tokens), "--dtype", dtype, "--threads",
         str(args.threads), "--repeat", "1", "--ids", ids_file], check=True, capture_output=True, text=True)
    return json.loads(out.stdout)


def compare(args, name, length, dtype):
    path = os.path.join(args.models, name)
    n_seq = max(1, args.tokens // length)
    tokens = n_seq * length
    vocab = json.load(open(os.path.join(path, "config.json")))["vocab_size"]
    windows = np.random.default_rng(1).integers(0, vocab, (n_seq, length + 1), dtype=np.uint32)
    ids = torch.from_numpy(windows[:, :-1].astype(np.int64))
    targets = torch.from_numpy(windows[:, 1:].astype(np.int64))
    calls = peers(path, dtype, length)
    ours, theirs, cpu = [], {k: [] for k in calls}, {k: [] for k in calls}
    nll = {}
    for k, call in list(calls.items()):
        try:
            nll[k] = timed(call, ids, targets)[2].double().mean().item()  # compiles, warms up
        except Exception as e:  # noqa: BLE001  a peer that cannot run is left out, aloud
            print(f"{name} {dtype} {length}: no {k}: {type(e).__name__}", file=sys.stderr)
            del calls[k]
    with tempfile.NamedTemporaryFile(suffix=".ids") as f:
        windows.tofile(f.name)
        for _ in range(args.rounds):
            ours.append(run_ours(args.bench, path, f.name, args, length, dtype, tokens))
            for k, call in calls.items():
                wall, busy, _ = timed(call, ids, targets)
                theirs[k].append(wall)
                cpu[k].append(busy)
    median = lambda key: statistics.median(o[key] for o in ours)
    best = min(calls, key=lambda k: statistics.median(theirs[k]))
    peer = tokens / statistics.median(theirs[best])
    best_cpu = min(statistics.median(cpu[k]) for k in calls)
    our_cpu = median("cpu_s")
    row = {
        "model": name, "dtype": dtype, "length": length, "tokens_per_s": median("tokens_per_s"), "peer": best,
        "peer_tokens_per_s": peer, "ratio": median("tokens_per_s") / peer, "ratio_cpu_time": best_cpu / our_cpu,
        "of_onednn": median("of_onednn"), "of_onednn_cpu_time": median("of_onednn_cpu_time"),
        "nll": median("nll_mean"), "peer_nll": nll[best],
        "all": {k: tokens / statistics.median(v) for k, v in theirs.items() if v},
    }
    print(f"{name:10} {dtype:4} {length:6} {row['tokens_per_s']:8.0f} {peer:8.0f} {best:18} {row['ratio']:6.2f} "
          f"{row['ratio_cpu_time']:6.2f} {row['of_onednn']:6.2f} {row['of_onednn_cpu_time']:6.2f} "
          f"{row['nll']:.4f}/{row['peer_nll']:.4f}", flush=True)
    return row


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--bench", default="build/bench_score")
    p.add_argument("--models", default="../shared/models")
    p.add_argument("--lengths", default="1024,10240")
    p.add_argument("--dtypes", default="f32,bf16")
    p.add_argument("--tokens", type=int, default=4096)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--json", help="write the rows here")
    p.add_argument("names", nargs="*", default=["rope-29m", "pope-29m"])
    args = p.parse_args()
    torch.set_num_threads(args.threads)
    print(f"PyTorch {torch.__version__}, {args.threads} threads, {torch.backends.cpu.get_cpu_capability()}")
    print("model      type length  ours t/s peer t/s best peer           ratio by cpu /oneDNN by cpu nll ours/peer")
    rows = [compare(args, n, int(l), d) for n in args.names for d in args.dtypes.split(",") for l in args.lengths.split(",")]
    if args.json:
        json.dump(rows, open(args.json, "w"), indent=1)


if __name__ == "__main__":
    main()
