"""Rows that real files hold too seldom: each meets a rule of preprocessing or of tokens. What ours is compared with is
lm-eval's own reading of them.

HELLASWAG is the official layout (that file is not public here): " [title]", brackets, double spaces, the one strip,
capitals.
LAMBADA: whitespace at the border in all forms of Python's rstrip, no context, special tokens, words of many tokens. (No
word at all, a space at the end, is an error here and a score of that space in lm-eval.)
"""


def row(activity, a, b, *endings, label=0):
    return {
        "ind": 0,
        "activity_label": activity,
        "ctx_a": a,
        "ctx_b": b,
        "ctx": f"{a} {b}",
        "endings": list(endings),
        "split": "val",
        "split_type": "indomain",
        "label": str(label),
        "source_id": "made",
    }


HELLASWAG = [
    row(
        "Removing ice from car",
        "Then, the man writes over the snow covering the window of a car.",
        "then",
        ", the man adds wax to the windshield and cuts it.",
        ", a person board a ski lift.",
        ", the man puts on a christmas coat, knitted with netting.",
        ", the man continues removing the snow.",
        label=3,
    ),
    row(
        "Health",
        "How to cope [header] Get help. [title] See a doctor. [step] A doctor can help you.",
        "",
        "[substeps] Ask him. [title] Ask again.",
        "Do nothing [title]",
        "[step] Wait  for   it.",
        " [title] Rest.",
        label=1,
    ),
    row(
        "Cooking",
        "  A pan  is put   on the stove. ",
        " THE Cook STIRS",
        "it  well .",
        " it slowly ",
        "[x][y] it fast",
        "a [b [c] d] e",
        label=2,
    ),
    row(
        "[header] Travel",
        "We went to \u00c9VIAN.",
        "\u00c9COLES \u00c9taient Ferm\u00e9es",
        "partout.",
        "hier.",
        "\u00e0 Gen\u00e8ve.",
        "l\u00e0-bas.",
        label=1,
    ),
    row(
        "Letters",
        "Stra\u00dfe and \u0149.",
        "\u00dfTRASSE IN \u01c4UNGLA",
        "ends.",
        "begins.",
        "is long.",
        "is \u039f\u0394\u039f\u03a3.",
        label=3,
    ),
    row(
        "Greek",
        "He reads.",
        "\u039f\u0394\u03a5\u03a3\u03a3\u0395\u03a5\u03a3 "
        "\u039a\u0391\u0399 \u03a3\u039f\u03a6\u039f\u03a3. \u0391\u03a3'\u0391 \u03a3",
        "sails.",
        "sleeps.",
        "sings.",
        "swims.",
        label=0,
    ),
    row(
        "Turkish",
        "She flies.",
        "\u0130STANBUL \u0130LE I\u011eDIR",
        "is far.",
        "is near.",
        "is old.",
        "is new.",
        label=2,
    ),
    row(
        "Digraphs",
        "He writes.",
        "\u01c6 \u01c5 \u01c4 \ufb01RST \u03a9hm K",
        "today.",
        "now.",
        "never.",
        "often.",
        label=1,
    ),
    row("Brackets", "An [unclosed one.", "and [one] more] here [", "[a] a", "b[c]d", "e]f[g", "h [title]i", label=1),
    row("Gardening", "Dig a hole.", "plant it [substeps]", "deep.", "flat.", "wide.", "late.", label=0),
    row("Gardening", "Dig a hole.", "plant it\u00a0 [substeps]", "deep.", "flat.", "wide.", "late.", label=2),
    row("Spaces", "Non breaking and\u3000wide.", " tab\tand\nline", "x  y", "x   y", "x    y", "x y", label=3),
]

LAMBADA = [
    {"text": text}
    for text in [
        "A word after two  spaces",
        "A word after a blank line\n\n below",
        "a tab\t word",
        "a no-break space\u00a0 word",
        "an ideographic one\u3000 word",
        "a file separator\x1c word",
        "next line\x85 word",
        "a zero width space is none\u200b word",
        "a word joiner neither\u2060 word",
        "mixed \t\u2003\n\u00a0 \r\n word",
        "alone",
        " led",
        "  led twice",
        "ends with a line\n",
        "<|endoftext|> begins",
        "<|endoftext|>glued begins",
        "ends with <|endoftext|>",
        "in <|endoftext|>the middle",
        "<|endoftext|>",
        "She said it wasn't",
        "the ends' quote's",
        "a number 1234567890123",
        "punctuation ?!...;--",
        "an Antidisestablishmentarianism-pneumonoultramicroscopicsilicovolcanoconiosis",
        "\u65e5\u672c\u8a9e \u306e\u6587\u7ae0\u3067\u3059",
        "na\u00efve caf\u00e9 \u00e9t\u00e9",
        "decomposed e\u0301te\u0301 e\u0301",
        "emoji \U0001f9d1\u200d\U0001f680\u2764\ufe0f",
        "\u0645\u0631\u062d\u0628\u0627 \u0628\u0627\u0644\u0639\u0627\u0644\u0645",
        "a byte order mark \ufeffhere",
        "private \ue000\U000f0000",
        " ".join(f"long{i}" for i in range(200)),
    ]
]
