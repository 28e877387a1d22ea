"""What a server gives at each level of concurrency: throughput, percentiles, acceptance and reuse.

The only analysis of requests that ran together; a request that was sent alone is a wave of one. The
waves are the trials: what belongs to a wave as a whole is summed up over waves (median, range or
interval), what belongs to a request as percentiles over all requests of the level's valid waves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import partial

import numpy as np
from msgspec import structs

from bench.analysis.statistics import bootstrap
from bench.analysis.statistics.cells import column, is_turn, pooled, renamed, sound
from bench.analysis.statistics.texts import Texts, told
from bench.analysis.verdicts.firstreplay import is_first_miss
from bench.records import Condition, Estimate, Level, Measurement

Key = tuple[str, int, Condition, str, int]
"""Task, tier, condition (salted ones with the cold ones), route, concurrency."""
Wave = list[Measurement]
"""Requests that were released together, or one that was sent alone."""


def levels(measurements: Iterable[Measurement]) -> list[Level]:
    """Every level of every route, task, tier and condition, in this order, the lowest level first.

    Valid salted samples count as cold ones. Empty where nothing ran together.
    """
    rows = list(measurements)
    if all(row.concurrency == 1 for row in rows):
        return []
    found = waves_by_level(rows)
    together = {key[:4] for key in found if key[4] > 1}
    return [_level(key, waves) for key, waves in found.items() if key[:4] in together]


def waves_by_level(measurements: Iterable[Measurement]) -> dict[Key, list[Wave]]:
    """All waves, valid or not, by level: tasks, tiers and conditions in order, routes as they appear.

    Left out are rows of a table that say `concurrency` but not which of them ran together, first replays
    that missed as this server's first ones do, and turns of chats.
    """
    cells: dict[Key, dict[tuple[str, str], Wave]] = {}
    for row in renamed(_with_their_like(list(measurements))):
        if (row.concurrency > 1 and row.window is None) or is_first_miss(row) or is_turn(row):
            continue
        wave = row.window.id if row.window is not None else f"{row.trial_id}#{row.attempt}"
        key = (row.task, row.tier, pooled(row.condition), row.route, row.concurrency)
        cells.setdefault(key, {}).setdefault((row.source, wave), []).append(row)
    places = {route: place for place, route in enumerate(dict.fromkeys(key[3] for key in cells))}
    ordered = sorted(cells, key=lambda key: (*key[:3], places[key[3]], key[4]))
    return {key: list(cells[key].values()) for key in ordered}


def _with_their_like(rows: list[Measurement]) -> list[Measurement]:
    """The same rows: one that does not tell what speculation did, as a failed one does not, counts as past
    the drafter's limit where all others of its route and prompt length are, so that it stays with them."""
    seen: dict[tuple[object, ...], set[str]] = {}
    for row in rows:
        if row.verdict.speculation != "unknown":
            seen.setdefault(_likes(row), set()).add(row.verdict.speculation)
    return [
        structs.replace(row, verdict=structs.replace(row.verdict, speculation="fallback"))
        if row.verdict.speculation == "unknown" and seen.get(_likes(row)) == {"fallback"}
        else row
        for row in rows
    ]


def _likes(row: Measurement) -> tuple[object, ...]:
    return (row.source, row.route, row.tier, row.task)


def _level(key: Key, waves: Sequence[Wave]) -> Level:
    task, tier, condition, route, concurrency = key
    valid = [wave for wave in waves if all(sound(row) for row in wave)]
    bad = [wave for wave in waves if not all(sound(row) for row in wave)]
    excluded = Counter(reason for wave in bad for reason in _reasons(wave))
    rows = [row for wave in valid for row in wave]
    windows = [row.window for row in (wave[0] for wave in valid) if row.window is not None]
    ttft, tpot = column(rows, "ttft_s"), column(rows, "tpot_s")
    median = partial(_median, Texts([wave[0] for wave in valid]))
    return Level(
        route=route,
        tier=tier,
        condition=condition,
        task=task,
        concurrency=concurrency,
        waves=len(valid),
        invalid=len(bad),
        excluded=dict(sorted(excluded.items())),
        requests=len(rows),
        output_tok_s=median(_per_second(wave, _output(wave)) for wave in valid),
        requests_s=median(_per_second(wave, len(wave)) for wave in valid),
        ttft_s=bootstrap.percentiles(ttft),
        tpot_s=bootstrap.percentiles(tpot),
        acceptance=median(_acceptance(wave) for wave in valid),
        prefix_reuse=median(_reuse(wave) for wave in valid),
        queue_s=median(_queue_s(wave) for wave in valid),
        waiting_peak=max((w.waiting_peak for w in windows if w.waiting_peak is not None), default=None),
        waiting_mean=_mean([w.waiting_mean for w in windows if w.waiting_mean is not None]),
        kv_usage_peak=max((w.kv_usage_peak for w in windows if w.kv_usage_peak is not None), default=None),
        preemptions=_sum([w.preemptions for w in windows if w.preemptions is not None]),
    )


def _reasons(wave: Wave) -> list[str]:
    """Why a wave is invalid, each reason once; what it did to its innocent members is none."""
    found = dict.fromkeys(reason.id for row in wave for reason in row.verdict.reasons)
    own = [reason for reason in found if reason != "wave_spoilt"]
    return own or list(found) or ["unstated"]


# --- One wave -------------------------------------------------------------------------------------


def span_s(wave: Wave) -> float | None:
    """From the release to the end of the last answer; of a request sent alone its total time."""
    window = wave[0].window
    return window.span_s if window is not None else wave[0].total_s


def _output(wave: Wave) -> int | None:
    counts = [row.output_tokens for row in wave if row.output_tokens is not None]
    return sum(counts) if len(counts) == len(wave) else None


def _per_second(wave: Wave, count: int | None) -> float | None:
    span = span_s(wave)
    return count / span if count is not None and span else None


def _acceptance(wave: Wave) -> float | None:
    window = wave[0].window
    if window is None:
        return wave[0].acceptance
    if window.accepted_tokens is None or not window.draft_tokens:
        return None
    return window.accepted_tokens / window.draft_tokens


def _reuse(wave: Wave) -> float | None:
    window = wave[0].window
    if window is None:
        return wave[0].prefix_reuse
    if window.cached_tokens is None or not window.prompt_tokens:
        return None
    return window.cached_tokens / window.prompt_tokens


def _queue_s(wave: Wave) -> float | None:
    window = wave[0].window
    return window.queue_s if window is not None else wave[0].queue_s


# --- Many of them ---------------------------------------------------------------------------------


def _median(texts: Texts, values: Iterable[float | None]) -> Estimate | None:
    """Over waves; those that sent the same texts together are put together first."""
    every = np.array([np.nan if value is None else value for value in values], dtype=float)
    trials = int(np.count_nonzero(~np.isnan(every)))
    return told(bootstrap.median(texts.medians(every)), trials) if trials else None


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _sum(values: Sequence[int]) -> int | None:
    return sum(values) if values else None
