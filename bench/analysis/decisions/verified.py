"""Whether an extrapolated crossover holds where it was said to be: prediction beside measurement.

A follow-up trial decodes about 1.2 n* tokens on both routes. Decoding does not depend on how a prompt
came into the cache, so one stream tests every condition of its prompt length: to the condition's median
TTFT, as the suite's own trials have it, the stream's times from its first text on are added. Where these
total latencies meet is the measured crossover.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import numpy as np
from msgspec import Struct

from bench.analysis.decisions.meeting import of_gaps
from bench.analysis.statistics.bootstrap import Floats
from bench.analysis.statistics.cells import Cell, by_cell, column, labelled, plain_route, same_tier, usable
from bench.analysis.statistics.curves import Arrival, Curves, curve_key, read_curve
from bench.records import Crossover, Measurement

REACH = 1.2
"""Output tokens of a follow-up trial, in multiples of the predicted crossover."""
NEAR = 0.2
"""Relative distance from the prediction up to which a measured crossover confirms it."""
_LEAST = 2  # output tokens below which nothing can be decoded on either side
_GRID = 1024

Status = Literal["confirmed", "moved", "not met", "open", "not tested"]


class Verified(Struct, frozen=True, kw_only=True):
    """One predicted crossover and what its follow-up trials show."""

    crossover: Crossover
    """The prediction, from the suite's own trials."""
    status: Status
    """`confirmed`: measured, within the predicted spread or 20% of n*; `moved`: measured elsewhere, or the
    lead is lost again, which was not predicted;
    `not met`: the routes do not meet up to `reached`; `open`: nor do they, but the predicted spread
    goes further; `not tested`: `why` says so."""
    output_tokens: float | None = None
    """Where the measured total latencies meet."""
    until: float | None = None
    """Where they meet again, the lead being lost."""
    reached: int | None = None
    """Output tokens measured on both routes."""
    basis: Literal["curve", "mean step"] | None = None
    """The follow-up's arrival curves, or a line by its mean time per token where a stream does not say
    how many tokens each chunk holds."""
    samples: int = 0
    """Follow-up trials a side."""
    why: str = ""


def is_testable(one: Crossover) -> bool:
    """Whether there is anything to verify: the routes meet, and no arrival curve has shown where."""
    return one.status == "crosses" and (one.output_tokens or 0) >= _LEAST and one.basis != "curve"


def tokens_wanted(one: Crossover) -> int:
    """Output tokens that show both sides of a predicted crossover."""
    return math.ceil(REACH * (one.output_tokens or 0))


def verified(
    measurements: Iterable[Measurement],
    predicted: Iterable[Crossover],
    followed: Iterable[Measurement],
    curves: Curves,
) -> list[Verified]:
    """What the follow-up trials `followed` (with their `curves`) say of every testable prediction.

    `predicted` comes from `measurements`, which give each condition its TTFT. A prediction that no
    follow-up trial was sent for is left out.
    """
    cells = by_cell(labelled(measurements))
    sent = list(followed)
    found = []
    for one in predicted:
        mine = [row for row in sent if same_tier(row.tier, one.tier) and row.task == one.task]
        sides = [[row for row in mine if row.route == plain_route(r)] for r in (one.route, one.base)]
        if is_testable(one) and any(sides):
            found.append(_verified(one, cells, sides, curves))
    return found


def sentence(one: Verified) -> str:
    """The outcome in words; the names of routes, the prediction and the reach are always in it."""
    it = one.crossover
    where = f"{it.route} against {it.base} at {it.tier:,} {it.condition}"
    head = f"{where}: predicted {_tokens(it.output_tokens)}"
    trials = "one trial a side" if one.samples == 1 else f"{one.samples} trials a side"
    reach = f"measured up to {one.reached:,} output tokens, {trials}" if one.reached else ""
    again = f", and again at {_tokens(one.until)}" if one.until is not None else ""
    by = " (by the mean time per token)" if one.basis == "mean step" else ""
    return {
        "confirmed": f"{head}, confirmed at {_tokens(one.output_tokens)}{again}{by}{_off(one)}; {reach}",
        "moved": f"{head}, but they meet at {_tokens(one.output_tokens)}{again}{by}; {reach}",
        "not met": f"{head}, but they do not meet; {reach}",
        "open": f"{head}, not met yet, and the predicted spread {_goes(it.high)}; {reach}",
        "not tested": f"{head}, not tested: {one.why}",
    }[one.status]


def _off(one: Verified) -> str:
    """How far off a measured crossover is that only the predicted spread confirms."""
    it = one.crossover
    if not one.output_tokens or not it.output_tokens:
        return ""
    off = one.output_tokens / it.output_tokens - 1
    if abs(off) <= NEAR:
        return ""
    return f", {off:+.0%} but inside the predicted spread, {_spread(it)}"


def _spread(it: Crossover) -> str:
    if it.low is None:
        return f"up to {_tokens(it.high)}"
    return f"{_tokens(it.low)} to {_tokens(it.high)}" if it.high is not None else f"from {_tokens(it.low)} on"


def _goes(high: float | None) -> str:
    return "has no upper end" if high is None else f"goes to {_tokens(high)}"


def _tokens(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}"


def _verified(
    one: Crossover,
    cells: Mapping[Cell, Mapping[str, Sequence[Measurement]]],
    sides: Sequence[Sequence[Measurement]],
    curves: Curves,
) -> Verified:
    base = cells.get(Cell(one.tier, one.condition, one.task), {})
    totals: list[Arrival] = []
    counts: list[int] = []
    whole = True
    for label, rows in zip((one.route, one.base), sides, strict=True):
        good = [row for row in rows if usable(row) and row.tpot_s is not None and row.output_tokens]
        if not good:
            return Verified(crossover=one, status="not tested", why=_why(label, rows))
        streams = [_stream(row, curves) for row in good]
        whole = whole and all(curve_key(row) in curves for row in good)
        counts.append(len(good))
        ttft = float(np.median(column(base.get(label, ()), "ttft_s")))
        totals.append(_median_stream(streams, ttft))
    start = max(float(tokens[0]) for tokens, _ in totals)
    reached = min(int(tokens[-1]) for tokens, _ in totals)
    met, until = _lead_of(totals, start, reached, 1 if one.wins == "below" else -1)
    return Verified(
        crossover=one,
        status=_status(one, met, until, reached),
        output_tokens=met,
        until=until,
        reached=reached,
        basis="curve" if whole else "mean step",
        samples=min(counts),
        why=_too_short(one, reached),
    )


def _why(label: str, rows: Sequence[Measurement]) -> str:
    if not rows:
        return f"no trial on {plain_route(label)}"
    last = rows[-1]
    reasons = [reason.id for reason in last.verdict.reasons] or ["no decode rate"]
    return f"the trial on {plain_route(label)} is invalid ({', '.join(reasons)})"


def _too_short(one: Crossover, reached: int) -> str:
    return "" if reached > (one.output_tokens or 0) else f"a stream ended after {reached:,} tokens"


def _stream(row: Measurement, curves: Curves) -> Arrival:
    """Tokens so far, and seconds since the first text."""
    curve = curves.get(curve_key(row))
    if curve is not None and curve[0].size > 1:
        return curve[0], curve[1] - curve[1][0]
    first, last = float(row.first_chunk_tokens), float(row.output_tokens or 0)
    return np.array([first, last]), np.array([0.0, (last - first) * (row.tpot_s or 0.0)])


def _median_stream(streams: Sequence[Arrival], ttft_s: float) -> Arrival:
    """The median of several streams behind a TTFT; a single one as it is."""
    if len(streams) == 1:
        return streams[0][0], streams[0][1] + ttft_s
    start = max(float(tokens[0]) for tokens, _ in streams)
    end = min(float(tokens[-1]) for tokens, _ in streams)
    grid = np.linspace(start, end, _GRID)
    return grid, np.median([read_curve(stream, grid) for stream in streams], axis=0) + ttft_s


def _lead_of(
    totals: Sequence[Arrival], start: float, reached: int, ahead: int
) -> tuple[float | None, float | None]:
    """Where the first total takes the side of `ahead` (-1: below the second), and where it leaves it."""
    if reached <= start:
        return None, None
    grid: Floats = np.linspace(start, reached, _GRID)
    gap = read_curve(totals[0], grid) - read_curve(totals[1], grid)
    places = (float(place[0]) for place in of_gaps(grid, gap[None, :], ahead=ahead))
    met, until = (place if math.isfinite(place) else None for place in places)
    return met, until


def _status(one: Crossover, met: float | None, until: float | None, reached: int) -> Status:
    predicted = one.output_tokens or 0.0
    low, high = _ends(one)
    if met is not None:
        near = abs(met / predicted - 1) <= NEAR or low <= met <= high
        return "confirmed" if near and (until is None or one.until is not None) else "moved"
    if reached <= predicted:
        return "not tested"
    return "open" if high > reached else "not met"


def _ends(one: Crossover) -> tuple[float, float]:
    """The predicted spread; an end that it lacks is no limit, and without a spread there is a point."""
    if one.low is None and one.high is None:
        return one.output_tokens or 0.0, one.output_tokens or 0.0
    return 0.0 if one.low is None else one.low, math.inf if one.high is None else one.high
