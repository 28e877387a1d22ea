"""The performance table as text cells with footnotes, the same for every output format."""

from __future__ import annotations

from collections import Counter

from msgspec import Struct

from bench.analysis.decisions.claims import many
from bench.analysis.verdicts.firstreplay import is_first_miss
from bench.records import Estimate, Measurement
from bench.report.content import Cell, Content
from bench.report.escape import visible
from bench.report.quantities import MISSING, QUANTITIES, TABLE, spread_percent, write
from bench.report.witness import witnesses
from bench.report.words import bare_reason, verdict_text

WITH_SPREAD = {"ttft_s", "decode_tok_s", "total_s"}


class Value(Struct, frozen=True, kw_only=True):
    """One cell of a table."""

    text: str
    spread: str = ""
    """`±3%`, where there is one."""
    note: int | None = None
    """Footnote number, from 1."""
    hover: str = ""
    """Definition, sample and witness of the number."""
    sort: float | None = None


class Row(Struct, frozen=True, kw_only=True):
    """One row: names, values by quantity, verdict."""

    route: str
    tier: int
    condition: str
    task: str
    values: dict[str, Value]
    verdict: Value
    state: str
    """`ok`, `mixed` or `invalid`: for colour."""


class Grid(Struct, frozen=True, kw_only=True):
    """The whole table."""

    rows: tuple[Row, ...]
    notes: tuple[str, ...]
    """Footnotes; number 1 is the first."""


def grid(content: Content) -> Grid:
    """The performance table of a report."""
    notes = _Notes()
    rows = tuple(_row(cell, notes) for cell in content.cells)
    return Grid(rows=rows, notes=tuple(notes.texts))


class _Notes:
    """Footnotes, numbered in the order of first use; equal texts share a number."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def number(self, text: str) -> int:
        if text not in self.texts:
            self.texts.append(text)
        return self.texts.index(text) + 1


def _row(cell: Cell, notes: _Notes) -> Row:
    summary = cell.summary
    state = "ok" if not summary.invalid else "mixed" if summary.valid else "invalid"
    return Row(
        route=visible(summary.route, 60),
        tier=summary.tier,
        condition=cell.condition,
        task=visible(summary.task, 60),
        values={key: _value(cell, key, notes) for key in TABLE},
        verdict=_verdict(cell, notes),
        state=state,
    )


def _value(cell: Cell, key: str, notes: _Notes) -> Value:
    quantity = QUANTITIES[key]
    estimate = cell.summary.estimates.get(key)
    if estimate is None:
        reason = why_missing(cell, key)
        return Value(text=MISSING, note=notes.number(reason), hover=reason)
    hover = f"{quantity.definition} Median of {_behind(estimate)}"
    if estimate.low is not None and estimate.high is not None:
        kind = "95% interval" if estimate.spread == "interval" else "range"
        hover += f", {kind} {write(estimate.low, quantity.style)} to {write(estimate.high, quantity.style)}"
    found = witnesses(cell.valid, key)
    hover += f". Witness: {found}." if found else "."
    return Value(
        text=write(estimate.value, quantity.style),
        spread=spread_percent(estimate.value, estimate.low, estimate.high) if key in WITH_SPREAD else "",
        hover=hover,
        sort=estimate.value,
    )


def _behind(estimate: Estimate) -> str:
    """`5`, or `3 texts, 6 trials`."""
    if estimate.trials is None:
        return str(estimate.samples)
    return f"{many(estimate.samples, 'text')}, {many(estimate.trials, 'trial')}"


def _verdict(cell: Cell, notes: _Notes) -> Value:
    summary, total = cell.summary, cell.summary.valid + cell.summary.invalid
    fallback = any(m.verdict.speculation in {"fallback", "off"} for m in cell.valid)
    missed = sum(map(is_first_miss, cell.valid))
    some = f"{missed} " if missed < summary.valid else ""
    remark = ", fallback" * fallback + f", {some}not reused" * (missed > 0)
    if not summary.invalid:
        text = f"{summary.valid} ok{remark}"
    elif summary.valid:
        text = f"{summary.valid}/{total} ok{remark}"
    else:
        text = "invalid"
    if summary.invalid:
        why = Counter(verdict_key(m) for m in cell.measurements if not m.verdict.valid)
        note = "excluded: " + "; ".join(f"{count} x {reason}" for reason, count in sorted(why.items()))
        return Value(text=text, note=notes.number(note), hover=note, sort=float(summary.valid))
    warned = sorted({bare_reason(r.id) for m in cell.valid for r in m.verdict.warnings})
    hover = "; ".join([*warned, *summary.warnings]) or "Every trial of this cell is valid."
    return Value(text=text, hover=hover, sort=float(summary.valid))


def verdict_key(one: Measurement) -> str:
    """The reasons of an excluded measurement without the figures of the case: for counting."""
    if one.verdict.reasons:
        return ", ".join(bare_reason(reason.id) for reason in one.verdict.reasons)
    return verdict_text(one).removeprefix("invalid: ")


def why_missing(cell: Cell, key: str) -> str:
    """The commonest reason why a cell has no number for a quantity."""
    if not cell.summary.valid:
        return "no valid trial in this cell"
    reasons: Counter[str] = Counter()
    for reason, count in Counter(m.absent[key] for m in cell.valid if key in m.absent).items():
        reasons[visible(reason, 200)] += count
    if not reasons:
        return f"{QUANTITIES[key].label} was not measured"
    return min(reasons.items(), key=lambda item: (-item[1], item[0]))[0]
