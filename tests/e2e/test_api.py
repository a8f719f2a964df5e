"""The REST API of the real program: a job's whole path, refusals, waits, limits, the page's files."""

import contextlib
import http.client
import json
import math
import shutil
import socket
import time
import unittest
import xml.etree.ElementTree as ElementTree
from concurrent.futures import ThreadPoolExecutor

from serving import MODELS, ServerTest, write_book

SVG = "{http://www.w3.org/2000/svg}"


class JobPath(ServerTest):
    """From POST to every form of the result."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.posted = cls.server.ask("POST", "/api/v1/jobs", {
            "model": "rope-demo", "task": "pg19", "dataset": "books", "params": {"lengths": [64, 128, 512]},
            "name": "first", "tags": {"suite": "e2e", "a": "1"}, "priority": 3})
        cls.id = cls.posted.json()["id"]
        cls.done = cls.server.wait(cls.id)
        cls.path = f"/api/v1/jobs/{cls.id}"

    def test_the_post_is_accepted_with_effective_values(self):
        job = self.posted.json()
        self.assertEqual(self.posted.status, 202)
        self.assertEqual(self.posted.headers["Location"], self.path)
        self.assertIn(job["state"], ("queued", "running"))
        self.assertEqual(job["params"]["lengths"], [64, 128, 512])
        self.assertEqual(job["params"]["protocol"], "windows")
        self.assertEqual(job["engine"], {"device": "auto", "dtype": "auto", "position": None})
        self.assertEqual((job["name"], job["tags"], job["priority"]), ("first", {"suite": "e2e", "a": "1"}, 3))
        self.assertRegex(job["created_at"], r"^20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$")

    def test_the_job_ends_with_a_result(self):
        job = self.done
        self.assertEqual(job["state"], "succeeded", job)
        self.assertEqual(job["progress"]["done"], job["progress"]["total"])
        self.assertLessEqual(job["created_at"], job["started_at"])
        self.assertLessEqual(job["started_at"], job["finished_at"])
        self.assertTrue(job["plan"]["model"]["fingerprint"].startswith("sha256:"))
        self.assertNotIn("partial", job)
        curve = {m["length"]: m["value"] for m in job["result"]["metrics"] if m["name"] == "ppl_token"}
        self.assertEqual(sorted(curve), [64, 128, 512])

    def test_result_json_is_the_jobs_result_and_has_a_version(self):
        reply = self.server.get(self.path + "/result.json")
        self.assertEqual(reply.headers["Content-Type"], "application/json")
        self.assertEqual(reply.json(), self.done["result"])
        self.assertEqual(self.server.get(self.path + "/result").json(), self.done["result"])
        again = self.server.get(self.path + "/result.json", If_None_Match=reply.headers["ETag"])
        self.assertEqual((again.status, again.body), (304, b""))

    def test_items_add_up_to_the_metrics(self):
        reply = self.server.get(self.path + "/items")
        self.assertEqual(reply.headers["Content-Type"], "application/x-ndjson")
        items = [json.loads(line) for line in reply.body.splitlines()]
        self.assertEqual(len(items), 6)
        for m in self.done["result"]["metrics"]:
            if m["name"] != "ppl_token":
                continue
            of = [i for i in items if i["length"] == m["length"]]
            ppl = math.exp(sum(i["nll"] for i in of) / sum(i["n_tokens"] for i in of))
            self.assertAlmostEqual(ppl, m["value"], delta=1e-9 * ppl)

    def test_items_come_in_pages(self):
        lines = self.server.get(self.path + "/items").body.splitlines()
        for query, want in (("limit=2", lines[:2]), ("limit=2&skip=3", lines[3:5]), ("skip=4", lines[4:]),
                            ("limit=6&skip=6", []), ("limit=100", lines), ("correct=false", [])):
            reply = self.server.get(f"{self.path}/items?{query}")
            self.assertEqual((reply.status, reply.body.splitlines()), (200, want), query)
        for query, parameter in (("limit=0", "limit"), ("limit=x", "limit"), ("limit=100001", "limit"), ("skip=-1", "skip"),
                                 ("skip=", "skip"), ("correct=no", "correct")):
            reply = self.server.get(f"{self.path}/items?{query}")
            self.assertEqual((reply.status, reply.json()["parameter"]), (422, parameter), query)

    def test_the_headline_is_the_perplexity_at_the_longest_length(self):
        want = [m for m in self.done["result"]["metrics"] if m["name"] == "ppl_token" and m["length"] == 512]
        self.assertEqual([self.done["headline"]], want)
        listed = self.server.get("/api/v1/jobs?tag=suite=e2e").json()["data"]
        self.assertEqual([j["headline"] for j in listed], want)
        self.assertNotIn("result", listed[0])
        self.assertRegex(self.server.run("jobs", "--tag", "suite=e2e").stdout, r"ppl_token [\d.]+ ± [\d.]+ at 512")

    def test_a_task_without_lengths_has_every_form_but_a_curve(self):
        words = (self.server.datasets / "books" / "a.txt").read_text().split()
        rows = [{"query": " ".join(words[i * 20:i * 20 + 16]), "gold": i % 2,
                 "choices": [" ".join(words[k:k + 3]) for k in (i * 20 + 16 + 7 * (i % 2), i * 20 + 23 - 7 * (i % 2))]}
                for i in range(12)]
        (self.server.datasets / "pairs.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
        done = self.server.run("submit", "--model", "pope-demo", "--task", "choices", "--data", "pairs.jsonl", "--set",
                               "shots_from=pairs.jsonl", "--set", "n_shot=1", "--set", "ties=wrong", "--wait")
        self.assertEqual(done.returncode, 0, done.stderr)
        job = self.server.get("/api/v1/jobs?task=choices").json()["data"][0]
        path = f"/api/v1/jobs/{job['id']}"
        self.assertEqual((job["params"]["shots_from"], job["params"]["n_shot"]), ("pairs.jsonl", 1))
        metrics = {m["name"]: m for m in self.server.get(path + "/result").json()["metrics"]}
        self.assertEqual(job["headline"], metrics["acc"])
        table = done.stdout.splitlines()
        self.assertIn("task choices on pairs.jsonl, 12 items", table[0])
        cells = next(line.split() for line in table if line.startswith("acc "))
        self.assertEqual(cells, ["acc", f"{metrics['acc']['value']:.4f}", f"{metrics['acc']['stderr']:.4f}", "12", "fraction"])
        self.assertNotIn("n_truncated", done.stdout)
        self.assertRegex(table[-1], r"^[\d,]+ tokens in [\d.]+ s: \d+ tokens/s$")
        csv = self.server.get(path + "/result.csv").body.decode()
        self.assertIn(f"pairs.jsonl,,f32,n_truncated,,,,,0,,12,items,count\n", csv)
        items = [json.loads(line) for line in self.server.get(path + "/items").body.splitlines()]
        for correct in (True, False):
            of = self.server.get(f"{path}/items?correct={json.dumps(correct)}").body.splitlines()
            self.assertEqual([json.loads(line) for line in of], [i for i in items if i["correct"] is correct])
        self.assertEqual(sum(i["correct"] for i in items), round(12 * metrics["acc"]["value"]))
        self.assertNotIn("curve", job["links"])
        self.assertIn("curve", self.server.job(self.id)["links"])
        self.assertEqual(self.server.get(path + "/curve.svg").status, 409)

    def test_clients_that_leave_do_not_use_exports_up(self):
        for _ in range(40):
            with socket.create_connection(("127.0.0.1", self.server.port)) as s:
                s.sendall(f"GET {self.path}/items HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        for _ in range(50):
            reply = self.server.get(self.path + "/items")
            if reply.status == 200:
                break
            self.assertEqual(reply.status, 503)
            time.sleep(0.1)
        self.assertEqual(reply.status, 200)

    def test_csv_and_markdown(self):
        csv = self.server.get(self.path + "/result.csv")
        self.assertTrue(csv.headers["Content-Type"].startswith("text/csv"))
        rows = [line.split(",") for line in csv.body.decode().splitlines()]
        head = rows[0]
        values = [r for r in rows if r[head.index("metric")] == "ppl_token" and r[head.index("length")] == "128"]
        want = [m["value"] for m in self.done["result"]["metrics"] if m["name"] == "ppl_token" and m["length"] == 128]
        self.assertEqual([float(v[head.index("value")]) for v in values], want)
        markdown = self.server.get(self.path + "/result.md")
        self.assertTrue(markdown.headers["Content-Type"].startswith("text/markdown"))
        self.assertIn("rope-demo", markdown.body.decode())

    def test_curve_svg_has_a_point_a_length_and_a_legend(self):
        reply = self.server.get(self.path + "/curve.svg")
        self.assertEqual(reply.headers["Content-Type"], "image/svg+xml")
        root = ElementTree.fromstring(reply.body)
        self.assertEqual(root.tag, SVG + "svg")
        series = [g for g in root.iter(SVG + "g") if "data-series" in g.attrib]
        self.assertEqual(len(series), 1)
        marks = [c for c in series[0] if c.get("class") == "mark"]
        self.assertEqual([int(m.find(SVG + "title").text.split()[0]) for m in marks], [64, 128, 512])
        legend = [t.text for t in root.iter(SVG + "text") if t.get("class") == "key"]
        self.assertEqual(legend, ["rope-demo · RoPE · windows"])

    def test_curves_of_several_jobs_share_a_chart(self):
        other = self.server.submit(model="pope-demo")["id"]
        self.server.wait(other)
        for path in (f"{self.path}/curve.svg?with={other}&metric=bits_per_byte",
                     f"/api/v1/curve.svg?jobs={self.id},{other}&metric=bits_per_byte"):
            reply = self.server.get(path)
            self.assertEqual(reply.status, 200, reply.body)
            root = ElementTree.fromstring(reply.body)
            legend = [t.text for t in root.iter(SVG + "text") if t.get("class") == "key"]
            self.assertEqual(legend, ["rope-demo · RoPE · windows", "pope-demo · PoPE · windows"])
        write_book(self.server.datasets / "book" / "a.txt", 3000, 5)
        short = self.server.submit(dataset="book")["id"]
        self.server.wait(short)
        root = ElementTree.fromstring(self.server.get(f"{self.path}/curve.svg?with={short}").body)
        self.assertEqual(root.find(SVG + "title").text, "Perplexity per token against length: books, book")
        self.assertEqual([t.text for t in root.iter(SVG + "text") if t.get("class") == "key"],
                         ["rope-demo · RoPE · windows · books", "rope-demo · RoPE · windows · book"])
        for query, parameter in (("jobs=", "jobs"), ("jobs=1,x", "jobs"), ("jobs=1,1", "jobs"), ("jobs=1,", "jobs"),
                                 (f"jobs={self.id}&metric=acc", "metric"), ("", "jobs")):
            reply = self.server.get("/api/v1/curve.svg?" + query)
            self.assertEqual((reply.status, reply.json()["parameter"]), (422, parameter), query)

    def test_a_version_of_a_job_is_not_sent_again(self):
        tag = self.server.get(self.path).headers["ETag"]
        self.assertEqual(self.server.get(self.path, If_None_Match=tag).status, 304)

    def test_head_is_get_without_a_body(self):
        head = self.server.ask("HEAD", self.path + "/result.json")
        get = self.server.get(self.path + "/result.json")
        self.assertEqual(head.body, b"")
        self.assertEqual(head.headers["Content-Length"], get.headers["Content-Length"])

    def test_a_finished_job_cannot_be_cancelled(self):
        reply = self.server.ask("POST", self.path + "/cancel")
        self.assertEqual(reply.status, 409)
        self.assertEqual(reply.headers["Content-Type"], "application/problem+json")


class Events(ServerTest):
    """Server-Sent Events: a job's, everybody's, and going on where one left off."""

    def listen(self, path, until, last=None, seconds=60):
        """Events of a stream, (id, kind, data), up to the first for which `until` holds."""
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=seconds)
        connection.request("GET", path, headers={} if last is None else {"Last-Event-ID": str(last)})
        reply = connection.getresponse()
        self.assertEqual((reply.status, reply.headers["Content-Type"]), (200, "text/event-stream"))
        found = []
        while True:
            fields = {}
            while (line := reply.readline().decode().rstrip("\n")):
                name, _, value = line.partition(": ")
                fields[name] = value
            if "id" not in fields:
                self.assertIn("", fields)  # a comment: still there
                continue
            found.append((int(fields["id"]), fields["event"], json.loads(fields["data"])))
            if until(found[-1]):
                connection.close()
                return found

    @staticmethod
    def is_end(event):
        return event[1] == "state" and event[2]["data"]["state"] in ("succeeded", "failed", "cancelled")

    def test_a_jobs_events_tell_its_story_and_can_be_taken_up_again(self):
        job = self.server.submit()["id"]
        path = f"/api/v1/jobs/{job}/events"
        story = self.listen(path, self.is_end)
        self.assertEqual(story[0][1], "created")
        self.assertEqual([e[2]["data"]["state"] for e in story if e[1] == "state"], ["running", "succeeded"])
        self.assertIn("planned", [e[1] for e in story])
        self.assertEqual([e[0] for e in story], sorted({e[0] for e in story}))
        self.assertEqual({e[2]["job"] for e in story}, {job})
        self.assertRegex(story[0][2]["at"], r"^20\d\d-.*Z$")
        story = [e for e in story if e[1] != "progress"]  # which is not kept when a job has ended
        for cut in range(len(story) - 1):
            self.assertEqual(self.listen(path, self.is_end, last=story[cut][0]), story[cut + 1:])
            self.assertEqual(self.listen(f"{path}?after={story[cut][0]}", self.is_end), story[cut + 1:])

    def test_everybodys_events_begin_now(self):
        old = self.server.wait(self.server.submit()["id"])["id"]
        with ThreadPoolExecutor(4) as pool:
            listeners = [pool.submit(self.listen, "/api/v1/events", self.is_end) for _ in range(3)]
            time.sleep(0.5)
            new = self.server.submit(model="pope-demo")["id"]
            for one in listeners:
                self.assertEqual({e[2]["job"] for e in one.result()}, {new})
                self.assertEqual(one.result()[0][1], "created")
        everything = self.listen("/api/v1/events", lambda e: self.is_end(e) and e[2]["job"] == new, last=0)
        self.assertLessEqual({old, new}, {e[2]["job"] for e in everything})

    def test_refusals(self):
        self.assertEqual(self.server.get("/api/v1/jobs/999/events").status, 404)
        self.assertEqual(self.server.get("/api/v1/events?after=x").status, 422)
        self.assertEqual(self.server.get("/api/v1/events", Last_Event_ID="x").status, 422)

    def test_listeners_that_leave_free_their_places(self):
        for _ in range(300):
            with socket.create_connection(("127.0.0.1", self.server.port)) as s:
                s.sendall(b"GET /api/v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        job = self.server.submit()["id"]
        for _ in range(120):
            reply = self.server.get(f"/api/v1/jobs/{job}?wait=1")
            if reply.status == 200:
                break
            time.sleep(0.1)
        self.assertEqual(reply.status, 200)
        self.server.wait(job)


class Refusals(ServerTest):
    """Every bad input has its status and points at its cause; nothing becomes a job."""

    GOOD = {"model": "rope-demo", "task": "pg19", "dataset": "books"}

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        (cls.server.datasets / "empty").mkdir()
        (cls.server.datasets / "nothing.txt").write_text("")
        (cls.server.datasets / "other").mkdir()
        (cls.server.datasets / "other" / "readme.md").write_text("no text here")

    def tearDown(self):
        self.assertEqual(self.server.get("/api/v1/jobs").json(), {"data": [], "next": None})
        self.assertEqual(self.server.get("/healthz").json()["status"], "ok")

    def refuse(self, body, pointer, status=422):
        reply = self.server.ask("POST", "/api/v1/jobs", body)
        problem = reply.json()
        self.assertEqual(reply.status, status, (body, problem))
        self.assertEqual(reply.headers["Content-Type"], "application/problem+json")
        self.assertEqual(problem["status"], status)
        self.assertEqual(problem.get("pointer"), pointer, (body, problem))
        self.assertTrue(problem["title"] and problem["detail"] and problem["type"])
        return problem["detail"]

    def test_members(self):
        table = [
            ({"model": "nope"}, "/model"), ({"model": "../demo"}, "/model"), ({"model": "/etc"}, "/model"),
            ({"model": 3}, "/model"), ({"model": ""}, "/model"), ({"model": None}, "/model"),
            ({"task": "nope"}, "/task"), ({"task": ["pg19"]}, "/task"),
            ({"dataset": "nope"}, "/dataset"), ({"dataset": "empty"}, "/dataset"),
            ({"dataset": "nothing.txt"}, "/dataset"), ({"dataset": "other"}, "/dataset"),
            ({"dataset": "../models/rope-demo"}, "/dataset"),
            ({"params": []}, "/params"), ({"params": {"nope": 1}}, "/params/nope"),
            ({"engine": 1}, "/engine"), ({"engine": {"device": "tpu"}}, "/engine/device"),
            ({"engine": {"device": "cuda:x"}}, "/engine/device"), ({"engine": {"dtype": "f64"}}, "/engine/dtype"),
            ({"engine": {"a/b~": 1}}, "/engine/a~1b~0"), ({"engine": {"position": "yarn"}}, "/engine/position"),
            ({"engine": {"position": {"factor": 2}}}, "/engine/position/type"),
            ({"engine": {"position": {"type": "yarn", "factor": [2]}}}, "/engine/position/factor"),
            ({"engine": {"position": {"type": "yarn", "x": json.loads("[" * 60 + "]" * 60)}}}, "/engine/position/x"),
            ({"engine": {"position": {"type": "yarn", **{str(i): i for i in range(40)}}}}, "/engine/position"),
            ({"name": ""}, "/name"), ({"name": "x" * 201}, "/name"), ({"name": "a\nb"}, "/name"),
            ({"tags": {"a": 1}}, "/tags/a"), ({"tags": {"": "x"}}, "/tags/"), ({"tags": {"a=b": "x"}}, "/tags/a=b"),
            ({"tags": {str(i): "" for i in range(33)}}, "/tags"),
            ({"priority": 1.5}, "/priority"), ({"priority": 101}, "/priority"), ({"priority": "1"}, "/priority"),
            ({"nope": 1}, "/nope"), ({"Model": "x"}, "/Model"),
        ]
        for change, pointer in table:
            with self.subTest(change=change):
                self.refuse({**self.GOOD, **change}, pointer)

    def test_what_must_be_there(self):
        for name in self.GOOD:
            self.refuse({k: v for k, v in self.GOOD.items() if k != name}, "/" + name)
        self.assertIn("rope-demo", self.refuse({**self.GOOD, "model": "rope-demo "}, "/model"))

    def test_lengths(self):
        for lengths in ([], [0], [-1], [10**9], [256, 128], [128, 128], [1.5], ["64"], 64, [None]):
            with self.subTest(lengths=lengths):
                reply = self.server.ask("POST", "/api/v1/jobs", {**self.GOOD, "params": {"lengths": lengths}})
                self.assertEqual(reply.status, 422)
                self.assertRegex(reply.json()["pointer"], r"^/params/lengths(/\d)?$")

    def test_other_parameters(self):
        for params, pointer in (({"protocol": "nope"}, "/params/protocol"), ({"stride": 0, "protocol": "sliding"}, "/params/stride"),
                                ({"max_docs": 0}, "/params/max_docs"), ({"bos": True}, "/params/bos")):
            with self.subTest(params=params):
                self.refuse({**self.GOOD, "params": params}, pointer)

    def test_bodies_that_are_no_json_object(self):
        post = lambda body, **h: self.server.ask("POST", "/api/v1/jobs", body, h)
        for body in ("", "{", '{"model":}', "nul", '{"a":1}x', '{"a":"\\u0000"}', b'{"a":"\xff"}', '{"a":1,"a":2}',
                     '{"a":' + "[" * 200 + "]" * 200 + "}"):
            reply = post(body)
            self.assertEqual(reply.status, 400, body)
            self.assertIn("JSON", reply.json()["detail"])
        self.assertIn("byte 9", post('{"model":}').json()["detail"])
        self.assertEqual(post("[]").status, 422)
        self.assertEqual(post("null").status, 422)

    def test_types_and_sizes(self):
        for kind in ("text/plain", "application/x-www-form-urlencoded", "application/jsonx"):
            reply = self.server.ask("POST", "/api/v1/jobs", "{}", {"Content-Type": kind})
            self.assertEqual(reply.status, 415, kind)
        reply = self.server.ask("POST", "/api/v1/jobs", "{}", {"Content-Type": "application/json; charset=utf-8"})
        self.assertEqual(reply.status, 422)
        reply = self.server.ask("POST", "/api/v1/jobs", b" " * (1 << 20) + b"{")
        self.assertEqual(reply.status, 413)
        self.assertEqual(reply.headers["Content-Type"], "application/problem+json")

    def test_paths_and_methods(self):
        for path in ("/nope", "/api/v1", "/api/v1/jobs/1", "/api/v1/jobs/0", "/api/v1/jobs/x", "/api/v1/jobs/1/nope",
                     "/api/v1/jobs/99999999999999999999", "/api/v1/models/nope", "/api/v1/tasks/nope", "/api/v1/jobs/",
                     "/../server/main.c", "/%2e%2e/Makefile", "/web/index.html", "/api/v1/models/..%2f..%2fetc"):
            reply = self.server.get(path)
            self.assertEqual((reply.status, reply.json()["status"]), (404, 404), path)
        self.assertEqual(self.server.get("/%zz").status, 400)
        for method, path, allow in (("PUT", "/api/v1/jobs", "POST, HEAD, GET, OPTIONS"), ("POST", "/healthz", "HEAD, GET, OPTIONS"),
                                    ("GET", "/api/v1/jobs/1/cancel", "POST, OPTIONS"), ("BREW", "/api/v1/tasks", "HEAD, GET, OPTIONS"),
                                    ("POST", "/", "HEAD, GET, OPTIONS")):
            reply = self.server.ask(method, path)
            self.assertEqual((reply.status, reply.headers["Allow"]), (405, allow), path)
        reply = self.server.ask("OPTIONS", "/api/v1/jobs")
        self.assertEqual((reply.status, reply.headers["Allow"]), (204, "POST, HEAD, GET, OPTIONS"))

    def test_queries(self):
        for query, parameter in (("state=done", "state"), ("limit=0", "limit"), ("limit=501", "limit"), ("limit=x", "limit"),
                                 ("after=-1", "after"), ("sate=running", "sate")):
            reply = self.server.get("/api/v1/jobs?" + query)
            self.assertEqual((reply.status, reply.json()["parameter"]), (422, parameter), query)
        self.assertEqual(self.server.get("/api/v1/jobs?limit=1&limit=2").status, 400)
        for wait in ("-1", "61", "x", "1.5"):
            self.assertEqual(self.server.get("/api/v1/jobs/1?wait=" + wait).status, 422, wait)

    def test_pages_of_other_sites_cannot_write_or_read(self):
        host = f"127.0.0.1:{self.server.port}"
        for origin in ("http://evil.example", "null", f"http://evil.example:{self.server.port}", "http://" + host + "0"):
            reply = self.server.ask("POST", "/api/v1/jobs", {}, {"Origin": origin})
            self.assertEqual(reply.status, 403, origin)
        self.assertEqual(self.server.ask("POST", "/api/v1/jobs", {}, {"Origin": "http://" + host}).status, 422)
        for name in ("evil.example", f"evil.example:{self.server.port}", "localhost.evil.example", "127.0.0.1.evil.example"):
            self.assertEqual(self.server.get("/api/v1/jobs", Host=name).status, 403, name)
        for name in ("localhost", f"localhost:{self.server.port}", "[::1]:80", "127.0.0.1", "x.localhost:1"):
            self.assertEqual(self.server.get("/api/v1/jobs", Host=name).status, 200, name)


class Catalog(ServerTest):
    """Models, tasks, datasets, workers, health, and the page's files."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        shutil.copytree(MODELS / "rope-demo", cls.server.models / "group" / "rope b")
        (cls.server.models / "broken").mkdir()
        (cls.server.models / "broken" / "config.json").write_text("{}")

    def test_models_are_listed_with_their_configuration(self):
        models = {m["name"]: m for m in self.server.get("/api/v1/models").json()["data"]}
        self.assertEqual(sorted(models), ["broken", "group/rope b", "pope-demo", "rope-demo", "yarn-demo"])
        self.assertEqual(models["yarn-demo"]["position"]["type"], "yarn")
        self.assertGreater(models["rope-demo"]["n_params"], 2_000_000)
        self.assertIn("broken", models["broken"]["error"]["message"])
        self.assertNotIn(str(self.server.models), json.dumps(models["rope-demo"]))

    def test_a_model_is_described_by_its_encoded_name(self):
        for path in ("group%2Frope%20b", "group/rope%20b"):
            model = self.server.get("/api/v1/models/" + path).json()
            self.assertEqual((model["name"], model["n_layer"]), ("group/rope b", 3))
        reply = self.server.get("/api/v1/models/broken")
        self.assertEqual(reply.status, 422, reply.body)
        self.assertEqual(self.server.get("/api/v1/models/nope").status, 404)

    def test_tasks(self):
        tasks = self.server.get("/api/v1/tasks").json()["data"]
        self.assertIn("pg19", [t["name"] for t in tasks])
        for task in tasks:
            self.assertEqual({"name", "version", "summary", "dataset", "formats", "headline", "figure", "params",
                              "metrics"} - set(task), set(), task["name"])
            self.assertIn(task["figure"], ("curve", "bars", "map"))
            for p in task["params"]:
                self.assertEqual({"name", "type", "default", "help"} - set(p), set(), p)
            for m in task["metrics"]:
                self.assertEqual(set(m), {"name", "unit", "log_ratio", "help"})
                self.assertIs(m["log_ratio"], m["unit"] == "perplexity", m)
        self.assertEqual(self.server.get("/api/v1/tasks/pg19").json(), tasks[[t["name"] for t in tasks].index("pg19")])

    def test_datasets(self):
        books = [d for d in self.server.get("/api/v1/datasets").json()["data"] if d["name"] == "books"][0]
        size = sum(p.stat().st_size for p in (self.server.datasets / "books").iterdir())
        self.assertRegex(books.pop("fingerprint"), "^sha256:[0-9a-f]{64}$")
        self.assertEqual(books, {"name": "books", "kind": "directory", "format": "txt", "files": 2, "bytes": size,
                                 "sha256": None, "known_as": None, "official": None, "n_items": None})

    def test_workers(self):
        for _ in range(100):
            worker = self.server.get("/api/v1/workers").json()["data"][0]
            if worker["state"] == "idle":
                break
            time.sleep(0.1)
        self.assertEqual(worker["device"], "cpu")
        self.assertEqual(worker["kind"], "cpu")
        self.assertIsNone(worker["error"])
        self.assertIn("oneDNN", worker["libraries"])
        self.assertRegex(worker["since_at"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$")
        for key in ("device_name", "isa"):
            self.assertIn(worker[key], worker["signature"])
        self.assertGreater(worker["memory_bytes"], 1 << 20)

    def test_health(self):
        reply = self.server.get("/healthz")
        self.assertEqual((reply.status, reply.json()["status"]), (200, "ok"))
        self.assertRegex(reply.json()["version"], r"^\d+\.\d+\.\d+$")

    def test_the_page_is_served_with_versions_and_a_policy(self):
        page = self.server.get("/")
        self.assertTrue(page.headers["Content-Type"].startswith("text/html"))
        self.assertIn("default-src 'self'", page.headers["Content-Security-Policy"])
        self.assertEqual(page.headers["X-Content-Type-Options"], "nosniff")
        self.assertEqual(page.headers["Cache-Control"], "no-cache")
        self.assertEqual(self.server.get("/", If_None_Match=page.headers["ETag"]).status, 304)
        for path, kind in (("/main.js", "text/javascript"), ("/chart.js", "text/javascript"), ("/style.css", "text/css"),
                           ("/favicon.svg", "image/svg+xml"), ("/index.html", "text/html")):
            reply = self.server.get(path)
            self.assertTrue(reply.status == 200 and reply.headers["Content-Type"].startswith(kind), path)


class Lifecycle(ServerTest):
    """Cancel, delete, restart, idempotency, lists, long polls, faults."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        write_book(cls.server.datasets / "long" / "a.txt", 1_500_000, 3)
        write_book(cls.server.datasets / "short" / "a.txt", 300, 4)

    def long_job(self, **members):
        return self.server.submit(dataset="long", params={"lengths": [64, 128, 256, 512, 1024]}, **members)["id"]

    def test_cancel_while_running_then_restart_and_delete(self):
        job = self.long_job()
        path = f"/api/v1/jobs/{job}"
        self.server.wait(job, until=("running",))
        self.assertEqual(self.server.ask("DELETE", path).status, 409)
        self.assertEqual(self.server.get(path + "/result.json").status, 409)
        self.assertEqual(self.server.get(path + "/items").status, 409)
        self.assertEqual(self.server.get(path + "/curve.svg").status, 409)
        reply = self.server.ask("POST", path + "/cancel")
        self.assertEqual(reply.status, 202)
        self.assertIn(reply.json()["state"], ("cancelling", "cancelled"))
        self.assertEqual(self.server.wait(job)["state"], "cancelled")
        self.assertEqual(self.server.ask("POST", path + "/cancel").status, 409)
        self.assertEqual(self.server.get(path + "/items").status, 200)
        self.assertEqual(self.server.ask("POST", path + "/restart").status, 202)
        self.server.wait(job, until=("running",))
        self.server.ask("POST", path + "/cancel")
        self.server.wait(job)
        self.assertEqual(self.server.ask("DELETE", path).status, 204)
        for method, rest in (("GET", ""), ("DELETE", ""), ("POST", "/cancel"), ("GET", "/items")):
            self.assertEqual(self.server.ask(method, path + rest).status, 404)

    def test_progress_moves_while_a_job_runs(self):
        job = self.long_job()
        self.server.wait(job, until=("running",))
        seen = set()
        for _ in range(100):
            progress = self.server.job(job)["progress"]
            seen.add(progress["done"])
            if len(seen) >= 4 and progress["eta_s"]:  # known after a second
                break
            time.sleep(0.1)
        self.server.ask("POST", f"/api/v1/jobs/{job}/cancel")
        self.assertGreaterEqual(len(seen), 4)
        self.assertGreater(progress["total"], progress["done"])
        self.assertGreater(progress["eta_s"], 0)
        left = progress["total"] - progress["done"]
        self.assertAlmostEqual(progress["eta_s"] * progress["tokens_per_s"], left, delta=left / 100 + progress["tokens_per_s"])
        done = self.server.wait(job)["progress"]
        self.assertEqual((done["tokens_per_s"], done["eta_s"]), (None, None))

    def test_a_key_makes_a_post_safe_to_repeat(self):
        body = {"model": "rope-demo", "task": "pg19", "dataset": "books", "params": {"lengths": [64]}}
        post = lambda b, key: self.server.ask("POST", "/api/v1/jobs", b, {"Idempotency-Key": key})
        with ThreadPoolExecutor(8) as pool:
            replies = list(pool.map(lambda _: post(body, "k-1"), range(8)))
        self.assertEqual({r.status for r in replies}, {202})
        self.assertEqual(len({r.json()["id"] for r in replies}), 1)
        # the same request spelled otherwise: members in another order, a default written out
        same = {"params": {"protocol": "windows", "lengths": [64]}, "dataset": "books", "task": "pg19", "model": "rope-demo",
                "priority": 0}
        self.assertEqual(post(same, "k-1").json()["id"], replies[0].json()["id"])
        other = post({**body, "model": "pope-demo"}, "k-1")
        self.assertEqual((other.status, other.headers["Content-Type"]), (422, "application/problem+json"))
        self.assertNotEqual(post(body, "k-2").json()["id"], replies[0].json()["id"])
        for key in ("a b", "x" * 201):
            self.assertEqual(post(body, key).status, 400)

    def test_every_engine_setting_is_taken_as_given(self):
        self.server.submit(dataset="long", priority=50)  # keeps the worker busy
        for engine in [{"device": d} for d in ("auto", "cpu", "cuda", "cuda:0", "cuda:15")] + \
                      [{"dtype": d} for d in ("auto", "f32", "bf16", "f16")] + \
                      [{"position": {"type": "yarn", "factor": 4}}, {"position": None}, {"device": None}, {}]:
            job = self.server.submit(engine=engine)
            self.assertEqual({k: v for k, v in job["engine"].items() if engine.get(k) is not None},
                             {k: v for k, v in engine.items() if v is not None})
            self.server.ask("POST", f"/api/v1/jobs/{job['id']}/cancel")
        for job in self.server.get("/api/v1/jobs?limit=500").json()["data"]:
            self.server.ask("POST", f"/api/v1/jobs/{job['id']}/cancel")

    def test_a_task_that_makes_its_dataset_needs_none(self):
        body = {"model": "rope-demo", "task": "indirect_indexing", "params": {"n": 30, "seed": 4}}
        job = self.server.ask("POST", "/api/v1/jobs", body).json()
        self.assertEqual((job["dataset"], job["params"]["n"]), ("generated", 30))
        (self.server.datasets / "lines.txt").write_text(
            self.server.run("generate", "--task", "indirect_indexing", "--set", "n=30", "--set", "seed=4").stdout)
        same = self.server.submit(task="indirect_indexing", dataset="lines.txt", params={})
        done, other = self.server.wait(job["id"]), self.server.wait(same["id"])
        self.assertEqual((done["state"], other["state"]), ("succeeded", "succeeded"), (done, other))
        self.assertEqual(done["result"]["dataset"]["n_items"], 30)
        self.assertEqual(done["result"]["metrics"], other["result"]["metrics"])
        self.assertEqual(self.server.get(f"/api/v1/jobs/{job['id']}/items").body,
                         self.server.get(f"/api/v1/jobs/{same['id']}/items").body)
        for change in ({"dataset": "books"}, {"params": {}}):
            reply = self.server.ask("POST", "/api/v1/jobs", {**body, **change})
            self.assertEqual((reply.status, reply.json()["pointer"]), (422, "/dataset"), change)
        self.assertIsNone(self.server.get("/api/v1/tasks/pg19").json()["generated_by"])
        self.assertEqual(self.server.get("/api/v1/tasks/indirect_indexing").json()["generated_by"], "n")

    def test_lists_filter_and_page(self):
        ids = [self.server.submit(model=m, tags={"list": m[0], "n": str(i)})["id"]
               for i, m in enumerate(("rope-demo", "pope-demo", "rope-demo", "yarn-demo"))]
        listed = lambda query: [j["id"] for j in self.server.get("/api/v1/jobs?" + query).json()["data"]]
        self.assertEqual(listed("tag=list"), ids[::-1])
        self.assertEqual(listed("tag=list%3Dr"), [ids[2], ids[0]])
        self.assertEqual(listed("tag=list&model=yarn-demo"), [ids[3]])
        self.assertEqual(listed("tag=list&task=nope"), [])
        first = self.server.get("/api/v1/jobs?tag=list&limit=3").json()
        self.assertEqual(([j["id"] for j in first["data"]], first["next"]), (ids[:0:-1], ids[1]))
        last = self.server.get(f"/api/v1/jobs?tag=list&limit=3&after={first['next']}").json()
        self.assertEqual(([j["id"] for j in last["data"]], last["next"]), ([ids[0]], None))
        for job in ids:
            self.server.wait(job)
        self.assertEqual(listed("tag=list&state=succeeded"), ids[::-1])
        self.assertNotIn("result", self.server.get("/api/v1/jobs?tag=list").json()["data"][0])

    def test_a_wait_ends_with_the_job_or_with_its_time(self):
        blocker = self.long_job(priority=10)
        job = self.server.submit()["id"]
        self.server.wait(blocker, until=("running",))
        begun = time.monotonic()
        self.assertEqual(self.server.get(f"/api/v1/jobs/{job}?wait=1").json()["state"], "queued")
        self.assertGreaterEqual(time.monotonic() - begun, 0.9)
        with ThreadPoolExecutor(10) as pool:
            waits = [pool.submit(self.server.get, f"/api/v1/jobs/{job}?wait=60") for _ in range(10)]
            time.sleep(0.3)
            begun = time.monotonic()
            self.server.ask("POST", f"/api/v1/jobs/{job}/cancel")
            self.assertEqual({w.result().json()["state"] for w in waits}, {"cancelled"})
            self.assertLess(time.monotonic() - begun, 5)
        # with a version: any change ends it
        begun = time.monotonic()
        tag = self.server.get(f"/api/v1/jobs/{blocker}").headers["ETag"]
        reply = self.server.get(f"/api/v1/jobs/{blocker}?wait=60", If_None_Match=tag)
        self.assertEqual((reply.status, reply.json()["state"]), (200, "running"))
        self.assertLess(time.monotonic() - begun, 30)
        self.server.ask("POST", f"/api/v1/jobs/{blocker}/cancel")
        self.server.wait(blocker)

    def test_clients_that_leave_free_their_places(self):
        blocker = self.long_job(priority=10)
        for _ in range(300):
            with socket.create_connection(("127.0.0.1", self.server.port)) as s:
                s.sendall(f"GET /api/v1/jobs/{blocker}?wait=60 HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        for _ in range(120):
            reply = self.server.get(f"/api/v1/jobs/{blocker}?wait=1")
            if reply.status == 200:
                break
            self.assertEqual((reply.status, reply.headers["Retry-After"]), (503, "2"))
            time.sleep(0.1)
        self.assertEqual(reply.status, 200)
        self.server.ask("POST", f"/api/v1/jobs/{blocker}/cancel")
        self.server.wait(blocker)

    def test_more_who_wait_than_there_are_places_leave_room_for_others(self):
        blocker = self.long_job(priority=10)
        with contextlib.ExitStack() as stack:
            waits = [stack.enter_context(socket.create_connection(("127.0.0.1", self.server.port))) for _ in range(600)]
            for s in waits:
                s.sendall(f"GET /api/v1/jobs/{blocker}?wait=60 HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            begun = time.monotonic()
            self.assertEqual(self.server.get("/healthz").status, 200)
            self.assertLess(time.monotonic() - begun, 15)  # an idle connection keeps its place for a minute
        self.server.ask("POST", f"/api/v1/jobs/{blocker}/cancel")
        self.server.wait(blocker)

    def test_the_server_listens_again_once_too_many_clients_have_left(self):
        for _ in range(4):
            with contextlib.ExitStack() as stack:
                for _ in range(540):
                    s = stack.enter_context(socket.create_connection(("127.0.0.1", self.server.port)))
                    s.sendall(b"GET")
                time.sleep(0.5)
            time.sleep(0.3)  # for it to see that they left, and sleep
            self.assertEqual(self.server.ask("GET", "/healthz", timeout=10).status, 200)

    def test_a_lying_checkpoint_fails_its_job_and_not_the_server(self):
        broken = self.server.models / "truncated"
        shutil.copytree(MODELS / "rope-demo", broken)
        weights = broken / "model.safetensors"
        weights.write_bytes(weights.read_bytes()[:-1000])
        job = self.server.wait(self.server.submit(model="truncated")["id"])
        self.assertEqual(job["state"], "failed")
        self.assertIn("truncated", job["error"]["message"])
        self.assertEqual(self.server.wait(self.server.submit()["id"])["state"], "succeeded")

    def test_a_plan_that_refuses_an_override_says_where_the_job_has_it(self):
        refused = {"type": "yarn", "factor": 0.5}
        job = self.server.wait(self.server.submit(engine={"position": refused})["id"])
        self.assertEqual((job["state"], job["error"]["code"]), ("failed", "input"))
        self.assertEqual(job["error"]["pointer"], "/engine/position/factor")

    def test_a_book_shorter_than_the_length(self):
        job = self.server.wait(self.server.submit(dataset="short", params={"lengths": [64, 2048]})["id"])
        self.assertEqual(job["state"], "succeeded", job["error"])
        job = self.server.wait(self.server.submit(dataset="short", params={"lengths": [2048], "last_window": "drop"})["id"])
        self.assertEqual(job["state"], "failed")
        self.assertEqual(self.server.get(f"/api/v1/jobs/{job['id']}/result.json").status, 409)


if __name__ == "__main__":
    unittest.main()
