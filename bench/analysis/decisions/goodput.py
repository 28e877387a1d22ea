"""Goodput: how many requests a second a route serves within latency limits, and at how many at once.

A limit is a promise to each request (TTFT, time per output token, total). A request that fails keeps
none. What is judged are requests, not medians: a level whose median is within a limit breaks it for
half of them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Literal

from msgspec import Struct

from bench.analysis.statistics.levels import Key, Wave, span_s, waves_by_level
from bench.records import Condition, Measurement

_Z = 1.959963984540054  # two-sided 95% of the normal distribution
_NOT_ITS_OWN = {"wave_spoilt"}  # another request of the wave failed: its own times still hold
_SERVERS_FAULT = {"failed", "no_text"}


class Promise(Struct, frozen=True, kw_only=True):
    """Limits in seconds, each of them for every request; `None`: no limit."""

    ttft_s: float | None = None
    tpot_s: float | None = None
    """Per output token after the first chunk."""
    total_s: float | None = None


class Goodput(Struct, frozen=True, kw_only=True):
    """One route at one level of concurrency."""

    route: str
    tier: int
    condition: Condition
    task: str
    concurrency: int
    """Requests released together; 1: sent alone."""
    waves: int
    """Judged ones."""
    left_out: dict[str, int]
    """Reason -> waves that cannot be judged: something else than the server was wrong with them."""
    requests: int
    failed: int
    met: int
    """Requests within every limit."""
    low: float | None
    """95% interval of the share of such requests (Wilson 1927); `None`: no request was judged."""
    high: float | None
    requests_s: float | None
    """Requests within the limits / time from the release of their wave to the end of its last answer, summed
    up over waves; `None` where a wave has no end, since a request sent alone has failed."""
    verdict: Literal["kept", "missed", "undecided"]
    """The wanted share lies below, above, or within the interval."""

    @property
    def share(self) -> float | None:
        """Part of the judged requests that was within every limit."""
        return self.met / self.requests if self.requests else None


def goodput(measurements: Iterable[Measurement], promise: Promise, *, share: float = 0.9) -> list[Goodput]:
    """Every level of every route, task, tier and condition, the lowest level first.

    Valid salted samples count as cold ones. `share`: part of the requests that has to be within the limits.
    """
    found = waves_by_level(measurements)
    return [_level(key, waves, promise, share) for key, waves in found.items()]


def highest(found: Sequence[Goodput]) -> Goodput | None:
    """Of the levels of one route, tier, condition and task: the highest that keeps the promise, none below
    it having missed it."""
    best = None
    for level in sorted(found, key=lambda one: one.concurrency):
        if level.verdict == "missed":
            break
        if level.verdict == "kept":
            best = level
    return best


def wilson(met: int, count: int) -> tuple[float, float]:
    """95% interval of a share. Wilson, Probable Inference, J. Am. Stat. Assoc. 22 (1927), 209-212."""
    share, square = met / count, _Z**2 / count
    middle = share + square / 2
    half = _Z * math.sqrt(share * (1 - share) / count + square / (4 * count))
    return max(0.0, (middle - half) / (1 + square)), min(1.0, (middle + half) / (1 + square))


def fewest(share: float) -> int:
    """Requests, all of them within the limits, from which on a share can be called kept: the interval
    of `n` of `n` begins at n / (n + z**2)."""
    return math.ceil(_Z**2 * share / (1 - share))


def _level(key: Key, waves: Sequence[Wave], promise: Promise, share: float) -> Goodput:
    task, tier, condition, route, concurrency = key
    left_out: Counter[str] = Counter()
    judged = []
    for wave in waves:
        reasons = dict.fromkeys(reason for row in wave for reason in _unjudged(row, promise))
        left_out.update(reasons.keys())
        if not reasons:
            judged.append(wave)
    rows = [row for wave in judged for row in wave]
    met = sum(_is_met(row, promise) for row in rows)
    low, high = wilson(met, len(rows)) if rows else (None, None)
    return Goodput(
        route=route,
        tier=tier,
        condition=condition,
        task=task,
        concurrency=concurrency,
        waves=len(judged),
        left_out=dict(sorted(left_out.items())),
        requests=len(rows),
        failed=sum(_has_failed(row) for row in rows),
        met=met,
        low=low,
        high=high,
        requests_s=_rate(judged, promise),
        verdict=_verdict(low, high, share),
    )


def _verdict(low: float | None, high: float | None, share: float) -> Literal["kept", "missed", "undecided"]:
    if low is None or high is None or low < share <= high:
        return "undecided"
    return "kept" if low >= share else "missed"


def _limited(row: Measurement, promise: Promise) -> list[tuple[str, float | None, float]]:
    """Name, value and limit of everything that is promised."""
    limits = {name: getattr(promise, name) for name in promise.__struct_fields__}
    return [(name, getattr(row, name), limit) for name, limit in limits.items() if limit is not None]


def _has_failed(row: Measurement) -> bool:
    return row.failure is not None or any(reason.id in _SERVERS_FAULT for reason in row.verdict.reasons)


def _unjudged(row: Measurement, promise: Promise) -> list[str]:
    """Why a request says nothing about the promise."""
    if row.failure is not None and row.failure.kind == "cancelled":
        return ["cancelled"]
    wrong = [reason.id for reason in row.verdict.reasons]
    others = [name for name in wrong if name not in _SERVERS_FAULT | _NOT_ITS_OWN]
    if others or _has_failed(row):
        return others
    return [f"no {name}" for name, value, _ in _limited(row, promise) if value is None]


def _is_met(row: Measurement, promise: Promise) -> bool:
    if _has_failed(row):
        return False
    return all(value is not None and value <= limit for _, value, limit in _limited(row, promise))


def _rate(waves: Sequence[Wave], promise: Promise) -> float | None:
    met, took_s = 0, 0.0
    for wave in waves:
        span = span_s(wave)
        if not span:
            return None
        met += sum(_is_met(row, promise) for row in wave)
        took_s += span
    return met / took_s if took_s else None
