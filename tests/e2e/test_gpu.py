"""A job on a GPU: what the server shows of it, that it prefers it, and that a killed worker changes no bit. Skips without a device.

Run: FATHOM=build/fathom python3 -m unittest discover -v -s tests/e2e -p test_gpu.py
FATHOM_GPU picks the device by number; FATHOM_GPU=cpu runs these tests on the CPU, to check them.
"""

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import unittest
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from harness import FATHOM, Server, wait_for, write_books  # noqa: E402

NUMBER = os.environ.get("FATHOM_GPU", "0")
DEVICE = "cpu" if NUMBER == "cpu" else f"cuda:{NUMBER}"
ON_GPU = DEVICE != "cpu"
# some seconds of work on either
N_DOCS, N_WORDS = (300, 1500) if ON_GPU else (16, 150)
SLOW = {"params": {"lengths": [256], "protocol": "sliding", "stride": 8}, "engine": {"device": DEVICE}}


def hello():
    """What a worker says of the device first."""
    worker = subprocess.run([FATHOM, "worker", "--device", DEVICE], stdin=subprocess.DEVNULL, capture_output=True,
                            check=False, timeout=60)
    return json.loads(worker.stdout.splitlines()[0])


class Gpu(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        first = hello()
        if first["event"] != "hello":
            if os.environ.get("FATHOM_REQUIRE_GPU") == "1":
                raise AssertionError(first["message"])
            raise unittest.SkipTest(first["message"])
        cls.tmp = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.tmp.cleanup)
        folder = Path(cls.tmp.name)
        write_books(folder / "datasets/books", N_DOCS, N_WORDS)
        cls.server = Server(folder)
        cls.addClassCleanup(cls.server.kill)
        cls.server.stop()
        cls.server.start([DEVICE, "cpu"] if ON_GPU else [DEVICE])

    def worker(self):
        return self.server.get("/api/v1/workers")["data"][0]

    def test_a_killed_worker_changes_no_bit_and_the_server_tells_of_the_device(self):
        whole = self.server.submit(**SLOW)
        wait_for(lambda: self.server.stored(whole), "a result")
        progress = self.server.job(whole)["progress"]
        if ON_GPU and not self.server.is_final(whole):
            self.assertGreater(progress["mfu"], 0)
            self.assertLess(progress["mfu"], 1)
        self.server.wait_job(whole, "succeeded")
        result = self.server.job(whole)["result"]
        print(f"{result['engine']['device_name']}: {result['engine']['tokens']} tokens,"
              f" {result['engine']['tokens_per_s']:.0f} tokens/s, {result['engine']['tflops_per_s']:.1f} TFLOP/s,"
              f" mfu {result['engine']['mfu']}")
        self.assertEqual(result["engine"]["device"], DEVICE)
        self.assertEqual(result["engine"]["mfu"] is not None, ON_GPU)
        killed = self.server.submit(**SLOW)
        wait_for(lambda: self.server.stored(killed), "a result")
        os.kill(self.server.worker_pid(), signal.SIGKILL)
        stored = len(self.server.stored(killed))
        self.assertLess(stored, self.server.job(killed)["progress"]["units_total"])
        self.server.wait_job(killed, "succeeded")
        self.assertEqual(self.worker()["restarts"], 1)
        self.assertEqual(self.server.outcome(killed), self.server.outcome(whole))

    def test_workers_show_kind_memory_and_libraries(self):
        wait_for(lambda: self.worker()["state"] == "idle", "the worker to be idle")
        worker = self.worker()
        self.assertEqual((worker["device"], worker["kind"]), (DEVICE, "cuda" if ON_GPU else "cpu"))
        self.assertIn("cuBLAS" if ON_GPU else "oneDNN", worker["libraries"])
        self.assertGreater(worker["memory_bytes"], 1 << 30)
        self.assertIn(worker["device_name"], worker["signature"])

    def test_a_job_that_asks_for_no_device_goes_to_the_gpu_and_to_its_dtype(self):
        job = self.server.submit(params={"lengths": [64]})
        engine = self.server.wait_job(job, "succeeded")["result"]["engine"]
        self.assertEqual((engine["device"], engine["dtype"]), (DEVICE, "bf16" if ON_GPU else "f32"))

    def test_requests_have_the_same_bits_alone_in_company_and_beside_a_job(self):
        rng = random.Random(1)
        base = [rng.randrange(2048) for _ in range(200)]
        prompts = [base[:rng.randrange(1, 200)] + [rng.randrange(2048) for _ in range(rng.randrange(1, 50))] for _ in range(64)]

        def ask(prompt):
            reply = json.loads(self.server.call("POST", "/v1/completions", {"model": "rope-demo", "prompt": prompt, "max_tokens": 1,
                                                                             "logprobs": 1, "echo": True}))
            if ON_GPU:
                self.assertIn("; bf16; ", reply["system_fingerprint"])
            return reply["choices"][0]

        alone = [ask(p) for p in prompts]
        with ThreadPoolExecutor(32) as pool:
            self.assertEqual(list(pool.map(ask, prompts)), alone)
            job = self.server.submit(**SLOW)
            wait_for(lambda: self.server.stored(job), "a result")
            self.assertEqual(list(pool.map(ask, prompts)), alone)
        self.server.wait_job(job, "succeeded", timeout=300)


if __name__ == "__main__":
    unittest.main()
