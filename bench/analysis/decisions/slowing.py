"""Where two routes meet far out, where lines bend: a step takes longer with every token of context.

By the decode laws a step grows by d1 for each token. Over n tokens the mean step is tpot + d1 (n - m) / 2, m
being the measured length, so two latencies meet at a root of a quadratic. A slope is measured like
anything else: its error, small as it looks, is multiplied by the square of n, so each resample takes a
slope of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import numpy as np

from bench.analysis.decisions.meeting import Met, of_parabola, start_of
from bench.analysis.statistics import bootstrap
from bench.analysis.statistics.bootstrap import Floats, Side
from bench.analysis.statistics.decode import DecodeLaw
from bench.records import Estimate

TPOT = 1
"""Place of the step time among the columns of a side."""


class Slope:
    """How a route's step grows with context: d1 of its law, and what it may be as well."""

    def __init__(self, law: DecodeLaw, stream: int) -> None:
        self.law = law
        self._stream = stream
        self._weights = np.array(law.slope_weights)

    @property
    def trials(self) -> tuple[int, ...]:
        """Trials behind each tier of the law."""
        return tuple(len(steps) for steps in self.law.steps_s)

    def at(self, context: float, relative: Floats) -> Floats:
        """d1 in every resample, `relative` being the step time of the tier with this context over its median.

        That tier is the one whose crossover is asked for: its own step time and the slope are drawn
        together. The law's terms are not negative.
        """
        own = int(np.argmin(np.abs(np.array(self.law.contexts) - context)))
        others = self._parts.sum(axis=0) - self._parts[own]
        slope: Floats = np.maximum(0.0, others + self._weights[own] * relative)
        return slope

    def half_range(self) -> float:
        """How far d1 may lie from its value when every tier is off by as much as its trials are apart."""
        steps = [(np.array(one), float(np.median(one))) for one in self.law.steps_s]
        off = np.array([np.max(np.abs(one / middle - 1)) for one, middle in steps])
        return float(np.sum(np.abs(self._weights) * off))

    @cached_property
    def _parts(self) -> Floats:
        """What each tier adds to d1 in every resample, (tiers, resamples)."""
        drawn = []
        for place, steps in enumerate(self.law.steps_s):
            (medians,) = Side((np.array(steps),), self._stream + 2 * place).resampled_alone()
            drawn.append(medians / np.median(steps))
        return self._weights[:, None] * np.stack(drawn)


def slopes_of(laws: dict[str, DecodeLaw]) -> dict[str, Slope]:
    """The slopes of the routes that were measured on two tiers or more."""
    # streams of their own: neither those of the routes' sides nor those of each other's tiers
    return {
        name: Slope(laws[name], 1000 + 100 * place)
        for place, name in enumerate(sorted(laws))
        if laws[name].tiers >= 2
    }


def lead_of(
    a: tuple[Side, Slope], b: tuple[Side, Slope], context: float, measured: int, ahead: int, paired: bool
) -> tuple[Estimate | None, Estimate | None]:
    """Where the lead is taken by bent lines, and where it is lost again, with their spreads; `None`: nowhere.

    `context`: mean context of the measured streams; `ahead`: -1 where a decodes faster, 1 where b does (see
    `decisions.meeting`). The spread is that of sides and slopes; where one of the tiers behind a slope has a
    single trial it is not known.
    """
    (left, one), (right, other) = a, b
    met = _bent(measured, ahead)
    values = met(*left.medians, *right.medians, (one.law.slope_s - other.law.slope_s) / 2)
    trials = (left.trials, right.trials, *one.trials, *other.trials)
    spread = bootstrap.spread_of(*trials) if min(trials) > 1 else None
    every: Met | None = None
    if spread == "range":
        pairs = bootstrap.every_pair(left, right)
        found = [met(*pairs, bend) for bend in _bends_seen(one, other)]
        every = Met(np.stack([each.at for each in found]), np.stack([each.until for each in found]))
    elif spread == "interval":
        drawn = bootstrap.drawn(left, right, paired)
        half = len(left.columns)
        slopes = [
            slope.at(context, medians / side.medians[TPOT])
            for slope, side, medians in ((one, left, drawn[TPOT]), (other, right, drawn[half + TPOT]))
        ]
        every = met(*drawn, (slopes[0] - slopes[1]) / 2)
    samples = min(left.trials, right.trials)
    at = bootstrap.estimate(float(values.at), None if every is None else every.at, spread, samples)
    until = bootstrap.estimate(float(values.until), None if every is None else every.until, spread, samples)
    return at, until


def point(left: Side, right: Side, measured: int, ahead: int, slopes: tuple[float, float]) -> float | None:
    """n* for given slopes; `None` when the bent lines never meet."""
    value = float(_bent(measured, ahead)(*left.medians, *right.medians, (slopes[0] - slopes[1]) / 2).at)
    return value if np.isfinite(value) else None


def _bends_seen(one: Slope, other: Slope) -> tuple[float, float, float]:
    """Half of the difference of two slopes, and how far apart and together their tiers allow it to be."""
    slopes = one.law.slope_s, other.law.slope_s
    halves = one.half_range(), other.half_range()
    least = [max(0.0, slope - half) for slope, half in zip(slopes, halves, strict=True)]
    most = [slope + half for slope, half in zip(slopes, halves, strict=True)]
    return (slopes[0] - slopes[1]) / 2, (least[0] - most[1]) / 2, (most[0] - least[1]) / 2


def _bent(measured: int, ahead: int) -> Callable[..., Met]:
    """Where lines meet whose steps part by `bend` x 2 s more with every token."""

    def meet(
        ta: Floats, pa: Floats, ca: Floats, tb: Floats, pb: Floats, cb: Floats, bend: Floats | float
    ) -> Met:
        c0, start = start_of(ta, pa, ca, tb, pb, cb)
        # start + x * (gain + bend * (x + c0 - m)) with x = n - c0
        linear = np.subtract(pa, pb) + bend * (c0 - measured)
        met = of_parabola(start, linear, bend, ahead=ahead)
        return Met(c0 + met.at, c0 + met.until)

    return meet
