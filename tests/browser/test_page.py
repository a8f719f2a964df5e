"""The page in real Chromium, against a real server that evaluates the demo models.

Run: /usr/bin/python3 -m unittest discover -s tests/browser -v
"""

import csv
import io
import json
import shlex
import sys
import tempfile
import unittest
from pathlib import Path
from urllib.parse import unquote

sys.path.insert(0, str(Path(__file__).parent))
import browser  # noqa: E402

LENGTHS = [128, 256, 512, 1024]
CHART = "chart-title-canvas"
READBACK = ("Canvas2D: Multiple readback",)  # our own looks at the pixels
server = driver = page = downloads = None


def setUpModule():
    global server, driver, page, downloads
    server, page = browser.launch()
    driver, downloads = page.driver, page.downloads


def chart(expression):
    """A JavaScript expression over `chart`, the drawn one."""
    return page.js(f"const chart = Chart.getChart('{CHART}'); return chart ? ({expression}) : null")


def n_curves():
    return chart("chart.data.datasets.length") or 0


def pixels_of(index):
    """How many pixels of the canvas have the colour of a curve, exactly."""
    return page.js(
        """
        const chart = Chart.getChart(arguments[0]), canvas = chart.canvas;
        const probe = document.createElement('canvas').getContext('2d');
        probe.fillStyle = chart.data.datasets[arguments[1]].borderColor;
        probe.fillRect(0, 0, 1, 1);
        const [r, g, b] = probe.getImageData(0, 0, 1, 1).data;
        const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
        let n = 0;
        for (let i = 0; i < data.length; i += 4)
            n += data[i] === r && data[i + 1] === g && data[i + 2] === b && data[i + 3] === 255;
        return n;""",
        CHART,
        index,
    )


def ready():
    """The form is filled with what the API said."""
    page.wait("models in the form", lambda: page.all(".model input"))


class TestPage(unittest.TestCase):
    """In the order of their names: one server's life, from empty to three curves."""

    expected = ()  # words of console messages that a test provokes

    def tearDown(self):
        self.assertEqual(page.console(*self.expected), [])

    def test_10_an_empty_page_says_what_to_do(self):
        page.open()
        ready()
        page.wait("the hint", lambda: "press Evaluate" in page.text(".chart-empty"))
        self.assertIn("No jobs yet", page.text("#jobs-empty"))
        self.assertEqual([m.get_attribute("value") for m in page.all(".model input")], browser.demo_models())
        self.assertEqual(page.one("#f-dataset").get_attribute("value"), "books")
        self.assertFalse(page.one("#filter").is_displayed())
        page.one(".about summary").click()
        self.assertEqual(page.texts(".about code"), ["from", "to"])
        self.assertIn("in tokens; 1 to 16,777,216", page.text("#f-params-lengths-help"))
        page.shoot("empty")

    def test_20_what_the_server_refuses_is_shown_at_its_field(self):
        self.expected = ("status of 422",)
        page.open()
        ready()
        page.all(".model input")[0].click()
        page.fill("#f-params-lengths", "0, 64")
        page.one("#submit-button").click()
        message = page.wait("the field's message", lambda: page.text("#f-params-lengths-error"))
        self.assertIn("0", message)
        self.assertEqual(page.one("#f-params-lengths").get_attribute("aria-invalid"), "true")
        self.assertEqual(page.js("return document.activeElement.id"), "f-params-lengths")
        self.assertIn(message, page.text("#submit .form-alert"))
        self.assertEqual(server.get("/api/v1/jobs")["data"], [])
        page.shoot("refused")

    def test_21_words_for_numbers_and_no_model_are_refused_before_the_server(self):
        page.open()
        ready()
        page.fill("#f-params-lengths", "64, many")
        page.one("#submit-button").click()
        self.assertIn("'many'", page.text("#f-params-lengths-error"))
        self.assertIn("at least one model", page.text("#f-model-error"))
        self.assertEqual(server.get("/api/v1/jobs")["data"], [])

    def test_30_three_jobs_from_the_form_move_and_become_three_curves(self):
        self.expected = READBACK
        page.open()
        ready()
        for box in page.all(".model input"):
            box.click()
        self.assertEqual(page.text("#submit-button"), "Evaluate 3 models")
        page.fill("#f-params-lengths", ", ".join(map(str, LENGTHS)))
        page.js(
            """
            window.seen = [];
            new MutationObserver(() => document.querySelectorAll('.job progress').forEach((bar) => {
                if (bar.value > 0 && !seen.includes(bar.value)) seen.push(bar.value);
            })).observe(document.getElementById('jobs'), { subtree: true, attributes: true, childList: true });"""
        )
        page.one("#submit-button").click()
        page.wait("three rows", lambda: len(page.all(".job")) == 3)
        page.wait("a running job", lambda: page.all(".chip.running"))
        page.wait("a moving bar", lambda: len(page.js("return seen")) >= 2)
        page.shoot("running")
        page.resize(1280, 900)
        page.wait("three curves", lambda: n_curves() == 3, 90)
        self.assertEqual(len(page.all(".chip.succeeded")), 3)
        for i in range(3):
            self.assertGreater(pixels_of(i), 100)
        legend = [li.text for li in page.all("#chart .legend li")]
        for name in browser.demo_models():
            self.assertTrue(any(f"{name} · " in line and " · windows" in line for line in legend), legend)
        self.assertEqual(page.all(".notes li"), [])
        page.shoot("curves-light")

    def test_31_a_point_is_what_the_api_says(self):
        page.open()
        page.wait("three curves", lambda: n_curves() == 3)
        job = server.get("/api/v1/jobs")["data"][0]
        metrics = server.get(f"/api/v1/jobs/{job['id']}")["result"]["metrics"]
        wanted = {m["length"]: m["value"] for m in metrics if m["name"] == "ppl_token"}
        drawn = chart(
            f"chart.data.datasets.find((d) => d.label.startsWith('{job['model']} ')).data.map((p) => [p.x, p.y])"
        )
        self.assertEqual(sorted(wanted), LENGTHS)
        self.assertEqual({x: y for x, y in drawn}, wanted)

    def test_32_hovering_shows_the_values(self):
        from selenium.webdriver import ActionChains

        page.open()
        page.wait("three curves", lambda: n_curves() == 3)
        x, y, value = chart(
            "[chart.getDatasetMeta(0).data[2].x, chart.getDatasetMeta(0).data[2].y, "
            "chart.data.datasets[0].data[2].y]"
        )
        width, height = page.js(
            f"const c = document.getElementById('{CHART}'); return [c.clientWidth, c.clientHeight]"
        )
        ActionChains(driver).move_to_element_with_offset(
            page.one(f"#{CHART}"), round(x - width / 2), round(y - height / 2)
        ).perform()
        page.wait("the tooltip", lambda: chart("chart.tooltip.opacity") == 1)
        self.assertEqual(chart("chart.tooltip.title"), [f"Length {LENGTHS[2]}"])
        lines = chart("chart.tooltip.body.flatMap((b) => b.lines)")
        self.assertEqual(len(lines), 3)
        self.assertTrue(any(f" {value:.1f} ± " in line for line in lines), (value, lines))
        self.assertTrue(all(" ± " in line and " n " in line for line in lines), lines)
        page.shoot("hover")

    def test_33_error_bars_reach_a_standard_error_up_and_down(self):
        self.expected = READBACK
        page.open()
        page.wait("three curves", lambda: n_curves() == 3)
        found = page.js(
            """
            const chart = Chart.getChart(arguments[0]), ctx = chart.canvas.getContext('2d');
            const scale = chart.canvas.width / chart.width, p = chart.data.datasets[0].data[3];
            const x = chart.scales.x.getPixelForValue(p.x), y = chart.scales.y.getPixelForValue(p.y + p.se);
            const { data } = ctx.getImageData((x - 3) * scale, (y - 1.5) * scale, 2, 3);
            const ground = ctx.getImageData((x - 14) * scale, (y - 9) * scale, 1, 1).data;
            return [p.se, data.some((v, i) => i % 4 === 3 && v > 100), ground[3]];""",
            CHART,
        )
        self.assertGreater(found[0], 0)
        self.assertTrue(found[1], "no cap where value + stderr is")

    def test_34_the_curves_can_be_saved_as_csv_and_svg(self):
        page.open()
        page.wait("three curves", lambda: n_curves() == 3)
        page.one("#chart .tools button").click()
        path = downloads / "ppl_token.csv"
        page.wait("the download", lambda: path.exists() and path.stat().st_size > 0)
        rows = list(csv.DictReader(io.StringIO(path.read_text())))
        self.assertEqual(len(rows), 3 * len(LENGTHS))
        self.assertEqual({r["model"] for r in rows}, set(browser.demo_models()))
        self.assertEqual(
            [float(r["value"]) for r in rows[: len(LENGTHS)]],
            chart("chart.data.datasets[0].data.map((p) => p.y)"),
        )
        svg = server.text(unquote(page.one("#chart .tools a").get_attribute("href"))[len(server.url) :])
        self.assertIn("<svg", svg)
        for name in browser.demo_models():
            self.assertIn(name, svg)

    def test_35_ticks_and_metric_choose_what_is_drawn_and_stay_in_the_address(self):
        page.open()
        page.wait("three curves", lambda: n_curves() == 3)
        colours = chart("Object.fromEntries(chart.data.datasets.map((d) => [d.label, d.borderColor]))")
        page.all(".job .tick input")[1].click()
        page.wait("two curves", lambda: n_curves() == 2)
        page.choose("#chart-title-metric", "bits_per_byte")
        self.assertIn("metric=bits_per_byte", page.js("return location.hash"))
        self.assertLess(chart("Math.max(...chart.data.datasets[0].data.map((p) => p.y))"), 12)
        for label, colour in chart("chart.data.datasets.map((d) => [d.label, d.borderColor])"):
            self.assertEqual(colours[label], colour)
        driver.refresh()
        page.wait("two curves again", lambda: n_curves() == 2)
        self.assertEqual(page.text("#chart-title"), "Bits per byte against length")
        page.all(".job .tick input")[1].click()
        page.wait("three curves again", lambda: n_curves() == 3)

    def test_36_the_list_shows_the_jobs_of_a_model_a_task_or_a_state(self):
        page.open()
        page.wait("three curves", lambda: n_curves() == 3)
        model = browser.demo_models()[1]
        page.choose("#filter-model", model)
        page.wait("one row", lambda: page.texts(".row-name") == [model])
        page.wait("its curve", lambda: n_curves() == 1)
        page.one(".job .tick input").click()
        page.one(".job .tick input").click()  # ticked by hand now, and so it stays
        page.choose("#filter-model", browser.demo_models()[0])
        page.wait("the other", lambda: page.texts(".row-name") == [browser.demo_models()[0]])
        page.one(".job .tick input").click()
        page.wait("both curves", lambda: n_curves() == 2)
        page.choose("#filter-state", "failed")
        page.wait("none", lambda: page.text("#jobs-empty") == "No such job.")
        page.choose("#filter-state", "")
        page.choose("#filter-model", "")
        page.wait("all rows", lambda: len(page.all(".job")) == 3)
        self.assertEqual(n_curves(), 2)
        page.choose("#filter-task", "piqa")
        page.wait("none again", lambda: not page.all(".job"))

    def test_40_another_protocol_is_labelled_and_a_name_stays_text(self):
        page.open()
        page.wait("three curves", lambda: n_curves() == 3)
        ready()
        page.all(".model input")[0].click()
        page.fill("#f-params-lengths", "64, 256")
        page.choose("#f-params-protocol", "prefix")
        page.js("document.querySelectorAll('#submit details').forEach((d) => { d.open = true; })")
        page.fill("#f-name", "<img src=x onerror=console.error(1)>")
        page.one("#submit-button").click()
        page.wait("four curves", lambda: n_curves() == 4)
        self.assertIn("Different protocols", page.text("#chart .notes"))
        self.assertTrue(any("prefix" in li.text for li in page.all("#chart .legend li")))
        self.assertIn("<img src=x onerror=console.error(1)>", page.text(".job"))
        self.assertEqual(page.all("main img"), [])

    def test_50_a_job_has_a_page_and_can_be_deleted(self):
        page.open()
        page.wait("rows", lambda: len(page.all(".job")) == 4)
        job = server.get("/api/v1/jobs")["data"][0]["id"]
        page.all(".row-name")[0].click()
        page.wait("its numbers", lambda: len(page.all(".detail .numbers tbody tr")) >= 2)
        self.assertEqual(page.text(".detail .chip"), "succeeded")
        page.wait("the title", lambda: driver.title == f"{browser.demo_models()[0]} on books · fathom")
        self.assertEqual(page.js("return location.hash"), f"#/jobs/{job}")
        self.assertEqual(page.text(".detail-body > .panel:not(.chart) .numbers thead th"), "Length")
        for link in page.all(".detail .tools a"):
            server.text(link.get_attribute("href")[len(server.url) :])
        curl = shlex.split(page.one(".detail pre").get_attribute("textContent").replace("\\\n", " "))
        self.assertEqual(curl[:2], ["curl", f"{server.url}/api/v1/jobs"])
        self.assertEqual(json.loads(curl[-1])["params"]["lengths"], [64, 256])
        page.shoot("job")
        page.resize(1280, 900)
        page.js(
            "[...document.querySelectorAll('.detail button')].find((b) => b.textContent === 'Delete job').click()"
        )
        page.wait("the question", lambda: page.one("#confirm").is_displayed())
        page.one("#confirm-yes").click()
        page.wait(
            "the list without it", lambda: len(page.all(".job")) == 3 and page.one("#overview").is_displayed()
        )
        self.assertNotIn(job, [j["id"] for j in server.get("/api/v1/jobs")["data"]])

    def test_51_a_running_job_can_be_cancelled(self):
        page.open()
        ready()
        page.all(".model input")[0].click()
        page.fill("#f-params-lengths", "128, 256, 512, 1024, 2048")
        page.one("#submit-button").click()
        page.wait("its row", lambda: len(page.all(".job")) == 4)
        page.all(".row-name")[0].click()
        page.wait("it runs", lambda: page.all(".detail .chip.running"))
        page.js(
            "[...document.querySelectorAll('.detail button')].find((b) => b.textContent === 'Cancel job').click()"
        )
        page.one("#confirm-yes").click()
        page.wait("it is cancelled", lambda: page.all(".detail .chip.cancelled"))

    def test_52_a_failed_job_says_why(self):
        page.open()
        ready()
        page.all(".model input")[0].click()
        page.fill("#f-params-lengths", "1000000")
        page.choose("#f-params-protocol", "prefix")
        page.one("#submit-button").click()
        page.wait("its row fails", lambda: page.all(".job .chip.failed"))
        reason = page.text(".row-outcome.failed")
        self.assertIn("books", reason)
        self.assertTrue(page.one(".job .tick input").get_property("disabled"))
        page.all(".row-name")[0].click()
        page.wait("the reason on its page", lambda: page.all(".detail-body .form-alert"))
        self.assertIn(reason, page.text(".detail-body .form-alert"))

    def test_60_a_phone_needs_no_sideways_scrolling(self):
        for name, route in (("phone", "#/"), ("phone-job", "#/jobs/1")):
            page.open(route, width=360, height=740)
            page.wait(
                "a curve",
                lambda: page.all("canvas")
                and page.js("return document.querySelector('main').innerText.length > 300"),
            )
            page.wait(
                "a drawn frame",
                lambda: page.js(
                    "return [...document.querySelectorAll('canvas')].some((c) => c.offsetParent)"
                ),
            )
            page.js("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
            self.assertEqual(page.js("return document.documentElement.scrollWidth"), 360)
            page.shoot(name)

    def test_61_the_dark_page_is_dark_and_readable(self):
        page.open(dark=True)
        page.wait("three curves", lambda: n_curves() == 3)
        ground, ink = page.js(
            "const s = getComputedStyle(document.body); return [s.backgroundColor, s.color]"
        )
        self.assertLess(sum(rgb(ground)), 150)
        self.assertGreater(contrast(ground, ink), 7)
        for css in (".row-what", ".chip.succeeded", ".help", ".legend .quiet", "#submit-button", ".row-name"):
            self.assertGreaterEqual(page_contrast(css), 4.5, css)
        page.shoot("curves-dark")
        page.open(dark=False)
        page.wait("three curves", lambda: n_curves() == 3)
        for css in (".row-what", ".chip.succeeded", ".help", ".legend .quiet", "#submit-button", ".row-name"):
            self.assertGreaterEqual(page_contrast(css), 4.5, css)

    def test_70_a_lost_server_is_said_and_found_again(self):
        self.expected = ("ERR_INTERNET_DISCONNECTED", "Failed to load resource")
        page.open()
        page.wait("three curves", lambda: n_curves() == 3)
        offline = {"offline": True, "latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
        driver.execute_cdp_cmd("Network.enable", {})
        driver.execute_cdp_cmd("Network.emulateNetworkConditions", offline)
        page.wait("the banner", lambda: page.one("#banner").is_displayed())
        self.assertEqual(page.text("#status"), "offline")
        driver.execute_cdp_cmd("Network.emulateNetworkConditions", {**offline, "offline": False})
        page.wait("no banner", lambda: not page.one("#banner").is_displayed())

    def test_80_older_jobs_come_when_asked_for_and_can_be_drawn_before(self):
        for _ in range(52):
            server.cancelled_job(browser.demo_models()[0])
        page.open("#/?jobs=1,2,3")
        page.wait("three curves of unlisted jobs", lambda: n_curves() == 3)
        self.assertEqual(len(page.all(".job")), 50)
        page.one("#jobs-more").click()
        page.wait(
            "all jobs", lambda: len(page.all(".job")) == len(server.get("/api/v1/jobs?limit=500")["data"])
        )
        self.assertFalse(page.one("#jobs-more").is_displayed())
        self.assertEqual(n_curves(), 3)
        page.choose("#filter-state", "succeeded")
        page.wait("what lies below the newest fifty", lambda: set(page.texts(".job .chip")) == {"succeeded"})
        page.choose("#filter-state", "cancelled")
        page.wait("the newest cancelled", lambda: len(page.all(".job")) == 50)
        page.one("#jobs-more").click()
        cancelled = len(server.get("/api/v1/jobs?limit=500&state=cancelled")["data"])
        page.wait("all cancelled", lambda: len(page.all(".job")) == cancelled)
        self.assertEqual(set(page.texts(".job .chip")), {"cancelled"})


class TestNothing(unittest.TestCase):
    """A server that has nothing to evaluate, nothing to evaluate on and nobody to do it."""

    def test_what_is_missing_is_said(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        bare = browser.Server(Path(folder.name), ("--workers", "cuda:9"))
        self.addCleanup(bare.stop)
        view = browser.Page(driver, bare.url, downloads)
        view.open()
        view.wait("the state", lambda: view.text("#status") == "no worker")
        view.wait("the models", lambda: "--models DIR" in view.text("#f-model"))
        view.wait("the datasets", lambda: "Start the server with --datasets DIR" in view.text("#f-dataset-help"))
        self.assertIn("unusable", view.text("#workers"))
        view.shoot("nothing")


class TestModules(unittest.TestCase):
    """Modules without a DOM, called in the page."""

    @classmethod
    def setUpClass(cls):
        page.open()

    def call(self, module, function, *arguments):
        return driver.execute_async_script(
            "const [module, name, args, done] = arguments;"
            "import(module).then((m) => done(m[name](...args)), (e) => done(String(e)))",
            module,
            function,
            arguments,
        )

    def test_y_ticks_are_round_and_inside(self):
        for low, high, wanted in (
            (18, 24, [18, 19, 20, 21, 22, 23, 24]),
            (2.95, 3.12, [2.95, 2.975, 3, 3.025, 3.05, 3.075, 3.1]),
            (15, 300, [20, 30, 50, 70, 100, 200, 300]),
            (9, 95000, [10, 100, 1000, 10000]),
        ):
            self.assertEqual(self.call("/axes.js", "yTicks", low, high), wanted)

    def test_x_ticks_are_lengths_that_have_room(self):
        lengths = [1024 * i for i in range(1, 11)]
        self.assertEqual(self.call("/axes.js", "xTicks", lengths, 1000, 10500, 2000), lengths)
        few = self.call("/axes.js", "xTicks", lengths, 1000, 10500, 300)
        self.assertEqual([few[0], few[-1]], [1024, 10240])
        self.assertLess(len(few), 8)
        self.assertTrue({2048, 4096} <= set(few), few)

    def test_numbers_have_the_digits_that_their_error_deserves(self):
        for value, error, wanted in (
            (20.1299, 0.4172, "20.13 ± 0.42"),
            (1.53041, 0.00213, "1.5304 ± 0.0021"),
            (134.04, 12.1, "134 ± 12"),
            (20.1299, None, "20.130"),
            (None, None, "–"),
        ):
            self.assertEqual(self.call("/format.js", "measureText", value, error), wanted)

    def test_metrics_have_the_digits_of_their_unit(self):
        for metric, wanted in (
            ({"value": 0.3256, "stderr": 0.00652, "unit": "fraction"}, "0.3256 ± 0.0065"),
            ({"value": 1, "stderr": 0, "unit": "fraction"}, "1.0000 ± 0.0000"),
            ({"value": 0.5, "stderr": None, "unit": "fraction"}, "0.5000"),
            ({"value": 1234, "stderr": None, "unit": "items"}, "1,234"),
            ({"value": 40.0554, "stderr": 1.4123, "unit": "perplexity"}, "40.1 ± 1.4"),
            ({"value": None, "stderr": None, "unit": "fraction"}, "–"),
        ):
            self.assertEqual(self.call("/format.js", "metricText", metric), wanted)

    def test_parts_stand_by_value_with_their_mean_last(self):
        def part(group, value, name="acc"):
            return {"name": name, "value": value, "unit": "fraction", **({"group": group} if group else {})}

        one = {"metrics": [part("V", 0.5), part("NE", 0.25), part("P", 1), part(None, 0.58), part(None, 9, "other")]}
        two = {"metrics": [part("V", 0.1), part("NE", 0.75), part(None, 0.4)]}
        rows = self.call("/series.js", "barRows", [one, two], "acc")
        self.assertEqual([r["label"] for r in rows], ["P", "NE", "V", "mean of 3"])
        self.assertEqual([[c and c["value"] for c in r["cells"]] for r in rows],
                         [[1, None], [0.25, 0.75], [0.5, 0.1], [0.58, 0.4]])
        self.assertEqual([r["mean"] for r in rows], [False, False, False, True])

    def test_a_choice_of_bars_has_parts_first_or_all_accuracies_together(self):
        def names(*metrics, head="acc"):
            all_ = [{"name": n, "value": 1, "unit": u, "group": g} for n, u, g in metrics]
            choices = self.call("/series.js", "barChoices", [{"metrics": all_, "headline": head}])
            return [name for name, _ in choices]

        one = ("acc", "fraction", None)
        self.assertEqual(names(one, ("acc_norm", "fraction", None), ("n_truncated", "items", None)), ["accuracies"])
        self.assertEqual(names(one, ("ppl", "perplexity", None)), ["acc", "ppl"])
        self.assertEqual(names(one, ("acc", "fraction", "V"), ("acc_norm", "fraction", None)), ["acc", "acc_norm"])
        self.assertEqual(names(("nll_token", "nats/token", None), ("ppl_token", "perplexity", None), head="ppl_token"),
                         ["ppl_token", "nll_token"])

    def test_what_is_not_the_default_is_said(self):
        task = {"params": [{"name": "ties", "default": "first"}, {"name": "n_shot", "default": 0},
                           {"name": "limit", "default": None}, {"name": "share", "default": True}]}
        for params, wanted in (
            ({"ties": "first", "n_shot": 0, "limit": None, "share": True}, ""),
            ({"ties": "wrong", "n_shot": 5, "limit": 10, "share": False}, "ties wrong, n shot 5, share off"),
        ):
            self.assertEqual(self.call("/format.js", "protocol", params, task), wanted)

    def test_what_does_not_compare_is_said(self):
        one = {
            "tokenizer": "a",
            "datasetFingerprint": "d",
            "dataset": "books",
            "subset": "",
            "protocol": "windows",
            "task": "pg19 v1",
        }

        def notes(metric="ppl_token", **other):
            return self.call("/series.js", "cautions", [one, {**one, **other}], metric)

        self.assertEqual(notes(), [])
        self.assertIn("numbers of different tokenizers do not compare", notes(tokenizer="b")[0])
        self.assertEqual(notes("bits_per_byte", tokenizer="b"), [])
        self.assertIn("Different datasets (books; more)", notes(datasetFingerprint="e", dataset="more")[0])
        self.assertIn("Different protocols (windows; prefix)", notes(protocol="prefix")[0])
        self.assertIn("Different subsets", notes(subset="3")[0])
        self.assertIn("Different data of one name (books)", notes(datasetFingerprint="e")[0])
        self.assertEqual(notes("acc", tokenizer="b"), [])
        self.assertEqual(notes("acc_token", tokenizer="b"), [])
        self.assertEqual(
            notes("acc", protocol=""), ["Different settings (windows; the defaults): these numbers do not compare."]
        )


def rgb(colour):
    return [float(v) for v in colour[colour.index("(") + 1 : -1].split(",")[:3]]


def contrast(a, b):
    """WCAG 2's contrast ratio."""

    def luminance(colour):
        parts = [v / 255 for v in rgb(colour)]
        r, g, b_ = [v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in parts]
        return 0.2126 * r + 0.7152 * g + 0.0722 * b_

    low, high = sorted((luminance(a), luminance(b)))
    return (high + 0.05) / (low + 0.05)


def page_contrast(css):
    """Of an element's text against the first ground behind it that is not transparent."""
    ink, ground = page.js(
        """
        let node = document.querySelector(arguments[0]);
        const ink = getComputedStyle(node).color;
        while (getComputedStyle(node).backgroundColor === 'rgba(0, 0, 0, 0)')
            node = node.parentElement;
        return [ink, getComputedStyle(node).backgroundColor];""",
        css,
    )
    return contrast(ink, ground)


if __name__ == "__main__":
    unittest.main()
