#!/usr/bin/env python3
"""Speed of the CUDA engine beside PyTorch's on the same device in one run: one table, with ratios and shares of the floor.

    bench_gpu.py [--bench build/bench_gpu] [--only attention,score,llama,long] [--models 124M,774M] [--schemes rope,pope]
                 [--shapes 32x1024,4x10240] [--repeat 12] [--peers-only] [--out DIR]

Floor: all FLOPs (of attention's square the causal half) at 790 TFLOP/s, what an H200 reaches in large bf16 products.
Attention: cuDNN's through scaled_dot_product_attention, and FlashAttention's beside it where PyTorch has a kernel for the shape.

Scoring: the peer is what a PyTorch expert writes: a plain pre-norm decoder in bf16, fused q, k, v, blocks compiled (one
compilation serves all layers: as fast as the whole model's, 124M: 1593k against 1590k tokens/s on an H200, and done in seconds),
cuDNN attention, PoPE as queries and keys of twice the width, the loss compiled over chunks of 4096 rows, the vocabulary padded
for its product's sake, f32 log-sum-exp of bf16 logits; the best of eager and compiled counts. Beside it two more:
`f32`, the same with logits that are not rounded to bf16, as ours are not, thus like with like;
`plain`, the loss as it is usually written: eager, the vocabulary as it is, 50257, which makes its product slow.
Both sides read the same weights from one checkpoint and score the same tokens. `rms` is how far a token's log-probability is
from the f32 peer's, so that an engine that is fast and wrong shows. Our time is session_score's wall clock, transfers and host
work included; the peer's is the device's. Needs torch, safetensors, and for Llama's rows transformers.
"""
import argparse
import gc
import importlib.util
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
from safetensors.torch import load_file, save_file
from torch.nn.attention import SDPBackend, sdpa_kernel

PEAK = 790e12  # FLOP/s
VOCAB = 50257
CHUNK = 4096  # rows of the peer's loss
HEAD_DIM = 64
MODELS = {"124M": (768, 12, 12), "774M": (1280, 36, 20)}  # dim, layers, heads: the paper's
# d_qk, d_v, heads, pope
ATTENTION = [(128, 64, 12, True), (64, 64, 12, False), (128, 128, 32, False), (256, 128, 32, True)]
ATTENTION_LENGTHS = ["32x1024", "4x10240", "1x32768"]
LONG = 131072
LONG_MB = 12000

# at least, aim: ratios of our speed to the peer's
BARS_ATTENTION = {"32x1024": (0.90, 1.2), "other": (0.75, 1.0), "128/64": (0.80, 1.0)}
BARS_SCORE = {("124M", "32x1024"): (2.0, 3.0), ("124M", "4x10240"): (1.6, 2.3)}
BARS_774M = (1.25, 1.5)
BARS_POPE = (1.20, 1.13)  # PoPE's time over RoPE's: at most


def say(text=""):
    print(text, flush=True)


def parse_shape(text):
    n, length = text.split("x")
    return int(n), int(length)


def attention_flops(n_seq, length, n_head, d_qk, d_v):
    return 2.0 * n_seq * n_head * (d_qk + d_v) * length * length / 2


def model_flops(model, pope, n_seq, length):
    dim, n_layer, n_head = MODELS[model]
    linear = 2.0 * 12 * dim * dim * n_layer + 2.0 * dim * VOCAB
    d_qk = 2 * HEAD_DIM if pope else HEAD_DIM
    return n_seq * length * linear + n_layer * attention_flops(n_seq, length, n_head, d_qk, HEAD_DIM)


def timed(call, repeat):
    """Seconds on the device: the median over calls with 0, 1, ... after two that warm up."""
    for i in range(2):
        call(i)
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(repeat + 1)]
    marks[0].record()
    for i in range(repeat):
        call(i)
        marks[i + 1].record()
    torch.cuda.synchronize()
    return statistics.median(a.elapsed_time(b) for a, b in zip(marks, marks[1:])) / 1e3


def release():
    gc.collect()
    torch.cuda.empty_cache()


# -- our side -----------------------------------------------------------------------------------------------


def ours(args, *words):
    """The JSON that bench_gpu prints, or None, aloud."""
    if args.peers_only:
        return None
    release()
    free = torch.cuda.mem_get_info()[0]
    try:
        done = subprocess.run([args.bench, *map(str, words)], capture_output=True, text=True, timeout=args.timeout)
    except (OSError, subprocess.TimeoutExpired) as e:
        say(f"  ours: {e}")
        return None
    if done.returncode:
        say(f"  ours: exit {done.returncode}: {done.stderr.strip()[-600:]}")
        return None
    result = json.loads(done.stdout)
    result["device_mb"] = (free - result["min_free_bytes"]) / 1e6  # the context's memory too
    return result


# -- the peer -----------------------------------------------------------------------------------------------


class Block(torch.nn.Module):
    """One layer of the project's family: no biases, each head with its own keys, plain MLP."""

    def __init__(self, weights, layer, n_head, pope):
        super().__init__()
        get = lambda name: weights[f"model.layers.{layer}.{name}"]
        keep = lambda t: torch.nn.Parameter(t.cuda(), requires_grad=False)
        self.n_head, self.pope = n_head, pope
        self.n1, self.n2 = keep(get("input_layernorm.weight")), keep(get("post_attention_layernorm.weight"))
        self.qkv = keep(torch.cat([get(f"self_attn.{p}_proj.weight") for p in "qkv"]))
        self.o, self.up, self.down = (keep(get(f"{n}.weight")) for n in ("self_attn.o_proj", "mlp.up_proj", "mlp.down_proj"))
        if pope:
            delta = get("self_attn.pope_delta").clamp(-2 * math.pi, 0)[:, None, :]
            self.cos_delta, self.sin_delta = keep(delta.cos()), keep(delta.sin())

    def rotate(self, x, cos, sin):
        """x [batch, head, length, d] -> what the product multiplies; cos and sin are f32"""
        x, t = x.float(), x.dtype
        if self.pope:
            mu = F.softplus(x)
            return torch.cat([mu * cos, mu * sin], -1).to(t)
        a, b = x.chunk(2, -1)
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1).to(t)

    def forward(self, x, cos, sin):
        batch, n, dim = x.shape
        h = F.rms_norm(x, (dim,), self.n1, 1e-5)
        q, k, v = F.linear(h, self.qkv).view(batch, n, 3, self.n_head, HEAD_DIM).permute(2, 0, 3, 1, 4)
        q = self.rotate(q, cos, sin)
        if self.pope:
            cos, sin = cos * self.cos_delta - sin * self.sin_delta, sin * self.cos_delta + cos * self.sin_delta
        k = self.rotate(k, cos, sin)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=HEAD_DIM**-0.5)
        x = x + F.linear(y.transpose(1, 2).reshape(batch, n, dim), self.o)
        h = F.rms_norm(x, (dim,), self.n2, 1e-5)
        return x + F.linear(F.gelu(F.linear(h, self.up), approximate="tanh"), self.down)


class Head(torch.nn.Module):
    """The loss of a chunk of rows. The vocabulary is padded, so that the product's rows are aligned."""

    def __init__(self, norm, table):
        super().__init__()
        self.norm = torch.nn.Parameter(norm.cuda(), requires_grad=False)
        pad = -len(table) % 128
        self.w = torch.nn.Parameter(F.pad(table.cuda(), (0, 0, 0, pad)), requires_grad=False)
        self.plain = torch.nn.Parameter(table.cuda(), requires_grad=False)
        self.kind = ""

    def forward(self, h, targets):
        h = F.rms_norm(h, (h.shape[-1],), self.norm, 1e-5)
        if self.kind == "f32":
            logits = torch.mm(h, self.w.t(), out_dtype=torch.float32)
        else:
            logits = F.linear(h, self.plain if self.kind == "plain" else self.w).float()
        return F.cross_entropy(logits[:, :VOCAB], targets, reduction="none")


class Model(torch.nn.Module):
    def __init__(self, weights, model, pope, length):
        super().__init__()
        _, n_layer, n_head = MODELS[model]
        self.embed = torch.nn.Parameter(weights["model.embed_tokens.weight"].cuda(), requires_grad=False)
        self.blocks = torch.nn.ModuleList(Block(weights, i, n_head, pope) for i in range(n_layer))
        self.head = Head(weights["model.norm.weight"], weights["model.embed_tokens.weight"])
        n = HEAD_DIM if pope else HEAD_DIM // 2
        theta = 1e4 ** (-torch.arange(n, dtype=torch.float64) / n)
        angle = torch.arange(length, dtype=torch.float64)[:, None] * theta
        self.cos, self.sin = angle.cos().float().cuda(), angle.sin().float().cuda()

    def hidden(self, ids):
        x = F.embedding(ids, self.embed)
        for block in self.blocks:
            x = block(x, self.cos, self.sin)
        return x

    def forward(self, ids, targets):
        h, t = self.hidden(ids).flatten(0, 1), targets.flatten()
        return torch.cat([self.head(h[i : i + CHUNK], t[i : i + CHUNK]) for i in range(0, len(h), CHUNK)])


def run_peer(model, batches, kind, repeat):
    """tokens/s, log-probabilities of the first batch's tokens, seconds before the first result"""
    parts = [*model.blocks] if kind == "plain" else [*model.blocks, model.head]
    with torch.no_grad(), sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
        torch._dynamo.reset()
        call, model.head.kind = model, kind
        if kind == "whole":
            call = torch.compile(model, dynamic=False)
        elif kind != "eager":
            for m in parts:
                m.compile(dynamic=False)
        start = time.time()
        scores = -call(*batches[0]).float().cpu().numpy()
        start = time.time() - start
        seconds = timed(lambda i: call(*batches[i % len(batches)]), repeat)
        for m in parts:
            m._compiled_call_impl = None
    return batches[0][0].numel() / seconds, scores, start


def run_llama(model, batches, repeat):
    """transformers' LlamaForCausalLM of the nearest shape (a gated MLP of as many FLOPs), eager, random weights: tokens/s"""
    from transformers import LlamaConfig, LlamaForCausalLM

    dim, n_layer, n_head = MODELS[model]
    config = LlamaConfig(
        vocab_size=VOCAB, hidden_size=dim, intermediate_size=-(-8 * dim // 3 // 128) * 128, num_hidden_layers=n_layer,
        num_attention_heads=n_head, num_key_value_heads=n_head, max_position_embeddings=batches[0][0].shape[1],
        tie_word_embeddings=True, attn_implementation="sdpa")
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda"):
        llama = LlamaForCausalLM(config).eval()
    torch.set_default_dtype(torch.float32)

    def call(i):
        ids, targets = batches[i % len(batches)]
        logits, t = llama(input_ids=ids, use_cache=False).logits.flatten(0, 1), targets.flatten()
        return [F.cross_entropy(logits[r : r + CHUNK].float(), t[r : r + CHUNK], reduction="none")
                for r in range(0, len(t), CHUNK)]

    with torch.no_grad():
        return batches[0][0].numel() / timed(call, repeat)


# -- checkpoints and tokens ---------------------------------------------------------------------------------


def write_model(path, model, pope):
    """Weights N(0, .02), but for those of queries and keys, twice that, so that attention is not nearly uniform."""
    dim, n_layer, n_head = MODELS[model]
    torch.manual_seed(1)
    normal = lambda n, k, std=0.02: (torch.randn(n, k, device="cuda") * std).bfloat16().cpu()
    ones = torch.ones(dim, dtype=torch.bfloat16)
    w = {"model.embed_tokens.weight": normal(VOCAB, dim), "model.norm.weight": ones.clone()}
    for i in range(n_layer):
        p = f"model.layers.{i}."
        w[p + "input_layernorm.weight"], w[p + "post_attention_layernorm.weight"] = ones.clone(), ones.clone()
        for name in "qkvo":
            w[f"{p}self_attn.{name}_proj.weight"] = normal(dim, dim, 0.04 if name in "qk" else 0.02)
        w[p + "mlp.up_proj.weight"], w[p + "mlp.down_proj.weight"] = normal(4 * dim, dim), normal(dim, 4 * dim)
        if pope:
            w[p + "self_attn.pope_delta"] = -2 * math.pi * torch.rand(n_head, HEAD_DIM)
    os.makedirs(path)
    save_file(w, os.path.join(path, "model.safetensors"))
    config = {
        "architectures": ["PopeForCausalLM"], "model_type": "pope", "position_embedding_type": "pope" if pope else "rope",
        "hidden_size": dim, "num_hidden_layers": n_layer, "num_attention_heads": n_head, "num_key_value_heads": n_head,
        "head_dim": HEAD_DIM, "intermediate_size": 4 * dim, "hidden_act": "gelu_pytorch_tanh", "mlp_gated": False,
        "rms_norm_eps": 1e-5, "vocab_size": VOCAB, "max_position_embeddings": 1024, "rope_theta": 10000.0,
        "rope_scaling": None, "attention_scale": None, "tie_word_embeddings": True, "attention_bias": False,
        "mlp_bias": False, "bos_token_id": None, "eos_token_id": 0, "torch_dtype": "bfloat16",
    }
    with open(os.path.join(path, "config.json"), "w") as f:
        json.dump(config, f)


def make_batches(n_seq, length, n):
    """Windows of length + 1 token ids, as one array for us, and as pairs of inputs and targets for the peer."""
    windows = np.random.default_rng(1).integers(0, VOCAB, (n, n_seq, length + 1), dtype=np.uint32)
    t = torch.from_numpy(windows.astype(np.int64)).cuda()
    return windows, [(w[:, :-1].contiguous(), w[:, 1:].contiguous()) for w in t]


# -- the rows -----------------------------------------------------------------------------------------------

COLUMNS = (f"{'what':34} {'ours':>9} {'peer':>9} {'unit':9} {'ratio':>6} {'/f32':>6} {'/plain':>6} {'floor%':>6} {'peer%':>6} "
           f"{'least':>6} {'aim':>6} {'verdict':8} also")


def format_row(r):
    number = lambda x, form: "-" if x is None else format(x, form)
    big = lambda x: number(x, ".0f" if x and x >= 100 else ".3f")
    pct = lambda x: number(x and 100 * x, ".0f")
    ratios = " ".join(f"{number(r[k], '.2f'):>6}" for k in ("ratio", "ratio_f32", "ratio_plain"))
    return (f"{r['what']:34} {big(r['ours']):>9} {big(r['peer']):>9} {r['unit']:9} {ratios} {pct(r['floor']):>6} "
            f"{pct(r['peer_floor']):>6} {number(r['least'], '.2f'):>6} {number(r['aim'], '.2f'):>6} {r['verdict']:8} {r['also']}")


def judge(ratio, bars, at_most=False):
    if ratio is None or not bars:
        return ""
    reach = lambda bar: ratio <= bar if at_most else ratio >= bar
    return "aim" if reach(bars[1]) else "ok" if reach(bars[0]) else "LOW"


def add_row(rows, what, our, peer, unit, bars, rate, also, at_most=False, others={}):
    """rate: figure -> share of the floor. at_most: ours itself is the ratio, and smaller is better. The verdict is against the
    peer, and after a slash against the plain one."""
    over = lambda x: our / x if our and x else None
    ratio, plain = our if at_most else over(peer), over(others.get("plain"))
    verdict = judge(ratio, bars, at_most) + (f"/{judge(plain, bars)}" if plain else "")
    row = {"what": what, "ours": our, "peer": peer, "unit": unit, "ratio": ratio, "ratio_f32": over(others.get("f32")),
           "ratio_plain": plain, "floor": rate(our) if our and rate else None,
           "peer_floor": rate(peer) if peer and rate else None, "least": bars and bars[0],
           "aim": bars and bars[1], "verdict": verdict, "also": also, "peers": others}
    rows.append(row)
    say(format_row(row))


def attention_peer(backend, d_qk, d_v, n_head, n_seq, length, repeat):
    """FLOP/s, or None where the backend does not take the shape"""
    make = lambda d: [torch.randn(n_seq, n_head, length, d, device="cuda", dtype=torch.bfloat16) for _ in range(3)]
    q, k, v = make(d_qk), make(d_qk), make(d_v)
    try:
        with torch.no_grad(), sdpa_kernel(backend):
            call = lambda i: F.scaled_dot_product_attention(q[i], k[i], v[i], is_causal=True, scale=d_v**-0.5)
            s = timed(lambda i: call(i % 3), repeat)
    except RuntimeError:
        return None
    return attention_flops(n_seq, length, n_head, d_qk, d_v) / s


def attention_rows(args, rows):
    for shape in args.attention_shapes:
        n_seq, length = parse_shape(shape)
        for d_qk, d_v, n_head, pope in ATTENTION:
            size = (d_qk, d_v, n_head, n_seq, length)
            cudnn = attention_peer(SDPBackend.CUDNN_ATTENTION, *size, 2 * args.repeat)
            flash = None if pope else attention_peer(SDPBackend.FLASH_ATTENTION, *size, args.repeat)
            our = ours(args, "--attention", "--head-dim", d_v, "--heads", n_head, "--sequences", n_seq, "--length", length,
                       "--repeat", 2 * args.repeat, *(["--pope"] if pope else []))
            name = f"{d_qk}/{d_v}"
            bars = BARS_ATTENTION[shape if shape == "32x1024" else name if name in BARS_ATTENTION else "other"]
            also = f"FlashAttention-2 {flash / 1e12:.0f}" if flash else "FlashAttention-2 does not take it"
            also += f"; max error {our['max_error']:.1e}" if our else ""
            add_row(rows, f"attention {name} {'PoPE' if pope else 'RoPE'} {n_head}h {shape}", our and our["flops_per_s"] / 1e12,
                    cudnn and cudnn / 1e12, "TFLOP/s", bars, lambda x: x * 1e12 / PEAK, also)


def score_config(args, rows, path, weights, model, pope, shape):
    n_seq, length = parse_shape(shape)
    windows, batches = make_batches(n_seq, length, 2)
    our = None
    with tempfile.TemporaryDirectory() as tmp:
        ids, scores = os.path.join(tmp, "ids"), os.path.join(tmp, "scores")
        windows.tofile(ids)
        our = ours(args, "--model", path, "--sequences", n_seq, "--length", length, "--batches", 2, "--ids", ids, "--scores",
                   scores, "--repeat", args.repeat)
        our_scores = our and np.fromfile(scores, dtype=np.float32)
    peer = Model(weights, model, pope, length).eval()
    speed, logprobs, starts = {}, None, {}
    for kind in args.kinds:
        repeat = args.repeat if kind == args.kinds[0] else args.repeat // 2
        speed[kind], got, starts[kind] = run_peer(peer, batches, kind, repeat)
        logprobs = got if logprobs is None or kind == "f32" else logprobs
    best = max(speed.values())
    del peer
    release()
    also = " ".join(f"{k} {v / 1e3:.0f}k" for k, v in speed.items()) + f"; nll {-logprobs.mean():.4f}"
    if our:
        rms = float(np.sqrt(np.mean((our_scores - logprobs) ** 2)))
        also += (f", ours {-our_scores.mean():.4f}, rms {rms:.4f}; {our['ms']:.2f} ms, host {our['host_ms']:.2f}; "
                 f"{our['device_mb'] / 1e3:.1f} GB")
    flops = model_flops(model, pope, n_seq, length) / (n_seq * length)
    bars = BARS_SCORE.get((model, shape), BARS_774M)
    add_row(rows, f"score {model} {'PoPE' if pope else 'RoPE'} {shape}", our and our["tokens_per_s"], best, "tokens/s", bars,
            lambda x: x * flops / PEAK, also, others=speed)
    if our:
        say("  ours by op, ms: " + " ".join(f"{k} {v:.2f}" for k, v in our["ops_ms"].items()))
    rows[-1].update(result=our, first_s=starts)


def score_rows(args, rows):
    for model in args.models:
        for scheme in args.schemes:
            with tempfile.TemporaryDirectory() as tmp:
                path = os.path.join(tmp, f"{scheme}-{model}")
                write_model(path, model, scheme == "pope")
                weights = load_file(os.path.join(path, "model.safetensors"))
                for shape in args.shapes:
                    score_config(args, rows, path, weights, model, scheme == "pope", shape)
                del weights
            release()
    by_name = {r["what"]: r["ours"] for r in rows}
    rope, pope = by_name.get("score 774M RoPE 4x10240"), by_name.get("score 774M PoPE 4x10240")
    if rope and pope:
        add_row(rows, "time PoPE / RoPE, 774M 4x10240", rope / pope, None, "", BARS_POPE, None, "", at_most=True)


def llama_rows(args, rows):
    if not importlib.util.find_spec("transformers"):
        say("  llama: no transformers here")
        return
    for model in args.models:
        for shape in args.shapes:
            speed = run_llama(model, make_batches(*parse_shape(shape), 2)[1], args.repeat)
            release()
            our = {r["what"]: r["ours"] for r in rows}.get(f"score {model} RoPE {shape}")
            add_row(rows, f"transformers Llama {model} {shape}", our, speed, "tokens/s", None, None,
                    "eager, SDPA; ours: RoPE's row")


def long_row(args, rows):
    """One sequence of 131072 tokens: that it works, and in how much memory."""
    with tempfile.TemporaryDirectory() as tmp:
        path, ids = os.path.join(tmp, "pope-124M"), os.path.join(tmp, "ids")
        write_model(path, "124M", True)
        weights = load_file(os.path.join(path, "model.safetensors"))
        windows, batches = make_batches(1, LONG, 1)
        windows.tofile(ids)
        our = ours(args, "--model", path, "--sequences", 1, "--length", LONG, "--ids", ids, "--scores", ids + ".out",
                   "--repeat", 3)
        our_scores = our and np.fromfile(ids + ".out", dtype=np.float32)
    peer = Model(weights, "124M", True, LONG).eval()
    torch.cuda.reset_peak_memory_stats()
    speed, logprobs, _ = run_peer(peer, batches, "eager", 3)
    also = f"eager peer; its peak {torch.cuda.max_memory_allocated() / 1e9:.1f} GB"
    flops = model_flops("124M", True, 1, LONG) / LONG
    if our:
        also += f"; rms {float(np.sqrt(np.mean((our_scores - logprobs) ** 2))):.4f}"
    add_row(rows, "score 124M PoPE 1x131072", our and our["tokens_per_s"], speed, "tokens/s", None, lambda x: x * flops / PEAK,
            also)
    if our:
        add_row(rows, "its peak device memory, GB", our["device_mb"] / 1e3, None, "GB", (LONG_MB / 1e3, LONG_MB / 1e3), None,
                "context included", at_most=True)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words = lambda text: text.split(",")
    p.add_argument("--bench", default="build/bench_gpu")
    p.add_argument("--only", type=words, default=["attention", "score", "llama", "long"])
    p.add_argument("--models", type=words, default=list(MODELS))
    p.add_argument("--schemes", type=words, default=["rope", "pope"])
    p.add_argument("--shapes", type=words, default=["32x1024", "4x10240"], help="of scoring: sequences x length")
    p.add_argument("--attention-shapes", type=words, default=ATTENTION_LENGTHS)
    p.add_argument("--kinds", type=words, default=["compiled", "eager", "f32", "plain"],
                   help="of peers; also 'whole': compiled at once")
    p.add_argument("--repeat", type=int, default=12)
    p.add_argument("--timeout", type=float, default=60, help="seconds for one run of ours")
    p.add_argument("--peers-only", action="store_true")
    p.add_argument("--out", help="a folder for bench_gpu.json and the table, bench_gpu.txt")
    args = p.parse_args()
    if not torch.cuda.is_available():
        sys.exit("bench_gpu: no CUDA device")
    if not args.peers_only and not os.access(args.bench, os.X_OK):
        sys.exit(f"bench_gpu: no {args.bench}: make it first, or give --peers-only")
    start, rows = time.time(), []
    say(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}, cuDNN {torch.backends.cudnn.version()}")
    say(COLUMNS)
    for name, call in (("attention", attention_rows), ("score", score_rows), ("llama", llama_rows), ("long", long_row)):
        if name in args.only:
            t = time.time()
            call(args, rows)
            release()
            say(f"  {name}: {time.time() - t:.0f} s")
    low = [r["what"] for r in rows if r["verdict"].startswith("LOW")]
    say(f"{time.time() - start:.0f} s; " + (f"below the bar: {', '.join(low)}" if low else "no row below its bar"))
    if args.out:
        os.makedirs(args.out, exist_ok=True)
        with open(os.path.join(args.out, "bench_gpu.txt"), "w") as f:
            f.writelines(line + "\n" for line in (COLUMNS, *map(format_row, rows)))
        with open(os.path.join(args.out, "bench_gpu.json"), "w") as f:
            json.dump(rows, f, indent=1)


if __name__ == "__main__":
    main()
