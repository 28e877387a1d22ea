"""Time estimates: from earlier runs, from a calibration, while running, and against a budget."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from bench.errors import SuiteError
from bench.plan.estimate import (
    BudgetedPlan,
    estimate,
    estimate_trial,
    within_budget,
)
from bench.plan.times import RouteModel, calibrated, calibration_lengths, learn, refined
from bench.records import Failure, Measurement, Trial, Verdict

STUDY = json.loads((Path(__file__).resolve().parent.parent / "data" / "seed_study.json").read_text())
# A server with known truth: ttft = 0.5 ms/token x n + 1e-9 s/token^2 x n^2, 20 ms a token.
B, C, TPOT = 5e-4, 1e-9, 0.020


def truth(n: int) -> float:
    return B * n + C * n * n


def trial(tier: int, condition: str = "cold", *, repeat: int = 1, replay: int = 0, route: str = "r") -> Trial:
    return Trial(
        id=f"{route}/{tier}/{condition}/{repeat}.{replay}",
        route=route,
        tier=tier,
        condition=condition,  # type: ignore[arg-type]
        repeat=repeat,
        replay=replay,
        output_tokens=101,
    )


def measured(tier: int, ttft_s: float, condition: str = "cold", **changes: object) -> Measurement:
    fields: dict[str, object] = {
        "trial_id": f"r/{tier}/{condition}",
        "route": "r",
        "tier": tier,
        "condition": condition,
        "prompt_tokens": tier,
        "output_tokens": 101,
        "ttft_s": ttft_s,
        "tpot_s": TPOT,
        "verdict": Verdict(valid=True),
        **changes,
    }
    return Measurement(**fields)  # type: ignore[arg-type]


def exact(*tiers: int) -> RouteModel:
    return learn("r", [measured(tier, truth(tier)) for tier in tiers])


# --- from measurements ------------------------------------------------------------------------------


def test_a_wave_is_expected_to_take_its_prompts_one_after_another_and_one_decode() -> None:
    model = learn("r", [measured(8000, 6.0)])
    wave = [
        structs.replace(trial(8000), id=f"r/8000/cold/1@4.{stream}", concurrency=4, stream=stream)
        for stream in range(1, 5)
    ]
    found = estimate(wave, {"r": model}, overhead_s=2.0, warmup_tokens=0)
    assert found.total_s == pytest.approx(4 * 6.0 + 100 * TPOT + 2.0)
    assert estimate_trial(wave[0], model, overhead_s=0.0).ttft_s == 6.0


def a_wave(tier: int, *ttft_s: float, **changes: object) -> list[Measurement]:
    """Requests sent together, at these TTFTs."""
    return [
        measured(tier, time_s, concurrency=len(ttft_s), stream=n, trial_id=f"w{n}", **changes)
        for n, time_s in enumerate(ttft_s, 1)
    ]


def test_waves_say_nothing_where_requests_were_sent_alone() -> None:
    known = learn("r", [*a_wave(8000, 60.0, 60.0), measured(8000, 6.0)])
    assert known.ttft_s == {"cold/8000": 6.0} and known.basis.startswith("earlier runs, one tier")


def test_of_waves_alone_each_request_is_its_share_of_the_time_to_the_last_first_token() -> None:
    # four prompts of 6 s, one after another, and a first token beside the second prompt
    waves = [*a_wave(8000, 6.0, 12.1, 18.2, 24.4, tpot_s=0.05), *a_wave(16_000, 13.0, 26.0)]
    known = learn("r", waves)
    assert known.ttft_s == {"cold/8000": pytest.approx(6.1), "cold/16000": 13.0}
    assert known.basis == "earlier runs, requests sent together: each its share"
    together = [
        structs.replace(trial(8000), id=f"r/8000/cold/1@4.{stream}", concurrency=4, stream=stream)
        for stream in range(1, 5)
    ]
    expected = estimate(together, {"r": known}, overhead_s=2.0, warmup_tokens=0).total_s
    assert expected == pytest.approx(24.4 + 100 * 0.05 + 2.0, rel=1e-6)
    assert refined(RouteModel(route="r", basis=""), waves).ttft_s == known.ttft_s


def test_a_wave_that_is_not_whole_teaches_nothing() -> None:
    wave = a_wave(8000, 6.0, 12.0)
    assert not learn("r", wave[:1]).known
    assert not learn("r", [wave[0], structs.replace(wave[1], verdict=Verdict(valid=False))]).known
    again = [structs.replace(one, attempt=2) for one in wave[:1]]
    assert learn("r", [*wave, *again]).ttft_s == {"cold/8000": 6.0}


def test_a_tier_that_was_measured_is_expected_as_measured() -> None:
    model = learn(
        "r", [measured(8000, 5.0), measured(8000, 6.0), measured(8000, 7.0, "salted"), measured(64_000, 40.0)]
    )
    one = estimate_trial(trial(8000), model, overhead_s=2.0)
    assert one.basis == "measured"
    assert one.ttft_s == 6.0
    assert one.decode_s == pytest.approx(100 * TPOT)  # 101 tokens: the first comes with the TTFT
    assert one.total_s == pytest.approx(6.0 + 2.0 + 2.0)


def test_tokens_of_a_large_first_chunk_cost_no_steps() -> None:
    model = learn("r", [measured(8000, 5.0, first_chunk_tokens=5)])
    assert estimate_trial(trial(8000), model, overhead_s=0.0).decode_s == pytest.approx(96 * TPOT)


def test_other_tiers_follow_the_law_and_its_range_holds_the_truth() -> None:
    model = exact(8_000, 64_000)
    between = estimate_trial(trial(32_000), model, overhead_s=0.0)
    assert between.ttft_s == pytest.approx(truth(32_000), rel=1e-6)
    assert between.basis == "law"
    beyond = estimate_trial(trial(512_000), model, overhead_s=0.0)
    assert beyond.ttft_s == pytest.approx(truth(512_000), rel=1e-6)
    assert beyond.basis == "law, 8.0x beyond the longest prompt measured"
    assert beyond.low_s is not None and beyond.high_s is not None and beyond.total_s is not None
    assert beyond.low_s < beyond.total_s < beyond.high_s
    narrow, wide = (e.high_s - e.low_s for e in (between, beyond))  # type: ignore[operator]
    assert wide > 10 * narrow


def test_the_published_study_predicts_its_own_replay_to_a_third() -> None:
    rows = [r for r in STUDY["requests"] if r["route"] == "mtp4" and r["condition"] == "cold"]
    model = calibrated("mtp4", [(r["prompt_tokens"], r["ttft_s"]) for r in rows])
    replay = next(r for r in STUDY["requests"] if r["condition"] == "replay")
    one = estimate_trial(
        trial(replay["prompt_tokens"], "replay", replay=2, route="mtp4"), model, overhead_s=0.0
    )
    assert one.ttft_s == pytest.approx(replay["ttft_s"], rel=0.35)


def test_a_replay_costs_what_replays_cost_and_a_first_one_may_cost_a_cold_prompt() -> None:
    cold = [measured(n, truth(n)) for n in (8_000, 64_000)]
    replay = measured(64_000, 3.0, "replay", replay=1, cached_tokens=63_000)
    model = learn("r", [*cold, replay])
    assert model.uncached_tokens == 1000
    assert estimate_trial(trial(64_000, "replay", replay=1), model, overhead_s=0.0).ttft_s == 3.0
    # e = (3.0 - B x 1,000 - C x (64,000^2 - 63,000^2)) / 63,000 is what a cached token costs
    e = (3.0 - B * 1000 - C * (64_000**2 - 63_000**2)) / 63_000
    other = estimate_trial(trial(32_000, "replay", replay=1), model, overhead_s=0.0)
    assert other.ttft_s == pytest.approx(B * 1000 + C * (32_000**2 - 31_000**2) + e * 31_000)
    assert other.high_s is not None and other.high_s >= truth(32_000)
    second = estimate_trial(trial(32_000, "replay", replay=2), model, overhead_s=0.0)
    assert second.high_s is not None and second.high_s < truth(32_000)


def test_one_tier_is_taken_as_proportional_and_says_so() -> None:
    model = learn("r", [measured(10_000, 5.0)])
    assert estimate_trial(trial(40_000), model, overhead_s=0.0).ttft_s == pytest.approx(20.0)
    assert "too short for longer prompts" in model.basis


def test_invalid_failed_and_foreign_measurements_teach_nothing() -> None:
    rows = [
        measured(8000, 5.0, verdict=Verdict(valid=False)),
        measured(8000, 5.0, failure=Failure(kind="reset", message="x")),
        measured(8000, 5.0, route="other"),
        measured(8000, 0.0),
    ]
    assert not learn("r", rows).known
    missed = measured(64_000, 33.0, "replay", cached_tokens=0)
    model = learn("r", [measured(64_000, 36.0), measured(8000, 4.1), missed])
    assert "replay/64000" not in model.ttft_s  # a replay that missed is no replay


def test_fallback_measurements_and_those_of_several_runs_count_for_the_route() -> None:
    rows = [
        measured(8000, truth(8000), source="run-1"),
        measured(64_000, truth(64_000), source="run-2", verdict=Verdict(valid=True, speculation="fallback")),
    ]
    found = estimate_trial(trial(32_000), learn("r", rows), overhead_s=0.0)
    assert found.ttft_s == pytest.approx(truth(32_000), rel=1e-6)


# --- calibration ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tiers", "lengths"),
    [
        ((6_316, 564_577), (16_384, 65_536)),
        ((131_072,), (4_096, 16_384)),
        ((32_768,), (2_048, 8_192)),
        ((1_000, 4_000), (1_000, 4_000)),
        ((1,), (1, 1)),
    ],
)
def test_calibration_prompts_are_small_beside_the_largest_tier(
    tiers: tuple[int, ...], lengths: object
) -> None:
    assert calibration_lengths(tiers) == lengths


def test_two_calibration_prompts_give_b_and_c() -> None:
    model = calibrated("r", [(n, truth(n)) for n in calibration_lengths((500_000,))], tpot_s=TPOT)
    assert model.law is not None
    assert model.law.coefficients == pytest.approx((0.0, B, C), rel=1e-6)
    one = estimate_trial(trial(500_000), model, overhead_s=0.0)
    assert one.total_s == pytest.approx(truth(500_000) + 100 * TPOT, rel=1e-6)


def test_an_error_in_the_calibration_stays_within_the_range() -> None:
    short, long = calibration_lengths((500_000,))
    model = calibrated("r", [(short, truth(short) * 1.04), (long, truth(long) * 0.96)], tpot_s=TPOT)
    one = estimate_trial(trial(500_000), model, overhead_s=0.0)
    assert one.low_s is not None and one.high_s is not None
    assert one.low_s <= truth(500_000) + 100 * TPOT <= one.high_s


def test_without_a_decode_speed_the_estimate_says_so() -> None:
    one = estimate_trial(trial(8000), calibrated("r", [(1000, 1.0), (8000, 9.0)]), overhead_s=0.0)
    assert one.decode_s is None and "decode speed not known" in one.basis


# --- while running ----------------------------------------------------------------------------------


def test_one_tier_of_this_run_scales_the_old_law() -> None:
    model = refined(exact(8_000, 64_000), [measured(8_000, 2 * truth(8_000))])
    assert model.scale == pytest.approx(2.0)
    assert estimate_trial(trial(512_000), model, overhead_s=0.0).ttft_s == pytest.approx(2 * truth(512_000))
    assert estimate_trial(trial(64_000), model, overhead_s=0.0).ttft_s == pytest.approx(2 * truth(64_000))


def test_two_tiers_of_this_run_replace_it() -> None:
    done = [measured(n, 3 * truth(n)) for n in (4_000, 32_000)]
    model = refined(exact(8_000, 64_000), done)
    assert model.basis == "this run"
    found = estimate_trial(trial(256_000), model, overhead_s=0.0)
    assert found.ttft_s == pytest.approx(3 * truth(256_000), rel=1e-6)


def test_nothing_done_changes_nothing_and_anything_done_helps_an_unknown_route() -> None:
    model = exact(8_000, 64_000)
    assert refined(model, []) is model
    assert refined(RouteModel(route="r", basis=""), [measured(8000, 5.0)]).known


def test_time_left_is_the_sum_of_what_is_not_done() -> None:
    trials = [trial(8_000), trial(64_000), trial(64_000, "salted")]
    plan = estimate(trials, {"r": exact(8_000, 64_000)}, overhead_s=1.0, warmup_tokens=0)
    each = [truth(8_000) + 3, truth(64_000) + 3, truth(64_000) + 3]
    assert plan.total_s == pytest.approx(sum(each))
    assert plan.left_s({trials[0].id}) == pytest.approx(sum(each[1:]))
    assert plan.left_s({t.id for t in trials}) == 0


@given(
    st.lists(
        st.builds(
            trial,
            st.sampled_from([8_000, 64_000, 512_000]),
            st.sampled_from(["cold", "salted", "replay"]),
            repeat=st.integers(1, 3),
            replay=st.integers(0, 3),
            route=st.sampled_from(["r", "s", "unknown"]),
        ),
        max_size=30,
    )
)
def test_trials_of_a_plan_are_estimated_as_each_alone(trials: list[Trial]) -> None:
    models = {"r": exact(8_000, 64_000), "s": structs.replace(exact(8_000, 64_000), scale=2.0)}
    alone = [estimate_trial(one, models.get(one.route), overhead_s=1.0) for one in trials]
    assert list(estimate(trials, models, overhead_s=1.0, warmup_tokens=0).trials) == alone


def test_each_route_is_warmed_up_once() -> None:
    models = {"r": exact(8_000, 64_000)}
    plan = estimate([trial(8_000), trial(8_000, repeat=2)], models, overhead_s=1.0, warmup_tokens=4_000)
    assert plan.warmup_s == pytest.approx(truth(4_000) + 1.0)


def test_an_unknown_route_leaves_the_total_open() -> None:
    trials = [trial(8_000), trial(8_000, route="x")]
    plan = estimate(trials, {"r": exact(8_000, 64_000)}, overhead_s=0.0, warmup_tokens=0)
    assert (plan.total_s, plan.unknown, plan.left_s(set())) == (None, ("x",), None)
    assert plan.trials[1].basis == "nothing is known of route x"


# --- budget -----------------------------------------------------------------------------------------

MODELS = {r: learn(r, [measured(n, truth(n), route=r) for n in (8_000, 64_000)]) for r in ("r", "s")}


def study(repeats: int = 3) -> list[Trial]:
    return [
        trial(tier, route=route, repeat=repeat)
        for repeat in range(1, repeats + 1)
        for tier in (8_000, 64_000, 512_000)
        for route in ("r", "s")
    ]


def cost(*tiers: int) -> float:
    return sum(truth(tier) + 2.0 for tier in tiers)  # 2 s of decoding, no overhead


def budgeted(budget_s: float, repeats: int = 3) -> BudgetedPlan:
    return within_budget(study(repeats), MODELS, budget_s, overhead_s=0.0, warmup_tokens=0)


def test_what_fits_is_left_alone() -> None:
    plan = budgeted(2 * 3 * cost(8_000, 64_000, 512_000) + 1)
    assert len(plan.trials) == 18 and plan.changes == ()


def test_repeats_go_first() -> None:
    plan = budgeted(2 * 2 * cost(8_000, 64_000, 512_000) + 1)
    assert {t.repeat for t in plan.trials} == {1, 2}
    assert {t.tier for t in plan.trials} == {8_000, 64_000, 512_000}
    assert "repeats: 2 instead of 3" in plan.changes


def test_then_the_largest_tiers_on_all_routes_alike_and_it_is_said() -> None:
    plan = budgeted(2 * cost(8_000, 64_000) + 1)
    assert [(t.route, t.tier, t.repeat) for t in plan.trials] == [
        ("r", 8_000, 1), ("s", 8_000, 1), ("r", 64_000, 1), ("s", 64_000, 1)]  # fmt: skip
    text = "; ".join(plan.changes)
    assert "repeats: 1 instead of 3; tier 512,000 dropped" in text
    assert "the budget is" in text and "what is left takes" in text


def test_a_budget_below_the_smallest_study_is_refused_with_figures() -> None:
    with pytest.raises(SuiteError, match=r"smallest tier, 8,000 tokens, takes 12 s, more than 5 s"):
        budgeted(5.0)
    with pytest.raises(SuiteError, match=r"takes 12\.\d+ s, more than 11\.9\d* s"):
        budgeted(11.9)


def test_a_budget_needs_known_times() -> None:
    with pytest.raises(SuiteError, match="nothing is known of x; calibrate first"):
        within_budget([trial(8_000, route="x")], {}, 3600, overhead_s=0.0, warmup_tokens=0)


@given(st.floats(min_value=13, max_value=10_000), st.integers(1, 4))
def test_whatever_the_budget_the_plan_fits_and_is_balanced(budget_s: float, repeats: int) -> None:
    plan = budgeted(budget_s, repeats)
    assert plan.estimate.total_s is not None and plan.estimate.total_s <= budget_s
    cells = {route: [(t.tier, t.repeat) for t in plan.trials if t.route == route] for route in "rs"}
    assert cells["r"] == cells["s"] != []
    assert bool(plan.changes) == (len(plan.trials) < 6 * repeats)
