"""`fathom gate`, `baseline` and `compare`: verdicts and exit codes, with a private server and with somebody's; that nothing is
left behind; and that what the README shows for GitHub and GitLab runs as it stands there."""

import glob
import gzip
import http.server
import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import tempfile
import threading
import time
import unittest
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import checkpoint
import prose
from harness import is_gone, wait_for
from serving import FATHOM, MODELS, ROOT, Server

BOOKS = {"id": "books", "task": "pg19", "dataset": "books", "params": {"lengths": [64, 256]}}
WORDS = {"id": "words", "task": "lambada", "dataset": "words.jsonl"}
NO_WORSE = {"name": "no worse", "type": "relative", "measure": "books", "metric": "ppl_token", "length": 256, "min_effect": 0.02}
LAST_WORDS = {"name": "last words", "type": "relative", "measure": "words", "metric": "acc", "min_effect": 0.1}
SANE = {"name": "sane", "type": "absolute", "measure": "books", "metric": "ppl_token", "length": 256, "max": 100}


def children_of(pid):
    """All descendants."""
    out = []
    for stat in glob.glob("/proc/[0-9]*/stat"):
        try:
            fields = Path(stat).read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        if int(fields[1]) == pid:
            child = int(stat.split("/")[2])
            out += [child, *children_of(child)]
    return out


def write_words(path, n, seed=3):
    rng = prose.random.Random(seed)
    with path.open("w") as f:
        for _ in range(n):
            f.write(json.dumps({"text": prose.document(rng, 2).replace("\n", " ").strip(' ."')}) + "\n")


class Workshop(unittest.TestCase):
    """A folder like a team's: models, data, gates; no server but the commands' own."""

    @classmethod
    def setUpClass(cls):
        cls.root = Path(tempfile.mkdtemp(prefix="fathom-gate-"))
        cls.tmp = cls.root / "tmp"
        cls.tmp.mkdir()
        cls.data = cls.root / "data"
        prose.write_library(cls.data / "books", 16, sentences=(4, 9))
        write_words(cls.data / "words.jsonl", 60)
        cls.weights = checkpoint.read_safetensors(MODELS / "rope-demo" / "model.safetensors")
        cls.noise = checkpoint.Noise()
        checkpoint.copy_model(MODELS / "rope-demo", cls.root / "models" / "good")
        cls.add_model("worse", 0.15)

    @classmethod
    def tearDownClass(cls):
        left = list(cls.tmp.iterdir())
        shutil.rmtree(cls.root)
        if left:
            raise AssertionError(f"left behind: {left}")

    @classmethod
    def add_model(cls, name, size, seed=1):
        checkpoint.copy_model(MODELS / "rope-demo", cls.root / "models" / name, cls.noise.add(cls.weights, size, seed))

    @classmethod
    def env(cls, **more):
        env = {k: v for k, v in os.environ.items() if not k.startswith("FATHOM_")}
        return {**env, "TMPDIR": str(cls.tmp), **more}

    @classmethod
    def run_fathom(cls, *arguments, **options):
        return subprocess.run([FATHOM, *map(str, arguments)], capture_output=True, text=True, timeout=180, cwd=cls.root,
                              env=cls.env(), **options)

    @classmethod
    def write_gate(cls, name, *rules, measure=(BOOKS, WORDS), **more):
        path = cls.root / f"{name}.json"
        path.write_text(json.dumps({"name": name, "measure": list(measure), "rules": list(rules), **more}))
        return path

    def gate(self, gate, model, *more, expect=0):
        """The verdict."""
        out = self.root / "verdict.json"
        out.unlink(missing_ok=True)
        done = self.run_fathom("gate", "--gate", gate, "--model", self.root / "models" / model, "--json", out,
                               *(() if "--server" in more else ("--datasets", self.data)), *more)
        self.assertEqual(done.returncode, expect, done.stdout + done.stderr)
        return json.loads(out.read_text())

    @classmethod
    def make_baseline(cls, gate, name, *more, model="good"):
        done = cls.run_fathom("baseline", "make", name, "--gate", gate, "--model", cls.root / "models" / model,
                              "--datasets", cls.data, *more)
        if done.returncode:
            raise AssertionError(done.stderr)


class Local(Workshop):
    """Without a server."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.full = cls.write_gate("full", NO_WORSE, LAST_WORDS, SANE)
        cls.baseline = cls.root / "baseline.json.gz"
        cls.make_baseline(cls.full, cls.baseline)

    def test_the_same_model_passes_and_a_worse_one_fails(self):
        same = self.gate(self.full, "good", "--baseline", self.baseline)
        self.assertEqual(same["verdict"], "pass")
        self.assertEqual([r.get("delta") for r in same["rules"] if r["type"] == "relative"], [0, 0])
        self.assertTrue(same["baseline"]["name"].startswith("baseline-"))
        worse = self.gate(self.full, "worse", "--baseline", self.baseline, "--tag", "commit=abc", "--tag", "branch=x", expect=1)
        by_name = {r["name"]: r for r in worse["rules"]}
        self.assertEqual((by_name["no worse"]["verdict"], worse["commit"], worse["branch"]), ("fail", "abc", "x"))
        self.assertGreater(by_name["no worse"]["lower"], 0)

    def test_the_verdict_is_a_table_and_three_files(self):
        files = [self.root / name for name in ("v.xml", "v.md", "v.json")]
        done = self.run_fathom("gate", "--gate", self.full, "--model", self.root / "models" / "worse", "--baseline", self.baseline,
                               "--datasets", self.data, "--junit", files[0], "--markdown", files[1], "--json", files[2])
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("no worse", done.stdout)
        self.assertIn("fail", done.stdout.lower())
        self.assertRegex(done.stderr, r"books: job \d+ succeeded")
        suite = ElementTree.parse(files[0]).getroot()
        self.assertEqual(len(list(suite.iter("testcase"))), 3)
        self.assertEqual([c.get("name") for c in suite.iter("testcase") if c.find("failure") is not None],
                         [r["name"] for r in json.loads(files[2].read_text())["rules"] if r["verdict"] == "fail"])
        self.assertRegex(files[1].read_text(), r"\| no worse +\| +fail \|")

    def test_too_few_documents_are_inconclusive(self):
        few = {**BOOKS, "params": {"lengths": [256], "max_docs": 5}}
        gate = self.write_gate("few", NO_WORSE, measure=[few])
        self.make_baseline(gate, self.root / "few-baseline.json")
        verdict = self.gate(gate, "worse", "--baseline", self.root / "few-baseline.json", expect=3)
        self.assertEqual(verdict["verdict"], "inconclusive")

    def test_what_cannot_be_compared_is_an_error_and_is_in_the_files(self):
        other = self.write_gate("other", NO_WORSE, measure=[{**BOOKS, "params": {"lengths": [256]}}])
        verdict = self.gate(other, "good", "--baseline", self.baseline, expect=2)
        self.assertIn("lengths", verdict["refused"][0])
        junit = self.root / "trouble.xml"
        nowhere = self.write_gate("nowhere", SANE, measure=[{**BOOKS, "dataset": "nowhere"}])
        done = self.run_fathom("gate", "--gate", nowhere, "--model", self.root / "models" / "good", "--datasets", self.data,
                               "--junit", junit)
        self.assertEqual(done.returncode, 2)
        self.assertIn("nowhere", done.stderr)
        self.assertIn("nowhere", junit.read_text())
        ElementTree.parse(junit)
        broken = self.root / "cut.json"
        broken.write_text("{")
        done = self.run_fathom("gate", "--gate", broken, "--model", self.root / "models" / "good", "--markdown", self.root / "cut.md")
        self.assertEqual(done.returncode, 2)
        self.assertIn("cut.json", (self.root / "cut.md").read_text().replace("\\", ""))

    def test_a_pass_updates_a_baseline_file_and_a_fail_does_not(self):
        mine = self.root / "mine.json.gz"
        shutil.copy(self.baseline, mine)
        before = mine.read_bytes()
        self.gate(self.full, "worse", "--baseline", mine, "--update-baseline", expect=1)
        self.assertEqual(mine.read_bytes(), before)
        sane = self.write_gate("sane", SANE, measure=[BOOKS])
        self.gate(sane, "worse", "--baseline", mine, "--update-baseline")
        (result,) = json.loads(gzip.decompress(mine.read_bytes()))["results"]
        self.assertEqual((result["model"]["name"], len(result["items"])), ("worse", 32))
        self.assertEqual(self.gate(self.write_gate("b", NO_WORSE, measure=[BOOKS]), "worse", "--baseline", mine)["verdict"], "pass")

    def test_a_baseline_that_was_cut_is_refused_naming_both_numbers(self):
        with gzip.open(self.baseline, "rt") as f:
            whole = json.load(f)
        for file, counts in (("cut.json", {}), ("recounted.json", {"n_items": 31})):
            books = [{**r, "items": r["items"][1:], "dataset": {**r["dataset"], **counts}} if len(r["items"]) == 32 else r
                     for r in whole["results"]]
            (self.root / file).write_text(json.dumps({"results": books}))
            done = self.run_fathom("gate", "--gate", self.full, "--model", self.root / "models" / "good", "--datasets", self.data,
                                   "--baseline", file)
            self.assertEqual(done.returncode, 2, done.stdout)
            self.assertIn(file, done.stderr)
            self.assertRegex(done.stderr, r"n of metric '\w+' is \d+, and its items come to \d+ \(at /results/\d/metrics/\d+/n\)"
                             if counts else r"n_items of dataset is 32, and 31 items are there \(at /results/\d/dataset/n_items\)")
            done = self.run_fathom("compare", "--gate", self.full, "--baseline", file, self.baseline)
            self.assertEqual(done.returncode, 2, done.stdout)
            self.assertIn("and 31 items are there" if not counts else "and its items come to", done.stderr)

    def test_a_baseline_needs_no_more_of_an_item_than_what_is_compared(self):
        """As a tool of somebody's own may write it: no metrics, and of the result only what must be the same."""
        with gzip.open(self.baseline, "rt") as f:
            whole = json.load(f)
        first = lambda v: v[0] if isinstance(v, list) else v  # of the choices, the first
        members = ("key", "doc", "length", "nll", "correct", "n_tokens", "n_bytes")
        small = [{"task": r["task"], "model": {k: r["model"][k] for k in ("name", "tokenizer_fingerprint")}, "metrics": [],
                  "dataset": {"fingerprint": r["dataset"]["fingerprint"]}, "engine": {k: r["engine"][k] for k in ("device", "dtype")},
                  "items": [{k: first(i[k]) for k in members if k in i} for i in r["items"]]} for r in whole["results"]]
        self.assertEqual({frozenset(i) for r in small for i in r["items"]},
                         {frozenset(members) - {"correct"}, frozenset({"key", "doc", "correct", "n_tokens", "n_bytes"})})
        (self.root / "small.json").write_text(json.dumps({"results": small}))
        for model, status in (("good", 0), ("worse", 1)):
            by_small = self.gate(self.full, model, "--baseline", self.root / "small.json", expect=status)
            by_whole = self.gate(self.full, model, "--baseline", self.baseline, expect=status)
            for a, b in zip(by_small["rules"], by_whole["rules"], strict=True):
                told = ("name", "verdict", "delta", "lower", "upper", "p", "p_holm", "n", "value", "discordant", "bootstrap")
                self.assertEqual({k: a.get(k) for k in told}, {k: b.get(k) for k in told})
        self.assertEqual((by_small["verdict"], by_small["refused"]), ("fail", []))

    def test_a_store_answers_what_it_has_measured_and_keeps_baselines(self):
        store = ("--store", self.root / "store")
        self.make_baseline(self.full, "main", *store)
        first = self.gate(self.full, "good", "--baseline", "main", *store)
        self.assertEqual([r["cached"] for r in first["results"]], [True, True])
        anew = self.gate(self.full, "good", "--baseline", "main", "--no-cache", *store)
        self.assertEqual([r["cached"] for r in anew["results"]], [False, False])
        self.assertEqual([r["metrics"] for r in first["results"]], [r["metrics"] for r in anew["results"]])
        changed = self.root / "models" / "changed"
        checkpoint.copy_model(MODELS / "rope-demo", changed)
        with (changed / "model.safetensors").open("r+b") as f:
            f.seek(-1, os.SEEK_END)
            byte = f.read(1)[0]
            f.seek(-1, os.SEEK_END)
            f.write(bytes([byte ^ 1]))
        miss = self.gate(self.full, "changed", "--baseline", "main", *store)
        self.assertEqual([r["cached"] for r in miss["results"]], [False, False])
        self.assertEqual(self.gate(self.full, "good", "--baseline", "main", "--update-baseline", *store)["verdict"], "pass")
        listed = self.run_fathom("baseline", "list", *store)
        self.assertRegex(listed.stdout, r"\nmain +2 ")
        other = self.run_fathom("baseline", "list", "--store", self.root / "other-store")
        self.assertNotIn("main", other.stdout)

    def test_a_model_in_the_working_directory_and_through_a_link(self):
        (self.root / "models" / "latest").symlink_to("good")
        sane = self.write_gate("sane2", SANE, measure=[BOOKS])
        for cwd, model in ((self.root / "models" / "good", "."), (self.root, "models/latest"), (self.root, "models/good/")):
            done = subprocess.run([FATHOM, "gate", "--gate", sane, "--model", model, "--datasets", self.data], cwd=cwd,
                                  capture_output=True, text=True, timeout=60, env=self.env())
            self.assertEqual(done.returncode, 0, (model, done.stderr))

    def test_results_are_compared_from_files(self):
        books = self.write_gate("books", NO_WORSE, measure=[BOOKS])
        for model in ("good", "worse"):
            done = self.run_fathom("run", "--model", self.root / "models" / model, "--data", self.data / "books", "--set",
                                   "lengths=64,256", "--evidence", self.root / f"{model}.json.gz", "--out", "/dev/null")
            self.assertEqual(done.returncode, 0, done.stderr)
        for model, expect in (("good", 0), ("worse", 1)):
            done = self.run_fathom("compare", "--gate", books, "--baseline", "good.json.gz", f"{model}.json.gz", "--json", "c.json")
            self.assertEqual(done.returncode, expect, done.stderr)
            compared = json.loads((self.root / "c.json").read_text())
        gated = self.gate(books, "worse", "--baseline", self.root / "good.json.gz", expect=1)
        self.assertEqual(gated["rules"], compared["rules"])  # measured by a worker or by `fathom run`: the same bits
        with gzip.open(self.root / "good.json.gz", "rt") as f:
            good = json.load(f)
        self.assertEqual(len(good["items"]), 32)
        line = json.dumps({"candidate": [good], "baseline": [good]})
        lines = self.run_fathom("compare", "--gate", books, "--lines", input=f"{line}\n{line}\n")
        self.assertEqual([json.loads(v)["verdict"] for v in lines.stdout.splitlines()], ["pass", "pass"])
        bad = self.run_fathom("compare", "--gate", books, "--lines", input=line + "\n{}\n")
        self.assertEqual((bad.returncode, len(bad.stdout.splitlines())), (2, 1))
        self.assertIn("line 2: candidate is absent", bad.stderr)

    def test_a_worker_that_cannot_be_is_waited_for_half_a_minute(self):
        sane = self.write_gate("sane3", SANE, measure=[BOOKS])
        began = time.monotonic()
        done = self.run_fathom("gate", "--gate", sane, "--model", self.root / "models" / "good", "--datasets", self.data,
                               "--workers", "cuda:99", "--markdown", self.root / "stuck.md")
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("nothing can measure this: no worker is up; worker 0 is unusable: device 'cuda:99'", done.stderr)
        self.assertIn("cuda:99", (self.root / "stuck.md").read_text())
        self.assertLess(time.monotonic() - began, 60)

    def test_measures_that_differ_in_positions_alone_are_told_apart(self):
        scaled = {"type": "linear", "factor": 2}
        measure = [BOOKS, {**BOOKS, "id": "scaled", "engine": {"position": scaled}}]
        rules = [NO_WORSE, {**NO_WORSE, "name": "scaled no worse", "measure": "scaled"}]
        gate = self.write_gate("positions", *rules, measure=measure)
        self.make_baseline(gate, self.root / "both.json")
        for name, more in (("raw", ()), ("scaled", ("--position", json.dumps(scaled)))):
            done = self.run_fathom("run", "--model", self.root / "models" / "good", "--data", self.data / "books", "--set",
                                   "lengths=64,256", "--evidence", self.root / f"{name}.json", "--out", "/dev/null", *more)
            self.assertEqual(done.returncode, 0, done.stderr)
        for files in (("raw.json", "scaled.json"), ("scaled.json", "raw.json")):
            done = self.run_fathom("compare", "--gate", gate, "--baseline", "both.json", *files, "--json", "p.json")
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            raw, other = json.loads((self.root / "p.json").read_text())["rules"]
            self.assertEqual((raw["delta"], other["delta"]), (0, 0))
            self.assertGreater(other["value"], 1.1 * raw["value"])
        # one alone is compared with a baseline of its own positions, and with no other
        for name, mine in (("raw", {}), ("scaled", {"engine": {"position": scaled}})):
            alone = self.write_gate("alone", NO_WORSE, measure=[{**BOOKS, **mine}])
            for baseline in ("raw", "scaled"):
                done = self.run_fathom("compare", "--gate", alone, "--baseline", f"{baseline}.json", f"{name}.json",
                                       "--allow-engine-change", "--json", "p.json")
                refused = json.loads((self.root / "p.json").read_text())["refused"]
                self.assertEqual((done.returncode, len(refused)), (0, 0) if name == baseline else (2, 1), done.stdout + done.stderr)
                self.assertIn("" if name == baseline else "the override of positions is", "".join(refused))
        # a file of before says nothing of an override: there was none
        old = json.loads((self.root / "raw.json").read_text())
        del old["engine"]["position"]
        (self.root / "old.json").write_text(json.dumps({"results": [old]}))
        alone = self.write_gate("alone", NO_WORSE, measure=[BOOKS])
        done = self.run_fathom("compare", "--gate", alone, "--baseline", "old.json", "raw.json")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_bad_input_is_refused_before_anything_is_measured(self):
        model = ("--model", self.root / "models" / "good")
        gate = ("--gate", self.full)
        broken = self.root / "broken.json"
        broken.write_text(json.dumps({"name": "x", "measure": [BOOKS], "rules": [{**NO_WORSE, "min_effect": 0}]}))
        (self.root / "noitems.json").write_text(json.dumps({"task": {}, "model": {}, "dataset": {}, "metrics": []}))
        table = [(("gate", *model), "--gate is missing"), (("gate", *gate), "--model is missing"),
                 (("gate", *gate, *model), "--baseline is missing"),
                 (("gate", "--gate", broken, *model), "/rules/0/min_effect"), (("gate", "--gate", "no.json", *model), "no.json"),
                 (("gate", *gate, *model, "--baseline", "main"), "--store"),
                 (("gate", *gate, *model, "--baseline", "no.json.gz"), "no.json.gz"),
                 (("gate", *gate, *model, "--baseline", "noitems.json"), "fathom run --evidence"),
                 (("gate", *gate, *model, "--baseline", self.baseline, "--junit", "/nowhere/x"), "/nowhere/x"),
                 (("gate", *gate, *model, "--baseline", self.baseline, "--junit", "x", "--json", "x"), "different files"),
                 (("gate", *gate, *model, "--baseline", self.baseline, "--tag", "x"), "KEY=VALUE"),
                 (("gate", *gate, *model, "--server", "http://127.0.0.1:1", "--store", "x", "--baseline", "x"), "local server"),
                 (("gate", *gate, "--model", "no-folder", "--server", "local", "--baseline", self.baseline), "no-folder"),
                 (("gate", *gate, *model, "--baseline", self.baseline, "--datasets", "/nowhere"), "/nowhere"),
                 (("gate", *gate, *model, "--baseline", self.baseline, "--workers", "gpu"), "--workers: 'gpu'"),
                 (("gate", *gate, "--model", "x", "--baseline", "y", "--server", "http://127.0.0.1:1"), "no server answers"),
                 (("baseline",), "no action"), (("baseline", "nope"), "unknown action 'nope'"),
                 (("baseline", "set", "x"), "set takes NAME JOB..."), (("baseline", "make", "x", *model), "--gate is missing"),
                 (("baseline", "make", "x", *gate, *model), "--store"), (("compare", *gate), "no file of results"),
                 (("compare", *gate, "noitems.json"), "noitems.json")]
        for arguments, words in table:
            with self.subTest(arguments=arguments):
                done = self.run_fathom(*arguments)
                self.assertEqual((done.returncode, done.stdout), (2, ""))
                self.assertIn(words, done.stderr)


class Ends(Workshop):
    """However the command ends, its server ends, too."""

    def begin(self, *more):
        """A gate at work, and the processes below it."""
        big = self.root / "data" / "big"
        if not big.exists():
            prose.write_library(big, 400, sentences=(20, 30))
        gate = self.write_gate("long", SANE, measure=[{**BOOKS, "dataset": "big"}])
        process = subprocess.Popen([FATHOM, "gate", "--gate", gate, "--model", self.root / "models" / "good", "--datasets", self.data,
                                    *more], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=self.env())
        wait_for(lambda: len(children_of(process.pid)) >= 2, "a server and a worker")
        time.sleep(0.5)
        return process, children_of(process.pid)

    def test_an_interrupt_leaves_no_work_in_a_store(self):
        store = self.root / "store"
        process, below = self.begin("--store", store)
        process.send_signal(signal.SIGTERM)
        said = process.communicate(timeout=60)[1]
        self.assertEqual(process.returncode, 2)
        self.assertIn("interrupted; run 1 is cancelled", said)
        self.assertTrue(all(map(is_gone, below)))
        db = sqlite3.connect(store / "fathom.db")
        self.assertEqual(db.execute("SELECT state FROM gate_run").fetchall(), [("cancelled",)])
        self.assertIn(db.execute("SELECT state FROM job").fetchall(), ([("cancelled",)], [("cancelling",)]))
        db.close()

    def test_an_interrupt_ends_all_and_leaves_nothing(self):
        for how in (signal.SIGINT, signal.SIGTERM):
            process, below = self.begin()
            process.send_signal(how)
            out, said = process.communicate(timeout=60)
            self.assertEqual((process.returncode, out), (2, ""))
            self.assertIn("interrupted", said)
            self.assertTrue(all(map(is_gone, below)))
            self.assertEqual(list(self.tmp.iterdir()), [])

    def test_kill_9_ends_the_server_and_its_workers(self):
        process, below = self.begin()
        process.kill()
        process.communicate()
        wait_for(lambda: all(map(is_gone, below)), "the server to end", 40)
        for left in self.tmp.iterdir():  # nobody was there to remove it
            shutil.rmtree(left)


class Served(Workshop):
    """With somebody's server."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.server = Server("--workers", "cpu", "--workers", f"{FATHOM} worker --device cpu --threads 1 --models "
                            f"{cls.root}/models --datasets {cls.data}")
        cls.server.stop()
        shutil.rmtree(cls.server.models)
        shutil.rmtree(cls.server.datasets)
        cls.server.models.symlink_to(cls.root / "models")
        cls.server.datasets.symlink_to(cls.data)
        cls.server.start()
        cls.books = cls.write_gate("served", NO_WORSE, measure=[BOOKS])

    @classmethod
    def tearDownClass(cls):
        cls.server.models.unlink()
        cls.server.datasets.unlink()
        status, log = cls.server.close()
        super().tearDownClass()
        if status:
            raise AssertionError(log)

    def client(self, *arguments, expect=0):
        done = self.server.run(*map(str, arguments))
        self.assertEqual(done.returncode, expect, done.stdout + done.stderr)
        return done

    def test_baselines_are_set_listed_exported_imported_and_deleted(self):
        job = self.server.submit(model="good", params={"lengths": [64, 256]})["id"]
        self.server.wait(job)
        self.assertEqual(self.client("baseline", "set", "one", job).stdout, "baseline one version 1\n")
        file = self.root / "one.json.gz"
        self.client("baseline", "export", "one", file)
        exported = json.loads(gzip.decompress(file.read_bytes()))
        self.assertEqual(exported, json.loads(self.client("baseline", "export", "one").stdout))
        self.assertEqual(exported["results"][0]["metrics"], self.server.job(job)["result"]["metrics"])
        self.assertEqual(self.client("baseline", "import", "two", file).stdout, "baseline two version 1\n")
        self.assertEqual(json.loads(self.client("baseline", "export", "two").stdout)["results"][0]["items"],
                         exported["results"][0]["items"])
        for name in ("one", "two", file):
            self.client("gate", "--gate", self.books, "--model", "good", "--baseline", name)
        self.client("gate", "--gate", self.books, "--model", "worse", "--baseline", file, expect=1)
        self.assertRegex(self.client("baseline", "list").stdout, r"\none +1 .*\n")
        self.client("baseline", "delete", "two")
        self.assertNotIn("\ntwo ", self.client("baseline", "list").stdout)
        self.assertIn("two", self.client("baseline", "export", "two", expect=2).stderr)

    def test_gates_and_runs_are_listed(self):
        gate = self.write_gate("listed", SANE, measure=[BOOKS])
        for branch, model in (("main", "good"), ("topic", "worse"), ("main", "worse")):
            self.client("gate", "--gate", gate, "--model", model, "--tag", f"branch={branch}", "--tag", f"commit=by-{model}")
        lines = [line.split() for line in self.client("gates").stdout.splitlines()]
        self.assertEqual(lines[0][:5], ["GATE", "VERSION", "BRANCH", "RUN", "VERDICT"])
        mine = sorted(row[:3] + row[4:7] for row in lines if row[0] == "listed")
        self.assertEqual(mine, [["listed", "1", "main", "pass", "worse", "by-worse"],
                                ["listed", "1", "topic", "pass", "worse", "by-worse"]])
        runs = [line.split() for line in self.client("gates", "listed", "--branch", "main").stdout.splitlines()]
        self.assertEqual([row[1:7] for row in runs[1:]], [["done", "pass", "worse", "-", "main", "by-worse"],
                                                          ["done", "pass", "good", "-", "main", "by-good"]])
        self.assertEqual(len(json.loads(self.client("gates", "listed", "--json").stdout)["data"]), 3)
        self.assertIn("no gate 'none'", self.client("gates", "none", expect=2).stderr)

    def test_a_gate_is_judged_by_its_own_file_whatever_is_posted_beside_it(self):
        strict = json.loads(self.write_gate("shared", SANE, measure=[BOOKS]).read_text())
        gate = self.write_gate("shared", {**SANE, "name": "mine", "max": 1000}, measure=[BOOKS])
        real = self.server

        class Between(http.server.BaseHTTPRequestHandler):
            """Passes all on; behind a gate, somebody else's of that name."""

            def pass_on(self):
                body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
                reply = real.ask(self.command, self.path, body or None)
                if (self.command, self.path) == ("POST", "/api/v1/gates"):
                    real.ask("POST", "/api/v1/gates", strict)
                self.send_response(reply.status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(reply.body)))
                self.end_headers()
                self.wfile.write(reply.body)

            do_GET = do_POST = pass_on

            def log_message(self, *_):
                pass

        between = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Between)
        threading.Thread(target=between.serve_forever, daemon=True).start()
        try:
            url = f"http://127.0.0.1:{between.server_port}"
            out = self.root / "shared-verdict.json"
            done = self.run_fathom("gate", "--gate", gate, "--model", "good", "--server", url, "--json", out)
        finally:
            between.shutdown()
            between.server_close()
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual([r["name"] for r in json.loads(out.read_text())["rules"]], ["mine"])

    def test_a_waiting_gate_outlasts_the_death_of_the_server(self):
        prose.write_library(self.data / "many", 150, sentences=(20, 30))
        gate = self.write_gate("outlasts", SANE, measure=[{**BOOKS, "dataset": "many"}])
        process = subprocess.Popen([FATHOM, "gate", "--gate", gate, "--model", "good", "--server", self.server.url],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=self.env())
        wait_for(lambda: any(w["state"] == "busy" for w in self.server.get("/api/v1/workers").json()["data"]), "a worker at work")
        self.server.stop(signal.SIGKILL)
        self.server.start(self.server.port)
        out, said = process.communicate(timeout=120)
        self.assertEqual(process.returncode, 0, out + said)

    def test_an_interrupt_cancels_what_the_command_began(self):
        prose.write_library(self.data / "long", 400, sentences=(20, 30))
        long = {**BOOKS, "dataset": "long", "params": {"protocol": "sliding", "lengths": [256], "stride": 8}}
        gate = self.write_gate("interrupted", {**SANE, "length": 256}, measure=[long])
        for how in (signal.SIGINT, signal.SIGTERM):
            for command in (["gate"], ["baseline", "make", "never"]):
                with self.subTest(command=command, how=how):
                    process = subprocess.Popen([FATHOM, *command, "--gate", gate, "--model", "good", "--server", self.server.url],
                                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=self.env())
                    running = "/api/v1/jobs?state=running"
                    (job,) = wait_for(lambda: self.server.get(running).json()["data"], "its job to run")
                    process.send_signal(how)
                    out, said = process.communicate(timeout=60)
                    self.assertEqual((process.returncode, out), (2, ""), said)
                    self.assertRegex(said, r"interrupted; (run|job) \d+ is cancelled\n")
                    self.assertEqual(self.server.wait(job["id"])["state"], "cancelled")
                    if command == ["gate"]:
                        (run, *_) = self.server.get("/api/v1/gates/interrupted/runs").json()["data"]
                        self.assertEqual((run["state"], run["jobs"][0]["id"]), ("cancelled", job["id"]))
        self.assertNotIn("never", self.client("baseline", "list").stdout)

    def test_a_key_makes_a_gate_safe_to_repeat_and_who_only_watches_does_not_cancel(self):
        prose.write_library(self.data / "keyed", 300, sentences=(20, 30))
        gate = self.write_gate("keyed", SANE, measure=[{**BOOKS, "dataset": "keyed"}])
        arguments = [FATHOM, "gate", "--gate", gate, "--model", "good", "--server", self.server.url, "--idempotency-key", "k1"]
        begin = lambda: subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=self.env())
        first = begin()
        runs = "/api/v1/gates/keyed/runs"
        wait_for(lambda: self.server.get(runs).status == 200 and self.server.get(runs).json()["data"], "the run")
        first.kill()  # as a runner that is lost
        first.communicate()
        second = begin()
        time.sleep(1)
        second.send_signal(signal.SIGTERM)
        said = second.communicate(timeout=60)[1]
        self.assertEqual(second.returncode, 2, said)
        self.assertRegex(said, "interrupted; run \\d+ is an earlier command's, and goes on\n")
        third = begin()
        out, said = third.communicate(timeout=120)
        self.assertEqual(third.returncode, 0, out + said)
        self.assertEqual(len(self.server.get(runs).json()["data"]), 1)
        self.assertIn("was used for another request", self.client(*arguments[1:], "--no-cache", expect=2).stderr)

    def test_a_run_that_somebody_else_cancels_could_not_be_judged(self):
        prose.write_library(self.data / "longer", 400, sentences=(20, 30))
        long = {**BOOKS, "dataset": "longer", "params": {"protocol": "sliding", "lengths": [256], "stride": 8}}
        gate = self.write_gate("taken", {**SANE, "length": 256}, measure=[long])
        process = subprocess.Popen([FATHOM, "gate", "--gate", gate, "--model", "good", "--server", self.server.url, "--json",
                                    self.root / "taken.json"], stderr=subprocess.PIPE, text=True, env=self.env())
        runs = "/api/v1/gates/taken/runs"
        wait_for(lambda: self.server.get(runs).status == 200 and self.server.get(runs).json()["data"], "the run")
        self.assertEqual(self.server.ask("POST", f"{self.server.get(runs).json()['data'][0]['links']['self']}/cancel").status, 202)
        said = process.communicate(timeout=60)[1]
        self.assertEqual(process.returncode, 2)
        self.assertIn("was cancelled by somebody", said)
        self.assertEqual(json.loads((self.root / "taken.json").read_text())["verdict"], "error")

    def test_the_same_model_passes_across_workers_threads_and_kills(self):
        prose.write_library(self.data / "some", 60, sentences=(20, 30))  # long enough to be killed at
        gate = self.write_gate("aa", NO_WORSE, measure=[{**BOOKS, "dataset": "some"}])
        self.client("baseline", "make", "aa", "--gate", gate, "--model", "good")
        process = subprocess.Popen([FATHOM, "gate", "--gate", gate, "--model", "good", "--baseline", "aa", "--no-cache", "--json",
                                    self.root / "aa.json"], env={**os.environ, "FATHOM_URL": self.server.url}, stderr=subprocess.PIPE,
                                   stdout=subprocess.PIPE, text=True)
        killed = set()  # the dead are busy until the server has seen it
        deadline = time.monotonic() + 60
        while process.poll() is None and len(killed) < 2 and time.monotonic() < deadline:
            for worker in self.server.get("/api/v1/workers").json()["data"]:
                if worker["state"] == "busy" and worker["pid"] not in killed and len(killed) < 2:
                    os.kill(worker["pid"], signal.SIGKILL)
                    killed.add(worker["pid"])
        out, said = process.communicate(timeout=120)
        self.assertEqual(process.returncode, 0, out + said)
        self.assertEqual(len(killed), 2)
        (rule,) = json.loads((self.root / "aa.json").read_text())["rules"]
        self.assertEqual((rule["delta"], rule["lower"], rule["upper"]), (0, 0, 0))

    def test_the_same_model_passes_with_any_number_of_threads(self):
        file = self.root / "threads.json"
        self.client("baseline", "make", file, "--gate", self.books, "--model", "good")
        for threads in (1, 2, 3):
            verdict = self.gate(self.books, "good", "--baseline", file, "--workers",
                                f"{FATHOM} worker --device cpu --threads {threads} --models {self.root}/models --datasets {self.data}")
            self.assertEqual(verdict["rules"][0]["delta"], 0)


# -- the README --------------------------------------------------------------------------------------


def parse_yaml(text):
    """The part of YAML that our examples are written in: maps, lists, plain scalars, | and > blocks."""
    lines = [(len(line) - len(line.lstrip()), line.strip()) for line in text.splitlines()]
    at = 0

    def block(indent, fold):
        nonlocal at
        out = []
        while at < len(lines) and (not lines[at][1] or lines[at][0] >= indent):
            out.append(" " * (lines[at][0] - indent) + lines[at][1])
            at += 1
        return (" " if fold else "\n").join(out).rstrip() + "\n"

    def scalar(word):
        if word in ("|", ">"):
            return block(lines[at][0], word == ">")
        if word.startswith("["):
            return [w.strip() for w in word.strip("[]").split(",")]
        return int(word) if word.isdigit() else {"true": True, "false": False}.get(word, word)

    def value(indent, word):
        nonlocal at
        if word:
            return scalar(word)
        inner = lines[at][0]
        return node(inner) if inner > indent else None

    def node(indent):
        nonlocal at
        out = [] if lines[at][1].startswith("- ") else {}
        while at < len(lines) and lines[at][0] == indent and lines[at][1]:
            line = lines[at][1]
            if isinstance(out, list):
                assert line.startswith("- "), line
                if re.match(r"- [\w-]+:( |$)", line):
                    lines[at] = (indent + 2, line[2:])
                    out.append(node(indent + 2))
                else:
                    at += 1
                    out.append(scalar(line[2:]))
            else:
                key, word = re.fullmatch(r"([\w-]+):(?: (.*))?", line).groups()
                assert key not in out, key
                at += 1
                out[key] = value(indent, word)
        return out

    while lines and not lines[-1][1]:
        lines.pop()
    tree = node(0)
    assert at == len(lines), lines[at]
    return tree


class Readme(Workshop):
    """The README's example of a gate, in a repository as it describes."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        text = (ROOT / "README.md").read_text(encoding="utf-8")
        cls.text = text[text.index("## In your CI"):text.index("## On a GPU")]
        cls.github, cls.gitlab = re.findall(r"```yaml\n(.*?)```", cls.text, re.DOTALL)
        cls.repository = cls.root / "repository"
        ci = cls.repository / "ci"
        prose.write_library(ci / "data" / "books", 10, sentences=(75, 80))
        write_words(ci / "data" / "lambada.jsonl", 40)
        (ci / "gates.json").write_text(re.search(r"```json\n(.*?)```", cls.text, re.DOTALL)[1])
        weights = checkpoint.read_safetensors(MODELS / "pope-demo" / "model.safetensors")
        checkpoint.copy_model(MODELS / "pope-demo", cls.repository / "checkpoints" / "release-3")
        checkpoint.copy_model(MODELS / "pope-demo", cls.repository / "checkpoints" / "mine")
        checkpoint.copy_model(MODELS / "pope-demo", cls.repository / "checkpoints" / "worse", cls.noise.add(weights, 0.2, 1))
        # the checkout is there already, and built
        (cls.repository / "fathom").symlink_to(ROOT)
        (cls.repository / "build").mkdir()
        (cls.repository / "build" / "fathom").symlink_to(FATHOM)
        cls.bin = cls.root / "bin"
        cls.bin.mkdir()
        gh = cls.bin / "gh"  # posts nothing: keeps what it was told to
        gh.write_text('#!/bin/sh\necho "$@" > "$GH_SAID"\n')
        gh.chmod(0o755)

    def shell(self, script, **env):
        env = {k: v for k, v in self.env(**env).items() if k not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS", "CI", "MODE")}
        env["PATH"] = f"{self.bin}:{env['PATH']}"
        return subprocess.run(["bash", "-e", "-o", "pipefail", "-c", script], cwd=self.repository, env=env, capture_output=True,
                              text=True, timeout=300)

    def test_1_the_commands_above_the_tables_work(self):
        commands = [line for line in re.search(r"```\n(build/fathom baseline make.*?)```", self.text, re.DOTALL)[1].splitlines()]
        self.assertEqual(len(commands), 2)
        for command in commands:
            done = self.shell(command)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("no worse", (self.repository / "verdict.md").read_text())

    def test_2_the_examples_are_yaml(self):
        for text in (self.github, self.gitlab):
            tree = parse_yaml(text)
            try:
                import yaml
            except ImportError:
                continue
            expected = yaml.safe_load(text)
            expected = {("on" if k is True else k): v for k, v in expected.items()}  # YAML 1.1 takes "on" for a truth
            self.assertEqual(tree, expected)

    def outcome(self, steps, model, **env):
        """The first status that is not 0."""
        for name in ("verdict.xml", "verdict.md", "verdict.json"):
            (self.repository / name).unlink(missing_ok=True)
        for step in steps:
            done = self.shell(step.replace("checkpoints/mine", f"checkpoints/{model}"), **env)
            if done.returncode:
                self.said = done.stdout + done.stderr
                return done.returncode
        return 0

    def test_3_github_actions(self):
        job = parse_yaml(self.github)["jobs"]["gate"]
        steps = [s["run"] for s in job["steps"] if "run" in s]
        summary = self.root / "summary.md"
        env = {**job["env"], "GITHUB_SHA": "0123abc", "GITHUB_REF_NAME": "main", "GITHUB_HEAD_REF": "",
               "GITHUB_STEP_SUMMARY": str(summary), "PULL_REQUEST": "7", "GH_SAID": str(self.root / "gh-said")}
        self.assertEqual(self.outcome(steps, "mine", **env), 0, getattr(self, "said", ""))
        self.assertEqual((self.root / "gh-said").read_text(), "pr comment 7 --body-file verdict.md\n")
        self.assertIn((self.repository / "verdict.md").read_text(), summary.read_text())
        verdict = json.loads((self.repository / "verdict.json").read_text())
        self.assertEqual((verdict["commit"], verdict["branch"], verdict["verdict"]), ("0123abc", "main", "pass"))
        self.assertEqual(self.outcome(steps, "worse", **env), 1, getattr(self, "said", ""))
        self.assertEqual(len(list(ElementTree.parse(self.repository / "verdict.xml").iter("testcase"))), 5)

    def test_4_gitlab(self):
        job = parse_yaml(self.gitlab)["gate"]
        steps = ["\n".join(job["before_script"] + job["script"])]
        env = {**job["variables"], "CI_COMMIT_SHA": "0123abc", "CI_COMMIT_REF_NAME": "main"}
        self.assertEqual(self.outcome(steps, "mine", **env), 0, getattr(self, "said", ""))
        self.assertTrue((self.repository / job["artifacts"]["reports"]["junit"]).exists())
        self.assertEqual(self.outcome(steps, "worse", **env), 1, getattr(self, "said", ""))


del Workshop  # a frame, no test of its own

if __name__ == "__main__":
    unittest.main()
