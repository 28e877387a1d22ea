"""The median arrival curves off which a crossover inside the measured outputs is read."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from bench.analysis.statistics.cells import by_cell
from bench.analysis.statistics.curves import Curves, curve_key, read_curve
from bench.analysis.statistics.texts import Texts
from bench.records import Crossover, Measurement

_POINTS = 256
"""As many as the crossover itself is read at."""


class MiddleCurve(Struct, frozen=True, kw_only=True):
    """When a cold prompt's tokens had arrived: median over texts, each the median of its trials."""

    route: str
    tier: int
    task: str
    tokens: tuple[float, ...]
    """From the largest first chunk to the end of the shortest stream."""
    seconds: tuple[float, ...]
    """After the request was sent."""


def middle_curves(
    measurements: Sequence[Measurement], curves: Curves, crossovers: Sequence[Crossover]
) -> tuple[MiddleCurve, ...]:
    """The curves of all routes in the cells that have a crossover by curve among cold prompts."""
    by_curve = {(one.tier, one.task) for one in crossovers if (one.basis, one.condition) == ("curve", "cold")}
    found = []
    for cell, sides in by_cell(measurements).items():
        if cell.condition == "cold" and (cell.tier, cell.task) in by_curve:
            for route, rows in sides.items():
                one = _middle(route, cell.tier, cell.task, rows, curves)
                if one is not None:
                    found.append(one)
    return tuple(found)


def _middle(
    route: str, tier: int, task: str, rows: Sequence[Measurement], curves: Curves
) -> MiddleCurve | None:
    """`None` where a trial has no curve: crossovers of such a route go by lines."""
    timed = [row for row in rows if row.ttft_s is not None and row.tpot_s is not None]
    arrivals = [curves.get(curve_key(row)) for row in timed]
    known = [one for one in arrivals if one is not None and one[0].size > 1]
    if not known or len(known) < len(timed):
        return None
    start, end = max(float(tokens[0]) for tokens, _ in known), min(float(tokens[-1]) for tokens, _ in known)
    if end <= start:
        return None
    grid = np.linspace(start, end, _POINTS)
    seconds = Texts(timed).middle_curves(np.stack([read_curve(one, grid) for one in known]))
    middle = np.median(seconds, axis=0)
    return MiddleCurve(
        route=route, tier=tier, task=task, tokens=tuple(grid.tolist()), seconds=tuple(middle.tolist())
    )
