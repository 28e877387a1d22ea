"""The simulator's own tokenizer and chat template.

Read from the shipped `tokenizer.json` with a loader of its own, independent of the client's, so
that a mistake in one shows as a difference between the two.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from bench.errors import EngineError

if TYPE_CHECKING:
    import tiktoken

SHIPPED = Path(__file__).with_name("tokenizer.json")
_LONG_BLANK = re.compile(r"\s{100000}")
_WORD = re.compile(r" [a-z]{3,12}")


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """One message of a chat; a list of content parts counts as their texts joined."""

    role: str
    content: str | list[dict[str, Any]] | None = None

    @property
    def text(self) -> str:
        if isinstance(self.content, list):
            return "".join(str(part.get("text", "")) for part in self.content)
        return self.content or ""


def render_chat(messages: Sequence[Message], *, generation_prompt: bool = True) -> str:
    """ChatML, without a default system prompt."""
    body = "".join(f"<|im_start|>{m.role}\n{m.text}<|im_end|>\n" for m in messages)
    return body + ("<|im_start|>assistant\n" if generation_prompt else "")


class Tokenizer:
    """Byte-level BPE in tiktoken; special tokens in the text are recognised, as servers do."""

    def __init__(self, encoding: tiktoken.Encoding, words: np.ndarray, sha256: str) -> None:
        self._encoding = encoding
        self.words = words
        """Ids of tokens that are a space and a plain lower-case word: what answers are made of."""
        self.sha256 = sha256
        self.size = encoding.n_vocab

    def encode(self, text: str) -> np.ndarray:
        """Token ids as uint32. Raises `ValueError` for text that would break the encoder."""
        if _LONG_BLANK.search(text):
            raise ValueError("the text holds a run of more than 100,000 white-space characters")
        return np.asarray(self._encoding.encode_to_numpy(text, allowed_special="all"))

    def decode(self, ids: Sequence[int]) -> str:
        """Text of ids. Raises `ValueError` for an id outside the vocabulary."""
        if any(not 0 <= i < self.size for i in ids):
            raise ValueError(f"token ids must be in 0..{self.size - 1}")
        return self._encoding.decode(list(ids))

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """The text of each id by itself."""
        return [self._encoding.decode([int(i)]) for i in ids]

    def answer(self, length: int, rng: np.random.Generator) -> np.ndarray:
        """A drawn answer of words, none twice in a row, so that nothing looks like a loop."""
        draws = rng.integers(0, len(self.words) - 1, size=length)
        # A step of 1..n-1 around the ring of words never lands on the same word.
        places = np.cumsum(draws + 1) % len(self.words)
        return self.words[places].astype(np.uint32)


def _byte_letters() -> dict[str, int]:
    """GPT-2's printable letter for each byte, reversed."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters = {chr(byte): byte for byte in printable}
    others = [byte for byte in range(256) if byte not in set(printable)]
    return letters | {chr(256 + index): byte for index, byte in enumerate(others)}


@lru_cache(maxsize=1)
def shipped_tokenizer() -> Tokenizer:
    """The tokenizer of every profile."""
    import hashlib

    import tiktoken

    raw = SHIPPED.read_bytes()
    data = msgspec.json.decode(raw)
    letters = _byte_letters()
    special = {token["content"]: token["id"] for token in data["added_tokens"]}
    ranks = {
        bytes(letters[c] for c in piece): index
        for piece, index in data["model"]["vocab"].items()
        if piece not in special
    }
    products = [ranks[bytes(letters[c] for c in a + b)] for a, b in data["model"]["merges"]]
    if products != sorted(products):  # tiktoken merges by id: ids must rise in the order of merges
        raise EngineError(f"{SHIPPED.name}: ids do not follow the order of merges; train it again")
    pattern = data["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"]
    encoding = tiktoken.Encoding("simulator", pat_str=pattern, mergeable_ranks=ranks, special_tokens=special)
    words = [index for piece, index in ranks.items() if _WORD.fullmatch(piece.decode("utf-8", "replace"))]
    return Tokenizer(encoding, np.array(sorted(words), dtype=np.uint32), hashlib.sha256(raw).hexdigest())
