"""Trains the three demo models: RoPE, YaRN (the RoPE model tuned to 4x its context) and PoPE, about 2.9M parameters each.

    python3 eval/demo/train.py --corpus train.txt.xz --test 'test/*.txt' --out eval/demo

Needs one CUDA GPU (a minute of training a model on an H200), PyTorch, tokenizers and safetensors; none of them is needed to
use fathom. Writes OUT/{rope,yarn,pope}-demo/{config.json,model.safetensors,tokenizer.json} and OUT/training.json (settings,
seeds, losses, perplexity against length on the test books). README.md in this folder is the model card.

The corpus is text whose documents end with a line `<|endoftext|>`; the test books only measure, nothing is selected by them.
"""

import argparse
import glob
import hashlib
import json
import lzma
import math
import os
import time

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import nn

END = "<|endoftext|>"
DEVICE = "cuda"
BASE = 10000.0  # of the frequencies, as in all three papers


# -- data ----------------------------------------------------------------------------------------


def read_text(path):
    opener = lzma.open if path.endswith(".xz") else open
    with opener(path, "rt", encoding="utf-8", errors="replace", newline="") as f:
        return f.read().replace("\r\n", "\n").replace("\r", "\n")


def train_tokenizer(documents, n_vocab):
    """Byte-level BPE on every tenth 2,000-character piece of the corpus."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=n_vocab,
        special_tokens=[END],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    pieces = (d[i : i + 2000] for d in documents for i in range(0, len(d), 20000))
    tokenizer.train_from_iterator(pieces, trainer)
    return tokenizer


def encode(tokenizer, documents):
    """All documents as one array of ids. Encoded in pieces, cut at newlines, to use all cores."""
    pieces = []
    for d in documents:
        start = 0
        while start < len(d):
            cut = d.find("\n", start + 100000)
            cut = len(d) if cut < 0 else cut
            pieces.append(d[start:cut])
            start = cut
        pieces.append(END)
    return np.concatenate([np.array(e.ids, dtype=np.int32) for e in tokenizer.encode_batch(pieces)])


# -- the model: pre-norm GPT blocks, RMSNorm, no biases, tied embeddings ---------------------------


def frequencies(scheme, head_dim, context, factor):
    """Radians per position of each rotated channel, and the amplitude of cos and sin."""
    if scheme == "pope":
        return BASE ** (-torch.arange(head_dim, dtype=torch.float64) / head_dim), 1.0
    theta = BASE ** (-torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim)
    if scheme == "rope":
        return theta, 1.0

    def channel(turns):  # the channel that makes so many turns within the original context
        return head_dim * math.log(context / (2 * math.pi * turns)) / (2 * math.log(BASE))

    low, high = max(math.floor(channel(32)), 0), min(math.ceil(channel(1)), head_dim - 1)
    ramp = ((torch.arange(head_dim // 2, dtype=torch.float64) - low) / max(high - low, 1e-3)).clamp(0, 1)
    return theta / factor * ramp + theta * (1 - ramp), 0.1 * math.log(factor) + 1


class Norm(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x):
        return F.rms_norm(x, self.weight.shape, self.weight, 1e-5)


class Attention(nn.Module):
    def __init__(self, dim, n_head, scheme):
        super().__init__()
        self.n_head, self.head_dim = n_head, dim // n_head
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (nn.Linear(dim, dim, bias=False) for _ in range(4))
        if scheme == "pope":
            self.pope_delta = nn.Parameter(torch.zeros(n_head, self.head_dim))

    def forward(self, x, angle, amplitude):
        b, t, dim = x.shape
        q, k, v = (p(x).view(b, t, self.n_head, -1).transpose(1, 2) for p in (self.q_proj, self.k_proj, self.v_proj))
        dtype = v.dtype
        if hasattr(self, "pope_delta"):  # magnitude softplus(x), phase t*theta, keys shifted by delta
            shifted = angle + self.pope_delta.clamp(-2 * math.pi, 0)[:, None, :]
            q, k = F.softplus(q.float()), F.softplus(k.float())
            q = torch.cat([q * angle.cos(), q * angle.sin()], -1).to(dtype)
            k = torch.cat([k * shifted.cos(), k * shifted.sin()], -1).to(dtype)
            v = F.pad(v, (0, self.head_dim))  # the fused kernels want one width
        else:
            cos, sin = angle.cos() * amplitude, angle.sin() * amplitude

            def rotate(u):  # pairs (i, i + d/2)
                a, b = u.float().chunk(2, -1)
                return torch.cat([a * cos - b * sin, b * cos + a * sin], -1).to(dtype)

            q, k = rotate(q), rotate(k)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=self.head_dim**-0.5)
        return self.o_proj(y[..., : self.head_dim].transpose(1, 2).reshape(b, t, dim))


class Mlp(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.up_proj, self.down_proj = nn.Linear(dim, 4 * dim, bias=False), nn.Linear(4 * dim, dim, bias=False)

    def forward(self, x):
        return self.down_proj(F.gelu(self.up_proj(x), approximate="tanh"))


class Layer(nn.Module):
    def __init__(self, dim, n_head, scheme):
        super().__init__()
        self.input_layernorm, self.self_attn = Norm(dim), Attention(dim, n_head, scheme)
        self.post_attention_layernorm, self.mlp = Norm(dim), Mlp(dim)

    def forward(self, x, angle, amplitude):
        x = x + self.self_attn(self.input_layernorm(x), angle, amplitude)
        return x + self.mlp(self.post_attention_layernorm(x))


class LanguageModel(nn.Module):
    """Module names are the tensor names of the checkpoint, less the leading `model.`."""

    def __init__(self, o, scheme):
        super().__init__()
        self.scheme, self.head_dim, self.context, self.factor = scheme, o.dim // o.heads, o.context, o.factor
        self.embed_tokens = nn.Embedding(o.vocab, o.dim)
        self.layers = nn.ModuleList(Layer(o.dim, o.heads, scheme) for _ in range(o.layers))
        self.norm = Norm(o.dim)
        nn.init.normal_(self.embed_tokens.weight, std=0.02)
        for name, p in self.named_parameters():
            if name.endswith("proj.weight"):
                residual = name.endswith(("o_proj.weight", "down_proj.weight"))
                nn.init.normal_(p, std=0.02 / (math.sqrt(2 * o.layers) if residual else 1))

    def tables(self, length):
        """Angles in [0, 2pi), reduced in float64, and the amplitude."""
        theta, amplitude = frequencies(self.scheme, self.head_dim, self.context, self.factor)
        angle = torch.arange(length, dtype=torch.float64)[:, None] * theta
        return torch.remainder(angle, 2 * math.pi).float().to(DEVICE), amplitude

    def nll(self, ids, angle, amplitude):
        """[batch, length + 1] ids -> [batch, length] nats of each id but the first."""
        x = self.embed_tokens(ids[:, :-1])
        for layer in self.layers:
            x = layer(x, angle, amplitude)
        logits = self.norm(x) @ self.embed_tokens.weight.T
        return F.cross_entropy(logits.float().flatten(0, 1), ids[:, 1:].flatten(), reduction="none").view(ids.shape[0], -1)


# -- training and measuring ------------------------------------------------------------------------


def train(model, data, o, steps, length, batch, rate, warmup, cosine):
    decayed = [p for n, p in model.named_parameters() if n.endswith(("proj.weight", "embed_tokens.weight"))]
    others = [p for n, p in model.named_parameters() if not n.endswith(("proj.weight", "embed_tokens.weight"))]
    groups = [{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=rate, betas=(0.9, 0.95), fused=True)
    generator = torch.Generator(device=DEVICE).manual_seed(o.seed + 1)
    angle, amplitude = model.tables(length)
    loss_of = torch.compile(lambda ids: model.nll(ids, angle, amplitude).mean())
    offsets = torch.arange(length + 1, device=DEVICE)
    losses = []
    for step in range(steps):
        now = rate * min(1.0, (step + 1) / warmup)
        if cosine:
            now *= 0.1 + 0.45 * (1 + math.cos(math.pi * step / steps))
        for g in optimizer.param_groups:
            g["lr"] = now
        starts = torch.randint(0, data.numel() - length - 1, (batch, 1), device=DEVICE, generator=generator)
        with torch.autocast(DEVICE, dtype=torch.bfloat16):
            loss = loss_of(data[starts + offsets].long())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if step % 500 == 0 or step == steps - 1:
            losses.append([step, round(loss.item(), 4)])
            print(model.scheme, "step", step, "loss", losses[-1][1], flush=True)
    return losses


@torch.no_grad()
def perplexity(model, books, length):
    """Non-overlapping full windows over the first 32,769 tokens of each book."""
    angle, amplitude = model.tables(length)
    total, count = 0.0, 0
    for book in books:
        n = min(book.numel() - 1, 32768) // length
        windows = torch.stack([book[i * length : (i + 1) * length + 1] for i in range(n)]) if n else []
        for w in windows.split(max(1, 65536 // length)) if n else []:
            with torch.autocast(DEVICE, dtype=torch.bfloat16):
                nll = model.nll(w, angle, amplitude).double()
            total, count = total + nll.sum().item(), count + nll.numel()
    return math.exp(total / count)


def save(model, tokenizer, o, path):
    os.makedirs(path, exist_ok=True)
    tensors = {
        "model." + n: p.detach().to(torch.float32 if "pope_delta" in n else torch.bfloat16).contiguous().cpu()
        for n, p in model.named_parameters()
    }
    save_file(tensors, path + "/model.safetensors", metadata={"format": "pt"})
    tokenizer.save(path + "/tokenizer.json")
    yarn = model.scheme == "yarn"
    config = {
        "architectures": ["PopeForCausalLM"],
        "model_type": "pope",
        "position_embedding_type": "pope" if model.scheme == "pope" else "rope",
        "hidden_size": o.dim,
        "num_hidden_layers": o.layers,
        "num_attention_heads": o.heads,
        "num_key_value_heads": o.heads,
        "head_dim": model.head_dim,
        "intermediate_size": 4 * o.dim,
        "hidden_act": "gelu_pytorch_tanh",
        "mlp_gated": False,
        "rms_norm_eps": 1e-5,
        "vocab_size": o.vocab,
        "max_position_embeddings": int(o.context * o.factor) if yarn else o.context,
        "rope_theta": BASE,
        "rope_scaling": None,
        "attention_scale": None,
        "tie_word_embeddings": True,
        "attention_bias": False,
        "mlp_bias": False,
        "bos_token_id": None,
        "eos_token_id": 0,
        "torch_dtype": "bfloat16",
    }
    if yarn:
        config["rope_scaling"] = {
            "rope_type": "yarn",
            "factor": o.factor,
            "original_max_position_embeddings": o.context,
            "beta_fast": 32.0,
            "beta_slow": 1.0,
        }
    with open(path + "/config.json", "w") as f:
        json.dump(config, f, indent=2)
        f.write("\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--corpus", required=True)
    parser.add_argument("--test", required=True, help="glob of books to measure on")
    parser.add_argument("--out", required=True)
    for name, value in {"dim": 256, "layers": 3, "heads": 4, "vocab": 2048, "context": 256, "batch": 512, "steps": 3500,
                        "tune-steps": 200, "seed": 0}.items():
        parser.add_argument("--" + name, type=int, default=value)
    parser.add_argument("--rate", type=float, default=3e-3)
    parser.add_argument("--factor", type=float, default=4.0)
    o = parser.parse_args()
    text = read_text(o.corpus)
    documents = [d for d in text.split(END + "\n") if d.strip()]
    tokenizer = train_tokenizer(documents, o.vocab)
    data = torch.from_numpy(encode(tokenizer, documents)).to(DEVICE)
    books = [torch.tensor(tokenizer.encode(read_text(p)[:400000]).ids, device=DEVICE) for p in sorted(glob.glob(o.test))]
    print(len(documents), "documents,", data.numel(), "tokens,", len(books), "test books", flush=True)

    lengths = [128, 256, 512, 1024, 1536, 2048, 2560, 4096]
    log = {
        "settings": {k: v for k, v in vars(o).items() if k not in ("corpus", "test", "out")},
        "corpus_sha256": hashlib.sha256(text.encode()).hexdigest(),
        "train_tokens": data.numel(),
        "torch": torch.__version__,
        "gpu": torch.cuda.get_device_name(),
        "models": {},
    }
    rope = None
    for scheme in ("rope", "yarn", "pope"):
        torch.manual_seed(o.seed)
        start = time.time()
        model = LanguageModel(o, scheme).to(DEVICE)
        if scheme == "yarn":
            model.load_state_dict(rope.state_dict())
            tuned = int(o.context * o.factor)
            losses = train(model, data, o, o.tune_steps, tuned, o.batch // int(o.factor), o.rate / 10, 20, False)
        else:
            losses = train(model, data, o, o.steps, o.context, o.batch, o.rate, 100, True)
        rope = model if scheme == "rope" else rope
        curve = {n: round(perplexity(model, books, n), 2) for n in lengths}
        print(scheme, curve, f"{time.time() - start:.0f} s", flush=True)
        log["models"][scheme] = {
            "parameters": sum(p.numel() for p in model.parameters()),
            "seconds": round(time.time() - start),
            "losses": losses,
            "perplexity": curve,
        }
        save(model, tokenizer, o, f"{o.out}/{scheme}-demo")
    with open(o.out + "/training.json", "w") as f:
        json.dump(log, f, indent=1)
        f.write("\n")


if __name__ == "__main__":
    main()
