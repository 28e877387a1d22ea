"""What the gate says where routes ran without the speculation that they declare, case by case."""

from __future__ import annotations

import pytest
from decision_samples import trial
from msgspec import structs

from bench.analysis.decisions.gate import Outcome, gate, parse_rule, verdict
from bench.analysis.decisions.unspeculated import unspeculated
from bench.records import Measurement, Reason, Speculated, Verdict

DECODE = parse_rule("decode cold * >= 0.95")
REASONS = {
    "fallback": Reason(id="speculation_fallback", detail="sequence 1,101 over the drafter limit 512"),
    "off": Reason(id="speculation_off", detail="0 drafts for 101 tokens"),
}
FAST, PLAIN = 0.005, 0.020


def rows(
    state: Speculated, trials: int, *, first: int = 1, tpot: float | None = None, name: str = "mtp"
) -> list[Measurement]:
    """Trials of a route that declares speculation; without it they take 20 ms a token, with it 5 ms."""
    reason = (REASONS[state],) if state in REASONS else ()
    judged = Verdict(
        valid=state != "off",
        reasons=reason if state == "off" else (),
        warnings=reason if state == "fallback" else (),
        speculation=state,
    )
    each = tpot or (PLAIN if state in REASONS else FAST)
    return [
        trial(name, 1.0, each * (1 + number / 1000), number=number, verdict=judged)
        for number in range(first, first + trials)
    ]


SIDES = {
    "declared": rows("as declared", 6),
    "some fallback": rows("as declared", 6) + rows("fallback", 3, first=7),
    "all fallback": rows("fallback", 6),
    "some off": rows("as declared", 6) + rows("off", 3, first=7),
    "off, repeated": rows("off", 1) + rows("as declared", 6),
    "all off": rows("off", 6),
}
NEVER = {"all fallback", "all off"}
TOLD = {
    "declared": "",
    "some fallback": "3 of 9 measurements (speculation_fallback: sequence 1,101 over the drafter limit 512)",
    "all fallback": "6 of 6 measurements (speculation_fallback: sequence 1,101 over the drafter limit 512)",
    "some off": "3 of 9 measurements (speculation_off: 0 drafts for 101 tokens)",
    "off, repeated": "1 of 7 measurements (speculation_off: 0 drafts for 101 tokens)",
    "all off": "6 of 6 measurements (speculation_off: 0 drafts for 101 tokens)",
}
# what the rule says of a new run (row) against a baseline (column, in the order of `SIDES`):
# = figures decide, of like with like; FAIL the new run lost it, or lacks it in a larger part;
# ? the baseline never had it, or neither has valid measurements of one kind
EXPECTED = {
    #                declared  some fb  all fb  some off  repeated  all off
    "declared":      "=        =        ?       =         =         ?",
    "some fallback": "FAIL     =        ?       =         FAIL      ?",
    "all fallback":  "FAIL     FAIL     =       FAIL      FAIL      ?",
    "some off":      "FAIL     =        ?       =         FAIL      ?",
    "off, repeated": "=        =        ?       =         =         ?",
    "all off":       "FAIL     FAIL     ?       FAIL      FAIL      ?",
}  # fmt: skip
CASES = [
    (new, old, status)
    for new, line in EXPECTED.items()
    for old, status in zip(SIDES, line.split(), strict=True)
]


def words(new: str, old: str) -> str:
    told = {"the new run": TOLD[new], "the baseline": TOLD[old]}
    parts = [f"in {side}, {text}" for side, text in told.items() if text]
    neither = ": there are no valid measurements on both sides" if {new, old} <= NEVER else ""
    return f"ran without its speculation {'; '.join(parts)}{neither}" if parts else ""


def of_mtp(outcomes: list[Outcome]) -> Outcome:
    (one,) = [one for one in outcomes if one.route in ("mtp", "mtp-new")]
    return one


@pytest.mark.parametrize("beside", [[], rows("none", 6, name="plain")], ids=["alone", "beside"])
@pytest.mark.parametrize(("new", "old", "expected"), CASES)
def test_every_pair_of_sides_has_its_outcome_and_its_words(
    new: str, old: str, expected: str, beside: list[Measurement]
) -> None:
    outcomes = gate(SIDES[new] + beside, SIDES[old] + beside, [DECODE])
    one = of_mtp(outcomes)
    assert len(outcomes) == (2 if beside else 1)  # no cell goes without a word since another one passes
    if expected != "=":
        assert one.status == {"FAIL": "fail", "?": "cannot tell"}[expected]
        assert (one.why, one.ratio, one.samples, one.more) == (words(new, old), None, 0, None)
        return
    assert one.status == "pass" and one.samples == 6
    assert one.ratio is not None and one.ratio.value == pytest.approx(1.0)
    if new == "all fallback":
        assert one.why == "both sides ran without their speculation"
    else:
        assert one.why == (f"{words(new, old)}: left out" if words(new, old) else "")


@pytest.mark.parametrize(("new", "old"), [(new, old) for new, old, status in CASES if status == "="])
def test_where_figures_decide_they_can_fail(new: str, old: str) -> None:
    slower = [
        structs.replace(row, tpot_s=2 * row.tpot_s, decode_tok_s=0.5 / row.tpot_s)
        for row in SIDES[new]
        if row.tpot_s
    ]
    one = of_mtp(gate(slower, SIDES[old], [DECODE]))
    assert one.status == "fail"
    assert one.ratio is not None and one.ratio.value == pytest.approx(0.5)


def test_a_baseline_that_partly_fell_back_excuses_no_new_run_that_wholly_did() -> None:
    old = rows("as declared", 10) + rows("fallback", 5, first=11)
    one = of_mtp(gate(rows("fallback", 15), old, [DECODE]))
    assert one.status == "fail"
    assert "in the new run, 15 of 15 measurements" in one.why
    assert "in the baseline, 5 of 15 measurements" in one.why


def test_a_run_that_lacks_it_in_a_larger_part_than_its_baseline_fails() -> None:
    old = rows("as declared", 8) + rows("fallback", 4, first=9)
    as_much = rows("as declared", 6) + rows("fallback", 3, first=7)
    assert of_mtp(gate(as_much, old, [DECODE])).status == "pass"
    more = rows("as declared", 6) + rows("fallback", 4, first=7)
    one = of_mtp(gate(more, old, [DECODE]))
    assert one.status == "fail" and "4 of 10" in one.why and "4 of 12" in one.why


def test_silently_off_in_most_requests_fails_even_where_each_trial_was_repeated_in_the_end() -> None:
    new = rows("as declared", 6) + [row for _ in range(3) for row in rows("off", 6)]
    one = of_mtp(gate(new, rows("as declared", 6), [DECODE]))
    assert one.status == "fail" and "18 of 24 measurements" in one.why
    as_often = rows("as declared", 6) + rows("off", 6)
    assert of_mtp(gate(as_often, rows("as declared", 6), [DECODE])).status == "fail"
    seldom = rows("as declared", 6) + rows("off", 5)
    assert of_mtp(gate(seldom, rows("as declared", 6), [DECODE])).status == "pass"


def test_a_single_route_of_another_name_is_held_against_its_baseline_whichever_name_a_rule_says() -> None:
    """A baseline of plain decoding is none, also where the rule names the new run's route."""
    new, old = rows("as declared", 6, name="mtp-new"), rows("fallback", 6, name="mtp-old")
    for text in ("decode cold * >= 0.95", "decode cold * mtp-new >= 0.95"):
        one = of_mtp(gate(new, old, [parse_rule(text)]))
        assert (one.route, one.status) == ("mtp-new", "cannot tell")
        assert "ran without its speculation in the baseline, 6 of 6 measurements" in one.why
    both = of_mtp(gate(rows("fallback", 6, name="mtp-new"), old, [DECODE]))
    assert (both.status, both.why) == ("pass", "both sides ran without their speculation")


def test_what_a_table_calls_off_and_valid_is_plain_decoding() -> None:
    """Tables often have no column that calls a row invalid."""

    def table(*parts: list[Measurement]) -> list[Measurement]:
        valid = Verdict(valid=True, speculation="off")
        return [
            structs.replace(row, verdict=valid) if row.verdict.speculation == "off" else row
            for part in parts
            for row in part
        ]

    declared, off, some = (
        table(rows("as declared", 6)),
        table(rows("off", 6)),
        table(rows("as declared", 6), rows("off", 3, first=7)),
    )
    assert of_mtp(gate(off, declared, [DECODE])).status == "fail"
    assert of_mtp(gate(some, declared, [DECODE])).status == "fail"
    assert of_mtp(gate(declared, off, [DECODE])).status == "cannot tell"
    by_these = of_mtp(gate(declared, some, [DECODE]))
    assert (by_these.status, by_these.samples) == ("pass", 6)
    assert by_these.ratio is not None and by_these.ratio.value == pytest.approx(1.0)


def test_routes_of_several_sources_are_held_by_their_own_names() -> None:
    def runs(name: str, state: Speculated) -> list[Measurement]:
        both = rows(state, 6, name=name, tpot=FAST), rows(state, 6, first=7, name=name, tpot=FAST)
        return [
            structs.replace(row, source=source)
            for source, own in zip(("r1", "r2"), both, strict=True)
            for row in own
        ]

    new = runs("mtp", "fallback") + runs("plain", "none")
    old = runs("mtp", "as declared") + runs("plain", "none")
    outcomes = {one.route: one.status for one in gate(new, old, [DECODE])}
    assert outcomes == {"mtp": "fail", "plain": "pass"}


def test_a_cell_that_lost_it_on_both_sides_stays_open_beside_one_that_passes() -> None:
    fine = [structs.replace(row, tier=64) for row in rows("as declared", 6)]
    outcomes = gate(fine + rows("off", 6), fine + rows("fallback", 6), [DECODE])
    assert {one.tier: one.status for one in outcomes} == {64: "pass", 1000: "cannot tell"}
    assert verdict(outcomes) == "cannot tell"


def test_a_length_that_only_the_baseline_measured_opens_no_rule_for_every_length() -> None:
    fine = [structs.replace(row, tier=64) for row in rows("as declared", 6)]
    (one,) = gate(fine, fine + rows("fallback", 6), [DECODE])
    assert (one.tier, one.status) == (64, "pass")


def test_a_trial_is_repeated_by_an_attempt_at_the_same_repeat_and_condition_alone() -> None:
    kept = rows("as declared", 6)
    salted = [structs.replace(row, condition="salted") for row in rows("off", 1)]
    assert [one.repeated for one in unspeculated(kept + rows("off", 1))] == [True]
    assert [one.repeated for one in unspeculated(kept + rows("off", 1, first=7))] == [False]
    assert [one.repeated for one in unspeculated(kept + salted)] == [False]
    assert [one.repeated for one in unspeculated(kept[1:] + rows("off", 1) + rows("fallback", 1))] == [False]
