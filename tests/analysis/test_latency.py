"""L(n) = ttft + (n - c0) x tpot is one formula, the same for the map, advice, crossovers and totals."""

from __future__ import annotations

import numpy as np
import pytest
from decision_samples import ROUTES, TIERS, trial

from bench.analysis.decisions.advise import advise
from bench.analysis.decisions.crossover import crossovers
from bench.analysis.decisions.reused import Reuse, reuse_crossovers
from bench.analysis.decisions.winner import WinnerMap, winner_map
from bench.analysis.decisions.workload import Request
from bench.analysis.statistics import decode
from bench.analysis.statistics.latency import steps_to, total_s
from bench.analysis.statistics.totals import Totals, totals
from bench.records import Measurement

C0 = {"slow": 1, "fast": 40}
"""Tokens of the first chunk: a drafter's first step may bring several."""


def rows() -> list[Measurement]:
    """Five equal trials a cell, without noise."""
    return [
        trial(
            name,
            a + b * n + c * n * n,
            d0 + d1 * (n + 256),
            tier=n,
            output=512,
            number=i + 1,
            first_chunk_tokens=C0[name],
        )
        for name, (a, b, c, d0, d1) in ROUTES.items()
        for n in TIERS
        for i in range(5)
    ]


def latency(name: str, n: float, k: float) -> float:
    a, b, c, d0, d1 = ROUTES[name]
    return a + b * n + c * n * n + max(0.0, k - C0[name]) * (d0 + d1 * (n + k / 2))


def test_steps_are_those_behind_the_first_chunk_and_never_below_none() -> None:
    assert steps_to(np.array([1.0, 40.0, 101.0]), 40).tolist() == [0.0, 0.0, 61.0]
    assert float(total_s(101, 2.0, 0.01, 4)) == pytest.approx(2.97)
    assert float(total_s(3, 2.0, 0.01, 4)) == 2.0


def test_a_decode_law_knows_its_first_chunks() -> None:
    assert {name: law.first_chunk_tokens for name, law in decode.fit(rows()).items()} == C0


def test_the_winner_map_has_the_latencies_behind_the_first_chunk() -> None:
    prompts, outputs = np.array([8_000.0, 100_000.0]), np.array([2.0, 60.0, 5_000.0])
    found = winner_map(rows(), prompts=prompts, outputs=outputs)
    assert isinstance(found, WinnerMap)
    expected = [[[latency(name, n, k) for k in outputs] for n in prompts] for name in found.routes]
    assert found.latency_s == pytest.approx(np.array(expected), rel=1e-6)


@pytest.mark.parametrize("prompt", [64_000, 100_000])  # measured, and between tiers
@pytest.mark.parametrize("output", [2, 60, 512])
def test_advice_has_the_latencies_behind_the_first_chunk(prompt: int, output: int) -> None:
    for one in advise(rows(), Request(prompt_tokens=prompt, output_tokens=output)):
        # what was measured at a tier is used as it is: with the mean context of its own streams
        k = 512 if prompt in TIERS else output
        a, b, c, d0, d1 = ROUTES[one.route]
        steps = max(0, output - C0[one.route])
        expected = a + b * prompt + c * prompt**2 + steps * (d0 + d1 * (prompt + k / 2))
        assert one.total_s is not None and one.total_s.value == pytest.approx(expected, rel=1e-6)


def test_both_kinds_of_crossovers_are_where_the_latencies_are_equal() -> None:
    n = np.arange(41.0, 40_000.0)
    for tier in TIERS[:2]:
        gap = [latency("fast", tier, k) - latency("slow", tier, k) for k in n]
        place = float(n[np.argmax(np.array(gap) < 0)])
        (law,) = (c for c in reuse_crossovers(rows(), Reuse(share=0.0), "slow") if c.tier == tier)
        (own,) = (c for c in crossovers(rows(), "slow") if c.tier == tier)
        assert law.output_tokens == pytest.approx(place, abs=1.5)
        assert own.basis == "line" and own.output_tokens == pytest.approx(law.line_tokens, rel=1e-6)


def test_far_out_each_route_has_its_own_first_chunk() -> None:
    # 60 + (n - 40) 0.010 and 1 + (n - 1) 0.030, both steps longer by 2e-8 for each token of context
    found = crossovers(
        [
            trial(
                name,
                ttft,
                step + 2e-8 * (tier + 50),
                tier=tier,
                output=100,
                number=i,
                first_chunk_tokens=first,
            )
            for name, ttft, step, first in (("a", 60.0, 0.010, 40), ("b", 1.0, 0.030, 1))
            for tier in (1_000, 9_000)
            for i in (1, 2)
        ],
        "b",
    )
    one = found[0]
    steps = 2e-8 * 1_050
    met = (60.0 - 1.0 - 40 * (0.010 + steps) + 0.030 + steps) / 0.020
    assert one.basis == "slowing" and one.output_tokens == pytest.approx(met, rel=1e-9)


def test_totals_at_another_length_are_reckoned_the_same_way() -> None:
    one, other = trial("a", 2.0, 0.01, output=101, first_chunk_tokens=4), trial("b", 1.0, 0.02, output=300)
    found = totals([one], [other])
    assert isinstance(found, Totals)
    assert (found.a.tolist(), found.b.tolist()) == ([pytest.approx(2.97)], [pytest.approx(3.0)])
