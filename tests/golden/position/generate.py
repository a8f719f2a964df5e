#!/usr/bin/env python3
"""Writes frequencies.json: the frequencies and phases of tests/test_position.c, in 60 decimal digits (mpmath 1.3).

The formulas are written here from the papers, independently of engine/position.c. Run: python3 generate.py
"""
import json
import pathlib
import struct

from mpmath import ceil, floor, fmod, log, mp, mpf, nint, pi

mp.dps = 60


def thetas(case):
    """Radians per position, per pair (rope) or channel (pope)."""
    d, base = case["head_dim"], mpf(case["theta"])
    if case["type"] == "pope":
        return [base ** (-mpf(c) / d) for c in range(d)]
    plain = [base ** (-mpf(2 * c) / d) for c in range(d // 2)]
    s = mpf(case.get("factor", 1))
    if case["scaling"] == "linear":
        return [t / s for t in plain]
    if case["scaling"] == "none":
        return plain

    def corr(turns):
        return d * log(case["original"] / (2 * pi * turns)) / (2 * log(base))

    low, high = corr(mpf(case["beta_fast"])), corr(mpf(case["beta_slow"]))
    if case["truncate"]:
        low, high = floor(low), ceil(high)
    low, high = max(low, mpf(0)), min(high, mpf(d - 1))
    case["low"], case["high"] = float(low), float(high)
    out = []
    for i, t in enumerate(plain):
        ramp = min(max((i - low) / max(high - low, mpf("0.001")), mpf(0)), mpf(1))
        out.append(t / s * ramp + t * (1 - ramp))
    return out


def to_f32(x):
    """The nearest float. float(x) rounds to double first; a double rounding would need a tie to 29 bits."""
    return mpf(struct.unpack("f", struct.pack("f", float(x)))[0])


def freq(theta):
    return "%016x" % int(nint(theta / (2 * pi) * mpf(2) ** 64))


def half_turns(theta, pos):
    """pos * theta / pi, reduced to [-1, 1)."""
    x = fmod(theta * pos / pi, 2)
    return mp.nstr(x - 2 if x >= 1 else x, 25)


def yarn(d, theta, original, factor, **more):
    case = {"type": "rope", "scaling": "yarn", "head_dim": d, "theta": theta, "original": original,
            "factor": factor, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": True}
    return dict(case, **more)


def plain(kind, d, theta, **more):
    return dict({"type": kind, "scaling": "none", "head_dim": d, "theta": theta}, **more)


CASES = [
    plain("rope", 64, 1e4), plain("rope", 32, 1e4), plain("rope", 80, 1e4), plain("rope", 128, 5e5),
    plain("rope", 2, 1e4), plain("pope", 64, 1e4), plain("pope", 32, 1e4), plain("pope", 96, 5e5),
    plain("pope", 63, 1e4),
    plain("rope", 64, 1e4, scaling="linear", factor=4.0), plain("rope", 128, 1e6, scaling="linear", factor=2.5),
    yarn(64, 1e4, 1024, 4.0), yarn(64, 1e4, 1024, 4.0, truncate=False), yarn(128, 1e6, 32768, 4.0),
    yarn(80, 1e4, 2048, 16.0, beta_fast=16.0, beta_slow=2.0), yarn(64, 1e4, 64, 8.0),
    yarn(128, 5e5, 8192, 1.0),
    yarn(64, 1e4, 1024, 4.0, truncate=False, beta_fast=16.0, beta_slow=15.0),
    yarn(64, 1e4, 1024, 4.0, truncate=False, beta_fast=16.0, beta_slow=16.0),
    yarn(64, 1e4, 1024, 4.0, truncate=False, beta_fast=16.0, beta_slow=14.1),
]
POSITIONS = [0, 1, 2, 3, 1023, 1024, 10239, 65537, 131071, 1048575, 9999991, 16700000, 16777215]

for case in CASES:
    t = thetas(case)
    case["freq"] = [freq(x) for x in t]
    case["freq_f32"] = [freq(to_f32(x)) for x in t]
    picks = sorted({0, 1, len(t) // 3, len(t) // 2, len(t) - 1} & set(range(len(t))))
    case["phases"] = [{"channel": c, "half_turns": [half_turns(t[c], p) for p in POSITIONS]} for c in picks]

out = {"note": "made by generate.py", "positions": POSITIONS, "cases": CASES}
pathlib.Path(__file__).with_name("frequencies.json").write_text(json.dumps(out, indent=1) + "\n")
