"""Speculation in detail: how many tokens a step brings, and how far into a draft acceptance reaches."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bench.analysis.decisions.claims import counted
from bench.analysis.statistics.texts import Texts
from bench.analysis.verdicts.counters import conditional_acceptance
from bench.records import Measurement
from bench.report import sources
from bench.report.content import Cell, Content
from bench.report.escape import visible
from bench.report.quantities import MISSING
from bench.report.told import Table, Told

HEAD = (
    "route", "tier", "condition", "drafts", "accept", "tokens/step", "tokens/chunk", "at position 1, 2, "
    "... (%)",
    "given those before (%)",
)  # fmt: skip
NOTE = (
    "Drafts are verification steps with a draft. Tokens/step is 1 + accepted tokens / drafts, tokens/chunk "
    "what the client received at once. A position counts as accepted / drafts; given those before, as "
    "accepted / accepted at the position before it: both from the counts of all valid trials summed up. The "
    "rest are medians over prompt texts, each the median of its trials, as in the performance table; all "
    "from the server's counters. A dash: not counted by the server, or (tokens/chunk) all text came at once."
)


def acceptance_table(content: Content) -> Table | None:
    """One row a cell in which drafts were counted; `None` where there is none."""
    several = len({cell.summary.task for cell in content.cells}) > 1
    rows = tuple(_row(cell, several) for cell in content.cells if any(m.drafts for m in cell.valid))
    if not rows:
        return None
    return Table(title="Acceptance of drafts", head=HEAD, rows=rows, note=NOTE, right=(1, 3, 4, 5, 6))


def _row(cell: Cell, several_tasks: bool) -> tuple[str, ...]:
    drafted = [m for m in cell.valid if m.drafts]
    texts = Texts(drafted)
    place = cell.condition + (f" {visible(cell.summary.task, 60)}" if several_tasks else "")
    count = counted([len(texts)], None if len(texts) == len(drafted) else [len(drafted)])
    seen = f"Median over {count}."
    seen_together = f"From the counts of {counted([len(drafted)])} summed up."
    shares = position_shares(drafted)
    return (
        visible(cell.summary.route, 60),
        Told(f"{cell.summary.tier:,}", sources.PLANNED),
        Told(place, sources.CONDITION),
        Told(
            f"{texts.middle('drafts'):,.0f}",
            f"Verification steps with a draft. {seen} Witness: {sources.COUNTERS}.",
        ),
        _median(texts, "acceptance", seen),
        _median(texts, "acceptance_length", seen),
        _per_chunk(texts),
        _positions(shares, seen_together),
        _positions(conditional_acceptance(shares), seen_together),
    )


def _median(texts: Texts, key: str, seen: str) -> str:
    value = texts.middle(key)
    if value is None:
        return MISSING
    return Told(sources.written(value, key), sources.measured(tuple(texts.rows), key, seen))


def _per_chunk(texts: Texts) -> str:
    """`(tokens - those of the first chunk) / (chunks - 1)`: needs two chunks."""
    values = texts.medians(np.array([_of_chunks(one) for one in texts.rows]))
    return Told(f"{np.median(values):.2f}", sources.derived("chunk")) if values.size else MISSING


def _of_chunks(one: Measurement) -> float:
    if one.output_tokens is None or one.text_chunks is None or one.text_chunks < 2:
        return np.nan
    return (one.output_tokens - one.first_chunk_tokens) / (one.text_chunks - 1)


def _positions(points: Sequence[float | None], seen: str) -> str:
    """`90 82 73`: percent, a position each; `-` where nothing came so far."""
    if not points:
        return MISSING
    texts = [f"{point * 100:.0f}" if point is not None else MISSING for point in points]
    return Told(" ".join(texts), sources.derived("position", seen))


def position_shares(measured: Sequence[Measurement]) -> tuple[float, ...]:
    """Accepted / drafts at each position, from the counts of all these trials summed up.

    Not medians: those of two positions may be of two trials, and their quotient is nobody's then.
    """
    counted = [(m.acceptance_per_position, m.drafts) for m in measured if m.drafts]
    known = [(shares, drafts) for shares, drafts in counted if shares and drafts]
    steps = sum(drafts for _, drafts in known)
    return tuple(
        sum(shares[place] * drafts for shares, drafts in known if place < len(shares)) / steps
        for place in range(max((len(shares) for shares, _ in known), default=0))
    )
