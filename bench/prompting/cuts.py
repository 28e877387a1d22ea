"""Where a body may be cut out of an indexed corpus: its first token, its last one, its needles' lines."""

from __future__ import annotations

import hashlib
import math
from bisect import bisect_right
from collections.abc import Iterator

import numpy as np

from bench.errors import SuiteError
from bench.prompting.borders import IndexedCorpus, stop_offsets
from bench.prompting.tasks import Piece
from bench.prompting.tokens import Tokenizer

_STARTS = 400
"""Places tried at most; a corpus where none of them fits is no natural text."""


def start_rows(corpus: IndexedCorpus, place: tuple[str, int], need: int) -> Iterator[int]:
    """Rows of start borders with enough text behind them, in an order that `place` decides.

    Equal names with other numbers begin far apart, and never at the same row while there are others.
    Raises `SuiteError` when no border has so many tokens behind it.
    """
    name, number = place
    last = corpus.tokens - need
    eligible = bisect_right(corpus.starts[:, 0], last)
    if eligible == 0:
        raise SuiteError(
            f"corpus {corpus.name!r} has {corpus.tokens} tokens, but no place to start from "
            f"which {need} of them follow; give a longer text."
        )
    offset = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big")
    step = int(eligible * 0.618) or 1
    while math.gcd(step, eligible) > 1:
        step += 1
    for attempt in range(min(_STARTS, eligible)):
        # Neighbours of the first choice: a step further would be the next number's.
        yield (offset + number * step + attempt) % eligible


def known_stop(corpus: IndexedCorpus, start: int, begin: int, need: int) -> tuple[int, int]:
    """Byte offset of the last known stop border within `need` tokens, and the tokens still missing."""
    stops = corpus.stops
    row = bisect_right(stops[:, 0], start + need) - 1
    if row < 0 or stops[row, 1] <= begin:
        return begin, need
    return int(stops[row, 1]), start + need - int(stops[row, 0])


def closer_stop(corpus: IndexedCorpus, tokenizer: Tokenizer, at: int, missing: int) -> tuple[int, int]:
    """The last place behind `at` where `missing` tokens are not yet used up, and those left over."""
    data = corpus.data[at : at + 24 * missing + 64]
    offsets = stop_offsets(data)
    low, cost_low, high = -1, 0, len(offsets)
    while high - low > 1:
        middle = (low + high) // 2
        end = at + int(offsets[middle])
        inside = end < len(corpus.data) and int(corpus.data[end]) & 0xC0 == 0x80
        cost = missing + 1 if inside else tokenizer.count(corpus.text(at, end))
        if cost <= missing:
            low, cost_low = middle, cost
        else:
            high = middle
    return (at + int(offsets[low]), missing - cost_low) if low >= 0 else (at, missing)


def with_pieces(corpus: IndexedCorpus, begin: int, end: int, pieces: tuple[Piece, ...]) -> str:
    """The body with each piece as a line of its own at the line start nearest to its depth."""
    if not pieces:
        return corpus.text(begin, end)
    offsets = corpus.starts[:, 1]
    inside = offsets[(offsets > begin) & (offsets < end)]
    parts, at = [], begin
    for piece in sorted(pieces, key=lambda piece: piece.depth):
        goal = begin + piece.depth * (end - begin)
        cut = int(inside[np.argmin(np.abs(inside - goal))]) if len(inside) else begin
        cut = max(cut, at)
        opening = "" if cut == 0 or corpus.data[cut - 1] == 0x0A else "\n"
        parts.append(f"{corpus.text(at, cut)}{opening}{piece.text}\n")
        at = cut
    return "".join(parts) + corpus.text(at, end)
