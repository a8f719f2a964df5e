#!/usr/bin/env python3
"""Makes lines.json for tests/test_indirect_indexing.c (Python 3.11, standard library only): the lines of
`fathom generate --task indirect_indexing` by the rule in the header of eval/indirect_indexing.c, written anew here."""
import hashlib
import json
import os

MASK = (1 << 64) - 1


def splitmix64(state):
    while True:
        state = (state + 0x9E3779B97F4A7C15) & MASK
        z = state
        z = ((z ^ z >> 30) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ z >> 27) * 0x94D049BB133111EB) & MASK
        yield z ^ z >> 31


def below(rng, n):
    most = MASK - MASK % n
    while (x := next(rng)) >= most:
        pass
    return x % n


def line(rng):
    letters = list("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")
    string = []
    for _ in range(20 + below(rng, 21)):
        i = below(rng, len(letters) - len(string)) + len(string)
        letters[i], letters[len(string)] = letters[len(string)], letters[i]
        string.append(letters[len(string)])
    source = below(rng, len(string))
    shift = None
    while shift is None or not 0 <= source + shift < len(string):
        shift = below(rng, 31) - 15
    return f"{''.join(string)}, {string[source]}, {shift:+d}, {string[source + shift]}\n"


def main():
    out = []
    for seed in (0, 1, 2**53):
        rng = splitmix64(seed)
        lines = [line(rng) for _ in range(2000)]
        out.append({"seed": seed, "n": len(lines), "first": lines[:3], "sha256": hashlib.sha256("".join(lines).encode()).hexdigest()})
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "lines.json"), "w", encoding="utf-8") as f:
        f.write(json.dumps(out, indent=1) + "\n")


main()
