"""Known datasets: `fathom datasets fetch` against a local mirror, and what the API says of them.

The official LAMBADA and BLiMP files come from $FATHOM_DATA or build/data; without them these tests are skipped. Archives
are unpacked in tests/test_fetch.c, on rows of its own."""

import hashlib
import os
import shutil
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

from mirror import Mirror
from serving import FATHOM, ROOT, ServerTest

DATA = Path(os.environ.get("FATHOM_DATA", ROOT / "build" / "data"))
LAMBADA = DATA / "lambada" / "lambada_test.jsonl"
SIZE = 1819752


@unittest.skipUnless(LAMBADA.is_file(), "the official LAMBADA file is not here")
class Fetch(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="fathom-fetch-"))
        self.addCleanup(shutil.rmtree, self.folder)
        self.datasets = self.folder / "datasets"
        self.datasets.mkdir()
        self.published = self.folder / "published"
        (self.published / "lambada").mkdir(parents=True)
        shutil.copy(LAMBADA, self.published / "lambada")
        self.target = self.datasets / "lambada" / "lambada_test.jsonl"
        self.part = self.datasets / "lambada" / "lambada_test.jsonl.part"

    def mirror(self, *arguments, **more):
        mirror = Mirror(self.published, *arguments, **more)
        self.addCleanup(mirror.close)
        return mirror

    def fetch(self, mirror, *names):
        return subprocess.run([FATHOM, "datasets", "fetch", "--datasets", self.datasets, "--mirror", mirror.url,
                               *(names or ["lambada"])], capture_output=True, text=True, timeout=120)

    def check_there(self):
        self.assertEqual(self.target.read_bytes(), LAMBADA.read_bytes())
        self.assertEqual(sorted(p.name for p in self.target.parent.iterdir()), ["lambada_test.jsonl"])

    def test_a_download_that_breaks_off_goes_on_where_it_ended(self):
        self.datasets.rmdir()  # the first dataset makes it
        mirror = self.mirror([700_000, 500_000])
        done = self.fetch(mirror)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout, f"lambada: 5153 passages in {self.datasets}/lambada, checksums verified\n")
        self.check_there()
        path = "/lambada/lambada_test.jsonl"
        self.assertEqual(mirror.requests, [(path, None), (path, "bytes=700000-"), (path, "bytes=1200000-")])
        again = self.fetch(mirror)
        self.assertEqual((again.returncode, len(mirror.requests)), (0, 3), again.stderr)
        self.assertIn("all there already", again.stdout)

    def test_a_killed_download_goes_on_in_the_next_run(self):
        mirror = self.mirror([1_000_000])
        mirror.stall.set()
        process = subprocess.Popen([FATHOM, "datasets", "fetch", "lambada", f"--datasets={self.datasets}"],
                                   env={**os.environ, "FATHOM_MIRROR": mirror.url}, stderr=subprocess.DEVNULL)
        for _ in range(500):
            if self.part.exists() and self.part.stat().st_size == 1_000_000:
                break
            time.sleep(0.02)
        busy = self.fetch(mirror)
        self.assertEqual(busy.returncode, 2)
        self.assertIn("another fathom is writing", busy.stderr)
        process.kill()
        process.wait()
        mirror.stall.clear()
        self.assertFalse(self.target.exists())
        self.assertEqual(self.part.stat().st_size, 1_000_000)
        done = self.fetch(mirror)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(mirror.requests[-1][1], "bytes=1000000-")
        self.check_there()

    def test_a_server_without_ranges_sends_it_all_again(self):
        mirror = self.mirror([1_000_000], ranges=False)
        done = self.fetch(mirror)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.check_there()

    def test_a_server_without_ranges_that_never_comes_further_is_given_up(self):
        mirror = self.mirror([1000] * 1000, ranges=False)
        refused = self.fetch(mirror)
        self.assertEqual((refused.returncode, refused.stdout), (2, ""))
        self.assertIn("bytes are kept", refused.stderr)
        self.assertLess(len(mirror.requests), 12)

    def test_a_wrong_checksum_is_an_error_that_loses_nothing(self):
        wrong = bytearray(LAMBADA.read_bytes())
        wrong[1000] ^= 1
        (self.published / "lambada" / "lambada_test.jsonl").write_bytes(wrong)
        self.target.parent.mkdir()
        notes = self.target.parent / "notes.txt"
        notes.write_text("mine")
        refused = self.fetch(self.mirror())
        self.assertEqual((refused.returncode, refused.stdout), (2, ""))
        for words in ("lambada_test.jsonl is not the published file", hashlib.sha256(wrong).hexdigest(),
                      "4aa8d02cd17c719165fc8a7887fddd641f43fcafa4b1c806ca8abc31fabdb226"):
            self.assertIn(words, refused.stderr)
        self.assertFalse(self.target.exists() or self.part.exists())
        self.assertEqual((self.target.parent / "lambada_test.jsonl.rejected").read_bytes(), wrong)
        self.assertEqual(notes.read_text(), "mine")
        shutil.copy(LAMBADA, self.published / "lambada")
        self.assertEqual(self.fetch(self.mirror()).returncode, 0)
        self.assertEqual(self.target.read_bytes(), LAMBADA.read_bytes())

    def test_a_file_of_ones_own_is_not_replaced(self):
        self.target.parent.mkdir()
        self.target.write_text('{"text": "of my own"}\n')
        mirror = self.mirror()
        refused = self.fetch(mirror)
        self.assertEqual(refused.returncode, 2)
        self.assertIn("is there and is not the published file", refused.stderr)
        self.assertEqual(self.target.read_text(), '{"text": "of my own"}\n')
        self.assertEqual(mirror.requests, [])

    def test_what_a_server_has_not_or_has_too_much_of_is_refused(self):
        mirror = self.mirror()
        with (self.published / "lambada" / "lambada_test.jsonl").open("ab") as f:
            f.write(b"more")
        refused = self.fetch(mirror)
        self.assertEqual(refused.returncode, 2)
        self.assertIn(f"more than the {SIZE} bytes", refused.stderr)
        self.assertFalse(self.target.exists())
        self.assertEqual(self.part.read_bytes(), b"")  # nothing that the next attempt would go on from
        refused = self.fetch(mirror, "hellaswag")
        self.assertEqual((refused.returncode, len(mirror.requests)), (2, 2))
        self.assertIn("hellaswag_val.jsonl: the server answered 404", refused.stderr)
        refused = self.fetch(mirror, "no such")
        self.assertIn("no dataset 'no such' is known (there is: lambada, hellaswag, cbt", refused.stderr)

    def test_all_files_of_a_folder_are_fetched_and_those_that_are_there_are_kept(self):
        shutil.copytree(DATA / "blimp", self.published / "blimp")
        names = sorted(p.name for p in (DATA / "blimp").iterdir())
        (self.datasets / "blimp").mkdir()
        shutil.copy(DATA / "blimp" / names[5], self.datasets / "blimp")
        mirror = self.mirror([100, 100])
        done = self.fetch(mirror, "blimp")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("blimp: 67000 pairs in", done.stdout)
        self.assertEqual(sorted(p.name for p in (self.datasets / "blimp").iterdir()), names)
        self.assertEqual(len(mirror.requests), 66 + 2)
        self.assertNotIn((f"/blimp/{names[5]}", None), mirror.requests)


class Catalog(unittest.TestCase):
    def test_without_a_name_the_known_datasets_are_listed(self):
        done = subprocess.run([FATHOM, "datasets", "fetch"], capture_output=True, text=True, timeout=60)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertRegex(done.stdout, r"(?m)^lambada +lambada +5153 passages +1\.8  https://openaipublic\.")
        self.assertRegex(done.stdout, r"(?m)^cbt +cbt +10000 questions +120\.5  ")


@unittest.skipUnless(LAMBADA.is_file(), "the official LAMBADA file is not here")
class Listing(ServerTest):
    def test_the_api_says_what_is_official(self):
        folder = self.server.datasets
        (folder / "lambada").mkdir()
        shutil.copy(LAMBADA, folder / "lambada")
        shutil.copy(LAMBADA, folder / "mine.jsonl")
        (folder / "hellaswag").mkdir()
        (folder / "hellaswag" / "hellaswag_val.jsonl").write_text('{"x": 1}\n')
        listed = {d["name"]: d for d in self.server.get("/api/v1/datasets").json()["data"]}
        sha256 = hashlib.sha256(LAMBADA.read_bytes()).hexdigest()
        self.assertEqual(listed["mine.jsonl"]["sha256"], sha256)
        for name in ("lambada", "mine.jsonl"):
            self.assertEqual((listed[name]["known_as"], listed[name]["official"], listed[name]["n_items"]),
                             ("lambada", True, 5153))
        self.assertEqual((listed["hellaswag"]["known_as"], listed["hellaswag"]["official"],
                          listed["hellaswag"]["n_items"]), ("hellaswag", False, None))
        self.assertEqual((listed["books"]["known_as"], listed["books"]["official"]), (None, None))
        lines = "".join(f"{p.name} {p.stat().st_size} {hashlib.sha256(p.read_bytes()).hexdigest()}\n"
                        for p in sorted((folder / "books").iterdir()))
        self.assertEqual(listed["books"]["fingerprint"], "sha256:" + hashlib.sha256(lines.encode()).hexdigest())
        self.assertIsNone(listed["books"]["sha256"])
        table = self.server.run("datasets")
        self.assertRegex(table.stdout, r"(?m)^mine\.jsonl +jsonl +1 +1\.8  lambada, official$")
        self.assertRegex(table.stdout, r"(?m)^hellaswag +jsonl +1 +0\.0  hellaswag, not the official file")


if __name__ == "__main__":
    unittest.main()
