"""Total latencies of two sides at one output length: a total is a time for so many tokens, and of no use
beside one for another number of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bench.analysis.statistics.bootstrap import Floats
from bench.analysis.statistics.latency import total_s
from bench.records import Measurement

SAME_LENGTH = 0.01
"""Relative difference up to which output lengths count as equal."""


class Totals(NamedTuple):
    """Total latencies, one a row of each side."""

    a: Floats
    b: Floats
    output_tokens: int | None = None
    """What they are reckoned for; `None`: they are as measured, all outputs being equally long."""
    note: str = ""
    """Says so, with the lengths measured."""


def totals(a: Sequence[Measurement], b: Sequence[Measurement]) -> Totals | str:
    """The totals of rows that have one, or a sentence that says why they cannot be compared.

    Where outputs differ by more than `SAME_LENGTH`, each trial's L(n) = ttft + (n - c0) x tpot (DESIGN
    section 2) at the smaller of the two sides' median lengths, which both sides have reached.
    """
    lengths = [np.array([row.output_tokens or 0 for row in side], dtype=float) for side in (a, b)]
    if min(map(np.min, lengths)) <= 0:
        return "the length of an output is unknown, so total latencies may not be of the same one"
    every = np.concatenate(lengths)
    if np.ptp(every) <= SAME_LENGTH * every.max():
        one, other = (np.array([row.total_s for row in side], dtype=float) for side in (a, b))
        return Totals(one, other)
    said = f"outputs are {_span(lengths[0])} and {_span(lengths[1])} tokens long"
    if any(row.ttft_s is None or row.tpot_s is None for row in (*a, *b)):
        return f"{said}, and a trial without TTFT or time per token cannot be reckoned at another length"
    n = round(min(float(np.median(one)) for one in lengths))
    note = f"total latencies are reckoned at {n:,} output tokens by TTFT and time per token: {said}"
    return Totals(_at(a, n), _at(b, n), n, note)


def _at(rows: Sequence[Measurement], n: int) -> Floats:
    fields = ("ttft_s", "tpot_s", "first_chunk_tokens")
    ttft, tpot, first = (np.array([getattr(row, name) for row in rows], dtype=float) for name in fields)
    return total_s(n, ttft, tpot, first)


def _span(lengths: Floats) -> str:
    low, high = int(lengths.min()), int(lengths.max())
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"
