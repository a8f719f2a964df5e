"""Questions in the format of the Children's Book Test, rebuilt from its raw books: the full question files are not to be
had everywhere. Not the official questions, so scores are nobody's but ours.

python3 tests/cbt_rebuild.py cbt_test_raw.txt OUT [--per-kind N] writes OUT/cbtest_KIND_test_rebuilt.txt for CN, NE, V, P,
the same bytes each time. As the paper tells: 20 consecutive sentences and the next, one word of which is removed;
candidates are ten words of that kind from the question, the answer among them, sorted. Kinds come without a tagger: V and P from
lists of common words, NE words with a capital inside a sentence, CN words after "the", "a", "an"."""

import argparse
import random
import re
from pathlib import Path

VERBS = set("""am are is was were be been being have has had do does did said say says saw see seen came come go went gone
going get got make made take took taken know knew known think thought look looked looking find found give gave given tell
told asked ask answered cried called call turned run ran sat sit stood stand heard hear felt feel left leave put let kept
keep began begin grew grow brought bring held hold wanted want lived live seemed seem might could would should will shall
can may must stopped started laughed smiled replied loved love liked like""".split())
PREPOSITIONS = set("""about above across after against along among around as at before behind below beneath beside besides
between beyond but by down during except for from in inside into like near of off on onto out outside over past since
than that through till to toward towards under until up upon with within without""".split())
WORD = re.compile(r"^[A-Za-z][A-Za-z-]+$")


def words_of_kind(kind, tokens):
    """Indices of a sentence's words of this kind."""
    for i, t in enumerate(tokens):
        if not WORD.match(t):
            continue
        low = t.lower()
        common = low in VERBS or low in PREPOSITIONS
        if kind == "V" and low in VERBS or kind == "P" and low in PREPOSITIONS:
            yield i
        elif kind == "NE" and i and t[0].isupper() and not t.isupper() and tokens[i - 1] not in "`` ` '' ' . ? ! :".split():
            yield i
        elif kind == "CN" and i and not common and t.islower() and tokens[i - 1].lower() in ("the", "a", "an"):
            yield i


def question(kind, sentences, rng):
    """The 21 lines, or None when the last has no word of the kind or there are not ten to choose from."""
    query = sentences[20].split()
    gaps = list(words_of_kind(kind, query))
    if not gaps:
        return None
    gap = rng.choice(gaps)
    answer = query[gap]
    others = sorted({s.split()[i] for s in sentences for i in words_of_kind(kind, s.split())} - {answer})
    if len(others) < 9:
        return None
    candidates = sorted(rng.sample(others, 9) + [answer])
    query[gap] = "XXXXX"
    lines = [f"{n} {s}" for n, s in enumerate(sentences[:20], 1)]
    return "\n".join(lines + [f"21 {' '.join(query)}\t{answer}\t\t{'|'.join(candidates)}"]) + "\n\n"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("raw", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--per-kind", type=int, default=100)
    options = parser.parse_args()
    books = re.split(r"(?m)^_BOOK_TITLE_ :.*$", options.raw.read_text(encoding="utf-8").replace("\r", ""))
    books = [[s.strip() for s in b.split("\n") if s.strip()] for b in books]
    places = [(b, i) for b in range(len(books)) for i in range(len(books[b]) - 20)]
    options.out.mkdir(parents=True, exist_ok=True)
    for kind in ("CN", "NE", "V", "P"):
        rng = random.Random(kind)
        made = []
        for b, i in rng.sample(places, len(places)):
            q = question(kind, books[b][i:i + 21], rng)
            if q:
                made.append(q)
            if len(made) == options.per_kind:
                break
        (options.out / f"cbtest_{kind}_test_rebuilt.txt").write_text("".join(made), encoding="utf-8")


if __name__ == "__main__":
    main()
