"""A `tokenizer.json` of the byte-level BPE kind as a tiktoken encoding, eight times as fast.

The two libraries agree only under conditions, all checked here; whatever is not understood is
refused with a reason, and the caller falls back to the `tokenizers` library:

1. The model is BPE over the 256 byte characters, without dropout, affixes or byte fallback.
2. tiktoken merges by rank alone, so ranks are the order of merges (never the vocabulary's ids).
   A product that BPE cannot reach from its own bytes would be reached by tiktoken's look-up of
   whole pieces: such products are dropped, or the file refused where `ignore_merges` is set.
3. The pre-tokenizer is one regular expression whose matches cover every character: tiktoken drops
   what lies between matches, silently.
4. Added tokens in the text are the caller's business (`markers`): `tokenizers` parses them.

Equality of ids is then proven on samples. `reference` is always the `tokenizers` library itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct

if TYPE_CHECKING:
    import tiktoken
    from numpy.typing import NDArray

_GPT2 = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
# Digits one by one before the GPT-2 pattern: a digit ends the run of blanks before it.
_GPT2_DIGITS = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+|\s+(?![^\s\p{N}])|\s+"

LONG_TEXT = 1 << 20
"""Characters from which a text is encoded in two halves."""
_OVERLAP = 4096
_NEVER_ALLOWED = "\U0010fffe special \U0010fffe"
"""The one special token of every encoding made here; no call allows it, so a text that holds it is text.
Without any, tiktoken looks for an empty pattern and finds it at every character: half of its time."""

Json = Mapping[str, Any]


class NotByteLevel(Exception):
    """Why a tokenizer cannot be turned into a tiktoken encoding; never leaves this floor."""


class ByteLevel(Struct, frozen=True, kw_only=True):
    """What a tiktoken encoding needs, and how its ranks become the model's token ids."""

    encoding: Any
    """The `tiktoken.Encoding`; its tokens are ranks."""
    ids: Any
    """int32 array: rank -> token id."""
    lengths: Any
    """int64 array: rank -> bytes of the token."""
    nfc: bool
    """The text is brought to Unicode form C first."""


def byte_characters() -> dict[str, int]:
    """GPT-2's printable stand-ins: character -> byte it stands for."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    table = {chr(byte): byte for byte in printable}
    table.update({chr(256 + place): byte for place, byte in enumerate(others)})
    return table


def _expect(condition: bool, reason: str) -> None:
    if not condition:
        raise NotByteLevel(reason)


def pattern_of(pre: Json | None) -> str:
    """The one regular expression that does what the pre-tokenizer does; else `NotByteLevel`."""
    _expect(pre is not None, "no pre-tokenizer")
    assert pre is not None  # noqa: S101 - for the type checker; refused above
    steps = list(pre["pretokenizers"]) if pre["type"] == "Sequence" else [pre]
    last = steps[-1] if steps else {}
    _expect(last.get("type") == "ByteLevel", "the pre-tokenizer does not end in ByteLevel")
    _expect(not last.get("add_prefix_space"), "add_prefix_space")
    own_regex = last.get("use_regex", True)
    if len(steps) == 1:
        _expect(own_regex, "ByteLevel without a regular expression")
        return _GPT2
    _expect(len(steps) == 2, "several splits in sequence")
    first = steps[0]
    if first["type"] == "Digits":
        _expect(bool(first.get("individual_digits")) and own_regex, "Digits in runs")
        return _GPT2_DIGITS
    _expect(first["type"] == "Split", f"pre-tokenizer {first['type']}")
    _expect(not own_regex, "Split before a second regular expression")
    _expect(first.get("behavior") == "Isolated" and not first.get("invert"), "Split that drops or joins")
    regex = first.get("pattern", {}).get("Regex")
    _expect(isinstance(regex, str), "Split by a fixed string")
    return str(regex)


def normalizer_of(spec: Json) -> str | None:
    """Type of the only normaliser; `None`: none, which some files write as an empty sequence."""
    normalizer = spec.get("normalizer")
    while normalizer and normalizer["type"] == "Sequence" and len(normalizer["normalizers"]) < 2:
        normalizer = normalizer["normalizers"][0] if normalizer["normalizers"] else None
    return str(normalizer["type"]) if normalizer else None


def check_model(spec: Json) -> None:
    """Raises `NotByteLevel` unless model, normaliser and added tokens are of the plain kind."""
    model = spec["model"]
    _expect(model.get("type", "BPE") == "BPE" and "merges" in model, f"model {model.get('type')}")
    for name in ("dropout", "continuing_subword_prefix", "end_of_word_suffix", "byte_fallback"):
        _expect(not model.get(name), name)
    missing = [c for c in byte_characters() if c not in model["vocab"]]
    _expect(not missing, f"{len(missing)} of 256 byte characters are not in the vocabulary")
    normalizer = normalizer_of(spec)
    _expect(normalizer in (None, "NFC"), f"normaliser {normalizer}")
    for token in spec.get("added_tokens") or ():
        text = token["content"]
        # A marker can be kept out of the text; an ordinary word or a run of blanks cannot.
        marked = len(text) >= 3 and not text[0].isalnum() and not text[-1].isalnum() and text.strip() == text
        _expect(bool(token.get("special")) or marked, f"added token {text!r} is an ordinary text")


def merge_products(model: Json) -> list[str]:
    """Results of the merges in merge order, in byte characters, each once."""
    merges = model["merges"]
    two = all(merge.count(" ") == 1 if isinstance(merge, str) else len(merge) == 2 for merge in merges)
    _expect(two, "a merge of other than two tokens")
    products = [merge.replace(" ", "") if isinstance(merge, str) else "".join(merge) for merge in merges]
    return list(dict.fromkeys(products))


def unreachable(model: Json, products: Sequence[str], reference: Any) -> list[str]:
    """Products that BPE does not make of their own bytes, by the `tokenizers` library's own model."""
    bpe, vocab = reference.model, model["vocab"]
    whole_pieces = bool(model.get("ignore_merges"))
    if whole_pieces:
        bpe.ignore_merges = False  # else it would look the product up instead of making it
    lost = []
    for product in products:
        tokens = bpe.tokenize(product)
        if len(tokens) != 1 or tokens[0].id != vocab[product]:
            lost.append(product)
    if whole_pieces:
        bpe.ignore_merges = True
    return lost


def _in_bytes(tokens: Sequence[str], alphabet: dict[str, int]) -> list[bytes]:
    """The bytes that tokens of byte characters stand for: all at once, since each character is one byte."""
    table = str.maketrans({character: chr(byte) for character, byte in alphabet.items()})
    whole = "".join(tokens).translate(table).encode("latin-1")
    return [whole[begin:end] for begin, end in pairwise(accumulate(map(len, tokens), initial=0))]


def build(
    spec: Json, name: str, reference: Callable[[], Any], dropped: Sequence[str] | None = None
) -> tuple[ByteLevel, list[str]]:
    """The encoding for a parsed tokenizer.json, and the products left out of it.

    `reference` loads the file into the `tokenizers` library; not called when `dropped`, what an
    earlier call found, is given. Raises `NotByteLevel`.
    """
    import tiktoken

    check_model(spec)
    pattern = pattern_of(spec.get("pre_tokenizer"))
    model, alphabet = spec["model"], byte_characters()
    products = merge_products(model)
    _expect(all(c in alphabet for c in set("".join(products))), "merges of other than byte characters")
    lost = list(unreachable(model, products, reference()) if dropped is None else dropped)
    if model.get("ignore_merges"):
        added = {token["content"] for token in spec.get("added_tokens") or ()}
        strays = set(model["vocab"]) - set(products) - set(alphabet) - added
        _expect(not lost and not strays, "ignore_merges with tokens that no merge makes")
    skip = set(lost)
    tokens = [*alphabet, *(p for p in products if p not in skip)]
    pieces = _in_bytes(tokens, alphabet)
    ranks = {piece: rank for rank, piece in enumerate(pieces)}
    specials = {_NEVER_ALLOWED: len(ranks)}
    try:
        encoding = tiktoken.Encoding(name, pat_str=pattern, mergeable_ranks=ranks, special_tokens=specials)
    except ValueError as error:  # a construct that tiktoken's regular expressions lack
        raise NotByteLevel(f"regular expression: {error}") from error
    result = ByteLevel(
        encoding=encoding,
        ids=np.array([model["vocab"][token] for token in tokens], dtype=np.int32),
        lengths=np.array([len(piece) for piece in pieces], dtype=np.int64),
        nfc=normalizer_of(spec) == "NFC",
    )
    return result, lost


def probe_texts() -> list[str]:
    """Texts on which every equality is tried: all of ASCII, blanks, scripts, marks, long runs."""
    ascii_all = "".join(f"a{chr(c)}b {chr(c)}1{chr(c)}{chr(c)}\n" for c in range(128))
    latin = "".join(f"x{chr(c)}y {chr(c)}\n" for c in [*range(0x80, 0x180), *range(0x2000, 0x2070)])
    scripts = (
        "\u4f60\u597d\uff0c\u4e16\u754c\u3002\u957f\u6587\u672c\u6d4b\u8bd5\u3002\r\n"
        "\u041f\u0440\u0438\u0432\u0435\u0442 \u043c\u0438\u0440 \u0645\u0631\u062d\u0628\u0627 "
        "\u0939\u093f\u0928\u094d\u0926\u0940 \u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35 \ud55c\uad6d\uc5b4 "
        "\u3053\u3093\u306b\u3061\u306f e\u0301 n\u0303 \u2764\ufe0f\u3000\u00a0x "
        "\U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f1e9\U0001f1ea"
    )
    code = (
        "def f(x):\n    if x:\r\n\t\treturn x ** 2  # it's, I'LL we've\n\n\n   \n  y = [1,23,456,7890]\n" * 3
    )
    runs = "".join(
        f"{unit * n}. " for unit in ("a", " ", "\n", "ab", "1", "=", "\t", "the ") for n in (3, 17, 130)
    )
    return [ascii_all, latin, scripts, code, runs, "", " ", "\n", "a"]


def first_difference(level: ByteLevel, reference: Any, texts: Sequence[str]) -> str | None:
    """Where ids differ from those of a `tokenizers.Tokenizer`, in words; `None`: nowhere."""
    for text in texts:
        ours, lost = encode_ranks(level, text)
        theirs = np.asarray(reference.encode(text, add_special_tokens=False).ids, dtype=np.int32)
        if lost:
            return f"{lost} bytes fall between the pieces of the pattern in {text[:40]!r}"
        ids = level.ids[ours]
        if len(ids) != len(theirs) or not np.array_equal(ids, theirs):
            same = min(len(ids), len(theirs))
            place = (
                int(np.argmax(ids[:same] != theirs[:same])) if np.any(ids[:same] != theirs[:same]) else same
            )
            at = int(level.lengths[ours[:place]].sum())
            near = text.encode()[max(0, at - 10) : at + 20].decode(errors="replace")
            return f"{len(ids)} tokens against {len(theirs)}, first at token {place}, near {near!r}"
    return None


def encode_ranks(level: ByteLevel, text: str) -> tuple[NDArray[np.uint32], int]:
    """Ranks of the text's tokens, and how many bytes they fail to cover (0 when all is well)."""
    import unicodedata

    if level.nfc:
        text = unicodedata.normalize("NFC", text)
    ranks = ranks_of(level, text)
    return ranks, len(text.encode()) - int(level.lengths[ranks].sum())


def ranks_of(level: ByteLevel, text: str) -> NDArray[np.uint32]:
    """Ranks of a text's tokens; a long text is encoded in two halves at once where that changes nothing."""
    if len(text) >= LONG_TEXT and (halves := _in_two_halves(level, text)) is not None:
        return halves
    return _plain(level, text)


def _plain(level: ByteLevel, text: str) -> NDArray[np.uint32]:
    encoding: tiktoken.Encoding = level.encoding
    return encoding.encode_to_numpy(text, disallowed_special=())


def _in_two_halves(level: ByteLevel, text: str) -> NDArray[np.uint32] | None:
    """The same ranks from two threads, or `None` when the halves do not prove that they fit.

    The first half reaches some thousand characters into the second. Patterns and merges look at no
    more than their own piece and what follows it, so once both halves have had the same borders and
    the same tokens for that long, the second goes on as the whole text would.
    """
    from concurrent.futures import ThreadPoolExecutor

    middle = text.find("\n", len(text) // 2) + 1
    if not 0 < middle < len(text) * 3 // 4:
        return None
    with ThreadPoolExecutor(2) as pool:
        left_job = pool.submit(_plain, level, text[: middle + _OVERLAP])
        right = pool.submit(_plain, level, text[middle:]).result()
        left = left_job.result()
    # From the back: the overlap's bytes, then the token at which it begins.
    overlap = len(text[middle : middle + _OVERLAP].encode())
    backwards = np.cumsum(level.lengths[left[-overlap:]][::-1])
    place = int(np.searchsorted(backwards, overlap))
    if place >= len(backwards) or backwards[place] != overlap:
        return None
    shared = left[len(left) - place - 1 :]
    # Its last tokens are cut off with the text; all others must be those of the second half.
    compared = len(shared) * 3 // 4
    if compared < 64 or not np.array_equal(shared[:compared], right[:compared]):
        return None
    return np.concatenate((left[: len(left) - len(shared)], right))
