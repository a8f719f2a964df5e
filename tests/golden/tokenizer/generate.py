#!/usr/bin/env python3
"""Makes the golden files of tests/test_tokenizer.c with Hugging Face's `tokenizers` (made with 0.23.3, Python 3.11).

    generate.py [--train] [--shared DIR] [--data DIR]

small.json      a byte-level BPE of 768 tokens of our own, trained on the text that corpus() makes (only with --train)
cases.json      the texts, for all tokenizers
assigned.json   the code points assigned in Unicode 14, as ranges
ids_NAME.json   what each tokenizer gives: ids of every case; for large ones the number of tokens and the sha256 of
                the ids as little-endian uint32. small always; 29m, gpt2 and neox when their files are at hand.
variants.json   small.json with other settings, as replacements in its text: ids of a few cases each
gaps.json       tokenizers whose vocabulary has no token for most bytes, whole, and ids of a few cases each

What is large is built alike here and in test_tokenizer.c: see mixed(), garbage(), everything(), book().
"""
import argparse
import hashlib
import json
import os
import struct
import unicodedata

import tokenizers
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

HERE = os.path.dirname(os.path.abspath(__file__))
BOOK_BYTES = 5_000_000

# -- texts --------------------------------------------------------------------------------------------

CASES = [
    "", " ", "a", "\n", "Hello, world!", "The ship's log said: we'll sail at 7, they've gone, I'm late, he'd know, you're in.",
    "don't DON'T Don'T 'tis 'twas o'clock 's't're've'm'll'd 'S 'x 'r 'v 'l ' ''", "it's'll've", "'", "'r", "'re", " 'll", "x'",
    "one  two   three    four     five      six       seven", "  lead", "trail  ", " \t mix \t\t of\n\n\nwhite \r\n space\r\r\n",
    " " * 2, " " * 3, " " * 24, " " * 25, " " * 49, " " * 1000, "x" + " " * 31 + "y", "\n" * 100, "\t" * 17 + "z", " \n \n \n",
    "def f(x):\n    if x:\n        return {'a': [1, 2, 3]}\n\treturn None  # done\n", "a\n\n    b\n\n        c",
    "1 12 123 1234567890 3.14159 1,000,000 1e-5 0x1F 2nd ½ ¾ Ⅷ ⅷ ² ₃ ① ٣٤٥ ०१२ 一二三 𝟘𝟙 𐄇 ๑๒๓",
    "!?.,;:-_=+*/\\|~`@#$%^&()[]{}<>\"'", "...---===___***!!!???", " ,  ;  :", "$5.00 €10 £20 ¥30 ₿1",
    "<|endoftext|>", "<|endoftext|><|endoftext|>", " <|endoftext|> ", "a<|endoftext|>b", "<|endoftext|", "|endoftext|>", "<<|endoftext|>>",
    "<|padding|>x<|padding|>", "<|ENDOFTEXT|>", "  <|endoftext|>   x", "\n<|endoftext|>\n",
    "Le cœur a ses raisons que la raison ne connaît point; l'été, où êtes-vous? Ça alors, naïve Noël.",
    "Größe und Straße, Übermut tut selten gut; ÄÖÜ äöü ß ẞ.", "El niño comió piñas mañana. ¿Qué? ¡Olé!", "São Paulo, coração, órgão, à força.",
    "Zażółć gęślą jaźń. Příliš žluťoučký kůň úpěl ďábelské ódy.", "Ýmsar þjóðir eiga sér æði mörg orð.", "İstanbul'da ışık, ığdır, ŞŞ ğ.",
    "Tiếng Việt có nhiều dấu: ắ ằ ẳ ẵ ặ ế ề ể ễ ệ.", "Съешь же ещё этих мягких французских булок, да выпей чаю.",
    "Η ταχεία αλεπού πηδά. Ἐν ἀρχῇ ἦν ὁ λόγος, ᾧ ᾷ ΰ.", "דג סקרן שט בים מאוכזב ולפתע מצא לו חברה. שָׁלוֹם", "نص حكيم له سر قاطع وذو شأن عظيم. مُحَمَّد ﷺ ۱۲۳",
    "ऋषियों को सताने वाले दुष्ट राक्षसों के राजा रावण। क़ ख़ ड़", "বাংলা ভাষা: ক্ষ ড় ঢ় য় কো কৌ", "தமிழ் மொழி: கொ கோ கௌ ஸ்ரீ", "తెలుగు ಕನ್ನಡ മലയാളം ਪੰਜਾਬੀ ગુજરાતી ଓଡ଼ିଆ සිංහල",
    "ภาษาไทยไม่มีช่องว่างระหว่างคำ กำ ก็", "ພາສາລາວ ຄຳ", "မြန်မာဘာသာ ခြင်္သေ့", "ភាសាខ្មែរ ស្ត្រី", "བོད་སྐད་ ཧཱུྃ ཀྵ", "ქართული ენა ᲥᲐᲠᲗᲣᲚᲘ", "Հայերեն լեզու և ﬓ",
    "አማርኛ ፊደል ፩፪፫", "ᏣᎳᎩ ꮳꮃꭹ", "ᐃᓄᒃᑎᑐᑦ", "ᠮᠣᠩᠭᠣᠯ ᠪᠢᠴᠢᠭ᠎᠎ᠡ", "ߒߞߏ", "ⵜⴰⵎⴰⵣⵉⵖⵜ", "ꯃꯤꯇꯩ", "𐌲𐌿𐍄𐌹𐍃𐌺 𐎠𐎱𐎠 𒀀𒁀 𓀀𓁐 𐤀𐤁",
    "天地玄黃,宇宙洪荒。日月盈昃,辰宿列張。", "汉字简体与繁體:东東、国國、𠀀𪛖", "いろはにほへと ちりぬるを。カタカナ、ガギグゲゴ、ガギグ、ヽヾ。", "다람쥐 헌 쳇바퀴에 타고파. 한글 각 ㄱㄴㄷ",
    "豈更車賈 嵐 﨎 丽 fi ffl Ω K Å", "①②③ Ⓐⓑ ㈱ ㍿ ㎏ ﹏ fullwidth !A",
    "cafe\u0301 café e\u0301\u0323 e\u0323\u0301 \u0301 a\u0315\u0300\u05ae\u0300\u0062 \u0344 \u0958 \u2126 \u212b A\u030a",
    "\u1100\u1161\u11a8 \uac00\u11a8 \uac01\u11a8 \u1161\u1100 \u1100\u1100\u1161", "a\u0301\u0301\u0301\u0327\u0327 " + "\u0301\u0323" * 40,
    "\u0f71\u0f72\u0f74 \u0f73 \u0f75 \u0f81 \u0f77", "\u09c7\u09be \u09cb \u0b47\u0b56 \u0bc6\u0bbe \u0dd9\u0dcf\u0dca", "q\u0307\u0323 \u1e0b\u0323 \u1e0d\u0307",
    "a\u0898\u0323 a\u1abf\u0301 \U00011935\U00011930 \U00011938 \U00011099\U000110ba \U0001d15e", "\u0301<|endoftext|>\u0301a",
    "😀 👍🏽 👨‍👩‍👧‍👦 🏳️‍🌈 🇫🇷🇩🇪 ❤️ ☺︎ 🤷🏿‍♀️ 1️⃣ #️⃣ 🫠 🧑🏻‍🚀🚀🚀🚀", "😀😀😀 😀  😀", "→ ⇒ ∀x∈ℝ: ∑ᵢ xᵢ² ≤ ∞ ∫ √2 ≈ 1.41421356… ½×¾ ÷ ± µm °C",
    "box ┌─┐│ │└─┘ █▓▒░ ♠♥♦♣ ♔ ⠓⠑⠇⠇⠕ 🂡 🀄 𝄞 𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𝒜𝓑",
    "".join(map(chr, range(0, 32))), "a\x00b \x00\x00 \x01\x02\x7f\x80\x81\x9f", "\x0b\x0c\x1c\x1d\x1e\x1f x\x1fy",
    "\u0085a \u0085 \u00a0a \u00a0\u00a0b \u1680c \u180ed \u2000\u2001\u2002e \u200bf \u200cg \u2028\u2029h \u202fi \u205fj \u2060k \u3000l \ufeffm",
    " \u00a0 x", "x \u3000y", "\u3000\u3000", " \u2003a", "\u2003 a", "a\u200db \u200e\u200f\u202a\u202e\u2066\u2069", "\ufeffBOM first", "soft\u00adhyphen", "\ufffd\ufffd \ufffc \ufff9x\ufffb",
    "\ue000\uf8ff \U000f0000\U0010fffd \U000e0001\U000e0041\U000e007f \ufe0f\U000e0100", "\ufdd0 \uffff \U0001ffff \U0010ffff \u0378 \u0530",
    "https://example.org/a_b?c=1&d=%20#e user.name+tag@example.co.uk C:\\dir\\file.txt ~/x/../y", "snake_case camelCase PascalCase SCREAMING_CASE kebab-case x86_64 utf8mb4 v1.2.3-rc4",
    "a" * 300, "ab" * 200, "abc " * 100, "é" * 100, "漢" * 100, "1" * 200, "!" * 200, "A" * 257 + " " + "A" * 255 + " " + "A" * 256,
    "Antidisestablishmentarianism pneumonoultramicroscopicsilicovolcanoconiosis Llanfairpwllgwyngyllgogerychwyrndrobwllllantysiliogogogoch",
    '{"key": "value", "list": [1, 2.5, -3e8, null, true], "nested": {"a\\n": "\\u00e9"}}', "<p class=\"x\">Tom &amp; Jerry</p><!-- c --><br/>\n",
    "\\begin{align} E &= mc^2 \\\\ \\frac{a}{b} \\end{align}", "SELECT * FROM t WHERE a <> 'b' AND c IS NOT NULL; -- x", "| a | b |\n|---|:-:|\n| 1 | 2 |\n",
]

# Bytes that are not UTF-8, for the replacement rule: the tokenizers see bytes.decode("utf-8", "replace").
BROKEN = [
    "ff", "80", "c3", "e282", "f09f98", "c0af", "eda080", "f4908080", "61ff62", "61c328", "e28228", "e228a1", "f0288cbc", "f09028bc", "f0288c28",
    "20c320e220f09f20", "efbfbd80efbfbd", "f8a1a1a1a1", "fca1a1a1a1a1", "e0809f", "f0808080", "41e98c42", "c2", "c2c2a0", "edbfbf", "feff0041", "fffe4100",
    "63616ee97320646520ea74726520", "e58d", "e58de58d97", "0d0aff0d", "f09f9880ff", "00ff00",
]


def corpus():
    """English of sorts, and a little of other scripts, for training small.json: no more than a grammar makes."""
    rng = random_numbers(1)
    pick = lambda words: words[next(rng) % len(words)]
    who = "the captain,a sailor,the old woman,my brother,the keeper,nobody,the children,a stranger,the whale,she".split(",")
    did = "saw,found,lost,carried,remembered,followed,heard,painted,sold,forgot,mended,watched".split(",")
    what = "the lighthouse,a letter,the harbour,an island,the storm,a wooden boat,the morning,her lantern,the map,a song".split(",")
    when = "before dawn,in the winter,after the rain,that night,again,without a word,for seven years,at last".split(",")
    lines = []
    for _ in range(4000):
        line = f"{pick(who)} {pick(did)} {pick(what)} {pick(when)}".capitalize()
        line += pick([".", "!", ", and it wasn't there.", "; they'd waited.", f" in {1800 + next(rng) % 200}.", " (I'm sure)."])
        lines.append(line)
    lines += ["Der Kapitän sah das Licht über der See.", "Le phare était éteint, déjà.", "Старик и море.", "Ο γέρος και η θάλασσα.", "老人与海。"] * 20
    return lines


# -- texts that are built, here as in test_tokenizer.c ----------------------------------------------------

MASK = (1 << 64) - 1


def random_numbers(seed):
    """splitmix64, without its lowest 33 bits."""
    x = seed
    while True:
        x = (x + 0x9E3779B97F4A7C15) & MASK
        z = x
        z = ((z ^ z >> 30) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ z >> 27) * 0x94D049BB133111EB) & MASK
        yield (z ^ z >> 31) >> 33


def assigned_ranges():
    assert unicodedata.unidata_version == "14.0.0", "needs Python 3.11: Unicode 14"
    ranges = []
    for c in range(0x110000):
        if unicodedata.category(chr(c)) in ("Cn", "Cs"):
            continue
        if ranges and c == ranges[-1][1] + 1:
            ranges[-1][1] = c
        else:
            ranges.append([c, c])
    return ranges


PARTS = ["'s", "'ll", "'re", "'", " ", "  ", "   ", "\n", "\r\n", "\t", "<|endoftext|>", "<|padding|>", "<|", "\u00a0", "\u3000", "\u0085",
         "the", " the", "ing", "1", " 12", "!", " ?!", "\u0301", "\u0323", "\u0327\u0307", "\uac00", "\u1100", "\u1161", "\u11a8", "\u200d", "\ufe0f"]


def mixed(assigned, seed):
    """One text of up to 64 pieces: characters of all of Unicode, of its first 0x3000, of ASCII, and PARTS."""
    rng = random_numbers(seed)
    out = []
    low = sum(1 for c in assigned if c < 0x3000)
    for _ in range(next(rng) % 64 + 1):
        kind = next(rng) % 4
        r = next(rng)
        if kind == 0:
            out.append(chr(assigned[r % len(assigned)]))
        elif kind == 1:
            out.append(chr(assigned[r % low]))
        elif kind == 2:
            out.append(chr(r % 128))
        else:
            out.append(PARTS[r % len(PARTS)])
    return "".join(out)


def garbage(seed, n):
    """n bytes, half of them above 0x7F, as a text after the replacement rule."""
    rng = random_numbers(seed)
    return bytes(next(rng) % 256 for _ in range(n)).decode("utf-8", "replace")


def everything(assigned, separator):
    """Texts of 4096 characters, each character followed by the separator, over all that is assigned."""
    for i in range(0, len(assigned), 4096):
        yield "".join(chr(c) + separator for c in assigned[i : i + 4096])


def clean(raw):
    return raw.decode("utf-8", "replace").replace("\r\n", "\n").replace("\r", "\n")


def book(data):
    """The PG-19 test books by name, one after another, until BOOK_BYTES are read."""
    folder = os.path.join(data, "pg19/test")
    raw = b""
    for name in sorted(os.listdir(folder)):
        if len(raw) >= BOOK_BYTES:
            break
        raw += open(os.path.join(folder, name), "rb").read()
    return clean(raw)


DOCUMENTS = ["wikitext2/test.txt", "lambada/lambada_test.jsonl", "hellaswag/hellaswag_val_full.txt", "blimp/causative.jsonl"]
SEPARATORS = ["", " ", "a", "1", "\u0301"]

# -- golden files ---------------------------------------------------------------------------------------


def ids_of(tokenizer, text):
    return tokenizer.encode(text, add_special_tokens=False).ids


def digest(lists):
    h = hashlib.sha256()
    n = 0
    for ids in lists:
        h.update(struct.pack(f"<{len(ids)}I", *ids))
        n += len(ids)
    return {"n": n, "sha256": h.hexdigest()}


def golden(tokenizer, assigned, data):
    encode = lambda text: ids_of(tokenizer, text)
    short = lambda ids: ids if len(ids) <= 100 else digest([ids])
    out = {"library": f"tokenizers {tokenizers.__version__}"}
    out["cases"] = [short(encode(t)) for t in CASES]
    out["broken"] = [encode(bytes.fromhex(h).decode("utf-8", "replace")) for h in BROKEN]
    out["mixed"] = [digest(encode(mixed(assigned, 1000 * i + k)) for k in range(100)) for i in range(20)]
    out["garbage"] = digest([encode(garbage(7, 65536))])
    out["everything"] = [[digest([encode(t)]) for t in everything(assigned, s)] for s in SEPARATORS]
    out["long"] = digest([encode("a" * 1_000_000), encode(" " * 1_000_000), encode("ab1" * 300_000), encode("é" * 300_000)])
    if data:
        out["book"] = digest([encode(book(data))])
        out["documents"] = [digest([encode(clean(open(os.path.join(data, d), "rb").read()))]) for d in DOCUMENTS]
    return out


def write(name, value):
    with open(os.path.join(HERE, name), "w", encoding="utf-8") as f:
        if isinstance(value, dict):
            rows = ",\n".join(f"{json.dumps(k)}:{json.dumps(v, ensure_ascii=False, separators=(',', ':'))}" for k, v in value.items())
            f.write("{" + rows + "}\n")
        else:
            f.write("[" + ",\n".join(json.dumps(v, ensure_ascii=False, separators=(",", ":")) for v in value) + "]\n")


def train():
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.train_from_iterator(corpus(), trainers.BpeTrainer(vocab_size=768, special_tokens=["<|endoftext|>"], show_progress=False,
                                                        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    with open(os.path.join(HERE, "small.json"), "w", encoding="utf-8") as f:
        json.dump(json.loads(t.to_str()), f, ensure_ascii=False, separators=(",", ":"))
        f.write("\n")


# -- variants of small.json -----------------------------------------------------------------------------

PRE = '"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":true}'
POST = '"post_processor":null'
NORM = '"normalizer":null'
ADDED = '"added_tokens":['
VOCAB = '"vocab":{'


def added(i, content, **flags):
    keys = ("single_word", "lstrip", "rstrip", "normalized", "special")
    return json.dumps({"id": i, "content": content, **{k: flags.get(k, False) for k in keys}}, ensure_ascii=False) + ","


def split(regex):
    step = {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    return '"pre_tokenizer":' + json.dumps({"type": "Sequence", "pretokenizers": [step, level]})


LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
DIGITS = ('"pre_tokenizer":{"type":"Sequence","pretokenizers":[{"type":"Digits","individual_digits":%s},'
          '{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":true}]}')
TEMPLATE = ('"post_processor":{"type":"Sequence","processors":[{"type":"ByteLevel","add_prefix_space":true,"trim_offsets":false,'
            '"use_regex":true},{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<|endoftext|>","type_id":0}},'
            '{"Sequence":{"id":"A","type_id":0}},{"SpecialToken":{"id":"end","type_id":0}}],"pair":[{"Sequence":{"id":"A","type_id":0}},'
            '{"Sequence":{"id":"B","type_id":1}}],"special_tokens":{"<|endoftext|>":{"id":"<|endoftext|>","ids":[0],"tokens":["<|endoftext|>"]},'
            '"end":{"id":"end","ids":[5,6],"tokens":["a","b"]}}}]}')

FLAGS = ["a<m>b", " <m> ", "  <m>  x", "<m><m>", "x\u00a0<m>\u3000\ny", "<m>", " <m>  <m>   <m>", "<s>é <m>", "é<m>", "_<m> <m>1 (<m>) <m>", "  \n<m>", "<endoftext|> <m>s"]
VARIANTS = [
    ("nfc", [(NORM, '"normalizer":{"type":"NFC"}')], ["cafe\u0301 e\u0323\u0301x", "A\u030a\u212b", "\u1100\u1161\u11a8", "the\u0301 captain"]),
    ("nfc in a sequence", [(NORM, '"normalizer":{"type":"Sequence","normalizers":[{"type":"NFC"}]}')], ["cafe\u0301"]),
    ("no pattern", [(PRE, PRE.replace('"use_regex":true', '"use_regex":false'))], ["the captain saw the lighthouse  again.", "don't\n\n"]),
    ("prefix space", [(PRE, PRE.replace('"add_prefix_space":false', '"add_prefix_space":true'))],
     ["the captain", " the captain", "\nthe", "the<|endoftext|>the captain the<|endoftext|> the", "é"]),
    ("llama 3", [(PRE, split(LLAMA3))], CASES[:30] + ["12345 1234567", "DON'T \u017f 'ſ", "a\r\n\r\n b", "!\n\n", "\t\ttab", "\u0085x", "x\u180ey \u180e z"]),
    ("qwen 2", [(PRE, split(QWEN2))], CASES[:30] + ["12345", "x  12 \n  y"]),
    ("a pattern with gaps", [(PRE, split(r"\d+|the"))], ["the 12 in the 345", "x", "12", "othello"]),
    ("digits one by one", [(PRE, DIGITS % "true")], ["in 1984, x12y", "١٢", "½ ²"]),
    ("digits together", [(PRE, DIGITS % "false")], ["in 1984, x12y", " 12 "]),
    ("ignore merges", [('"ignore_merges":false', '"ignore_merges":true'), (VOCAB, VOCAB + '"Ġwholly":768,"xyzzy":769,')], ["so wholly xyzzy", "xyzzy wholly", "xyzzyx"]),
    ("unreachable tokens", [(VOCAB, VOCAB + '"Ġwholly":768,"xyzzy":769,')], ["so wholly xyzzy"]),
    ("a hole in the vocabulary", [(VOCAB, VOCAB + '"xyzzy":1000,')], ["xyzzy"]),
    ("template", [(POST, TEMPLATE)], ["the captain", "", "<|endoftext|>x"]),
    ("added", [(ADDED, ADDED + added(768, "<m>") + added(769, "<s>é", normalized=True))], FLAGS),
    ("added, leftmost and longest", [(ADDED, ADDED + added(768, "ab") + added(769, "abcd") + added(770, "bcde") + added(771, "  ") + added(772, "    "))],
     ["abcde", "abc", "xabcdx", "bcde", "aabab", " " * 7, "a  b   c", "abcdbcde"]),
    ("added, lstrip", [(ADDED, ADDED + added(768, "<m>", lstrip=True))], FLAGS),
    ("added, rstrip", [(ADDED, ADDED + added(768, "<m>", rstrip=True))], FLAGS),
    ("added, both", [(ADDED, ADDED + added(768, "<m>", lstrip=True, rstrip=True, normalized=True))], FLAGS),
    ("added, single word", [(ADDED, ADDED + added(768, "<m>", single_word=True) + added(769, "sea", single_word=True, special=True))],
     FLAGS + ["sea", "the sea.", "seas", "overseas sea-sea", "sea\u0301", "sea\u200d", "_sea", "sea1 1sea ½sea", "ßsea sea", "sea\u203fx"]),
    ("added, normalized under nfc", [(NORM, '"normalizer":{"type":"NFC"}'), (ADDED, ADDED + added(768, "e\u0301x", normalized=True) + added(769, "o\u0301x"))],
     ["e\u0301x éx", "o\u0301x óx", "o\u0301\u0323x", "xe\u0301xe\u0301x"]),
]


def variants(base):
    out = []
    for name, changes, texts in VARIANTS:
        text = base
        for old, new in changes:
            assert text.count(old) == 1, (name, old, text.count(old))
            text = text.replace(old, new)
        t = Tokenizer.from_str(text)
        cases = [[s, t.encode(s, add_special_tokens=False).ids, t.encode(s).ids] for s in texts]
        out.append({"name": name, "changes": changes, "cases": cases})
    return out


# -- vocabularies with gaps ------------------------------------------------------------------------------

GAP_VOCAB = ["<pad>", "<unk>", *"abcdefghijt0123,.-Ġ", "ab", "abc", "th", "the", "Ġthe", "bc", "a<unk>", "<unk>b", "<unk><unk>", "12", "x.y"]
GAP_MERGES = [("a", "b"), ("ab", "c"), ("t", "h"), ("th", "e"), ("Ġ", "the"), ("b", "c"), ("1", "2")]
UNK_MERGES = [("a", "<unk>"), ("<unk>", "b"), ("<unk>", "<unk>")]
GAP_TEXTS = ["", "abc", "axb", "axxbxc", "xa", "ax", "x", "xyz", "x.y", "a\u00e9b", "\u00e9\u00e9", "the", " the", " txhze", "1x2 1\u00bd2", "a\nb\n\n",
             "the thx the", "<pad>", "a<unk>b", "abcabc, xabc. bxc", "t" * 300 + "x" + "h" * 300, "xa" * 200, "x" * 600, " x the x the x", "Hello, the 12 ABC abc!",
             "axbx axbx axbx abab abab abab"]
GAPS = [("dropped", {}, []), ("dropped, fused", {"fuse_unk": True}, []), ("unknown", {"unk_token": "<unk>"}, []),
        ("unknown, fused", {"unk_token": "<unk>", "fuse_unk": True}, []), ("unknown, merging", {"unk_token": "<unk>"}, UNK_MERGES),
        ("unknown, fused, merging", {"unk_token": "<unk>", "fuse_unk": True}, UNK_MERGES), ("dropped, whole words", {"ignore_merges": True}, []),
        ("unknown, whole words", {"ignore_merges": True, "unk_token": "<unk>"}, [])]


def gaps(base):
    out = []
    for name, settings, merges in GAPS:
        j = json.loads(base)
        j["added_tokens"] = []
        j["model"].update({"vocab": {t: i for i, t in enumerate(GAP_VOCAB)}, "merges": [list(m) for m in GAP_MERGES + merges], **settings})
        t = Tokenizer.from_str(json.dumps(j))
        out.append({"name": name, "tokenizer": j, "cases": [[s, t.encode(s).ids] for s in GAP_TEXTS]})
    return out


def main():
    arg = argparse.ArgumentParser()
    arg.add_argument("--train", action="store_true")
    arg.add_argument("--shared", help="folder with models/rope-29m/tokenizer.json")
    arg.add_argument("--data", help="folder with pg19/, tokenizers/, ...")
    arg = arg.parse_args()
    if arg.train:
        train()
    ranges = assigned_ranges()
    assigned = [c for a, b in ranges for c in range(a, b + 1)]
    with open(os.path.join(HERE, "assigned.json"), "w", encoding="utf-8") as f:
        numbers = [str(x) for r in ranges for x in r]
        f.write("[" + ",\n".join(",".join(numbers[i : i + 16]) for i in range(0, len(numbers), 16)) + "]\n")
    # JSON here has no U+0000: such texts, and bytes, are written in hex
    texts = [t if "\0" not in t else {"hex": t.encode().hex()} for t in CASES]
    write("cases.json", {"cases": texts, "broken": BROKEN, "separators": SEPARATORS, "parts": PARTS, "documents": DOCUMENTS, "book_bytes": BOOK_BYTES})
    files = {"small": os.path.join(HERE, "small.json")}
    if arg.shared:
        files["29m"] = os.path.join(arg.shared, "models/rope-29m/tokenizer.json")
    if arg.data:
        files["gpt2"] = os.path.join(arg.data, "tokenizers/gpt2_tokenizer.json")
        files["neox"] = os.path.join(arg.data, "tokenizers/gpt_neox_20B_tokenizer.json")
    for name, path in files.items():
        write(f"ids_{name}.json", golden(Tokenizer.from_file(path), assigned, arg.data))
    small = open(files["small"], encoding="utf-8").read()
    write("variants.json", variants(small))
    write("gaps.json", gaps(small))


main()
