"""Made-up English prose, the same for a seed on every machine: plain sentences of the kind that the demo models learned to
read, so that harm to a model shows in its loss."""

import json
import random
import textwrap

PEOPLE = ("Mr. Hall", "Miss Gray", "the old man", "his brother", "her sister", "the captain", "my father", "the doctor",
          "Mrs. Wood", "the king", "a young lady", "her mother", "the boy", "John", "Mary", "the stranger")
PLACES = ("the house", "the garden", "the town", "the church", "the river", "London", "the great hall", "the road", "the door",
          "the window", "the sea", "the village", "the library", "the king's court", "the wood", "his room")
THINGS = ("a letter", "the book", "the money", "his hat", "a little box", "the lamp", "her hand", "a sword", "the bread", "a horse",
          "the paper", "an old chair", "the fire", "a glass of wine")
QUALITIES = ("happy", "tired", "very kind", "afraid", "quite alone", "so proud", "ill", "pleased", "angry", "silent", "of good heart",
             "poor", "young and beautiful", "much surprised")
WHEN = ("in the morning", "at night", "before dinner", "that evening", "after a long time", "on the next day", "at last", "for a moment",
        "in the spring", "when the sun was low", "every day", "as soon as he could")
SAYING = ("I do not know", "you must go now", "it is too late", "there is nothing to be done", "I am glad to see you", "we shall be there",
          "it was not my fault", "God bless you", "let us go in", "you have been very good to me", "I will tell you the truth")
SHAPES = (
    "{P} was {q}, and {p} went to {l} {w}.",
    "{P} had never been so {q} in all the days of life.",
    "\"{S},\" said {p}.",
    "{P} came into {l} with {t}, and looked at {p}.",
    "There was {t} in {l}, but {p} did not see it.",
    "It was {w} that {p} first saw {p}, who was then {q}.",
    "{P} took {t} and gave it to {p}, for there was no one else in {l}.",
    "\"{S},\" cried {p}; \"{s}.\"",
    "When {p} was gone, {p} sat down by {l} and thought of {t}.",
    "They walked together to {l}, and {p} told them that {p} was {q}.",
    "{P} could not think of {t} without being {q}.",
    "It has been said that {p} was {q}; and yet, {w}, {p} would go to {l}.",
)


def capital(text):
    return text[:1].upper() + text[1:]


def sentence(rng, shape, lists):
    out = shape
    for mark, words in lists.items():
        for form, change in ((mark, str), (mark.upper(), capital)):
            while "{" + form + "}" in out:
                out = out.replace("{" + form + "}", change(rng.choice(words)), 1)
    return out


def document(rng, n_sentences):
    """A few people, places and turns of speech of its own, so that documents differ from one another."""
    lists = {"p": rng.sample(PEOPLE, 3), "l": rng.sample(PLACES, 3), "t": rng.sample(THINGS, 3), "q": rng.sample(QUALITIES, 4),
             "w": rng.sample(WHEN, 3), "s": rng.sample(SAYING, 3)}
    shapes = rng.sample(SHAPES, 6)
    text = " ".join(sentence(rng, rng.choice(shapes), lists) for _ in range(n_sentences))
    return textwrap.fill(text, 70) + "\n"  # as the books that the models know are printed


def write_library(folder, n_docs, seed=1, sentences=(5, 12)):
    """n_docs files NNNN.txt."""
    rng = random.Random(seed)
    folder.mkdir(parents=True)
    for i in range(n_docs):
        (folder / f"{i:04}.txt").write_text(document(rng, rng.randint(*sentences)), encoding="utf-8")


def question(rng):
    """Where somebody goes: to a place that was spoken of, not to one of three others."""
    places = rng.sample(PLACES, 4)
    before = (f"{capital(rng.choice(PEOPLE))} was in {places[0]} {rng.choice(WHEN)}, and thought of {rng.choice(THINGS)}. "
              f"\"{capital(rng.choice(SAYING))},\" said {rng.choice(PEOPLE)}. It was {rng.choice(WHEN)} that they came back to")
    gold = rng.randrange(4)
    return {"query": textwrap.fill(before, 70), "choices": places[1:gold + 1] + places[:1] + places[gold + 1:], "gold": gold}


def write_questions(path, n, seed=1):
    """One question a line, for task `choices`."""
    rng = random.Random(seed)
    path.write_text("".join(json.dumps(question(rng)) + "\n" for _ in range(n)), encoding="utf-8")
