"""How many drafted tokens each decode step accepts: seeded, reproducible, and true to its rates.

Drawing every step by chance would scatter the counts of a 512-token answer by several percent.
A ruler must not: the counts of an answer are fixed first (from published figures, or from the
rates), spread over the positions in proportion, and only their order is drawn.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct


class Rates(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Acceptance at one context length."""

    context: int
    per_position: tuple[float, ...]
    """Share of drafts whose i-th token is accepted (unconditional, so never rising)."""


def rates_at(table: Sequence[Rates], context: int) -> tuple[float, ...]:
    """Acceptance per position at a context length: linear between entries, constant outside."""
    points = [rates.context for rates in table]
    columns = zip(*(rates.per_position for rates in table), strict=True)
    return tuple(float(np.interp(context, points, column)) for column in columns)


def counts_for(
    output_tokens: int, per_position: Sequence[float], rng: np.random.Generator
) -> tuple[int, int]:
    """(drafts, accepted) of an answer that follows the rates.

    As in vLLM the last step may accept more than is wanted; what is over is trimmed, but counted:
    `output = 1 + drafts + accepted - trimmed`, with 0 <= trimmed <= k.
    """
    k = len(per_position)
    wanted = output_tokens - 1
    if wanted <= 0 or k == 0:
        return 0, 0
    trimmed = int(rng.integers(0, min(k, wanted) + 1))
    produced = wanted + trimmed
    drafts = round(produced / (1 + sum(per_position)))
    drafts = max(1, -(-produced // (k + 1)), min(drafts, wanted))
    return drafts, produced - drafts


def histogram(drafts: int, accepted: int, per_position: Sequence[float]) -> list[int]:
    """How many of `drafts` steps accept 0, 1, ... k tokens, so that they accept `accepted` in all.

    Nearest to the rates: largest remainders first, then single steps are moved by one token.
    """
    k = len(per_position)
    steps = [1.0, *per_position, 0.0]
    shares = [max(0.0, steps[j] - steps[j + 1]) * drafts for j in range(k + 1)]
    bins = [int(share) for share in shares]
    by_remainder = sorted(range(k + 1), key=lambda j: bins[j] - shares[j])
    for j in range(drafts - sum(bins)):
        bins[by_remainder[j % (k + 1)]] += 1
    missing = accepted - sum(j * n for j, n in enumerate(bins))
    while missing:
        up = missing > 0
        source = max((j for j in range(k + 1) if 0 <= j + (1 if up else -1) <= k), key=lambda j: bins[j])
        bins[source] -= 1
        bins[source + (1 if up else -1)] += 1
        missing += -1 if up else 1
    return bins


def acceptance_stream(
    output_tokens: int,
    drafts: int,
    accepted: int,
    per_position: Sequence[float],
    rng: np.random.Generator,
) -> np.ndarray:
    """Tokens accepted by each of `drafts` steps, `accepted` in all, in a drawn order.

    Only the last step may overshoot `output_tokens`. Raises `ValueError` for impossible counts.
    """
    k = len(per_position)
    trimmed = 1 + drafts + accepted - output_tokens
    if drafts == 0 and accepted == 0:
        return np.zeros(0, dtype=np.int64)
    if not 0 <= trimmed <= k or not 0 <= accepted <= k * drafts:
        raise ValueError(f"{drafts} drafts of {k} cannot accept {accepted} for {output_tokens} tokens")
    low = max(trimmed, accepted - k * (drafts - 1))
    high = min(k, accepted)
    last = int(rng.integers(low, high + 1)) if drafts > 1 else accepted
    bins = histogram(drafts - 1, accepted - last, per_position)
    head = np.repeat(np.arange(k + 1), bins)
    return np.append(rng.permutation(head), last)
