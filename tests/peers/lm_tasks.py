"""lm-eval's tasks on local files, and what it measured, item by item.

Each task *is* lm-eval's own file (`include`), with another dataset: so prompts, choices and metrics are its own. What
differs:
- HellaSwag in the six-line text form is preprocessed already: a .jsonl of {query, choices, label}, used as it stands
  (`hellaswag_text`); `hellaswag` is the official .jsonl through lm-eval's own preprocessing.
- ARC rows {question, choices: [...], gold} become Hugging Face's {question, choices: {text, label}, answerKey}.
- `blimp` scores the sentence itself, as the protocol says; lm-eval's own file leaves its default delimiter, a space,
  before it: that is `blimp_spaced`.
"""

import collections
import json
import os

import lm_eval
import yaml
from lm_eval import evaluator
from lm_eval.tasks import TaskManager

OWN = os.path.join(os.path.dirname(lm_eval.__file__), "tasks")


def read_jsonl(path):
    with open(path, encoding="utf-8") as f:
        return [json.loads(line) for line in f]


def write_jsonl(path, rows):
    with open(path, "w", encoding="utf-8") as f:
        f.writelines(json.dumps(row) + "\n" for row in rows)
    return path


def hellaswag_text_rows(path):
    with open(path, encoding="utf-8", newline="\n") as f:
        lines = f.read().split("\n")
    lines = lines[:-1] if lines[-1] == "" else lines
    assert len(lines) % 6 == 0, path
    for i in range(0, len(lines), 6):
        yield {"query": lines[i], "choices": lines[i + 2 : i + 6], "label": int(lines[i + 1])}


def arc_rows(path):
    for row in read_jsonl(path):
        labels = [str(i + 1) for i in range(len(row["choices"]))]
        yield {
            "question": row["question"],
            "choices": {"text": row["choices"], "label": labels},
            "answerKey": labels[row["gold"]],
        }


def write_task(folder, name, own, data, **settings):
    """A task file: lm-eval's own, reading `data` as its test split."""
    config = {
        "include": os.path.join(OWN, own),
        "task": name,
        "dataset_path": "json",
        "dataset_name": None,
        "dataset_kwargs": {"data_files": {"test": os.path.abspath(data)}},
        "training_split": None,
        "validation_split": None,
        "test_split": "test",
    }
    with open(os.path.join(folder, f"{name}.yaml"), "w") as f:
        yaml.safe_dump(dict(config, **settings), f)


def write_group(folder, name, paradigms, data, **settings):
    """BLiMP: a task a paradigm, and the mean over them as lm-eval's own group has it."""
    for p in paradigms:
        write_task(folder, f"{name}_{p}", f"blimp/{p}.yaml", os.path.join(data, f"{p}.jsonl"), **settings)
    group = yaml.safe_load(open(os.path.join(OWN, "blimp/_blimp.yaml")))
    assert sorted(group["task"]) == sorted(f"blimp_{p}" for p in paradigms), "not the paradigms of lm-eval's blimp"
    with open(os.path.join(folder, f"_{name}.yaml"), "w") as f:
        yaml.safe_dump(dict(group, group=name, task=[f"{name}_{p}" for p in paradigms]), f)


def write_tasks(data, folder):
    """Task files for the data of data.tar.xz into folder; their datasets beside them."""
    os.makedirs(folder, exist_ok=True)
    at = lambda *parts: os.path.join(data, *parts)
    write_task(folder, "lambada", "lambada/lambada_openai.yaml", at("lambada/lambada_test.jsonl"))
    text = write_jsonl(
        os.path.join(folder, "hellaswag.jsonl"), hellaswag_text_rows(at("hellaswag/hellaswag_val_full.txt"))
    )
    write_task(folder, "hellaswag_text", "hellaswag/hellaswag.yaml", text, process_docs=None)
    write_task(folder, "piqa", "piqa/piqa.yaml", at("piqa/piqa_valid.jsonl"))
    arc = write_jsonl(os.path.join(folder, "arc_easy.jsonl"), arc_rows(at("arc_easy/arc_easy_test.jsonl")))
    write_task(folder, "arc_easy", "arc/arc_easy.yaml", arc)
    write_task(
        folder,
        "arc_easy_2shot",
        "arc/arc_easy.yaml",
        arc,
        num_fewshot=2,
        fewshot_split="test",
        fewshot_config={"sampler": "first_n"},
    )
    paradigms = sorted(name.removesuffix(".jsonl") for name in os.listdir(at("blimp")))
    write_group(folder, "blimp", paradigms, at("blimp"), target_delimiter="")
    write_group(folder, "blimp_spaced", paradigms, at("blimp"))


def cbt_rows(path):
    """Questions of a cbtest_*.txt: the text as it stands, cut at XXXXX; a choice with what follows."""
    with open(path, encoding="utf-8", newline="\n") as f:
        for block in f.read().strip("\n").split("\n\n"):
            lines = [line.split(" ", 1)[1] for line in block.split("\n")]
            query, answer, _, candidates = lines[20].split("\t")
            before, after = " ".join(lines[:20] + [query]).split("XXXXX")
            candidates = candidates.split("|")
            yield {"query": before, "choices": [c + after for c in candidates], "gold": candidates.index(answer)}


def write_cbt(folder, data):
    """lm-eval has no CBT. A task a kind, and the mean over them: fathom's with detokenize=false."""
    metric = {"metric": "acc", "aggregation": "mean"}
    names = []
    for file in sorted(os.listdir(data)):
        name = "cbt_" + file.split("_")[1]
        rows = write_jsonl(os.path.join(folder, f"{name}.jsonl"), cbt_rows(os.path.join(data, file)))
        config = {
            "task": name,
            "dataset_path": "json",
            "dataset_kwargs": {"data_files": {"test": os.path.abspath(rows)}},
            "test_split": "test",
            "output_type": "multiple_choice",
            "doc_to_text": "{{query}}",
            "doc_to_choice": "choices",
            "doc_to_target": "gold",
            "target_delimiter": "",
            "metric_list": [dict(metric, higher_is_better=True)],
        }
        with open(os.path.join(folder, f"{name}.yaml"), "w") as f:
            yaml.safe_dump(config, f)
        names.append(name)
    with open(os.path.join(folder, "_cbt.yaml"), "w") as f:
        yaml.safe_dump(
            {"group": "cbt", "task": names, "aggregate_metric_list": [dict(metric, weight_by_size=False)]}, f
        )


def manager(folder):
    return TaskManager(include_path=folder, include_defaults=False)


def item_of(sample):
    """-> {logprobs, greedy, sizes (code points of each choice), gold} of one of lm-eval's samples"""
    answers = sample["filtered_resps"]
    if isinstance(answers[0], (int, float)):
        answers = [answers]
    arguments = sample["arguments"]
    texts = (
        [a[1] for a in arguments]
        if isinstance(arguments, (list, tuple))
        else [arguments[f"gen_args_{i}"]["arg_1"] for i in range(len(arguments))]
    )
    gold = sample["target"]
    return {
        "logprobs": [float(a[0]) for a in answers],
        "greedy": [bool(a[1]) for a in answers],
        "texts": texts,
        "gold": int(gold) if str(gold).isdigit() else 0,
        "correct": sample.get("acc"),
    }


def evaluate(lm, task, tasks, limit):
    """-> (metrics by (name, group or None): (value, stderr), items by group or None)"""
    out = evaluator.simple_evaluate(
        model=lm, tasks=[task], task_manager=tasks, limit=limit, bootstrap_iters=10, log_samples=True
    )
    metrics, items = {}, collections.OrderedDict()
    for name, result in out["results"].items():
        group = None if name == task else name.removeprefix(task + "_")
        for key, value in result.items():
            metric, _, what = key.partition(",")
            if what == "none" and not metric.endswith("_stderr") and isinstance(value, float):
                metrics[metric, group] = (value, result.get(f"{metric}_stderr,none"))
    for name, samples in out["samples"].items():
        samples = sorted(samples, key=lambda s: s["doc_id"])
        items[None if name == task else name.removeprefix(task + "_")] = [item_of(s) for s in samples]
    return metrics, items
