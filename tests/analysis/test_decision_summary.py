from __future__ import annotations

import numpy as np
import pytest
from decision_samples import invalid, seed, study, trial

from bench.analysis.statistics.summary import drift, first_effect, summarise
from bench.records import Failure, Verdict


def test_each_cell_has_medians_with_range_or_interval() -> None:
    rows = [trial(ttft=t, number=i + 1) for i, t in enumerate((3.0, 1.0, 2.0))]
    (one,) = summarise(rows)
    assert (one.route, one.tier, one.condition, one.valid, one.invalid) == ("a", 1000, "cold", 3, 0)
    estimate = one.estimates["ttft_s"]
    assert (estimate.value, estimate.low, estimate.high, estimate.spread) == (2.0, 1.0, 3.0, "range")
    assert "acceptance" not in one.estimates


def test_invalid_and_failed_trials_are_counted_by_reason_and_enter_no_median() -> None:
    failed = trial(ttft=None, tpot=None, failure=Failure(kind="reset", message="broke"))
    rows = [trial(ttft=1.0), invalid(trial(ttft=99.0)), invalid(trial(ttft=98.0), "restart"), failed]
    (one,) = summarise(rows)
    assert (one.valid, one.invalid) == (1, 3)
    assert one.excluded == {"cold_hit": 1, "reset": 1, "restart": 1}
    assert one.estimates["ttft_s"].value == 1.0


def test_a_cell_without_a_valid_trial_is_still_shown() -> None:
    (one,) = summarise([invalid(trial())])
    assert (one.valid, one.invalid, one.estimates) == (0, 1, {})


def test_salted_trials_count_as_cold_and_are_shown_by_themselves() -> None:
    rows = [trial(ttft=1.0), trial(ttft=3.0, condition="salted"), invalid(trial(condition="salted"))]
    cold, salted = summarise(rows)
    assert (cold.condition, cold.valid, cold.invalid, cold.estimates["ttft_s"].value) == ("cold", 2, 0, 2.0)
    assert "counts 1 salted samples as cold" in cold.warnings
    assert (salted.condition, salted.valid, salted.invalid) == ("salted", 1, 1)
    assert salted.estimates["ttft_s"].value == 3.0


def test_the_first_replay_is_shown_apart() -> None:
    rows = [trial(condition="replay", replay=r, ttft=t) for r, t in ((1, 5.0), (2, 1.0), (3, 2.0))]
    first, later = summarise(rows)
    assert (first.first_replay, first.estimates["ttft_s"].value) == (True, 5.0)
    assert (later.first_replay, later.estimates["ttft_s"].value) == (False, 1.5)


def test_the_study_keeps_the_order_of_its_routes() -> None:
    found = [(one.route, one.tier, one.condition) for one in summarise(seed())]
    assert found[0] == ("mtp4", 6316, "cold")
    assert [route for route, *_ in found] == ["mtp4"] * 4 + ["target-only", "mtp2"]


def test_an_outlier_is_named_and_kept() -> None:
    rows = study("a", 10.0, 0.01, 9, np.random.default_rng(1))
    rows.append(trial("a", 12.0, 0.01, number=10))
    (one,) = summarise(rows)
    assert any("TTFT stands out in a/1000/cold/10 (12 s)" in text for text in one.warnings)
    assert one.estimates["ttft_s"].samples == 10


def test_quiet_trials_get_no_warning() -> None:
    (one,) = summarise(study("a", 10.0, 0.01, 10, np.random.default_rng(2)))
    assert one.warnings == ()


def test_drift_needs_eight_trials_and_a_change_above_one_percent() -> None:
    rising = np.linspace(10, 11, 12)
    assert drift(rising, "TTFT") is not None and "+9.5%" in (drift(rising, "TTFT") or "")
    assert drift(rising[:7], "TTFT") is None
    assert drift(np.linspace(10, 10.05, 12), "TTFT") is None
    assert drift(np.full(12, 3.0), "TTFT") is None


def test_drift_seldom_cries_without_reason() -> None:
    rng = np.random.default_rng(3)
    alarms = sum(drift(rng.normal(10, 1, 12), "x") is not None for _ in range(500))
    assert alarms <= 12  # 1% stated, 5 expected


def test_a_first_request_outside_the_others_is_named() -> None:
    text = first_effect(np.array([20.0, 10.0, 10.5, 10.2]), "TTFT")
    assert text == "the first request stands out: TTFT 20 against a median of 10.2 after it"
    assert first_effect(np.array([10.9, 10.0, 10.5, 10.2]), "TTFT") is None
    rates = np.array([1_943_210.0, 1_000.4, 1_001.0, 999.0])
    text = first_effect(rates, "decode rate", " tok/s") or ""
    assert text.endswith("decode rate 1,943,000 tok/s against a median of 1,000 tok/s after it")
    assert first_effect(np.array([20.0, 10.0, 10.5]), "TTFT") is None


def test_varying_output_lengths_are_told() -> None:
    (one,) = summarise([trial(output=64), trial(output=40)])
    assert "output length varies from 40 to 64 tokens" in one.warnings


@pytest.mark.parametrize("order", [1, -1])
def test_a_summary_does_not_depend_on_the_order_of_its_input(order: int) -> None:
    rows = study("a", 10.0, 0.01, 6, np.random.default_rng(4))
    (one,) = summarise(rows[::order])
    (other,) = summarise(rows)
    assert one == other


def test_routes_that_fell_back_are_not_merged() -> None:
    fallen = trial("m", 9.0, verdict=Verdict(valid=True, speculation="fallback"))
    assert [one.route for one in summarise([trial("m", 1.0), fallen])] == ["m", "m (fallback)"]
