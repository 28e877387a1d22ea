"""Accepted tokens per step: exact in sum, true to the rates, the same every time."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.servers.simulator.drafting import Rates, acceptance_stream, counts_for, histogram, rates_at

RATES = (0.9, 0.8, 0.7, 0.6)
falling = st.lists(st.floats(0, 1), min_size=1, max_size=6).map(lambda p: sorted(p, reverse=True))


def rng(seed: int = 1) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_rates_are_linear_between_two_lengths_and_constant_outside() -> None:
    table = (Rates(context=100, per_position=(0.8, 0.4)), Rates(context=300, per_position=(0.9, 0.6)))
    assert rates_at(table, 200) == pytest.approx((0.85, 0.5))
    assert rates_at(table, 1) == pytest.approx((0.8, 0.4))
    assert rates_at(table, 9999) == pytest.approx((0.9, 0.6))


def test_the_histogram_follows_the_rates_when_they_fit() -> None:
    # 100 steps at .9 .8 .7 .6: 10 accept none, 10 one, 10 two, 10 three, 60 all four: 300 tokens
    assert histogram(100, 300, RATES) == [10, 10, 10, 10, 60]


@given(st.integers(1, 300), falling, st.data())
def test_the_histogram_is_exact_whatever_is_asked(
    drafts: int, rates: list[float], data: st.DataObject
) -> None:
    k = len(rates)
    accepted = data.draw(st.integers(0, k * drafts))
    bins = histogram(drafts, accepted, rates)
    assert sum(bins) == drafts
    assert sum(j * n for j, n in enumerate(bins)) == accepted
    assert min(bins) >= 0


@given(st.integers(1, 3000), falling, st.integers(0, 2**32))
def test_counts_of_any_answer_are_possible_and_only_the_last_step_overshoots(
    output: int, rates: list[float], seed: int
) -> None:
    k = len(rates)
    drafts, accepted = counts_for(output, rates, rng(seed))
    stream = acceptance_stream(output, drafts, accepted, rates, rng(seed + 1))
    assert len(stream) == drafts
    assert stream.sum() == accepted
    assert all(0 <= step <= k for step in stream)
    produced = 1 + drafts + accepted
    assert 0 <= produced - output <= k or output == 1
    if drafts:
        assert produced - (1 + stream[-1]) < output, "the answer was complete before the last step"


def test_counts_stay_within_two_percent_of_the_rates() -> None:
    for seed in range(50):
        drafts, accepted = counts_for(512, RATES, rng(seed))
        assert accepted / drafts == pytest.approx(sum(RATES), rel=0.02)


def test_the_same_seed_gives_the_same_stream_and_another_one_another() -> None:
    first, again, other = (acceptance_stream(512, 122, 389, RATES, rng(seed)).tolist() for seed in (7, 7, 8))
    assert first == again != other


def test_impossible_counts_are_refused() -> None:
    with pytest.raises(ValueError, match="cannot accept"):
        acceptance_stream(512, 10, 20, RATES, rng())
