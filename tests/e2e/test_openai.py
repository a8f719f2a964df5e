"""The OpenAI-compatible endpoint: its contract, the same bits alone and in company, beside a running job, and through a worker's death.

Run: FATHOM=build/fathom python3 -m unittest discover -v -s tests/e2e -p test_openai.py
"""

import http.client
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from serving import FATHOM, MODELS, WORDS, Server, ServerTest, write_book  # noqa: E402

LIMIT = 256  # max_position_embeddings of the demo's models
N_VOCAB = 2048


def text_of(seed, n_words=30):
    return " ".join(random.Random(seed).choices(WORDS, k=n_words)).capitalize() + "."


def ids_of(seed, n):
    rng = random.Random(seed)
    return [rng.randrange(N_VOCAB) for _ in range(n)]


def scoring(prompt, **members):
    """What lm-eval sends."""
    return {"model": "rope-demo", "prompt": prompt, "temperature": 0, "max_tokens": 1, "logprobs": 1, "seed": 1234, "echo": True,
            **members}


class OpenAITest(ServerTest):
    def complete(self, body, status=200):
        reply = self.server.ask("POST", "/v1/completions", body)
        self.assertEqual(reply.status, status, reply.body)
        return reply.json()

    def choice(self, prompt, **members):
        return self.complete(scoring(prompt, **members))["choices"][0]

    def refused(self, body, status, words, param, path="/v1/completions"):
        reply = self.server.ask("POST", path, body)
        self.assertEqual(reply.status, status, reply.body)
        self.assertEqual(reply.headers["Content-Type"], "application/json")
        error = reply.json()["error"]
        self.assertEqual(sorted(error), ["code", "message", "param", "type"])
        self.assertIn(words, error["message"])
        self.assertEqual(error["param"], param)
        return error


class Contract(OpenAITest):
    def tokens_of(self, text):
        return self.server.ask("POST", "/tokenize?model=rope-demo", {"prompt": text, "add_special_tokens": False}).json()["tokens"]

    def test_prompt_and_generated_tokens_have_an_entry_each_and_the_first_is_null(self):
        ids = self.tokens_of(text_of(1))
        for n_new in (0, 1):
            found = self.choice([ids], max_tokens=n_new)["logprobs"]
            for name in ("tokens", "token_logprobs", "top_logprobs", "text_offset"):
                self.assertEqual(len(found[name]), len(ids) + n_new, name)
            self.assertIsNone(found["token_logprobs"][0])
            self.assertIsNone(found["top_logprobs"][0])
            self.assertTrue(all(v < 0 for v in found["token_logprobs"][1:]))

    def test_top_logprobs_hold_the_most_probable_token_and_the_token_itself(self):
        found = self.choice(ids_of(2, 100))["logprobs"]
        kinds = set()
        for token, value, top in list(zip(found["tokens"], found["token_logprobs"], found["top_logprobs"]))[1:]:
            self.assertEqual(top[token], value)
            self.assertIn(len(top), (1, 2))
            self.assertEqual(max(top.values()) == value, len(top) == 1)
            kinds.add(len(top))
        self.assertEqual(kinds, {1, 2})
        generated = found["top_logprobs"][-1]
        self.assertEqual(generated, {found["tokens"][-1]: found["token_logprobs"][-1]})
        only = self.choice(ids_of(2, 100), logprobs=0)["logprobs"]["top_logprobs"]
        self.assertEqual(only[1:], [{t: v} for t, v in zip(found["tokens"], found["token_logprobs"])][1:])

    def test_texts_ids_and_lists_of_either_are_prompts(self):
        texts = [text_of(3), text_of(4, 5), "Über naïve café—ñ 日本語"]
        lists = [self.tokens_of(t) for t in texts]
        want = [self.choice(t) for t in texts]
        self.assertEqual([self.choice(ids) for ids in lists], want)
        for many in (texts, lists, [texts[0], lists[1], texts[2]]):
            found = self.complete(scoring(many))
            self.assertEqual(found["choices"], [{**c, "index": i} for i, c in enumerate(want)])
        self.assertEqual(found["usage"], {"prompt_tokens": sum(map(len, lists)), "completion_tokens": 3,
                                          "total_tokens": sum(map(len, lists)) + 3})

    def test_offsets_are_characters_of_the_text(self):
        found = self.choice("Über naïve café—ñ. It was", max_tokens=0)
        text, offsets = found["text"], found["logprobs"]["text_offset"]
        self.assertEqual(text, "Über naïve café—ñ. It was")
        ends = offsets[1:] + [len(text)]
        for token, start, end in zip(found["logprobs"]["tokens"], offsets, ends):
            if not token.startswith("token_id:"):
                self.assertEqual(text[start:end], token)

    def test_every_id_has_a_key_of_its_own(self):
        keys = {}
        for start in range(0, N_VOCAB, 128):
            ids = list(range(start, start + 128))
            for i, key in zip(ids, self.choice(ids, max_tokens=0)["logprobs"]["tokens"]):
                keys.setdefault(key, set()).add(i)
        self.assertEqual(len(keys), N_VOCAB)
        by_number = [k for k in keys if k.startswith("token_id:")]
        self.assertTrue(all(keys[k] == {int(k.split(":")[1])} for k in by_number))
        # of 256 bytes, those from 0x80 on and zero are no text by themselves
        self.assertGreaterEqual(len(by_number), 129)

    def test_without_echo_only_what_is_generated_is_there(self):
        whole = self.choice(text_of(5), max_tokens=6)
        new = self.choice(text_of(5), max_tokens=6, echo=False)
        self.assertEqual(whole["text"], text_of(5) + new["text"])
        for name in ("tokens", "token_logprobs", "top_logprobs"):
            self.assertEqual(len(new["logprobs"][name]), 6)
            self.assertEqual(new["logprobs"][name], whole["logprobs"][name][-6:])
        self.assertEqual(new["logprobs"]["text_offset"][0], 0)
        self.assertIsNone(self.choice(text_of(5), logprobs=None)["logprobs"])

    def test_generated_tokens_are_the_most_probable_one_after_the_other(self):
        ids = self.tokens_of(text_of(6))
        found = self.choice(ids, max_tokens=16, echo=False)
        self.assertEqual(found["finish_reason"], "length")
        for token, value in zip(found["logprobs"]["tokens"], found["logprobs"]["token_logprobs"]):
            step = self.choice(ids, echo=False)["logprobs"]
            self.assertEqual((step["tokens"], step["token_logprobs"]), ([token], [value]))
            ids = ids + self.tokens_of(token)
        # scored as part of a prompt they have the same bits
        again = self.choice(ids, max_tokens=0)["logprobs"]
        self.assertEqual(again["token_logprobs"][-16:], found["logprobs"]["token_logprobs"])

    def test_a_stop_string_ends_the_text_before_it(self):
        text = self.choice(text_of(7), max_tokens=16, echo=False)["text"]
        stop = text[5:8]
        for given in (stop, ["never this", stop]):
            found = self.choice(text_of(7), max_tokens=16, echo=False, stop=given)
            self.assertEqual((found["text"], found["finish_reason"]), (text[:text.index(stop)], "stop"))
        whole = self.choice(text_of(7), max_tokens=16, stop=stop)
        self.assertEqual(whole["text"], text_of(7) + text[:text.index(stop)])

    def test_one_token_more_than_the_context_is_taken_and_two_are_not(self):
        ids = ids_of(8, LIMIT + 2)
        found = self.choice(ids[:LIMIT + 1])["logprobs"]
        self.assertEqual(len(found["token_logprobs"]), LIMIT + 2)
        self.assertTrue(all(v is not None for v in found["token_logprobs"][1:LIMIT + 1]))
        self.assertIsNone(found["token_logprobs"][-1])  # beyond the context
        self.assertEqual(self.choice(ids[:LIMIT])["logprobs"]["token_logprobs"][:-1], found["token_logprobs"][:LIMIT])
        error = self.refused(scoring(ids), 400, f"{LIMIT + 2} tokens are more than the {LIMIT + 1}", "prompt")
        self.assertEqual(error["type"], "invalid_request_error")

    def test_what_only_changes_the_drawing_of_tokens_is_ignored(self):
        want = self.choice(ids_of(9, 20))
        self.assertEqual(self.choice(ids_of(9, 20), temperature=1.5, top_p=0.1, seed=None, user="x", n=1, stream=False,
                                     presence_penalty=1, whatever={"a": [1]}), want)

    def test_wrong_requests_are_refused_with_the_member(self):
        for change, status, words, param in (
                ({"model": "nope"}, 404, "nope", "model"),
                ({"model": "../rope-demo"}, 404, "rope-demo", "model"),
                ({"model": 3}, 400, "model is number", "model"),
                ({"prompt": ""}, 400, "prompt 0: it has no token", "prompt"),
                ({"prompt": []}, 400, "prompt is empty", "prompt"),
                ({"prompt": [[]]}, 400, "prompt 0 is empty", "prompt"),
                ({"prompt": None}, 400, "prompt is null", "prompt"),
                ({"prompt": {"a": 1}}, 400, "prompt is object", "prompt"),
                ({"prompt": [[1, 2], [3, -4]]}, 400, "prompt 1 has an element that is not a token id", "prompt"),
                ({"prompt": [1, 2.5]}, 400, "prompt 0 has an element", "prompt"),
                ({"prompt": [1, "a"]}, 400, "prompt 0 has an element", "prompt"),
                ({"prompt": [[1, N_VOCAB]]}, 400, f"token id {N_VOCAB} at position 1", "prompt"),
                ({"prompt": [[1]] * 2049}, 400, "more than 2048 prompts", "prompt"),
                ({"max_tokens": 17}, 400, "from 0 to 16", "max_tokens"),
                ({"max_tokens": -1}, 400, "from 0 to 16", "max_tokens"),
                ({"logprobs": 5}, 400, "from 0 to 1", "logprobs"),
                ({"logprobs": True}, 400, "from 0 to 1", "logprobs"),
                ({"n": 2}, 400, "one answer", "n"),
                ({"stream": True}, 400, "not streamed", "stream"),
                ({"echo": "yes"}, 400, "echo is string", "echo"),
                ({"stop": 3}, 400, "stop", "stop"),
                ({"suffix": "x"}, 400, "suffix", "suffix"),
                ({"logit_bias": {"1": 5}}, 400, "logit_bias", "logit_bias")):
            with self.subTest(change):
                self.refused(scoring("It was", **{}) | change, status, words, param)
        missing = self.refused({"prompt": "a"}, 400, "model is absent", "model")
        self.assertEqual(missing["type"], "invalid_request_error")
        self.assertEqual(self.refused(scoring("a", model="nope"), 404, "nope", "model")["code"], "model_not_found")
        self.refused("[1]", 400, "array, not an object", None)
        self.refused('{"model":', 400, "JSON", None)
        self.refused('{"model":"rope-demo","prompt":"a\\u0000b"}', 400, "JSON", None)
        self.refused("x" * (4 << 20) + "xx", 413, "larger than", None)
        self.assertEqual(self.server.get("/v1/completions").status, 405)
        self.assertEqual(self.server.get("/v1/nothing").json()["error"]["type"], "invalid_request_error")

    def test_one_bad_prompt_does_not_touch_others(self):
        with ThreadPoolExecutor(8) as pool:
            bad = pool.map(lambda i: self.server.ask("POST", "/v1/completions", scoring([[1, N_VOCAB + i]])).status, range(8))
            good = pool.map(lambda i: self.choice(ids_of(10, 30)), range(8))
            self.assertEqual(set(bad), {400})
            self.assertEqual(len({json.dumps(g) for g in good}), 1)

    def test_models_are_listed(self):
        listed = self.server.get("/v1/models").json()
        self.assertEqual(listed["object"], "list")
        self.assertEqual([m["id"] for m in listed["data"]], ["pope-demo", "rope-demo", "yarn-demo"])
        self.assertTrue(all(m["object"] == "model" and m["created"] > 0 for m in listed["data"]))
        self.assertEqual(self.server.get("/v1/models/pope-demo").json()["id"], "pope-demo")
        missing = self.server.get("/v1/models/nope")
        self.assertEqual((missing.status, missing.json()["error"]["code"]), (404, "model_not_found"))


class Tokens(OpenAITest):
    def tokenize(self, **members):
        return self.server.ask("POST", "/tokenize", {"model": "rope-demo", **members}).json()["tokens"]

    def test_text_and_ids_lead_to_each_other(self):
        for text in (text_of(1), "", "naïve\n  日本語 👋", "a<|endoftext|>b"):
            ids = self.tokenize(prompt=text, add_special_tokens=False)
            want = subprocess.run([FATHOM, "tokenize", "--model", MODELS / "rope-demo", "--json"], input=text, text=True,
                                  capture_output=True, check=True).stdout
            if text != "a<|endoftext|>b":  # the command takes text as it is
                self.assertEqual(ids, json.loads(want)["ids"] if "ids" in want else json.loads(want))
            back = self.server.ask("POST", "/detokenize?model=rope-demo", {"tokens": ids}).json()
            self.assertEqual(back, {"prompt": text})

    def test_a_special_tokens_text_is_its_id(self):
        self.assertEqual(self.tokenize(prompt="<|endoftext|>", add_special_tokens=False), [0])

    def test_half_a_character_is_replaced(self):
        ids = self.tokenize(prompt="👋", add_special_tokens=False)
        self.assertGreater(len(ids), 1)
        back = self.server.ask("POST", "/detokenize", {"model": "rope-demo", "tokens": ids[:1]}).json()["prompt"]
        self.assertIn("\N{REPLACEMENT CHARACTER}", back)

    def test_the_checkpoint_says_what_its_special_tokens_are(self):
        info = self.server.get("/tokenizer_info?model=rope-demo").json()
        self.assertEqual(info, {"eos_token": "<|endoftext|>", "bos_token": None, "pad_token": None, "chat_template": None})
        folder = self.server.models / "chatty"
        folder.mkdir()
        for name in ("config.json", "tokenizer.json", "model.safetensors"):
            (folder / name).write_bytes((MODELS / "rope-demo" / name).read_bytes())
        (folder / "tokenizer_config.json").write_text(json.dumps(
            {"bos_token": {"content": "<s>", "lstrip": False}, "pad_token": "<pad>",
             "chat_template": [{"name": "tool", "template": "T"}, {"name": "default", "template": "{{ messages }}"}]}))
        try:
            info = self.server.get("/tokenizer_info?model=chatty").json()
        finally:
            for file in folder.iterdir():
                file.unlink()
            folder.rmdir()
        self.assertEqual(info, {"eos_token": "<|endoftext|>", "bos_token": "<s>", "pad_token": "<pad>",
                                "chat_template": "{{ messages }}"})

    def test_wrong_requests_are_refused(self):
        for path, body, status, words, param in (
                ("/tokenize", {"model": "rope-demo"}, 400, "prompt is absent", "prompt"),
                ("/tokenize", {"model": "rope-demo", "prompt": 3}, 400, "prompt is number", "prompt"),
                ("/tokenize", {"model": "rope-demo", "prompt": "a", "add_special_tokens": "no"}, 400,
                 "add_special_tokens is string, want true or false", "add_special_tokens"),
                ("/tokenize", {"model": "rope-demo", "prompt": "a", "add_special_tokens": 0}, 400,
                 "add_special_tokens is number", "add_special_tokens"),
                ("/tokenize", {"model": "nope", "prompt": "a"}, 404, "nope", "model"),
                ("/tokenize", {"model": 3, "prompt": "a"}, 400, "model is number", "model"),
                ("/detokenize", {"model": "rope-demo"}, 400, "tokens is absent", "tokens"),
                ("/detokenize", {"model": "rope-demo", "tokens": [N_VOCAB]}, 400, "not a token id", "tokens"),
                ("/detokenize", {"model": "rope-demo", "tokens": ["a"]}, 400, "not a token id", "tokens")):
            with self.subTest(body):
                self.refused(body, status, words, param, path)


class WhichModel(unittest.TestCase):
    """Tokenizer requests without a model's name."""

    def test_the_only_model_or_the_last_one_asked(self):
        server = Server()
        try:
            reply = server.get("/tokenizer_info")
            self.assertEqual((reply.status, reply.json()["error"]["param"]), (400, "model"))
            self.assertIn("several models", reply.json()["error"]["message"])
            self.assertEqual(server.ask("POST", "/v1/completions", scoring("It was", model="pope-demo")).status, 200)
            self.assertEqual(server.get("/tokenizer_info").json()["eos_token"], "<|endoftext|>")
            for name in ("rope-demo", "yarn-demo"):
                for file in (server.models / name).iterdir():
                    file.unlink()
                (server.models / name).rmdir()
            server.stop()
            server.start()
            self.assertEqual(server.get("/tokenizer_info").json()["eos_token"], "<|endoftext|>")
        finally:
            server.close()


class Company(OpenAITest):
    """Many at once, beside jobs, and while workers die."""

    def test_thirty_two_connections_get_the_bits_of_one(self):
        base = ids_of(20, 200)
        rng = random.Random(21)
        prompts = [base[:rng.randrange(1, 200)] + ids_of(100 + i, rng.randrange(1, 50)) for i in range(160)]
        alone = [self.choice(p) for p in prompts]
        with ThreadPoolExecutor(32) as pool:
            self.assertEqual(list(pool.map(self.choice, prompts)), alone)
        self.assertEqual([c for i in range(0, 160, 16) for c in self.complete(scoring(prompts[i:i + 16]))["choices"]],
                         [{**c, "index": i % 16} for i, c in enumerate(alone)])

    def test_scores_are_those_of_fathom_run(self):
        with tempfile.TemporaryDirectory() as folder:
            write_book(Path(folder) / "book.txt", 700, 5)
            text = (Path(folder) / "book.txt").read_text()
            items = Path(folder) / "items.jsonl"
            subprocess.run([FATHOM, "run", "--model", MODELS / "rope-demo", "--data", Path(folder) / "book.txt", "--device", "cpu",
                            "--task", "pg19", "--set", "lengths=128", "--set", "protocol=prefix", "--items", items],
                           check=True, capture_output=True, env={**os.environ, "TSAN_OPTIONS": "exitcode=0"})  # oneDNN's races
            item = json.loads(items.read_text().splitlines()[0])
        found = self.choice(text, max_tokens=0)["logprobs"]["token_logprobs"]
        self.assertGreater(len(found), 129)
        self.assertEqual(-sum(found[1:129]), item["nll"])

    def test_a_running_job_gives_way_between_batches(self):
        write_book(self.server.datasets / "long" / "a.txt", 3000000, 3)
        prompts = [ids_of(200 + i, 60) for i in range(16)]
        alone = [self.choice(p) for p in prompts]
        for model in ("rope-demo", "pope-demo"):  # the requests' model, and another
            job = self.server.submit(model=model, dataset="long", params={"lengths": [256]})["id"]
            while not self.server.job(job)["progress"]["done"]:
                time.sleep(0.02)
            with ThreadPoolExecutor(8) as pool:
                self.assertEqual(list(pool.map(self.choice, prompts)), alone)
            self.assertEqual(self.server.job(job)["state"], "running", "the job is too short for this test")
            self.server.ask("POST", f"/api/v1/jobs/{job}/cancel")
            self.assertEqual(self.server.wait(job)["state"], "cancelled")

    def test_a_job_beside_requests_has_the_same_result(self):
        write_book(self.server.datasets / "short" / "a.txt", 100000, 3)
        prompts = [ids_of(250 + i, 60) for i in range(8)]
        for model, task, params in (("rope-demo", "pg19", {"lengths": [64, 256]}), ("pope-demo", "pg19", {"lengths": [64, 256]}),
                                    ("rope-demo", "frequency_use", {})):
            body = {"model": model, "task": task, "dataset": "short", "params": params}
            want = self.server.wait(self.server.submit(**body)["id"])["result"]["metrics"]
            job = self.server.submit(**body)["id"]
            n = 0
            with ThreadPoolExecutor(8) as pool:
                while self.server.job(job)["state"] in ("queued", "running"):
                    list(pool.map(self.choice, prompts))
                    n += 1
            self.assertGreater(n, 1)
            self.assertEqual(self.server.job(job)["result"]["metrics"], want)

    def test_a_cancel_of_the_job_does_not_touch_requests(self):
        write_book(self.server.datasets / "long2" / "a.txt", 400000, 3)
        prompts = [ids_of(300 + i, 200) for i in range(64)]
        alone = [self.choice(p) for p in prompts]
        for _ in range(3):
            job = self.server.submit(dataset="long2", params={"lengths": [256]})["id"]
            while not self.server.job(job)["progress"]["done"]:
                time.sleep(0.02)
            with ThreadPoolExecutor(16) as pool:
                found = pool.map(self.choice, prompts)
                time.sleep(0.1)
                begun = time.monotonic()
                self.server.ask("POST", f"/api/v1/jobs/{job}/cancel")
                self.assertEqual(self.server.wait(job)["state"], "cancelled")
                self.assertLess(time.monotonic() - begun, 8)
                self.assertEqual(list(found), alone)
        self.assertNotIn("killed", self.server.log_text())

    def test_kill_9_of_the_worker_loses_no_request(self):
        prompts = [ids_of(400 + i, 150) for i in range(48)]
        alone = [self.choice(p) for p in prompts]
        for _ in range(3):
            with ThreadPoolExecutor(24) as pool:
                found = pool.map(self.choice, prompts)
                killed = 0
                while not killed:
                    worker = self.server.get("/api/v1/workers").json()["data"][0]
                    if worker["requests"] and worker["pid"]:
                        os.kill(worker["pid"], signal.SIGKILL)
                        killed += 1
                self.assertEqual(list(found), alone)

    def test_kill_9_of_the_tokenizers_worker_is_not_seen(self):
        body = {"model": "rope-demo", "prompt": text_of(1)}
        want = self.server.ask("POST", "/tokenize", body).json()
        pids = subprocess.run(["pgrep", "-P", str(self.server.process.pid), "-f", "worker --device none"], capture_output=True,
                              text=True, check=True).stdout.split()
        for pid in pids:
            os.kill(int(pid), signal.SIGKILL)
        self.assertEqual(self.server.ask("POST", "/tokenize", body).json(), want)


class NoWorker(unittest.TestCase):
    def test_without_a_worker_that_works_a_request_is_a_503(self):
        server = Server("--workers", "cuda:7")
        try:
            for _ in range(2):
                reply = server.ask("POST", "/v1/completions", scoring("It was"))
                self.assertEqual(reply.status, 503, reply.body)
                self.assertIn("no worker is up", reply.json()["error"]["message"])
                self.assertEqual(reply.headers["Retry-After"], "2")
        finally:
            server.close()

    def test_a_request_that_kills_every_worker_is_given_up_and_others_are_answered(self):
        """The worker is a proxy that dies when it sees a certain prompt."""
        folder = Path(tempfile.mkdtemp(prefix="fathom-e2e-"))
        script = folder / "deadly.py"
        script.write_text(
            "import os, subprocess, sys, threading\n"
            "worker = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE)\n"
            "for line in sys.stdin.buffer:\n"
            "    if b'DEADLY' in line:\n"
            "        worker.kill(); os._exit(1)\n"
            "    worker.stdin.write(line); worker.stdin.flush()\n"
            "worker.stdin.close(); worker.wait()\n")
        server = Server()
        server.stop()
        server.options = ["--workers", f"{sys.executable} {script} {FATHOM} worker --device cpu --models {server.models}"]
        server.start()
        try:
            with ThreadPoolExecutor(9) as pool:
                bad = pool.submit(server.ask, "POST", "/v1/completions", scoring("a DEADLY prompt"))
                good = list(pool.map(lambda i: server.ask("POST", "/v1/completions", scoring(ids_of(i, 20))).status, range(8)))
            self.assertEqual(good, [200] * 8)
            self.assertEqual(bad.result().status, 503)
            self.assertIn("tried 3 times", bad.result().json()["error"]["message"])
            self.assertEqual(server.ask("POST", "/v1/completions", scoring("It was")).status, 200)
        finally:
            server.close()
            script.unlink()
            folder.rmdir()

    def test_stopping_the_server_answers_who_waits(self):
        server = Server()
        write_book(server.datasets / "long" / "a.txt", 400000, 3)
        job = server.submit(dataset="long", params={"lengths": [256]})["id"]
        while not server.job(job)["progress"]["done"]:
            time.sleep(0.02)
        with ThreadPoolExecutor(8) as pool:
            waiting = [pool.submit(server.ask, "POST", "/v1/completions", scoring([ids_of(i, 250)] * 200)) for i in range(8)]
            time.sleep(0.2)
            status = server.stop()
            self.assertEqual(status, 0)
            self.assertTrue({w.result().status for w in waiting} <= {200, 503})
        server.process = subprocess.Popen(["true"])
        server.log = open(server.folder / "log")
        server.close()


class Crowd(OpenAITest):
    def test_more_than_can_wait_are_told_to_come_back(self):
        """A stopped worker answers nobody: of 300 requests those beyond 256 are refused, and the rest answered once it goes on."""
        prompt = ids_of(1, 30)
        want = self.choice(prompt)
        pid = self.server.get("/api/v1/workers").json()["data"][0]["pid"]
        statuses, bodies, lock = [], set(), threading.Lock()

        def ask():
            reply = self.server.ask("POST", "/v1/completions", scoring(prompt))
            with lock:
                statuses.append(reply.status)
                if reply.status == 200:
                    bodies.add(json.dumps(reply.json()["choices"][0]))
                else:
                    self.retry = reply.headers["Retry-After"]

        os.kill(pid, signal.SIGSTOP)
        threads = [threading.Thread(target=ask) for _ in range(300)]
        for t in threads:
            t.start()
        deadline = time.monotonic() + 30
        while len(statuses) < 44 and time.monotonic() < deadline:
            time.sleep(0.02)
        refused = list(statuses)
        os.kill(pid, signal.SIGCONT)
        for t in threads:
            t.join()
        self.assertEqual(refused, [429] * 44)
        self.assertEqual(self.retry, "1")
        self.assertEqual(sorted(statuses), [200] * 256 + [429] * 44)
        self.assertEqual(bodies, {json.dumps(want)})

    def test_a_client_that_leaves_does_not_hold_a_place(self):
        for _ in range(5):
            connection = http.client.HTTPConnection("127.0.0.1", self.server.port)
            connection.request("POST", "/v1/completions", json.dumps(scoring([ids_of(1, 200)] * 50)))
            connection.close()
        self.assertEqual(len(self.choice(ids_of(2, 10))["logprobs"]["tokens"]), 11)


if __name__ == "__main__":
    unittest.main()
