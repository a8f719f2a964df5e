"""Gates on the page, in real Chromium against a real server: baselines pinned from a job's page, verdicts with their
bounds drawn, history with its change points. The demo models are the checkpoints: YaRN is the baseline, PoPE is no worse,
and RoPE falls apart at 512 tokens.

Run: /usr/bin/python3 -m unittest discover -s tests/browser -p test_gates.py -v
"""

import hashlib
import json
import math
import sys
import unittest
import urllib.request
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import browser  # noqa: E402

N_DOCS = 12
PARAMS = {"lengths": [128, 512]}
GATE = {
    "name": "long-context",
    "measure": [{"id": "shelf", "task": "pg19", "dataset": "shelf", "params": PARAMS}],
    "rules": [
        {"name": "bounded", "type": "absolute", "metric": "ppl_token", "length": 512, "max": 1000},
        {"name": "no worse", "type": "relative", "metric": "ppl_token", "length": 512, "min_effect": 0.05},
        {"name": "extrapolates", "type": "shape", "metric": "ppl_token", "length": 512, "over": 128, "max_ratio": 1.02},
    ],
}
CHANGE = 5  # runs of the baseline's model before those of another
CHART = "history-canvas"
server = driver = page = None


def write_shelf(datasets):
    text = "".join((browser.TEXTS / name).read_text(errors="replace") for name in browser.BOOKS)
    size = len(text) // N_DOCS
    (datasets / "shelf").mkdir()
    for i in range(N_DOCS):
        (datasets / "shelf" / f"{i:02}.txt").write_text(text[i * size:(i + 1) * size])


def setUpModule():
    global server, driver, page
    server, page = browser.launch(write_shelf)
    driver = page.driver


def evaluate(model):
    job = server.post("/api/v1/jobs", {"model": model, "task": "pg19", "dataset": "shelf", "params": PARAMS})
    return finished(f"/api/v1/jobs/{job['id']}", ("succeeded",))


def finished(path, states):
    return page.wait(f"{path} to end", lambda: (lambda x: x["state"] in states and x)(server.get(path)), 60)


def commit(i):
    return hashlib.sha1(str(i).encode()).hexdigest()


def run_gate(model, i, branch):
    body = {"model": model, "baseline": "main", "tags": {"branch": branch, "commit": commit(i)}}
    run = server.post("/api/v1/gates/long-context/runs", body)
    return finished(f"/api/v1/gates/long-context/runs/{run['id']}", ("done",))


def new_version(name, job):
    """Of a baseline, by somebody else."""
    headers = {"Content-Type": "application/json", "If-Match": "*"}
    body = json.dumps({"name": name, "jobs": [job]}).encode()
    urllib.request.urlopen(urllib.request.Request(server.url + "/api/v1/baselines", body, headers), timeout=10).close()


def lines(css):
    return [node.text for node in page.all(css)]


def percent(css, attribute):
    """Of a mark in the track of a rule: its place, in per cent."""
    return float(page.one(css).get_attribute(attribute).rstrip("%"))


class TestGates(unittest.TestCase):
    """In the order of their names: one server's life, from no gate to a history."""

    expected = ()  # words of console messages that a test provokes

    def tearDown(self):
        self.assertEqual(page.console(*self.expected), [])

    def press_pin(self, job):
        page.open(f"#/jobs/{job}")
        buttons = lambda: [b for b in page.all(".detail-head .button") if b.text == "Pin as baseline"]
        page.wait("the button", buttons)[0].click()
        page.wait("the dialog", lambda: page.all("dialog.confirm[open]"))

    def rule(self, name):
        """The number of a rule's row."""
        names = [node.text for node in page.all("#gates .rule:not(.axis) .rule-name strong")]
        return names.index(name) + 2  # the axis is the first

    def test_10_without_a_gate_the_page_says_what_one_is(self):
        page.open()
        page.one("#nav-gates").click()
        page.wait("the hint", lambda: "gates.json" in page.text("#gates"))
        self.assertIn("No baseline yet", page.text("#gates"))
        self.assertEqual(page.one("#nav-gates").get_attribute("aria-current"), "page")
        self.assertEqual(page.one("#nav-jobs").get_attribute("aria-current"), None)
        page.one("#nav-jobs").click()
        page.wait("the overview", lambda: page.one("#overview").is_displayed())
        self.assertFalse(page.one("#gates").is_displayed())

    def test_20_a_job_is_pinned_as_a_baseline_from_its_page(self):
        job = evaluate("yarn-demo")
        self.press_pin(job["id"])
        self.assertIn("A new baseline", page.text("dialog[open] .help"))
        page.fill("#pin-name", "main")
        page.shoot("gates-pin")
        page.one("dialog[open] .primary").click()
        page.wait("the list", lambda: page.all(".baseline"))
        self.assertEqual(page.js("return location.hash"), "#/gates")
        self.assertIn("main", page.text(".baseline"))
        self.assertIn(f"job {job['id']} yarn-demo · pg19 · shelf", page.text(".baseline"))
        stored = server.get("/api/v1/baselines/main")
        self.assertEqual((stored["version"], stored["results"][0]["job"]), (1, job["id"]))

    def test_21_pinning_again_is_another_version(self):
        job = evaluate("pope-demo")
        self.press_pin(job["id"])
        page.fill("#pin-name", "main")
        self.assertIn("Version 1 stays in its history", page.text("dialog[open] .help"))
        page.one("dialog[open] .primary").click()
        page.wait("version 2", lambda: page.all(".baseline") and "version 2" in page.text(".baseline"))
        page.one(".baseline summary").click()
        page.wait("the versions", lambda: len(page.all(".versions li")) == 2)
        self.assertRegex(lines(".versions li")[1], "^version 1 ")
        path = page.one(".versions li:last-child a").get_attribute("href").removeprefix(server.url)
        self.assertEqual(server.get(path)["results"][0]["model"]["name"], "yarn-demo")

    def test_22_a_version_that_somebody_made_meanwhile_is_not_overwritten(self):
        self.expected = ("status of 412",)
        yarn = server.get("/api/v1/baselines/main?version=1")["results"][0]["job"]
        self.press_pin(yarn)
        new_version("main", yarn)
        page.fill("#pin-name", "main")
        page.one("dialog[open] .primary").click()
        page.wait("the refusal", lambda: page.one("dialog[open] .form-alert").is_displayed())
        self.assertEqual(server.get("/api/v1/baselines/main")["version"], 3)
        page.one("dialog[open] .button:not(.primary)").click()
        page.wait("no dialog", lambda: not page.all("dialog.confirm[open]"))

    def test_30_gates_are_listed_with_the_last_verdict_of_each_branch(self):
        server.post("/api/v1/gates", GATE)
        self.assertEqual(run_gate("yarn-demo", 0, "main")["outcome"], "pass")
        self.assertEqual(run_gate("rope-demo", 1, "feature/x")["outcome"], "fail")
        page.open("#/gates")
        page.wait("two branches", lambda: len(page.all(".gate .branches li")) == 2)
        rows = lines(".gate .branches li")
        self.assertRegex(rows[0], f"^main\\s+pass\\s+{commit(0)[:8]}")
        self.assertRegex(rows[1], f"^feature/x\\s+fail\\s+{commit(1)[:8]}")
        self.assertIn("long-context version 1 · 3 rules", page.text(".gate"))
        page.open("#/gates/long-context")
        page.wait("the rules", lambda: len(page.all(".panel.rules .rule")) == 3)
        self.assertEqual(lines(".panel.rules .rule-value"), [
            "at most 1000", "min. effect 5 %, confidence 95 %", "ratio at most 1.02, confidence 95 %"])

    def test_40_the_same_model_is_a_pass_at_zero(self):
        page.open("#/gates/long-context/runs/1")
        page.wait("the rules", lambda: len(page.all("#gates .rule")) == 4)
        self.assertEqual(page.text(".big-chip"), "pass")
        self.assertIn("All 3 rules pass", page.text("#gates"))
        row = f"#gates .rule:nth-child({self.rule('no worse')})"
        self.assertEqual(percent(f"{row} .dot", "cx"), percent(f"{row} .zero", "x1"))
        self.assertIn("taken from job", page.text(".measured"))

    def test_41_bounds_are_drawn_where_the_numbers_are(self):
        run = run_gate("pope-demo", 2, "main")
        rule = next(r for r in run["verdict"]["rules"] if r["name"] == "no worse")
        page.open(f"#/gates/long-context/runs/{run['id']}")
        page.wait("the rules", lambda: len(page.all("#gates .rule")) == 4)
        row = f"#gates .rule:nth-child({self.rule('no worse')})"
        zero, one = percent(f"{row} .zero", "x1"), percent(f"{row} .effect", "x1")
        places = {"lower": percent(f"{row} .bar", "x1"), "upper": percent(f"{row} .bar", "x2"),
                  "delta": percent(f"{row} .dot", "cx")}
        for name, place in places.items():
            self.assertAlmostEqual((place - zero) / (one - zero), rule[name] / rule["min_effect"], places=6)
        self.assertLess(places["upper"], one)  # that is what a pass is
        self.assertLess(places["lower"], places["delta"])
        self.assertIn(rule["message"], page.text(row))
        self.assertIn("worse by", page.one(f"{row} .track").get_attribute("aria-label"))

    def test_42_a_failed_run_says_which_rules_failed_and_by_how_much(self):
        run = server.get("/api/v1/gates/long-context/runs/2")
        page.open("#/gates/long-context/runs/2")
        page.wait("the rules", lambda: len(page.all("#gates .rule")) == 4)
        self.assertEqual(lines("#gates .rule-chip"), ["fail", "fail", "pass"])
        self.assertIn("Of 3 rules, 2 fail.", page.text("#gates"))
        self.assertEqual(lines("#gates .detail-head a"), ["JSON", "JUnit", "Markdown"])
        texts = [server.text(a.get_attribute("href").removeprefix(server.url)) for a in page.all("#gates .detail-head a")]
        self.assertEqual(json.loads(texts[0]), run["verdict"])
        self.assertIn("<testsuite", texts[1])
        self.assertTrue(all("no worse" in text for text in texts))
        row = f"#gates .rule:nth-child({self.rule('no worse')})"
        self.assertTrue(page.all(f"{row} .cut"), "it is beyond the axis")
        rule = next(r for r in run["verdict"]["rules"] if r["name"] == "no worse")
        worse = f"+{math.expm1(rule['delta']) * 100:.3g} %"
        self.assertEqual(page.text(f"{row} .track text"), worse)
        page.one("#gates .values summary").click()
        cells = [c.text for c in page.all("#gates .values tbody tr:nth-child(2) > *")]
        self.assertEqual((cells[0], cells[4], cells[10]), ("no worse", worse, str(N_DOCS)))
        self.assertIn(f"job {run['jobs'][0]['id']}", page.text(".measured"))
        page.one(".measured a").click()
        page.wait("the job", lambda: "rope-demo on shelf" in page.text("#detail"))

    def test_50_the_history_marks_the_change_and_the_commit_that_brought_it(self):
        for i in range(3, 3 + CHANGE + 6):
            run_gate("yarn-demo" if i < 3 + CHANGE else "pope-demo", i, "next")
        history = server.get("/api/v1/history?gate=long-context&rule=bounded&branch=next")
        self.assertEqual([c["index"] for c in history["change_points"]], [CHANGE])
        page.open("#/gates/long-context")
        page.wait("the branches", lambda: len(page.all("#history-task option")) == 3)
        self.assertEqual(page.one("#history-task").get_attribute("value"), "main")
        page.choose("#history-task", "next")
        drawn = page.wait("the history of next", lambda: page.js(
            f"const chart = Chart.getChart('{CHART}'); return chart?.data.datasets[0].data.length === arguments[0] && "
            "[chart.data.datasets[0].data.map((p) => p.y), "
            "chart.options.plugins.changeMarks.changes.map((c) => ({ index: c.index, label: c.label }))]", CHANGE + 6))
        self.assertEqual(drawn[0], [p["value"] for p in history["points"]])
        self.assertEqual(drawn[1], [{"index": CHANGE, "label": commit(3 + CHANGE)[:8]}])
        link = page.one("#gates .legend a")
        self.assertEqual(link.text, commit(3 + CHANGE)[:8])
        path = f"#/gates/long-context/runs/{history['points'][CHANGE]['run']}"
        self.assertTrue(link.get_attribute("href").endswith(path))
        page.shoot("gates-history")

    def test_51_another_rule_of_the_history_is_another_metric(self):
        page.open("#/gates/long-context")
        page.wait("the chart", lambda: page.js(f"return Boolean(Chart.getChart('{CHART}'))"))
        self.assertEqual(lines("#history-metric option"), ["bounded", "no worse", "extrapolates"])
        page.choose("#history-metric", "extrapolates")
        point = server.get("/api/v1/history?gate=long-context&rule=extrapolates&branch=main")["points"][0]
        run = server.get(f"/api/v1/gates/long-context/runs/{point['run']}")
        shape = next(r for r in run["verdict"]["rules"] if r["name"] == "extrapolates")
        self.assertEqual(point["value"], shape["value"])
        self.assertAlmostEqual(point["stderr"], shape["value"] * shape["stderr"], places=12)  # delta method
        first = f"return Chart.getChart('{CHART}').data.datasets[0].data[0].y"
        page.wait("its values", lambda: page.js(first) == point["value"])
        self.assertEqual(page.text("#history"), "Perplexity per token at 512 over that at 128, run after run")
        page.one("#gates .values summary").click()
        self.assertEqual(len(page.all("#gates .values tbody tr")), 2)

    def test_52_runs_are_listed_newest_first(self):
        page.open("#/gates/long-context")
        page.wait("the runs", lambda: len(page.all(".run")) == 3 + CHANGE + 6)
        self.assertRegex(lines(".run")[0], r"^pass\s+pope-demo #14")
        self.assertRegex(lines(".run")[-2], r"^fail\s+rope-demo #2\s+.*feature/x · against main v3")
        self.assertEqual(len(page.all(".badge img")), 3)
        self.assertTrue(page.js("return [...document.querySelectorAll('.badge img')].every((i) => i.naturalWidth > 0)"))

    def test_55_a_difference_is_told_as_the_tasks_say_that_its_metric_is_compared(self):
        rules = [{"type": "relative", "metric": m, "min_effect": 0.005} for m in ("ppl_word", "nll_token", "acc_norm")]
        told = page.js(
            """
            const rules = arguments[0];
            return Promise.all([import('/verdict.js'), fetch('/api/v1/tasks').then((r) => r.json())]).then(([v, tasks]) =>
                v.withMetrics(rules, new Map(tasks.data.map((t) => [t.name, t]))).map(v.termsText));""",
            rules,
        )
        self.assertEqual(told, ["min. effect 0.5 %", "min. effect 0.005", "min. effect 0.5 points"])

    def test_60_phones_need_no_sideways_scrolling_light_or_dark(self):
        routes = {"list": "#/gates", "gate": "#/gates/long-context", "run": "#/gates/long-context/runs/2"}
        for name, route in routes.items():
            for dark in (False, True):
                page.open(route, 360, 740, dark)
                page.wait("the view", lambda: page.all("#gates .panel"))
                page.wait("its content", lambda: page.all(".gate, .run, .rule"))
                self.assertEqual(page.js("return document.documentElement.scrollWidth"), 360, route)
                page.shoot(f"gates-{name}-{'dark' if dark else 'light'}")
        page.open("#/gates/long-context/runs/2", 1280, 900, True)
        page.wait("the rules", lambda: page.all("#gates .rule"))
        page.shoot("gates-run-wide")

    def test_65_a_run_shows_how_far_it_is_and_its_end_without_a_reload(self):
        params = {"protocol": "sliding", "lengths": [256], "stride": 1}
        rules = [{"name": "bound", "type": "absolute", "metric": "ppl_token", "length": 256, "max": 1000}]
        measure = [{"task": "pg19", "dataset": "books", "params": params}]
        server.post("/api/v1/gates", {"name": "slow", "measure": measure, "rules": rules})
        run = server.post("/api/v1/gates/slow/runs", {"model": "rope-demo"})
        page.open(f"#/gates/slow/runs/{run['id']}")
        page.wait("its progress", lambda: page.js("return document.querySelector('.measured progress')?.value > 0"))
        self.assertEqual(page.text(".big-chip"), "measuring")
        page.wait("its speed", lambda: "tokens/s" in page.text(".measured"))
        page.js(
            """
            window.said = [];
            const listen = (changes) => changes.forEach((c) => c.addedNodes.forEach((n) => said.push(n.textContent)));
            new MutationObserver(listen).observe(document.getElementById('announce'), { childList: true });"""
        )
        server.post(f"/api/v1/jobs/{run['jobs'][0]['id']}/cancel")
        page.wait("the verdict", lambda: page.text(".big-chip") == "error")
        self.assertIn("Of 1 rule, 1 is an error.", page.text("#gates"))
        self.assertIn(f"Run {run['id']}: error", page.js("return said"))  # to a screen reader

    def test_66_a_run_that_is_not_over_can_be_cancelled(self):
        run = server.post("/api/v1/gates/slow/runs", {"model": "rope-demo", "cache": False})
        page.open(f"#/gates/slow/runs/{run['id']}")
        page.wait("that it runs", lambda: page.text(".big-chip") == "measuring")
        page.js("[...document.querySelectorAll('#gates button')].find((b) => b.textContent === 'Cancel run').click()")
        page.wait("the question", lambda: page.one("#confirm").is_displayed())
        page.one("#confirm-yes").click()
        page.wait("its end", lambda: page.text(".big-chip") == "cancelled")
        self.assertIn("It was cancelled: there is no verdict.", page.text("#gates"))
        self.assertNotIn("Cancel run", page.text("#gates"))
        self.assertEqual(server.get(f"/api/v1/gates/slow/runs/{run['id']}")["state"], "cancelled")

    def test_70_what_is_not_there_is_said(self):
        self.expected = ("status of 404",)
        page.open("#/gates/none")
        page.wait("the words", lambda: "no gate 'none'" in page.text("#gates"))
        page.open("#/gates/long-context/runs/999")
        page.wait("the words", lambda: "no run 999" in page.text("#gates"))
        self.assertFalse(page.one("#banner").is_displayed())


if __name__ == "__main__":
    unittest.main()
