"""CBT with its contexts shared and not, on one device: the ratio of the two, at least 5, and that scores are the same.

python3 tests/bench_cbt.py FATHOM MODEL QUESTIONS [DEVICE [LIMIT]]; questions: see cbt_rebuild.py."""

import json
import subprocess
import sys

fathom, model, questions = sys.argv[1:4]
device = (sys.argv[4:5] or ["cpu"])[0]
limit = (sys.argv[5:6] or ["5"])[0]


def run(share):
    done = subprocess.run([fathom, "run", "--model", model, "--task", "cbt", "--data", questions, "--device", device,
                           "--set", f"limit={limit}", "--set", f"share={share}", "--format", "json"],
                          check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    return json.loads(done.stdout)


apart, shared = run("false"), run("true")
seconds = [r["engine"]["seconds"] for r in (apart, shared)]
tokens = [r["engine"]["tokens"] for r in (apart, shared)]
print(f"cbt, {shared['dataset']['n_items']} questions on {device}: apart {seconds[0]:.2f} s ({tokens[0]} tokens), shared "
      f"{seconds[1]:.2f} s ({tokens[1]} tokens), {seconds[0] / seconds[1]:.1f} times faster")
if apart["metrics"] != shared["metrics"]:
    sys.exit("scores differ")
if seconds[0] < 5 * seconds[1]:
    sys.exit("less than 5 times")
