"""What the browser tests share: a real server with the demo models, a real Chromium, and ways to look at the page.

The program is $FATHOM, or build/fathom; its worker is a CPU. Screenshots go to build/screenshots/.
"""

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SHOTS = ROOT / "build" / "screenshots"
MODELS = ROOT / "eval" / "demo"

TEXTS = Path("/usr/share/common-licenses")  # English prose that every Debian machine has
BOOKS = ("GPL-2", "MPL-2.0", "Apache-2.0")


def missing():
    """What these tests need and is not here; an empty string when all is."""
    try:
        import selenium  # noqa: F401
    except ImportError:
        return "python3-selenium is not installed"
    for program in ("chromium", "chromedriver"):
        if not shutil.which(program):
            return f"{program} is not installed"
    if not all((TEXTS / name).is_file() for name in BOOKS):
        return f"no {', '.join(BOOKS)} in {TEXTS}"
    if not os.access(program_path(), os.X_OK):
        return f"{program_path()} is not built"
    if len(demo_models()) < 3:
        return f"fewer than three models in {MODELS.relative_to(ROOT)}"
    return ""


def program_path():
    return os.environ.get("FATHOM", str(ROOT / "build" / "fathom"))


def demo_models():
    """Names of the demo models, sorted."""
    return sorted(p.parent.name for p in MODELS.glob("*/config.json"))


def write_books(folder):
    folder.mkdir(parents=True)
    for name in BOOKS:
        (folder / f"{name}.txt").write_bytes((TEXTS / name).read_bytes())


class Server:
    """`fathom serve` on a free port, with its own data folder: over the demo models and some books, or with the given
    options alone."""

    def __init__(self, folder, options=()):
        if not options:
            write_books(folder / "datasets" / "books")
            options = ("--models", MODELS, "--datasets", folder / "datasets", "--workers", "cpu")
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = s.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        self.log = open(folder / "server.log", "w+")
        self.process = subprocess.Popen(
            [
                program_path(),
                "serve",
                "--listen",
                f"127.0.0.1:{port}",
                "--data",
                folder / "data",
                *options,
            ],
            stdout=self.log,
            stderr=self.log,
        )
        self.wait_until_up()

    def wait_until_up(self):
        for _ in range(200):
            if self.process.poll() is not None:
                break
            try:
                return self.get("/healthz")
            except OSError:
                time.sleep(0.05)
        self.log.seek(0)
        raise RuntimeError(f"the server did not start: {self.log.read()}")

    def get(self, path):
        with urllib.request.urlopen(self.url + path, timeout=10) as answer:
            return json.load(answer)

    def post(self, path, body=None):
        data = b"" if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(self.url + path, data=data, headers=headers)
        with urllib.request.urlopen(request, timeout=10) as answer:
            return json.load(answer)

    def cancelled_job(self, model):
        body = {
            "model": model,
            "task": "pg19",
            "dataset": "books",
            "params": {"lengths": [64]},
            "priority": -1,
        }
        return self.post(f"/api/v1/jobs/{self.post('/api/v1/jobs', body)['id']}/cancel")

    def text(self, path):
        with urllib.request.urlopen(self.url + path, timeout=10) as answer:
            return answer.read().decode()

    def stop(self):
        self.process.terminate()
        try:
            self.process.wait(15)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.log.close()


def start_browser(downloads):
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium")
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--hide-scrollbars"):
        options.add_argument(argument)
    options.add_experimental_option("prefs", {"download.default_directory": str(downloads)})
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    service = webdriver.chrome.service.Service(shutil.which("chromedriver"))
    driver = webdriver.Chrome(service=service, options=options)
    driver.execute_cdp_cmd(
        "Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(downloads)}
    )
    return driver


def launch(prepare=None):
    """For setUpModule: a server and the page of it in a browser, until the module's end. prepare(folder of datasets)
    comes before the server. Skips aloud where something is missing."""
    lacking = missing()
    if lacking:
        print(f"SKIP browser tests: {lacking}", file=sys.stderr)
        raise unittest.SkipTest(lacking)
    folder = tempfile.TemporaryDirectory()
    unittest.addModuleCleanup(folder.cleanup)
    downloads = Path(folder.name) / "downloads"
    downloads.mkdir()
    if prepare:
        (Path(folder.name) / "datasets").mkdir()
        prepare(Path(folder.name) / "datasets")
    server = Server(Path(folder.name))
    unittest.addModuleCleanup(server.stop)
    driver = start_browser(downloads)
    unittest.addModuleCleanup(driver.quit)
    return server, Page(driver, server.url, downloads)


class Page:
    """The page in a browser, seen as a user sees it."""

    def __init__(self, driver, url, downloads):
        self.driver = driver
        self.url = url
        self.downloads = downloads

    def open(self, route="#/", width=1280, height=900, dark=False):
        self.resize(width, height)
        self.driver.execute_cdp_cmd(
            "Emulation.setEmulatedMedia",
            {"features": [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]},
        )
        self.driver.get("about:blank")
        self.driver.get(f"{self.url}/{route}")

    def resize(self, width, height):
        self.driver.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600},
        )

    def js(self, code, *arguments):
        return self.driver.execute_script(code, *arguments)

    def all(self, css):
        return self.driver.find_elements("css selector", css)

    def one(self, css):
        return self.driver.find_element("css selector", css)

    def text(self, css):
        """Of the first, as it is seen; found again when it was drawn anew between the finding and the reading."""
        from selenium.common.exceptions import StaleElementReferenceException

        for _ in range(10):
            try:
                return self.one(css).text
            except StaleElementReferenceException:
                pass
        raise AssertionError(f"{css} is drawn anew without an end")

    def texts(self, css):
        """Of all that it selects, at one moment: for lists that change meanwhile."""
        return self.js("return [...document.querySelectorAll(arguments[0])].map((node) => node.textContent)", css)

    def wait(self, what, condition, seconds=30):
        """Waits until condition() is true and returns it; fails naming `what`. A condition that met an element which was
        drawn anew meanwhile is not yet true."""
        from selenium.common.exceptions import StaleElementReferenceException

        end = time.monotonic() + seconds
        while time.monotonic() < end:
            try:
                value = condition()
                if value:
                    return value
            except StaleElementReferenceException:
                pass
            time.sleep(0.1)
        raise AssertionError(f"not within {seconds} s: {what}")

    def choose(self, css, value):
        self.js(
            "arguments[0].value = arguments[1]; arguments[0].dispatchEvent(new Event('change', {bubbles: true}))",
            self.one(css),
            value,
        )

    def fill(self, css, text):
        field = self.one(css)
        field.clear()
        field.send_keys(text)

    def console(self, *expected):
        """Messages of the console, warnings and worse, without those that hold one of the expected words."""
        return [
            m["message"]
            for m in self.driver.get_log("browser")
            if m["level"] in ("WARNING", "SEVERE") and not any(word in m["message"] for word in expected)
        ]

    def shoot(self, name):
        """A picture of the whole page."""
        SHOTS.mkdir(parents=True, exist_ok=True)
        width = self.js("return innerWidth")
        self.resize(width, self.js("return Math.max(innerHeight, document.documentElement.scrollHeight)"))
        time.sleep(0.3)
        self.driver.save_screenshot(str(SHOTS / f"{name}.png"))
