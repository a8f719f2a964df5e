#!/usr/bin/env python3
"""Parity with lm-eval: the same checkpoints and data files through both, compared item by item (`make test-peers`).

    peers.py [--fathom build/fathom] [--data build/data] [--models DIR] [--full | --scale 1] [--only WORD]...

Of each item: the log-likelihoods within 1e-3 (float32 on both sides), the code points of the choices, the greedy flags,
and the same choice by the sum of log p and by it per code point wherever lm-eval's best two differ by more than that.
Where all choices are the same, acc, acc_norm and their standard errors are equal, and ppl to its five printed digits.
Last, the same through lm-eval's client of OpenAI's completions and a running `fathom serve`: the log-likelihoods of
`fathom run`, to the bit. Each comparison is repeated with one log-likelihood moved by 2e-3, which it must see.

What is known to differ, and why:
- ppl's standard error: the delta method here, a bootstrap in lm-eval. It is not compared.
- the standard error of a mean over paradigms or kinds: from the sum of their squares here, of pooled variances in
  lm-eval. It is not compared.
- a perplexity may differ in its last printed digit when it stands at a rounding border: by less than 5e-6 of itself.
- a LAMBADA text that ends in a space has no last word: refused here with its line; lm-eval scores that space. There is
  none in the file.
- what lm_tasks.py says of BLiMP's leading space and of CBT, which lm-eval has not.
"""

import argparse
import contextlib
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import offline  # noqa: F401

import numpy as np

import checkpoints
import lm_tasks
import made_rows
from decoder import ProjectLM

# lm-eval's task: (fathom's task, data below --data or made below --work, parameters, documents at --scale 1, of each
# paradigm or kind; None: all)
SHOTS = {"n_shot": 2, "shots": "first", "shots_from": "arc_easy/arc_easy_test.jsonl"}
TASKS = {
    "lambada": ("lambada", "lambada/lambada_test.jsonl", {}, 150),
    "hellaswag_text": ("hellaswag", "hellaswag/hellaswag_val_full.txt", {}, 40),
    "hellaswag": ("hellaswag", "made/hellaswag.jsonl", {}, None),
    "lambada_rows": ("lambada", "made/lambada.jsonl", {}, None),
    "piqa": ("piqa", "piqa/piqa_valid.jsonl", {}, 100),
    "arc_easy": ("arc_easy", "arc_easy/arc_easy_test.jsonl", {}, 80),
    "arc_easy_2shot": ("arc_easy", "arc_easy/arc_easy_test.jsonl", SHOTS, 30),
    "blimp": ("blimp", "blimp", {}, 4),
    "blimp_spaced": ("blimp", "blimp", {"leading_space": True}, 2),
    "cbt": ("cbt", "made/cbt", {"detokenize": False}, 2),
}
# model: (lm-eval's tokenizer: None is the server's, else Hugging Face's files below --work/models; whether it adds BOS;
# tasks. Not lambada_rows with BOS: before a text that begins with it, lm-eval's client puts a second one.)
SERVED = {
    "llama": ("llama/hf", False, ["lambada", "lambada_rows", "arc_easy_2shot", "blimp"]),
    "llama-bos": ("llama-bos/hf", True, ["lambada", "arc_easy_2shot", "blimp"]),
    "rope-29m": (None, False, ["lambada", "lambada_rows", "piqa"]),
}


class Failed(Exception):
    pass


def check(condition, text):
    if not condition:
        raise Failed(text)


def quietly(args, call, *arguments):
    """lm-eval's bars and warnings go to a file of the work folder."""
    with open(os.path.join(args.work, "lm-eval.log"), "a") as log, contextlib.redirect_stderr(
        log
    ), contextlib.redirect_stdout(log):
        return call(*arguments)


# -- fathom ------------------------------------------------------------------------------------------


def run_fathom(args, model, task, limit):
    """-> (metrics by (name, group), items by group), as lm_tasks.evaluate has them"""
    name, data, params, _ = TASKS[task]
    folder = args.work if data.startswith("made/") else args.data
    params = dict(params, **({"limit": limit} if limit else {}))
    if "shots_from" in params:
        params["shots_from"] = os.path.join(args.data, params["shots_from"])
    with tempfile.TemporaryDirectory() as scratch:
        items = os.path.join(scratch, "items.jsonl")
        command = [
            args.fathom,
            "run",
            "--model",
            model,
            "--task",
            name,
            "--data",
            os.path.join(folder, data),
            "--device",
            "cpu",
            "--dtype",
            "f32",
            "--format",
            "json",
            "--items",
            items,
        ]
        for key, value in params.items():
            command += ["--set", f"{key}={json.dumps(value) if isinstance(value, bool) else value}"]
        p = subprocess.run(command, capture_output=True, text=True)
        check(p.returncode == 0, f"{' '.join(command)}: {p.stderr.strip()}")
        rows = lm_tasks.read_jsonl(items)
    metrics = {(m["name"], m.get("group")): (m["value"], m.get("stderr")) for m in json.loads(p.stdout)["metrics"]}
    items = {}
    for row in rows:
        items.setdefault(row.get("group"), []).append(row)
    return metrics, items


# -- comparison --------------------------------------------------------------------------------------


def best_and_margin(scores):
    order = np.sort(scores)
    return int(np.argmax(scores)), order[-1] - order[-2]


def compare_item(task, ours, theirs, tolerance):
    """-> (largest difference, whether every choice was the same)"""
    a, b = np.array(ours["logprobs"]), np.array(theirs["logprobs"])
    check(len(a) == len(b), f"{len(a)} continuations, lm-eval has {len(b)}")
    apart = np.abs(a - b).max()
    check(apart <= tolerance, f"log-likelihoods {a}, lm-eval {b}")
    check(ours["greedy"] == theirs["greedy"], f"greedy {ours['greedy']}, lm-eval {theirs['greedy']}")
    if task.startswith("lambada"):
        check(ours["correct"] == bool(theirs["correct"]), f"correct {ours['correct']}, lm-eval {theirs['correct']}")
        return apart, True
    check(ours["gold"] == theirs["gold"], f"gold {ours['gold']}, lm-eval {theirs['gold']}")
    sizes = [len(text) - theirs["joint"] for text in theirs["texts"]]
    check(ours["n_chars"] == sizes, f"code points {ours['n_chars']}, lm-eval's choices have {sizes}")
    same = True
    for division in (np.ones(len(a)), np.array(sizes)):
        mine, (wanted, margin) = int(np.argmax(a / division)), best_and_margin(b / division)
        check(mine == wanted or margin <= tolerance, f"choice {mine}, lm-eval {wanted} by {margin:.2g}")
        same = same and mine == wanted
    check(ours["choice"] == int(np.argmax(a)), f"choice {ours['choice']} of {a}")
    return apart, same


def compare_metrics(task, ours, theirs):
    for (name, group), (value, stderr) in theirs.items():
        mine = ours.get(({"perplexity": "ppl"}.get(name, name), group))
        what = f"{name}{' of ' + group if group else ''}"
        check(mine is not None, f"no {what}")
        if name == "perplexity":
            close = f"{mine[0]:.5g}" == f"{value:.5g}" or math.isclose(mine[0], value, rel_tol=5e-6)
            check(close, f"{what} {mine[0]:.9g}, lm-eval {value:.9g}")
            continue
        check(abs(mine[0] - value) < 1e-12, f"{what} {mine[0]}, lm-eval {value}")
        pooled = group is None and len(ours) > 20
        check(pooled or stderr is None or abs(mine[1] - stderr) < 1e-12, f"{what}'s stderr {mine[1]}, lm-eval {stderr}")


def compare(task, ours, theirs, tolerance):
    """-> a line about it; raises Failed"""
    largest, n, all_same = 0.0, 0, True
    check(set(ours[1]) == set(theirs[1]), f"groups {sorted(map(str, ours[1]))}, lm-eval {sorted(map(str, theirs[1]))}")
    for group, rows in theirs[1].items():
        check(len(rows) == len(ours[1][group]), f"{len(ours[1][group])} items in {group}, lm-eval has {len(rows)}")
        for i, (mine, row) in enumerate(zip(ours[1][group], rows)):
            row["joint"] = 0 if task in ("blimp", "cbt") else 1
            try:
                apart, same = compare_item(task, mine, row, tolerance)
            except Failed as e:
                raise Failed(f"item {i}{' of ' + group if group else ''}: {e}") from None
            largest, n, all_same = max(largest, apart), n + 1, all_same and same
    if all_same:
        compare_metrics(task, ours[0], theirs[0])
    shown = "  ".join(f"{k[0]} {v[0]:.5g}" for k, v in theirs[0].items() if k[1] is None)
    return (
        f"{n:6} items  largest difference {largest:.1e}  {shown}{'' if all_same else '  (a tie within the tolerance)'}"
    )


def corrupted(theirs):
    """lm-eval's result with one log-likelihood moved by 2e-3: the comparison must see it."""
    metrics, items = theirs
    group, rows = next(iter(items.items()))
    moved = dict(rows[0], logprobs=[rows[0]["logprobs"][0] + 2e-3] + rows[0]["logprobs"][1:])
    return metrics, dict(items, **{group: [moved] + rows[1:]}) if group else {None: [moved] + rows[1:]}


# -- models ------------------------------------------------------------------------------------------


def hugging_face(folder):
    from lm_eval.models.huggingface import HFLM

    return HFLM(pretrained=folder, device="cpu", dtype="float32", batch_size=16)


def build_models(args):
    """name: (lm-eval's model, made when it is wanted; fathom's folder; tasks)"""
    models = {}
    tokenizer = os.path.join(args.data, "tokenizers/gpt2_tokenizer.json")
    for name, bos in (("llama", False), ("llama-bos", True)):
        hf, project = checkpoints.make(os.path.join(args.work, "models", name), tokenizer, "small", bos)
        tasks = ["lambada", "lambada_rows", "piqa", "arc_easy_2shot", "blimp"] if bos else list(TASKS)
        models[name] = (lambda hf=hf: hugging_face(hf), project, tasks)
    for name in ("rope-29m", "pope-29m"):
        folder = os.path.join(args.models, name)
        if os.path.isdir(folder):
            models[name] = (
                lambda folder=folder: ProjectLM(folder),
                folder,
                [t for t in TASKS if t not in ("blimp_spaced", "cbt")],
            )
        else:
            print(f"SKIP: {name}: not in {args.models}")
    return models


def over_http(args, name, folder, url):
    """lm-eval's client, 8 requests at a time. Its max_length is our limit, the last token, one to be generated."""
    from lm_eval.models.openai_completions import LocalCompletionsAPI

    tokenizer, bos, _ = SERVED[name]
    length = json.load(open(os.path.join(folder, "config.json")))["max_position_embeddings"] + 2
    backend = (
        {"tokenizer_backend": "remote"}
        if tokenizer is None
        else {"tokenizer_backend": "huggingface", "tokenizer": os.path.join(args.work, "models", tokenizer)}
    )
    return LocalCompletionsAPI(
        base_url=f"{url}/v1/completions",
        model=served_name(name),
        num_concurrent=8,
        max_length=length,
        tokenized_requests=True,
        add_bos_token=bos,
        **backend,
    )


def served_name(model):
    return model if SERVED[model][0] is None else f"{model}/project"


def run_served(args, runs, models):
    os.environ["FATHOM"] = os.path.abspath(args.fathom)
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../e2e"))
    from harness import Server

    for name, (tokenizer, _, tasks) in SERVED.items():
        tasks = [t for t in tasks if runs.wanted("served")]
        if name not in models or not tasks:
            continue
        folder = Path(args.work, "serve")
        shutil.rmtree(folder, ignore_errors=True)
        (folder / "datasets").mkdir(parents=True)
        server = Server(folder, models=args.models if tokenizer is None else os.path.join(args.work, "models"))
        try:  # the first request says whose tokenizer is the server's
            server.call("POST", "/v1/completions", {"model": served_name(name), "prompt": "a", "max_tokens": 1})
            lm = over_http(args, name, models[name][1], server.url)
            for task in tasks:
                runs.one(f"{name} served", name, models[name][1], lm, task, 0)
        finally:
            server.stop()


def check_decoder(args):
    """Our PyTorch model against the numbers that came with the checkpoints."""
    path = os.path.join(args.models, "reference.json")
    if not os.path.exists(path):
        return print(f"SKIP: the PyTorch model beside {path}: not there")
    tasks = lm_tasks.manager(args.tasks)
    for name in ("rope-29m", "pope-29m"):
        wanted = json.load(open(path))["models"][name]["lambada_first_10"]
        items = quietly(args, lm_tasks.evaluate, ProjectLM(os.path.join(args.models, name)), "lambada", tasks, 10)[1][
            None
        ]
        apart = max(abs(i["logprobs"][0] - w[2]) for i, w in zip(items, wanted))
        check(
            apart < 1e-3 and all(i["greedy"][0] == w[3] for i, w in zip(items, wanted)),
            f"{name}: {apart} from reference.json",
        )
        print(f"{name:16} {'PyTorch':14} {len(items):6} items  largest difference {apart:.1e}  (reference.json)")


def make_data(args):
    """Task files for lm-eval, and the data that nobody publishes."""
    made = os.path.join(args.work, "made")
    os.makedirs(made, exist_ok=True)
    rows = {
        name: lm_tasks.write_jsonl(os.path.join(made, f"{name}.jsonl"), getattr(made_rows, name.upper()))
        for name in ("hellaswag", "lambada")
    }
    generator = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../cbt_rebuild.py")
    subprocess.run(
        [
            sys.executable,
            generator,
            os.path.join(args.data, "cbt/cbt_test_raw.txt"),
            os.path.join(made, "cbt"),
            "--per-kind",
            "50",
        ],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    lm_tasks.write_tasks(args.data, args.tasks)
    lm_tasks.write_task(args.tasks, "hellaswag", "hellaswag/hellaswag.yaml", rows["hellaswag"])
    lm_tasks.write_task(args.tasks, "lambada_rows", "lambada/lambada_openai.yaml", rows["lambada"])
    lm_tasks.write_cbt(args.tasks, os.path.join(made, "cbt"))


# -- runs --------------------------------------------------------------------------------------------


class Runs:
    def __init__(self, args):
        self.args, self.failed, self.n = args, 0, 0
        self.ours = {}

    def limit(self, task):
        n = TASKS[task][3]
        return None if self.args.full or n is None else max(2, round(n * self.args.scale))

    def wanted(self, *words):
        return not self.args.only or any(w in words for w in self.args.only)

    def fathom(self, model, folder, task):
        if (model, task) not in self.ours:
            self.ours[model, task] = run_fathom(self.args, folder, task, self.limit(task))
        return self.ours[model, task]

    def one(self, label, model, folder, lm, task, tolerance):
        begin = time.perf_counter()
        self.n += 1
        try:
            theirs = quietly(
                self.args, lm_tasks.evaluate, lm, task, lm_tasks.manager(self.args.tasks), self.limit(task)
            )
            middle = time.perf_counter()
            ours = self.fathom(model, folder, task)
            text = compare(task, ours, theirs, tolerance)
            try:
                compare(task, ours, corrupted(theirs), tolerance)
                raise AssertionError("a log-likelihood moved by 2e-3 was not seen")
            except Failed:
                pass
            text += f"  lm-eval {middle - begin:.1f} s, fathom {time.perf_counter() - middle:.1f} s"
        except Failed as e:
            self.failed += 1
            text = f"FAILED: {e}"
        print(f"{label:16} {task:14} {text}", flush=True)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--fathom", default="build/fathom")
    p.add_argument("--data", default="build/data")
    p.add_argument("--models", default="../shared/models")
    p.add_argument("--work", default="build/peers", help="what is made on the way lies here")
    p.add_argument("--full", action="store_true", help="whole files: hours on two cores")
    p.add_argument("--scale", type=float, default=1, help="times the usual number of documents")
    p.add_argument("--only", action="append", default=[], metavar="WORD", help="a model, a task, or `served`")
    args = p.parse_args()
    os.environ["HF_HOME"] = os.path.join(args.work, "hf")
    args.tasks = os.path.join(args.work, "tasks")
    os.makedirs(args.work, exist_ok=True)
    make_data(args)
    if not args.only:
        check_decoder(args)
    runs, models = Runs(args), build_models(args)
    for name, (make_lm, folder, tasks) in models.items():
        tasks = [t for t in tasks if runs.wanted(name, t)]
        lm = make_lm() if tasks else None
        for task in tasks:
            runs.one(name, name, folder, lm, task, 1e-3)
    run_served(args, runs, models)
    print(f"{runs.n} comparisons, {runs.failed} failed")
    sys.exit(1 if runs.failed or not runs.n else 0)


if __name__ == "__main__":
    main()
