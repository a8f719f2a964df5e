"""Writes cases.json of tests/test_gate.c: evidence made by hand (seeded), gates, and what each rule must come to.

Every expected number is computed here from the evidence by SciPy and statsmodels, never by fathom: Student's t for
losses, scipy.stats.binomtest for the exact McNemar test, Tango's score interval as the root of the score statistic
(scipy.optimize.brentq), statsmodels' multipletests for Holm, numpy.polyfit for the trend.

Evidence that shares another's items names it in "items_of". Run: python3 generate.py (SciPy 1.17.1, statsmodels 0.15.0)
"""
import copy
import hashlib
import json
import math
import pathlib
import random

import numpy as np
from scipy import optimize, stats
from statsmodels.stats.multitest import multipletests

LENGTHS = [64, 256]


def key(*of):
    return hashlib.sha256(repr(of).encode()).hexdigest()[:16]


def result(task, items, metrics, params, **more):
    return {"schema": 1,
            "model": {"name": "m", "fingerprint": "sha256:aa", "tokenizer_fingerprint": "sha256:70", "n_params": 1},
            "task": {"name": task, "version": 1, "params": params},
            "dataset": {"name": "data", "fingerprint": "sha256:da", "n_items": len(items)},
            "metrics": metrics,
            "engine": {"device": "cuda:0", "device_name": "GPU", "dtype": "bf16", "version": "0.1.0",
                       "tokens_per_s": 1000.0},
            "warnings": [], "items": items, **more}


def perplexities(items, length):
    at = [i for i in items if i["length"] == length]
    s, n = sum(i["nll"] for i in at), sum(i["n_tokens"] for i in at)
    return [{"name": "nll_token", "length": length, "value": s / n, "stderr": None, "n": n, "unit": "nats/token"},
            {"name": "ppl_token", "length": length, "value": math.exp(s / n), "stderr": None, "n": n,
             "unit": "perplexity"}]


def books(docs, seed, shift=0.0, noise=0.0, sizes=None, slope=0.0):
    """pg19 at two lengths: the text of a document is the same whatever the seed of the noise."""
    rng, items = random.Random(seed), []
    for d in range(docs):
        own = random.Random(1000 + d)
        size = sizes[d] if sizes else own.randrange(300, 900)
        level = own.uniform(2.5, 3.5)
        for length in LENGTHS:
            n = size - 1
            worse = shift + rng.gauss(0, 1) * noise + (slope + own.gauss(0, .02) if length == LENGTHS[1] else 0)
            items.append({"id": len(items), "key": key("book", d, length), "doc": f"{d:02}.txt", "length": length,
                          "n_tokens": n, "n_bytes": 4 * n + d, "n_words": n // 2 + d, "nll": n * (level + worse)})
    metrics = [m for length in LENGTHS for m in perplexities(items, length)]
    return result("pg19", items, metrics, {"lengths": LENGTHS, "protocol": "windows", "bos": "none"})


def questions(task, n, seed, flips=(0, 0), groups=(None,)):
    """n items a group; flips: how many right ones become wrong, and wrong ones right."""
    items = []
    for g in groups:
        own = random.Random(f"{task}{g}")
        rows = []
        for i in range(n):
            row = {"key": key(task, g, i), "doc": f"line {i}", "correct": own.random() < 0.6}
            if g:
                row["group"] = g
            rows.append(row)
        rng = random.Random(f"{seed}{g}")
        right, wrong = [r for r in rows if r["correct"]], [r for r in rows if not r["correct"]]
        for r in rng.sample(right, flips[0]):
            r["correct"] = False
        for r in rng.sample(wrong, flips[1]):
            r["correct"] = True
        items += rows
    metrics = []
    for g in groups:
        at = [i for i in items if i.get("group") == g]
        metrics.append({"name": "acc", **({"group": g} if g else {}), "value": sum(i["correct"] for i in at) / len(at),
                        "stderr": None, "n": len(at), "unit": "fraction"})
    if groups != (None,):
        metrics.append({"name": "acc", "value": sum(m["value"] for m in metrics) / len(groups), "stderr": None,
                        "n": len(items), "unit": "fraction"})
    metrics += [{"name": "n_truncated", "value": 0, "stderr": None, "n": len(items), "unit": "items"}]
    return result(task, items, metrics, {"ties": "first", "norm": "none"})


# -- the statistics, by SciPy -----------------------------------------------------------------------

def loss_test(cand, base, alpha=.05):
    """cand, base: [(s, w)] of the same documents."""
    c, b = np.array(cand, float), np.array(base, float)
    rc, rb = c[:, 0].sum() / c[:, 1].sum(), b[:, 0].sum() / b[:, 1].sum()
    u = (c[:, 0] - rc * c[:, 1]) / c[:, 1].sum() - (b[:, 0] - rb * b[:, 1]) / b[:, 1].sum()
    n, delta = len(c), rc - rb
    se = math.sqrt(n / (n - 1) * (u ** 2).sum())
    t = stats.t.ppf(1 - alpha, n - 1)
    return {"delta": delta, "stderr": se, "lower": delta - t * se, "upper": delta + t * se,
            "p": float(stats.t.sf(delta / se, n - 1)), "n": n}


def accuracy_test(worse, better, n, alpha=.05):
    p = stats.binomtest(worse, worse + better, .5, alternative="greater").pvalue if worse + better else 1.0

    def score(d):  # Tango 1998: z of the hypothesis that the difference worse - better, of proportions, is d
        a, b = 2 * n, -worse - better + (2 * n - worse + better) * d
        q = (math.sqrt(b * b - 4 * a * (-better * d * (1 - d))) - b) / (2 * a)
        return (worse - better - n * d) / math.sqrt(n * (2 * q + d * (1 - d)))

    z, delta = stats.norm.ppf(1 - alpha), (worse - better) / n
    return {"delta": delta, "p": float(p), "n": n, "discordant": worse + better,
            "lower": optimize.brentq(lambda d: score(d) - z, -1 + 1e-9, delta),
            "upper": optimize.brentq(lambda d: score(d) + z, delta, 1 - 1e-9)}


def needed(se, n, min_effect, alpha=.05):
    return math.ceil((stats.norm.ppf(1 - alpha) + stats.norm.ppf(.8)) ** 2 * n * se ** 2 / min_effect ** 2)


def decide(t, min_effect, p_holm, alpha=.05):
    return "pass" if t["upper"] < min_effect else "fail" if p_holm <= alpha else "inconclusive"


def pick(evidence, length, weight):
    return [(i["nll"], i[weight] * (math.log(2) if weight == "n_bytes" else 1)) for i in evidence["items"]
            if i["length"] == length]


def ratio(cand, base, length, weight="n_tokens"):
    return loss_test(pick(cand, length, weight), pick(base, length, weight))


# -- cases ------------------------------------------------------------------------------------------

EVIDENCE, CASES = {}, []
BOOKS = {"id": "books", "task": "pg19", "dataset": "data", "params": {"lengths": LENGTHS}}
WORDS = {"id": "words", "task": "lambada", "dataset": "data"}
KINDS = {"id": "kinds", "task": "cbt", "dataset": "data"}
PPL = {"name": "ppl", "type": "relative", "measure": "books", "metric": "ppl_token", "length": 256, "min_effect": .01}
ACC = {"name": "acc", "type": "relative", "measure": "words", "metric": "acc", "min_effect": .02}


def case(name, measures, rules, candidate, baseline, verdict, expected, **more):
    CASES.append({"name": name, "gate": {"name": "g", "measure": measures, "rules": rules}, "candidate": candidate,
                  "baseline": baseline, "verdict": verdict, "rules": expected, **more})


def edit(name, of, change):
    EVIDENCE[name] = copy.deepcopy(EVIDENCE[of])
    change(EVIDENCE[name])


def evidence():
    E = EVIDENCE
    E["books"] = books(12, "base")
    for name, shift, noise in (("books_same", 0, 0), ("books_close", .001, .004), ("books_worse", .02, .01),
                               ("books_vague", .006, .02), ("books_better", -.02, .01)):
        E[name] = books(12, name, shift, noise)
    E["books_7"], E["books_7_worse"] = books(7, "base"), books(7, "x", .05, .001)
    E["books_1"], E["books_1_worse"] = books(1, "base"), books(1, "x", .05, .001)
    E["books_steep"], E["books_flat"] = books(12, "s", slope=.05), books(12, "f", slope=.001)
    E["books_some_short"] = books(12, "s", slope=.05, sizes=[500] * 9 + [257, 256, 100])
    E["books_most_short"] = books(12, "s", slope=.05, sizes=[500] * 7 + [200] * 5)
    E["words"] = questions("lambada", 400, "base")
    for name, flips in (("words_worse", (30, 6)), ("words_close", (2, 3)), ("words_vague", (14, 9)),
                        ("words_holm", (15, 5))):
        E[name] = questions("lambada", 400, name, flips)
    E["few"], E["few_worse"] = questions("lambada", 40, "base"), questions("lambada", 40, "worse", (9, 1))
    kinds = ("CN", "NE", "V")
    E["kinds"] = questions("cbt", 100, "base", groups=kinds)
    E["kinds_worse"] = questions("cbt", 100, "worse", (16, 2), kinds)


def relative_cases():
    E = EVIDENCE
    for name in ("close", "worse", "vague", "better"):
        t = ratio(E["books_" + name], E["books"], 256)
        v = decide(t, .01, t["p"])
        t["value"], t["baseline_value"] = (next(m["value"] for m in e["metrics"] if m["name"] == "ppl_token" and
                                                m["length"] == 256) for e in (E["books_" + name], E["books"]))
        if v == "inconclusive":
            t["items_needed"] = needed(t["stderr"], 12, .01)
        case(f"losses: {name}", [BOOKS], [PPL], ["books_" + name], ["books"], v, [{"verdict": v, **t}])
    for metric, weight in (("nll_token", "n_tokens"), ("bits_per_byte", "n_bytes"), ("ppl_word", "n_words")):
        t = ratio(E["books_worse"], E["books"], 64, weight)
        case(f"losses: {metric}", [BOOKS], [{**PPL, "metric": metric, "length": 64, "min_effect": .001}],
             ["books_worse"], ["books"], "fail", [{"verdict": "fail", **t}])
    c, b = ([(i["nll"] / i["n_tokens"], 1) for i in e["items"] if i["length"] == 64]
            for e in (E["books_worse"], E["books"]))
    case("losses: ppl_doc_macro", [BOOKS], [{**PPL, "metric": "ppl_doc_macro", "length": 64, "min_effect": .001}],
         ["books_worse"], ["books"], "fail", [{"verdict": "fail", **loss_test(c, b)}])

    for name, flips in (("worse", (30, 6)), ("close", (2, 3)), ("vague", (14, 9))):
        t = accuracy_test(*flips, 400)
        v = decide(t, .02, t["p"])
        if t["p"] > .05:
            del t["lower"]  # p decides, and the bound reported is no higher than 0
        case(f"accuracy: {name}", [WORDS], [ACC], ["words_" + name], ["words"], v, [{"verdict": v, **t}])
    case("accuracy: the mean over groups is stratified", [KINDS], [{**ACC, "measure": "kinds"}], ["kinds_worse"],
         ["kinds"], "fail", [{"verdict": "fail", "delta": .14, "n": 300, "discordant": 54, "value": EVIDENCE[
             "kinds_worse"]["metrics"][3]["value"]}])
    case("accuracy: one group", [KINDS], [{**ACC, "measure": "kinds", "group": "NE"}], ["kinds_worse"], ["kinds"],
         "fail", [{"verdict": "fail", **accuracy_test(16, 2, 100)}])

    # two tests, neither of which passes on its bounds: the larger p is .0207, twice .0139 is .0278
    a = ratio(E["books_vague"], E["books"], 256)
    b = accuracy_test(15, 5, 400)
    holm = multipletests([a["p"], b["p"]], method="holm")[1]
    va, vb = decide(a, .01, holm[0]), decide(b, .02, holm[1])
    worst = max(va, vb, key=["pass", "inconclusive", "fail"].index)
    case("Holm runs over all tests of a gate", [BOOKS, WORDS], [PPL, ACC], ["books_vague", "words_holm"],
         ["books", "words"], worst,
         [{"verdict": va, "p": a["p"], "p_holm": holm[0]}, {"verdict": vb, "p": b["p"], "p_holm": holm[1]}])
    a = ratio(E["books_worse"], E["books"], 256)
    case("a test that passes is one of Holm's family", [BOOKS, WORDS], [PPL, ACC], ["books_worse", "words_close"],
         ["words", "books"], "fail", [{"verdict": "fail", "p_holm": 2 * a["p"]}, {"verdict": "pass"}])


def weight_cases():
    sizes = [4000] + [300] * 11
    EVIDENCE["books_one_long"] = books(12, "base", sizes=sizes)
    EVIDENCE["books_one_long_worse"] = books(12, "x", .02, .004, sizes=sizes)
    n = [3999] + [299] * 11
    case("documents of very unequal length", [BOOKS], [PPL], ["books_one_long_worse"], ["books_one_long"], "fail",
         [{"verdict": "fail", **ratio(EVIDENCE["books_one_long_worse"], EVIDENCE["books_one_long"], 256)}],
         warnings=[f"weigh as {sum(n) ** 2 / sum(x * x for x in n):.1f} equal ones"])


def equal_cases():
    zero = {"verdict": "pass", "delta": 0, "lower": 0, "upper": 0, "p_holm": 1}
    case("the same model passes", [BOOKS, WORDS], [PPL, ACC], ["books_same", "words"], ["books", "words"], "pass",
         [{**zero, "message": "ppl_token at 256 is the same in all of 12 documents."},
          {**zero, "message": "acc is the same in all of 400 items."}])
    case("the same model passes on one document", [BOOKS], [PPL], ["books_1"], ["books_1"], "pass", [zero])
    edit("few_shuffled", "few_worse", lambda e: random.Random(3).shuffle(e["items"]))
    case("the order of items does not matter", [WORDS], [ACC], ["few_shuffled"], ["few"], "fail",
         [{"verdict": "fail", **accuracy_test(9, 1, 40)}])
    t = ratio(EVIDENCE["books_7_worse"], EVIDENCE["books_7"], 256)
    t["items_needed"] = max(8, needed(t["stderr"], 7, .01))
    case("seven documents decide nothing", [BOOKS], [PPL], ["books_7_worse"], ["books_7"], "inconclusive",
         [{"verdict": "inconclusive", **t, "absent": ["p_holm"], "contains": "fewer than 8 documents decide nothing"}])
    case("one document decides nothing", [BOOKS], [PPL], ["books_1_worse"], ["books_1"], "inconclusive",
         [{"verdict": "inconclusive", "n": 1, "stderr": None, "lower": None, "items_needed": 8,
           "contains": "rose by 5.02 % (1 document): fewer than 8"}])
    case("too few documents are none of Holm's family", [BOOKS, WORDS], [PPL, ACC], ["books_7_worse", "words_worse"],
         ["books_7", "words"], "fail",
         [{"verdict": "inconclusive"}, {"verdict": "fail", "p_holm": accuracy_test(30, 6, 400)["p"]}])


def recount(e):  # of questions without groups: every count is of items
    for counted in (e["dataset"], *e["metrics"]):
        counted["n_items" if counted is e["dataset"] else "n"] = len(e["items"])


def item_cases():
    def repeat(e):  # the first ten lines once more, as a data set may have them
        e["items"] += copy.deepcopy(e["items"][:10])
        recount(e)

    edit("few_twice", "few", repeat)
    edit("few_worse_twice", "few_worse", repeat)
    flips = [(a["correct"], b["correct"]) for a, b in zip(EVIDENCE["few_twice"]["items"],
                                                          EVIDENCE["few_worse_twice"]["items"])]
    case("the same text twice is two pairs", [WORDS], [ACC], ["few_worse_twice"], ["few_twice"], "fail",
         [{"verdict": "fail", **accuracy_test(flips.count((True, False)), flips.count((False, True)), 50)}])
    case("the same text twice on one side only is another set", [WORDS], [ACC], ["few_worse"], ["few_twice"],
         "error", [{"verdict": "error", "n": 40, "contains": "40 are in both, 0 only in the candidate, 10 only in"}],
         refused=["the sets of items differ"])
    edit("few_fewer", "few", lambda e: (e["items"].pop(7), recount(e)))
    case("an item less is another set", [WORDS], [ACC], ["few_fewer"], ["few"], "error",
         [{"verdict": "error", "contains": "39 are in both, 0 only in the candidate, 1 only in the baseline"}])
    edit("few_keyless", "few", lambda e: e["items"][7].update(key=None))
    case("an item without a key is not paired", [WORDS], [ACC], ["few_keyless"], ["few"], "error",
         [{"verdict": "error", "contains": "1 of the candidate's 40 items have no key"}])
    edit("few_bare", "few", lambda e: (e.update(items=[]), recount(e)))
    case("no items, no pairs", [WORDS], [ACC], ["few_bare"], ["few_bare"], "error",
         [{"verdict": "error", "n": 0, "contains": "neither side has an item"}])
    edit("few_null", "few", lambda e: e["items"][5].update(correct=None))
    case("an item that turned NaN fails", [WORDS], [ACC], ["few_null"], ["few"], "fail",
         [{"verdict": "fail",
           "contains": f"1 of 40 items turned NaN in the candidate, such as {key('lambada', None, 5)} (line 5)"}])
    case("a baseline with NaN is none", [WORDS], [ACC], ["few"], ["few_null"], "error", [{"verdict": "error"}],
         refused=["1 of 40 items have no value in the baseline"])
    edit("books_wordless", "books", lambda e: [i.pop("n_words") for i in e["items"]])
    case("items lack what the metric is made of", [BOOKS], [{**PPL, "metric": "ppl_word"}], ["books_wordless"],
         ["books_wordless"], "error", [{"verdict": "error", "contains": "carries no n_words"}])


def choice_cases():
    """acc_norm and its kin are recomputed from logprobs and lengths; ties go to the first, or are wrong."""
    def row(i, logprobs, chars, gold=0):
        return {"id": i, "key": key("choice", i), "doc": f"{i}", "logprobs": logprobs, "n_chars": chars,
                "n_bytes": [2 * c for c in chars], "n_tokens": [1] * len(chars), "gold": gold, "correct": False}

    right, wrong, tie = ([-4.0, -9.0], [4, 6]), ([-9.0, -4.0], [4, 4]), ([-4.0, -6.0], [4, 6])
    # by characters -1 against -1.5; by tokens -4 against -9: right. A tie by characters: the first, which is right.
    base = [row(i, *right) for i in range(30)]
    cand = [row(i, *(wrong if i < 9 else tie)) for i in range(30)]
    for name, items, ties in (("choice", base, "first"), ("choice_worse", cand, "first"), ("choice_strict", base,
                              "wrong"), ("choice_worse_strict", cand, "wrong")):
        EVIDENCE[name] = result("hellaswag", items, [], {"ties": ties})
    measure = {"id": "h", "task": "hellaswag", "dataset": "data"}
    rule = {"name": "a", "type": "relative", "metric": "acc_norm", "min_effect": .01}
    case("acc_norm: the first of equals", [measure], [rule], ["choice_worse"], ["choice"], "fail",
         [{"verdict": "fail", **accuracy_test(9, 0, 30)}])
    case("acc_norm: equals are wrong", [measure], [rule], ["choice_worse_strict"], ["choice_strict"], "fail",
         [{"verdict": "fail", "delta": 1, "discordant": 30, "p": .5 ** 30}])
    case("acc_token", [measure], [{**rule, "metric": "acc_token"}], ["choice_worse"], ["choice"], "fail",
         [{"verdict": "fail", **accuracy_test(9, 0, 30)}])
    edit("choice_bare", "choice", lambda e: [i.pop("n_chars") for i in e["items"]])
    case("acc_norm without lengths", [measure], [rule], ["choice_bare"], ["choice_bare"], "error",
         [{"verdict": "error", "contains": "carries no logprobs with their lengths, of which acc_norm is made"}])
    # mean log-probabilities: lambada's ppl and the logprob of indirect_indexing
    rng, n = random.Random(5), 40
    for name, shift in (("lines", 0), ("lines_worse", .3)):
        EVIDENCE[name] = result("indirect_indexing", [
            {"id": i, "key": key("line", i), "doc": f"{i}", "logprobs": [-2 - random.Random(i).random() - shift *
             rng.random()], "n_tokens": [1], "correct": True} for i in range(n)], [], {"n": None})
    t = loss_test(*([(-i["logprobs"][0], 1) for i in EVIDENCE[e]["items"]] for e in ("lines_worse", "lines")))
    case("logprob is worse where it is lower", [{"id": "l", "task": "indirect_indexing", "dataset": "data"}],
         [{"name": "a", "type": "relative", "metric": "logprob", "min_effect": .05}], ["lines_worse"], ["lines"],
         "fail", [{"verdict": "fail", **t, "contains": "logprob fell by"}])


def refusal_cases():
    def refuse(name, change, words, **more):
        edit("words_" + name, "words", change)
        case(f"refused: {name}", [WORDS], [ACC], ["words_" + name], ["words"], "error",
             [{"verdict": "error", "contains": words}], refused=[words], **more)

    refuse("version", lambda e: e["task"].update(version=2), "task version is 2, and 1 in the baseline")
    refuse("protocol", lambda e: e["task"]["params"].update(norm="tokens"), "norm is tokens, and none in the baseline")
    refuse("another parameter", lambda e: e["task"]["params"].update(limit=100),
           "limit is 100, and not given in the baseline")
    refuse("tokenizer", lambda e: e["model"].update(tokenizer_fingerprint="sha256:71"),
           "tokenizer is sha256:71, and sha256:70 in the baseline")
    refuse("dataset", lambda e: e["dataset"].update(fingerprint="sha256:db"),
           "dataset is sha256:db, and sha256:da in the baseline")
    refuse("dtype", lambda e: e["engine"].update(dtype="f32"), "dtype is f32, and bf16 in the baseline")
    refuse("device", lambda e: e["engine"].update(device="cpu"), "device is cpu, and cuda:0 in the baseline")
    edit("words_null_param", "words", lambda e: e["task"]["params"].update(limit=None))
    case("a parameter that is null is one not given", [WORDS], [ACC], ["words_null_param"], ["words"], "pass",
         [{"verdict": "pass"}])
    edit("words_cuda_1", "words", lambda e: e["engine"].update(device="cuda:1"))
    case("another device of the kind is compared", [WORDS], [ACC], ["words_cuda_1"], ["words"], "pass",
         [{"verdict": "pass"}])
    edit("words_f32_cpu", "words_close", lambda e: e["engine"].update(dtype="f32", device="cpu"))
    t = accuracy_test(2, 3, 400)
    case("an engine change is allowed", [WORDS], [ACC], ["words_f32_cpu"], ["words"], "pass",
         [{"verdict": "pass", "delta": t["delta"], "upper": t["upper"]}], allow_engine_change=True, engine_change=True,
         warnings=["the engine changed, as allowed: dtype is f32, and bf16 in"])
    case("two at once are both named", [WORDS], [ACC], ["words_f32_cpu"], ["words_version"], "error",
         [{"verdict": "error", "contains": "task version is 1, and 2 in the baseline; dtype is f32, and bf16 in"}])
    case("there is no baseline", [WORDS], [ACC], ["words"], None, "error",
         [{"verdict": "error", "message": "there is no baseline to compare with."}])
    case("the baseline lacks the task", [WORDS], [ACC], ["words"], ["books"], "error", [{"verdict": "error"}],
         refused=["has no result of task lambada"])
    edit("words_limit", "words_close", lambda e: e["task"]["params"].update(limit=400))
    case("of several results of a task that of the same protocol is taken", [WORDS], [ACC], ["words_close"],
         ["words_limit", "books", "words"], "pass", [{"verdict": "pass", "discordant": 5}])


def failure_cases():
    layer = "layer 3, position 12 of segment 0: not a finite number in the attention"
    edit("words_nan", "words", lambda e: e.update(partial=True, failed_units=[7, 9], error={
        "code": "numeric", "message": "2 of 400 units failed; unit 7: " + layer, "units": [7, 9]}))
    case("failed units of NaN fail with their layer", [WORDS], [ACC, {"name": "floor", "type": "absolute", "metric":
         "acc", "min": 0}], ["words_nan"], ["words"], "fail",
         [{"verdict": "fail", "contains": layer}, {"verdict": "fail", "contains": layer}])
    edit("words_dead", "words_nan", lambda e: e["error"].update(code="device", message="the worker died"))
    case("failed units of a device are an error", [WORDS], [ACC], ["words_dead"], ["words"], "error",
         [{"verdict": "error", "contains": "measure 'words' could not be measured: the worker died"}])
    case("a baseline with failed units is refused", [WORDS], [ACC], ["words"], ["words_nan"], "error",
         [{"verdict": "error"}], refused=["the baseline's own measurement is not whole"])
    EVIDENCE["no_result"] = {"error": {"code": "changed", "message": "model changed on disk", "units": []}}
    case("a job without a result is an error", [WORDS], [ACC], ["no_result"], ["words"], "error",
         [{"verdict": "error", "contains": "could not be measured: model changed on disk"}])
    case("nothing was measured", [WORDS], [ACC], [None], ["words"], "error",
         [{"verdict": "error", "message": "measure 'words' was not measured."}])
    edit("words_partial", "words", lambda e: e.update(partial=True, failed_units=[3]))
    case("a partial result is none", [WORDS], [ACC], ["words_partial"], ["words"], "error", [{"verdict": "error"}])
    case("an error is worse than a failure", [BOOKS, WORDS], [PPL, ACC], ["books_worse", None], ["books", "words"],
         "error", [{"verdict": "fail"}, {"verdict": "error"}])
    case("a failure is worse than the inconclusive", [BOOKS, WORDS], [PPL, ACC], ["books_7_worse", "words_worse"],
         ["books_7", "words"], "fail", [{"verdict": "inconclusive"}, {"verdict": "fail"}])


def plain_cases():
    bound = {"name": "b", "type": "absolute", "metric": "ppl_token", "length": 256}
    ppl = EVIDENCE["books"]["metrics"][3]["value"]

    def absolute(name, verdict, words, evidence="books", **limits):
        case(f"absolute: {name}", [BOOKS], [{**bound, **limits}], [evidence], None, verdict,
             [{"verdict": verdict, "contains": words}])

    absolute("below the maximum", "pass", "within the bound of at most 99", max=99)
    absolute("above the maximum", "fail", "above the maximum of 3.5", max=3.5)
    absolute("below the minimum", "fail", "below the minimum of 99", min=99)
    absolute("between", "pass", "at least 1 and at most 99", min=1, max=99)
    absolute("exactly there", "pass", "within the bound", min=ppl, max=ppl)
    edit("books_overflow", "books", lambda e: e["metrics"][3].update(value=None, reason="overflow"))
    absolute("overflow", "fail", "ppl_token at 256 overflowed, above the maximum of 99", "books_overflow", max=99)
    edit("books_empty", "books", lambda e: e["metrics"][3].update(value=None, reason="no_documents"))
    absolute("no value", "error", "has no value: no_documents", "books_empty", max=99)
    edit("books_unmeasured", "books", lambda e: e["metrics"].pop(3))
    absolute("no metric", "error", "the result of measure 'books' has no ppl_token at 256", "books_unmeasured", max=9)

    whole = {"name": "w", "type": "no_truncation"}
    edit("words_cut", "words", lambda e: e["metrics"][1].update(value=3))
    case("nothing truncated", [WORDS], [whole], ["words"], None, "pass",
         [{"verdict": "pass", "message": "none of the 400 items of measure 'words' was truncated."}])
    case("items truncated", [WORDS], [whole], ["words_cut"], None, "fail",
         [{"verdict": "fail", "message": "3 of the 400 items of measure 'words' were truncated."}])

    speed = {"name": "s", "type": "throughput", "min_ratio": .9}
    edit("words_slow", "words", lambda e: e["engine"].update(tokens_per_s=850.0))
    edit("words_slower", "words", lambda e: e["engine"].update(tokens_per_s=901.0))
    edit("words_other_gpu", "words", lambda e: e["engine"].update(device_name="older GPU"))
    case("throughput: too slow", [WORDS], [speed], ["words_slow"], ["words"], "fail",
         [{"verdict": "fail", "value": 850, "baseline_value": 1000, "limit": .9}])
    case("throughput: slower by less", [WORDS], [speed], ["words_slower"], ["words"], "pass", [{"verdict": "pass"}])
    case("throughput: another device", [WORDS], [speed], ["words_other_gpu"], ["words"], "error",
         [{"verdict": "error"}], refused=["device_name is older GPU, and GPU in the baseline"])
    case("throughput: another device that is allowed", [WORDS], [speed], ["words_f32_cpu"], ["words"], "inconclusive",
         [{"verdict": "inconclusive", "contains": "on the same device only"}], allow_engine_change=True,
         engine_change=True, warnings=["device is cpu, and cuda:0 in the baseline"])


def history_cases():
    rule = {"name": "h", "type": "history", "metric": "ppl_token", "length": 256, "k": 10, "min_effect": .01}
    ppl = EVIDENCE["books"]["metrics"][3]["value"]

    def history(name, values, verdict, expected, **more):
        case(f"history: {name}", [BOOKS], [{**rule, **more}], ["books"], None, verdict,
             [{"verdict": verdict, "n": len(values), **expected}], history=values)

    def bound(values, alpha=.05, least=.01):
        x = np.log(values)
        half = max(least, stats.t.ppf(1 - alpha, len(x) - 1) * x.std(ddof=1) * math.sqrt(1 + 1 / len(x)))
        return {"limit": math.exp(x.mean() + half), "baseline_value": math.exp(x.mean()),
                "delta": math.log(ppl) - x.mean()}

    near = [ppl * f for f in (.97, 1.02, .99, 1.01, 1.03, .98)]
    low = [ppl * f for f in (.90, .91, .89, .9, .92)]
    history("within the spread", near, "pass", bound(near))
    history("above it", low, "fail", bound(low))
    history("a fixed engine has no spread", [ppl * .995] * 5, "pass", bound([ppl * .995] * 5))
    history("and less than the minimum effect is no room", [ppl * .985] * 5, "fail", bound([ppl * .985] * 5))
    history("four runs", near[:4], "inconclusive", {"contains": "4 earlier runs"})
    history("no run", [], "inconclusive", {"contains": "0 earlier runs"})
    falling = [ppl * math.exp(.02 * (6 - i) + (.002, -.003, .001, .002, -.002, 0)[i]) for i in range(6)]
    x, at = np.log(falling), np.arange(6)
    slope, start = np.polyfit(at, x, 1)
    s = math.sqrt(((x - start - slope * at) ** 2).sum() / 4)
    half = max(.01, stats.t.ppf(.95, 4) * s * math.sqrt(1 + 1 / 6 + (6 - 2.5) ** 2 / ((at - 2.5) ** 2).sum()))
    history("a trend goes on", falling, "pass", {"limit": math.exp(start + slope * 6 + half)}, trend="linear")
    case("history: an accuracy that fell", [WORDS], [{"name": "h", "type": "history", "metric": "acc", "k": 5,
         "min_effect": .01}], ["words"], None, "fail", [{"verdict": "fail", "n": 5, "limit": .8 - .01}],
         history=[.8] * 5)


def shape_cases():
    rule = {"name": "s", "type": "shape", "metric": "ppl_token", "length": 256, "over": 64, "max_ratio": 1.02}

    def shape(name, docs=None):
        at = {length: [i for i in EVIDENCE[name]["items"] if i["length"] == length][:docs] for length in LENGTHS}
        return loss_test(*([(i["nll"], i["n_tokens"]) for i in at[length]] for length in (256, 64)))

    for name in ("books_flat", "books_steep"):
        t = shape(name)
        v = decide(t, math.log(1.02), t["p"])
        case(f"shape: {name}", [BOOKS], [rule], [name], None, v, [{"verdict": v, **t, "value": math.exp(t["delta"])}])
    case("shape: only documents that fill the length", [BOOKS], [rule], ["books_some_short"], None, "fail",
         [{"verdict": "fail", **shape("books_some_short", 10)}])
    case("shape: too few such documents", [BOOKS], [rule], ["books_most_short"], None, "inconclusive",
         [{"verdict": "inconclusive", "n": 7, "contains": "7 documents have at least 257 tokens (5 shorter)"}])
    metrics = EVIDENCE["books_steep"]["metrics"]
    ratio_of = metrics[3]["value"] / metrics[1]["value"]
    case("shape: values alone", [BOOKS], [{**rule, "test": "point"}], ["books_steep"], None, "fail",
         [{"verdict": "fail", "value": ratio_of, "limit": 1.02}])
    case("shape: values alone, within", [BOOKS], [{**rule, "test": "point", "max_ratio": 1.2}], ["books_steep"], None,
         "pass", [{"verdict": "pass", "value": ratio_of}])
    a, b = shape("books_steep"), ratio(EVIDENCE["books_steep"], EVIDENCE["books"], 256)
    holm = multipletests([a["p"], b["p"]], method="holm")[1]
    case("shape: one of Holm's family", [BOOKS], [rule, PPL], ["books_steep"], ["books"], "fail",
         [{"verdict": "fail", "p_holm": holm[0]}, {"verdict": "fail", "p_holm": holm[1]}])


def main():
    evidence()
    for cases in (relative_cases, weight_cases, equal_cases, item_cases, choice_cases, refusal_cases, failure_cases, plain_cases,
                  history_cases, shape_cases):
        cases()
    first = {}  # of each list of items, the evidence that has it
    for name, e in EVIDENCE.items():
        owner = first.setdefault(json.dumps(e.get("items"), sort_keys=True), name)
        if owner != name:
            del e["items"]
            e["items_of"] = owner
    out = pathlib.Path(__file__).with_name("cases.json")
    with out.open("w") as f:
        for n, (name, e) in enumerate(EVIDENCE.items()):
            f.write(("," if n else '{"evidence":{') + f'\n"{name}":')
            json.dump(e, f, separators=(",", ":"))
        f.write('},\n"cases":[')
        for n, c in enumerate(CASES):
            f.write("," * (n > 0) + "\n")
            json.dump(c, f, separators=(",", ":"))
        f.write("]}\n")


main()
