"""Intervals for medians, and for whatever is computed from medians, by resampling what is independent.

What is resampled, and called a trial here, are prompt texts with the median of their trials (`texts.py`).
From `MINIMUM` of them a side on an estimate carries a 95% bootstrap interval; with two to four it carries
the range of what was measured, and says so; with one it is a point. (The range of n trials holds the true
median with probability 1 - 2^(1-n): a half at two, seven in eight at four. That is no 95%, whatever is
resampled from it.)

All intervals are percentiles of the resamples. The bias-corrected and accelerated interval (B. Efron, JASA
82, 1987) is no better for medians: their jackknife is not consistent. It covered the ratio of paired
medians in 74 to 91% where percentiles covered 94% and more, and a crossover in 92 to 94% where they covered
96 to 98% (docs/statistics.md). All randomness comes from `numpy` Generators with fixed seeds, so equal data
give equal intervals.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.records import Estimate, Percentiles, Spread

Floats = NDArray[np.float64]
Ints = NDArray[np.int32]

LEVEL = 0.95
"""Coverage an interval is built for."""
MINIMUM = 5
"""Trials a side below which only a range is given."""
RESAMPLES = 1000
_SEED = 20_240_229
_STRIDE = 8
_CHUNK = 1_000_000  # numbers gathered at once: bounds the memory of very long cells


@lru_cache(maxsize=32)
def resamples(trials: int, stream: int) -> Ints:
    """Which trials each resample holds, (RESAMPLES, trials).

    Sides that are independent take different streams; sides whose trials are paired take the same
    one, with their trials in the same order.
    """
    rng = np.random.default_rng((_SEED, trials, stream))
    return rng.integers(0, trials, (RESAMPLES, trials), dtype=np.int32)


@lru_cache(maxsize=256)
def _middle_ranks(trials: int, stream: int) -> tuple[Ints, Ints]:
    """Ranks of the two middle trials of every resample: its median without gathering anything."""
    ordered = np.sort(resamples(trials, stream), axis=1)
    return ordered[:, (trials - 1) // 2].copy(), ordered[:, trials // 2].copy()


def resampled_medians(values: Floats, stream: int) -> Floats:
    """Median of every resample, (RESAMPLES,); `values` keep their trial order.

    Columns resampled by one stream are drawn together, row by row.
    """
    if values.min() == values.max():
        return np.full(RESAMPLES, values[0])
    index = resamples(values.size, stream)
    step = max(1, _CHUNK // values.size)
    low, high = (values.size - 1) // 2, values.size // 2
    parts = []
    for start in range(0, RESAMPLES, step):
        part = np.partition(values[index[start : start + step]], (low, high), axis=1)
        parts.append((part[:, low] + part[:, high]) / 2)
    return np.concatenate(parts)


def resampled_gaps(left: Floats, right: Floats, streams: tuple[int, int]) -> Floats:
    """Median of `left` less that of `right` in every resample, column by column: (RESAMPLES, columns).

    `left` and `right` hold a trial a row. Medians are drawn where a resample's gap may cross 0, and
    beside it, which is all that finding a crossing needs; elsewhere only the sign of a gap is true. It
    is certain where all values of one side lie below all of the other, and between two columns
    `_STRIDE` apart at which no resample differs in sign (one that turns twice between them is missed).
    """
    sure = np.where(left.max(axis=0) < right.min(axis=0), -1.0, 0.0)
    sure = np.where(left.min(axis=0) > right.max(axis=0), 1.0, sure)
    turns = sure[1:] != sure[:-1]
    open_ = sure == 0
    open_[1:] |= turns
    open_[:-1] |= turns
    gaps: Floats = np.tile(sure, (RESAMPLES, 1))

    def draw(places: Ints) -> None:
        for place in places:
            gaps[:, place] = resampled_medians(left[:, place], streams[0])
            gaps[:, place] -= resampled_medians(right[:, place], streams[1])

    places = np.flatnonzero(open_).astype(np.int32)
    coarse = np.union1d(places[::_STRIDE], places[-1:])
    draw(coarse)
    for start, end in itertools.pairwise(coarse):
        inside = places[(places > start) & (places < end)]
        if (np.sign(gaps[:, start]) == np.sign(gaps[:, end])).all():
            gaps[:, inside] = np.sign(gaps[:, [start]])
        else:
            draw(inside)
    return gaps


def spread_of(*trials: int) -> Spread | None:
    """What an estimate over these sides may carry."""
    if max(trials) < 2:
        return None
    return "interval" if min(trials) >= MINIMUM else "range"


def middle(values: Floats) -> float:
    """The median of at least one value, none of them NaN.

    numpy.median gives the same, and loads all of numpy.ma at its first call: what a run reckons between two
    requests takes this one.
    """
    return _middle_of(np.sort(values))


def _middle_of(ordered: Floats) -> float:
    n = ordered.size
    return float(ordered[(n - 1) // 2] + ordered[n // 2]) / 2


def median(values: Floats) -> Estimate:
    """Median with its percentile bootstrap interval, or the range below five trials."""
    n = values.size
    ordered = np.sort(values)
    value = _middle_of(ordered)
    spread = spread_of(n)
    if spread is None:
        return Estimate(value=value, samples=n)
    if spread == "range":
        return Estimate(value=value, low=float(ordered[0]), high=float(ordered[-1]), spread=spread, samples=n)
    low_rank, high_rank = _middle_ranks(n, 0)
    medians = np.sort((ordered[low_rank] + ordered[high_rank]) / 2)
    low, high = _quantile(medians, (1 - LEVEL) / 2), _quantile(medians, (1 + LEVEL) / 2)
    return Estimate(value=value, low=low, high=high, spread=spread, samples=n)


def percentiles(values: Floats) -> Percentiles | None:
    """Of what was seen, without resampling; linear between ranks, as `numpy.percentile` by default."""
    if not values.size:
        return None
    p50, p90, p99 = (float(point) for point in np.percentile(values, (50, 90, 99)))
    return Percentiles(p50=p50, p90=p90, p99=p99, samples=int(values.size))


def _quantile(ordered: Floats, share: float) -> float:
    """Linear between neighbours, but never `inf - inf`."""
    place = share * (ordered.size - 1)
    low = int(np.floor(place))
    high = min(low + 1, ordered.size - 1)
    if not np.isfinite(ordered[high]) or ordered[low] == ordered[high]:
        return float(ordered[high] if place > low else ordered[low])
    return float(ordered[low] + (place - low) * (ordered[high] - ordered[low]))


Statistic = Callable[..., Any]


class Side:
    """One side of a comparison: columns of equal length, one row a trial, in trial order.

    Medians of resamples and of the jackknife are computed once and shared by every comparison
    this side takes part in.
    """

    def __init__(self, columns: tuple[Floats, ...], stream: int) -> None:
        self.columns = columns
        self.stream = stream
        self.trials = columns[0].size
        self.medians: tuple[float, ...] = tuple(float(np.median(c)) for c in columns)
        self._resampled: dict[int, tuple[Floats, ...]] = {}

    def resampled(self, stream: int) -> tuple[Floats, ...]:
        """Resampled medians of every column, rows drawn together."""
        if stream not in self._resampled:
            self._resampled[stream] = tuple(resampled_medians(c, stream) for c in self.columns)
        return self._resampled[stream]

    def resampled_alone(self) -> tuple[Floats, ...]:
        """The same for a side of one column that is paired with nothing: ranks suffice, no gathering."""
        low, high = _middle_ranks(self.trials, self.stream)
        ordered = np.sort(self.columns[0])
        return ((ordered[low] + ordered[high]) / 2,)


def two_sides(statistic: Statistic, a: Side, b: Side, *, paired: bool = False) -> Estimate | None:
    """Estimate of `statistic(*medians of a's columns, *medians of b's columns)`.

    `statistic` is vectorised. With `paired`, row i of both sides belongs together and both are
    resampled alike. Below five trials a side the range over all pairs of trials is given. `None` when the
    statistic is not finite. An end that is not finite is left out (`None`).
    """
    value = float(statistic(*a.medians, *b.medians))
    if not np.isfinite(value):
        return None
    spread = spread_of(a.trials, b.trials)
    samples = min(a.trials, b.trials)
    if spread is None:
        return Estimate(value=value, samples=samples)
    if spread == "range":
        return within(value, np.asarray(statistic(*every_pair(a, b))), samples)
    return between(value, np.asarray(statistic(*drawn(a, b, paired))), samples)


def drawn(a: Side, b: Side, paired: bool) -> tuple[Floats, ...]:
    """Medians of all columns of both sides in every resample; with `paired` both are resampled alike."""
    if paired:
        return (*a.resampled(0), *b.resampled(0))
    if len(a.columns) == len(b.columns) == 1:
        return (*a.resampled_alone(), *b.resampled_alone())
    return (*a.resampled(a.stream), *b.resampled(b.stream))


def every_pair(a: Side, b: Side) -> tuple[Floats, ...]:
    """The columns of both sides shaped for every pair of trials: (a's trials, b's trials) together."""
    return (*(c[:, None] for c in a.columns), *(c[None, :] for c in b.columns))


def between(value: float, replicates: Floats, samples: int) -> Estimate:
    """An estimate with the percentile interval of its replicates, which may be infinite."""
    ordered = np.sort(replicates)
    ends = _quantile(ordered, (1 - LEVEL) / 2), _quantile(ordered, (1 + LEVEL) / 2)
    return _estimate(value, ends, "interval", samples)


def within(value: float, every: Floats, samples: int) -> Estimate:
    """An estimate with the range of what pairs of trials give, which may be infinite."""
    return _estimate(value, (float(every.min()), float(every.max())), "range", samples)


def estimate(value: float, replicates: Floats | None, spread: Spread | None, samples: int) -> Estimate | None:
    """An estimate with the spread of its replicates, where there is one; `None` when it is not finite."""
    if not np.isfinite(value):
        return None
    if spread is None or replicates is None:
        return Estimate(value=value, samples=samples)
    return (within if spread == "range" else between)(value, replicates, samples)


def _estimate(value: float, ends: tuple[float, float], spread: Spread, samples: int) -> Estimate:
    """An end that is not finite is left open."""
    low, high = min(ends[0], value), max(ends[1], value)
    return Estimate(
        value=value,
        low=low if np.isfinite(low) else None,
        high=high if np.isfinite(high) else None,
        spread=spread,
        samples=samples,
    )
