"""One exchange in the size of a paragraph: what a reader may want to see of it, reduced."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from bench.analysis.statistics.curves import picks
from bench.analysis.statistics.machine import PhaseUse, phase_uses
from bench.records import Exchange
from bench.report.cost import Cost, cost_of
from bench.report.escape import visible

CURVE_POINTS = 120
"""Points kept of an arrival curve or of the gauge samples of one exchange."""


class Detail(Struct, frozen=True, kw_only=True):
    """What a reader may want to see of one exchange, reduced. Times are seconds after `sent`."""

    source: str
    trial_id: str
    attempt: int
    route: str
    started_at: str
    status: int | None
    first_text_s: float | None
    last_text_s: float | None
    uploaded_s: float | None
    headers_s: float | None
    ended_s: float
    connect_s: float | None
    idle_wait_s: float | None
    settle_s: float | None
    curve_s: tuple[float, ...]
    """When text arrived ..."""
    curve_count: tuple[int, ...]
    """... and how much had arrived by then, in `curve_unit`."""
    curve_unit: str
    """`tokens` where the server counts them in every event, else `chunks`."""
    sample_s: tuple[float, ...]
    kv_usage: tuple[float | None, ...]
    said: str
    """Start of the answer, or of what the server said instead; one harmless line."""
    prompt: str
    """Which prompt it was: the start of its hash, and its salt."""
    released_s: float | None = None
    """From the release of its wave to its own first byte; `None`: sent alone. What exists once for a wave
    (samples, waits) stands in the detail of its first exchange."""
    cost: Cost = Cost()
    machine: tuple[PhaseUse, ...] = ()


def reduce_exchange(exchange: Exchange, source: str) -> Detail:
    """An exchange in the size of a paragraph."""
    trial, failure = exchange.trial, exchange.failure
    times, counts, unit = _curve(exchange)
    picked = picks(len(exchange.samples.at_ns), CURVE_POINTS)
    samples = exchange.samples
    said = exchange.text or exchange.reasoning or exchange.tool_text
    if failure is not None:
        said = failure.body or said
    return Detail(
        source=source,
        trial_id=trial.id,
        attempt=exchange.attempt,
        route=trial.route,
        started_at=exchange.started_at,
        status=exchange.status,
        first_text_s=times[0] if times else None,
        last_text_s=times[-1] if times else None,
        uploaded_s=_seconds(exchange.uploaded_ns),
        headers_s=_seconds(exchange.headers_ns),
        ended_s=exchange.ended_ns / 1e9,
        connect_s=_seconds(exchange.connect_ns),
        idle_wait_s=exchange.idle_wait_s,
        settle_s=exchange.settle_s,
        curve_s=times,
        curve_count=counts,
        curve_unit=unit,
        sample_s=tuple(samples.at_ns[i] / 1e9 for i in picked),
        kv_usage=_column(samples.kv_usage, picked),
        said=visible(said, 280),
        prompt=visible(f"{exchange.prompt.sha256[:12]}, salt: {exchange.prompt.salt}", 120),
        released_s=_seconds(exchange.sent_ns - exchange.wave.released_ns) if exchange.wave else None,
        cost=cost_of(exchange),
        machine=phase_uses(exchange),
    )


def _curve(exchange: Exchange) -> tuple[tuple[float, ...], tuple[int, ...], str]:
    text = exchange.chunks.text
    picked, numbers = _picked(len(text.places))
    seconds = tuple((text.at_ns[picked] / 1e9).tolist())
    if text.tokens is None or not exchange.chunks.chars:
        return seconds, numbers, "chunks"
    return seconds, tuple(text.tokens[picked].tolist()), "tokens"


@lru_cache(maxsize=64)
def _picked(length: int) -> tuple[NDArray[np.intp], tuple[int, ...]]:
    """`picks` as an array, and as numbers from 1."""
    places = np.array(picks(length, CURVE_POINTS), dtype=np.intp)
    return places, tuple((places + 1).tolist())


def _column(values: tuple[float | None, ...], picked: list[int]) -> tuple[float | None, ...]:
    return tuple(values[i] if i < len(values) else None for i in picked)


def _seconds(nanoseconds: int | None) -> float | None:
    return None if nanoseconds is None else nanoseconds / 1e9
