"""What the end-to-end tests share: `fathom serve` on a free port over the demo models, and HTTP without conveniences.

The program is $FATHOM, or build/fathom; its worker is a CPU.
"""

import http.client
import json
import os
import random
import re
import shutil
import signal
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FATHOM = os.environ.get("FATHOM", str(ROOT / "build" / "fathom"))
MODELS = ROOT / "eval" / "demo"
WORDS = ("the of and to a in that it was he for on is with as his had but not at which be her she you him they from "
         "have were said this all one would there been if so no when what up out into them could then some time very").split()


def write_book(path, size, seed=1):
    """Made-up English of about `size` bytes, always the same for a seed."""
    rng = random.Random(seed)
    text = []
    length = 0
    while length < size:
        sentence = " ".join(rng.choices(WORDS, k=rng.randint(5, 18))).capitalize() + ". "
        text.append(sentence)
        length += len(sentence)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(text))


class Reply:
    def __init__(self, response):
        self.status = response.status
        self.headers = response.headers
        self.body = response.read()

    def json(self):
        return json.loads(self.body)


class Server:
    """`fathom serve` with its own folders: .data, .models (the demo's, linked), .datasets."""

    def __init__(self, *options, env=None):
        self.folder = Path(tempfile.mkdtemp(prefix="fathom-e2e-"))
        self.data, self.models, self.datasets = (self.folder / n for n in ("data", "models", "datasets"))
        self.models.mkdir()
        self.datasets.mkdir()
        for name in ("rope-demo", "yarn-demo", "pope-demo"):
            shutil.copytree(MODELS / name, self.models / name)
        self.options = list(options)
        self.env = {**os.environ, **(env or {})}
        self.process = None
        self.start()

    def command(self, *more):
        return [FATHOM, "serve", "--data", self.data, "--models", self.models, "--datasets", self.datasets,
                *more, *self.options]

    def start(self, port=0):
        self.log = open(self.folder / "log", "w+")
        self.process = subprocess.Popen(self.command("--listen", f"127.0.0.1:{port}"), stderr=self.log, env=self.env)
        for _ in range(600):
            found = re.search(r"listening on http://127.0.0.1:(\d+)\n", (self.folder / "log").read_text())
            if found:
                self.port = int(found[1])
                self.url = f"http://127.0.0.1:{self.port}"
                return
            if self.process.poll() is not None:
                break
            time.sleep(0.05)
        raise RuntimeError("fathom serve did not come up:\n" + self.log_text())

    def log_text(self):
        return (self.folder / "log").read_text()

    def stop(self, how=signal.SIGTERM):
        """Its exit status."""
        if self.process.poll() is None:
            self.process.send_signal(how)
        status = self.process.wait(30)
        self.log.close()
        return status

    def close(self, how=signal.SIGTERM):
        status = self.stop(how)
        text = self.log_text()
        shutil.rmtree(self.folder)
        return status, text

    def ask(self, method, path, body=None, headers=None, timeout=90):
        """One request on a connection of its own; a dict becomes a JSON body."""
        headers = dict(headers or {})
        if isinstance(body, (dict, list)):
            body = json.dumps(body)
            headers.setdefault("Content-Type", "application/json")
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            connection.request(method, path, body, headers)
            return Reply(connection.getresponse())
        finally:
            connection.close()

    def get(self, path, **headers):
        return self.ask("GET", path, headers={k.replace("_", "-"): v for k, v in headers.items()})

    def submit(self, **members):
        """A job over `books` by default; its representation."""
        body = {"model": "rope-demo", "task": "pg19", "dataset": "books", "params": {"lengths": [64, 128]}, **members}
        reply = self.ask("POST", "/api/v1/jobs", body)
        assert reply.status == 202, reply.body
        return reply.json()

    def job(self, number):
        return self.get(f"/api/v1/jobs/{number}").json()

    def wait(self, number, until=("succeeded", "failed", "cancelled"), seconds=120):
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            job = self.get(f"/api/v1/jobs/{number}?wait=1").json()
            if job["state"] in until:
                return job
        raise AssertionError(f"job {number} is still {job['state']}, not one of {until}\n{self.log_text()}")

    def run(self, *arguments, **options):
        """A client command: CompletedProcess with text."""
        return subprocess.run([FATHOM, *arguments], capture_output=True, text=True, timeout=120,
                              env={**self.env, "FATHOM_URL": self.url}, **options)


class ServerTest(unittest.TestCase):
    """One server for a class; it must end well and without a sanitizer's report (of races: its own; a worker's lines are
    prefixed, and oneDNN is not instrumented)."""

    options = ()

    @classmethod
    def setUpClass(cls):
        cls.server = Server(*cls.options)
        write_book(cls.server.datasets / "books" / "a.txt", 6000, 1)
        write_book(cls.server.datasets / "books" / "b.txt", 3000, 2)

    @classmethod
    def tearDownClass(cls):
        status, log = cls.server.close()
        if status != 0 or re.search("ERROR: AddressSanitizer|^WARNING: ThreadSanitizer|runtime error", log, re.MULTILINE):
            raise AssertionError(f"fathom serve ended with {status}\n{log}")
