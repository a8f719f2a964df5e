"""Gates over HTTP: baselines and their versions, gates, runs and their verdicts, the cache of results, webhooks, history; and
what of all that a kill -9 of the server leaves: everything.

Run: FATHOM=build/fathom python3 -m unittest discover -v -s tests/e2e -p test_gates.py
"""

import hashlib
import hmac
import http.server
import json
import os
import random
import shutil
import signal
import sqlite3
import struct
import sys
import threading
import time
import unittest
import xml.etree.ElementTree
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from serving import ServerTest  # noqa: E402

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
    """English prose that every Debian machine has, so that a damaged model is a worse one."""
    text = Path("/usr/share/common-licenses/GPL-3").read_text()
    (server.datasets / "shelf").mkdir()
    for i in range(n):
        (server.datasets / "shelf" / f"{i}.txt").write_text(text[1500 * i:1500 * (i + 1)])


def gate(**changes):
    return {**GATE, **changes}


def spoil(model, every, first=0):
    """Flips the sign of every so-manieth weight of the MLPs' second matrices: the smaller `every`, the worse the model."""
    path = model / "model.safetensors"
    data = bytearray(path.read_bytes())
    (n,) = struct.unpack("<Q", data[:8])
    for name, tensor in json.loads(data[8:8 + n]).items():
        if not name.endswith("mlp.down_proj.weight"):
            continue
        assert tensor["dtype"] == "BF16"
        a, b = (8 + n + o for o in tensor["data_offsets"])
        for at in range(a + 2 * first, b, 2 * every):
            data[at + 1] ^= 0x80
    path.write_bytes(data)


def break_numbers(model):
    """Infinite weights in the second layer: no loss is a number."""
    path = model / "model.safetensors"
    data = bytearray(path.read_bytes())
    (n,) = struct.unpack("<Q", data[:8])
    a, b = json.loads(data[8:8 + n])["model.layers.1.mlp.down_proj.weight"]["data_offsets"]
    data[8 + n + a:8 + n + b] = struct.pack("<H", 0x7F80) * ((b - a) // 2)
    path.write_bytes(data)


class Receiver:
    """A webhook's other end: keeps what it gets, answers as it is told (200 at the end of its list)."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.got = []
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                outer.got.append((time.monotonic(), dict(self.headers), body))
                self.send_response(outer.answers.pop(0) if outer.answers else 200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/hook"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()


def query(server, sql, *values):
    """Reads, or with the server stopped writes, its database."""
    db = sqlite3.connect(server.data / "fathom.db", timeout=10)
    try:
        with db:
            return db.execute(sql, values).fetchall()
    finally:
        db.close()


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
            if run["state"] in ("done", "failed", "cancelled"):
                return run
            run = self.server.get(f"/api/v1/gates/{name}/runs/{run['id']}?wait=60").json()
        self.fail(f"run {run['id']} is still {run['state']}\n{self.server.log_text()}")


    def copy_model(self, name, change=None, of="rope-demo"):
        folder = self.server.models / name
        if not folder.exists():
            shutil.copytree(self.server.models / of, folder)
            if change:
                change(folder)
        return name

    def problem(self, method, path, body=None, status=422, **headers):
        reply = self.server.ask(method, path, body, {k.replace("_", "-"): v for k, v in headers.items()})
        self.assertEqual(reply.status, status, reply.body)
        self.assertEqual(reply.headers["Content-Type"], "application/problem+json")
        return reply.json()


class Baselines(GateTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.jobs = [cls.server.submit(dataset="shelf", params={"lengths": [n]})["id"] for n in (32, 64)]
        for job in cls.jobs:
            assert cls.server.wait(job)["state"] == "succeeded"

    def test_a_change_names_the_version_that_it_replaces_and_history_is_kept(self):
        first = self.post("/api/v1/baselines", {"name": "main", "jobs": [self.jobs[0]]})
        self.assertEqual(first.headers["Location"], "/api/v1/baselines/main")
        etag = first.headers["ETag"]
        self.assertEqual(first.json()["version"], 1)
        change = {"name": "main", "jobs": self.jobs}
        self.assertIn("If-Match", self.problem("POST", "/api/v1/baselines", change, 428)["detail"])
        self.problem("POST", "/api/v1/baselines", change, 412, If_Match='"1-0"')
        self.problem("POST", "/api/v1/baselines", {**change, "name": "new"}, 412, If_Match=etag)
        second = self.post("/api/v1/baselines", change, If_Match=f'"x", {etag}')
        self.assertEqual(second.json()["version"], 2)
        self.problem("POST", "/api/v1/baselines", change, 412, If_Match=etag)
        got = self.server.get("/api/v1/baselines/main")
        self.assertEqual(got.headers["ETag"], second.headers["ETag"])
        self.assertEqual([r["job"] for r in got.json()["results"]], self.jobs)
        self.assertEqual([v["version"] for v in got.json()["history"]], [2, 1])
        self.assertEqual(self.server.get("/api/v1/baselines/main", If_None_Match=second.headers["ETag"]).status, 304)
        old = self.server.get("/api/v1/baselines/main?version=1").json()
        self.assertEqual([r["job"] for r in old["results"]], self.jobs[:1])
        self.problem("GET", "/api/v1/baselines/main?version=3", status=404)
        self.problem("GET", "/api/v1/baselines/main?version=x")
        self.problem("GET", "/api/v1/baselines/nothing", status=404)
        self.assertIn("main", [b["name"] for b in self.server.get("/api/v1/baselines").json()["data"]])

    def test_a_job_that_a_baseline_holds_stays_until_the_baseline_goes(self):
        job = self.measure(params={"lengths": [48]})["id"]
        self.post("/api/v1/baselines", {"name": "held", "jobs": [job]})
        self.assertIn("baseline 'held'", self.problem("DELETE", f"/api/v1/jobs/{job}", status=409)["detail"])
        self.assertIn("baseline 'held'", self.problem("POST", f"/api/v1/jobs/{job}/restart", status=409)["detail"])
        self.problem("DELETE", "/api/v1/baselines/held", status=412, If_Match='"7-7"')
        self.assertEqual(self.server.ask("DELETE", "/api/v1/baselines/held").status, 204)
        self.problem("DELETE", "/api/v1/baselines/held", status=404)
        self.assertEqual(self.server.ask("DELETE", f"/api/v1/jobs/{job}").status, 204)

    def test_what_cannot_be_a_baseline_is_refused_with_a_pointer(self):
        cancelled = self.server.submit(dataset="shelf", params={"lengths": [64], "max_docs": 9})["id"]
        self.server.ask("POST", f"/api/v1/jobs/{cancelled}/cancel")
        self.server.wait(cancelled)
        result = self.server.get(f"/api/v1/jobs/{self.jobs[0]}/result").json()
        item = {"id": 0, "key": "0123456789abcdef", "doc": "a", "length": 32, "n_tokens": 3, "n_bytes": 9, "nll": 1.5}
        for body, pointer, words in (
            ({"jobs": [1]}, "/name", "name is missing"),
            ({"name": "a/b", "jobs": [1]}, "/name", "letters"),
            ({"name": ".a", "jobs": [1]}, "/name", "letters"),
            ({"name": "a", "jobs": [1], "x": 1}, "/x", "unknown member 'x'"),
            ({"name": "a"}, None, "either jobs or results"),
            ({"name": "a", "jobs": [1], "results": []}, None, "either jobs or results"),
            ({"name": "a", "jobs": []}, "/jobs", "0 members"),
            ({"name": "a", "jobs": 3}, "/jobs", "number"),
            ({"name": "a", "jobs": ["1"]}, "/jobs/0", "number"),
            ({"name": "a", "jobs": [self.jobs[0], self.jobs[0]]}, "/jobs/1", "twice"),
            ({"name": "a", "jobs": [self.jobs[0], 4711]}, "/jobs/1", "no job 4711"),
            ({"name": "a", "jobs": [cancelled]}, "/jobs/0", "cancelled"),
            ({"name": "a", "results": [result]}, "/results/0", "no items"),
            ({"name": "a", "results": [{"items": [item]}]}, "/results/0", "metrics"),
            ({"name": "a", "results": [7]}, "/results/0", "object"),
            ({"name": "a", "results": [{"error": {}, "items": [item]}]}, "/results/0/task/name", "name of a result's task is missing"),
            ({"name": "a", "results": [{"error": {}, "task": {"name": "x"}, "model": {"name": "x"}, "items": [item]}]},
             "/results/0/metrics", "without metrics"),
            ({"name": "a", "results": [{**result, "dataset": {}, "metrics": [], "model": {}, "items": [item]}]},
             "/results/0/model/name", "name of a result's model is missing"),
            ({"name": "a", "results": [{**result, "items": [{**item, "nll": "x"}]}]}, "/results/0", "nll"),
            ({"name": "a", "results": [{**result, "items": [item]}]}, "/results/0/dataset/n_items", "and 1 items are there"),
            ({"name": "a", "results": [{**result, "dataset": {}, "items": [item]}]}, "/results/0/metrics/0/n", "come to 3"),
        ):
            with self.subTest(body=str(body)[:80]):
                problem = self.problem("POST", "/api/v1/baselines", body)
                self.assertIn(words, problem["detail"])
                if pointer:
                    self.assertTrue(problem.get("pointer", "").startswith(pointer), problem)
        self.problem("POST", "/api/v1/baselines", "{", 400)
        self.problem("GET", "/api/v1/baselines/a", status=404)

    def test_an_export_is_the_results_with_their_items_and_comes_back_by_import(self):
        self.post("/api/v1/baselines", {"name": "out", "jobs": self.jobs})
        reply = self.server.get("/api/v1/baselines/out/evidence")
        evidence = reply.json()
        self.assertEqual(evidence["baseline"], {"name": "out", "version": 1})
        for job, result in zip(self.jobs, evidence["results"]):
            items = [json.loads(line) for line in self.server.get(f"/api/v1/jobs/{job}/items").body.splitlines()]
            self.assertEqual(result.pop("items"), items)
            self.assertEqual(result.pop("job"), job)
            self.assertEqual(result, self.server.get(f"/api/v1/jobs/{job}/result").json())
        self.post("/api/v1/baselines", {"name": "in", **reply.json()})
        got = self.server.get("/api/v1/baselines/in").json()
        self.assertEqual([(r["job"], r["model"], r["task"], r["dataset"]) for r in got["results"]],
                         [(None, "rope-demo", "pg19", "shelf")] * 2)
        again = self.server.get("/api/v1/baselines/in/evidence").json()
        whole = reply.json()
        for result in whole["results"]:
            del result["job"]
        self.assertEqual(again["results"], whole["results"])
        self.problem("GET", "/api/v1/baselines/nothing/evidence", status=404)


class Gates(GateTest):
    def test_the_same_definition_is_the_same_version_and_the_last_posted_is_current(self):
        first = self.post("/api/v1/gates", gate(name="v")).json()
        self.assertEqual(first["version"], 1)
        self.assertEqual(first["gate"]["rules"][0]["confidence"], 0.95)
        self.assertEqual(self.post("/api/v1/gates", gate(name="v"), 200).json()["version"], 1)
        spelt = json.loads(json.dumps(gate(name="v")))
        spelt["rules"][0]["confidence"] = 0.95  # a default that is spelt out changes nothing
        self.assertEqual(self.post("/api/v1/gates", spelt, 200).json()["version"], 1)
        self.assertEqual(self.post("/api/v1/gates", gate(name="v", rules=GATE["rules"][:1])).json()["version"], 2)
        self.assertEqual(self.server.get("/api/v1/gates/v").json()["version"], 2)
        self.assertEqual(self.post("/api/v1/gates", gate(name="v"), 200).json()["version"], 1)
        self.assertEqual(self.server.get("/api/v1/gates/v").json()["version"], 1)
        self.assertEqual(len(self.server.get("/api/v1/gates/v?version=2").json()["gate"]["rules"]), 1)
        listed = {g["name"]: g for g in self.server.get("/api/v1/gates").json()["data"]}
        self.assertEqual((listed["v"]["version"], listed["v"]["branches"], listed["v"]["last_run"]), (1, [], None))

    def test_a_gate_that_is_none_is_refused_with_a_pointer(self):
        rule = GATE["rules"][0]
        for body, pointer in ((gate(name="a b"), "/name"), (gate(x=1), "/x"),
                              (gate(rules=[{**rule, "min_effect": 0}]), "/rules/0/min_effect"),
                              (gate(webhook={"url": "http://x", "secret_env": "PATH"}), "/webhook/secret_env"),
                              (gate(measure=[{"task": "pg19", "dataset": "shelf", "params": {"stride": "x"}}]),
                               "/measure/0/params/stride")):
            with self.subTest(pointer=pointer):
                self.assertEqual(self.problem("POST", "/api/v1/gates", body).get("pointer"), pointer)
        self.problem("POST", "/api/v1/gates", "[", 400)
        self.problem("GET", "/api/v1/gates/nothing", status=404)
        self.problem("GET", "/api/v1/gates/nothing/runs", status=404)
        self.problem("GET", "/api/v1/gates/nothing/badge.svg", status=404)
        self.problem("PUT", "/api/v1/gates", status=405)

    def test_what_a_job_may_not_ask_of_the_engine_a_gate_may_not_either(self):
        measure = GATE["measure"][0]
        job = {"model": "rope-demo", **{k: measure[k] for k in ("task", "dataset", "params")}}
        for engine in (1, {"device": "tpu"}, {"device": 0}, {"dtype": "f64"}, {"a/b~": 1}, {"gpu": None}, {"position": "yarn"},
                       {"position": {"factor": 2}}, {"position": {"type": "yarn", "factor": [2]}},
                       {"position": {"type": "yarn", **{str(i): i for i in range(40)}}}):
            with self.subTest(engine=engine):
                of_job = self.problem("POST", "/api/v1/jobs", {**job, "engine": engine})
                of_gate = self.problem("POST", "/api/v1/gates", gate(measure=[{**measure, "engine": engine}]))
                self.assertEqual((of_gate["detail"], of_gate["pointer"]), (of_job["detail"], "/measure/0" + of_job["pointer"]))
        for engine in (None, {"device": None, "dtype": "f32", "position": {"type": "none"}}, {"device": "cuda:3"}):
            self.post("/api/v1/gates", gate(name="g", measure=[{**measure, "engine": engine}]))


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
        self.assertEqual(self.server.get(f"/api/v1/gates/books/runs/{run['id']}.json").json(), run["verdict"])
        junit = self.server.get(run["links"]["junit"])
        self.assertEqual(junit.headers["Content-Type"], "application/xml; charset=utf-8")
        self.assertEqual([c.get("name") for c in xml.etree.ElementTree.fromstring(junit.body).iter("testcase")],
                         ["no worse", "bounded"])
        markdown = self.server.get(run["links"]["markdown"])
        self.assertEqual(markdown.headers["Content-Type"], "text/markdown; charset=utf-8")
        self.assertIn("no worse", markdown.body.decode())
        self.assertEqual((run["verdict"]["commit"], run["verdict"]["branch"], run["verdict"]["run"]), ("abc", "main", run["id"]))

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.base = cls.server.submit(dataset="shelf", params=PARAMS)["id"]
        assert cls.server.wait(cls.base)["state"] == "succeeded"
        assert cls.server.ask("POST", "/api/v1/baselines", {"name": "base", "jobs": [cls.base]}).status == 201
        assert cls.server.ask("POST", "/api/v1/gates", gate(name="g")).status == 201

    def test_a_worse_model_fails_and_the_verdict_names_the_rule(self):
        model = self.copy_model("worse", lambda m: spoil(m, 7))
        run = self.run_gate("g", model, "base", tags={"branch": "topic"})
        self.assertEqual(run["outcome"], "fail", run["verdict"])
        rules = {r["name"]: r for r in run["verdict"]["rules"]}
        self.assertEqual((rules["no worse"]["verdict"], rules["bounded"]["verdict"]), ("fail", "pass"))
        self.assertGreater(rules["no worse"]["lower"], 0)
        self.assertIsNone(run["jobs"][0]["cached_from"])
        self.assertEqual(run["baseline"], {"name": "base", "version": 1})

    def test_an_imported_baseline_gives_the_verdict_that_the_job_gave(self):
        self.post("/api/v1/baselines", {"name": "file", **self.server.get("/api/v1/baselines/base/evidence").json()})
        model = self.copy_model("other", lambda m: spoil(m, 997))
        rules = [self.run_gate("g", model, b)["verdict"]["rules"] for b in ("base", "file")]
        self.assertEqual(rules[0], rules[1])
        self.assertNotEqual(rules[0][0]["delta"], 0)

    def test_another_dtype_is_no_comparison_unless_it_is_allowed(self):
        if not self.server.get("/api/v1/workers").json()["data"][0]["isa"].endswith(("bf16", "amx")):
            print("SKIP: this processor has no bf16")
            return
        self.post("/api/v1/gates", gate(name="bf16", measure=[{**GATE["measure"][0], "engine": {"dtype": "bf16"}}]))
        run = self.run_gate("bf16", baseline="base")
        self.assertEqual((run["outcome"], run["verdict"]["rules"][0]["verdict"]), ("error", "error"))
        self.assertIn("dtype", json.dumps(run["verdict"]["refused"]))
        self.assertIsNone(run["jobs"][0]["cached_from"])
        run = self.run_gate("bf16", baseline="base", allow_engine_change=True)
        self.assertNotEqual(run["outcome"], "error", run["verdict"]["rules"])
        self.assertTrue(run["verdict"]["engine_change"] and run["allow_engine_change"])

    def test_other_positions_than_the_models_own_are_no_comparison(self):
        yarn = {"type": "yarn", "factor": 2}
        self.post("/api/v1/gates", gate(name="yarn", measure=[{**GATE["measure"][0], "engine": {"position": yarn}}]))
        for allow in (False, True):  # it is what is measured, not how
            run = self.run_gate("yarn", baseline="base", allow_engine_change=allow)
            self.assertEqual((run["outcome"], run["verdict"]["rules"][0]["verdict"]), ("error", "error"))
            self.assertIn('the override of positions is {"type":"yarn","factor":2}, and not given in the baseline',
                          run["verdict"]["refused"][0])
        job = self.measure(engine={"position": {"factor": 2.0, "type": "yarn"}})
        self.assertEqual(job["result"]["engine"]["position"], yarn)
        self.assertIsNone(self.server.job(self.base)["result"]["engine"]["position"])
        self.post("/api/v1/baselines", {"name": "yarn", "jobs": [job["id"]]})
        self.assertEqual(self.run_gate("yarn", baseline="yarn")["outcome"], "pass")
        self.assertIn("not given, and", self.run_gate("g", baseline="yarn")["verdict"]["refused"][0])

    def test_what_cannot_be_run_is_refused_and_leaves_nothing(self):
        before = len(self.server.get("/api/v1/jobs?limit=500").json()["data"])
        for body, pointer, words in (
            ({"baseline": "base"}, "/model", "missing"), ({"model": "nope", "baseline": "base"}, "/model", "nope"),
            ({"model": "rope-demo"}, "/baseline", "none is named"),
            ({"model": "rope-demo", "baseline": "nope"}, "/baseline", "no baseline 'nope'"),
            ({"model": "rope-demo", "baseline": "base", "baseline_version": 9}, "/baseline", "version 9"),
            ({"model": "rope-demo", "baseline": "base", "tags": {"a": 1}}, "/tags/a", "string"),
            ({"model": "rope-demo", "baseline": "base", "cache": "no"}, "/cache", "true or false"),
            ({"model": "rope-demo", "baseline": "base", "mode": 1}, "/mode", "unknown member"),
            ({"model": "rope-demo", "baseline": "base", "model,": 1}, "/model,", "unknown member"),
        ):
            with self.subTest(body=str(body)):
                problem = self.problem("POST", "/api/v1/gates/g/runs", body)
                self.assertEqual(problem.get("pointer"), pointer)
                self.assertIn(words, problem["detail"])
        self.problem("POST", "/api/v1/gates/none/runs", {"model": "rope-demo", "baseline": "base"}, 404)
        self.problem("POST", "/api/v1/gates/g/runs", {"model": "rope-demo", "baseline": "base", "gate_version": 8}, 404)
        self.post("/api/v1/gates", gate(name="gone", measure=[{**GATE["measure"][0], "dataset": "gone"}]))
        problem = self.problem("POST", "/api/v1/gates/gone/runs", {"model": "rope-demo", "baseline": "base"})
        self.assertIn("gate 'gone', measurement 'books'", problem["detail"])
        self.assertEqual(len(self.server.get("/api/v1/jobs?limit=500").json()["data"]), before)
        self.assertEqual(self.server.get("/api/v1/gates/gone/runs").json(), {"data": [], "next": None})

    def test_a_measurement_that_was_stopped_is_an_error_and_one_of_nans_a_fail(self):
        model = self.copy_model("stopped", lambda m: spoil(m, 3))
        run = self.post("/api/v1/gates/g/runs", {"model": model, "baseline": "base"}, 202).json()
        self.assertIn("held by run", self.problem("DELETE", f"/api/v1/jobs/{run['jobs'][0]['id']}", status=409)["detail"])
        self.assertIn("compares with", self.problem("DELETE", "/api/v1/baselines/base", status=409)["detail"])
        self.server.ask("POST", f"/api/v1/jobs/{run['jobs'][0]['id']}/cancel")
        run = self.server.get(f"/api/v1/gates/g/runs/{run['id']}?wait=60").json()
        self.assertEqual((run["state"], run["outcome"]), ("done", "error"))
        self.assertIn("cancelled", json.dumps(run["verdict"]))
        self.assertEqual(self.server.ask("DELETE", f"/api/v1/jobs/{run['jobs'][0]['id']}").status, 204)
        run = self.run_gate("g", self.copy_model("nan", break_numbers), "base")
        self.assertEqual(run["outcome"], "fail", run["verdict"]["rules"])
        self.assertIn("layer", json.dumps(run["verdict"]["rules"]).lower())

    def test_a_run_asked_for_again_by_its_key_is_the_same_run(self):
        self.post("/api/v1/baselines", {"name": "keyed", "jobs": [self.base]})
        ask = {"model": "rope-demo", "baseline": "keyed", "tags": {"a": "1", "b": "2"}}
        runs = "/api/v1/gates/g/runs"
        replies = []
        threads = [threading.Thread(target=lambda: replies.append(self.server.ask("POST", runs, ask, {"Idempotency-Key": "once"})))
                   for _ in range(6)]
        for t in threads:
            t.start()
        for t in threads:
            t.join(30)
        self.assertEqual({r.status for r in replies}, {202})
        self.assertEqual(len({r.json()["id"] for r in replies}), 1)
        self.assertEqual([r.headers["Idempotent-Replayed"] for r in replies].count("true"), 5)
        run = replies[0].json()
        self.assertEqual({r.headers["Location"] for r in replies}, {f"{runs}/{run['id']}"})
        self.server.stop(signal.SIGKILL)
        self.server.start()
        # a newer baseline, and everything that stands for itself by default: still the same request
        etag = self.server.get("/api/v1/baselines/keyed").headers["ETag"]
        self.post("/api/v1/baselines", {"name": "keyed", "jobs": [self.base]}, If_Match=etag)
        same = {**ask, "tags": {"b": "2", "a": "1"}, "cache": True, "allow_engine_change": None, "priority": 0}
        again = self.post(runs + "?wait=60", same, 202, Idempotency_Key="once")
        self.assertEqual((again.json()["id"], again.json()["state"]), (run["id"], "done"))
        self.assertEqual([j["id"] for j in again.json()["jobs"]], [j["id"] for j in run["jobs"]])
        self.post("/api/v1/gates", gate(name="g2"))
        for path, body in ((runs, {**ask, "tags": {}}), (runs, {**ask, "cache": False}), (runs, {**ask, "priority": 1}),
                           (runs, {**ask, "allow_engine_change": True}), (runs, {**ask, "model": "yarn-demo"}),
                           (runs, {**ask, "gate_version": 1}), (runs, {**ask, "baseline_version": 1}),
                           ("/api/v1/gates/g2/runs", ask)):
            with self.subTest(path=path, body=body):
                problem = self.problem("POST", path, body, Idempotency_Key="once")
                self.assertIn(f"'once' was used for another request (run {run['id']})", problem["detail"])
        self.problem("POST", runs, ask, 400, Idempotency_Key="two words")
        self.assertNotEqual(self.post(runs, ask, 202, Idempotency_Key="twice").json()["id"], run["id"])
        job = self.server.ask("POST", "/api/v1/jobs", {"model": "rope-demo", "task": "pg19", "dataset": "shelf", "params": PARAMS},
                              {"Idempotency-Key": "once"})
        self.assertEqual((job.status, job.headers["Idempotent-Replayed"]), (202, None))  # jobs have keys of their own

    def test_a_run_is_cancelled_with_its_jobs_and_nothing_else_is(self):
        receiver = Receiver()
        self.addCleanup(receiver.close)
        slow = {"task": "pg19", "dataset": "shelf", "params": {"protocol": "sliding", "lengths": [256], "stride": 1}}
        rule = {"name": "r", "type": "absolute", "metric": "ppl_token", "length": 256, "max": 1e9}
        self.post("/api/v1/gates", gate(name="slow", measure=[{**slow, "id": "a"}, {**slow, "id": "b"}],
                                        rules=[{**rule, "measure": m, "name": m} for m in "ab"], webhook={"url": receiver.url}))
        ask = {"model": "rope-demo", "cache": False}
        run = self.post("/api/v1/gates/slow/runs", ask, 202).json()
        own = self.server.submit(dataset="shelf", params={"lengths": [96]})["id"]  # of somebody else, behind it
        other = self.post("/api/v1/gates/g/runs", {**ask, "baseline": "base"}, 202).json()
        self.server.wait(run["jobs"][0]["id"], until=("running",))
        path = f"/api/v1/gates/slow/runs/{run['id']}"
        waited = []
        waiter = threading.Thread(target=lambda: waited.append(self.server.get(path + "?wait=60").json()))
        waiter.start()
        self.problem("POST", f"/api/v1/gates/g/runs/{run['id']}/cancel", status=404)
        reply = self.server.ask("POST", path + "/cancel")
        self.assertEqual(reply.status, 202, reply.body)
        self.assertEqual((reply.json()["state"], reply.json()["outcome"], reply.json()["error"]), ("cancelled", None, None))
        self.assertIsNotNone(reply.json()["finished_at"])
        waiter.join(20)
        self.assertEqual(waited[0]["state"], "cancelled")
        for job in run["jobs"]:
            self.assertEqual(self.server.wait(job["id"])["state"], "cancelled")
            self.assertEqual(self.server.ask("DELETE", f"/api/v1/jobs/{job['id']}").status, 204)  # no run holds it
        self.assertEqual(self.server.wait(own)["state"], "succeeded")
        other = self.server.get(f"/api/v1/gates/g/runs/{other['id']}?wait=60").json()
        self.assertEqual((other["state"], other["outcome"]), ("done", "pass"))
        for done in (run, other):
            self.assertIn("cannot be cancelled", self.problem("POST", done["links"]["self"] + "/cancel", status=409)["detail"])
        self.assertIn("it is cancelled", self.problem("GET", path + ".json", status=409)["detail"])
        self.assertEqual([r["id"] for r in self.server.get("/api/v1/gates/slow/runs?state=cancelled").json()["data"]], [run["id"]])
        self.assertIn("unknown", self.server.get("/api/v1/gates/slow/badge.svg").body.decode())
        self.assertIn('fathom_gate_runs{gate="slow",outcome="cancelled"} 1', self.server.get("/metrics").body.decode())
        self.server.stop(signal.SIGKILL)
        self.server.start()
        self.assertEqual(self.server.get(path).json()["state"], "cancelled")
        self.assertEqual(receiver.got, [])

    def test_runs_are_listed_and_found_by_branch_and_verdict(self):
        for branch in ("a", "b", "b"):
            self.run_gate("g", baseline="base", tags={"branch": branch, "commit": "c" + branch})
        path = "/api/v1/gates/g/runs?branch="
        runs = self.server.get(path + "b").json()["data"]
        self.assertEqual([r["tags"]["branch"] for r in runs], ["b", "b"])
        self.assertGreater(runs[0]["id"], runs[1]["id"])
        page = self.server.get(path + "b&limit=1").json()
        self.assertEqual((len(page["data"]), page["next"]), (1, runs[0]["id"]))
        self.assertEqual(self.server.get(path + f"b&after={page['next']}").json()["data"], [runs[1]])
        self.assertEqual(self.server.get(path + "b&verdict=fail").json()["data"], [])
        self.problem("GET", path + "b&verdict=good")
        self.problem("GET", path + "b&state=good")
        self.problem("GET", f"/api/v1/gates/none/runs/{runs[0]['id']}", status=404)
        self.problem("GET", "/api/v1/gates/g/runs/4711", status=404)
        gates = {g["name"]: g for g in self.server.get("/api/v1/gates").json()["data"]}
        branches = {b["branch"]: b for b in gates["g"]["branches"]}
        self.assertEqual((branches["b"]["run"], branches["b"]["commit"], branches["b"]["verdict"]), (runs[0]["id"], "cb", "pass"))
        badge = self.server.get("/api/v1/gates/g/badge.svg?branch=b")
        self.assertEqual(badge.headers["Content-Type"], "image/svg+xml")
        self.assertIn("pass", badge.body.decode())
        self.assertIn("unknown", self.server.get("/api/v1/gates/g/badge.svg?branch=none").body.decode())


class History(GateTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.gate = gate(name="h", rules=[
            {"name": "bound", "type": "absolute", "metric": "ppl_token", "length": 128, "max": 1e9},
            {"name": "trend", "type": "history", "metric": "ppl_token", "length": 128, "k": 10, "min_effect": 0.2}])
        assert cls.server.ask("POST", "/api/v1/gates", cls.gate).status == 201

    def test_a_history_rule_sees_the_models_that_passed_on_its_branch_each_once(self):
        self.post("/api/v1/gates", gate(name="h2", rules=self.gate["rules"]))
        for i in range(6):  # the first five make the history that the sixth is the first to be judged by
            model = self.copy_model(f"m{i}", lambda m, i=i: spoil(m, 900 + i))
            run = self.run_gate("h2", model, None, tags={"branch": "main", "commit": f"c{i}"})
            self.assertEqual(run["outcome"], "inconclusive" if i < 5 else "pass", run["verdict"]["rules"])
        self.run_gate("h2", "m5", None, tags={"branch": "main"})
        self.run_gate("h2", "m5", None, tags={"branch": "topic"})
        run = self.run_gate("h2", self.copy_model("next", lambda m: spoil(m, 950)), None, tags={"branch": "main"})
        rule = run["verdict"]["rules"][1]
        self.assertEqual((rule["verdict"], rule["n"]), ("pass", 6), rule)
        run = self.run_gate("h2", "next", None, tags={"branch": "topic"})  # one run there: too few
        self.assertEqual(run["verdict"]["rules"][1]["verdict"], "inconclusive")
        run = self.run_gate("h2", self.copy_model("bad", lambda m: spoil(m, 2)), None, tags={"branch": "main"})
        self.assertEqual(run["verdict"]["rules"][1]["verdict"], "fail", run["verdict"]["rules"])

        history = self.server.get("/api/v1/history?gate=h2&rule=bound&branch=main").json()
        self.assertEqual(history["metric"], "ppl_token")
        self.assertEqual([p["commit"] for p in history["points"]][:6], [f"c{i}" for i in range(6)])
        self.assertEqual(len(history["points"]), 9)
        values = [p["value"] for p in history["points"]]
        job = self.server.job(history["points"][0]["job"])["result"]
        metric = [m for m in job["metrics"] if (m["name"], m["length"]) == ("ppl_token", 128)][0]
        self.assertEqual((values[0], history["points"][0]["stderr"]), (metric["value"], metric["stderr"]))
        of_jobs = self.server.get("/api/v1/history?task=pg19&metric=ppl_token&length=128&branch=main&limit=4").json()
        self.assertEqual([p["value"] for p in of_jobs["points"]], values[-4:])

    def test_a_rule_that_came_to_mean_something_else_begins_a_new_line(self):
        def values():
            points = self.server.get("/api/v1/history?gate=h3&rule=bound").json()["points"]
            return [p["value"] for p in points]

        versions = [gate(name="h3", rules=[{**GATE["rules"][1], "name": "bound", "length": n}]) for n in (64, 128)]
        versions.append(gate(name="h3", rules=versions[1]["rules"],
                             measure=[{**GATE["measure"][0], "params": {**PARAMS, "last_window": "drop"}}]))
        seen = []
        for i, version in enumerate(versions):
            self.post("/api/v1/gates", version)
            self.assertEqual(values(), [])
            run = self.run_gate("h3", baseline=None)
            seen.append(run["verdict"]["rules"][0]["value"])
            self.assertEqual(values(), [seen[i]])
        self.assertEqual(len(set(seen)), 3)
        self.post("/api/v1/gates", versions[0], 200)
        self.assertEqual(values(), [seen[0]])
        looser = {**versions[0]["rules"][0], "max": 1e8}  # another threshold of the same number
        self.post("/api/v1/gates", {**versions[0], "rules": [looser]})
        self.assertEqual(values(), [seen[0]])

    def test_values_of_other_protocols_are_on_no_line(self):
        self.measure(params={"lengths": [96], "last_window": "drop"}, tags={"branch": "p"})
        self.measure(params={"lengths": [96]}, tags={"branch": "p"}, engine={"position": {"type": "linear", "factor": 2}})
        job = self.measure(params={"lengths": [96]}, tags={"branch": "p"})["id"]
        points = self.server.get("/api/v1/history?task=pg19&metric=ppl_token&length=96&branch=p").json()["points"]
        self.assertEqual([p["job"] for p in points], [job])

    def test_data_that_changed_under_its_name_begins_a_new_line(self):
        folder = self.server.datasets / "moving"
        shutil.copytree(self.server.datasets / "shelf", folder)
        self.post("/api/v1/gates", gate(name="h5", rules=GATE["rules"][1:], measure=[{**GATE["measure"][0], "dataset": "moving"}]))
        runs = []
        for i in range(4):
            if i == 2:
                (folder / "0.txt").write_text("Something else stands here now. " * 60)
            runs.append(self.run_gate("h5", baseline=None)["id"])
            points = self.server.get("/api/v1/history?gate=h5&rule=bounded").json()["points"]
            self.assertEqual([p["run"] for p in points], runs[2 * (i // 2):])

    def test_measures_that_differ_in_positions_alone_have_baselines_and_histories_of_their_own(self):
        raw, scaled = GATE["measure"][0], {"id": "scaled", "engine": {"position": {"type": "linear", "factor": 2}}}
        measure = [raw, {**raw, **scaled}]
        last = {"type": "history", "metric": "ppl_token", "length": 128, "k": 5, "min_effect": 0.2}
        worse = {"type": "relative", "metric": "ppl_token", "length": 128, "min_effect": 0.2}
        rules = [{**rule, "name": f"{m['id']} {rule['type']}", "measure": m["id"]} for m in measure for rule in (last, worse)]
        self.post("/api/v1/gates", gate(name="h4", measure=measure, rules=rules))
        jobs = [self.measure(engine=m.get("engine", {}))["id"] for m in reversed(measure)]
        self.post("/api/v1/baselines", {"name": "both", "jobs": jobs})
        values = []
        for i in range(6):
            model = self.copy_model(f"m{i}", lambda m, i=i: spoil(m, 900 + i))
            run = self.run_gate("h4", "rope-demo" if i == 5 else model, "both")
            values.append([r["value"] for r in run["verdict"]["rules"]])
            if i < 5:  # they are as good as the baseline, or the history has no five
                self.assertEqual(run["outcome"], "inconclusive", run["verdict"]["rules"])
        self.assertEqual(run["outcome"], "pass", run["verdict"]["rules"])
        for i, rule in enumerate(run["verdict"]["rules"]):
            if rule["type"] == "relative":
                self.assertEqual((rule["delta"], rule["baseline_value"]), (0, rule["value"]))
            else:
                before = [v[i] for v in values[:5]]
                self.assertTrue(min(before) <= rule["baseline_value"] <= max(before), (rule, before))
        self.assertGreater(abs(values[0][0] / values[0][2] - 1), 0.1)  # so that one is not the other

    def test_a_change_of_level_is_marked_with_the_commit_that_brought_it(self):
        for i in range(12):
            model = self.copy_model(f"s{i}", lambda m, i=i: spoil(m, 901 if i < 6 else 33, i))
            self.server.submit(model=model, dataset="shelf", params={"lengths": [80]}, tags={"branch": "s", "commit": f"k{i}"})
        for job in self.server.get("/api/v1/jobs?tag=branch=s").json()["data"]:
            self.assertEqual(self.server.wait(job["id"])["state"], "succeeded")
        history = self.server.get("/api/v1/history?task=pg19&metric=ppl_token&length=80&branch=s&min_effect=0.05").json()
        values = [p["value"] for p in history["points"]]
        self.assertEqual([(c["index"], c["commit"]) for c in history["change_points"]], [(6, "k6")], history)
        change = history["change_points"][0]
        self.assertTrue(min(values[:6]) <= change["before"] <= max(values[:6]) < change["after"] <= max(values[6:]))

    def test_a_history_says_of_what(self):
        self.assertEqual(self.problem("GET", "/api/v1/history")["parameter"], "task")
        self.assertEqual(self.problem("GET", "/api/v1/history?gate=h")["parameter"], "rule")
        self.assertEqual(self.problem("GET", "/api/v1/history?task=pg19")["parameter"], "metric")
        self.assertEqual(self.problem("GET", "/api/v1/history?task=pg19&metric=acc&limit=x")["parameter"], "limit")
        self.assertEqual(self.problem("GET", "/api/v1/history?task=pg19&metric=acc&min_effect=-1")["parameter"], "min_effect")
        self.problem("GET", "/api/v1/history?gate=none&rule=x", status=404)
        self.assertEqual(self.server.get("/api/v1/history?task=pg19&metric=acc").json()["points"], [])


class Cache(GateTest):
    def cached(self, **members):
        return self.measure(cache=True, **members)

    def test_a_hit_is_marked_and_has_the_very_numbers_under_its_own_names(self):
        first = self.measure(params={"lengths": [72]})
        self.copy_model("alias")
        self.assertIsNone(self.measure(params={"lengths": [72]})["cached_from"])  # not asked for
        log = len(self.server.log_text())
        hit = self.cached(model="alias", params={"lengths": [72]}, tags={"a": "b"})
        self.assertIsNotNone(hit["cached_from"])
        self.assertNotIn('"cmd":"run"', self.server.log_text()[log:])
        self.assertEqual(hit["progress"]["units_done"], first["progress"]["units_total"])
        self.assertEqual(hit["result"]["metrics"], first["result"]["metrics"])
        self.assertEqual(hit["headline"], first["headline"])
        self.assertEqual(hit["result"]["model"], {**first["result"]["model"], "name": "alias"})
        items = [self.server.get(f"/api/v1/jobs/{j['id']}/items").body for j in (first, hit)]
        self.assertEqual(items[0], items[1])
        # it may be a baseline, and stands on its own
        self.post("/api/v1/baselines", {"name": "hit", "jobs": [hit["id"]]})
        self.assertEqual(self.server.ask("DELETE", f"/api/v1/jobs/{hit['cached_from']}").status, 204)
        self.assertEqual(self.server.get(f"/api/v1/jobs/{hit['id']}/items").body, items[0])
        self.assertEqual(len(self.server.get("/api/v1/baselines/hit/evidence").json()["results"][0]["items"]), N_BOOKS)

    def test_a_hit_takes_no_time_and_a_restart_computes(self):
        first = self.measure(params={"lengths": [128], "protocol": "sliding", "stride": 4})
        begun = time.monotonic()
        hit = self.cached(params={"lengths": [128], "protocol": "sliding", "stride": 4})
        took = time.monotonic() - begun
        self.assertEqual(hit["cached_from"], first["id"])
        self.assertLess(took, max(0.5, 0.5 * first["result"]["engine"]["seconds"]))
        self.assertEqual(hit["result"]["engine"]["seconds"], first["result"]["engine"]["seconds"])
        self.server.ask("POST", f"/api/v1/jobs/{hit['id']}/restart")
        again = self.server.wait(hit["id"])
        self.assertEqual((again["state"], again["cached_from"]), ("succeeded", None))
        self.assertEqual(again["result"]["metrics"], first["result"]["metrics"])

    def test_whatever_may_change_a_number_misses(self):
        base = {"params": {"lengths": [40]}}
        self.measure(**base)
        self.assertIsNotNone(self.cached(**base)["cached_from"])
        self.copy_model("byte", lambda m: flip_last_byte(m / "model.safetensors"))
        self.copy_model("tokens", lambda m: (m / "tokenizer.json").write_text((m / "tokenizer.json").read_text() + "\n"))
        shutil.copytree(self.server.datasets / "shelf", self.server.datasets / "shelf2")
        with open(self.server.datasets / "shelf2" / "0.txt", "a") as f:
            f.write(".")
        for changes in ({"model": "byte"}, {"model": "tokens"}, {"dataset": "shelf2"}, {"params": {"lengths": [41]}},
                        {"params": {"lengths": [40], "last_window": "drop"}},
                        {"engine": {"position": {"type": "linear", "factor": 2}}}, {"engine": {"dtype": "bf16"}}):
            with self.subTest(changes=changes):
                if "dtype" in changes.get("engine", {}) and not self.server.get("/api/v1/workers").json()["data"][0]["isa"].endswith(
                        ("bf16", "amx")):
                    print("SKIP: this processor has no bf16")
                    continue
                job = self.cached(**{**base, **changes})
                self.assertIsNone(job["cached_from"])
                self.assertEqual(self.cached(**{**base, **changes})["cached_from"], job["id"])

    def test_a_byte_of_the_weights_that_changes_under_the_same_name_misses(self):
        model = self.copy_model("renewed")
        first = self.measure(model=model, params={"lengths": [56]})
        self.assertEqual(self.cached(model=model, params={"lengths": [56]})["cached_from"], first["id"])
        flip_last_byte(self.server.models / model / "model.safetensors")
        job = self.cached(model=model, params={"lengths": [56]})
        self.assertIsNone(job["cached_from"])
        self.assertNotEqual(job["result"]["model"]["fingerprint"], first["result"]["model"]["fingerprint"])

    def test_a_failed_job_is_no_source(self):
        model = self.copy_model("broken", break_numbers)
        for _ in range(2):
            job = self.server.wait(self.server.submit(model=model, dataset="shelf", params=PARAMS, cache=True)["id"])
            self.assertEqual((job["state"], job["cached_from"]), ("failed", None))

    def test_a_run_without_cache_computes(self):
        self.post("/api/v1/gates", gate(name="c", rules=GATE["rules"][1:]))
        self.measure()
        run = self.run_gate("c", baseline=None, cache=False)
        self.assertEqual((run["outcome"], run["jobs"][0]["cached_from"]), ("pass", None))
        self.assertIsNotNone(self.run_gate("c", baseline=None)["jobs"][0]["cached_from"])


def flip_last_byte(path):
    data = bytearray(path.read_bytes())
    data[-1] ^= 1  # of a tensor's last number, its low byte or its high: another model, all the same
    path.write_bytes(data)


class Webhook(GateTest):
    SECRET = "a secret that nobody is told"

    @classmethod
    def setUpClass(cls):
        os.environ["FATHOM_WEBHOOK_TEST"] = cls.SECRET
        try:
            super().setUpClass()
        finally:
            del os.environ["FATHOM_WEBHOOK_TEST"]

    def hooked(self, name, receiver, env="FATHOM_WEBHOOK_TEST"):
        self.post("/api/v1/gates", gate(name=name, rules=GATE["rules"][1:],
                                        webhook={"url": receiver.url, "secret_env": env}))
        self.addCleanup(receiver.close)
        return self.run_gate(name, baseline=None, tags={"commit": "abc"})

    def wait_hook(self, run, *states, seconds=30):
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            got = self.server.get(f"/api/v1/gates/{run['gate']}/runs/{run['id']}").json()
            if got["webhook"]["state"] in states:
                return got
            time.sleep(0.05)
        self.fail(f"the webhook is still {got['webhook']}")

    def test_the_verdict_is_posted_signed_and_again_until_it_is_taken(self):
        receiver = Receiver(503, 404)
        run = self.hooked("hook", receiver)
        run = self.wait_hook(run, "delivered")
        self.assertEqual((run["webhook"]["tries"], run["webhook"]["error"]), (3, None))
        for _, headers, body in receiver.got:
            self.assertEqual(json.loads(body), run["verdict"])
            self.assertEqual(headers["X-Fathom-Signature"],
                             "sha256=" + hmac.new(self.SECRET.encode(), body, hashlib.sha256).hexdigest())
            self.assertEqual((headers["X-Fathom-Event"], headers["X-Fathom-Delivery"]), ("verdict", str(run["id"])))
            self.assertEqual(headers["Content-Type"], "application/json")
        times = [t for t, _, _ in receiver.got]
        self.assertGreater(times[1] - times[0], 0.9)
        self.assertGreater(times[2] - times[1], 2.7)
        self.assertEqual(len(times), 3)
        self.server.stop()
        self.addCleanup(lambda: None)
        stored = b"".join(p.read_bytes() for p in self.server.data.glob("fathom.db*")) + self.server.log_text().encode()
        os.environ["FATHOM_WEBHOOK_TEST"] = self.SECRET
        self.server.start()
        self.assertNotIn(self.SECRET.encode(), stored)

    def test_a_secret_that_is_not_there_is_said_and_nothing_is_sent_unsigned(self):
        receiver = Receiver()
        run = self.hooked("nosecret", receiver, "FATHOM_WEBHOOK_NONE")
        deadline = time.monotonic() + 20
        while not (error := self.server.get(run["links"]["self"]).json()["webhook"]["error"]) and time.monotonic() < deadline:
            time.sleep(0.05)
        self.assertIn("FATHOM_WEBHOOK_NONE", error)
        self.assertEqual(receiver.got, [])

    def test_a_message_outlives_the_server(self):
        receiver = Receiver(500)
        run = self.hooked("late", receiver)
        deadline = time.monotonic() + 20
        while not receiver.got and time.monotonic() < deadline:
            time.sleep(0.02)
        self.server.stop(signal.SIGKILL)
        self.server.start()
        run = self.wait_hook(run, "delivered")
        self.assertEqual(json.loads(receiver.got[-1][2]), run["verdict"])
        self.assertEqual({h["X-Fathom-Delivery"] for _, h, _ in receiver.got}, {str(run["id"])})

    def test_after_eight_tries_it_is_given_up(self):
        receiver = Receiver(*[500] * 20)
        run = self.hooked("never", receiver)
        deadline = time.monotonic() + 20
        while len(receiver.got) < 1 and time.monotonic() < deadline:
            time.sleep(0.02)
        self.server.stop(signal.SIGKILL)
        query(self.server, "UPDATE gate_run SET hook_tries = 7, hook_at_ms = 1 WHERE id = ?", run["id"])
        self.server.start()
        run = self.wait_hook(run, "given_up")
        self.assertEqual(run["webhook"]["tries"], 8)
        self.assertIn("500", run["webhook"]["error"])


class Killed(GateTest):
    def wait_state(self, run, *states):
        """Looks often: a verdict takes some milliseconds."""
        db = sqlite3.connect(self.server.data / "fathom.db", timeout=10)
        try:
            deadline = time.monotonic() + 60
            while time.monotonic() < deadline:
                if db.execute("SELECT state FROM gate_run WHERE id = ?", (run["id"],)).fetchone()[0] in states:
                    return
        finally:
            db.close()

    def test_a_run_that_was_killed_at_any_moment_gets_the_verdict_of_one_that_was_not(self):
        """Another run of the same models each time, until three kills hit one that measured, and three one that was judged."""
        self.post("/api/v1/gates", gate(name="k"))
        job = self.measure()["id"]
        self.post("/api/v1/baselines", {"name": "main", "jobs": [job]})
        model = self.copy_model("candidate", lambda m: spoil(m, 499))
        expected = comparable(self.run_gate("k", model, cache=False))
        rng = random.Random(4)
        kills = {"measuring": 0, "judging": 0, "done": 0}
        for _ in range(40):
            run = self.post("/api/v1/gates/k/runs", {"model": model, "baseline": "main", "cache": False}, 202).json()
            for attempt in range(2):
                if attempt:
                    self.wait_state(run, "judging", "done")
                else:
                    time.sleep(rng.random() * 0.7)
                self.server.stop(signal.SIGKILL)
                state = query(self.server, "SELECT state FROM gate_run WHERE id = ?", run["id"])[0][0]
                kills[state] += 1
                self.server.start()
                if state == "done":
                    break
            while run["state"] not in ("done", "failed"):
                run = self.server.get(f"/api/v1/gates/k/runs/{run['id']}?wait=60").json()
            self.assertEqual(comparable(run), expected)
            if min(kills["measuring"], kills["judging"]) >= 3:
                break
        print("kills by the state of the run:", kills)
        self.assertGreaterEqual(min(kills["measuring"], kills["judging"]), 3)

    def test_a_run_that_was_to_be_judged_is_judged_by_the_next_server(self):
        self.post("/api/v1/gates", gate(name="j", rules=GATE["rules"][1:]))
        run = self.run_gate("j", baseline=None)
        self.server.stop(signal.SIGKILL)
        query(self.server, "UPDATE gate_run SET state = 'judging', verdict = NULL, outcome = NULL, finished_ms = NULL"
                           " WHERE id = ?", run["id"])
        self.server.start()
        again = self.server.get(f"/api/v1/gates/j/runs/{run['id']}?wait=60").json()
        self.assertEqual(comparable(again), comparable(run))

    def kill_judge(self):
        """Kills the next judge that the server starts."""
        deadline = time.monotonic() + 30
        children = Path(f"/proc/{self.server.process.pid}/task/{self.server.process.pid}/children")
        while time.monotonic() < deadline:
            for pid in children.read_text().split():
                try:
                    if b"\0judge\0" in Path(f"/proc/{pid}/cmdline").read_bytes():
                        os.kill(int(pid), signal.SIGKILL)
                        return
                except (FileNotFoundError, ProcessLookupError):
                    pass
        self.fail("no judge was seen")

    def test_a_judge_that_dies_is_replaced(self):
        self.post("/api/v1/gates", gate(name="d", rules=GATE["rules"][1:]))
        expected = comparable(self.run_gate("d", baseline=None))
        for _ in range(5):  # a judge may be seen when it has said its line
            at = len(self.server.log_text())
            run = self.post("/api/v1/gates/d/runs", {"model": "rope-demo"}, 202).json()
            self.kill_judge()
            run = self.server.get(f"/api/v1/gates/d/runs/{run['id']}?wait=60").json()
            self.assertEqual(comparable(run), expected)
            if "judging it failed, and is tried again: the process died: signal 9" in self.server.log_text()[at:]:
                return
        self.fail("no judge died before it had judged")

    def test_a_run_that_no_judge_survives_fails_and_says_why(self):
        self.post("/api/v1/gates", gate(name="x", rules=GATE["rules"][1:]))
        run = self.run_gate("x", baseline=None)
        self.server.stop(signal.SIGKILL)
        query(self.server, "UPDATE gate_run SET state = 'judging', verdict = NULL, outcome = NULL, finished_ms = NULL"
                           " WHERE id = ?", run["id"])
        query(self.server, "UPDATE gate SET definition = '{}' WHERE name = 'x'")
        self.server.start()
        run = self.server.get(f"/api/v1/gates/x/runs/{run['id']}?wait=60").json()
        self.assertEqual((run["state"], run["outcome"], run["verdict"]), ("failed", None, None))
        self.assertTrue(run["error"])
        self.problem("GET", f"/api/v1/gates/x/runs/{run['id']}.json", status=409)

    def test_a_cached_job_that_was_killed_after_its_units_were_taken_is_finished(self):
        first = self.measure(params={"lengths": [88]})
        hit = self.measure(params={"lengths": [88]}, cache=True)
        self.server.stop(signal.SIGKILL)
        query(self.server, "UPDATE job SET state = 'running', result = NULL, headline = NULL, finished_ms = NULL WHERE id = ?",
              hit["id"])
        self.server.start()
        again = self.server.wait(hit["id"])
        self.assertEqual((again["state"], again["cached_from"]), ("succeeded", first["id"]))
        self.assertEqual(again["result"]["metrics"], first["result"]["metrics"])


def comparable(run):
    """What of a run's outcome must not depend on what happened on its way."""
    rules = run["verdict"]["rules"]
    return run["state"], run["outcome"], [r for r in rules], [r["metrics"] for r in run["verdict"]["results"]]


if __name__ == "__main__":
    unittest.main()
