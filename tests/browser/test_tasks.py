"""Tasks without lengths on the page, in real Chromium: forms, bars, tables and items of lambada, choices and blimp, which
the demo models are really asked.

Run: /usr/bin/python3 -m unittest discover -s tests/browser -v
"""

import csv
import io
import json
import shlex
import sys
import time
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import browser  # noqa: E402

CHART = "chart-title-canvas"
READBACK = ("Canvas2D: Multiple readback",)  # our own looks at the pixels
N_ITEMS = 60
PARADIGMS = {"swapped_at_the_start": 0, "swapped_early": 3, "swapped_late": 6, "swapped_at_the_end": 8}
server = driver = page = None


def write_datasets(folder):
    """Last words of passages, and what follows one among what does not: from a text that every machine has."""
    words = (browser.TEXTS / "GPL-2").read_text().split()
    passages, endings = [], []
    for i in range(N_ITEMS):
        passages.append({"text": " ".join(words[i * 40 : i * 40 + 40])})
        choices = [" ".join(words[k : k + 5]) for k in (i * 40 + 30, 1300 + i * 7, 1700 + i * 5)]
        gold = i % 3
        choices = choices[-gold:] + choices[:-gold] if gold else choices
        endings.append({"query": " ".join(words[i * 40 : i * 40 + 30]), "choices": choices, "gold": gold})
    files = {"passages.jsonl": passages, "endings.jsonl": endings}
    for paradigm, swap in PARADIGMS.items():  # a sentence, and the same with two words in each other's place
        pairs = []
        for i in range(20):
            good = words[i * 30 : i * 30 + 10]
            bad = [*good]
            bad[swap], bad[swap + 1] = good[swap + 1], good[swap]
            pairs.append({"sentence_good": " ".join(good), "sentence_bad": " ".join(bad), "UID": paradigm})
        files[f"pairs/{paradigm}.jsonl"] = pairs
    for name, rows in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows))


def setUpModule():
    global server, driver, page
    server, page = browser.launch(write_datasets)
    driver = page.driver


def chart(expression, canvas=CHART):
    """A JavaScript expression over `chart`, the drawn one."""
    return page.js(f"const chart = Chart.getChart('{canvas}'); return chart ? ({expression}) : null")


def n_bars():
    return chart("chart.config.type === 'bar' && chart.data.datasets.length") or 0


def ready(task):
    """The form is filled and asks for a task."""
    page.wait("models in the form", lambda: page.all(".model input"))
    page.wait("tasks in the form", lambda: page.all(f"#f-task option[value={task}]"))
    page.choose("#f-task", task)


def texts(css):
    """Of the elements that are there now, cells apart by a space."""
    code = "return [...document.querySelectorAll(arguments[0])].map((e) => e.innerText)"
    return [" ".join(text.split()) for text in page.js(code, css)]


def items_of(job):
    return [json.loads(line) for line in server.text(f"/api/v1/jobs/{job}/items").splitlines()]


def acc_of(job):
    metrics = server.get(f"/api/v1/jobs/{job['id']}")["result"]["metrics"]
    return next(m for m in metrics if m["name"] == "acc")


def text_of(m):
    return f"{m['value']:.4f} ± {m['stderr']:.4f}"


def newest(task):
    return server.get(f"/api/v1/jobs?task={task}")["data"][0]


class TestTasks(unittest.TestCase):
    """In the order of their names: one server's life."""

    expected = ()  # words of console messages that a test provokes

    def tearDown(self):
        self.assertEqual(page.console(*self.expected), [])

    def test_10_the_form_follows_the_task(self):
        page.open()
        ready("lambada")
        about = page.one(".about").get_property("textContent")
        task = server.get("/api/v1/tasks/lambada")
        for metric in task["metrics"]:
            self.assertIn(metric["name"], about)
        self.assertIn(task["summary"][1:], page.text("#f-task-help"))
        self.assertIn(task["dataset"], page.text("#f-dataset-help"))
        for param in task["params"]:
            self.assertTrue(page.all(f"#f-params-{param['name']}"), param["name"])
        groups = page.js(
            "return [...document.querySelectorAll('#f-dataset optgroup')].map((g) => [g.label, g.innerText.trim()])"
        )
        self.assertEqual(groups, [["Files of another kind", "books"]])
        self.assertEqual(page.one("#f-dataset").get_attribute("value"), "endings.jsonl")
        page.choose("#f-task", "pg19")
        self.assertEqual(page.all("#f-params-n_shot"), [])
        self.assertTrue(page.all("#f-params-lengths"))
        page.choose("#f-task", "choices")
        self.assertEqual(page.one("#f-params-shots_from").tag_name, "input")
        offered = page.js("return [...document.getElementById('f-params-shots_from').list.options].map((o) => o.value)")
        self.assertEqual(set(offered), {d["name"] for d in server.get("/api/v1/datasets")["data"]})
        self.assertIn("endings.jsonl", offered)
        page.js("document.querySelectorAll('#submit details').forEach((d) => { d.open = true; })")
        page.shoot("form-choices")

    def test_20_three_models_are_asked_for_last_words(self):
        page.open()
        ready("lambada")
        for box in page.all(".model input"):
            box.click()
        page.choose("#f-dataset", "passages.jsonl")
        page.one("#submit-button").click()
        page.wait("three jobs", lambda: len(page.all(".job")) == 3)
        page.wait("three bars", lambda: n_bars() == 3, 90)
        self.assertEqual(page.text("#chart-title"), "Accuracy, lambada")
        jobs = server.get("/api/v1/jobs")["data"]
        wanted = {j["model"]: acc_of(j)["value"] for j in jobs}
        drawn = chart("chart.data.datasets.map((d) => [d.label.split(' ')[0], d.data[0]])")
        self.assertEqual(dict(drawn), wanted)
        rows = page.all(".job")
        for job, row in zip(jobs, rows, strict=True):
            self.assertIn(f"{text_of(acc_of(job))} acc", row.text.replace("\n", " "))
            self.assertEqual(acc_of(job), job["headline"])
        page.choose("#chart-title-metric", "ppl")
        self.assertIn("metric=ppl", page.js("return location.hash"))
        self.assertGreater(chart("chart.data.datasets[0].data[0]"), 1)
        page.shoot("bars-ppl")

    def test_21_a_shot_takes_text_and_a_number(self):
        page.open()
        ready("choices")
        page.all(".model input")[0].click()
        page.js("document.querySelectorAll('#submit details').forEach((d) => { d.open = true; })")
        page.choose("#f-dataset", "endings.jsonl")
        page.fill("#f-params-n_shot", "1")
        page.fill("#f-params-shots_from", "endings.jsonl")
        page.fill("#f-params-limit", "9")
        page.one("#submit-button").click()
        page.wait("its row", lambda: len(page.all(".job")) == 4)
        page.wait("its end", lambda: newest("choices")["state"] == "succeeded")
        params = newest("choices")["params"]
        self.assertEqual((params["n_shot"], params["shots_from"], params["limit"]), (1, "endings.jsonl", 9))
        page.wait("its row says so", lambda: "n shot 1" in page.text(".job"))
        self.assertIn("limit 9", page.text(".job"))

    def test_30_jobs_of_a_task_stand_side_by_side_and_apart_from_other_tasks(self):
        for model in browser.demo_models():
            body = {"model": model, "task": "choices", "dataset": "endings.jsonl"}
            server.post("/api/v1/jobs", body)
        page.open()
        page.wait("three jobs in four rows", lambda: n_bars() == 3 and len(chart("chart.data.labels")) == 4, 90)
        self.assertEqual(chart("chart.data.labels"), ["acc", "acc_norm", "acc_bytes", "acc_token"])
        self.assertEqual(page.all("#chart .notes li"), [])
        page.shoot("bars-light")
        page.choose("#chart-title-task", "lambada")
        page.wait("the other task", lambda: page.text("#chart-title") == "Accuracy, lambada")
        self.assertEqual(n_bars(), 3)
        self.assertIn("task=lambada", page.js("return location.hash"))
        ticked = [i for i, box in enumerate(page.all(".job .tick input")) if box.is_selected()]
        self.assertEqual(ticked, [4, 5, 6])
        page.all(".job .tick input")[0].click()  # of choices: a chart is of one task
        page.wait("one job of choices", lambda: n_bars() == 1 and "choices" in page.text("#chart-title"))
        page.all(".job .tick input")[3].click()  # with a shot
        page.wait("two jobs", lambda: n_bars() == 2)
        notes = page.text("#chart .notes")
        self.assertIn("Different settings", notes)
        self.assertIn("Different data of one name (endings.jsonl)", notes)
        driver.refresh()
        page.wait("two jobs again", lambda: n_bars() == 2)

    def test_31_whiskers_reach_a_standard_error_to_both_sides(self):
        self.expected = READBACK
        page.open()
        page.wait("bars", lambda: n_bars() == 3)
        found = page.js(
            """
            const chart = Chart.getChart(arguments[0]), ctx = chart.canvas.getContext('2d');
            const scale = chart.canvas.width / chart.width, d = chart.data.datasets[0], bar = chart.getDatasetMeta(0).data[1];
            const { value, stderr } = d.cells[1];
            const ink = (v) => {
                const x = chart.scales.x.getPixelForValue(v);
                const { data } = ctx.getImageData((x - 1) * scale, (bar.y - 3) * scale, 3 * scale, 2 * scale);
                let dark = 0;
                for (let i = 0; i < data.length; i += 4)
                    dark += data[i + 3] > 200 && data[i] + data[i + 1] + data[i + 2] < 160;
                return dark;
            };
            return [value, stderr, ink(value - stderr), ink(value + stderr), ink(value + 2.5 * stderr)];""",
            CHART,
        )
        self.assertEqual(found[0], acc_of_series(0, "acc_norm"))
        self.assertGreater(found[1], 0)
        self.assertGreater(found[2], 0, "no cap where value - stderr is")
        self.assertGreater(found[3], 0, "no cap where value + stderr is")
        self.assertEqual(found[4], 0)

    def test_31b_there_is_room_for_a_number_behind_a_bar_that_reaches_the_end(self):
        for width in (390, 1280):
            page.open(width=width)
            page.wait("bars", lambda: n_bars() == 3)
            number = chart("(chart.ctx.font = '11px sans-serif', chart.ctx.measureText('1.0000').width)")
            self.assertGreater(chart("chart.width - chart.chartArea.right"), 6 + number)

    def test_32_hovering_shows_the_values_and_csv_has_them(self):
        from selenium.webdriver import ActionChains

        page.open()
        page.wait("bars", lambda: n_bars() == 3)
        y, width, height = chart(
            "[chart.getDatasetMeta(1).data[0].y, chart.canvas.clientWidth, chart.canvas.clientHeight]"
        )
        x = chart("chart.scales.x.left + 20")
        ActionChains(driver).move_to_element_with_offset(
            page.one(f"#{CHART}"), round(x - width / 2), round(y - height / 2)
        ).perform()
        page.wait("the tooltip", lambda: chart("chart.tooltip.opacity") == 1)
        self.assertEqual(chart("chart.tooltip.title"), ["acc"])
        lines = chart("chart.tooltip.body.flatMap((b) => b.lines)")
        self.assertEqual(len(lines), 3)
        self.assertTrue(all(" ± " in line and f"n {N_ITEMS}" in line for line in lines), lines)
        page.one("#chart .tools button").click()
        path = page.downloads / "accuracies.csv"
        page.wait("the download", lambda: path.exists() and path.stat().st_size > 0)
        rows = list(csv.DictReader(io.StringIO(path.read_text())))
        self.assertEqual(len(rows), 12)
        acc = {r["model"]: float(r["value"]) for r in rows if r["metric"] == "acc"}
        self.assertEqual(acc, dict(chart("chart.data.datasets.map((d) => [d.label.split(' ')[0], d.data[0]])")))

    def test_40_a_jobs_page_has_bars_and_a_table(self):
        job = newest("choices")
        page.open(f"#/jobs/{job['id']}")
        page.wait("its bars", lambda: chart("chart.data.datasets.length", "one-canvas") == 1)
        rows = texts(".detail-body > .panel:not(.chart) .numbers tbody tr")
        metrics = server.get(f"/api/v1/jobs/{job['id']}")["result"]["metrics"]
        wanted = [f"{m['name']} {text_of(m)} {m['n']} fraction" for m in metrics if m["unit"] == "fraction"]
        self.assertEqual(rows, wanted)  # counts are zero, and so not there
        self.assertEqual([m["value"] for m in metrics if m["unit"] == "items"], [0, 0])
        self.assertIn(text_of(acc_of(job)), page.text(".headline"))
        for link in page.all(".detail .tools a"):
            if link.is_displayed():
                server.text(link.get_attribute("href")[len(server.url) :])
        self.assertNotIn("curve", job["links"])
        page.shoot("job-choices")

    def test_41_items_can_be_browsed_and_filtered(self):
        job = newest("choices")["id"]
        items = items_of(job)
        wrong = [i for i in items if not i["correct"]]
        self.assertTrue(25 < len(items) == N_ITEMS and 0 < len(wrong) < N_ITEMS)
        page.open(f"#/jobs/{job}")
        page.wait("the browser", lambda: page.all(".detail-body details.values summary"))
        page.js("[...document.querySelectorAll('summary')].find((s) => s.textContent === 'Browse items').click()")
        shown = lambda: texts(".items tbody tr")  # noqa: E731
        page.wait("a page", lambda: len(shown()) == 25)
        head = texts(".items thead th")
        self.assertEqual(head[:6], ["Item", "From", "", "Choice", "Gold", "Log-probability"])
        for item, row in zip(items, shown(), strict=False):
            words = [f"{v:.2f}" for v in item["logprobs"]]
            verdict = "right" if item["correct"] else "wrong"
            start = f"{item['id']} {item['doc']} {verdict} {item['choice']} {item['gold']} {' '.join(words)}"
            self.assertTrue(" ".join(row.split()).startswith(start), (row, start))
        page.shoot("items")
        button = lambda text: next(b for b in page.all(".detail button") if b.text == text)  # noqa: E731
        self.assertFalse(button("Previous").is_enabled())
        button("Next").click()
        page.wait("the second page", lambda: shown() and shown()[0].startswith("25 "))
        button("Next").click()
        page.wait("the last page", lambda: len(shown()) == N_ITEMS - 50)
        self.assertFalse(button("Next").is_enabled())
        page.choose("#items-filter", "false")
        page.wait("the wrong ones", lambda: shown() and shown()[0].startswith(f"{wrong[0]['id']} "))
        self.assertEqual(
            [row.split()[0] for row in shown()], [str(i["id"]) for i in wrong[:25]]
        )
        self.assertIn("wrong items 1 to", page.text(".detail [role=status]"))

    def test_42_items_that_do_not_come_are_said_and_can_be_asked_for_again(self):
        self.expected = ("ERR_INTERNET_DISCONNECTED", "Failed to load resource")
        job = newest("lambada")["id"]
        page.open(f"#/jobs/{job}")
        page.wait("the browser", lambda: page.all(".detail-body details.values summary"))
        offline = {"offline": True, "latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
        driver.execute_cdp_cmd("Network.enable", {})
        driver.execute_cdp_cmd("Network.emulateNetworkConditions", offline)
        page.js("[...document.querySelectorAll('summary')].find((s) => s.textContent === 'Browse items').click()")
        said = lambda: [a.text for a in page.all(".detail-body .form-alert") if a.is_displayed()]  # noqa: E731
        page.wait("the reason", lambda: said() == ["the server does not answer."])
        driver.execute_cdp_cmd("Network.emulateNetworkConditions", {**offline, "offline": False})
        next(b for b in page.all(".detail button") if b.text == "Try again").click()
        page.wait("the items", lambda: len(page.all(".items tbody tr")) == 25)
        self.assertEqual(said(), [])

    def test_43_items_of_perplexity_have_their_own_columns(self):
        body = {"model": "pope-demo", "task": "pg19", "dataset": "books", "params": {"lengths": [64, 128], "max_docs": 2}}
        job = server.post("/api/v1/jobs", body)["id"]
        page.wait("its end", lambda: server.get(f"/api/v1/jobs/{job}")["state"] == "succeeded", 60)
        page.open(f"#/jobs/{job}")
        page.wait("its curve", lambda: chart("chart.config.type", "one-canvas") == "line")
        page.js("[...document.querySelectorAll('summary')].find((s) => s.textContent === 'Browse items').click()")
        page.wait("its items", lambda: len(page.all(".items tbody tr")) == 4)
        head = texts(".items thead th")
        self.assertEqual(head, ["Item", "From", "Length", "Tokens", "Loss", "Perplexity"])
        self.assertEqual(page.all("#items-filter"), [])
        page.open()
        page.wait("the newest job's curve", lambda: chart("chart.config.type") == "line")
        page.js("document.getElementById('chart-title-task').focus()")
        page.choose("#chart-title-task", "choices")
        page.wait("bars in its place", lambda: n_bars() == 3)
        self.assertEqual(page.js("return document.activeElement.id"), "chart-title-task")
        page.choose("#chart-title-task", "pg19")
        page.wait("the curve again", lambda: chart("chart.config.type") == "line")

    def test_44_a_task_that_makes_its_dataset_needs_none(self):
        page.open()
        ready("indirect_indexing")
        page.all(".model input")[0].click()
        self.assertEqual(page.one("#f-dataset").get_attribute("value"), "")
        page.fill("#f-params-n", "30")
        page.one("#submit-button").click()
        done = "/api/v1/jobs?task=indirect_indexing&state=succeeded"
        page.wait("its end", lambda: server.get(done)["data"])
        job = newest("indirect_indexing")
        self.assertEqual((job["dataset"], job["params"]["n"]), ("generated", 30))
        page.open(f"#/jobs/{job['id']}")
        page.wait("its request", lambda: page.all(".detail pre"))
        curl = lambda: shlex.split(page.texts(".detail pre")[0].replace("\\\n", " "))  # noqa: E731
        page.wait("descriptions of tasks", lambda: "dataset" not in json.loads(curl()[-1]), 3)
        again = server.post("/api/v1/jobs", json.loads(curl()[-1]))
        self.assertEqual((again["params"], again["dataset"]), (job["params"], "generated"))
        page.wait("the same number", lambda: newest("indirect_indexing")["headline"] == job["headline"])

    def test_50_parts_are_bars_by_value_and_the_mean_is_last(self):
        for model in browser.demo_models():
            server.post("/api/v1/jobs", {"model": model, "task": "blimp", "dataset": "pairs"})
        page.open("#/?task=blimp")
        page.wait("three jobs", lambda: n_bars() == 3, 90)
        jobs = [j for j in server.get("/api/v1/jobs?task=blimp")["data"]]
        metrics = {j["model"]: server.get(f"/api/v1/jobs/{j['id']}")["result"]["metrics"] for j in jobs}

        def acc(model, group):
            return next(m for m in metrics[model] if m["name"] == "acc" and m.get("group") == group)

        rows = chart("chart.data.labels")
        order = sorted(PARADIGMS, key=lambda g: -sum(acc(m, g)["value"] for m in metrics))
        means = [sum(acc(m, g)["value"] for m in metrics) for g in rows[:-1]]
        self.assertEqual(sorted(rows[:-1]), sorted(order))
        self.assertEqual(means, sorted(means, reverse=True))
        self.assertEqual(rows[-1], "mean of 4")
        for label, values in chart("chart.data.datasets.map((d) => [d.label.split(' ')[0], d.data])"):
            self.assertEqual(values, [acc(label, g)["value"] for g in [*rows[:-1], None]])
        for job in jobs:
            self.assertEqual(job["headline"], acc(job["model"], None))
        page.shoot("bars-groups")
        page.open(f"#/jobs/{jobs[0]['id']}")
        page.wait("its table", lambda: page.all(".numbers .total"))
        table = texts(".detail-body > .panel:not(.chart) .numbers tbody tr")
        model = jobs[0]["model"]
        for line, group in zip(table, [*sorted(PARADIGMS), None], strict=True):
            self.assertIn(f"{group or 'mean of 4'} {text_of(acc(model, group))}", line)
        page.shoot("job-groups")

    def test_60_a_phone_needs_no_sideways_scrolling(self):
        job = newest("choices")["id"]
        for name, route in (("phone-bars", "#/?task=choices"), ("phone-choices", f"#/jobs/{job}")):
            page.open(route, width=360, height=740)
            page.wait("bars", lambda: page.js("return [...document.querySelectorAll('canvas')].some((c) => c.offsetParent)"))
            page.js("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
            time.sleep(0.5)
            self.assertEqual(page.js("return document.documentElement.scrollWidth"), 360)
            page.shoot(name)

    def test_61_the_dark_page_draws_dark_bars(self):
        page.open("#/?task=choices", dark=True)
        page.wait("bars", lambda: n_bars() == 3)
        self.assertEqual(
            chart("chart.data.datasets[0].borderColor"),
            page.js("return getComputedStyle(document.documentElement).getPropertyValue('--series-0').trim()"),
        )
        page.shoot("bars-dark")


def acc_of_series(i, name):
    """Of the i-th drawn job."""
    model = chart(f"chart.data.datasets[{i}].label.split(' ')[0]")
    jobs = server.get("/api/v1/jobs?task=choices")["data"]
    job = next(j for j in jobs if j["model"] == model and j["params"]["limit"] is None)
    metrics = server.get(f"/api/v1/jobs/{job['id']}")["result"]["metrics"]
    return next(m["value"] for m in metrics if m["name"] == name)


if __name__ == "__main__":
    unittest.main()
