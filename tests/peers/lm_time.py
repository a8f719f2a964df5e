"""Times lm-eval with transformers on tasks of lm_tasks.py, and prints a JSON object a line: bench_tasks.py reads them.

    lm_time.py --model DIR --tasks FOLDER --device cuda:0 --dtype bfloat16 --batch 64,128,auto NAME[:LIMIT[:TRIAL]]...

{"loaded": clock} when the model is ready, so that the caller knows the start's length; then, for each task, the best of
the batch sizes on the first TRIAL documents, and the task with it. Bootstrap is off: it is lm-eval's slowest part, and
no scoring.
"""

import argparse
import json
import os
import time

import offline  # noqa: F401

from lm_eval import evaluator
from lm_eval.models.huggingface import HFLM

import lm_tasks


class Clocked(HFLM):
    """Counts what its requests cost: seconds of scoring, tokenizing included, and tokens without padding."""

    def reset(self):
        self.seconds, self.n_tokens, self.n_requests = 0.0, 0, 0

    def loglikelihood(self, requests, disable_tqdm=False):
        begin = time.perf_counter()
        out = super().loglikelihood(requests, disable_tqdm=True)
        self.seconds += time.perf_counter() - begin
        self.n_requests += len(requests)
        return out

    def _loglikelihood_tokens(self, requests, **kwargs):
        self.n_tokens += sum(min(len(r[1]) + len(r[2]) - 1, self.max_length) for r in requests)
        return super()._loglikelihood_tokens(requests, **kwargs)

    def use_batch(self, size):
        self.batch_sizes, self.batch_schedule, self.max_batch_size = {}, 1, 512
        self.batch_size_per_gpu = size if size == "auto" else int(size)


def run(lm, task, loaded, limit, batch):
    lm.reset()
    lm.use_batch(batch)
    begin = time.perf_counter()
    out = evaluator.evaluate(lm=lm, task_dict=loaded, limit=limit, bootstrap_iters=0, log_samples=False)
    metrics = {k.split(",")[0]: v for k, v in out["results"][task].items() if isinstance(v, float)}
    return {
        "task": task,
        "batch": batch,
        "limit": limit,
        "seconds": time.perf_counter() - begin,
        "scoring": lm.seconds,
        "tokens": lm.n_tokens,
        "requests": lm.n_requests,
        "metrics": metrics,
    }


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in [("model", None), ("tasks", None), ("device", "cpu"), ("dtype", "float32"), ("batch", "64")]:
        p.add_argument(f"--{name}", default=default, required=default is None)
    p.add_argument("runs", nargs="+")
    args = p.parse_args()
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # libraries print
    say = lambda **what: print(json.dumps(what), file=out, flush=True)
    lm = Clocked(pretrained=args.model, device=args.device, dtype=args.dtype, batch_size=1)
    say(loaded=time.time())
    tasks = lm_tasks.manager(args.tasks)
    sizes = args.batch.split(",")
    for name in args.runs:
        task, limit, trial = (name.split(":") + ["", ""])[:3]
        tasks.load([task])  # fills the datasets' cache, so that what is clocked is not the first use of a file
        begin = time.perf_counter()
        loaded = tasks.load([task])
        loading = time.perf_counter() - begin
        best = sizes[0]
        if len(sizes) > 1:
            tried = {size: run(lm, task, loaded, int(trial or 100), size)["scoring"] for size in sizes}
            best = min(tried, key=tried.get)
            say(task=task, tried=tried)
        result = run(lm, task, loaded, int(limit) if limit else None, best)
        say(**dict(result, seconds=loading + result["seconds"], loading=loading))


if __name__ == "__main__":
    main()
