"""Where the arrival curves of two routes cross inside the measured window."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bench.analysis.decisions.meeting import Met, line, of_gaps
from bench.analysis.statistics import bootstrap
from bench.analysis.statistics.bootstrap import Floats, Side
from bench.analysis.statistics.curves import Arrival, read_curve
from bench.analysis.statistics.texts import Texts
from bench.records import Estimate

_GRID = 256


class Streams(NamedTuple):
    """What one route's trials have shown."""

    side: Side
    """Columns ttft_s, tpot_s, first_chunk_tokens; a row a text."""
    texts: Texts
    curves: Sequence[Arrival]
    """One per trial."""


class OnCurves(NamedTuple):
    """Where they cross, and where the lead ends again, with their spreads."""

    at: Estimate | None
    """`None`: not inside the window, and `notes` say why."""
    until: Estimate | None
    notes: list[str]


def on_curves(a: Streams, b: Streams, measured: int, ahead: int, is_paired: bool) -> OnCurves:
    """Where the median arrival curves cross inside the measured window, and what is odd about them.

    The window ends with the shortest stream: behind its end a stream has no time.
    """
    curves = (*a.curves, *b.curves)
    start = max(float(tokens[0]) for tokens, _ in curves)
    reach = min(float(measured), *(float(tokens[-1]) for tokens, _ in curves))
    if reach <= start:
        told = f"the shortest stream ends at {reach:,.0f} tokens: straight lines say where they meet"
        return OnCurves(None, None, [told])
    grid = np.linspace(start, reach, _GRID)
    left, right = (
        side.texts.middle_curves(np.stack([read_curve(curve, grid) for curve in side.curves]))
        for side in (a, b)
    )
    gap = np.median(left, axis=0) - np.median(right, axis=0)
    at, until = (float(place[0]) for place in of_gaps(grid, gap[None, :], ahead=ahead))
    if not np.isfinite(at):
        why = "the lines meet inside the measured window but the measured curves do not"
        if reach < measured:
            why = f"the measured curves do not meet up to {reach:,.0f} tokens, where the shortest ends"
        return OnCurves(None, None, [why])
    samples, spread = min(a.side.trials, b.side.trials), bootstrap.spread_of(a.side.trials, b.side.trials)
    met = _every(a, b, grid, (left, right), ahead, is_paired)
    return OnCurves(
        bootstrap.estimate(at, None if met is None else met.at, spread, samples),
        bootstrap.estimate(until, None if met is None else met.until, spread, samples),
        _turns(gap, 2 if np.isfinite(until) else 1),
    )


def _turns(gap: Floats, told: int) -> list[str]:
    """How often curves cross, where that is more often than is told anyway."""
    changes = int(np.count_nonzero(np.diff(np.sign(gap))))
    return [f"the measured curves cross {changes} times: the last lead counts"] if changes > told else []


def _every(
    a: Streams, b: Streams, grid: Floats, sides: tuple[Floats, Floats], ahead: int, is_paired: bool
) -> Met | None:
    """Where curves cross in every pair of texts or every resample; `None` of a single text."""
    spread = bootstrap.spread_of(a.side.trials, b.side.trials)
    if spread is None:
        return None
    left, right = sides
    if spread == "range":
        gaps = (left[:, None, :] - right[None, :, :]).reshape(-1, _GRID)
        return _met(grid, gaps, np.ravel(line(ahead)(*bootstrap.every_pair(a.side, b.side))), ahead)
    streams = (0, 0) if is_paired else (a.side.stream, b.side.stream)
    gaps = bootstrap.resampled_gaps(left, right, streams)
    return _met(grid, gaps, line(ahead)(*bootstrap.drawn(a.side, b.side, is_paired)), ahead)


def _met(grid: Floats, gaps: Floats, lines: Floats, ahead: int) -> Met:
    """Crossings of gaps on the grid; of those that have none, where their lines meet outside of it.

    Leaving these out would cut off an interval at the window's ends. A gap that has the sign of `ahead` where
    the grid begins was closed before, another one is not closed where it ends.
    """
    met = of_gaps(grid, gaps, ahead=ahead)
    outside = np.where(gaps[:, 0] * ahead > 0, np.minimum(lines, grid[0]), np.maximum(lines, grid[-1]))
    return Met(np.where(np.isfinite(met.at), met.at, outside), met.until)
