"""A job of task frequency_use in real Chromium: its map, its table, a phone and the dark.

Run: /usr/bin/python3 -m unittest discover -s tests/browser -v
"""

import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import browser  # noqa: E402

server = driver = page = None


def setUpModule():
    global server, driver, page
    server, page = browser.launch()
    driver = page.driver


class TestFrequencies(unittest.TestCase):
    """In the order of their names: one server's life."""

    def tearDown(self):
        self.assertEqual(page.console(), [])

    def open(self, **options):
        page.open("#/jobs/1", **options)
        page.wait(
            "the map",
            lambda: page.all(".map")
            and page.js("const i = document.querySelector('.map'); return i.complete && i.naturalWidth > 0"),
        )

    def test_10_the_form_asks_for_it(self):
        page.open()
        page.wait("models in the form", lambda: page.all(".model input"))
        page.wait("the task", lambda: page.all("#f-task option[value=frequency_use]"))
        page.choose("#f-task", "frequency_use")
        page.all(".model input[value=pope-demo]")[0].click()
        page.fill("#f-params-length", "128")
        page.js("document.querySelectorAll('#submit details').forEach((d) => { d.open = true; })")
        page.fill("#f-params-max_docs", "3")
        page.one("#submit-button").click()
        page.wait("its row", lambda: page.all(".job .chip.succeeded"), 60)
        job = server.get("/api/v1/jobs/1")
        self.assertEqual((job["task"], job["params"]["length"], job["params"]["max_docs"]), ("frequency_use", 128, 3))

    def test_20_a_jobs_page_shows_the_map_that_the_server_draws(self):
        self.open()
        self.assertEqual(page.text("#one"), "Use of frequencies")
        image = page.one(".map")
        self.assertEqual(image.get_attribute("src"), server.url + "/api/v1/jobs/1/frequencies.svg")
        self.assertIn("pope-demo on books", image.get_attribute("alt"))
        svg = server.text("/api/v1/jobs/1/frequencies.svg")
        self.assertEqual(svg.count("<title>layer "), 2 * 3 * 64)
        for link in page.all(".detail .tools a"):
            if link.is_displayed():
                server.text(link.get_attribute("href")[len(server.url) :])
        page.shoot("job-frequencies")

    def test_21_a_table_has_a_line_a_layer(self):
        self.open()
        metrics = server.get("/api/v1/jobs/1")["result"]["metrics"]
        rows = [[c.text for c in r.find_elements("css selector", "th,td")] for r in page.all(".numbers tbody tr")]
        self.assertEqual([r[0] for r in rows], ["0", "1", "2"])
        for row in rows:
            for at, part in ((1, "q"), (4, "k")):
                cells = [m for m in metrics if m["layer"] == int(row[0]) and m["part"] == part]
                most = max(cells, key=lambda m: m["value"])
                self.assertAlmostEqual(float(row[at]), sum(m["value"] for m in cells) / 64, delta=1e-3)
                self.assertAlmostEqual(float(row[at + 1]), most["value"], delta=1e-3)
                self.assertEqual(row[at + 2], f"{most['frequency']} (θ {most['theta']:.2g})")

    def test_30_it_stands_in_no_chart_of_several_jobs(self):
        page.open()
        page.wait("its row", lambda: page.all(".job .chip.succeeded"))
        self.assertTrue(page.one(".job .tick input").get_property("disabled"))

    def test_60_a_phone_needs_no_sideways_scrolling(self):
        self.open(width=360, height=740)
        self.assertEqual(page.js("return document.documentElement.scrollWidth"), 360)
        page.shoot("phone-frequencies")

    def test_61_the_dark_map_is_dark(self):
        self.open(dark=True)
        corner = page.js(
            """
            const image = document.querySelector('.map'), canvas = document.createElement('canvas');
            canvas.width = canvas.height = 4;
            const context = canvas.getContext('2d');
            context.drawImage(image, 0, 0, 4, 4, 0, 0, 4, 4);
            return [...context.getImageData(0, 0, 1, 1).data];"""
        )
        self.assertLess(sum(corner[:3]), 150)
        self.assertEqual(corner[3], 255)
        page.shoot("job-frequencies-dark")


if __name__ == "__main__":
    unittest.main()
