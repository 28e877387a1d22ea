"""Routes side by side: the rows of the comparison table, for reports and terminal alike."""

from __future__ import annotations

from collections.abc import Sequence

from bench.analysis.statistics.compare import MARKS, Lacking, by_chance
from bench.records import Comparison, Estimate
from bench.report import sources
from bench.report.content import Content
from bench.report.escape import visible
from bench.report.quantities import MISSING, significant
from bench.report.told import Table, Told

COMPARED = ("ttft_s", "decode_tok_s", "total_s")
"""Quantities that stand in the comparison table."""
HEAD = ("route", "against", "tier", "condition", "TTFT", "", "decode", "total")
LATER = 5
"""The column of the TTFT difference."""
RIGHT = (2, LATER)
"""Columns of numbers."""
_MEANING: dict[Lacking, str] = {
    "both": "~ no difference found",
    "test": "~t none found by the test, though the spread is without 1",
    "interval": "~i none found by the spread, though the test finds one",
    "trials": "? too few trials for a test",
    "length": "?n outputs of unequal length",
}


def table_of(content: Content) -> Table | None:
    """Routes side by side; `None` where there is nothing to compare."""
    rows = tuple(rows_of(content))
    if not rows:
        return None
    kept = filled(rows)
    note = note_of(content)
    note = f"{note[0].upper()}{note[1:]}. {sources.COMPARED}"
    return Table(
        title="Comparison",
        head=tuple(HEAD[i] or "later by" for i in kept),
        rows=tuple(tuple(row[i] for i in kept) for row in rows),
        note=note,
        right=tuple(place for place, i in enumerate(kept) if i in RIGHT),
    )


def note_of(content: Content) -> str:
    """How to read the ratios: the marks that stand among them, and what chance alone would show."""
    marks = {one.lacking for one in content.comparisons if one.quantity in COMPARED}
    lengths = sorted({one.output_tokens for one in content.comparisons if one.output_tokens is not None})
    at = f"totals of unequal outputs at {' or '.join(f'{n:,}' for n in lengths)} tokens" if lengths else ""
    found = [one for one in content.comparisons if one.quantity in COMPARED]
    chance = by_chance(found)
    spread = any(one.ratio is not None and one.ratio.spread is not None for one in found)
    told = "with their spread" if spread else "(single texts have no spread)"
    return "; ".join(
        [f"ratios of medians {told}", *([at] if at else [])]
        + [text for mark, text in _MEANING.items() if mark in marks]
        + ([chance] if chance else [])
    )


def filled(rows: Sequence[Sequence[str]]) -> list[int]:
    """The columns in which any row has a text."""
    return [i for i, column in enumerate(zip(*rows, strict=True)) if any(column)]


def rows_of(content: Content) -> list[tuple[str, ...]]:
    """One row per cell and pair of routes, under `HEAD`: ratios, and the TTFT difference."""
    several = len({one.task for one in content.measurements}) > 1
    grouped: dict[tuple[str, int, str, str, str], dict[str, Comparison]] = {}
    for one in content.comparisons:
        if one.quantity in COMPARED:
            key = (one.task, one.tier, one.condition, one.route, one.base)
            grouped.setdefault(key, {})[one.quantity] = one
    rows: list[tuple[str, ...]] = []
    for (task, tier, condition, route, base), found in grouped.items():
        place = condition + (f" {visible(task, 60)}" if several else "")
        ttft = found.get("ttft_s")
        rows.append(
            (
                visible(route, 60),
                visible(base, 60),
                Told(f"{tier:,}", sources.PLANNED),
                place,
                _ratio(ttft, content),
                _later(ttft),
                _ratio(found.get("decode_tok_s"), content),
                _ratio(found.get("total_s"), content),
            )
        )
    return rows


def _later(ttft: Comparison | None) -> str:
    """The difference of TTFT, `+146 s`; empty where none was found."""
    if ttft is None or ttft.difference is None or ttft.verdict == "~":
        return ""
    return Told(signed(ttft.difference, "s"), sources.difference(ttft))


def _ratio(one: Comparison | None, content: Content) -> str:
    """`3.56x (3.50-3.66)`, behind the mark of what a difference lacks."""
    if one is not None and one.lacking == "length":
        return Told(MARKS[one.lacking], sources.comparison(one, content))
    if one is None or one.ratio is None:
        return MISSING
    return Told(f"{MARKS[one.lacking]} {factor(one.ratio)}".lstrip(), sources.comparison(one, content))


def factor(estimate: Estimate) -> str:
    """A ratio with its spread: `3.56x (3.50-3.66)`; with more digits where the ends would else look alike, or
    look like 1, which they are not: `1.011x (1.007-1.014)`."""
    low, high = estimate.low, estimate.high
    if low is None or high is None:
        return f"{estimate.value:.2f}x"
    digits = next((count for count in (2, 3) if _tells(low, high, count)), 4)
    ends = list(dict.fromkeys(f"{end:.{digits}f}" for end in (low, high)))
    return f"{estimate.value:.{digits}f}x ({'-'.join(ends)})"


def _tells(low: float, high: float, digits: int) -> bool:
    """Whether so many digits tell the ends of a spread from each other, and from 1 if it does not hold 1."""
    ends = round(low, digits), round(high, digits)
    return (low == high or ends[0] != ends[1]) and (low <= 1 <= high or 1 not in ends)


def signed(estimate: Estimate, unit: str) -> str:
    """A difference with its sign: `+146 s`."""
    sign = "+" if estimate.value >= 0 else "-"
    return f"{sign}{significant(abs(estimate.value), 3)} {unit}"
