"""Tasks made of contexts and continuations, as jobs: the same metrics and items as `fathom run` gives; shots by a dataset's
name."""

import json
import unittest

from serving import ROOT, ServerTest

ROWS = [{"query": f"The {a} sat on the {b}. The", "choices": [a, b, "moon"], "gold": i % 2}
        for i, (a, b) in enumerate([("cat", "mat"), ("dog", "log"), ("hen", "pen"), ("fox", "box"), ("ant", "plant")])]


def lines(rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


class TestExamples(ServerTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        (cls.server.datasets / "rows.jsonl").write_text(lines(ROWS))
        (cls.server.datasets / "shots.jsonl").write_text(lines(ROWS[3:]))

    def job(self, **params):
        job = self.server.wait(self.server.submit(model="rope-demo", task="choices", dataset="rows.jsonl",
                                                  params=params)["id"])
        self.assertEqual(job["state"], "succeeded", job["error"])
        body = self.server.get(f"/api/v1/jobs/{job['id']}/items").body.decode()
        items = [json.loads(line) for line in body.splitlines()]
        return job["result"], items

    def test_a_job_and_a_run_give_the_same(self):
        result, items = self.job(n_shot=1, shots_from="shots.jsonl")
        path = self.server.datasets / "items.out"
        run = self.server.run("run", "--model", str(ROOT / "eval/demo/rope-demo"), "--task", "choices", "--device", "cpu",
                              "--data", str(self.server.datasets / "rows.jsonl"), "--set", "n_shot=1",
                              "--set", f"shots_from={self.server.datasets}/shots.jsonl", "--format", "json",
                              "--items", str(path))
        same = json.loads(run.stdout)
        self.assertEqual(result["metrics"], same["metrics"])
        self.assertEqual(result["dataset"]["fingerprint"], same["dataset"]["fingerprint"])
        self.assertEqual(items, [json.loads(line) for line in path.read_text().splitlines()])
        self.assertEqual([item["gold"] for item in items], [row["gold"] for row in ROWS])
        accuracy = sum(item["correct"] for item in items) / len(items)
        self.assertAlmostEqual(result["metrics"][0]["value"], accuracy, delta=1e-15)

    def test_a_page_is_a_part_of_all_items(self):
        job = self.server.wait(self.server.submit(model="rope-demo", task="choices", dataset="rows.jsonl", params={})["id"])
        path = f"/api/v1/jobs/{job['id']}/items"
        all_lines = self.server.get(path).body.splitlines()
        wrong = [line for line in all_lines if not json.loads(line)["correct"]]
        for query, want in (("limit=2", all_lines[:2]), ("limit=2&skip=3", all_lines[3:]), ("skip=1", all_lines[1:]),
                            ("limit=3&skip=1", all_lines[1:4]), ("skip=5", []), ("limit=9&skip=4294967295", []),
                            ("correct=false", wrong), ("correct=false&skip=1", wrong[1:]), ("correct=false&limit=1", wrong[:1])):
            self.assertEqual(self.server.get(f"{path}?{query}").body.splitlines(), want, query)

    def test_sharing_a_context_changes_no_bit(self):
        _, shared = self.job()
        _, apart = self.job(share=False)
        self.assertEqual(shared, apart)

    def test_a_dataset_of_shots_must_be_one_of_the_servers(self):
        for name, status in (("none.jsonl", 422), ("../rows.jsonl", 422), ("/etc/passwd", 422)):
            reply = self.server.ask("POST", "/api/v1/jobs", {"model": "rope-demo", "task": "choices", "dataset": "rows.jsonl",
                                                      "params": {"n_shot": 1, "shots_from": name}})
            self.assertEqual(reply.status, status, reply.body)
            self.assertEqual(reply.json()["pointer"], "/params/shots_from")

    def test_an_alias_is_the_tasks_name_wherever_it_is_asked_for(self):
        (self.server.datasets / "words.jsonl").write_text(lines([{"text": row["query"]} for row in ROWS]))
        job = self.server.wait(self.server.submit(model="rope-demo", task="lambada_openai", dataset="words.jsonl", params={})["id"])
        self.assertEqual((job["state"], job["task"], job["result"]["task"]["name"]), ("succeeded", "lambada", "lambada"))
        for name in ("lambada", "lambada_openai"):
            self.assertEqual([j["id"] for j in self.server.get(f"/api/v1/jobs?task={name}").json()["data"]], [job["id"]])
            points = self.server.get(f"/api/v1/history?task={name}&metric=acc").json()["points"]
            self.assertEqual([p["job"] for p in points], [job["id"]])
            self.assertEqual(self.server.get(f"/api/v1/tasks/{name}").json()["name"], "lambada")


if __name__ == "__main__":
    unittest.main()
