#!/usr/bin/env python3
"""Makes special.json, paired.json and changes.json, the golden values of tests/test_special.c, test_paired.c and
test_changes.c, with SciPy, statsmodels and mpmath (made with scipy 1.17.1, statsmodels 0.15.0, mpmath 1.3.0).

    generate.py

Nothing of it is the evaluation's own code: ratios are regressions of statsmodels with clustered covariance, the score
interval is Tango's closed form (one group) or a constrained maximisation by SciPy (several), the exact test an
enumeration in rational numbers, a history's bound statsmodels' prediction interval, change points SciPy's t-tests of
every arc.
"""
import json
import math
import os
from fractions import Fraction

import mpmath
import numpy as np
import statsmodels.api as sm
from scipy import optimize, stats
from statsmodels.stats.contingency_tables import mcnemar
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.power import normal_sample_size_one_tail

HERE = os.path.dirname(os.path.abspath(__file__))
mpmath.mp.dps = 40


def write(name, value):
    with open(os.path.join(HERE, name), "w", encoding="ascii") as f:
        rows = [f'"{k}": [\n' + ",\n".join(json.dumps(r) for r in rows) + "\n]" for k, rows in value.items()]
        f.write("{" + ",\n".join(rows) + "}\n")


# -- special.json ------------------------------------------------------------------------------------

def binomial(k, n, p):
    """ln P(X = k) and ln P(X >= k) by mpmath: the shorter tail summed until its terms vanish."""
    p = mpmath.mpf(p)

    def pmf(i):
        return mpmath.exp(mpmath.loggamma(n + 1) - mpmath.loggamma(i + 1) - mpmath.loggamma(n - i + 1)
                          + i * mpmath.log(p) + (n - i) * mpmath.log(1 - p))

    if k == 0:
        return float(mpmath.log(pmf(0))), 0.0
    up = k > n * p
    i = k if up else k - 1
    term = total = pmf(i)
    while term > total * mpmath.mpf(10) ** -30 and (i < n if up else i > 0):
        term *= (n - i) / mpmath.mpf(i + 1) * p / (1 - p) if up else i / mpmath.mpf(n - i + 1) * (1 - p) / p
        i += 1 if up else -1
        total += term
    return float(mpmath.log(pmf(k))), float(mpmath.log(total if up else 1 - total))


BINOMIALS = (
    (1, 1, 0.5), (8, 8, 0.5), (3, 10, 0.5), (7, 8, 0.5), (20, 30, 0.5), (0, 5, 0.25), (15, 30, 0.5), (1, 1000, 0.001),
    (12, 1000, 0.001), (600, 1000, 0.5), (450, 1000, 0.5), (999, 1000, 0.9), (50500, 100000, 0.5), (40000, 100000, 0.5),
    (500500, 1000000, 0.5), (501000, 1000000, 0.5), (499000, 1000000, 0.5), (700000, 1000000, 0.5),
    (2502000, 5000000, 0.5), (5400, 5000000, 0.001), (5000000, 5000000, 0.5))


def special():
    xs = [-37, -20, -8, -5, -3, -1.6448536269514722, -1, -0.1, -1e-9, 0, 1e-9, 0.5, 1, 2, 3, 6, 8]
    ps = [1e-300, 1e-30, 1e-9, 0.001, 0.01, 0.025, 0.05, 0.2, 0.4999, 0.5, 0.6, 0.8, 0.95, 0.975, 0.999, 0.999999]
    dfs = [0.5, 1, 2, 3, 4, 7, 9.5, 29, 100, 999, 12345, 1e6]
    return {
        "normal": [{"x": x, "cdf": stats.norm.cdf(x)} for x in xs],
        "normal_quantile": [{"p": p, "x": stats.norm.ppf(p)} for p in ps],
        "beta": [{"x": x, "a": a, "b": b, "cdf": float(mpmath.betainc(a, b, 0, x, regularized=True))}
                 for a in (0.5, 1, 2.5, 20, 500) for b in (0.5, 1, 3, 75) for x in (1e-6, 0.05, 0.3, 0.5, 0.9, 0.999)],
        "student": [{"t": t, "df": df, "cdf": student(t, df)}
                    for df in dfs for t in (-50, -8, -3, -1.5, -0.3, 0, 0.01, 1, 2.5, 12)],
        "student_quantile": [{"p": p, "df": df, "t": stats.t.ppf(p, df)}
                             for df in dfs[1:] for p in (1e-6, 0.01, 0.05, 0.3, 0.5, 0.9, 0.95, 0.975, 0.9999)],
        "binomial": [dict(zip(("k", "n", "p", "log_pmf", "log_upper"), (k, n, p) + binomial(k, n, p)))
                     for k, n, p in BINOMIALS],
    }


def student(t, df):
    """P(T <= t) by mpmath, whose tail is exact where SciPy's loses digits."""
    df = mpmath.mpf(df)
    tail = mpmath.betainc(df / 2, 0.5, 0, df / (df + mpmath.mpf(t) ** 2), regularized=True) / 2 if df < 1e4 else None
    if tail is None:
        def pdf(x):
            return mpmath.exp(mpmath.loggamma((df + 1) / 2) - mpmath.loggamma(df / 2) - mpmath.log(df * mpmath.pi) / 2
                              - (df + 1) / 2 * mpmath.log1p(x * x / df))
        a = abs(t)
        tail = mpmath.quad(pdf, [a, a + 0.5, a + 1, a + 2, a + 4, a + 8, a + 16, a + 32])
    return float(1 - tail if t > 0 else tail)


# -- paired.json -------------------------------------------------------------------------------------

def ratio(cand, base, alpha):
    """Stacked regression of s/w on two dummies, weights w, covariance clustered by document with D/(D-1)."""
    d = len(cand)
    s, w = np.array(cand + base).T
    x = np.zeros((2 * d, 2))
    x[:d, 0] = x[d:, 1] = 1
    fit = sm.WLS(s / w, x, weights=w).fit(cov_type="cluster", cov_kwds={
        "groups": np.tile(np.arange(d), 2), "use_correction": False})
    t = fit.t_test([1, -1])
    delta, se = t.effect.item(), math.sqrt(d / (d - 1)) * t.sd.item()
    half = stats.t.ppf(1 - alpha, d - 1) * se
    return {"cand": cand, "base": base, "alpha": alpha, "delta": delta, "se": se, "df": d - 1,
            "lower": delta - half, "upper": delta + half, "p": stats.t.sf(delta / se, d - 1)}


def ratios():
    rng = np.random.default_rng(5)
    out = []
    for d, alpha, effect, same in ((12, 0.05, 0.01, True), (50, 0.05, 0, True), (3, 0.05, 0.02, True),
                                   (8, 0.01, 0.05, True), (40, 0.1, -0.02, True), (20, 0.05, 0.03, False),
                                   (9, 0.025, 0, False)):
        w = rng.integers(200, 5000, d)
        level = rng.normal(3, 0.3, d)
        v = w if same else rng.integers(8000, 60000, d)
        base = [[float(a), float(b)] for a, b in zip(level * w, w)]
        cand = [[float(a), float(b)] for a, b in zip((level + effect + rng.normal(0, 0.02, d)) * v, v)]
        out.append(ratio(cand, base, alpha))
    return out


def tango(n, b, c, z):
    """Both bounds by Tango's closed form of the constrained estimate."""
    def score(d0):
        e = 2 * n
        f = -b - c + (2 * n - b + c) * d0
        g = -c * d0 * (1 - d0)
        q = (math.sqrt(max(0, f * f - 4 * e * g)) - f) / (2 * e)
        return (b - c - n * d0) / math.sqrt(max(1e-300, n * (2 * q + d0 * (1 - d0))))
    d = (b - c) / n
    edge = 1 - 1e-13
    upper = 1.0 if b == n else optimize.brentq(lambda x: score(x) + z, d + 1e-13, edge, xtol=1e-14)
    lower = -1.0 if c == n else optimize.brentq(lambda x: score(x) - z, -edge, d - 1e-13, xtol=1e-14)
    return lower, upper


def stratified(groups, z):
    """Both bounds by maximising the likelihood under Delta = d0 numerically, and finding where the test rejects."""
    k = len(groups)

    def score(d0):
        def cells(x):
            x = np.exp(np.clip(x.reshape(k, 2), -30, 30))
            return x / (1 + x.sum(1, keepdims=True))

        def loss(x):
            p = cells(x)
            return -sum(b * math.log(pq[0]) + c * math.log(pq[1]) + (n - b - c) * math.log(1 - pq.sum())
                        for (n, b, c), pq in zip(groups, p))

        def gap(x):
            p = cells(x)
            return (p[:, 0] - p[:, 1]).mean() - d0
        start = np.log([[(b + 0.5) / (n - b - c + 1), (c + 0.5) / (n - b - c + 1)] for n, b, c in groups]).ravel()
        r = optimize.minimize(loss, start, constraints=[{"type": "eq", "fun": gap}], method="SLSQP",
                              options={"maxiter": 2000, "ftol": 1e-14})
        p = cells(r.x)
        d = p[:, 0] - p[:, 1]
        var = ((p.sum(1) - d * d) / np.array([g[0] for g in groups])).sum() / k ** 2
        return (estimate - d0) / math.sqrt(var)

    estimate = sum((b - c) / n for n, b, c in groups) / k
    se = math.sqrt(sum(((b + c) / n - ((b - c) / n) ** 2) / n for n, b, c in groups)) / k
    return (optimize.brentq(lambda x: score(x) - z, estimate - 3 * z * se, estimate - 0.1 * se, xtol=1e-9),
            optimize.brentq(lambda x: score(x) + z, estimate + 0.1 * se, estimate + 3 * z * se, xtol=1e-9))


def exact(groups):
    """P(sum b/n >= observed) over all tosses of the discordant pairs, in rational numbers."""
    law = {Fraction(0): Fraction(1)}
    for n, b, c in groups:
        m, new = b + c, {}
        for v, p in law.items():
            for i in range(m + 1):
                new[v + Fraction(i, n)] = new.get(v + Fraction(i, n), 0) + p * Fraction(math.comb(m, i), 2 ** m)
        law = new
    t = sum(Fraction(b, n) for n, b, c in groups)
    return float(sum(p for v, p in law.items() if v >= t))


def accuracy(groups, alpha):
    z = stats.norm.ppf(1 - alpha)
    n, b, c = groups[0]
    if len(groups) == 1:
        lower, upper = tango(n, b, c, z)
        two = mcnemar([[0, b], [c, n - b - c]], exact=True).pvalue
        p = float(stats.binom.sf(b - 1, b + c, 0.5))
        assert b <= c or abs(two - min(1, 2 * p)) < 1e-12
    else:
        lower, upper = stratified(groups, z)
        p = exact(groups)
    pairs = [np.repeat([1.0, -1.0, 0.0], [b, c, n - b - c]) for n, b, c in groups]
    se = math.sqrt(sum(x.var(ddof=1) / len(x) for x in pairs)) / len(groups)
    return {"groups": groups, "alpha": alpha, "delta": float(np.mean([x.mean() for x in pairs])), "se": se, "p": p,
            "lower": lower, "upper": upper}


def accuracies():
    one = [(21, 7, 1), (44, 1, 0), (44, 0, 1), (161, 16, 6), (100, 0, 9), (100, 9, 0), (10, 10, 0), (10, 0, 10),
           (10042, 310, 255), (5153, 60, 61), (1838, 8, 2), (3, 1, 1), (67000, 1500, 1400)]
    many = [[(100, 7, 1), (150, 5, 6), (1000, 40, 20)], [(37, 3, 2), (53, 6, 1)],
            [(2500, 30, 25), (2500, 60, 20), (2500, 11, 14), (2500, 40, 42)],
            [(997, 12, 5), (1009, 9, 8), (1013, 4, 3), (991, 7, 9)], [(200, 20, 2), (300, 3, 33)]]
    return [accuracy([g], a) for g in one for a in (0.05, 0.025)] + [accuracy(g, 0.05) for g in many]


def paired():
    rng = np.random.default_rng(6)
    holm = [[0.01, 0.04, 0.03, 0.005], [0.5], [0.02, 0.02, 0.02], [1, 0.0001, 0.9, 0.03, 0.03, 0.2],
            list(rng.uniform(0, 0.2, 12))]
    items = [(100, 0.004, 0.005, 0.05), (5153, 0.0021, 0.01, 0.05), (12, 0.02, 0.01, 0.01), (10042, 0.0009, 0.005, 0.1)]
    return {
        "ratio": ratios(),
        "accuracy": accuracies(),
        "holm": [{"p": p, "adjusted": list(multipletests(p, method="holm")[1])} for p in holm],
        "items": [{"n": n, "se": se, "delta": d, "alpha": a, "items": math.ceil(
            normal_sample_size_one_tail(d, 0.8, a, std_null=math.sqrt(n) * se))} for n, se, d, a in items],
    }


# -- changes.json ------------------------------------------------------------------------------------

def history(x, trend, alpha):
    """statsmodels' prediction interval for the next point; two-sided at 2 alpha is one-sided at alpha."""
    k = len(x)
    t = np.arange(k, dtype=float)
    design = np.column_stack([np.ones(k), t]) if trend else np.ones((k, 1))
    fit = sm.OLS(x, design).fit()
    at = fit.get_prediction([[1, float(k)]] if trend else [[1.0]]).summary_frame(alpha=2 * alpha)
    return {"x": list(x), "trend": trend, "alpha": alpha, "centre": at["mean"].item(),
            "half": (at["obs_ci_upper"] - at["mean"]).item(), "s": math.sqrt(fit.scale), "df": float(fit.df_resid)}


def segment(x, alpha, whole, offset=0):
    """(index, p) of the changes in x: every arc against the rest by SciPy's t-test."""
    n = len(x)
    if n < 6:
        return []
    arcs = [(i, j) for i in range(3, n - 2) for j in range(i + 3, n + 1) if j == n or j <= n - 3]
    tests = [stats.ttest_ind(x[i:j], np.r_[x[:i], x[j:]]) for i, j in arcs]
    best = max(range(len(arcs)), key=lambda k: abs(tests[k].statistic))
    p = min(1, tests[best].pvalue * len(arcs))
    if p > alpha * n / whole:
        return []
    i, j = arcs[best]
    if j < n and abs(stats.ttest_ind(x[i:j], x[j:]).statistic) > abs(stats.ttest_ind(x[:i], x[i:j]).statistic):
        i = j
    return (segment(x[:i], alpha, whole, offset) + [(offset + i, p)] + segment(x[i:], alpha, whole, offset + i))


def series(x, alpha, min_effect):
    x = np.array(x)
    found = segment(x, alpha, len(x))
    edges = [0] + [i for i, _ in found] + [len(x)]
    means = [x[a:b].mean() for a, b in zip(edges, edges[1:])]
    return {"x": list(x), "alpha": alpha, "min_effect": min_effect, "changes": [
        {"index": i, "p": p, "before": b, "after": a}
        for (i, p), b, a in zip(found, means, means[1:]) if abs(a - b) >= min_effect]}


def changes():
    rng = np.random.default_rng(7)
    noise = rng.normal(3.2, 0.01, 60)
    runs = [rng.normal(2, 0.05, k) + slope * np.arange(k) for k, slope in ((5, 0), (10, -0.02), (20, 0.01))]
    step, bump, stairs = noise.copy(), noise.copy(), noise[:40].copy()
    step[35:] += 0.03
    bump[20:29] += 0.05
    stairs[10:] += 0.004
    stairs[20:] += 0.05
    stairs[33:] -= 0.08
    return {
        "history": [history(x, t, a) for x in runs for t in (False, True) for a in (0.05, 0.01)],
        "series": [series(x, a, m) for x, a, m in (
            (noise, 0.05, 0), (step, 0.05, 0), (bump, 0.05, 0), (stairs, 0.05, 0), (stairs, 0.05, 0.06),
            (bump, 0.01, 0.2), (noise[:5], 0.05, 0), (np.r_[noise[:8], noise[8:11] + 0.2], 0.05, 0),
            (rng.normal(0, 1, 120) + np.repeat([0, 3, 1, 1, 4, 0], 20), 0.05, 0))],
    }


for file, make in (("special.json", special), ("paired.json", paired), ("changes.json", changes)):
    write(file, make())
