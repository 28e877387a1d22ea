"""Small tokenizers of every kind that matters, made here; no published file is needed."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path
from typing import Any

from bench.prompting import synthetic
from bench.prompting.bytelevel import byte_characters

OWN = Path(__file__).resolve().parents[2] / "bench/servers/simulator/tokenizer.json"
Spec = dict[str, Any]


def own() -> Spec:
    """The project's own byte-level BPE."""
    spec: Spec = json.loads(OWN.read_text(encoding="utf-8"))
    return spec


def large() -> Spec:
    """The own one with 100,000 more merges, of tokens it has with tokens it has."""
    spec = own()
    vocab = spec["model"]["vocab"]
    tokens = [t for t in vocab if not t.startswith("<|")]
    letters = [t for t in tokens if t.isascii() and t.isalpha()]
    pairs = ((a, b) for b in letters for a in tokens)
    fresh = ((a, b) for a, b in pairs if a + b not in vocab)
    for a, b in islice(fresh, 100_000):
        if a + b not in vocab:
            vocab[a + b] = len(vocab)
            spec["model"]["merges"].append([a, b])
    return spec


def nfc() -> Spec:
    """The own one behind Unicode normal form C."""
    return {**own(), "normalizer": {"type": "NFC"}}


def gpt2_pattern() -> Spec:
    """The own one with ByteLevel's built-in pattern."""
    pre = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {**own(), "pre_tokenizer": pre}


def digits() -> Spec:
    """The own one with single digits split off first (the SmolLM kind)."""
    pre = {
        "type": "Sequence",
        "pretokenizers": [{"type": "Digits", "individual_digits": True}, gpt2_pattern()["pre_tokenizer"]],
    }
    return {**own(), "pre_tokenizer": pre}


def shuffled() -> Spec:
    """Ids in another order than merges, and two hundred merges taken out: some products are unreachable."""
    spec = own()
    model = spec["model"]
    model["merges"] = [m for i, m in enumerate(model["merges"]) if i % 40 != 7]
    made = {a + b for a, b in model["merges"]} | set(byte_characters())
    model["merges"] = [m for m in model["merges"] if m[0] in made and m[1] in made]
    names = [t for t in model["vocab"] if not t.startswith("<|")]
    for place, name in enumerate(sorted(names, key=lambda t: hash_of(t))):
        model["vocab"][name] = place + 3
    return spec


def hash_of(text: str) -> int:
    return int.from_bytes(text.encode(), "little") * 2654435761 % (1 << 32)


def with_added(content: str, *, special: bool) -> Spec:
    spec = own()
    spec["added_tokens"] = [
        *spec["added_tokens"],
        {"id": len(spec["model"]["vocab"]), "content": content, "single_word": False, "lstrip": False,
         "rstrip": False, "normalized": False, "special": special},
    ]  # fmt: skip
    return spec


def _base(model: Spec, **parts: Any) -> Spec:
    empty = dict.fromkeys(
        ("truncation", "padding", "normalizer", "pre_tokenizer", "post_processor", "decoder")
    )
    return {"version": "1.0", **empty, "added_tokens": [], "model": model, **parts}


def unigram() -> Spec:
    """SentencePiece-like: pieces with scores, blanks as a sign, unknown bytes as bytes."""
    words = synthetic.plain_words()
    signs = [chr(c) for c in range(0x21, 0x7F)]
    pieces = [("<unk>", 0.0), *((f"<0x{b:02X}>", -18.0) for b in range(256)), ("\u2581", -6.0)]
    pieces += [(f"\u2581{word}", -9.0) for word in words] + [(f"\u2581{s}", -8.0) for s in signs]
    pieces += [(sign, -10.0) for sign in signs]
    common = (
        "the",
        "of",
        "and",
        "to",
        "in",
        "is",
        "was",
        "for",
        "that",
        "with",
        "as",
        "on",
        "at",
        "by",
        "this",
    )
    pieces += [(f"\u2581{word}", -7.5) for word in common]
    unique = list(dict(pieces).items())
    model = {"type": "Unigram", "unk_id": 0, "vocab": unique, "byte_fallback": True}
    meta = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always", "split": True}
    return _base(model, pre_tokenizer=meta)


def llama2() -> Spec:
    """BPE over characters with byte fallback, a blank put in front, no pre-tokenizer at all."""
    words = [*synthetic.plain_words()[::4], "the", "and", "was", "this", "with"]
    vocab: dict[str, int] = {"<unk>": 0}
    for byte in range(256):
        vocab[f"<0x{byte:02X}>"] = len(vocab)
    for char in ["\u2581", *(chr(c) for c in range(0x21, 0x7F)), "\u4e2d", "\u6587"]:
        vocab.setdefault(char, len(vocab))
    merges: list[list[str]] = []
    for word in words:
        left = "\u2581"
        for char in word:
            if left + char not in vocab:
                vocab[left + char] = len(vocab)
                merges.append([left, char])
            left += char
    model = {
        "type": "BPE", "vocab": vocab, "merges": merges, "unk_token": "<unk>", "fuse_unk": True,
        "byte_fallback": True, "dropout": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
        "ignore_merges": False,
    }  # fmt: skip
    replace = {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}
    normalizer = {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "\u2581"}, replace]}
    return _base(model, normalizer=normalizer)


def wordpiece() -> Spec:
    """BERT-like: lower case, accents stripped, blanks no token at all."""
    signs = [chr(c) for c in range(0x21, 0x7F) if not chr(c).isupper()]
    names = ["[UNK]", *signs, *(f"##{s}" for s in signs), *synthetic.plain_words(), "the", "and", "of", "to"]
    vocab = {name: place for place, name in enumerate(dict.fromkeys(names))}
    model = {
        "type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
        "max_input_chars_per_word": 100, "vocab": vocab,
    }  # fmt: skip
    normal = {
        "type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None,
        "lowercase": True,
    }  # fmt: skip
    return _base(model, normalizer=normal, pre_tokenizer={"type": "BertPreTokenizer"})


def characters() -> Spec:
    """Every byte a token: no word is one."""
    vocab = {char: place for place, char in enumerate(byte_characters())}
    model = {
        "type": "BPE", "vocab": vocab, "merges": [], "dropout": None, "unk_token": None,
        "continuing_subword_prefix": None, "end_of_word_suffix": None, "fuse_unk": False,
        "byte_fallback": False, "ignore_merges": False,
    }  # fmt: skip
    return _base(model, pre_tokenizer=gpt2_pattern()["pre_tokenizer"])


KINDS = {
    "own": own,
    "large": large,
    "nfc": nfc,
    "gpt2_pattern": gpt2_pattern,
    "digits": digits,
    "shuffled": shuffled,
    "unigram": unigram,
    "llama2": llama2,
    "wordpiece": wordpiece,
    "characters": characters,
}
BYTE_LEVEL = ("own", "large", "nfc", "gpt2_pattern", "digits", "shuffled", "characters")


def write(folder: Path, spec: Spec) -> Path:
    """A tokenizer.json in a folder of its own."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "tokenizer.json"
    path.write_text(json.dumps(spec), encoding="utf-8")
    return path


def chinese(chars: int) -> str:
    """Seeded Chinese-looking text: common ideographs, full stops, hardly any line end, no blank."""
    import numpy as np

    raw = np.random.PCG64(5).random_raw(chars)
    out = []
    for number in raw.tolist():
        kind = number % 97
        if kind == 0:
            out.append("\u3002")
        elif kind == 1:
            out.append("\uff0c")
        elif kind == 2 and number % 7 == 0:
            out.append("\u3002\n")
        else:
            out.append(chr(0x4E00 + (number >> 8) % 3000))
    return "".join(out)


def mixed(paragraphs: int) -> str:
    """Prose with CRLF, emoji with joiners, combining marks, right-to-left and Indic script, tables."""
    lines = synthetic.prose(paragraphs * 400, seed=9).split("\n\n")[:paragraphs]
    spice = (
        "\u0041\u030a \u0065\u0301 \u006e\u0303o\r\nnext line\r\n",
        "\U0001f468\u200d\U0001f469\u200d\U0001f467 family \U0001f1e9\U0001f1ea flag \u2764\ufe0f heart",
        "\u0645\u0631\u062d\u0628\u0627 \u0628\u0627\u0644\u0639\u0627\u0644\u0645 \u05e9\u05dc\u05d5\u05dd",
        "\u0939\u093f\u0928\u094d\u0926\u0940 \u092e\u0947\u0902 "
        "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35\u0e04\u0e23\u0e31\u0e1a",
        "\u4f60\u597d\uff0c\u4e16\u754c\u3002\u957f\u6587\u672c\u3002",
        "| name | 12 | 3.5 |\n|------|----|-----|\n| x | 1,000 | -2 |",
        "\ud55c\uad6d\uc5b4 \ubb38\uc7a5\uc785\ub2c8\ub2e4. \u3053\u3093\u306b\u3061\u306f\u4e16\u754c",
    )
    return "\n\n".join(f"{line}\n{spice[i % len(spice)]}" for i, line in enumerate(lines)) + "\n"


def table(rows: int) -> str:
    """Nothing but a Markdown table of numbers."""
    return "\n".join(
        f"| {i * 7919 % 9973} | {i * 31 % 1000} | {i % 13}.{i % 7} | {i * i % 4096} |" for i in range(rows)
    )
