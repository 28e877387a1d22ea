"""Crossovers for a chosen cached part of the prompt, against latencies worked out from the true laws."""

from __future__ import annotations

import numpy as np
import pytest
from decision_samples import ROUTES, TIERS, study, trial, truth, two_routes
from msgspec import structs

from bench.analysis.decisions.crossover import one_way
from bench.analysis.decisions.reused import Reuse, parse_reuse, reuse_crossovers
from bench.errors import SuiteError
from bench.records import Measurement


def replayed(rows: list[Measurement]) -> list[Measurement]:
    """Adds a replay of every trial: 1 microsecond per cached token, all but the last 16 cached."""
    found = list(rows)
    for row in rows:
        n, m = row.tier, row.tier - 16
        ttft = truth(row.route, n, 1, m) + 1e-6 * m
        found.append(structs.replace(row, condition="replay", replay=1, ttft_s=ttft, cached_tokens=m))
    return found


def meeting(n: int, m: int) -> float:
    """Output tokens at which the slow starter has caught up, by bisection on the true latencies."""
    low, high = 1.0, 1e7
    for _ in range(100):
        middle = (low + high) / 2
        if truth("fast", n, middle, m) > truth("slow", n, middle, m):
            low = middle
        else:
            high = middle
    return low


@pytest.mark.parametrize("share", [0.0, 0.5, 0.9])
def test_a_share_of_every_prompt_gives_the_true_meeting_point(share: float) -> None:
    found = one_way(reuse_crossovers(replayed(two_routes(noise=0.0)), Reuse(share=share)))
    assert [one.tier for one in found] == list(TIERS)
    for one in found:
        assert (one.route, one.base, one.wins, one.status) == ("fast", "slow", "above", "crosses")
        assert one.reused_tokens == round(share * one.tier)
        assert one.output_tokens == pytest.approx(meeting(one.tier, one.reused_tokens), rel=2e-4)
        assert one.extrapolation == pytest.approx((one.output_tokens or 0.0) / 512)
        assert one.basis == "law" and one.line_tokens is not None


def test_a_number_of_tokens_counts_where_the_prompt_is_longer() -> None:
    found = one_way(reuse_crossovers(replayed(two_routes(noise=0.0)), Reuse(tokens=50_000)))
    assert [(one.tier, one.reused_tokens) for one in found] == [(64_000, 50_000), (256_000, 50_000)]
    with pytest.raises(SuiteError, match="--reused 300,000: no measured prompt is longer"):
        reuse_crossovers(two_routes(), Reuse(tokens=300_000))


def test_swapping_the_routes_gives_the_same_point_from_the_other_side() -> None:
    found = reuse_crossovers(two_routes(), Reuse(share=0.3))
    for tier in TIERS:
        one, other = (one for one in found if one.tier == tier)
        assert {one.wins, other.wins} == {"above", "below"}
        assert one.output_tokens == pytest.approx(other.output_tokens)
        assert (one.low, one.high) == pytest.approx((other.low, other.high))


def test_the_spread_holds_the_truth_and_says_what_it_is() -> None:
    five = one_way(reuse_crossovers(replayed(two_routes(5)), Reuse(share=0.5)))
    for one in five:
        assert one.spread == "interval" and one.low is not None and one.high is not None
        assert one.low < meeting(one.tier, one.reused_tokens or 0) < one.high
    assert {one.spread for one in one_way(reuse_crossovers(two_routes(3), Reuse(share=0.5)))} == {"range"}


def test_what_gives_no_law_is_undecided_and_says_why() -> None:
    rows = [*two_routes(), trial("new", 1.0, 0.01, tier=8_000)]
    found = [
        one for one in one_way(reuse_crossovers(rows, Reuse(share=0.5))) if "new" in (one.route, one.base)
    ]
    assert {one.status for one in found} == {"undecided"}
    assert all("new: one tier (8,000 tokens) gives no law" in one.warnings for one in found)
    assert any("a cached token is reckoned as free" in text for text in found[0].warnings)


def test_two_tiers_give_a_point_and_no_claim_for_every_length() -> None:
    short = [row for row in replayed(two_routes(noise=0.0)) if row.tier in TIERS[:2]]
    for one in one_way(reuse_crossovers(short, Reuse(share=0.5))):
        assert (one.status, one.low, one.high, one.spread) == ("crosses", None, None, None)
    better = [structs.replace(row, tpot_s=0.1) if row.route == "fast" else row for row in short]
    for one in reuse_crossovers(better, Reuse(share=0.5)):
        assert one.status == "undecided"
        assert any("by the points alone slow is faster" in text for text in one.warnings)


def test_a_part_that_no_replay_reused_or_no_block_ends_at_is_named() -> None:
    rows = [
        structs.replace(row, cached_tokens=3_232) if row.condition == "replay" else row
        for row in replayed(two_routes(noise=0.0))
        if row.tier == 8_000
    ]
    (one,) = one_way(reuse_crossovers(rows, Reuse(tokens=4_000), blocks={"fast": 1_616}))
    for name in ("fast", "slow"):
        assert f"{name}: replays reused 3,232 tokens at most: 4,000 were never measured" in one.warnings
    whole = "fast: 4,000 tokens are no whole blocks of 1,616: it would reuse 3,232"
    assert [text for text in one.warnings if "whole blocks" in text] == [whole]


@pytest.mark.parametrize("unit", [1e-3, 60.0])
def test_the_unit_of_time_does_not_matter(unit: float) -> None:
    def scaled(row: Measurement) -> Measurement:
        return structs.replace(row, ttft_s=(row.ttft_s or 0.0) * unit, tpot_s=(row.tpot_s or 0.0) * unit)

    rows, reuse = replayed(two_routes()), Reuse(share=0.6)
    for one, other in zip(
        reuse_crossovers(rows, reuse), reuse_crossovers(map(scaled, rows), reuse), strict=True
    ):
        assert (one.status, one.wins) == (other.status, other.wins)
        assert other.output_tokens == pytest.approx(one.output_tokens, rel=1e-6)
        assert (other.low, other.high) == pytest.approx((one.low, one.high), rel=1e-6)


def test_tasks_are_never_pooled() -> None:
    other = [structs.replace(row, task="echo", tpot_s=(row.tpot_s or 0) / 2) for row in two_routes(noise=0.0)]
    found = one_way(reuse_crossovers([*two_routes(noise=0.0), *other], Reuse(share=0.0)))
    first = {(one.tier, one.task): one.output_tokens or 0.0 for one in found}
    for tier in TIERS:  # half the time per token: twice the tokens, but for the growing context
        assert first[tier, "continue"] == pytest.approx(meeting(tier, 0), rel=2e-4)
        assert first[tier, "echo"] > 1.8 * first[tier, "continue"]
    assert set(ROUTES) == {one.route for one in found} | {one.base for one in found}


def test_the_option_is_tokens_or_a_share() -> None:
    assert parse_reuse("120,000") == Reuse(tokens=120_000)
    assert parse_reuse("75%") == Reuse(share=0.75) and parse_reuse("0%") == Reuse(share=0.0)
    for text in ("100%", "-1", "x", "nan%", "1.5", "%", "9" * 400, "-5%"):
        with pytest.raises(SuiteError, match="give cached tokens"):
            parse_reuse(text)


def test_far_out_the_spread_holds_the_scatter_of_the_slopes() -> None:
    """Tiers close together, met 170 times beyond the measured output; of quotients 53 in 60 held."""
    laws = {"a": (0.2, 0.034, 0.010, 4e-8), "b": (0.2, 0.004, 0.016, 1e-8)}
    n = np.arange(2, 400_000)
    gap = 0.03 * 4_000 + (n - 1) * (-0.006 + 3e-8 * (8_000 + n / 2))
    true = float(n[np.argmax(gap < 0)])
    held, open_ends = 0, 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        rows = [
            row
            for route, (a, b, d0, d1) in laws.items()
            for tier in (8_000, 10_000, 12_000)
            for row in study(
                route, a + b * tier, d0 + d1 * (tier + 64), 6, rng, noise=(0.01, 0.02), tier=tier, output=128
            )
        ]
        one = {c.tier: c for c in reuse_crossovers(rows, Reuse(share=0.5), "b")}[8_000]
        assert one.spread == "interval" and one.low is not None
        held += one.low <= true and (one.high is None or true <= one.high)
        open_ends += one.high is None
    assert held >= 55
    assert 0 < open_ends < 60  # where the slopes may part so far that the routes never meet


def test_without_scatter_the_spread_closes_on_the_meeting() -> None:
    for one in one_way(reuse_crossovers(replayed(two_routes(noise=0.0)), Reuse(share=0.5))):
        assert one.low is not None and one.high is not None
        assert one.low == pytest.approx(one.output_tokens, rel=1e-3) == one.high
