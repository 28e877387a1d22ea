from __future__ import annotations

import pytest
from decision_samples import invalid, trial, truth
from decision_samples import two_routes as rows
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from bench.analysis.decisions.advise import Advisor, Limits, advise, advise_workload
from bench.analysis.decisions.workload import Request
from bench.errors import SuiteError
from bench.records import Verdict


def test_between_tiers_the_laws_give_the_expected_latency() -> None:
    request = Request(prompt_tokens=100_000, output_tokens=300)
    found = advise(rows(noise=0.0), request)
    for one in found:
        assert one.total_s is not None
        assert one.total_s.value == pytest.approx(truth(one.route, 100_000, 300), rel=1e-6)
    assert [one.route for one in found] == ["slow", "fast"]
    assert [one.best for one in found] == [True, False]
    assert found[0].prompt_factor == pytest.approx(100 / 256)
    assert found[0].output_factor == pytest.approx(300 / 512)


def test_long_outputs_turn_the_advice() -> None:
    found = advise(rows(), Request(prompt_tokens=100_000, output_tokens=20_000))
    assert found[0].route == "fast" and found[0].best and found[0].certain


def test_a_measured_tier_is_used_as_it_was_measured() -> None:
    measurements = [trial("a", 2.0, 0.01), trial("a", 3.0, 0.02, condition="salted"), trial("b", 9.0, 0.01)]
    first, _ = advise(measurements, Request(prompt_tokens=1000, output_tokens=101))
    assert first.route == "a" and first.ttft_s is not None and first.decode_s is not None
    assert (first.ttft_s.value, first.ttft_s.low, first.ttft_s.high) == (2.5, 2.0, 3.0)
    assert (first.decode_s.low, first.decode_s.high) == pytest.approx((1.0, 2.0))
    assert first.basis["ttft_s"] == "measured at 1,000 tokens (2 trials)"
    assert first.total_s is not None and first.total_s.spread == "range"


def test_a_replay_with_the_same_cached_part_stands_for_the_request() -> None:
    measurements = [trial("a", 9.0, 0.01), trial("a", 0.5, 0.01, condition="replay", cached_tokens=900)]
    (one,) = advise(measurements, Request(prompt_tokens=1000, reused_tokens=900, output_tokens=2))
    assert one.ttft_s is not None and one.ttft_s.value == 0.5
    (other,) = advise(measurements, Request(prompt_tokens=1000, reused_tokens=500, output_tokens=2))
    assert other.ttft_s is None and other.absent["ttft_s"] == "one tier (1,000 tokens) gives no law"


def test_what_cannot_be_known_is_absent_and_never_best() -> None:
    found = advise([*rows(), trial("new", None, 0.001)], Request(prompt_tokens=64_000, output_tokens=10))
    last = found[-1]
    assert (last.route, last.ttft_s, last.total_s, last.best) == ("new", None, None, False)
    assert last.absent["ttft_s"] == "no valid cold trial"
    assert not any(one.certain for one in found)


def test_nothing_valid_and_impossible_requests_are_errors() -> None:
    with pytest.raises(SuiteError, match="no valid measurement"):
        Advisor([invalid(trial())])
    with pytest.raises(SuiteError, match="the reused part is shorter"):
        advise([trial()], Request(prompt_tokens=10, reused_tokens=10, output_tokens=1))


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 2_000_000), st.integers(1, 200_000), st.floats(0, 0.99))
def test_any_request_gets_finite_numbers(prompt: int, output: int, share: float) -> None:
    request = Request(prompt_tokens=prompt, output_tokens=output, reused_tokens=int(prompt * share))
    for one in ADVISOR.advise(request):
        assert one.total_s is not None and 0 < one.total_s.value < 1e9
        assert one.total_s.low is None or one.total_s.low <= one.total_s.value


ADVISOR = Advisor(rows())


def test_a_workload_is_the_sum_of_its_requests() -> None:
    short, long = (Request(prompt_tokens=64_000, output_tokens=k) for k in (10, 9_000))
    totals = {one.route: one for one in advise_workload(rows(noise=0.0), [short, short, long])}
    for route, one in totals.items():
        expected = 2 * truth(route, 64_000, 10) + truth(route, 64_000, 9_000)
        assert one.total_s == pytest.approx(expected, rel=0.01)
        assert (one.requests, one.without, one.beyond) == (3, 0, 1)
    assert (totals["slow"].best_for, totals["fast"].best_for) == (2, 1)


def test_a_route_without_an_answer_has_no_total() -> None:
    measurements = [*rows(), trial("new", None, 0.001)]
    last = advise_workload(measurements, [Request(prompt_tokens=64_000, output_tokens=10)])[-1]
    assert (last.route, last.total_s, last.without, last.absent) == ("new", None, 1, "no valid cold trial")


LIMITS = {"slow": Limits(served=70_000), "fast": Limits(served=200_000, drafter=66_000)}


def test_a_request_over_the_served_limit_is_refused_and_not_ranked() -> None:
    inside, over = (Request(prompt_tokens=64_000, output_tokens=k) for k in (1_000, 9_000))
    assert all(one.total_s is not None for one in advise(rows(), inside, limits=LIMITS))
    first, last = advise(rows(), over, limits=LIMITS | {"fast": Limits()})
    assert (last.route, last.total_s, last.ttft_s, last.decode_s) == ("slow", None, None, None)
    assert last.absent["total_s"] == "prompt and output pass the served limit of 70,000 tokens"
    assert first.route == "fast" and first.best and not first.certain
    (total,) = [one for one in advise_workload(rows(), [inside, over], limits=LIMITS) if one.route == "slow"]
    assert (total.total_s, total.requests, total.without) == (None, 1, 1)


def test_an_output_that_outlives_the_drafter_is_flagged_and_a_prompt_past_it_has_no_number() -> None:
    crossing = Request(prompt_tokens=64_000, output_tokens=20_000)
    (one,) = [one for one in advise(rows(), crossing, limits={"fast": LIMITS["fast"]}) if one.route == "fast"]
    assert one.best and not one.certain and one.undrafted == 18_000
    assert "the drafter stops at 66,000 tokens: the last 18,000 tokens" in " ".join(one.warnings)
    past = Request(prompt_tokens=66_000, output_tokens=10)
    (gone,) = [one for one in advise(rows(), past, limits=LIMITS) if one.route == "fast"]
    assert gone.total_s is None and "past 66,000 tokens nothing is drafted" in gone.absent["decode_s"]


def test_a_fallback_is_no_answer_where_the_route_drafts() -> None:
    fell = [
        structs.replace(row, verdict=Verdict(valid=True, speculation="fallback"))
        for row in rows()
        if row.route == "fast"
    ]
    measurements = [row for row in rows() if row.route == "slow"] + fell
    for prompt, drafts in ((30_000, True), (66_000, False)):
        found = advise(measurements, Request(prompt_tokens=prompt, output_tokens=10), limits=LIMITS)
        (one,) = [one for one in found if one.route == "fast (fallback)"]
        assert (one.total_s is None) is drafts
        assert not drafts or one.absent["total_s"] == "up to 66,000 tokens fast drafts"


def test_tasks_are_answered_one_by_one() -> None:
    echo = [structs.replace(row, task="echo", tpot_s=(row.tpot_s or 0.0) / 2) for row in rows(noise=0.0)]
    both = [*rows(noise=0.0), *echo]
    request = Request(prompt_tokens=100_000, output_tokens=300)
    found = advise(both, request)
    assert [(one.task, one.best) for one in found] == [
        ("continue", True), ("continue", False), ("echo", True), ("echo", False),
    ]  # fmt: skip
    alone = {one.route: one.total_s for one in advise(rows(noise=0.0), request)}
    assert {one.route: one.total_s for one in found if one.task == "continue"} == alone
    assert {one.task for one in advise_workload(both, [request])} == {"continue", "echo"}
    with pytest.raises(SuiteError, match="several tasks"):
        Advisor(both)


def test_a_reused_part_that_is_no_whole_blocks_is_named_where_the_law_speaks() -> None:
    """Of 1,616: 50,000 is 30.9 blocks, 48,480 is 30; the other route's block is not known."""
    request = Request(prompt_tokens=100_000, reused_tokens=50_000, output_tokens=300)
    said = {one.route: one.warnings for one in advise(rows(), request, blocks={"fast": 1_616})}
    broken = "50,000 tokens are no whole blocks of 1,616: it would reuse 48,480"
    assert broken in said["fast"] and broken not in said["slow"]
    whole = structs.replace(request, reused_tokens=48_480)
    found = advise(rows(), whole, blocks={"fast": 1_616})
    assert not [text for one in found for text in one.warnings if "whole" in text]
