"""What a TTFT law's spread is: the same for advice, for crossovers of a cached part and on the winner map."""

from __future__ import annotations

import math

import numpy as np
import pytest
from decision_samples import TIERS, trial, two_routes

from bench.analysis.decisions.advise import advise
from bench.analysis.decisions.reused import Reuse, reuse_crossovers
from bench.analysis.decisions.winner import WinnerMap, latency, winner_map
from bench.analysis.decisions.workload import Request
from bench.analysis.statistics import decode, prefill
from bench.records import Measurement


def of_tiers(count: int) -> list[Measurement]:
    return [row for row in two_routes() if row.tier in TIERS[:count]]


@pytest.mark.parametrize("count", [2, 3])
def test_all_three_know_the_same_spread_of_a_law(count: int) -> None:
    rows = of_tiers(count)
    laws, steps = prefill.fit(rows), decode.fit(rows)
    reused = 4_000
    # one output token: no step is part of the latency, so its spread is that of the TTFT
    halves = {name: float(latency(laws[name], steps[name], 8e3, reused, 1.0)[1]) for name in laws}
    given = {
        one.route: one.ttft_s
        for one in advise(rows, Request(prompt_tokens=8_000, reused_tokens=reused, output_tokens=1))
    }
    (pair,) = (c for c in reuse_crossovers(rows, Reuse(tokens=reused), "slow") if c.tier == 8_000)
    between = pair.ttft_difference_s
    assert between is not None
    for name, half in halves.items():
        told = given[name]
        assert told is not None and (told.high is None) == math.isnan(half) == (count < 3)
        if told.high is not None:
            assert told.high - told.value == pytest.approx(half)
    assert (between.high is None) == (count < 3)
    if between.high is not None:
        assert between.high - between.value == pytest.approx(math.hypot(*halves.values()))


@pytest.mark.parametrize("count", [2, 3])
def test_a_law_that_no_tier_tests_makes_nothing_certain_anywhere(count: int) -> None:
    rows = of_tiers(count)
    found = winner_map(rows)
    assert isinstance(found, WinnerMap)
    assert bool(found.certain.any()) == (count > 2)
    answers = advise(rows, Request(prompt_tokens=30_000, output_tokens=100_000))
    assert [one.certain for one in answers] == [count > 2, False]


def test_the_scatter_of_two_tiers_would_promise_far_too_much() -> None:
    """0.1 s before prompts of 3 to 170 s: between two tiers the law is off by more than trials scatter."""
    held = {2: 0, 3: 0}
    asked = 32_000
    for seed in range(60):
        rng = np.random.default_rng(seed)
        for tiers in ((8_000, 256_000), TIERS):
            law = prefill.fit(
                trial("a", (0.1 + 4e-4 * n + 1e-9 * n * n) * rng.lognormal(0, 0.01), tier=n, number=i)
                for n in tiers
                for i in range(5)
            )["a"]
            row = np.array([1.0, asked / law.longest, (asked / law.longest) ** 2])
            half = prefill.student_t(law.freedom) * math.sqrt(row @ np.array(law.covariance) @ row)
            off = abs(float(law.ttft_s(asked)) - (0.1 + 4e-4 * asked + 1e-9 * asked**2))
            held[len(tiers)] += off <= half
    assert held[2] <= 12 and held[3] >= 54


def test_a_spread_that_would_reach_below_no_time_at_all_is_not_halved_by_it() -> None:
    # all but 8 tokens cached: 0.3 s are left of a TTFT whose law knows it to 0.3 s and more
    rows = [
        trial(name, (0.3 + b * n + 1e-9 * n * n) * off, step, tier=n, output=512, number=i)
        for name, b, step in (("slow", 4e-4, 0.02), ("fast", 6e-4, 0.01))
        for n in TIERS
        for i, off in enumerate((0.7, 0.9, 1.0, 1.1, 1.3))
    ]
    laws, steps = prefill.fit(rows), decode.fit(rows)
    assert {law.predict(8_000, 7_992).low for law in laws.values()} == {0.0}  # type: ignore[union-attr]
    (pair,) = (c for c in reuse_crossovers(rows, Reuse(tokens=7_992), "slow") if c.tier == 8_000)
    between = pair.ttft_difference_s
    assert between is not None and between.high is not None
    halves = [float(latency(laws[name], steps[name], 8e3, 7_992, 1.0)[1]) for name in laws]
    assert between.high - between.value == pytest.approx(math.hypot(*halves))
