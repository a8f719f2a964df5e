"""The project's model family in plain PyTorch, float32, and lm-eval's view of it.

Written from the design (checkpoints) and the maths of RoPE and PoPE, for equality rather than speed: scores by their
formula, a causal mask, no attention kernel. Sequences of a batch are padded on the right, where a causal model does not
look.
"""

import json
import math
import os

import torch
import torch.nn.functional as F
from lm_eval.api.model import TemplateLM
from safetensors.torch import load_file
from tokenizers import Tokenizer

ACTIVATIONS = {"silu": F.silu, "gelu": F.gelu, "gelu_pytorch_tanh": lambda x: F.gelu(x, approximate="tanh")}


class Decoder:
    """logits(ids [batch, n]) -> [batch, n, vocab]"""

    def __init__(self, folder):
        self.config = c = json.load(open(os.path.join(folder, "config.json")))
        assert c["architectures"] == ["PopeForCausalLM"] and not c.get("rope_scaling") and not c.get("attention_bias")
        self.kind, self.n_head, self.d = c["position_embedding_type"], c["num_attention_heads"], c["head_dim"]
        assert self.kind in ("rope", "pope")
        self.scale = c.get("attention_scale") or self.d**-0.5
        self.w = {}
        index = os.path.join(folder, "model.safetensors.index.json")
        files = set(json.load(open(index))["weight_map"].values()) if os.path.exists(index) else ["model.safetensors"]
        for name in files:
            self.w.update({k: v.float() for k, v in load_file(os.path.join(folder, name)).items()})
        self.head = self.w["model.embed_tokens.weight" if c["tie_word_embeddings"] else "lm_head.weight"]
        # PoPE has a frequency for each element, RoPE for each pair (i, i + d/2): b^(-c/n) with n of them.
        n = self.d if self.kind == "pope" else self.d // 2
        self.theta = c["rope_theta"] ** (-torch.arange(n, dtype=torch.float64) / n)

    def norm(self, x, name):
        return self.w[name] * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.config["rms_norm_eps"]))

    def scores(self, q, k, layer):
        """q [batch, head, n, d], k [batch, kv head, n, d] -> [batch, head, n, n], unscaled"""
        phase = torch.arange(q.shape[2], dtype=torch.float64)[:, None] * self.theta
        cos, sin = phase.cos().float(), phase.sin().float()
        if self.kind == "rope":
            turn = lambda x: (lambda a, b: torch.cat([a * cos - b * sin, b * cos + a * sin], -1))(*x.chunk(2, -1))
            q, k = turn(q), turn(k)
        else:  # softplus(q_c) softplus(k_c) cos((s - t) theta_c + delta_c), as a product of vectors of 2d
            delta = self.w[f"{layer}.self_attn.pope_delta"].clamp(-2 * math.pi, 0)[:, None, :].double()
            q, k = F.softplus(q), F.softplus(k)
            q = torch.cat([q * cos, q * sin], -1)
            k = torch.cat([k * (phase + delta).cos().float(), k * (phase + delta).sin().float()], -1)
        return q @ k.repeat_interleave(self.n_head // k.shape[1], 1).transpose(-1, -2)

    def logits(self, ids):
        batch, n = ids.shape
        later = torch.ones(n, n, dtype=torch.bool).triu(1)
        x = self.w["model.embed_tokens.weight"][ids]
        for i in range(self.config["num_hidden_layers"]):
            layer = f"model.layers.{i}"
            linear = lambda h, name: F.linear(h, self.w[f"{layer}.{name}_proj.weight"])
            heads = lambda h: h.view(batch, n, -1, self.d).transpose(1, 2)
            h = self.norm(x, f"{layer}.input_layernorm.weight")
            q, k, v = (heads(linear(h, f"self_attn.{p}")) for p in "qkv")
            p = (self.scores(q, k, layer) * self.scale).masked_fill(later, -math.inf).softmax(-1)
            y = p @ v.repeat_interleave(self.n_head // v.shape[1], 1)
            x = x + linear(y.transpose(1, 2).reshape(batch, n, -1), "self_attn.o")
            h = self.norm(x, f"{layer}.post_attention_layernorm.weight")
            act = ACTIVATIONS[self.config["hidden_act"]]
            if self.config["mlp_gated"]:
                x = x + linear(act(linear(h, "mlp.gate")) * linear(h, "mlp.up"), "mlp.down")
            else:
                x = x + linear(act(linear(h, "mlp.up")), "mlp.down")
        return F.linear(self.norm(x, "model.norm.weight"), self.head)


class ProjectLM(TemplateLM):
    """A checkpoint of the project's family as lm-eval sees a model."""

    def __init__(self, folder, batch_size=16):
        super().__init__()
        self.decoder, self.batch_size = Decoder(folder), batch_size
        self.encoder = Tokenizer.from_file(os.path.join(folder, "tokenizer.json"))
        self.max_length = self.decoder.config["max_position_embeddings"]

    @property
    def eot_token_id(self):
        return self.decoder.config["eos_token_id"]

    @property
    def prefix_token_id(self):
        bos = self.decoder.config.get("bos_token_id")
        return self.eot_token_id if bos is None else bos

    def tok_encode(self, string, add_special_tokens=None, **kwargs):
        return self.encoder.encode(string, add_special_tokens=add_special_tokens is not False).ids

    def score(self, rows):
        """[(ids, n scored at the end)] -> [(log-probability, all of them the argmax)]"""
        width = max(len(ids) for ids, _ in rows) - 1
        batch = torch.zeros(len(rows), width, dtype=torch.long)
        for row, (ids, _) in zip(batch, rows):
            row[: len(ids) - 1] = torch.tensor(ids[:-1])
        with torch.inference_mode():
            logits = self.decoder.logits(batch)
            out = []
            for of_row, (ids, n) in zip(logits, rows):
                target = torch.tensor(ids[-n:])
                logprobs = of_row[len(ids) - 1 - n : len(ids) - 1].double().log_softmax(-1)
                out.append(
                    (logprobs.gather(1, target[:, None]).sum().item(), bool((logprobs.argmax(-1) == target).all()))
                )
        return out

    def _loglikelihood_tokens(self, requests, **kwargs):
        kept = [((context + rest)[-(self.max_length + 1) :], len(rest)) for _, context, rest in requests]
        order = sorted(range(len(kept)), key=lambda i: -len(kept[i][0]))
        out = [None] * len(kept)
        for at in range(0, len(order), self.batch_size):
            part = order[at : at + self.batch_size]
            for i, answer in zip(part, self.score([kept[i] for i in part])):
                out[i] = answer
        return out

    def loglikelihood_rolling(self, requests, disable_tqdm=False):
        raise NotImplementedError("no task here asks for it")

    def generate_until(self, requests, disable_tqdm=False):
        raise NotImplementedError("no task here asks for it")
