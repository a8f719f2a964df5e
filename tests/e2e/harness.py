"""A real server on the demo models and small books, for the end-to-end tests."""

import json
import os
import random
import re
import signal
import sqlite3
import subprocess
import time
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FATHOM = os.environ.get("FATHOM", str(ROOT / "build/fathom"))
# another program for the workers, so that a server with sanitizers need not wait for an engine with them
WORKER = os.environ.get("FATHOM_WORKER")
MODELS = ROOT / "eval/demo"
RUN_LINE = re.compile(r'debug worker (\d+): job (\d+): \{"cmd":"run".*"units":(\[\[.*\]\])\}')
JOB = {"model": "rope-demo", "task": "pg19", "dataset": "books", "params": {"lengths": [64, 256]}}


def write_books(folder, n_docs=64, n_words=80):
    """Small books of made-up words; a pure function of nothing."""
    rng = random.Random(1)
    syllables = [a + b for a in "bdfgklmnprst" for b in "aeiou"]
    words = ["".join(rng.choice(syllables) for _ in range(rng.randint(1, 4))) for _ in range(400)]
    folder.mkdir(parents=True)
    for i in range(n_docs):
        text = " ".join(rng.choice(words) for _ in range(n_words + i))
        (folder / f"{i:03}.txt").write_text(text, encoding="utf-8")


class Server:
    """One data folder, and the servers that come and go on it."""

    def __init__(self, folder, *, models=MODELS):
        self.data = folder / "data"
        self.log_path = folder / "log"
        self.folder = folder
        self.models = models
        self.process = None
        self.workers = [self.worker_spec()]
        self.start()

    def worker_spec(self, program=WORKER):
        """A worker on the CPU: the server's own program unless another is named."""
        return "cpu" if program is None else (
            f"{program} worker --device cpu --models {self.models} --datasets {self.folder}/datasets")

    def start(self, workers=None):
        """Starts with `workers`, or those of the last start."""
        self.workers = workers or self.workers
        at = self.log_path.stat().st_size if self.log_path.exists() else 0
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(
                [FATHOM, "serve", "--listen", "127.0.0.1:0", "--data", self.data, "--models",
                 self.models, "--datasets", self.folder / "datasets",
                 *(a for w in self.workers for a in ("--workers", w))],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                env={**os.environ, "FATHOM_LOG": "debug"})
        self.url = wait_for(lambda: re.search(r"http://[\d.:]+", self.log_since(at)), "the server to listen")[0]

    def log_since(self, at):
        with self.log_path.open("rb") as f:
            f.seek(at)
            return f.read().decode()

    def log_size(self):
        return self.log_path.stat().st_size

    def call(self, method, path, body=None):
        request = urllib.request.Request(
            self.url + path, method=method, data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.read().decode()

    def get(self, path):
        return json.loads(self.call("GET", path))

    def submit(self, **changes):
        return json.loads(self.call("POST", "/api/v1/jobs", {**JOB, **changes}))["id"]

    def job(self, job):
        return self.get(f"/api/v1/jobs/{job}")

    def wait_job(self, job, *states, timeout=60):
        """The job, once it is in one of the states."""
        wait_for(lambda: self.job(job)["state"] in states, f"job {job} to be {' or '.join(states)}", timeout)
        return self.job(job)

    def is_final(self, job):
        return self.job(job)["state"] in ("succeeded", "failed", "cancelled")

    def worker_pid(self):
        """The process that works, or 0."""
        worker = self.get("/api/v1/workers")["data"][0]
        return worker["pid"] if worker["state"] == "busy" else 0

    def outcome(self, job):
        """What must not differ: the metrics as written, and the items."""
        text = self.call("GET", f"/api/v1/jobs/{job}/result.json")
        metrics = json.dumps(json.loads(text, parse_float=str, parse_int=str)["metrics"])
        return metrics, self.call("GET", f"/api/v1/jobs/{job}/items")

    def query(self, sql, *values):
        db = sqlite3.connect(f"file:{self.data}/fathom.db?mode=ro", uri=True, timeout=10)
        try:
            return db.execute(sql, values).fetchall()
        finally:
            db.close()

    def stored(self, job):
        return {unit for (unit,) in self.query("SELECT unit FROM unit WHERE job_id = ?", job)}

    def kill(self):
        self.process.kill()
        self.process.wait()

    def stop(self):
        """SIGTERM; the exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=10)


def wait_for(condition, what, timeout=60):
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        time.sleep(0.01)
    raise AssertionError(f"waited {timeout} s for {what}")


def handed_out(log, job):
    """Units in the run commands of a log, in order."""
    for line in log.splitlines():
        match = RUN_LINE.search(line)
        if match and int(match[2]) == job:
            for a, b in json.loads(match[3]):
                yield from range(a, b)


def is_gone(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except FileNotFoundError:
        return True
