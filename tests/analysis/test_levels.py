"""Levels of concurrency: throughput by waves, percentiles by requests; values worked out by hand."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from bench.analysis.statistics.levels import levels
from bench.records import Condition, Measurement, Reason, Verdict, Window


def row(
    concurrency: int = 1,
    stream: int = 0,
    *,
    wave: str = "",
    ttft_s: float = 1.0,
    tpot_s: float = 0.01,
    condition: Condition = "cold",
    valid: bool = True,
    reason: str = "wave_spoilt",
    **window: Any,
) -> Measurement:
    verdict = Verdict(valid=valid, reasons=() if valid else (Reason(id=reason),))
    return Measurement(
        trial_id=f"r/1000/{condition}/1@{concurrency}.{stream}{wave}",
        route="r",
        tier=1000,
        condition=condition,
        concurrency=concurrency,
        stream=stream,
        prompt_tokens=1000,
        output_tokens=101,
        ttft_s=ttft_s,
        tpot_s=tpot_s,
        total_s=ttft_s + 100 * tpot_s,
        acceptance=0.5,
        window=Window(id=wave, size=concurrency, **window) if concurrency > 1 else None,
        verdict=verdict,
    )


def wave(name: str, span_s: float, ttfts: tuple[float, ...] = (1.0, 2.0), **more: Any) -> list[Measurement]:
    return [
        row(len(ttfts), stream, wave=name, ttft_s=ttft, span_s=span_s, **more)
        for stream, ttft in enumerate(ttfts, 1)
    ]


def test_throughput_is_of_waves_and_percentiles_are_of_requests() -> None:
    counts = {"prompt_tokens": 2000, "cached_tokens": 500, "draft_tokens": 100, "queue_s": 0.5}
    rows = [
        *wave("w1", 4.0, (1.0, 2.0), accepted_tokens=60, waiting_peak=1.0, waiting_mean=0.25, **counts),
        *wave("w2", 5.0, (3.0, 4.0), accepted_tokens=80, waiting_peak=2.0, waiting_mean=0.75, **counts),
        row(),
    ]
    single, two = levels(rows)
    assert (single.concurrency, single.waves, single.requests) == (1, 1, 1)
    assert single.output_tok_s is not None and single.output_tok_s.value == pytest.approx(101 / 2.0)
    assert single.acceptance is not None and single.acceptance.value == 0.5
    assert (two.concurrency, two.waves, two.requests, two.invalid) == (2, 2, 4, 0)
    speed = two.output_tok_s  # 202 tokens in 4 s and in 5 s
    assert speed is not None and speed.value == pytest.approx((50.5 + 40.4) / 2)
    assert (speed.low, speed.high, speed.spread) == (pytest.approx(40.4), pytest.approx(50.5), "range")
    assert two.requests_s is not None and two.requests_s.value == pytest.approx((2 / 4 + 2 / 5) / 2)
    # Of 1, 2, 3, 4: rank 0.9 * 3 = 2.7 lies at 3.7, rank 2.97 at 3.97.
    ttft = two.ttft_s
    assert ttft is not None and ttft.samples == 4
    assert (ttft.p50, ttft.p90, ttft.p99) == (2.5, pytest.approx(3.7), pytest.approx(3.97))
    assert two.acceptance is not None and two.acceptance.value == pytest.approx(0.7)
    assert two.prefix_reuse is not None and two.prefix_reuse.value == 0.25
    assert two.queue_s is not None and two.queue_s.value == 0.5
    assert (two.waiting_peak, two.waiting_mean) == (2.0, 0.5)


def test_an_invalid_wave_is_counted_once_with_its_own_reason_and_left_out() -> None:
    bad = wave("w1", 1.0, valid=False)
    bad[1] = msgspec.structs.replace(bad[1], verdict=Verdict(valid=False, reasons=(Reason(id="early_stop"),)))
    (level,) = levels([*bad, *wave("w2", 2.0)])
    assert (level.waves, level.invalid, level.excluded) == (1, 1, {"early_stop": 1})
    assert level.requests_s is not None and level.requests_s.value == 1.0


def test_a_level_without_a_valid_wave_is_still_shown() -> None:
    (level,) = levels(wave("w1", 1.0, valid=False, reason="foreign_traffic"))
    assert (level.waves, level.invalid, level.requests) == (0, 1, 0)
    assert level.output_tok_s is None and level.ttft_s is None
    assert level.excluded == {"foreign_traffic": 1}


def test_where_nothing_ran_together_there_are_no_levels() -> None:
    assert levels([row(), row(condition="replay")]) == []
    imported = msgspec.structs.replace(row(4, 1), window=None)  # a table does not say which wave it was
    assert levels([imported]) == []


def test_conditions_are_apart_and_salted_waves_are_cold_ones() -> None:
    rows = [
        *wave("w1", 1.0),
        *wave("w2", 1.0, condition="salted"),
        *wave("w3", 1.0, condition="replay"),
        row(condition="cold"),
    ]
    found = [(one.condition, one.concurrency, one.waves) for one in levels(rows)]
    assert found == [("cold", 1, 1), ("cold", 2, 2), ("replay", 2, 1)]


def test_a_failed_wave_stays_with_those_of_its_route_that_ran_without_their_drafter() -> None:
    fallback = Verdict(valid=True, speculation="fallback")
    good = [msgspec.structs.replace(one, verdict=fallback) for one in wave("w1", 4.0)]
    failed = wave("w2", 4.0, valid=False, reason="failed")
    (level,) = levels([*good, *failed])
    assert (level.route, level.waves, level.invalid) == ("r (fallback)", 1, 1)
    # where some of them drafted, nobody knows which the failed ones belong to
    drafted = [
        msgspec.structs.replace(one, verdict=Verdict(valid=True, speculation="as declared"))
        for one in wave("w3", 4.0)
    ]
    assert [(one.route, one.invalid) for one in levels([*good, *failed, *drafted])] == [
        ("r (fallback)", 0),
        ("r", 1),
    ]
