"""A team's month: twenty checkpoints go through a gate, night after night, and the gate's errors are counted.

The checkpoints are a demo model with noise of rising size in its weights; what they are compared with is that model with some
noise, too, so that the first are better than it and the last worse. How much worse each truly is, is measured on a library of
documents and a list of questions. A gate that sees only a few of them errs. How often it may, follows from the protocol (pass if
U < delta; else fail if p <= alpha; else inconclusive) and is computed here from the truth, with formulas of our own; how often it
does, is counted over many draws of documents and questions, each judged by the program.
"""

import json
import math
import random
import shutil
import subprocess
import tempfile
import unittest
from functools import lru_cache
from pathlib import Path

import checkpoint
import prose
from serving import FATHOM, MODELS, Server

N_NIGHTS = 20
N_DRAWS = 400  # for each checkpoint
ALPHA = 0.05
LENGTH = 256
NOISE_OF_MAIN, FIRST_NOISE, LAST_NOISE = 0.06, 0.03, 0.3


# -- distributions -----------------------------------------------------------------------------------


def normal_cdf(x):
    return math.erfc(-x / math.sqrt(2)) / 2


def t_cdf(x, df, n=2000):
    """Simpson's rule on the density."""
    scale = math.exp(math.lgamma((df + 1) / 2) - math.lgamma(df / 2)) / math.sqrt(df * math.pi)
    h = x / n
    f = [scale * (1 + (i * h) ** 2 / df) ** (-(df + 1) / 2) for i in range(n + 1)]
    return 0.5 + h / 3 * (f[0] + f[-1] + 4 * sum(f[1:-1:2]) + 2 * sum(f[2:-1:2]))


def chi2_cdf(x, df):
    """The series of the incomplete gamma function."""
    term = total = 1 / (df / 2)
    k = df / 2
    while term > 1e-16 * total:
        k += 1
        term *= x / 2 / k
        total += term
    return total * math.exp(-x / 2 + df / 2 * math.log(x / 2) - math.lgamma(df / 2))


def root(f, low, high):
    """Where a function that is negative at low becomes positive."""
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if f(middle) < 0 else (low, middle)
    return (low + high) / 2


@lru_cache
def t_quantile(p, df):
    return root(lambda x: t_cdf(x, df) - p, 0, 20)


def log_binomial(k, n, p):
    return (math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
            + (k * math.log(p) if k else 0) + ((n - k) * math.log1p(-p) if n > k else 0))


def binomial_interval(n, p, level=0.99):
    """The counts between which `level` of all lie."""
    if not 0 < p < 1:
        return n * p, n * p
    total, low = 0, None
    for k in range(n + 1):
        total += math.exp(log_binomial(k, n, p))
        if low is None and total >= (1 - level) / 2:
            low = k
        if total >= 1 - (1 - level) / 2:
            return low, k
    return low, n


# -- the two kinds of comparison ---------------------------------------------------------------------


class Books:
    """Perplexity of documents. A pair is (nll_cand - nll_base, tokens)."""

    name, delta, n_all, n_drawn = "books", 0.007, 200, 32
    members = ("length", "n_tokens", "n_bytes", "nll")  # of an item
    measure = {"id": "books", "task": "pg19", "dataset": "library", "params": {"lengths": [LENGTH]}, "engine": {"dtype": "f32"}}
    rule = {"name": "no worse", "type": "relative", "measure": "books", "metric": "ppl_token", "length": LENGTH, "min_effect": delta,
            "confidence": 1 - ALPHA}

    @staticmethod
    def write(folder):
        prose.write_library(folder / "library", Books.n_all, sentences=(4, 9))

    @staticmethod
    def pair(cand, base):
        return cand["nll"] - base["nll"], cand["n_tokens"]

    @staticmethod
    def estimate(pairs):
        """The log-ratio of perplexities, and its standard error, clustered by document."""
        n = sum(w for _, w in pairs)
        delta = sum(d for d, _ in pairs) / n
        squares = sum((d - delta * w) ** 2 for d, w in pairs)
        return delta, math.sqrt(len(pairs) / (len(pairs) - 1) * squares) / n

    @staticmethod
    def truth(pairs):
        return Books.estimate(pairs)[0]

    @staticmethod
    def upper_and_p(pairs):
        delta, se = Books.estimate(pairs)
        df = len(pairs) - 1
        return delta + t_quantile(1 - ALPHA, df) * se, 1 - t_cdf(delta / se, df)

    @staticmethod
    def rates(pairs):
        """Of n_drawn documents, the estimate is normal about the truth, and its squared standard error, independent of it, a
        chi-square: the mean over equally likely ones."""
        df = Books.n_drawn - 1
        mean = sum(w for _, w in pairs) / len(pairs)
        truth = Books.truth(pairs)
        sigma = math.sqrt(sum((d - truth * w) ** 2 for d, w in pairs) / len(pairs) / Books.n_drawn) / mean
        bounds = [t_quantile(1 - ALPHA, df) * s * sigma for s in Books.scales(df)]
        return {"fail": sum(normal_cdf((truth - max(b, Books.delta - b)) / sigma) for b in bounds) / len(bounds),
                "pass": sum(normal_cdf((Books.delta - b - truth) / sigma) for b in bounds) / len(bounds)}

    @staticmethod
    @lru_cache
    def scales(df, n=400):
        return [math.sqrt(root(lambda x, p=(k + 0.5) / n: chi2_cdf(x, df) - p, 1e-9, 20 * df) / df) for k in range(n)]

    @staticmethod
    def metrics(items):
        n, nll = sum(i["n_tokens"] for i in items), sum(i["nll"] for i in items)
        return [{"name": "ppl_token", "length": LENGTH, "value": math.exp(nll / n), "stderr": None, "n": n, "unit": "perplexity"}]


class Questions:
    """Accuracy. A pair is +1 where only the baseline is right, -1 where only the candidate is, else 0."""

    name, delta, n_all, n_drawn = "questions", 0.05, 300, 80
    members = ("correct",)
    measure = {"id": "questions", "task": "choices", "dataset": "questions.jsonl", "engine": {"dtype": "f32"}}
    rule = {"name": "as right", "type": "relative", "measure": "questions", "metric": "acc", "min_effect": delta,
            "confidence": 1 - ALPHA}

    @staticmethod
    def write(folder):
        prose.write_questions(folder / "questions.jsonl", Questions.n_all)

    @staticmethod
    def pair(cand, base):
        return base["correct"] - cand["correct"]

    @staticmethod
    def truth(pairs):
        return sum(pairs) / len(pairs)

    @staticmethod
    def upper_and_p(pairs):
        return Questions.of_counts(pairs.count(1), pairs.count(-1), len(pairs))

    @staticmethod
    @lru_cache(None)
    def of_counts(worse, better, n):
        """Tango's score bound, and the exact one-sided McNemar test."""
        z = root(lambda x: normal_cdf(x) - (1 - ALPHA), 0, 10)

        def rejects(x):  # positive where the data reject a worsening of x or more
            b = -worse - better + (2 * n - worse + better) * x
            q = (math.sqrt(b * b + 8 * n * better * x * (1 - x)) - b) / (4 * n)
            return (n * x - worse + better) / math.sqrt(n * (2 * q + x * (1 - x))) - z
        m = worse + better
        p = sum(math.comb(m, k) for k in range(worse, m + 1)) / 2 ** m
        return (0 if not m else root(rejects, (worse - better) / n, 1 - 1e-12)), p

    @staticmethod
    def rates(pairs):
        """Over all counts that may be drawn."""
        p, q, n = pairs.count(1) / len(pairs), pairs.count(-1) / len(pairs), Questions.n_drawn
        out = {"pass": 0, "fail": 0}
        for worse in range(n + 1):
            first = math.exp(log_binomial(worse, n, p)) if p else float(not worse)
            for better in range(n - worse + 1) if first > 1e-12 else ():
                second = math.exp(log_binomial(better, n - worse, q / (1 - p))) if q else float(not better)
                if second > 1e-12:
                    verdict = verdict_of(Questions, *Questions.of_counts(worse, better, n))
                    out[verdict] = out.get(verdict, 0) + first * second
        return out

    @staticmethod
    def metrics(items):
        return [{"name": "acc", "value": sum(i["correct"] for i in items) / len(items), "stderr": None, "n": len(items),
                 "unit": "fraction"}]


PARTS = (Books, Questions)


def verdict_of(part, upper, p):
    return "pass" if upper < part.delta else "fail" if p <= ALPHA else "inconclusive"


def holm(p):
    """Adjusted values."""
    out, at_least = [0] * len(p), 0
    for rank, i in enumerate(sorted(range(len(p)), key=p.__getitem__)):
        at_least = out[i] = max(at_least, min(1, (len(p) - rank) * p[i]))
    return out


# -- the month ---------------------------------------------------------------------------------------


class Month(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = Path(tempfile.mkdtemp(prefix="fathom-month-"))
        cls.server = Server()
        for part in PARTS:
            part.write(cls.server.datasets)
            cls.write_gate(part.name, part)
        cls.write_gate("month", *PARTS)
        weights = checkpoint.read_safetensors(MODELS / "rope-demo" / "model.safetensors")
        noise = checkpoint.Noise()
        cls.add_model("main", noise.add(weights, NOISE_OF_MAIN, 0))
        cls.client("baseline", "make", "main", "--gate", cls.folder / "month.json", "--model", "main")
        cls.main = json.loads(cls.client("baseline", "export", "main").stdout)["results"]
        cls.nights = []
        for i in range(N_NIGHTS):
            name = f"night-{i + 1:02}"
            cls.add_model(name, noise.add(weights, FIRST_NOISE * (LAST_NOISE / FIRST_NOISE) ** (i / (N_NIGHTS - 1)), i + 1))
            cls.nights.append(cls.gate(name))
            shutil.rmtree(cls.server.models / name)

    @classmethod
    def tearDownClass(cls):
        status, log = cls.server.close()
        shutil.rmtree(cls.folder)
        if status:
            raise AssertionError(log)

    @classmethod
    def write_gate(cls, name, *parts):
        (cls.folder / f"{name}.json").write_text(json.dumps(
            {"name": name, "measure": [p.measure for p in parts], "rules": [p.rule for p in parts]}))

    @classmethod
    def add_model(cls, name, tensors):
        checkpoint.copy_model(MODELS / "rope-demo", cls.server.models / name, tensors)

    @classmethod
    def client(cls, *arguments, may=(0,)):
        done = cls.server.run(*map(str, arguments))
        if done.returncode not in may:
            raise AssertionError(f"{arguments}: {done.returncode}\n{done.stderr}")
        return done

    @classmethod
    def gate(cls, name):
        """One night: the exit status, the verdict, and the results with their items."""
        out = cls.folder / "verdict.json"
        done = cls.client("gate", "--gate", cls.folder / "month.json", "--model", name, "--baseline", "main", "--tag", "branch=main",
                          "--tag", f"commit={name}", "--json", out, may=(0, 1, 3))
        verdict = json.loads(out.read_text())
        results = []
        for measured in verdict["results"]:
            items = cls.server.get(f"/api/v1/jobs/{measured['job']}/items").body.decode().splitlines()
            results.append({**cls.server.job(measured["job"])["result"], "items": [json.loads(line) for line in items]})
        return done.returncode, verdict, results

    def matched(self, night, place):
        """(item of the candidate, of the baseline), by key."""
        base = {i["key"]: i for i in self.main[place]["items"]}
        return [(i, base[i["key"]]) for i in self.nights[night][2][place]["items"]]

    def pairs(self, night, place):
        return [PARTS[place].pair(*both) for both in self.matched(night, place)]

    def test_each_nights_verdict_is_what_the_protocol_says(self):
        for night, (status, verdict, results) in enumerate(self.nights):
            with self.subTest(night=night + 1):
                pairs = [self.pairs(night, place) for place in range(len(PARTS))]
                self.assertEqual([len(p) for p in pairs], [part.n_all for part in PARTS])
                bounds = [part.upper_and_p(p) for part, p in zip(PARTS, pairs)]
                adjusted = holm([p for _, p in bounds])
                expected = []
                for part, rule, all_pairs, (upper, _), p in zip(PARTS, verdict["rules"], pairs, bounds, adjusted):
                    expected.append(verdict_of(part, upper, p))
                    self.assertEqual(rule["verdict"], expected[-1])
                    self.assertAlmostEqual(rule["delta"], part.truth(all_pairs), delta=1e-9)
                    self.assertAlmostEqual(rule["upper"], upper, delta=1e-6)
                    self.assertAlmostEqual(rule["p_holm"], p, delta=1e-8)
                worst = next(v for v in ("fail", "inconclusive", "pass") if v in expected)
                self.assertEqual((verdict["verdict"], status), (worst, {"pass": 0, "fail": 1, "inconclusive": 3}[worst]))
                self.assertEqual((verdict["commit"], verdict["branch"]), (results[0]["model"]["name"], "main"))

    def test_false_alarms_and_misses_over_documents(self):
        self.count_errors(0)

    def test_false_alarms_and_misses_over_questions(self):
        self.count_errors(1)

    def count_errors(self, place):
        part = PARTS[place]
        counts = [{"pass": 0, "fail": 0, "inconclusive": 0} for _ in self.nights]
        lines = self.folder / "draws.jsonl"
        with lines.open("w") as f:
            for night, line in self.draws(place):
                f.write(line + "\n")
        with lines.open() as f:
            done = subprocess.run([FATHOM, "compare", "--gate", str(self.folder / f"{part.name}.json"), "--lines"], stdin=f,
                                  capture_output=True, text=True, timeout=300)
        self.assertEqual(done.returncode, 0, done.stderr)
        verdicts = done.stdout.splitlines()
        self.assertEqual(len(verdicts), N_NIGHTS * N_DRAWS)
        for k, line in enumerate(verdicts):
            counts[k // N_DRAWS][json.loads(line)["verdict"]] += 1
        self.check(part, [self.pairs(night, place) for night in range(N_NIGHTS)], counts)

    def draws(self, place):
        """(night, line of `fathom compare --lines`): independent draws, with replacement."""
        part = PARTS[place]
        for night, (_, _, results) in enumerate(self.nights):
            rng = random.Random(1000 * place + night)
            matched = self.matched(night, place)
            for _ in range(N_DRAWS):
                drawn = rng.choices(matched, k=part.n_drawn)
                yield night, json.dumps({"candidate": [evidence(part, results[place], [c for c, _ in drawn])],
                                         "baseline": [evidence(part, self.main[place], [b for _, b in drawn])]})

    def check(self, part, pairs, counts):
        truths = [part.truth(p) for p in pairs]
        computed = [part.rates(p) for p in pairs]
        print(f"\nA month: {N_NIGHTS} checkpoints, {N_DRAWS} draws of {part.n_drawn} {part.name} each; minimum effect {part.delta}, "
              f"confidence {1 - ALPHA}\n  night     truth   fails (computed)   passes (computed)")
        for night, (count, truth, rate) in enumerate(zip(counts, truths, computed)):
            print(f"  {night + 1:5}  {truth:+.4f}     {count['fail']:4} ({N_DRAWS * rate['fail']:5.1f})"
                  f"        {count['pass']:4} ({N_DRAWS * rate['pass']:5.1f})")
        harmless = [i for i, truth in enumerate(truths) if truth <= 0]
        worse = [i for i, truth in enumerate(truths) if truth >= part.delta]
        self.assertGreaterEqual(len(harmless), 3)
        self.assertGreaterEqual(len(worse), 3)
        for what, nights, verdict in (("false alarms (fail, though no worse)", harmless, "fail"),
                                      ("misses (pass, though worse by the minimum effect)", worse, "pass")):
            n = len(nights) * N_DRAWS
            count = sum(counts[i][verdict] for i in nights)
            rate = sum(computed[i][verdict] for i in nights) / len(nights)
            low, high = binomial_interval(n, rate)
            print(f"  {what}: {count} of {n}; computed {n * rate:.1f}, 99 % of counts in {low} to {high}")
            with self.subTest(what=what):
                self.assertLessEqual(count, high)
                if nights is worse:  # of false alarms there may be fewer
                    self.assertGreaterEqual(count, low)
                for i in nights:  # at most alpha for each, whatever is computed
                    self.assertLessEqual(counts[i][verdict], binomial_interval(N_DRAWS, ALPHA)[1])


def evidence(part, result, items):
    """A result over these items alone; each is one of its own, also where it was drawn twice."""
    return {**{k: result[k] for k in ("schema", "model", "task", "engine")}, "metrics": part.metrics(items),
            "dataset": {**result["dataset"], "n_items": len(items)},
            "items": [{"key": f"{k:016x}", "doc": str(k), **{m: i[m] for m in part.members}} for k, i in enumerate(items)],
            "warnings": []}


if __name__ == "__main__":
    unittest.main()
