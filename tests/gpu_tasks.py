#!/usr/bin/env python3
"""Whole task files on a CUDA device, the 29M models in f32 and bf16, beside the CPU's f32 on a sample
(`make test-gpu-tasks`). Without a device it says so and ends with 0, with FATHOM_REQUIRE_GPU=1 with 1.

    gpu_tasks.py [--fathom build/fathom] [--data build/data] [--models DIR] [--device cuda:0] [--limit N]
                 [--only WORD]...

The sample is the first examples of a file, computed on the CPU; an item is found in the device's by its key, the hash
of its tokens. Compared are, each with its bar:
- f32, sample: a log-likelihood within 1e-3, the greedy flags, and the same choice, by the sum of log p and by it per
  code point, wherever the CPU's best two differ by more than that.
- bf16, sample, and again the whole file beside the device's own f32: a log-likelihood within .3 nat times the square
  root of its tokens, for a token's error is about .02, seldom .1, and independent of the others'; their sum within
  .2 % and a nat; of the whole file's examples at most 2 % and three with another choice, and acc within half a point
  and three examples.
- two items of one key have the same bits.
Each comparison is repeated with one log-likelihood moved by two and a half bars, which it must see.

--device cpu checks this program where there is no GPU: the device's side then is the CPU with one thread, which gives
f32 the same bits. --limit N takes the first N examples (of a paradigm) for a file.
"""

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time

MODELS = ["rope-29m", "pope-29m"]
# task: (data below --data, examples in it, limit of the sample: of each of BLiMP's 67 paradigms)
TASKS = {
    "lambada": ("lambada/lambada_test.jsonl", 5153, 60),
    "hellaswag": ("hellaswag/hellaswag_val_full.txt", 10042, 60),
    "piqa": ("piqa/piqa_valid.jsonl", 1838, 60),
    "arc_easy": ("arc_easy/arc_easy_test.jsonl", 2376, 60),
    "blimp": ("blimp", 67000, 1),
}
F32_BAR = 1e-3  # nats
BF16_BAR = 0.3  # nats, times the root of the tokens
SUM_BAR = 2e-3  # of the sum of log-likelihoods, and a nat
CHOICES_BAR, ACC_BAR, SPARE = 0.02, 0.005, 3  # of the whole file's examples, and so many more


class Failed(Exception):
    pass


def check(condition, text):
    if not condition:
        raise Failed(text)


# -- fathom ------------------------------------------------------------------------------------------


def hello_of(args):
    """What a worker of the device says first: its hello, or why there is none."""
    command = [args.fathom, "worker", "--device", args.device]
    worker = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True)
    return json.loads(worker.stdout.splitlines()[0])


def run(args, model, task, device, dtype, limit, threads=0):
    """-> {"items": [..], "engine": {..}, "acc": mean over groups, "wall": seconds}"""
    with tempfile.TemporaryDirectory() as scratch:
        items = os.path.join(scratch, "items.jsonl")
        command = [args.fathom, "run", "--model", os.path.join(args.models, model), "--task", task]
        command += ["--data", os.path.join(args.data, TASKS[task][0]), "--device", device, "--dtype", dtype]
        command += ["--threads", str(threads), "--format", "json", "--items", items]
        command += ["--set", f"limit={limit}"] if limit else []
        begin = time.perf_counter()
        p = subprocess.run(command, capture_output=True, text=True)
        wall = time.perf_counter() - begin
        check(p.returncode == 0, f"{' '.join(command)}: {p.stderr.strip()}")
        with open(items) as f:
            rows = [json.loads(line) for line in f]
    result = json.loads(p.stdout)
    acc = [m["value"] for m in result["metrics"] if m["name"] == "acc"][-1]
    return {"items": rows, "engine": result["engine"], "acc": acc, "wall": wall}


def by_key(items):
    found = {}
    for item in items:
        same = found.setdefault(item["key"], item)
        check(same["logprobs"] == item["logprobs"], f"{item['doc']} has the tokens of {same['doc']}, and other bits")
    return found


# -- comparison --------------------------------------------------------------------------------------


def bars_of(item, dtype):
    return [F32_BAR if dtype == "f32" else BF16_BAR * math.sqrt(n) for n in item["n_tokens"]]


def best_and_margin(scores):
    order = sorted(scores)
    return scores.index(order[-1]), order[-1] - order[-2] if len(order) > 1 else math.inf


def check_choice(wanted, item):
    """In f32: what is chosen is the same, but for ties."""
    check(item["greedy"] == wanted["greedy"], f"greedy {item['greedy']}, not {wanted['greedy']}")
    for name, sizes in (("sum", [1] * len(item["n_chars"])), ("sum per code point", item["n_chars"])):
        best, margin = best_and_margin([x / n for x, n in zip(wanted["logprobs"], sizes)])
        mine, _ = best_and_margin([x / n for x, n in zip(item["logprobs"], sizes)])
        check(mine == best or margin <= F32_BAR, f"choice by {name} {mine}, not {best}, by {margin:.2g}")


def compare(reference, items, dtype):
    """reference's items (f32) beside those of the same keys. -> (worst difference, number of other choices)"""
    worst, others, total, wanted_total = 0.0, 0, 0.0, 0.0
    for wanted in reference:
        item = items.get(wanted["key"])
        check(item is not None, f"{wanted['doc']}: no item has its key {wanted['key']}")
        sizes = item["n_tokens"]
        check(sizes == wanted["n_tokens"], f"{wanted['doc']}: {sizes} tokens, not {wanted['n_tokens']}")
        for x, y, bar in zip(item["logprobs"], wanted["logprobs"], bars_of(item, dtype)):
            check(abs(x - y) <= bar, f"{wanted['doc']}: log-likelihood {x}, not {y}: the bar is {bar:.2g}")
            worst, total, wanted_total = max(worst, abs(x - y)), total + x, wanted_total + y
        what = "choice" if len(sizes) > 1 else "greedy"
        others += wanted[what] != item[what]
        try:
            if dtype == "f32":
                check_choice(wanted, item)
        except Failed as e:
            raise Failed(f"{wanted['doc']}: {e}") from None
    apart = abs(total - wanted_total)
    check(apart <= SUM_BAR * abs(wanted_total) + 1, f"the sum of log-likelihoods is {total}, not {wanted_total}")
    return worst, others


def compare_and_doubt(reference, items, dtype):
    """The same, and that a moved value would be seen."""
    found = compare(reference, items, dtype)
    key = reference[-1]["key"]
    moved = items[key]["logprobs"][:-1] + [items[key]["logprobs"][-1] + 2.5 * bars_of(items[key], dtype)[-1]]
    try:
        compare(reference, dict(items, **{key: dict(items[key], logprobs=moved)}), dtype)
    except Failed:
        return found
    raise AssertionError("a moved log-likelihood was not seen")


def compare_whole(f32, bf16):
    n = len(f32["items"])
    worst, others = compare_and_doubt(f32["items"], by_key(bf16["items"]), "bf16")
    check(others <= CHOICES_BAR * n + SPARE, f"{others} of {n} choices are not those of f32")
    check(abs(f32["acc"] - bf16["acc"]) <= ACC_BAR + SPARE / n, f"acc {bf16['acc']:.4f}, in f32 {f32['acc']:.4f}")
    return worst, others


# -- runs --------------------------------------------------------------------------------------------


def one(args, model, task, dtype, sample, f32):
    """One row of the table. -> the device's run; f32 is its run in f32, if there was one"""
    _, n_whole, _ = TASKS[task]
    device = run(args, model, task, args.device, dtype, args.limit, 1 if args.device == "cpu" else 0)
    n, sampled = len(device["items"]), len(sample["items"])
    print(
        f"{model:9} {task:10} {dtype:5} {n:6} {device['acc']:.4f} {device['wall']:8.1f} "
        f"{device['engine']['tokens_per_s']:9.0f}",
        end="",
    )
    check(args.limit or n == n_whole, f"{n} items; the file has {n_whole}")
    worst, others = compare_and_doubt(sample["items"], by_key(device["items"]), dtype)
    print(f" {sampled:6} {worst:9.1e} {others:6}", end="")
    if dtype != "f32" and f32:
        print(" {:12.1e} {:6}".format(*compare_whole(f32, device)), end="")
    else:
        print(f" {'-':>12} {'-':>6}", end="")
    print("  ok", flush=True)
    return device


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--fathom", default="build/fathom")
    p.add_argument("--data", default="build/data")
    p.add_argument("--models", default="../shared/models")
    p.add_argument("--device", default="cuda:0")
    p.add_argument("--limit", type=int, help="of a file only the first N examples, of each paradigm")
    p.add_argument("--only", action="append", default=[], metavar="WORD", help="a model or a task")
    args = p.parse_args()
    hello = hello_of(args)
    if hello["event"] != "hello":
        print(f"SKIP: whole tasks on a GPU: {hello['message']}")
        sys.exit(1 if os.environ.get("FATHOM_REQUIRE_GPU") == "1" else 0)
    print(hello["device"]["name"] + "; other: choices that are not the reference's; BLiMP's acc is its mean")
    print(f"{'':33} {'the device, whole files':^30} {'CPU f32, a sample':^24} {'f32, whole file':^20}")
    print("model     task       dtype  items    acc  seconds  tokens/s  items     worst  other        worst  other")
    begin, n_rows, n_failed = time.perf_counter(), 0, 0
    for model in MODELS:
        for task, (_, _, sample_limit) in TASKS.items():
            if args.only and not {model, task} & set(args.only):
                continue
            f32 = None
            try:
                sample = run(args, model, task, "cpu", "f32", min(sample_limit, args.limit or sample_limit))
            except Failed as e:
                n_rows, n_failed = n_rows + 1, n_failed + 1
                print(f"{model:9} {task:10} FAILED: {e}", flush=True)
                continue
            for dtype in [d for d in ("f32", "bf16") if d in hello["signatures"]]:
                n_rows += 1
                try:
                    device = one(args, model, task, dtype, sample, f32)
                    f32 = device if dtype == "f32" else f32
                except Failed as e:
                    n_failed += 1
                    print(f"  FAILED: {e}", flush=True)
    print(f"{n_rows} runs, {n_failed} failed, {time.perf_counter() - begin:.0f} s")
    sys.exit(1 if n_failed or not n_rows else 0)


if __name__ == "__main__":
    main()
