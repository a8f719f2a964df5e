"""What the server does when workers die, lie, hang or differ; two workers on a job; cancel, restart and delete.

Run: FATHOM=build/fathom python3 -m unittest discover -v -s tests/e2e -p test_supervision.py
"""

import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
import unittest
import unittest.mock
import urllib.error
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from harness import FATHOM, MODELS, RUN_LINE, WORKER, Server, wait_for, write_books  # noqa: E402

PROXY = Path(__file__).with_name("proxy_worker.py")
N_DOCS = 12
# each book is some 100 windows here: seconds of work, so that there is a middle to interrupt
SLOW = {"params": {"lengths": [64], "protocol": "sliding", "stride": 2}}


class Supervision(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.tmp = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.tmp.cleanup)
        cls.folder = Path(cls.tmp.name)
        write_books(cls.folder / "datasets/books", N_DOCS, 40)
        (cls.folder / "models").mkdir()
        shutil.copytree(MODELS / "rope-demo", cls.folder / "models/rope-demo")
        cls.server = Server(cls.folder, models=cls.folder / "models")
        cls.addClassCleanup(cls.server.kill)
        job, slow = cls.server.submit(), cls.server.submit(**SLOW)
        cls.server.wait_job(job, "succeeded")
        cls.server.wait_job(slow, "succeeded")
        cls.expected = cls.server.outcome(job)
        cls.expected_slow = cls.server.outcome(slow)
        cls.n_units = cls.server.job(job)["progress"]["units_total"]

    def with_worker(self, habit=None, n=1):
        """Starts the server anew with n workers of a habit."""
        self.server.stop()
        self.log_at = self.server.log_size()
        spec = self.server.worker_spec()
        if habit is not None:
            spec = f"{sys.executable} {PROXY} {habit} -- {self.server.worker_spec(WORKER or FATHOM)}"
        self.server.start([spec] * n)

    def log(self):
        return self.server.log_since(self.log_at)

    def check_succeeds(self, job):
        state = self.server.wait_job(job, "succeeded", "failed")
        self.assertEqual(state["state"], "succeeded", state["error"])
        slow = state["params"]["protocol"] == "sliding"
        self.assertEqual(self.server.outcome(job), self.expected_slow if slow else self.expected)

    def deaths(self):
        return len(re.findall(r"warn  worker 0 \(.*died: exit status 9", self.log()))

    def events(self, job):
        return [kind for (kind,) in self.server.query("SELECT kind FROM event WHERE job_id = ? ORDER BY id", job)]

    def status_of(self, method, path):
        try:
            self.server.call(method, path)
        except urllib.error.HTTPError as e:
            return e.code, json.loads(e.read())["detail"]
        return 200, ""

    # -- deaths ------------------------------------------------------------------------------------

    def test_a_unit_that_kills_its_worker_is_given_up_and_the_rest_is_finished(self):
        self.with_worker("die_on=5")
        job = self.server.submit()
        state = self.server.wait_job(job, "failed", "succeeded")
        self.assertEqual(state["state"], "failed")
        self.assertEqual(state["error"]["units"], [5])
        self.assertIn(f"1 of {self.n_units} units failed; unit 5: ", state["error"]["message"])
        self.assertIn("exit status 9", state["error"]["message"])
        self.assertEqual(self.server.stored(job), set(range(self.n_units)) - {5})
        self.assertEqual(self.deaths(), 4)  # once in company, three times alone
        self.assertIsNone(state.get("result"))
        self.assertIs(state["partial"]["partial"], True)
        self.assertEqual(state["partial"]["failed_units"], [5])
        items = self.server.call("GET", f"/api/v1/jobs/{job}/items").splitlines()
        self.assertEqual(len(items), self.n_units - 1)
        self.assertTrue(set(items) < set(self.expected[1].splitlines()))
        self.assertIn("unit_failed", self.events(job))
        # the same job with a sound worker, from nothing
        self.with_worker()
        self.server.call("POST", f"/api/v1/jobs/{job}/restart")
        self.check_succeeds(job)

    def test_a_plan_that_kills_three_workers_fails_the_job(self):
        self.with_worker("die_planning")
        job = self.server.submit()
        state = self.server.wait_job(job, "failed")
        self.assertIn("planned 3 times", state["error"]["message"])
        self.assertEqual(self.deaths(), 3)

    def test_a_worker_that_sends_garbage_is_replaced_and_the_job_goes_on(self):
        self.with_worker(f"garbage={self.folder}/garbage")
        job = self.server.submit()
        self.check_succeeds(job)
        self.assertIn("worker 0: killed: JSON", self.log())

    def test_a_device_that_fails_is_replaced_and_the_job_goes_on(self):
        self.with_worker(f"fail_run={self.folder}/fail_run")
        job = self.server.submit()
        self.check_succeeds(job)
        self.assertIn("fell off the bus", self.log())
        self.assertEqual(self.server.get("/api/v1/workers")["data"][0]["restarts"], 1)

    def test_events_that_are_nobody_s_change_nothing(self):
        self.with_worker("stray")
        job = self.server.submit()
        self.check_succeeds(job)

    def test_a_result_is_not_taken_back(self):
        self.with_worker("recant")
        self.check_succeeds(self.server.submit())

    def test_a_worker_that_invents_units_is_replaced(self):
        self.with_worker(f"invent={self.folder}/invent")
        self.check_succeeds(self.server.submit())
        self.assertIn("killed: its results are malformed", self.log())

    # -- sharing -----------------------------------------------------------------------------------

    def test_a_worker_whose_device_is_not_there_is_unusable_and_says_why(self):
        self.server.stop()
        self.log_at = self.server.log_size()
        self.server.start([self.server.worker_spec(), "cuda:99"])

        def lost():
            return self.server.get("/api/v1/workers")["data"][1]

        wait_for(lambda: lost()["state"] == "unusable", "the worker to be unusable")
        self.assertIn("device 'cuda:99'", lost()["error"])
        self.check_succeeds(self.server.submit())
        waits = self.server.submit(engine={"device": "cuda:99"})
        why = wait_for(lambda: self.server.job(waits)["waiting"], "a reason to wait")
        self.assertIn("no worker with device 'cuda:99'; worker 1 is unusable: device 'cuda:99'", why)
        self.assertEqual(len(re.findall("worker 1 .*is unusable", self.log())), 2)  # of the worker, of the job
        self.assertNotIn("worker 1: worker: ", self.log())  # not from its stderr as well, every minute
        self.assertEqual((lost()["state"], lost()["restarts"]), ("unusable", 0))
        self.server.call("POST", f"/api/v1/jobs/{waits}/cancel")

    def test_a_worker_that_picks_its_device_says_why_it_is_the_cpu(self):
        self.server.stop()
        self.log_at = self.server.log_size()
        with unittest.mock.patch.dict(os.environ, CUDA_VISIBLE_DEVICES=""):
            self.server.start(["auto"])
        wait_for(lambda: self.server.get("/api/v1/workers")["data"][0]["device"] == "cpu", "the worker to be up")
        self.assertRegex(self.log(), "worker 0: device auto is the CPU: .")

    def test_two_workers_share_a_job_and_the_bits_stay(self):
        self.with_worker(n=2)
        job = self.server.submit(**SLOW)
        self.check_succeeds(job)
        by_worker = {m[1] for m in map(RUN_LINE.search, self.log().splitlines()) if m and int(m[2]) == job}
        self.assertEqual(by_worker, {"0", "1"})
        self.assertEqual(self.server.query("SELECT repeated_units FROM job WHERE id = ?", job), [(0,)])

    def test_a_job_of_higher_priority_overtakes(self):
        self.with_worker()
        low = [self.server.submit() for _ in range(3)]
        high = self.server.submit(priority=5)
        for job in [*low, high]:
            self.check_succeeds(job)
        ends = dict(self.server.query("SELECT id, finished_ms FROM job"))
        self.assertLess(ends[high], ends[low[1]])
        self.assertLess(ends[low[1]], ends[low[2]])

    # -- cancel, restart, delete ----------------------------------------------------------------------

    def test_cancel_while_running_keeps_what_was_computed(self):
        self.with_worker()
        job = self.server.submit(**SLOW)
        wait_for(lambda: self.server.stored(job), "a result")
        begun = time.monotonic()
        self.server.call("POST", f"/api/v1/jobs/{job}/cancel")
        state = self.server.wait_job(job, "cancelled", "succeeded")
        self.assertEqual(state["state"], "cancelled")
        self.assertLess(time.monotonic() - begun, 3)
        stored = self.server.stored(job)
        self.assertTrue(stored)
        self.assertLess(len(stored), N_DOCS)
        self.assertEqual(self.server.get("/api/v1/workers")["data"][0]["restarts"], 0)
        self.assertEqual(self.status_of("POST", f"/api/v1/jobs/{job}/cancel")[0], 409)
        other = self.server.submit()  # the same worker is good for the next
        self.check_succeeds(other)
        self.assertEqual(self.server.stored(job), stored)
        self.server.call("DELETE", f"/api/v1/jobs/{job}")
        self.assertEqual(self.server.stored(job), set())
        self.assertEqual(self.events(job), ["deleted"])
        self.assertEqual(self.status_of("GET", f"/api/v1/jobs/{job}")[0], 404)

    def test_a_worker_that_does_not_hear_a_cancel_is_killed_after_ten_seconds(self):
        self.with_worker("deaf")
        job = self.server.submit(params={"lengths": [64, 128], "protocol": "sliding", "stride": 1})
        wait_for(self.server.worker_pid, "work")
        self.server.call("POST", f"/api/v1/jobs/{job}/cancel")
        self.assertEqual(self.server.job(job)["state"], "cancelling")
        begun = time.monotonic()
        state = self.server.wait_job(job, "cancelled", "succeeded")
        self.assertEqual(state["state"], "cancelled")
        if "did not stop when told to" in self.log():  # else it was done within the time
            self.assertGreater(time.monotonic() - begun, 9)

    def test_a_queued_job_is_cancelled_at_once(self):
        self.with_worker()
        first, second = self.server.submit(**SLOW), self.server.submit()
        self.server.call("POST", f"/api/v1/jobs/{second}/cancel")
        self.assertEqual(self.server.job(second)["state"], "cancelled")
        self.assertEqual(self.status_of("DELETE", f"/api/v1/jobs/{first}")[0], 409)
        self.check_succeeds(first)
        self.assertEqual(self.server.stored(second), set())

    # -- pins ---------------------------------------------------------------------------------------

    def stop_in_the_middle(self):
        """A job with some results, and no server."""
        self.with_worker()
        job = self.server.submit(**SLOW)
        wait_for(lambda: self.server.stored(job), "a result")
        self.server.kill()
        self.assertLess(len(self.server.stored(job)), N_DOCS)
        return job

    def test_a_job_waits_for_its_signature_and_goes_on_when_it_is_back(self):
        job = self.stop_in_the_middle()
        stored = self.server.stored(job)
        self.server.start()
        self.with_worker("as=another_machine")
        state = wait_for(lambda: (j := self.server.job(job))["waiting"] and j, "a reason to wait")
        self.assertEqual(state["state"], "queued")
        self.assertIn("no worker with signature", state["waiting"])
        self.assertTrue(stored <= self.server.stored(job))
        self.with_worker()
        self.check_succeeds(job)
        self.assertIsNone(self.server.job(job)["waiting"])

    def test_a_model_that_changed_on_disk_fails_the_job(self):
        job = self.stop_in_the_middle()
        path = self.folder / "models/rope-demo/config.json"
        before = path.read_text()
        try:
            path.write_text(before + "\n")
            self.server.start()
            state = self.server.wait_job(job, "failed", "succeeded")
        finally:
            path.write_text(before)
        self.assertEqual(state["error"]["code"], "changed")
        self.assertIn("changed on disk", state["error"]["message"])

    def test_all_stored_but_not_finished_is_finished_by_the_next_server(self):
        self.with_worker()
        job = self.server.submit()
        self.check_succeeds(job)
        self.server.kill()
        db = sqlite3.connect(f"{self.server.data}/fathom.db")
        with db:
            db.execute("UPDATE job SET state = 'running', result = NULL, headline = NULL, finished_ms = NULL WHERE id = ?", (job,))
        db.close()
        self.log_at = self.server.log_size()
        self.server.start()
        self.check_succeeds(job)
        self.assertNotIn(f"plan job {job}", self.log())

    # -- the store ------------------------------------------------------------------------------------

    def test_a_store_that_is_busy_loses_no_result_and_no_state(self):
        self.with_worker()
        job = self.server.submit(**SLOW)
        wait_for(lambda: self.server.stored(job), "a result")
        db = sqlite3.connect(f"{self.server.data}/fathom.db", isolation_level=None)
        db.execute("BEGIN IMMEDIATE")
        at = self.server.log_size()
        wait_for(lambda: "the store refused a write" in self.server.log_since(at), "a refusal")
        self.assertGreaterEqual(self.status_of("POST", f"/api/v1/jobs/{job}/cancel")[0], 500)  # told, not dropped
        db.execute("ROLLBACK")
        db.close()
        self.check_succeeds(job)
        self.assertEqual(self.server.query("SELECT repeated_units FROM job WHERE id = ?", job), [(0,)])

    # -- one server -----------------------------------------------------------------------------------

    def test_a_second_server_on_the_folder_is_refused(self):
        second = subprocess.run([FATHOM, "serve", "--listen", "127.0.0.1:0", "--data", self.server.data],
                                capture_output=True, text=True, timeout=20)
        self.assertNotEqual(second.returncode, 0)
        self.assertIn("in use by another fathom serve", second.stderr)


if __name__ == "__main__":
    unittest.main()
