"""kill -9 of the worker, and of the server, at 20 random moments each: the results are those of an uninterrupted run, to the bit,
and no unit is handed out again after it was stored.

Run: FATHOM=build/fathom python3 -m unittest discover -v -s tests/e2e -p test_kill.py
"""

import os
import random
import signal
import sys
import tempfile
import time
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from harness import Server, handed_out, is_gone, wait_for, write_books  # noqa: E402

KILLS = 20


class Kill(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.tmp = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.tmp.cleanup)
        folder = Path(cls.tmp.name)
        write_books(folder / "datasets/books")
        cls.server = Server(folder)
        cls.addClassCleanup(cls.server.kill)
        job = cls.server.submit()
        begun = time.monotonic()
        cls.server.wait_job(job, "succeeded")
        cls.pace = min(0.3, (time.monotonic() - begun) / 8)  # so that a fast machine has moments, too
        cls.expected = cls.server.outcome(job)
        cls.n_units = cls.server.job(job)["progress"]["units_total"]

    def check_finished(self, job):
        state = self.server.job(job)
        self.assertEqual(state["state"], "succeeded", state["error"])
        self.assertEqual(self.server.outcome(job), self.expected)
        self.assertEqual(self.server.query("SELECT repeated_units, done_units FROM job WHERE id = ?", job),
                         [(0, self.n_units)])

    def pick_moment(self, rng, job, n):
        """Sleeps until a random moment of the job's work. Every fourth comes at once, which may be in the plan; the others come
        after a result, as a unit on which three workers die is given up. False: the job was over before."""
        if n % 4:
            before = len(self.server.stored(job))
            wait_for(lambda: self.server.is_final(job) or len(self.server.stored(job)) > before, "a result")
        time.sleep(rng.random() * self.pace)
        return not self.server.is_final(job)

    def interrupted(self, seed, strike):
        """Jobs, one after the other, until there were KILLS kills in all; strike(job) does one, and
        marks the moment; or says that there was nothing to kill."""
        rng = random.Random(seed)
        kills = jobs = 0
        while kills < KILLS:
            job = self.server.submit()
            jobs += 1
            while not self.server.is_final(job) and kills < KILLS:
                if not self.pick_moment(rng, job, kills):
                    break
                kills += strike(job)
            wait_for(lambda: self.server.is_final(job), "the job's end")
            self.check_finished(job)
        for job, stored, at in self.marks:
            again = stored.intersection(handed_out(self.server.log_since(at), job))
            self.assertEqual(again, set(), f"job {job}: stored, and handed out again")
        in_the_middle = sum(0 < len(stored) < self.n_units for _, stored, _ in self.marks)
        print(f"{kills} kills in {jobs} jobs of {self.n_units} units, {in_the_middle} of them with results stored")
        self.assertGreaterEqual(in_the_middle, KILLS // 2)

    def setUp(self):
        self.marks = []

    def mark(self, job):
        """Whatever is handed out from here on must not be among what is stored here."""
        self.marks.append((job, self.server.stored(job), self.server.log_size()))

    def test_a_killed_worker_changes_no_bit_and_repeats_no_stored_unit(self):
        def strike(job):
            pid = self.server.worker_pid()
            if not pid:
                return False
            at = self.server.log_size()
            os.kill(pid, signal.SIGKILL)
            # its last results are stored before it is buried
            wait_for(lambda: "died: signal 9" in self.server.log_since(at), "the burial")
            self.mark(job)
            return True

        self.interrupted(2, strike)

    def test_a_killed_server_changes_no_bit_and_repeats_no_stored_unit(self):
        def strike(job):
            pid = self.server.worker_pid()
            self.server.kill()
            if pid:
                wait_for(lambda: is_gone(pid), "the worker to die with its server", 5)
            self.mark(job)
            self.server.start()
            return True

        self.interrupted(3, strike)

    def test_sigterm_ends_a_working_server_soon_and_cleanly(self):
        job = self.server.submit()
        wait_for(self.server.worker_pid, "work")
        wait_for(lambda: self.server.stored(job), "a result")
        begun = time.monotonic()
        self.assertEqual(self.server.stop(), 0)
        self.assertLess(time.monotonic() - begun, 5)
        self.server.start()
        wait_for(lambda: self.server.is_final(job), "the job's end")
        self.check_finished(job)


if __name__ == "__main__":
    unittest.main()
