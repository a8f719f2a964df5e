#!/usr/bin/env python3
"""Whole tasks, fathom beside lm-eval with transformers: same device, same weights, same data, in one run (`make
bench-tasks`).

    bench_tasks.py [--fathom build/fathom] [--data build/data] [--cbt DIR] [--device cpu|cuda:0] [--shape tiny|124m]
                   [--json FILE]

The model is a Llama with random weights and GPT-2's tokenizer, in Hugging Face's form and in the project's from the
same tensors. Both sides are clocked from their start as processes to their result: ours as the median of --rounds runs;
lm-eval in one process whose start (imports, loading) is counted for each task, as it would be for a user, with the best
of the batch sizes --batch, its datasets cached, its bootstrap off. The second ratio leaves both starts out (ours: a run
of one example). Where lm-eval gets a part of a task (--lm-limit), its time of scoring is multiplied, the rest of it is
not, and the time is marked ~. With --limit both get that part, and the verdict is by the second ratio.
Utilisation: ours as in a result's mfu; lm-eval's tokens without padding, times its weights, of the same peak.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "peers"))

# task: (data below --data, documents of a whole task, ratio that the project owes on a GPU)
TASKS = {
    "lambada": ("lambada/lambada_test.jsonl", 8),
    "hellaswag": ("hellaswag/hellaswag_val_full.txt", 8),
    "blimp": ("blimp", 8),
    "cbt": (None, 15),
}
CPU_BAR = 3
LM_NAME = {"hellaswag": "hellaswag_text"}


def prepare(args):
    """-> (Hugging Face's folder, the project's); task files in work/tasks"""
    import torch

    import checkpoints
    import lm_tasks

    tasks = os.path.join(args.work, "tasks")
    lm_tasks.write_tasks(args.data, tasks)
    if "cbt" in args.tasks:
        lm_tasks.write_cbt(tasks, args.cbt)
    dtype = torch.float32 if args.dtype == "f32" else torch.bfloat16
    return checkpoints.make(
        os.path.join(args.work, "bench-" + args.shape),
        os.path.join(args.data, "tokenizers/gpt2_tokenizer.json"),
        args.shape,
        dtype=dtype,
    )


def run_fathom(args, model, task, limit=None):
    """-> (wall seconds, result)"""
    data = args.cbt if task == "cbt" else os.path.join(args.data, TASKS[task][0])
    command = [
        args.fathom,
        "run",
        "--model",
        model,
        "--task",
        task,
        "--data",
        data,
        "--device",
        args.device,
        "--dtype",
        args.dtype,
        "--format",
        "json",
    ]
    command += ["--set", "detokenize=false"] if task == "cbt" else []
    limit = limit or args.limit.get(task)
    command += ["--set", f"limit={limit}"] if limit else []
    begin = time.perf_counter()
    p = subprocess.run(command, capture_output=True, text=True)
    wall = time.perf_counter() - begin
    if p.returncode:
        sys.exit(f"{' '.join(command)}: {p.stderr}")
    return wall, json.loads(p.stdout)


def run_lm_eval(args, model):
    """-> (seconds of the start, {task: its lines})"""
    runs = [
        f"{LM_NAME.get(t, t)}:{args.lm_limit.get(t, args.limit.get(t, ''))}:{args.trial.get(t, '')}" for t in args.tasks
    ]
    command = [
        sys.executable,
        os.path.join(HERE, "peers/lm_time.py"),
        "--model",
        model,
        "--tasks",
        os.path.join(args.work, "tasks"),
        "--device",
        args.device,
        "--dtype",
        {"f32": "float32", "bf16": "bfloat16"}[args.dtype],
        "--batch",
        args.batch,
        *runs,
    ]
    begin, start, out = time.time(), 0, {}
    with open(os.path.join(args.work, "lm_time.log"), "w") as log, subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=log,
        text=True,
        env=dict(os.environ, HF_HOME=os.path.join(args.work, "hf")),
    ) as p:
        for line in p.stdout:
            line = json.loads(line)
            print("  lm-eval:", json.dumps(line), file=sys.stderr, flush=True)
            if "loaded" in line:
                start = line["loaded"] - begin
            elif "seconds" in line:
                out[line["task"]] = line
    if p.returncode:
        sys.exit(f"{' '.join(command)}: {open(log.name).read()[-2000:]}")
    return start, {t: out[LM_NAME.get(t, t)] for t in args.tasks}


def whole(line, n_requests):
    """Seconds of the whole task: the part that was scored, multiplied."""
    return line["seconds"] - line["scoring"] + line["scoring"] * n_requests / line["requests"]


def n_params(config, all_positions):
    """Weights that multiply each token; the head's, too, where every position gets logits."""
    c = json.load(open(config))
    heads = (2 * c["num_attention_heads"] + 2 * c["num_key_value_heads"]) * c["head_dim"]
    layer = c["hidden_size"] * (heads + 3 * c["intermediate_size"])
    return c["num_hidden_layers"] * layer + (c["hidden_size"] * c["vocab_size"] if all_positions else 0)


def report(args, task, ours, start_ours, lm, start_lm, per_token):
    result = ours[len(ours) // 2][1]
    wall = statistics.median(w for w, _ in ours)
    n_items = result["dataset"]["n_items"]
    choices = {"lambada": 1, "hellaswag": 4, "blimp": 2, "cbt": 10}[task]
    theirs = whole(lm, n_items * choices)
    engine = result["engine"]
    accuracy = [m["value"] for m in result["metrics"] if m["name"] == "acc"][-1]
    scoring = max(wall - start_ours, engine["seconds"])
    bar = CPU_BAR if args.device == "cpu" else TASKS[task][1]
    lm_rate, tera = lm["tokens"] / lm["scoring"], engine.get("tflops_per_s") or 0
    peak = tera / engine["mfu"] if engine.get("mfu") else None
    share = lambda tflops: f"{tflops:7.3f} {100 * tflops / peak:4.1f}%" if peak else f"{tflops:7.3f}     -"
    row = {
        "task": task,
        "items": n_items,
        "seconds": wall,
        "lm_eval_seconds": start_lm + theirs,
        "scaled": lm["requests"] < n_items * choices,
        "ratio": (start_lm + theirs) / wall,
        "start": start_ours,
        "lm_eval_start": start_lm,
        "ratio_without_start": theirs / scoring,
        "tokens": engine["tokens"],
        "tokens_per_s": engine["tokens"] / engine["seconds"],
        "tflops_per_s": tera,
        "mfu": engine.get("mfu"),
        "lm_eval": lm,
        "lm_eval_tokens_per_s": lm_rate,
        "acc": accuracy,
        "bar": bar,
        "ok": (theirs / scoring if task in args.limit else (start_lm + theirs) / wall) >= bar,
    }
    print(
        f"{task:10} {n_items:6} {wall:8.2f} {'~' if row['scaled'] else ' '}{row['lm_eval_seconds']:8.1f} "
        f"{row['ratio']:6.1f} {row['ratio_without_start']:6.1f} {row['tokens_per_s']:9.0f} {share(tera)} "
        f"{lm_rate:9.0f} {share(lm_rate * per_token / 1e12)} {lm['batch']:>5} "
        f"{accuracy:.4f}/{lm['metrics']['acc']:.4f}{'*' if row['scaled'] else ' '} {bar:4} "
        f"{'ok' if row['ok'] else 'LOW'}",
        flush=True,
    )
    return row


def main():
    pairs = lambda text: dict(p.split("=") for p in text.split(",") if p)
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--fathom", default="build/fathom")
    p.add_argument("--data", default="build/data")
    p.add_argument("--cbt", default="build/peers/cbt", help="the folder of question files")
    p.add_argument("--work", default="build/peers")
    p.add_argument("--device", default="cpu")
    p.add_argument("--dtype", choices=["f32", "bf16"], default="f32")
    p.add_argument("--shape", choices=["tiny", "124m"], default="tiny")
    p.add_argument("--tasks", type=lambda s: s.split(","), default=list(TASKS))
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--batch", default="4,16", help="lm-eval's batch sizes to try")
    p.add_argument("--limit", type=pairs, default={}, help="documents of both, as lambada=500,blimp=20; all by default")
    p.add_argument("--lm-limit", type=pairs, default={}, help="documents of lm-eval")
    p.add_argument("--trial", type=pairs, default={}, help="of them for each batch size; 100")
    p.add_argument("--json", help="write the rows here")
    args = p.parse_args()
    os.makedirs(args.work, exist_ok=True)
    hf, project = prepare(args)
    ours, starts = {}, {}
    for task in args.tasks:
        starts[task] = run_fathom(args, project, task, 1)[0]
        ours[task] = sorted((run_fathom(args, project, task) for _ in range(args.rounds)), key=lambda r: r[0])
        print(
            f"  fathom: {task} {[round(w, 2) for w, _ in ours[task]]} s, of which start {starts[task]:.2f}",
            file=sys.stderr,
            flush=True,
        )
    start_lm, lm = run_lm_eval(args, hf)
    print(f"{args.shape} Llama, {args.dtype}, {args.device}; lm-eval's start {start_lm:.1f} s")
    print("w/o: ratio without the starts; ~: lm-eval on a part, scaled; *: acc of that part")
    print(
        "task        items     ours   lm-eval  ratio    w/o  tokens/s TFLOP/s peak   lm-eval TFLOP/s peak  batch "
        "acc             bar"
    )
    per_token = 2 * n_params(os.path.join(hf, "config.json"), True)
    rows = [report(args, t, ours[t], starts[t], lm[t], start_lm, per_token) for t in args.tasks]
    if args.json:
        with open(args.json, "w") as f:
            json.dump(rows, f, indent=1)


if __name__ == "__main__":
    main()
