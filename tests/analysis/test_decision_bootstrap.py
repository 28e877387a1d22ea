from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.analysis.statistics import bootstrap
from bench.analysis.statistics.bootstrap import Side

values = st.lists(st.floats(0.1, 1e6, allow_nan=False), min_size=2, max_size=40).map(np.array)


def test_one_trial_is_a_point_two_to_four_a_range_five_an_interval() -> None:
    assert bootstrap.median(np.array([3.0])).spread is None
    two = bootstrap.median(np.array([3.0, 5.0]))
    assert (two.value, two.low, two.high, two.spread) == (4.0, 3.0, 5.0, "range")
    assert bootstrap.median(np.arange(4.0)).spread == "range"
    five = bootstrap.median(np.array([5.0, 1.0, 4.0, 2.0, 3.0]))
    # of five trials the resampled median is the smallest with probability 0.058 > 0.025
    assert (five.value, five.low, five.high, five.spread) == (3.0, 1.0, 5.0, "interval")


@settings(max_examples=20, deadline=None)
@given(values, st.integers(0, 3))
def test_resampled_medians_equal_the_medians_of_the_resamples(sample: np.ndarray, stream: int) -> None:
    expected = np.median(sample[bootstrap.resamples(sample.size, stream)], axis=1)
    np.testing.assert_allclose(bootstrap.resampled_medians(sample, stream), expected)
    assert expected.shape == (bootstrap.RESAMPLES,)


def test_ranks_alone_have_the_distribution_of_gathered_medians() -> None:
    sample = np.random.default_rng(1).normal(10, 1, 9)
    gathered = bootstrap.resampled_medians(sample, 1)
    (alone,) = Side((sample,), 1).resampled_alone()
    assert np.quantile(alone, [0.1, 0.5, 0.9]) == pytest.approx(
        np.quantile(gathered, [0.1, 0.5, 0.9]), abs=0.1
    )


def test_a_statistic_that_runs_away_leaves_that_end_open() -> None:
    a, b = np.array([1.0, 1.0, 2.0, 2.0, 2.0, 1.0]), np.ones(6)

    def inverse(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        with np.errstate(divide="ignore"):
            return np.where(np.subtract(x, y) > 0.4, 1 / np.subtract(x, y), np.inf)

    found = bootstrap.two_sides(inverse, Side((a,), 0), Side((b,), 1))
    assert found is not None
    assert found.value == 2.0 and found.high is None and found.low is not None
    # and where the statistic itself has no value there is no estimate
    assert bootstrap.two_sides(inverse, Side((b,), 0), Side((b,), 1)) is None


def test_below_five_on_one_side_the_range_spans_every_pair_of_trials() -> None:
    found = bootstrap.two_sides(np.subtract, Side((np.arange(10.0),), 0), Side((np.array([1.0, 3.0]),), 1))
    assert found is not None
    assert (found.value, found.low, found.high, found.spread, found.samples) == (2.5, -3.0, 8.0, "range", 2)


def test_pairs_resampled_together_cancel_what_they_share() -> None:
    rng = np.random.default_rng(5)
    shared = rng.normal(100, 10, 20)
    a, b = shared + 1 + rng.normal(0, 0.1, 20), shared
    alone = bootstrap.two_sides(np.subtract, Side((a,), 0), Side((b,), 1))
    paired = bootstrap.two_sides(np.subtract, Side((a,), 0), Side((b,), 1), paired=True)
    assert alone is not None and paired is not None
    width = (paired.high or 0) - (paired.low or 0)
    assert width < 0.5 * ((alone.high or 0) - (alone.low or 0))
    assert (paired.low or 0) < 1 < (paired.high or 0) + 0.2


def test_the_interval_of_a_paired_ratio_agrees_with_scipys() -> None:
    from scipy import stats

    rng = np.random.default_rng(3)
    text = rng.lognormal(0, 0.3, 25)
    a, b = text * rng.lognormal(0, 0.1, 25), text
    ours = bootstrap.two_sides(np.divide, Side((a,), 0), Side((b,), 1), paired=True)
    theirs = stats.bootstrap(
        (a, b), lambda x, y, axis: np.median(x, axis=axis) / np.median(y, axis=axis), n_resamples=20_000,
        paired=True, method="percentile", rng=np.random.default_rng(5),
    ).confidence_interval  # fmt: skip
    assert ours is not None
    assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high), rel=0.02)


@pytest.mark.parametrize("texts", [5, 8])
def test_the_interval_of_a_paired_ratio_holds_where_texts_differ(texts: int) -> None:
    covered = 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        text = rng.lognormal(0, 0.08, texts)  # common to both sides: only the pairs tell it from the ratio
        a, b = text * rng.lognormal(0, 0.005, (2, texts))
        found = bootstrap.two_sides(np.divide, Side((a,), 0), Side((b,), 1), paired=True)
        assert found is not None
        covered += (found.low or 0) <= 1 <= (found.high or 0)
    assert covered >= 180  # 190 expected; bias-corrected intervals covered 150
