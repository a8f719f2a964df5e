"""The demo: three small models read six novels, at lengths beyond those they were trained at.

    python3 eval/demo/demo.py FATHOM     (the program; `make demo` calls this)

Fetches the novels once (build/demo/novels), starts `fathom serve`, submits a job a model over REST, draws progress, prints the
table, and leaves the page open until Ctrl-C; not on a terminal, or with CI=1, it stops after the table. FATHOM_DEMO_PORT moves
it from 8080. The standard library is all that it needs.
"""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
PORT = os.environ.get("FATHOM_DEMO_PORT", "8080")
URL = f"http://127.0.0.1:{PORT}"
LENGTHS = [64, 128, 256, 512, 1024, 2048, 4096]
TOKENS = 8193  # of each novel: two windows at the greatest length
MODELS = [("rope-demo", "RoPE, trained at 256"), ("yarn-demo", "YaRN, tuned to 1024"), ("pope-demo", "PoPE, trained at 256")]


def call(path, body=None):
    request = urllib.request.Request(URL + path, data=None if body is None else json.dumps(body).encode())
    if body is not None:
        request.add_header("Content-Type", "application/json")
    try:
        with urllib.request.urlopen(request, timeout=90) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as e:
        sys.exit(f"demo: {path}: {e.code} {e.read().decode()}")


def start_server(fathom, work):
    """A running server, with a data directory of its own (made anew, so that the demo starts from nothing; not while another
    demo has it)."""
    try:
        socket.create_server(("127.0.0.1", int(PORT))).close()
    except (OSError, ValueError, OverflowError):
        sys.exit(f"demo: port {PORT} is in use, or is none; FATHOM_DEMO_PORT=8081 make demo takes another")
    shutil.rmtree(work + "/data", ignore_errors=True)
    log = open(work + "/serve.log", "w", encoding="utf-8")
    command = [fathom, "serve", "--listen", f"127.0.0.1:{PORT}", "--data", work + "/data", "--models", HERE, "--datasets", work]
    server = subprocess.Popen(command, stderr=log, stdout=log, start_new_session=True)
    for _ in range(100):
        try:
            urllib.request.urlopen(URL + "/healthz", timeout=5).close()
            return server
        except OSError:
            if server.poll() is not None:
                break
            time.sleep(0.1)
    server.terminate()
    sys.exit(f"demo: the server did not start; {work}/serve.log says:\n" + open(work + "/serve.log", encoding="utf-8").read())


def bar(job):
    done, total = job["progress"]["done"], job["progress"]["total"] or 0
    part = done / total if total else 0.0
    return f"{job['model'].split('-')[0]:4} [{'#' * round(16 * part):16}] {100 * part:3.0f} %"


def wait(ids):
    """Follows the jobs to their end, as bars on one line of a terminal or a line now and then elsewhere."""
    terminal, said = sys.stderr.isatty(), 0.0
    while True:
        jobs = [call(f"/api/v1/jobs/{i}") for i in ids]
        ended = all(j["state"] in ("succeeded", "failed", "cancelled") for j in jobs)
        if terminal:
            print("\r\033[K" + "   ".join(map(bar, jobs)), end="\n" if ended else "", file=sys.stderr, flush=True)
        elif ended or time.time() - said > 15:
            said = time.time()
            print("   ".join(map(bar, jobs)), file=sys.stderr, flush=True)
        if ended:
            return jobs
        time.sleep(0.5)


def table(jobs):
    """Perplexity by length: a column a model, ± the standard error over the novels."""
    columns = []
    for job in jobs:
        if job["state"] != "succeeded":
            sys.exit(f"demo: job {job['id']} {job['state']}: {json.dumps(job.get('error'))}")
        metrics = job["result"]["metrics"]
        columns.append({m["length"]: m for m in metrics if m["name"] == "ppl_token"})
    print("\nPerplexity of six novels against the length that the model reads at once\n")
    print("  length" + "".join(f"{label:>24}" for _, label in MODELS))
    for n in LENGTHS:
        cells = (f"{c[n]['value']:.2f} ± {c[n]['stderr']:.2f}" for c in columns)
        print(f"{n:8}" + "".join(f"{cell:>24}" for cell in cells))
    print("\nRoPE rises beyond its length, YaRN beyond the length it was tuned to, PoPE stays flat.")


def main():
    fathom = os.path.abspath(sys.argv[1])
    work = os.path.abspath("build/demo")
    os.makedirs(work, exist_ok=True)
    if not os.path.exists(work + "/novels/sense-and-sensibility.txt"):
        print("demo: fetching six novels (1.6 MB)", file=sys.stderr)
        subprocess.run([sys.executable, HERE + "/novels.py", work + "/novels"], check=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    server = start_server(fathom, work)
    try:
        ids = []
        for model, label in MODELS:
            params = {"lengths": LENGTHS, "protocol": "windows", "max_tokens_per_doc": TOKENS}
            ids.append(call("/api/v1/jobs", {"model": model, "task": "pg19", "dataset": "novels", "name": label, "params": params,
                                             "engine": {"dtype": "f32"}})["id"])
        table(wait(ids))
        if sys.stdout.isatty() and os.environ.get("CI", "") in ("", "0", "false"):
            print(f"\nThe curves: {URL}   (Ctrl-C stops the server)")
            server.wait()
    except KeyboardInterrupt:
        print()
    finally:
        server.terminate()
        try:
            server.wait(30)
        except subprocess.TimeoutExpired:
            server.kill()


if __name__ == "__main__":
    main()
