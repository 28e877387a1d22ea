"""The interval of a share: by hand where that can be done, and by what it holds of known truths."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from bench.analysis.statistics.shares import share_interval, trials_to_show


def test_all_or_none_of_some_trials_have_ends_that_are_roots() -> None:
    # n of n: the share under which n of n come about once in forty times is 0.025 ** (1 / n)
    assert share_interval(1.0, 1) == pytest.approx((0.025, 1.0))
    assert share_interval(1.0, 2) == pytest.approx((math.sqrt(0.025), 1.0))
    assert share_interval(0.0, 1) == pytest.approx((0.0, 0.975))
    assert share_interval(0.0, 2) == pytest.approx((0.0, 1 - math.sqrt(0.025)))


@given(st.integers(1, 60), st.data())
@settings(max_examples=50, deadline=None)
def test_whole_successes_give_the_interval_of_clopper_and_pearson(trials: int, data: st.DataObject) -> None:
    met = data.draw(st.integers(0, trials))
    theirs = stats.binomtest(met, trials).proportion_ci(0.95, "exact")
    assert share_interval(met / trials, trials) == pytest.approx((theirs.low, theirs.high), abs=1e-9)


def chances_to_miss(ends: tuple[float, float], often: float, trials: int) -> tuple[float, float]:
    """How often the interval lies above and below the true mean of trials that give one of two shares."""
    mean = ends[0] * (1 - often) + ends[1] * often
    above = below = 0.0
    for count in range(trials + 1):
        chance = math.comb(trials, count) * often**count * (1 - often) ** (trials - count)
        seen = (ends[0] * (trials - count) + ends[1] * count) / trials
        low, high = share_interval(min(1.0, seen), trials)
        above += chance * (low > mean + 1e-12)
        below += chance * (high < mean - 1e-12)
    return above, below


@pytest.mark.parametrize("trials", [1, 2, 3, 5, 8])
def test_shares_between_none_and_all_are_held_as_often_as_promised(trials: int) -> None:
    for one, other in itertools.combinations(range(7), 2):
        for often in np.linspace(0.01, 0.99, 50):
            above, below = chances_to_miss((one / 6, other / 6), float(often), trials)
            assert max(above, below) <= 0.025 + 1e-9


@pytest.mark.parametrize(("alike", "waves"), [(0.0, 6), (0.3, 6), (0.3, 40), (1.0, 12)])
def test_requests_of_a_wave_may_be_as_alike_as_they_like(alike: float, waves: int) -> None:
    """Waves of eight, each request within with probability 0.8, correlated by `alike` (beta-binomial)."""
    rng = np.random.default_rng(20_261_130)
    truth, size, studies = 0.8, 8, 1_000
    if alike == 0.0:
        chance = np.full((studies, waves), truth)
    elif alike == 1.0:
        chance = (rng.random((studies, waves)) < truth).astype(float)
    else:
        total = 1 / alike - 1
        chance = rng.beta(truth * total, (1 - truth) * total, (studies, waves))
    seen = rng.binomial(size, chance).mean(axis=1) / size
    ends = [share_interval(float(share), waves) for share in seen]
    assert sum(low <= truth <= high for low, high in ends) >= 0.95 * studies


def test_the_trials_that_show_a_share_are_the_fewest_that_do() -> None:
    # log(0.025) / log(0.9) = 35.01, / log(0.95) = 71.92, / log(0.5) = 5.32
    assert [trials_to_show(1.0, wanted) for wanted in (0.9, 0.95, 0.5)] == [36, 72, 6]
    assert trials_to_show(0.0, 0.9) == 2  # one in forty: 0.975 of one, 0.842 of two
    assert trials_to_show(0.9, 0.9) is None


@given(st.integers(0, 64).map(lambda met: met / 64), st.floats(0.01, 0.999))
@settings(max_examples=50, deadline=None)
def test_one_trial_less_would_not_show_it(share: float, wanted: float) -> None:
    needed = trials_to_show(share, wanted)
    if needed is None:
        assert abs(share - wanted) < 0.01
        return

    def is_clear(trials: int) -> bool:
        low, high = share_interval(share, trials)
        return not low < wanted <= high

    assert is_clear(needed) and (needed == 1 or not is_clear(needed - 1))
