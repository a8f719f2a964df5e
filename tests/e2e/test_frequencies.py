"""Use of frequencies: as a job over HTTP and as a command, the same numbers; the map drawn by the server."""

import csv
import io
import json
import unittest
from xml.etree import ElementTree

from serving import MODELS, ROOT, ServerTest

SVG = "{http://www.w3.org/2000/svg}"
GOLDEN = json.loads((ROOT / "tests/golden/frequencies/use.json").read_text())


class TestFrequencies(ServerTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        lines = "".join(json.dumps({"text": text}) + "\n" for text in GOLDEN["texts"])
        (cls.server.datasets / "texts.jsonl").write_text(lines)
        cls.id = cls.server.submit(model="pope-demo", task="frequency_use", dataset="texts.jsonl",
                                   params={"length": GOLDEN["length"]})["id"]
        cls.done = cls.server.wait(cls.id)
        cls.path = f"/api/v1/jobs/{cls.id}"

    def test_a_job_has_pytorchs_means(self):
        self.assertEqual(self.done["state"], "succeeded", self.done["error"])
        self.assertIsNone(self.done["headline"])
        want = GOLDEN["models"]["pope-demo"]
        metrics = self.done["result"]["metrics"]
        self.assertEqual(len(metrics), 2 * 3 * 64)
        for m in metrics:
            mean = want[m["part"]][m["layer"]][m["frequency"]]
            self.assertAlmostEqual(m["value"] / mean, 1, delta=1e-6)
            self.assertEqual(m["n"], want["n"] * 4)

    def test_the_map_is_drawn(self):
        reply = self.server.get(self.done["links"]["frequencies"])
        self.assertEqual((reply.status, reply.headers["Content-Type"]), (200, "image/svg+xml"))
        self.assertIn("default-src 'none'", reply.headers["Content-Security-Policy"])
        root = ElementTree.fromstring(reply.body)
        parts = {g.get("data-part"): g for g in root.iter(SVG + "g") if g.get("data-part")}
        self.assertEqual(list(parts), ["q", "k"])
        for part, group in parts.items():
            cells = next(g for g in group.iter(SVG + "g") if g.get("class") == "cells")
            said = {c.find(SVG + "title").text.split(" (")[0]: (float(c.find(SVG + "title").text.split(": ")[1]),
                                                               c.get("fill")) for c in cells}
            self.assertEqual(len(said), 3 * 64)
            for m in self.done["result"]["metrics"]:
                if m["part"] == part:
                    value, _ = said[f"layer {m['layer']}, frequency {m['frequency']}"]
                    self.assertAlmostEqual(value / m["value"], 1, delta=1e-3)
            self.assertEqual(min(said.values())[1], "#440154")
            self.assertEqual(max(said.values())[1], "#fde725")

    def test_csv_has_a_number_a_line(self):
        rows = list(csv.DictReader(io.StringIO(self.server.get(self.path + "/result.csv").body.decode())))
        for row, m in zip(rows, self.done["result"]["metrics"], strict=True):
            self.assertEqual((row["part"], int(row["layer"]), int(row["frequency"])),
                             (m["part"], m["layer"], m["frequency"]))
            self.assertEqual((float(row["theta"]), float(row["value"])), (m["theta"], m["value"]))

    def test_an_item_is_a_document_with_its_own_means(self):
        items = [json.loads(line) for line in self.server.get(self.path + "/items").body.decode().splitlines()]
        self.assertEqual(len(items), len(GOLDEN["texts"]))
        first = self.done["result"]["metrics"][0]
        n = sum(i["n_tokens"] for i in items)
        self.assertEqual(n, GOLDEN["models"]["pope-demo"]["n"])
        self.assertAlmostEqual(sum(i["q"][0][0] * i["n_tokens"] for i in items) / n, first["value"], delta=1e-12)
        self.assertEqual(len({i["key"] for i in items}), len(items))

    def test_a_job_of_another_task_has_no_map(self):
        other = self.server.submit()["id"]
        self.assertEqual(self.server.get(f"/api/v1/jobs/{other}/frequencies.svg").status, 409)  # not yet
        job = self.server.wait(other)
        self.assertNotIn("frequencies", job["links"])
        reply = self.server.get(f"/api/v1/jobs/{other}/frequencies.svg")
        self.assertEqual(reply.status, 409)
        self.assertIn("task pg19 has no map of frequencies", reply.json()["detail"])
        self.assertEqual(self.server.get(self.path + "/curve.svg").status, 409)
        self.assertEqual(self.server.get("/api/v1/jobs/999/frequencies.svg").status, 404)

    def command(self, *more):
        return self.server.run("frequencies", "--model", str(MODELS / "pope-demo"), "--device", "cpu",
                               "--data", str(self.server.datasets / "texts.jsonl"),
                               "--set", f"length={GOLDEN['length']}", *more)

    def test_the_command_has_the_jobs_numbers_to_the_bit(self):
        ran = self.command("--format", "json")
        self.assertEqual(ran.returncode, 0, ran.stderr)
        result = json.loads(ran.stdout)
        self.assertEqual(result["metrics"], self.done["result"]["metrics"])
        self.assertEqual(result["task"], self.done["result"]["task"])

    def test_the_commands_formats(self):
        table = self.command().stdout.splitlines()
        self.assertEqual([line.split()[0] for line in table[3:7]], ["layer", "0", "1", "2"])
        svg = self.server.folder / "map.svg"
        ran = self.command("--format", "svg", "--out", str(svg))
        self.assertEqual((ran.returncode, ran.stdout), (0, ""), ran.stderr)
        # the very bytes that the server draws
        self.assertEqual(svg.read_bytes(), self.server.get(self.path + "/frequencies.svg").body)
        wrong = self.command("--format", "png")
        self.assertEqual(wrong.returncode, 2)
        self.assertIn("'png' is not table, json, csv, markdown or svg", wrong.stderr)
        missing = self.server.run("frequencies", "--model", str(MODELS / "pope-demo"))
        self.assertEqual((missing.returncode, missing.stderr), (2, "fathom frequencies: --data: a dataset is missing\n"))
        self.assertIn("min_doc_tokens", self.server.run("frequencies", "--help").stdout)


if __name__ == "__main__":
    unittest.main()
