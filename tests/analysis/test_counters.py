"""Differences between pages: rises, falls, absences, and units."""

from __future__ import annotations

import pytest
from analysis_cases import page
from hypothesis import given
from hypothesis import strategies as st

from bench.analysis.verdicts.counters import (
    Deltas,
    cached_prompt_tokens,
    conditional_acceptance,
    difference,
    mean_of_one,
    speculation,
)
from bench.engines import get
from bench.engines.base import rounding
from bench.records import Scrape, ServerFacts

VLLM = get("vllm")
FACTS = ServerFacts(engine="vllm", block_size=16, num_speculative_tokens=3)


def test_a_rise_is_the_difference_and_levels_are_none() -> None:
    moved = difference(
        page(drafts=3, running=0, kv_usage=0.1), page(drafts=10, running=1, kv_usage=0.9), VLLM
    )
    assert moved.values == {"drafts": 7} and moved.fell == () and moved.why is None


def test_absent_stays_absent_and_new_starts_at_zero() -> None:
    moved = difference(page(drafts=3), page(drafts=3, accepted_tokens=5), VLLM)
    assert moved.get("accepted_tokens") == 5  # new on a page that could be read: it started at 0
    assert moved.get("prompt_tokens") is None and moved.count("prompt_tokens") is None
    assert moved.count("drafts") == 0


def test_what_fell_or_vanished_has_no_rise() -> None:
    moved = difference(page(drafts=3, draft_tokens=9), page(drafts=1), VLLM)
    assert moved.fell == ("drafts",) and moved.vanished == ("draft_tokens",)
    assert moved.get("drafts") is None


@pytest.mark.parametrize("place", ["before", "after"])
def test_what_one_page_has_in_unreadable_lines_is_unknown_and_neither_fell_nor_vanished(place: str) -> None:
    counts = {"drafts": 3.0, "ttft_sum": 1.5, "ttft_count": 2.0, "accepted_tokens_per_pos.0": 4.0}
    whole = page(**counts)
    torn = Scrape(
        at_ns=0, took_ns=0, values={"drafts": 3.0}, unknown=("accepted_tokens_per_pos", "ttft"), problem="2"
    )
    moved = difference(torn, whole, VLLM) if place == "before" else difference(whole, torn, VLLM)
    assert (moved.values, moved.fell, moved.vanished) == ({"drafts": 0}, (), ())
    assert moved.absence("ttft", "no") == "a line of it on the metrics page cannot be read"
    assert moved.absence("queue", "no such histogram") == "no such histogram"
    assert Deltas(why="no page").absence("ttft", "no") == "no page"


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        (None, page(drafts=1), "no metrics page before the exchange"),
        (page(drafts=1), None, "no metrics page after the exchange"),
        (page(), page(drafts=1), "no metrics before the exchange: status 200"),
        (
            page(drafts=1),
            Scrape(at_ns=0, took_ns=0, problem="it is late"),
            "no metrics after the exchange: it is late",
        ),
        (page(running=0), page(running=0), "the metrics page has no counter of vllm"),
    ],
)
def test_an_unreadable_page_is_a_reason_and_not_a_zero(
    before: Scrape | None, after: Scrape | None, why: str
) -> None:
    assert difference(before, after, VLLM) == Deltas(why=why)


def test_six_digits_are_half_a_unit_of_the_last_one() -> None:
    assert rounding(999_999, 6) == 0.0
    assert rounding(1_048_580, 6) == 5.0
    assert rounding(12_345_600, 6) == 50.0
    assert rounding(12_345_600, None) == 0.0
    assert rounding(float("inf"), 6) == 0.0


@given(st.integers(0, 10**9), st.integers(0, 10**7))
def test_a_six_digit_rise_is_right_within_its_slack(start: int, rise: int) -> None:
    def printed(value: int) -> float:
        return float(f"{value:.6g}")

    moved = difference(
        page(prompt_tokens=printed(start)), page(prompt_tokens=printed(start + rise)), get("llamacpp")
    )
    if "prompt_tokens" in moved.values:
        assert abs(moved.values["prompt_tokens"] - rise) <= moved.slack.get("prompt_tokens", 0.0)


def test_a_rise_that_rounding_can_change_by_a_fiftieth_is_rough() -> None:
    moved = Deltas(values={"drafts": 500.0, "draft_tokens": 499.0, "a": 3.0}, slack={"drafts": 10.0})
    assert moved.rough("drafts") is None and moved.rough("a") is None and moved.rough("none") is None
    rough = Deltas(values={"drafts": 499.0, "b": 0.0}, slack={"drafts": 10.0, "b": 10.0})
    said = "the server prints few digits of its counters: 499 is known to ±10 only"
    assert rough.rough("drafts") == said and rough.rough("b") is not None
    assert rough.rough("b", of=500) is None and rough.rough("b", of=499) is not None


# --- Cached tokens ------------------------------------------------------------------------------------


def test_counters_by_source_come_first_and_outside_ones_are_hits_too() -> None:
    moved = Deltas(values={"cached_tokens": 32, "external_cached_tokens": 512, "prefix_hits": 7})
    found = cached_prompt_tokens(moved, FACTS, 1000)
    assert (found.tokens, found.external, found.source) == (544, 512, "counter cached_tokens")


def test_prefix_hits_include_those_of_outside_caches() -> None:
    found = cached_prompt_tokens(Deltas(values={"prefix_hits": 32, "external_prefix_hits": 8}), FACTS, 1000)
    assert (found.tokens, found.external) == (40, 8)


@pytest.mark.parametrize(
    ("queries", "hits", "block", "tokens"),
    [
        (375, 370, 16, 5920),  # 0.8.5: 6,000 tokens are 375 blocks of 16
        (6000, 5920, 16, 5920),  # 0.9.0 and 0.9.1: the same name in tokens
        (12_000, 5920, 16, 5920),  # looked up twice while it waited
        (375, 370, None, None),  # blocks of unknown size
        (900, 370, 16, None),  # neither: not ours alone
        (0, 0, 16, None),
    ],
)
def test_the_old_hits_tell_their_unit_by_the_queries_of_the_same_prompt(
    queries: float, hits: float, block: int | None, tokens: int | None
) -> None:
    moved = Deltas(values={"prefix_queries_gpu": queries, "prefix_hits_gpu": hits})
    facts = ServerFacts(engine="vllm", block_size=block)
    assert cached_prompt_tokens(moved, facts, 6000).tokens == tokens


def test_computed_tokens_of_one_request_tell_the_cached_ones() -> None:
    one = {"computed_prompt_tokens_sum": 44.0, "computed_prompt_tokens_count": 1.0}
    assert cached_prompt_tokens(Deltas(values=one), FACTS, 300).tokens == 256
    two = one | {"computed_prompt_tokens_count": 2.0}
    assert cached_prompt_tokens(Deltas(values=two), FACTS, 300).tokens is None
    assert cached_prompt_tokens(Deltas(), FACTS, 300).tokens is None


# --- Speculation --------------------------------------------------------------------------------------


def test_the_replys_own_figures_win_over_rounded_counters() -> None:
    moved = Deltas(values={"drafts": 8.0, "draft_tokens": 30.0, "accepted_tokens": 30.0})
    found = speculation(moved, {"draft_tokens": 31.0, "accepted_tokens": 29.0}, FACTS, 40)
    assert (found.drafts, found.draft_tokens, found.accepted_tokens, found.source) == (8, 31, 29, "reply")


def test_a_reply_that_drafted_nothing_is_zero_and_not_absent() -> None:
    found = speculation(Deltas(), {"draft_tokens": 0.0, "accepted_tokens": 0.0}, FACTS, 40)
    assert (found.drafts, found.draft_tokens, found.accepted_tokens) == (0, 0, 0)


def test_verify_steps_give_what_was_accepted() -> None:
    found = speculation(Deltas(values={"verify_calls": 24.0}), {}, FACTS, 66)
    assert (found.drafts, found.draft_tokens, found.accepted_tokens) == (24, 72, 41)
    none = speculation(Deltas(values={"verify_calls": 0.0}), {}, FACTS, 66)
    assert (none.drafts, none.draft_tokens, none.accepted_tokens) == (0, 0, 0)


def test_positions_in_any_order_and_number() -> None:
    values = {f"accepted_tokens_per_pos.{place}": float(20 - place) for place in (10, 2, 0, 1)}
    found = speculation(Deltas(values=values), {}, FACTS, None).per_position
    assert found == (20, 19, 18, 0, 0, 0, 0, 0, 0, 0, 10)
    absurd = speculation(Deltas(values={"accepted_tokens_per_pos.999999999": 1.0}), {}, FACTS, None)
    assert absurd.per_position is None


@pytest.mark.parametrize("label", ["²", "९" * 5000, "9" * 5000, "1.5", "+1", ""])
def test_what_is_no_number_of_a_place_is_no_place(label: str) -> None:
    values = {"accepted_tokens_per_pos.0": 7.0, f"accepted_tokens_per_pos.{label}": 3.0}
    assert speculation(Deltas(values=values), {}, FACTS, None).per_position == (7,)


def test_no_counters_by_place_are_no_places() -> None:
    assert speculation(Deltas(), {}, FACTS, None).per_position is None


def test_conditional_acceptance_is_by_the_place_before() -> None:
    # mtp4 at 4,000 tokens: .72 .50 .35 .24
    assert conditional_acceptance((0.72, 0.5, 0.35, 0.24)) == pytest.approx(
        (0.72, 0.694, 0.7, 0.686), abs=1e-3
    )
    assert conditional_acceptance((0.5, 0.0, 0.0)) == (0.5, 0.0, None)
    assert conditional_acceptance(()) == ()


def test_a_histogram_speaks_for_one_request_only() -> None:
    assert mean_of_one(Deltas(values={"ttft_sum": 1.5, "ttft_count": 1.0}), "ttft") == 1.5
    assert mean_of_one(Deltas(values={"ttft_sum": 3.0, "ttft_count": 2.0}), "ttft") is None
    assert mean_of_one(Deltas(), "ttft") is None
