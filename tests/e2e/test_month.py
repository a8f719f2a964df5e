"""A team's month: twenty checkpoints go through a gate, night after night, and the gate's errors are counted.

The checkpoints are a demo model with noise of rising size in its weights; what they are compared with is that model with some
noise, too, so that the first are better than it and the last worse. How much worse each truly is, is measured on a library of
documents. A gate that sees only a few documents errs; how often it may, follows from the statistics (protocol: pass if U < delta,
else fail if L > 0, with one-sided bounds from Student's t), and how often it does, is counted over many draws of documents, each
judged by the program.
"""

import json
import math
import random
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

import checkpoint
import prose
from serving import FATHOM, MODELS, Server

N_NIGHTS = 20
N_DOCUMENTS = 240  # of the library
N_DRAWN = 24       # that one gate sees
N_DRAWS = 400      # of them, for each checkpoint
DELTA = 0.02       # minimum effect: 2 % of perplexity
ALPHA = 0.05
LENGTH = 256
NOISE_OF_MAIN, FIRST_NOISE, LAST_NOISE = 0.06, 0.03, 0.09

GATE = {
    "name": "month",
    "measure": [{"id": "books", "task": "pg19", "dataset": "library", "params": {"lengths": [LENGTH]}, "engine": {"dtype": "f32"}}],
    "rules": [{"name": "no worse", "type": "relative", "metric": "ppl_token", "length": LENGTH, "min_effect": DELTA,
               "confidence": 1 - ALPHA}],
}


# -- the statistics, written anew from the protocol ---------------------------------------------------


def normal_cdf(x):
    return math.erfc(-x / math.sqrt(2)) / 2


def quantile(cdf, p, low, high):
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if cdf(middle) < p else (low, middle)
    return low


def chi2_points(df, n=400):
    """n equally likely values of chi-square: P(k/2, x/2), by the series of the incomplete gamma function."""
    def cdf(x):
        term = total = 1 / (df / 2)
        k = df / 2
        while term > 1e-16 * total:
            k += 1
            term *= x / 2 / k
            total += term
        return total * math.exp(-x / 2 + df / 2 * math.log(x / 2) - math.lgamma(df / 2))
    return [quantile(cdf, (k + 0.5) / n, 1e-9, 20 * df + 100) for k in range(n)]


def t_quantile(p, df):
    """Of Student's t, whose cdf is the mean of the normal's over the chi-square: Simpson's rule on its density instead."""
    scale = math.exp(math.lgamma((df + 1) / 2) - math.lgamma(df / 2)) / math.sqrt(df * math.pi)

    def cdf(x, n=2000):
        h = x / n
        f = [scale * (1 + (i * h) ** 2 / df) ** (-(df + 1) / 2) for i in range(n + 1)]
        return 0.5 + h / 3 * (f[0] + f[-1] + 4 * sum(f[1:-1:2]) + 2 * sum(f[2:-1:2]))
    return quantile(cdf, p, 0, 20)


def binomial_interval(n, p, level=0.99):
    """The counts between which `level` of all lie."""
    def log_pmf(k):
        return (math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
                + k * math.log(p) + (n - k) * math.log1p(-p))
    if not 0 < p < 1:
        return n * p, n * p
    total, low = 0, None
    for k in range(n + 1):
        total += math.exp(log_pmf(k))
        if low is None and total >= (1 - level) / 2:
            low = k
        if total >= 1 - (1 - level) / 2:
            return low, k
    return low, n


def ratio(pairs):
    """Delta and its standard error, clustered by document, of (nll_cand - nll_base, n)."""
    n = sum(w for _, w in pairs)
    delta = sum(d for d, _ in pairs) / n
    squares = sum((d - delta * w) ** 2 for d, w in pairs)
    return delta, math.sqrt(len(pairs) / (len(pairs) - 1) * squares) / n


def verdict_of(pairs):
    delta, se = ratio(pairs)
    t = t_quantile(1 - ALPHA, len(pairs) - 1)
    return "pass" if delta + t * se < DELTA else "fail" if delta - t * se > 0 else "inconclusive"


class Rates:
    """What a gate over N_DRAWN documents comes to, computed: the estimate is normal about the truth, and its squared
    standard error, independent of it, a chi-square."""

    def __init__(self):
        df = N_DRAWN - 1
        self.t = t_quantile(1 - ALPHA, df)
        self.scales = [math.sqrt(x / df) for x in chi2_points(df)]

    def of(self, pairs):
        n = sum(w for _, w in pairs) / len(pairs)
        truth = ratio(pairs)[0]
        sigma = math.sqrt(sum((d - truth * w) ** 2 for d, w in pairs) / len(pairs) / N_DRAWN) / n
        bounds = [self.t * s * sigma for s in self.scales]
        fails = sum(normal_cdf((truth - max(b, DELTA - b)) / sigma) for b in bounds) / len(bounds)
        passes = sum(normal_cdf((DELTA - b - truth) / sigma) for b in bounds) / len(bounds)
        return {"fail": fails, "pass": passes}


# -- the month ---------------------------------------------------------------------------------------


class Month(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = Path(tempfile.mkdtemp(prefix="fathom-month-"))
        cls.server = Server()
        prose.write_library(cls.server.datasets / "library", N_DOCUMENTS, sentences=(4, 9))
        (cls.folder / "gates.json").write_text(json.dumps(GATE))
        weights = checkpoint.read_safetensors(MODELS / "rope-demo" / "model.safetensors")
        noise = checkpoint.Noise()
        cls.add_model("main", noise.add(weights, NOISE_OF_MAIN, 0))
        cls.server_baseline()
        cls.nights = []
        for i in range(N_NIGHTS):
            size = FIRST_NOISE + (LAST_NOISE - FIRST_NOISE) * i / (N_NIGHTS - 1)
            name = f"night-{i + 1:02}"
            cls.add_model(name, noise.add(weights, size, i + 1))
            cls.nights.append(cls.gate(name))
            shutil.rmtree(cls.server.models / name)

    @classmethod
    def tearDownClass(cls):
        status, log = cls.server.close()
        shutil.rmtree(cls.folder)
        if status:
            raise AssertionError(log)

    @classmethod
    def add_model(cls, name, tensors):
        checkpoint.copy_model(MODELS / "rope-demo", cls.server.models / name, tensors)

    @classmethod
    def server_baseline(cls):
        done = cls.server.run("baseline", "make", "main", "--gate", str(cls.folder / "gates.json"), "--model", "main")
        if done.returncode:
            raise AssertionError(done.stderr)
        done = cls.server.run("baseline", "export", "main")
        (cls.main,) = json.loads(done.stdout)["results"]

    @classmethod
    def gate(cls, name):
        """One night: the exit status, the verdict, and the results with items."""
        out = cls.folder / "verdict.json"
        done = cls.server.run("gate", "--gate", str(cls.folder / "gates.json"), "--model", name, "--baseline", "main",
                              "--tag", "branch=main", "--tag", f"commit={name}", "--json", str(out))
        if done.returncode not in (0, 1, 3):
            raise AssertionError(done.stderr)
        verdict = json.loads(out.read_text())
        job = verdict["results"][0]["job"]
        items = cls.server.get(f"/api/v1/jobs/{job}/items").body.decode().splitlines()
        return done.returncode, verdict, {**cls.server.job(job)["result"], "items": [json.loads(line) for line in items]}

    @classmethod
    def pairs(cls, result):
        """(nll_cand - nll_base, n_tokens) of each document."""
        base = {i["key"]: i for i in cls.main["items"]}
        return [(i["nll"] - base[i["key"]]["nll"], i["n_tokens"]) for i in result["items"]]

    def test_each_nights_verdict_is_what_the_protocol_says(self):
        for status, verdict, result in self.nights:
            with self.subTest(night=result["model"]["name"]):
                pairs = self.pairs(result)
                self.assertEqual(len(pairs), N_DOCUMENTS)
                expected = verdict_of(pairs)
                self.assertEqual(verdict["verdict"], expected)
                self.assertEqual(status, {"pass": 0, "fail": 1, "inconclusive": 3}[expected])
                (rule,) = verdict["rules"]
                delta, se = ratio(pairs)
                self.assertAlmostEqual(rule["delta"], delta, delta=1e-9)
                self.assertAlmostEqual(rule["stderr"], se, delta=1e-9)
                self.assertEqual((verdict["commit"], verdict["branch"]), (result["model"]["name"], "main"))

    def draws(self):
        """(night, line of `fathom compare --lines`): independent draws of documents, with replacement."""
        base = {i["key"]: i for i in self.main["items"]}
        for night, (_, _, result) in enumerate(self.nights):
            rng = random.Random(1000 + night)
            documents = [(i, base[i["key"]]) for i in result["items"]]
            for _ in range(N_DRAWS):
                drawn = rng.choices(documents, k=N_DRAWN)
                yield night, json.dumps({"candidate": [evidence(result, [c for c, _ in drawn])],
                                         "baseline": [evidence(self.main, [b for _, b in drawn])]})

    def test_false_alarms_and_misses_are_as_many_as_computed(self):
        lines = self.folder / "draws.jsonl"
        nights = []
        with lines.open("w") as f:
            for night, line in self.draws():
                nights.append(night)
                f.write(line + "\n")
        with lines.open() as f:
            done = subprocess.run([FATHOM, "compare", "--gate", str(self.folder / "gates.json"), "--lines"], stdin=f,
                                  capture_output=True, text=True, timeout=300)
        self.assertEqual(done.returncode, 0, done.stderr)
        counts = [{"pass": 0, "fail": 0, "inconclusive": 0} for _ in self.nights]
        verdicts = done.stdout.splitlines()
        self.assertEqual(len(verdicts), N_NIGHTS * N_DRAWS)
        for night, line in zip(nights, verdicts):
            counts[night][json.loads(line)["verdict"]] += 1
        self.check(counts)

    def check(self, counts):
        rates = Rates()
        truths = [ratio(self.pairs(result))[0] for _, _, result in self.nights]
        computed = [rates.of(self.pairs(result)) for _, _, result in self.nights]
        print(f"\nA month: {N_NIGHTS} checkpoints, {N_DRAWS} draws of {N_DRAWN} documents each; minimum effect {DELTA}, "
              f"confidence {1 - ALPHA}\n  night     truth   fails (computed)   passes (computed)")
        for night, (count, truth, rate) in enumerate(zip(counts, truths, computed)):
            print(f"  {night + 1:5}  {truth:+.4f}     {count['fail']:4} ({N_DRAWS * rate['fail']:5.1f})"
                  f"        {count['pass']:4} ({N_DRAWS * rate['pass']:5.1f})")
        harmless = [i for i, truth in enumerate(truths) if truth <= 0]
        worse = [i for i, truth in enumerate(truths) if truth >= DELTA]
        self.assertGreaterEqual(len(harmless), 5)
        self.assertGreaterEqual(len(worse), 5)
        for what, nights, verdict in (("false alarms (fail, though no worse)", harmless, "fail"),
                                      ("misses (pass, though worse by the minimum effect)", worse, "pass"),
                                      ("worse ones caught (fail)", worse, "fail"),
                                      ("harmless ones passed (pass)", harmless, "pass")):
            n = len(nights) * N_DRAWS
            count = sum(counts[i][verdict] for i in nights)
            rate = sum(computed[i][verdict] for i in nights) / len(nights)
            low, high = binomial_interval(n, rate)
            print(f"  {what}: {count} of {n}; computed {n * rate:.1f}, 99 % of counts in {low} to {high}")
            with self.subTest(what=what):
                self.assertLessEqual(count, high)
                if what[0] != "f":
                    self.assertGreaterEqual(count, low)
                if what[0] in "fm":  # each of them alone: at most alpha, whatever is computed
                    for i in nights:
                        self.assertLessEqual(counts[i][verdict], binomial_interval(N_DRAWS, ALPHA)[1])


def evidence(result, items):
    """A result over these items alone; each is a document of its own, also where it was drawn twice."""
    n, nll = sum(i["n_tokens"] for i in items), sum(i["nll"] for i in items)
    metric = {"length": LENGTH, "n": n, "stderr": None}
    return {**{k: result[k] for k in ("schema", "model", "task", "dataset", "engine")},
            "metrics": [{"name": "nll_token", "value": nll / n, "unit": "nats/token", **metric},
                        {"name": "ppl_token", "value": math.exp(nll / n), "unit": "perplexity", **metric}],
            "items": [{"key": f"{k:016x}", "doc": str(k), "length": LENGTH, "n_tokens": i["n_tokens"], "n_bytes": i["n_bytes"],
                       "nll": i["nll"]} for k, i in enumerate(items)], "warnings": []}


if __name__ == "__main__":
    unittest.main()
