"""What the server says of itself: /openapi.json against the table of routes and what they really answer; /metrics."""

import json
import re
import time
import unittest

from serving import ROOT, ServerTest

KEYWORDS = {"$ref", "type", "properties", "required", "items", "enum", "const", "additionalProperties", "anyOf", "pattern",
            "minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems", "maxProperties", "description", "example"}
TYPES = {"object": dict, "array": list, "string": str, "integer": int, "number": (int, float), "boolean": bool,
         "null": type(None)}


def faults(document, schema, value, at=""):
    """Why a value does not fit a schema, as JSON Schema has it for the keywords above; besides, a member of an object with
    `properties` is to be one of them: what is answered and not documented is a fault, too."""
    if "$ref" in schema:
        schema = {**document["components"]["schemas"][schema["$ref"].removeprefix("#/components/schemas/")],
                  **{k: v for k, v in schema.items() if k != "$ref"}}
    unknown = set(schema) - KEYWORDS
    if unknown:
        return [f"{at}: this test does not know {unknown}"]
    if "anyOf" in schema:
        each = [faults(document, s, value, at) for s in schema["anyOf"]]
        return [] if [] in each else min(each, key=len)
    wanted = schema.get("type", [])
    wanted = [wanted] if isinstance(wanted, str) else wanted
    if wanted and not any(isinstance(value, TYPES[t]) and (t == "boolean" or not isinstance(value, bool)) for t in wanted):
        return [f"{at}: {value!r:.60} is not of type {wanted}"]
    found = []
    if value not in schema.get("enum", [value]) or value != schema.get("const", value):
        found.append(f"{at}: {value!r} is not one of those listed")
    if isinstance(value, str) and not re.search(schema.get("pattern", ""), value):
        found.append(f"{at}: {value!r} does not match {schema['pattern']}")
    if isinstance(value, (int, float)) and not schema.get("minimum", value) <= value <= schema.get("maximum", value):
        found.append(f"{at}: {value} is out of range")
    if isinstance(value, list):
        for i, v in enumerate(value):
            found += faults(document, schema.get("items", {}), v, f"{at}/{i}")
    if isinstance(value, dict):
        found += [f"{at}: no {name}" for name in schema.get("required", []) if name not in value]
        more = schema.get("additionalProperties", {} if "properties" not in schema else False)
        for name, v in value.items():
            part = schema.get("properties", {}).get(name, more)
            found += [f"{at}: {name} is not documented"] if part is False else faults(document, part, v, f"{at}/{name}")
    return found


def routes_of_the_server():
    """[method, path] of the table in server/routes.c but the page's files."""
    table = re.findall(r'^\s*\{"([A-Z]+)", "([^"]+)",', (ROOT / "server" / "routes.c").read_text(), re.MULTILINE)
    return [(m, p) for m, p in table if p != "/{name}"]


class OpenApi(ServerTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.reply = cls.server.get("/openapi.json")
        cls.document = cls.reply.json()
        cls.words = json.loads((ROOT / "server" / "openapi.json").read_text())

    def operation(self, method, path):
        return self.document["paths"][path][method.lower()]

    def reply_schema(self, method, path, status):
        return self.operation(method, path)["responses"][str(status)]["content"]["application/json"]["schema"]

    def fits(self, schema, value):
        self.assertEqual(faults(self.document, schema, value), [])

    def test_every_route_is_documented_in_words(self):
        self.assertEqual(self.document["openapi"], "3.1.0")
        self.assertGreater(len(routes_of_the_server()), 30)
        for method, path in routes_of_the_server():
            with self.subTest(route=f"{method} {path}"):
                operation = self.operation(method, path)
                self.assertTrue(operation.get("summary"), "server/openapi.json has no words for it")
                self.assertGreater(len(operation["responses"]), 1)
                in_path = [p["name"] for p in operation["parameters"] if p["in"] == "path"]
                self.assertEqual(in_path, re.findall(r"\{(\w+)\}", path))
                for p in operation["parameters"]:
                    self.assertTrue(p["in"] == "path" or p.get("description"), f"nothing is said of {p['name']}")

    def test_there_are_no_words_for_what_is_no_route(self):
        self.assertEqual(set(self.words["operations"]) - {f"{m} {p}" for m, p in routes_of_the_server()}, set())

    def test_operation_ids_are_distinct_and_references_lead_somewhere(self):
        operations = [o for item in self.document["paths"].values() for o in item.values()]
        ids = [o["operationId"] for o in operations]
        self.assertEqual(len(set(ids)), len(ids))
        named = set(re.findall(r'#/components/schemas/(\w+)', self.reply.body.decode()))
        self.assertEqual(named - set(self.document["components"]["schemas"]), set())
        self.assertEqual(set(self.document["components"]["schemas"]) - named - {"Item"}, set(), "schemas that nobody uses")
        tags = {t["name"] for t in self.document["tags"]}
        self.assertEqual({t for o in operations for t in o["tags"]} - tags, set())

    def test_examples_fit_their_schemas(self):
        with_examples = {n: s for n, s in self.document["components"]["schemas"].items() if "example" in s}
        self.assertGreater(len(with_examples), 10)
        for name, schema in with_examples.items():
            with self.subTest(schema=name):
                free = {"EngineNew": {**schema, "properties": {**schema.get("properties", {}), "position": {}}}}
                self.fits(free.get(name, schema), schema["example"])

    def test_the_example_of_a_job_is_accepted_and_all_replies_are_as_documented(self):
        example = self.document["components"]["schemas"]["JobNew"]["example"]
        posted = self.server.ask("POST", "/api/v1/jobs", example)
        self.assertEqual(posted.status, 202, posted.body)
        self.fits(self.reply_schema("POST", "/api/v1/jobs", 202), posted.json())
        job = self.server.wait(posted.json()["id"])
        self.assertEqual(job["state"], "succeeded")
        self.fits(self.reply_schema("GET", "/api/v1/jobs/{id}", 200), job)
        self.fits(self.reply_schema("GET", "/api/v1/jobs/{id}/result", 200),
                  self.server.get(f"/api/v1/jobs/{job['id']}/result").json())
        for line in self.server.get(f"/api/v1/jobs/{job['id']}/items").body.splitlines():
            self.fits({"$ref": "#/components/schemas/Item"}, json.loads(line))
        for path in ("/api/v1/jobs", "/api/v1/models", "/api/v1/tasks", "/api/v1/datasets", "/api/v1/workers", "/healthz",
                     "/v1/models", "/openapi.json"):
            with self.subTest(path=path):
                reply = self.server.get(path)
                self.assertEqual(reply.status, 200)
                self.fits(self.reply_schema("GET", path, 200), reply.json())

    def test_examples_of_scoring_are_answered_as_documented(self):
        for path, name in (("/v1/completions", "CompletionNew"), ("/tokenize", "TokenizeNew"), ("/detokenize", "DetokenizeNew")):
            with self.subTest(path=path):
                reply = self.server.ask("POST", path, self.document["components"]["schemas"][name]["example"])
                self.assertEqual(reply.status, 200, reply.body)
                self.fits(self.reply_schema("POST", path, 200), reply.json())

    def test_the_example_of_a_gate_runs_and_all_replies_are_as_documented(self):
        schemas = self.document["components"]["schemas"]
        job = self.server.wait(self.server.ask("POST", "/api/v1/jobs", schemas["JobNew"]["example"]).json()["id"])
        steps = (("/api/v1/baselines", {**schemas["BaselineNew"]["example"], "jobs": [job["id"]]}, "/api/v1/baselines", 201),
                 ("/api/v1/gates", schemas["GateNew"]["example"], "/api/v1/gates", 201),
                 ("/api/v1/gates", schemas["GateNew"]["example"], "/api/v1/gates", 200),
                 ("/api/v1/gates/long-context/runs?wait=60", schemas["RunNew"]["example"], "/api/v1/gates/{gate}/runs", 202))
        for path, body, route, status in steps:
            reply = self.server.ask("POST", path, body)
            self.assertEqual(reply.status, status, reply.body)
            self.fits(self.reply_schema("POST", route, status), reply.json())
        run = reply.json()
        self.assertEqual((run["state"], run["error"]), ("done", None))
        for path, route in (("/api/v1/baselines", None), ("/api/v1/baselines/main", "/api/v1/baselines/{baseline}"),
                            ("/api/v1/baselines/main/evidence", "/api/v1/baselines/{baseline}/evidence"),
                            ("/api/v1/gates", None), ("/api/v1/gates/long-context", "/api/v1/gates/{gate}"),
                            ("/api/v1/gates/long-context/runs", "/api/v1/gates/{gate}/runs"),
                            (run["links"]["self"], "/api/v1/gates/{gate}/runs/{id}"),
                            (run["links"]["verdict"], "/api/v1/gates/{gate}/runs/{id}.json"),
                            ("/api/v1/history?gate=long-context&rule=no%20worse", "/api/v1/history"),
                            ("/api/v1/history?task=pg19&metric=ppl_token&length=128", "/api/v1/history")):
            with self.subTest(path=path):
                reply = self.server.get(path)
                self.assertEqual(reply.status, 200, reply.body)
                self.fits(self.reply_schema("GET", route or path, 200), reply.json())

    def test_refusals_are_as_documented(self):
        for path in ("/api/v1/jobs?limit=0", "/api/v1/jobs/99999999", "/v1/models/none"):
            with self.subTest(path=path):
                reply = self.server.get(path)
                content = self.operation("GET", re.sub(r"\?.*", "", path).replace("99999999", "{id}").replace("none", "{name}"))
                (media, described), = content["responses"]["default"]["content"].items()
                self.assertEqual(reply.headers["Content-Type"], media)
                self.fits(described["schema"], reply.json())

    def test_it_has_a_version(self):
        again = self.server.get("/openapi.json", If_None_Match=self.reply.headers["ETag"])
        self.assertEqual((again.status, again.body), (304, b""))


class Metrics(ServerTest):
    def test_runs_of_gates_are_counted_by_verdict(self):
        rules = [{"name": "bound", "type": "absolute", "metric": "ppl_token", "length": 64, "max": 1e9}]
        measure = [{"task": "pg19", "dataset": "books", "params": {"lengths": [64]}}]
        for gate, most in (("loose", 1e9), ("tight", 1)):
            body = {"name": gate, "measure": measure, "rules": [{**rules[0], "max": most}]}
            self.assertEqual(self.server.ask("POST", "/api/v1/gates", body).status, 201)
            for _ in range(2):
                run = self.server.ask("POST", f"/api/v1/gates/{gate}/runs?wait=60", {"model": "rope-demo"}).json()
                self.assertEqual(run["state"], "done")
        found = {n: v for n, v in self.samples().items() if n.startswith("fathom_gate_runs")}
        self.assertEqual(found, {'fathom_gate_runs{gate="loose",outcome="pass"}': 2,
                                 'fathom_gate_runs{gate="tight",outcome="fail"}': 2})

    def samples(self):
        """{name with labels: value}, every line of the text format checked."""
        reply = self.server.get("/metrics")
        self.assertEqual(reply.status, 200)
        self.assertEqual(reply.headers["Content-Type"], "text/plain; version=0.0.4; charset=utf-8")
        text = reply.body.decode()
        self.assertTrue(text.endswith("\n"))
        types, found = {}, {}
        for line in text.splitlines():
            if line.startswith("#"):
                kind, name, rest = re.fullmatch(r"# (HELP|TYPE) (\w+) (.+)", line).groups()
                if kind == "TYPE":
                    self.assertNotIn(name, types)
                    self.assertIn(rest, ("gauge", "counter", "summary"))
                    types[name] = rest
                continue
            name, labels, value = re.fullmatch(r'(\w+)(\{\w+="[^"]*"(?:,\w+="[^"]*")*\})? (\S+)', line).groups()
            self.assertIn(re.sub("_(sum|count)$", "", name) if name not in types else name, types)
            self.assertNotIn(name + (labels or ""), found)
            found[name + (labels or "")] = float(value)
        self.assertTrue(all(n.endswith("_total") == (t == "counter") for n, t in types.items()))
        return found

    def test_jobs_tokens_and_replies_are_counted(self):
        before = self.samples()
        job = self.server.wait(self.server.submit()["id"])
        self.assertEqual(self.server.get("/nothing-here").status, 404)
        after = self.samples()
        self.assertEqual(after['fathom_jobs{state="succeeded"}'], before['fathom_jobs{state="succeeded"}'] + 1)
        self.assertEqual(after["fathom_queue_tokens"], 0)
        worker = '{worker="worker 0",device="cpu"}'
        tokens = "fathom_worker_tokens_total" + worker
        deadline = time.monotonic() + 20  # a worker tells its count every two seconds
        while after[tokens] - before.get(tokens, 0) < job["progress"]["total"] and time.monotonic() < deadline:
            time.sleep(0.2)
            after = self.samples()
        self.assertGreaterEqual(after[tokens] - before.get(tokens, 0), job["progress"]["total"])
        self.assertEqual(after['fathom_worker_state{worker="worker 0",device="cpu",state="busy"}'] +
                         after['fathom_worker_state{worker="worker 0",device="cpu",state="idle"}'], 1)
        self.assertEqual(after['fathom_http_replies_total{code="4xx"}'], before['fathom_http_replies_total{code="4xx"}'] + 1)
        self.assertGreater(after['fathom_http_replies_total{code="2xx"}'], before['fathom_http_replies_total{code="2xx"}'])
        self.assertGreater(after["fathom_http_request_seconds_sum"], 0)
        self.assertGreater(after["process_resident_memory_bytes"], 1e6)


if __name__ == "__main__":
    unittest.main()
