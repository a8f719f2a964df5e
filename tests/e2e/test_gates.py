"""Gates over HTTP: baselines and their versions, gates, runs and their verdicts, the cache of results, webhooks, history; and
what of all that a kill -9 of the server leaves: everything.

Run: FATHOM=build/fathom python3 -m unittest discover -v -s tests/e2e -p test_gates.py
"""

import hashlib
import hmac
import http.server
import json
import os
import re
import shutil
import signal
import struct
import sys
import threading
import time
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from serving import Server, ServerTest, write_book  # noqa: E402

N_BOOKS = 10  # a paired rule needs eight documents
PARAMS = {"lengths": [64, 128]}
GATE = {
    "name": "books",
    "measure": [{"id": "books", "task": "pg19", "dataset": "shelf", "params": PARAMS}],
    "rules": [
        {"name": "no worse", "type": "relative", "metric": "ppl_token", "length": 128, "min_effect": 0.01},
        {"name": "bounded", "type": "absolute", "metric": "ppl_token", "length": 64, "max": 1e6},
    ],
}


def write_shelf(server, n=N_BOOKS):
    for i in range(n):
        write_book(server.datasets / "shelf" / f"{i}.txt", 1500, 100 + i)


def gate(**changes):
    return {**GATE, **changes}


def spoil(model, amount):
    """Scales every weight of the last tensor data by a little noise: deterministic, and worse the larger it is."""
    path = model / "model.safetensors"
    data = bytearray(path.read_bytes())
    (n,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + n])
    for name, tensor in header.items():
        if not name.endswith("mlp.down_proj.weight"):
            continue
        a, b = (8 + n + o for o in tensor["data_offsets"])
        size, code = {"F32": (4, "f"), "BF16": (2, "H"), "F16": (2, "e")}[tensor["dtype"]]
        for at in range(a, b, size * 2):  # every second weight
            if code == "H":
                data[at + 1] ^= 0x80 if amount >= 1 else 0
            else:
                (v,) = struct.unpack_from("<" + code, data, at)
                struct.pack_into("<" + code, data, at, v * (1 - amount))
    path.write_bytes(data)


class GateTest(ServerTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        write_shelf(cls.server)

    def post(self, path, body, status=201, **headers):
        reply = self.server.ask("POST", path, body, {k.replace("_", "-"): v for k, v in headers.items()})
        self.assertEqual(reply.status, status, reply.body)
        return reply

    def measure(self, **members):
        """A finished job; its representation."""
        body = {"dataset": "shelf", "params": PARAMS, **members}
        job = self.server.wait(self.server.submit(**body)["id"])
        self.assertEqual(job["state"], "succeeded", job["error"])
        return job

    def run_gate(self, name, model="rope-demo", baseline="main", **members):
        """A finished run."""
        run = self.post(f"/api/v1/gates/{name}/runs?wait=60", {"model": model, "baseline": baseline, **members}, 202).json()
        for _ in range(5):
            if run["state"] in ("done", "failed"):
                return run
            run = self.server.get(f"/api/v1/gates/{name}/runs/{run['id']}?wait=60").json()
        self.fail(f"run {run['id']} is still {run['state']}\n{self.server.log_text()}")


class Runs(GateTest):
    def test_the_same_model_passes_and_its_job_is_not_computed_again(self):
        job = self.measure()
        self.post("/api/v1/baselines", {"name": "main", "jobs": [job["id"]]})
        self.post("/api/v1/gates", GATE)
        run = self.run_gate("books", tags={"branch": "main", "commit": "abc"})
        self.assertEqual((run["state"], run["outcome"], run["verdict"]["verdict"]), ("done", "pass", "pass"), run)
        self.assertEqual(run["jobs"][0]["cached_from"], job["id"])
        rule = run["verdict"]["rules"][0]
        self.assertEqual((rule["delta"], rule["lower"], rule["upper"]), (0, 0, 0))
        self.assertEqual((run["verdict"]["commit"], run["verdict"]["branch"], run["verdict"]["run"]), ("abc", "main", run["id"]))


if __name__ == "__main__":
    unittest.main()
