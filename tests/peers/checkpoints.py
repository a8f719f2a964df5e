"""Llamas with random weights, in Hugging Face's form and in the project's from the same tensors.

    checkpoints.py OUT TOKENIZER [--shape small|tiny|124m]     makes OUT/hf and OUT/project

The small one has few positions, so that tasks meet the rule for what is too long; its head is drawn wide, so that
choices differ.
"""

import argparse
import json
import os
import shutil

import torch
from safetensors.torch import save_file

SMALL = {
    "hidden_size": 128,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "intermediate_size": 256,
    "max_position_embeddings": 160,
    "tie_word_embeddings": False,
    "rope_theta": 10000.0,
}
SHAPES = {
    "small": SMALL,
    "tiny": dict(SMALL, max_position_embeddings=2048),
    "124m": {
        "hidden_size": 768,
        "num_hidden_layers": 12,
        "num_attention_heads": 12,
        "num_key_value_heads": 12,
        "head_dim": 64,
        "intermediate_size": 2048,
        "max_position_embeddings": 2048,
        "tie_word_embeddings": True,
        "rope_theta": 10000.0,
    },
}
END = "<|endoftext|>"


def tensors(c, dtype, seed=5):
    """Weights by name. Normal, with a spread that keeps activations near 1, the head's wider."""
    g = torch.Generator().manual_seed(seed)
    draw = lambda rows, columns, std=None: (torch.randn(rows, columns, generator=g) * (std or columns**-0.5)).to(dtype)
    near_one = lambda n: (1 + 0.1 * torch.randn(n, generator=g)).to(dtype)
    dim, kv, ffn = c["hidden_size"], c["num_key_value_heads"] * c["head_dim"], c["intermediate_size"]
    w = {"model.embed_tokens.weight": draw(c["vocab_size"], dim, 0.2), "model.norm.weight": near_one(dim)}
    if not c["tie_word_embeddings"]:
        w["lm_head.weight"] = draw(c["vocab_size"], dim, 0.25)
    for i in range(c["num_hidden_layers"]):
        for name, rows, columns in [
            ("self_attn.q", dim, dim),
            ("self_attn.k", kv, dim),
            ("self_attn.v", kv, dim),
            ("self_attn.o", dim, dim),
            ("mlp.gate", ffn, dim),
            ("mlp.up", ffn, dim),
            ("mlp.down", dim, ffn),
        ]:
            w[f"model.layers.{i}.{name}_proj.weight"] = draw(rows, columns)
        for name in ("input_layernorm", "post_attention_layernorm"):
            w[f"model.layers.{i}.{name}.weight"] = near_one(dim)
    return w


def write_json(folder, name, value):
    with open(os.path.join(folder, name), "w") as f:
        json.dump(value, f, indent=1)


def write_tokenizer(folder, source, bos):
    """tokenizer.json, that puts BOS before a text where `bos`, and what transformers wants beside it."""
    tokenizer = json.load(open(source))
    ids = {t["content"]: t["id"] for t in tokenizer["added_tokens"]}
    if bos:
        template = [{"SpecialToken": {"id": END, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
        tokenizer["post_processor"] = {
            "type": "TemplateProcessing",
            "single": template,
            "pair": template + [{"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {END: {"id": END, "ids": [ids[END]], "tokens": [END]}},
        }
    write_json(folder, "tokenizer.json", tokenizer)
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": END, "eos_token": END, "pad_token": END}
    write_json(folder, "tokenizer_config.json", settings)
    return ids[END]


def make(out, tokenizer, shape, bos=False, dtype=torch.float32):
    """-> (Hugging Face's folder, the project's)"""
    folders = [os.path.join(out, form) for form in ("hf", "project")]
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folder)
        end = write_tokenizer(folder, tokenizer, bos)
    c = dict(
        SHAPES[shape],
        vocab_size=50257,
        rms_norm_eps=1e-5,
        hidden_act="silu",
        attention_bias=False,
        mlp_bias=False,
        bos_token_id=end,
        eos_token_id=end,
        rope_scaling=None,
    )
    w = tensors(c, dtype)
    for folder in folders:
        save_file(w, os.path.join(folder, "model.safetensors"), metadata={"format": "pt"})
    write_json(
        folders[0],
        "config.json",
        dict(c, architectures=["LlamaForCausalLM"], model_type="llama", torch_dtype=str(dtype).removeprefix("torch.")),
    )
    write_json(
        folders[1],
        "config.json",
        dict(
            c,
            architectures=["PopeForCausalLM"],
            model_type="pope",
            mlp_gated=True,
            position_embedding_type="rope",
            attention_scale=None,
        ),
    )
    return folders


if __name__ == "__main__":
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("out")
    p.add_argument("tokenizer")
    p.add_argument("--shape", choices=SHAPES, default="small")
    p.add_argument("--bos", action="store_true")
    p.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32")
    args = p.parse_args()
    make(args.out, args.tokenizer, args.shape, args.bos, getattr(torch, args.dtype))
