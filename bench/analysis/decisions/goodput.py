"""Goodput: how many requests a second a route serves within latency limits, and at how many at once.

A limit is a promise to each request (TTFT, time per output token, total). A request that fails, or is
refused, keeps none. What is judged are requests, not medians: a level whose median is within a limit breaks
it for half of them.

What was seen and what is shown are two things. Seen is the share of the requests that were within every
limit. Shown is what its 95% interval says of all further ones. Requests of a wave share a queue, and waves of
the same texts what a drafter makes of these, so neither are independent: a text's waves are one trial.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Literal

from msgspec import Struct

from bench.analysis.statistics.levels import Key, Wave, span_s, waves_by_level
from bench.analysis.statistics.shares import share_interval, trials_to_show
from bench.analysis.statistics.texts import text_keys
from bench.analysis.verdicts.ledger import is_cut_off
from bench.records import Condition, Measurement

_NOT_ITS_OWN = {"wave_spoilt"}  # another request of the wave failed: its own times still hold
_SERVERS_FAULT = {"failed", "no_text"}
_AT_ONCE = {"refused", "status"}  # failures that take no time worth counting
Standing = Literal["kept", "kept so far", "missed so far", "missed"]
"""Whether the wanted share of requests was within every limit; `so far`: it was seen, and is not shown."""
_SO_FAR: tuple[Standing, ...] = ("kept so far", "missed so far")


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
    waves_kept: int
    """Waves of which the wanted share of requests, or more, was within every limit."""
    texts: int
    """Texts that these waves sent; waves of the same one count as one trial."""
    left_out: dict[str, int]
    """Reason, or `no tpot_s` and the like where a time is not known -> waves that cannot be judged."""
    requests: int
    failed: int
    met: int
    """Requests within every limit."""
    share: float | None
    """Of the requests; this and what follows is `None` where no request was judged."""
    lowest_share: float | None
    """Share of the wave that kept least of its requests within."""
    low: float | None
    """95% interval of the share, with a text's waves as one trial (`share_interval`)."""
    high: float | None
    requests_s: float | None
    """Requests within the limits / time from the release of their wave to its end, summed up over waves.
    `None` too where a request that was sent alone failed after a time that is not known."""
    verdict: Standing | None
    """The wanted share lies below or above the whole interval, or else below or above the share seen."""
    shown_from: int | None
    """Texts from which on the share, if it stays as it was seen, is shown to be kept or missed; `None`: it is
    shown already, or a million would not do."""


def goodput(measurements: Iterable[Measurement], promise: Promise, *, share: float = 0.9) -> list[Goodput]:
    """Every level of every route, task, tier and condition, the lowest level first.

    Valid salted samples count as cold ones. `share`: part of the requests that has to be within the limits.
    """
    found = waves_by_level(measurements)
    return [_level(key, waves, promise, share) for key, waves in found.items()]


def highest(found: Sequence[Goodput], verdicts: Sequence[Standing] = ("kept",)) -> Goodput | None:
    """Of the levels of one route, tier, condition and task: the highest with one of these verdicts, none
    below it having missed the promise, if only so far."""
    best = None
    for level in sorted(found, key=lambda one: one.concurrency):
        if level.verdict in ("missed", "missed so far"):
            break
        if level.verdict in verdicts:
            best = level
    return best


def _level(key: Key, waves: Sequence[Wave], promise: Promise, share: float) -> Goodput:
    task, tier, condition, route, concurrency = key
    left_out: Counter[str] = Counter()
    judged = []
    for wave in waves:
        reasons = dict.fromkeys(reason for row in wave for reason in _unjudged(row, promise))
        if "cut_off" in reasons:  # so its wave is incomplete
            reasons.pop("wave_incomplete", None)
        left_out.update(reasons.keys())
        if not reasons:
            judged.append(wave)
    rows = [row for wave in judged for row in wave]
    met = [sum(_is_met(row, promise) for row in wave) for wave in judged]
    shares = [count / len(wave) for count, wave in zip(met, judged, strict=True)]
    seen = sum(met) / len(rows) if rows else None
    sizes = _texts(judged)
    low, high = (None, None) if seen is None else share_interval(seen, _trials(sizes))
    verdict = _verdict(seen, low, high, share)
    return Goodput(
        route=route,
        tier=tier,
        condition=condition,
        task=task,
        concurrency=concurrency,
        waves=len(judged),
        waves_kept=sum(one >= share for one in shares),
        texts=len(sizes),
        left_out=dict(sorted(left_out.items())),
        requests=len(rows),
        failed=sum(_has_failed(row) for row in rows),
        met=sum(met),
        share=seen,
        lowest_share=min(shares, default=None),
        low=low,
        high=high,
        requests_s=_rate(judged, sum(met)),
        verdict=verdict,
        shown_from=trials_to_show(seen, share) if seen is not None and verdict in _SO_FAR else None,
    )


def _texts(waves: Sequence[Wave]) -> list[int]:
    """Requests of each text, those of all waves that sent it together."""
    sizes: Counter[str | int] = Counter()
    for place, key in enumerate(text_keys([wave[0] for wave in waves])):
        sizes[place if key is None else key] += len(waves[place])
    return list(sizes.values())


def _trials(sizes: Sequence[int]) -> float:
    """How many trials of equal weight tell as much as texts of these sizes: their number where all are equal,
    fewer where not. L. Kish, Survey Sampling (1965), on unequal weights."""
    return sum(sizes) ** 2 / sum(size**2 for size in sizes)


def _verdict(seen: float | None, low: float | None, high: float | None, wanted: float) -> Standing | None:
    if seen is None or low is None or high is None:
        return None
    if low >= wanted:
        return "kept"
    if high < wanted:
        return "missed"
    return "kept so far" if seen >= wanted else "missed so far"


def _limited(row: Measurement, promise: Promise) -> list[tuple[str, float | None, float]]:
    """Name, value and limit of everything that is promised."""
    limits = {name: getattr(promise, name) for name in promise.__struct_fields__}
    return [(name, getattr(row, name), limit) for name, limit in limits.items() if limit is not None]


def _has_failed(row: Measurement) -> bool:
    return row.failure is not None or any(reason.id in _SERVERS_FAULT for reason in row.verdict.reasons)


def _unjudged(row: Measurement, promise: Promise) -> list[str]:
    """Why a request says nothing about the promise."""
    if is_cut_off(row):
        return ["cut_off"]
    wrong = [reason.id for reason in row.verdict.reasons]
    others = [name for name in wrong if name not in _SERVERS_FAULT | _NOT_ITS_OWN]
    if others or _has_failed(row):
        return others
    return [f"no {name}" for name, value, _ in _limited(row, promise) if value is None]


def _is_met(row: Measurement, promise: Promise) -> bool:
    if _has_failed(row):
        return False
    return all(value is not None and value <= limit for _, value, limit in _limited(row, promise))


def _rate(waves: Sequence[Wave], met: int) -> float | None:
    took_s = 0.0
    for wave in waves:
        one = _took_s(wave)
        if one is None:
            return None
        took_s += one
    return met / took_s if took_s else None


def _took_s(wave: Wave) -> float | None:
    """Time that the server gave to a wave."""
    first = wave[0]
    if first.window is None and first.total_s is None and first.failure is not None:
        return 0.0 if first.failure.kind in _AT_ONCE else None
    return span_s(wave)
