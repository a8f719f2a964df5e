"""The command line: clients of a running server, and how `fathom serve` starts and stops."""

import json
import os
import pty
import select
import signal
import socket
import subprocess
import tempfile
import threading
import time
import unittest
from pathlib import Path

from serving import FATHOM, MODELS, Server, ServerTest, write_book


class Clients(ServerTest):
    """The command line against a server."""

    SUBMIT = ("submit", "--model", "rope-demo", "--task", "pg19", "--data", "books", "--set", "lengths=64,128")

    def test_submit_and_wait_print_results_alone_on_stdout(self):
        done = self.server.run(*self.SUBMIT)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"^\d+\n$")
        job = done.stdout.strip()
        table = self.server.run("wait", job)
        self.assertEqual((table.returncode, table.stderr), (0, ""))
        self.assertIn("ppl_token", table.stdout)
        result = self.server.run("wait", job, "--format=json")
        self.assertEqual(json.loads(result.stdout), self.server.job(job)["result"])
        self.assertEqual(self.server.run("wait", job, "--format=csv").stdout.splitlines(),
                         self.server.get(f"/api/v1/jobs/{job}/result.csv").body.decode().splitlines())
        both = self.server.run(*self.SUBMIT, "--wait", "--format", "markdown", "--tag", "cli=yes", "--name", "by hand")
        self.assertEqual(both.returncode, 0, both.stderr)
        self.assertIn("| length |", both.stdout)

    def test_warnings_are_on_stderr(self):
        done = self.server.run(*self.SUBMIT[:-1], "lengths=64,16384", "--wait", "--format", "csv")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("fathom submit: warning: length 16384: 2 of 2 documents shorter than it", done.stderr)
        self.assertNotIn("warning", done.stdout)

    def test_cancelled_and_failed_jobs_exit_with_one(self):
        write_book(self.server.datasets / "long" / "a.txt", 1_500_000, 3)
        job = self.server.submit(dataset="long")["id"]
        cancelled = self.server.run("cancel", str(job))
        self.assertEqual(cancelled.returncode, 0, cancelled.stderr)
        self.assertRegex(cancelled.stdout, rf"^job {job} is cancell(ing|ed)\n$")
        waited = self.server.run("wait", str(job))
        self.assertEqual((waited.returncode, waited.stdout), (1, ""))
        self.assertIn(f"job {job} cancelled", waited.stderr)

    def test_refusals_exit_with_two_and_say_the_servers_words(self):
        for arguments, words in ((("submit",), "--model is missing"),
                                 (self.SUBMIT[:-1] + ("lengths=128,64",), "/params/lengths"),
                                 (self.SUBMIT[:-1] + ("nope=1",), "nope"), (self.SUBMIT + ("--set", "lengths=8"), "lengths is given twice"),
                                 (self.SUBMIT + ("--priority", "x"), "--priority: 'x' is not a number"),
                                 (("baseline", "set", "x"), "set takes NAME JOB..."),
                                 (("submit", "--model", "no", "--task", "pg19", "--data", "books"), "no model 'no'"),
                                 (("wait", "99999"), "no job 99999"), (("wait", "x"), "number"), (("wait",), "number"),
                                 (("cancel", "99999"), "no job 99999"), (("jobs", "--state", "x"), "state"),
                                 (("jobs", "--server", "http://127.0.0.1:1"), "no server answers"),
                                 (("jobs", "--server", "ftp://x"), "http://"), (("nope",), "unknown command 'nope' (fathom --help lists them)\n"),
                                 (("wait", "1", "--format", "xml"), "not table")):
            with self.subTest(arguments=arguments):
                done = self.server.run(*arguments)
                self.assertEqual((done.returncode, done.stdout), (2, ""))
                self.assertIn(words, done.stderr)

    def test_a_job_that_waits_says_why_also_where_there_is_no_terminal(self):
        job = self.server.submit(engine={"device": "cuda:7"})["id"]
        why = "no worker with device 'cuda:7'"
        for _ in range(100):
            if self.server.job(job)["waiting"]:
                break
            time.sleep(0.05)
        waiting = subprocess.Popen([FATHOM, "wait", str(job)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                   env={**os.environ, "FATHOM_URL": self.server.url})
        self.assertEqual(waiting.stderr.readline(), f"job {job} queued: {why}\n")
        self.assertIn(why, self.server.run("jobs", "--state", "queued").stdout)
        self.server.run("cancel", str(job))
        out, err = waiting.communicate(timeout=60)
        self.assertEqual((waiting.returncode, out, err), (1, "", f"fathom wait: job {job} cancelled\n"))

    def test_lists(self):
        self.server.wait(self.server.submit(name="naïve", tags={"lists": "1"})["id"])
        jobs = self.server.run("jobs", "--tag", "lists=1")
        self.assertEqual(len(jobs.stdout.splitlines()), 2)
        self.assertIn("naïve", jobs.stdout)
        self.assertEqual(len(json.loads(self.server.run("jobs", "--json").stdout)["data"]),
                         len(self.server.run("jobs").stdout.splitlines()) - 1)
        self.assertIn("yarn x4", self.server.run("models").stdout)
        self.assertEqual(json.loads(self.server.run("models", "rope-demo").stdout)["n_layer"], 3)
        self.assertRegex(self.server.run("datasets").stdout, r"\nbooks +txt +\d+ +\d+\.\d +-\n")
        self.assertEqual(self.server.run("datasets", "books").returncode, 2)
        self.assertIn("pg19", self.server.run("tasks").stdout)
        self.assertEqual(json.loads(self.server.run("tasks", "pg19").stdout)["name"], "pg19")

    def test_every_command_has_help(self):
        for command in ("gate", "gates", "baseline", "compare", "serve", "run", "frequencies", "worker", "tokenize", "generate", "submit", "wait", "jobs", "cancel", "models",
                        "datasets", "tasks"):
            done = self.server.run(command, "--help")
            self.assertEqual((done.returncode, done.stderr), (0, ""), command)
            self.assertIn("usage: fathom " + command, done.stdout)
        self.assertIn("serve", self.server.run("--help").stdout)
        self.assertRegex(self.server.run("--version").stdout, r"^fathom \d+\.\d+\.\d+\n$")
        self.assertEqual(self.server.run("--help", stdin=subprocess.DEVNULL).returncode, 0)


class Alone(unittest.TestCase):
    """`fathom run`, without a server."""

    def test_a_run_whose_messages_nobody_reads_any_more_goes_on(self):
        with tempfile.TemporaryDirectory() as folder:
            book, out = Path(folder, "a.txt"), Path(folder, "r.json")
            write_book(book, 3000)
            run = subprocess.Popen([FATHOM, "run", "--model", MODELS / "rope-demo", "--data", book, "--set", "lengths=64,16384",
                                    "--format", "json", "--out", out], stderr=subprocess.PIPE)
            run.stderr.close()  # a length beyond the book is a warning there
            self.assertEqual(run.wait(60), 0)
            self.assertEqual(len(json.loads(out.read_text())["warnings"]), 1)
            self.assertEqual(sorted(p.name for p in Path(folder).iterdir()), ["a.txt", "r.json"])


class Stopping(unittest.TestCase):
    """Starting and stopping: signals, waits under way, and what cannot be."""

    def test_a_signal_answers_waits_and_ends_with_zero(self):
        for how in (signal.SIGTERM, signal.SIGINT):
            server = Server()
            write_book(server.datasets / "long" / "a.txt", 1_500_000, 3)
            job = server.submit(dataset="long")["id"]
            server.wait(job, until=("running",))
            replies = []
            waits = [threading.Thread(target=lambda: replies.append(server.get(f"/api/v1/jobs/{job}?wait=60").status))
                     for _ in range(5)]
            for w in waits:
                w.start()
            streams = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(5)]
            for s in streams:
                s.sendall(b"GET /api/v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
            server.process.send_signal(signal.SIGHUP)  # its terminal goes away
            time.sleep(0.5)
            self.assertEqual(server.job(job)["state"], "running")
            begun = time.monotonic()
            status, log = server.close(how)
            for w in waits:
                w.join(10)
            self.assertEqual(status, 0, log)
            self.assertEqual(replies, [200] * 5)
            for s in streams:
                received = b""
                while (more := s.recv(1 << 16)):
                    received += more
                self.assertTrue(received.endswith(b"\r\n0\r\n\r\n"), received[-50:])  # the end, not a cut
                s.close()
            self.assertLess(time.monotonic() - begun, 15)

    def test_a_checkpoint_in_place_of_the_folder_that_holds_it_is_noticed(self):
        server = Server("--models", MODELS / "rope-demo")
        _, log = server.close()
        self.assertIn(f"--models {MODELS / 'rope-demo'} is a checkpoint itself", log)
        self.assertNotIn(f"--models {server.models} ", log)

    def test_what_cannot_be_served_is_refused_by_name(self):
        server = Server()
        try:
            listen = f"127.0.0.1:{server.port}"
            table = [(("--listen", listen), listen), (("--listen", "nonsense"), "nonsense"),
                     (("--listen", "127.0.0.1:65536"), "a port is a number from 0 to 65535"),
                     (("--listen", ":8080"), "':8080' is not HOST:PORT"),
                     (("--listen", "127.0.0.1:0", "--models", "/nowhere"), "/nowhere"),
                     (("--listen", "127.0.0.1:0", "--datasets", FATHOM), "not a folder"),
                     (("--listen", "127.0.0.1:0", "--workers", "gpu"), "--workers: 'gpu'"),
                     (("--listen", "127.0.0.1:0", "--workers", "cuda:"), "--workers: 'cuda:'"),
                     (("--listen", "127.0.0.1:0"), str(server.data)), (("--listen", "127.0.0.1:0", "extra"), "extra"),
                     (("--listen", "127.0.0.1:0", "--data", "/proc/nope"), None)]
            for more, words in table:
                done = subprocess.run(server.command(*more), capture_output=True, text=True, timeout=30)
                self.assertEqual(done.returncode, 2, (more, done.stderr))
                self.assertTrue(done.stderr.startswith("fathom serve: "), done.stderr)
                self.assertIn(words or "given twice", done.stderr)
        finally:
            server.close()

    def test_jobs_outlive_the_server(self):
        server = Server()
        write_book(server.datasets / "books" / "a.txt", 6000, 1)
        job = server.submit()["id"]
        done = server.wait(job)
        server.stop()
        server.start()
        self.assertEqual(server.job(job), done)
        status, log = server.close()
        self.assertEqual(status, 0, log)


    def test_a_client_outlasts_the_death_of_the_server_in_its_first_poll(self):
        server = Server()
        write_book(server.datasets / "books" / "a.txt", 60_000, 1)
        job = server.submit()["id"]
        server.wait(job, until=("running",))
        waiting = subprocess.Popen([FATHOM, "wait", str(job), "--server", server.url], stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True)
        time.sleep(0.5)
        server.stop(signal.SIGKILL)
        server.start(server.port)
        out, said = waiting.communicate(timeout=120)
        status, log = server.close()
        self.assertEqual((waiting.returncode, status), (0, 0), said + log)
        self.assertIn("ppl_token", out)

    def test_a_waiting_client_outlasts_a_restart_and_draws_a_bar_on_a_terminal(self):
        server = Server()
        write_book(server.datasets / "books" / "a.txt", 200_000, 1)
        job = server.submit()["id"]
        server.wait(job, until=("running",))
        terminal, side = pty.openpty()
        waiting = subprocess.Popen([FATHOM, "wait", str(job), "--server", server.url], stdout=subprocess.PIPE, stderr=side, text=True)
        os.close(side)
        drawn = ""
        while "running [" not in drawn:
            self.assertTrue(select.select([terminal], [], [], 30)[0], drawn)
            drawn += os.read(terminal, 1 << 16).decode()
        server.stop()
        time.sleep(1)
        server.start(server.port)
        out, _ = waiting.communicate(timeout=120)
        drawn += os.read(terminal, 1 << 16).decode()
        os.close(terminal)
        status, log = server.close()
        self.assertEqual((waiting.returncode, status), (0, 0), log)
        self.assertIn("ppl_token", out)
        self.assertRegex(drawn, r"\r.*running \[#*\.*\] +\d+ %  [\d.]+k? of [\d.]+k tokens")


if __name__ == "__main__":
    unittest.main()
