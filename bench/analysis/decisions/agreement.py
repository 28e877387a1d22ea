"""Where the winner map says something else than the crossovers that were measured.

The map goes by laws over all tiers, a crossover by one tier's own trials and, inside the measured outputs, by
their arrival curves. Both are right as far as they go, so where they part, a reader is told.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from bench.analysis.decisions.reused import Reuse
from bench.analysis.decisions.winner import Latency, Laws, latencies, laws_of
from bench.analysis.statistics.bootstrap import Floats
from bench.analysis.statistics.cells import labelled, usable
from bench.records import Crossover, Measurement

_GRID: Floats = np.geomspace(1.0, 1e7, 4096)
"""Output lengths at which the map's own border is looked for."""


class Parted(NamedTuple):
    """A crossover that the map does not have where it was measured."""

    crossover: Crossover
    on_map: float | None
    """Output tokens at which the two routes meet on the map; `None`: they do not."""


def parted(
    measurements: Iterable[Measurement], crossovers: Sequence[Crossover], laws: Laws | None = None
) -> tuple[Parted, ...]:
    """The crossovers that the maps of their task, cold or of replays, contradict beyond both spreads.

    A crossover without a spread contradicts nothing. Where the map's own spread is not known (a law through
    two tiers), it is taken for none. `laws`: those of the measurements, where these are of one task and their
    laws are known already.
    """
    rows = [row for row in labelled(measurements) if usable(row)]
    found: list[Parted] = []
    for task in dict.fromkeys(one.task for one in crossovers):
        mine = [row for row in rows if row.task == task]
        fitted = laws or laws_of(mine)
        for condition, cached in (("cold", Reuse(share=0.0)), ("replay", None)):
            cells = [one for one in crossovers if (one.task, one.condition) == (task, condition)]
            told = [one for one in cells if one.low is not None and one.high is not None]
            routes = latencies(mine, fitted, cached)[0] if told else {}
            for one in told:
                if one.route in routes and one.base in routes:
                    a, b = routes[one.route], routes[one.base]
                    if _is_elsewhere(one, a, b):
                        found.append(Parted(one, _meeting(one.tier, a, b)))
    return tuple(found)


def _is_elsewhere(one: Crossover, a: Latency, b: Latency) -> bool:
    """Whether on the map the same route is ahead over the whole spread of a crossover, and surely so."""
    gap, half = _gap(one.tier, a, b, np.array([one.low, one.high], dtype=float))
    sure = np.where(np.abs(gap) > np.nan_to_num(half, nan=0.0), np.sign(gap), 0.0)
    return bool(sure[0] == sure[1] != 0)


def _meeting(tier: int, a: Latency, b: Latency) -> float | None:
    gap, _ = _gap(tier, a, b, _GRID)
    changes = np.flatnonzero(np.sign(gap[:-1]) != np.sign(gap[1:]))
    if not changes.size:
        return None
    before, after = int(changes[0]), int(changes[0]) + 1
    share = gap[before] / (gap[before] - gap[after])
    return float(_GRID[before] + share * (_GRID[after] - _GRID[before]))


def _gap(tier: int, a: Latency, b: Latency, outputs: Floats) -> tuple[Floats, Floats]:
    """The first route's latency minus the second's, and half of its spread."""
    prompt = np.array([float(tier)])
    (left, half_left), (right, half_right) = a.at(prompt, outputs), b.at(prompt, outputs)
    return left - right, np.hypot(half_left, half_right)
