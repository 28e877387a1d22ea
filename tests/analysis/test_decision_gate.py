from __future__ import annotations

import numpy as np
import pytest
from decision_samples import study, trial
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from bench.analysis.decisions.gate import QUANTITIES, gate, parse_rule, read_rules, verdict
from bench.errors import SuiteError
from bench.records import Measurement, Reason, Verdict

TTFT = parse_rule("ttft cold 1000 <= 1.05")


def runs(ratio: float, trials: int = 8, noise: float = 0.005) -> tuple[list[Measurement], list[Measurement]]:
    rng = np.random.default_rng(1)
    new = study("a", 10 * ratio, 0.02, trials, rng, noise=(noise, noise))
    return new, study("a", 10, 0.02, trials, rng, noise=(noise, noise))


@pytest.mark.parametrize(("ratio", "status"), [(1.0, "pass"), (1.2, "fail"), (1.05, "cannot tell")])
def test_only_a_whole_interval_beyond_the_tolerance_fails(ratio: float, status: str) -> None:
    (one,) = gate(*runs(ratio), [TTFT])
    assert one.status == status
    assert verdict([one]) == status
    assert (one.more is not None) == (status == "cannot tell")


def test_at_least_rules_look_at_the_other_end() -> None:
    rule = parse_rule("decode cold 1000 >= 0.95")
    new, old = runs(1.0)
    assert [one.status for one in gate(new, old, [rule])] == ["pass"]
    slower = [trial("a", 10, (row.tpot_s or 0) * 1.3, number=row.repeat) for row in new]
    assert [one.status for one in gate(slower, old, [rule])] == ["fail"]


def test_too_few_trials_cannot_be_told_and_say_how_many_more() -> None:
    (few,) = gate(*runs(2.0, trials=3), [TTFT])
    assert (few.status, few.more) == ("cannot tell", 2)
    (single,) = gate(*runs(2.0, trials=1), [TTFT])
    assert (single.status, single.more, single.why) == (
        "cannot tell",
        4,
        "one trial a side: it takes 4 more trials a side",
    )


def test_too_few_trials_on_one_side_name_that_side() -> None:
    new, old = runs(2.0)
    (one,) = gate(new, old[:2], [TTFT])
    assert (one.more, one.why) == (3, "a range is no interval: it takes 3 more trials in the baseline")
    (one,) = gate(new[:1], old, [TTFT])
    assert one.why == "a range is no interval: it takes 4 more trials in the new run"
    (one,) = gate(new[:4], old[:2], [TTFT])
    assert one.why.endswith("it takes 1 more trial in the new run and 3 more trials in the baseline")


def test_a_tier_that_was_not_measured_is_named_with_those_that_were() -> None:
    new, old = runs(1.0)
    (one,) = gate(new, old, [parse_rule("ttft cold 9999 <= 1.05")])
    assert (
        one.why == "9,999 tokens were measured on neither side; the new run has 1,000; the baseline has 1,000"
    )
    new += study("a", 20, 0.02, 8, np.random.default_rng(2), tier=2000)
    (one,) = gate(new, old, [parse_rule("ttft cold 2000 <= 1.05")])
    assert one.why == "2,000 tokens were not measured in the baseline; the baseline has 1,000"


def test_a_near_miss_says_how_many_trials_would_settle_it() -> None:
    (one,) = gate(*runs(1.03, noise=0.03), [TTFT])
    assert one.status == "cannot tell" and one.ratio is not None and one.more is not None
    half = (one.ratio.high or 0) - one.ratio.value
    expected = 8 * (half / (1.05 - one.ratio.value)) ** 2
    assert one.more == max(1, int(np.ceil(expected)) - 8)
    assert f"about {one.more} more trials" in one.why


def test_a_rule_that_no_measurement_answers_cannot_be_told() -> None:
    new, old = runs(1.0)
    for text in ("ttft replay 1000 <= 1.05", "ttft cold 1000 b <= 1.05"):
        (one,) = gate(new, old, [parse_rule(text)])
        assert one.status == "cannot tell" and "no valid measurements" in one.why


def test_every_route_and_tier_is_checked_and_one_failure_fails() -> None:
    new = runs(1.0)[0] + study("b", 20, 0.02, 8, np.random.default_rng(2), tier=64)
    old = runs(1.0)[1] + study("b", 10, 0.02, 8, np.random.default_rng(3), tier=64)
    outcomes = gate(new, old, [parse_rule("ttft cold * <= 1.05")])
    assert {(one.route, one.tier): one.status for one in outcomes} == {("a", 1000): "pass", ("b", 64): "fail"}
    assert verdict(outcomes) == "fail"


def test_a_tier_within_a_thousandth_is_meant() -> None:
    assert gate(*runs(1.0), [parse_rule("ttft cold 1,000 <= 1.05")])[0].status == "pass"
    assert gate(*runs(1.0), [parse_rule("ttft salted 1000.5 <= 1.05".replace(".5", ""))])[0].status == "pass"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ttft cold 1000", "is not of the form"),
        ("ttft cold 1000 < 1.05", "is not of the form"),
        ("speed cold 1000 <= 1.05", "'speed' is not one of ttft, total, decode"),
        ("ttft warm 1000 <= 1.05", "'warm' is not one of cold, salted, replay"),
        ("ttft cold many <= 1.05", "'many' is not a tier"),
        ("ttft cold 0 <= 1.05", "'0' is not a tier"),
        (f"ttft cold {'9' * 5000} <= 1.05", "' is not a tier"),
        ("ttft cold 1000 <= nan", "'nan' is not a ratio"),
        ("ttft cold 1000 <= -1", "'-1' is not a ratio"),
    ],
)
def test_a_bad_rule_is_refused_by_its_part(text: str, message: str) -> None:
    with pytest.raises(SuiteError, match=message):
        parse_rule(text)


@settings(deadline=None)
@given(
    st.sampled_from(sorted(QUANTITIES)),
    st.sampled_from(["cold", "replay"]),
    st.none() | st.integers(1, 10**6),
    st.none() | st.sampled_from(["mtp4", "target-only"]),
    st.booleans(),
)
def test_a_rule_reads_back_from_its_text(
    quantity: str, condition: str, tier: int | None, route: str | None, at_most: bool
) -> None:
    sign = "<=" if at_most else ">="
    text = " ".join(filter(None, (quantity, condition, str(tier or "*"), route, sign, "1.25")))
    assert str(parse_rule(text)) == text


def test_rules_come_from_toml_too() -> None:
    text = 'rules = ["ttft cold 1000 <= 1.05", "decode replay * >= 0.9"]'
    assert [str(rule) for rule in read_rules(text, source="r")] == [
        "ttft cold 1000 <= 1.05",
        "decode replay * >= 0.9",
    ]
    for bad in ("rules = 3", "rule = []", "rules = [1]", "= 3", "rules = []\nmore = 1"):
        with pytest.raises(SuiteError, match=r"^r: "):
            read_rules(bad, source="r")


def test_a_gate_without_rules_is_refused() -> None:
    with pytest.raises(SuiteError, match="at least one rule"):
        gate([], [], [])


@pytest.mark.parametrize(("before", "now"), [(512, 128), (128, 512)])
def test_totals_of_unequal_outputs_are_judged_at_one_length(before: int, now: int) -> None:
    """Equal speeds: a shorter answer is no faster server, and a longer one no slower."""
    rng = np.random.default_rng(5)
    new, old = (study("a", 1.0, 0.01, 8, rng, noise=(0.005, 0.005), output=n) for n in (now, before))
    (one,) = gate(new, old, [parse_rule("total cold 1000 <= 1.05")])
    assert one.status == "pass" and one.ratio is not None and one.ratio.value == pytest.approx(1.0, abs=0.02)
    assert one.why == "at 128 output tokens on both sides, since outputs differ"
    slower = study("a", 1.0, 0.015, 8, rng, noise=(0.005, 0.005), output=now)
    assert gate(slower, old, [parse_rule("total cold 1000 <= 1.05")])[0].status == "fail"


def test_unequal_outputs_without_a_time_per_token_cannot_be_told() -> None:
    old = [trial("a", 1.0, 0.01, output=512, number=i) for i in range(6)]
    new = [trial("a", 1.0, None, output=128, number=i, total_s=2.3) for i in range(6)]
    outcomes = gate(new, old, [parse_rule("total cold 1000 <= 1.05")])
    assert verdict(outcomes) == "cannot tell" and outcomes[0].ratio is None
    assert outcomes[0].why.startswith("outputs are 128 and 512 tokens long, and a trial without")


def speculating(
    name: str, seed: int = 3, *, state: str = "as declared", trials: int = 8
) -> list[Measurement]:
    """Trials of a route that declares speculation; `state`: what became of it."""
    reasons = {
        "as declared": (),
        "fallback": (Reason(id="speculation_fallback", detail="sequence 1,101 over the drafter limit 512"),),
        "off": (Reason(id="speculation_off", detail="0 drafts for 101 tokens"),),
    }[state]
    verdict = Verdict(
        valid=state != "off",
        reasons=reasons if state == "off" else (),
        warnings=reasons if state == "fallback" else (),
        speculation=state,  # type: ignore[arg-type]
    )
    rng = np.random.default_rng(seed)
    acceptance = 0.8 if state == "as declared" else None
    rows = study(name, 10, 0.02, trials, rng, noise=(0.005, 0.005))
    return [structs.replace(row, verdict=verdict, acceptance=acceptance) for row in rows]


@pytest.mark.parametrize("others", [[], ["plain"]])
@pytest.mark.parametrize("rule", ["ttft cold 1000 <= 1.05", "acceptance cold * mtp4 >= 0.9"])
@pytest.mark.parametrize(
    ("state", "why"),
    [
        ("fallback", "speculation_fallback: sequence 1,101 over the drafter limit 512"),
        ("off", "speculation_off: 0 drafts for 101 tokens"),
    ],
)
def test_a_route_that_lost_its_speculation_fails_whatever_its_figures(
    state: str, why: str, rule: str, others: list[str]
) -> None:
    """TTFT is as it was, and there is no acceptance any more: neither may let it pass or stay open."""
    plain = [row for name in others for row in runs(1.0)[0] for row in [structs.replace(row, route=name)]]
    outcomes = gate(
        [*speculating("mtp4", state=state), *plain], [*speculating("mtp4", 4), *plain], [parse_rule(rule)]
    )
    (one,) = [one for one in outcomes if one.route == "mtp4"]
    assert (one.status, verdict(outcomes)) == ("fail", "fail")
    assert one.why == f"ran without its speculation in the new run, 8 of 8 measurements ({why})"
    assert [other.status for other in outcomes if other is not one] == ["pass"] * ("mtp4" not in rule) * len(
        others
    )


def test_some_trials_without_their_speculation_fail_too() -> None:
    new = [*speculating("mtp4"), *speculating("mtp4", 5, state="fallback", trials=2)]
    (one,) = gate(new, speculating("mtp4", 4), [TTFT])
    assert (one.route, one.status) == ("mtp4", "fail") and "2 of 10 measurements" in one.why


def test_a_single_route_of_another_name_fails_too() -> None:
    (one,) = gate(speculating("mtp4-new", state="fallback"), speculating("mtp4", 4), [TTFT])
    assert (one.route, one.status) == ("mtp4-new", "fail")


def test_an_invalid_attempt_without_speculation_is_no_failure_once_it_was_repeated() -> None:
    new = [*speculating("mtp4"), *speculating("mtp4", 5, state="off", trials=1)]
    (one,) = gate(new, speculating("mtp4", 4), [TTFT])
    assert one.status == "pass"


def test_without_speculation_on_both_sides_figures_decide_and_it_is_told() -> None:
    new, old = (speculating("mtp4", seed, state="fallback") for seed in (3, 4))
    for rule in ("ttft cold 1000 <= 1.05", "ttft cold 1000 mtp4 <= 1.05"):
        (one,) = gate(new, old, [parse_rule(rule)])
        assert (one.route, one.status) == ("mtp4", "pass")
        assert one.why == "both sides ran without their speculation"
    slower = [structs.replace(row, ttft_s=12.0 + row.repeat / 100) for row in new]
    assert gate(slower, old, [TTFT])[0].status == "fail"


@pytest.mark.parametrize("state", ["fallback", "off"])
def test_a_baseline_that_lost_its_speculation_is_none(state: str) -> None:
    """Against plain decoding a slow drafter looks fast."""
    old = speculating("mtp4", 4, state=state)
    (one,) = gate(speculating("mtp4"), old, [parse_rule("decode cold 1000 mtp4 >= 0.95")])
    assert (one.route, one.status, one.more) == ("mtp4", "cannot tell", None)
    assert one.why.startswith(
        "ran without its speculation in the baseline, 8 of 8 measurements (speculation_"
    )


def test_a_baseline_that_had_its_speculation_in_some_trials_is_one_by_these() -> None:
    old = [*speculating("mtp4", 4), *speculating("mtp4", 5, state="fallback", trials=2)]
    (one,) = gate(speculating("mtp4"), old, [TTFT])
    assert (one.route, one.status, one.samples) == ("mtp4", "pass", 8)


def test_without_a_valid_measurement_on_either_side_the_reason_is_named() -> None:
    (one,) = gate(speculating("mtp4", state="off"), speculating("mtp4", 4, state="off"), [TTFT])
    assert (one.route, one.status) == ("mtp4", "cannot tell")
    for side in ("the new run", "the baseline"):
        assert f"in {side}, 8 of 8 measurements (speculation_off: 0 drafts for 101 tokens)" in one.why
    assert one.why.endswith("there are no valid measurements on both sides")


def test_a_length_the_baseline_never_measured_cannot_be_told_with_or_without_speculation() -> None:
    old = [structs.replace(row, tier=64) for row in speculating("mtp4", 4)]
    (one,) = gate(speculating("mtp4", state="fallback"), old, [TTFT])
    assert one.status == "cannot tell" and "not measured in the baseline" in one.why
    assert "mtp4 ran without its speculation in the new run" in one.why
