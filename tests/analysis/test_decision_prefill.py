from __future__ import annotations

import math

import numpy as np
import pytest
from decision_samples import invalid, seed, trial, two_routes
from msgspec import structs
from scipy import stats

from bench.analysis.statistics.prefill import fit, prefill_laws, student_t, within
from bench.records import Measurement


def law_of(
    a: float, b: float, c: float, tiers: tuple[int, ...], trials: int = 2, noise: float = 0.0
) -> list[Measurement]:
    rng = np.random.default_rng(1)
    return [
        trial("a", (a + b * n + c * n * n) * rng.lognormal(0, noise), tier=n, number=i + 1)
        for n in tiers
        for i in range(trials)
    ]


def test_three_tiers_give_back_the_law_they_were_made_of() -> None:
    law = fit(law_of(0.5, 4e-4, 1e-9, (8_000, 64_000, 256_000)))["a"]
    assert law.terms == (0, 1, 2)
    assert law.coefficients == pytest.approx((0.5, 4e-4, 1e-9), rel=1e-6)
    assert law.predict(128_000) is not None
    assert float(law.ttft_s(128_000)) == pytest.approx(0.5 + 4e-4 * 128_000 + 1e-9 * 128_000**2)
    assert max(map(abs, law.residuals.values())) < 1e-9
    assert law.warnings == ()
    assert law.prefill_tok_s[8_000] == pytest.approx(8_000 / (0.5 + 3.2 + 0.064))


def test_a_cached_prefix_leaves_the_work_of_the_rest_over_the_whole_context() -> None:
    law = fit(law_of(0.5, 4e-4, 1e-9, (8_000, 64_000, 256_000)))["a"]
    # by hand: each of the last 10,000 tokens costs b + 2 c x at place x
    places = np.arange(90_000, 100_000) + 0.5
    assert float(law.ttft_s(100_000, 90_000)) == pytest.approx(0.5 + float(np.sum(4e-4 + 2e-9 * places)))
    assert law.cached_s is None


def test_replays_show_what_a_cached_token_still_costs() -> None:
    rows = law_of(0.5, 4e-4, 1e-9, (8_000, 64_000, 256_000))
    work = 0.5 + 4e-4 * 4_000 + 1e-9 * (64_000**2 - 60_000**2)
    rows.append(trial("a", work + 60_000 * 5e-6, tier=64_000, condition="replay", cached_tokens=60_000))
    law = fit(rows)["a"]
    assert law.cached_s == pytest.approx(5e-6)
    assert law.replays[64_000] == pytest.approx(0.0, abs=1e-9)
    assert float(law.ttft_s(128_000, 100_000)) == pytest.approx(
        0.5 + 4e-4 * 28_000 + 1e-9 * (128_000**2 - 100_000**2) + 5e-6 * 100_000
    )


def test_one_tier_gives_no_law_and_says_so() -> None:
    law = fit(law_of(0.5, 4e-4, 1e-9, (8_000,)))["a"]
    assert law.terms == () and law.absent == "one tier (8,000 tokens) gives no law"
    assert law.predict(8_000) is None
    assert math.isnan(float(law.ttft_s(8_000)))
    assert law.formula() == "no law: one tier (8,000 tokens) gives no law"
    assert fit([invalid(trial())])["a"].absent == "no valid cold trial"
    assert prefill_laws([trial()]) == []


def test_two_tiers_go_through_both_and_warn() -> None:
    law = fit(law_of(0.0, 4e-4, 1e-9, (8_000, 256_000)))["a"]
    assert law.terms == (1, 2)
    assert law.coefficients == pytest.approx((0.0, 4e-4, 1e-9), rel=1e-6)
    assert any("a third would test it" in text for text in law.warnings)
    predicted = law.predict(64_000)
    assert predicted is not None and predicted.spread is None and predicted.low is None


def test_a_law_through_two_tiers_misses_neither_when_trials_share_their_texts() -> None:
    # texts of (cold, salted) seconds at 1,000 tokens: their medians 1.5, 1.6 and 2.5, so the tier's is 1.6;
    # the median of the six trials is 1.5
    seconds = {1: (1.0, 2.0), 2: (1.0, 2.2), 3: (1.0, 4.0)}
    rows = [
        trial("a", ttft, tier=1_000, condition=condition, number=number, pair=f"{number}{condition[0]}")
        for number, pair in seconds.items()
        for condition, ttft in zip(("cold", "salted"), pair, strict=True)
    ]
    rows += [trial("a", 4.0, tier=2_000, number=number, pair=f"{number}c2") for number in (1, 2, 3)]
    law = fit(rows)["a"]
    assert float(law.ttft_s(1_000)) == pytest.approx(1.6)
    assert law.residuals == pytest.approx({1_000: 0.0, 2_000: 0.0}, abs=1e-9)
    assert not any("misses" in text for text in law.warnings)
    assert any(text.startswith("two tiers fit a law exactly") for text in law.warnings)


def test_two_tiers_that_no_law_of_two_costs_meets_are_not_told_to_fit_exactly() -> None:
    # shorter prompts that take longer: only the cost per token is left, and it goes between the two
    law = fit([trial("a", 3.0, tier=1_000), trial("a", 2.0, tier=2_000)])["a"]
    assert law.terms == (1,)
    assert sum("misses" in text for text in law.warnings) == 2
    assert any(text.startswith("two tiers hardly test a law") for text in law.warnings)


def test_the_cost_of_a_cached_token_is_the_median_of_texts() -> None:
    rows = law_of(0.5, 4e-4, 0.0, (8_000, 64_000, 256_000))
    work = 0.5 + 4e-4 * 4_000
    # three replays of one text, one each of two others: seconds a cached token
    costs = [("x", 1e-6), ("x", 1e-6), ("x", 1e-6), ("y", 4e-6), ("z", 5e-6)]
    rows += [
        trial("a", work + 60_000 * e, tier=64_000, condition="replay", cached_tokens=60_000, pair=text)
        for text, e in costs
    ]
    law = fit(rows)["a"]
    assert law.cached_s == pytest.approx(4e-6)
    assert law.replays[64_000] == pytest.approx(0.0, abs=1e-9)


def test_no_cost_comes_out_negative() -> None:
    # fixed costs dominate: growth is less than linear
    rows = [trial("a", t, tier=n) for n, t in ((256, 1.0), (1024, 1.2), (4096, 1.5))]
    law = fit(rows)["a"]
    assert min(law.coefficients) >= 0 and 2 not in law.terms
    assert any("do not extrapolate" in text for text in law.warnings)
    assert any("misses the" in text for text in law.warnings)


def test_the_interval_widens_where_nothing_was_measured() -> None:
    law = fit(law_of(0.5, 4e-4, 1e-9, (8_000, 64_000, 256_000), trials=5, noise=0.02))["a"]
    inside, outside = law.predict(128_000), law.predict(1_000_000)
    assert inside is not None and outside is not None and inside.spread == "interval"
    width = [((e.high or 0) - (e.low or 0)) / e.value for e in (inside, outside)]
    assert width[1] > 2 * width[0]
    assert within(law, 256_100) and not within(law, 300_000) and not within(law, 7_000)


def test_the_interval_is_as_wide_as_the_law_scatters_between_studies() -> None:
    rng = np.random.default_rng(9)
    predicted, halves = [], []
    for _ in range(150):
        rows = [
            trial("a", (0.5 + 4e-4 * n + 1e-9 * n * n) * rng.lognormal(0, 0.02), tier=n)
            for n in (8_000, 64_000, 256_000)
            for _ in range(10)
        ]
        law = fit(rows)["a"]
        predicted.append(float(law.ttft_s(128_000)))
        halves.append(float(law.half_width_s(128_000)))
    # the variance of a median is known to within a tenth, that of 150 studies to within a tenth too
    assert np.mean(halves) == pytest.approx(student_t(27) * np.std(predicted), rel=0.2)


def test_as_many_coefficients_as_trials_have_no_error_estimate() -> None:
    law = fit(law_of(0.5, 4e-4, 1e-9, (8_000, 64_000, 256_000), trials=1))["a"]
    predicted = law.predict(128_000)
    assert predicted is not None and predicted.spread is None and predicted.low is None
    assert any("no error estimate" in text for text in law.warnings)


def test_salted_trials_count_and_invalid_ones_do_not() -> None:
    rows = law_of(0.5, 4e-4, 1e-9, (8_000, 64_000))
    rows.append(trial("a", 0.5 + 4e-4 * 256_000 + 1e-9 * 256_000**2, tier=256_000, condition="salted"))
    rows.append(invalid(trial("a", 1e6, tier=512_000)))
    law = fit(rows)["a"]
    assert law.tiers == (8_000, 64_000, 256_000)
    assert law.coefficients == pytest.approx((0.5, 4e-4, 1e-9), rel=1e-6)


def test_the_study_has_a_law_for_the_route_with_two_tiers_only() -> None:
    laws = fit(seed())
    assert {route: bool(law.terms) for route, law in laws.items()} == {
        "mtp4": True,
        "target-only": False,
        "mtp2": False,
    }
    assert float(laws["mtp4"].ttft_s(6316)) == pytest.approx(2.9538, rel=1e-6)


@pytest.mark.parametrize("freedom", [1, 5, 30, 31, 60, 1000])
def test_the_t_quantile_is_scipys(freedom: int) -> None:
    assert student_t(freedom) == pytest.approx(stats.t.ppf(0.975, freedom), abs=1e-3)


def test_a_single_prediction_is_that_of_the_vectorised_law() -> None:
    rows = two_routes(5)
    rows += [
        structs.replace(row, condition="replay", ttft_s=0.3, cached_tokens=row.tier - 16) for row in rows
    ]
    for law in fit(rows).values():
        for tokens, reused in ((8_000, 0), (100_000, 99_000), (700_000, 350_000)):
            one = law.predict(tokens, reused)
            assert one is not None and one.low is not None and one.high is not None
            assert one.value == pytest.approx(float(law.ttft_s(tokens, reused)), rel=1e-12)
            half = float(law.half_width_s(tokens, reused))
            assert one.high - one.value == pytest.approx(half, rel=1e-9)
            assert one.low == pytest.approx(max(0.0, one.value - half), rel=1e-9)
