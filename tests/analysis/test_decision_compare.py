from __future__ import annotations

import numpy as np
import pytest
from decision_samples import invalid, study, trial
from msgspec import structs
from scipy import stats

from bench.analysis.statistics.compare import (
    across,
    by_chance,
    changed_settings,
    compare,
    rank_sum,
    signed_rank,
)
from bench.records import (
    Measurement,
    PromptSettings,
    Route,
    RunInfo,
    ServerFacts,
    Speculated,
    Speculation,
    Suite,
    Verdict,
)


@pytest.mark.parametrize(("n", "m"), [(5, 5), (5, 12), (30, 45), (60, 60)])
def test_the_rank_sum_p_is_scipys(n: int, m: int) -> None:
    rng = np.random.default_rng(n * m)
    a, b = rng.normal(0.5, 1, n), rng.normal(0, 1, m)
    method = "exact" if max(n, m) <= 50 else "asymptotic"
    assert rank_sum(a, b) == pytest.approx(stats.mannwhitneyu(a, b, method=method).pvalue, abs=1e-9)
    a, b = a.round(), b.round()
    assert rank_sum(a, b) == pytest.approx(stats.mannwhitneyu(a, b, method="asymptotic").pvalue, abs=1e-9)


@pytest.mark.parametrize("n", [5, 6, 20, 60])
def test_the_signed_rank_p_is_scipys(n: int) -> None:
    d = np.random.default_rng(n).normal(0.4, 1, n)
    method = "exact" if n <= 50 else "asymptotic"
    expected = stats.wilcoxon(d, method=method, correction=n > 50).pvalue
    assert signed_rank(d) == pytest.approx(expected, abs=1e-9)


def test_no_difference_at_all_gives_p_one() -> None:
    assert signed_rank(np.zeros(8)) == 1.0
    assert rank_sum(np.ones(8), np.ones(9)) == 1.0


def _pair(trials: int, ratio: float, seed: int, pairs: bool = False) -> list:  # type: ignore[type-arg]
    rng = np.random.default_rng(seed)
    rows = study("b", 10, 0.02, trials, rng) + study("a", 10 * ratio, 0.02, trials, rng)
    return [structs.replace(r, pair=f"p{r.repeat}") for r in rows] if pairs else rows


def test_a_real_difference_is_called_with_its_direction_and_ratio() -> None:
    found = {c.quantity: c for c in compare(_pair(8, 1.2, 1), "b")}
    ttft = found["ttft_s"]
    assert (ttft.route, ttft.base, ttft.verdict, ttft.test) == ("a", "b", "higher", "Mann-Whitney U")
    assert ttft.ratio is not None and ttft.ratio.spread == "interval"
    assert (ttft.ratio.low or 0) < 1.2 < (ttft.ratio.high or 0)
    assert found["decode_tok_s"].verdict == "~"
    assert ttft.lacking is None
    assert {c.verdict for c in compare(_pair(8, 0.8, 1), "b") if c.quantity == "ttft_s"} == {"lower"}


@pytest.mark.parametrize(
    ("a", "b", "lacking", "said"),
    [
        (
            (2.5, 6.4, 5.8, 1.7, 2.0, 1.7),
            (1.5, 1.0, 1.7, 0.3, 3.0, 0.9),
            "interval",
            "the test finds a difference (p 0.044)",
        ),
        ((5.3, 3.1, 1.7, 1.0, 0.7, 2.5), (0.6, 0.5, 0.9, 1.0, 0.2, 1.9), "test", "the test none (p 0.054)"),
    ],
)
def test_a_difference_needs_both_and_the_note_says_which_is_lacking(
    a: tuple[float, ...], b: tuple[float, ...], lacking: str, said: str
) -> None:
    rows = [
        trial(route, ttft, number=i) for route, side in (("a", a), ("b", b)) for i, ttft in enumerate(side)
    ]
    (ttft,) = [one for one in compare(rows, "b") if one.quantity == "ttft_s"]
    assert ttft.verdict == "~" and said in ttft.warnings[0]
    assert ttft.lacking == lacking


def test_digits_that_no_clock_has_are_ties() -> None:
    # what writing a number and dividing anew leaves behind must not be ranked
    rows = [trial("b", t, number=i) for i, t in enumerate((1.0, 1.1, 1.2, 1.3, 1.4))]
    moved = [structs.replace(row, route="a", ttft_s=(row.ttft_s or 0) * (1 + 1e-12)) for row in rows]
    (ttft,) = [one for one in compare([*rows, *moved], "b") if one.quantity == "ttft_s"]
    assert (ttft.verdict, ttft.p_value, ttft.lacking) == ("~", 1.0, "both")
    assert ttft.difference is not None and ttft.difference.value == 0


def test_below_five_trials_nothing_is_called() -> None:
    for one in compare(_pair(4, 3.0, 2), "b"):
        assert (one.verdict, one.p_value, one.test) == ("undecided", None, None)
        assert one.lacking == "trials"
        assert one.warnings == ("no test below 5 trials a side: there are 4 and 4",)
        assert one.ratio is not None and one.ratio.spread == "range"


def test_six_pairs_are_tested_as_pairs_five_are_not() -> None:
    for trials, test in ((6, "Wilcoxon signed-rank"), (5, "Mann-Whitney U")):
        found = {c.quantity: c for c in compare(_pair(trials, 1.1, 3, pairs=True), "b")}
        assert found["ttft_s"].paired and found["ttft_s"].test == test
        assert found["ttft_s"].paired_ratio is not None
    broken = _pair(6, 1.1, 3, pairs=True)
    broken[0] = invalid(broken[0])
    found = {c.quantity: c for c in compare(broken, "b")}
    assert not found["ttft_s"].paired and found["ttft_s"].paired_ratio is None


def test_the_median_of_paired_ratios_stands_beside_the_ratio_of_medians() -> None:
    base, new = (10.0, 20.0, 30.0), (11.0, 30.0, 33.0)
    rows = [trial("b", t, pair=f"p{i}") for i, t in enumerate(base)]
    rows += [trial("a", t, pair=f"p{i}") for i, t in enumerate(new)]
    (ttft,) = [c for c in compare(rows, "b") if c.quantity == "ttft_s"]
    assert ttft.ratio is not None and ttft.paired_ratio is not None
    assert ttft.ratio.value == pytest.approx(30 / 20)
    assert ttft.paired_ratio.value == pytest.approx(1.1)


def test_identical_routes_are_told_apart_in_at_most_eight_percent_of_studies() -> None:
    alarms = 0
    for seed in range(400):
        rng = np.random.default_rng(seed)
        a, b = rng.lognormal(0, 0.05, 5 + seed % 6), rng.lognormal(0, 0.05, 5 + seed % 6)
        alarms += rank_sum(a, b) < 0.05
    assert alarms <= 32


def test_a_zero_base_has_a_difference_but_no_ratio() -> None:
    rows = [trial("b", prefix_reuse=0.0), trial("a", prefix_reuse=0.5)]
    (reuse,) = [c for c in compare(rows, "b") if c.quantity == "prefix_reuse"]
    assert reuse.ratio is None and reuse.difference is not None and reuse.difference.value == 0.5


def test_across_compares_equal_names_and_single_routes_whatever_they_are_called() -> None:
    old = [trial("a", 2.0), trial("b", 4.0)]
    new = [trial("a", 3.0), trial("b", 4.0)]
    ttft = {c.route: c for c in across(old, new) if c.quantity == "ttft_s"}
    assert ttft["a"].ratio is not None and ttft["a"].ratio.value == 1.5
    assert (ttft["b"].route, ttft["b"].base) == ("b", "b")
    (one,) = [c for c in across(old[:1], [trial("z", 3.0)]) if c.quantity == "ttft_s"]
    assert (one.route, one.base) == ("z", "a")
    assert across(old, [trial("z", 3.0)]) == []


def test_a_route_that_fell_back_on_one_side_is_compared_with_itself_and_called_so() -> None:
    def rows(name: str, *states: Speculated) -> list[Measurement]:
        return [
            trial(name, 2.0, number=number, verdict=Verdict(valid=True, speculation=state))
            for number, state in enumerate(states)
        ]

    def pairs(new: list[Measurement], old: list[Measurement]) -> list[tuple[str, str]]:
        return [(one.route, one.base) for one in across(old, new) if one.quantity == "ttft_s"]

    plain = rows("plain", "none")
    for others in ([], plain):
        beside = [("plain", "plain")] if others else []
        fell, ran = (rows("mtp4", state) + others for state in ("fallback", "as declared"))
        assert pairs(fell, ran) == [("mtp4 (fallback)", "mtp4"), *beside]
        assert pairs(ran, fell) == [("mtp4", "mtp4 (fallback)"), *beside]
        assert pairs(fell, fell) == [("mtp4 (fallback)", "mtp4 (fallback)"), *beside]
    some = rows("mtp4", "as declared", "fallback")
    assert pairs(some, rows("mtp4", "as declared")) == [("mtp4", "mtp4"), ("mtp4 (fallback)", "mtp4")]
    assert pairs(some, some) == [("mtp4", "mtp4"), ("mtp4 (fallback)", "mtp4 (fallback)")]
    assert pairs(some, rows("other", "as declared")) == [("mtp4", "other"), ("mtp4 (fallback)", "other")]


def test_no_state_that_one_side_alone_has_is_dropped_without_a_word() -> None:
    """A base that speculated in part stands beside a new run that never did, in both of its states."""

    def pairs(new: list[Measurement], old: list[Measurement]) -> list[tuple[str, str]]:
        return [(one.route, one.base) for one in across(old, new) if one.quantity == "ttft_s"]

    states = Verdict(valid=True, speculation="as declared"), Verdict(valid=True, speculation="fallback")
    ran, fell = (
        [trial("mtp4", ttft, number=n, verdict=state) for n in range(3)]
        for ttft, state in zip((1.0, 2.0), states, strict=True)
    )
    fallback = "mtp4 (fallback)"
    assert pairs(fell, ran + fell) == [(fallback, fallback), (fallback, "mtp4")]
    assert pairs(ran, ran + fell) == [("mtp4", "mtp4"), ("mtp4", fallback)]
    assert pairs(ran + fell, fell) == [("mtp4", fallback), (fallback, fallback)]
    other = [structs.replace(row, route="old") for row in ran + fell]
    assert pairs(fell, other) == [(fallback, "old (fallback)"), (fallback, "old")]
    (against,) = [one for one in across(ran + fell, fell) if one.base == "mtp4" and one.quantity == "ttft_s"]
    assert against.ratio is not None and against.ratio.value == 2.0


def test_nothing_measured_is_nothing_compared() -> None:
    assert compare([]) == []
    assert compare([trial("a"), invalid(trial("b"))], "a") == []


def _info(version: str, tiers: tuple[int, ...], hardware: str) -> RunInfo:
    route = Route(
        name="mtp4",
        base_url="http://h/v1",
        speculation=Speculation(method="mtp", num_speculative_tokens=4),
        setting={"hardware": hardware},
    )
    suite = Suite(
        name="s", tiers=tiers, conditions=("cold",), output_tokens=64, repeats=2, replays=1, seed=1,
        warmup="short", retry_invalid=1, interleave=False, prompt=PromptSettings(), routes=(route,),
    )  # fmt: skip
    facts = {"mtp4": ServerFacts(engine="vllm", version=version, flags={"block": version})}
    return RunInfo(
        schema=1, id="r", created_at="", nonce="n", suite=suite, suite_text="", plan=(), facts=facts
    )


def test_what_differs_between_two_runs_is_listed() -> None:
    base = _info("0.32", (512,), "V100")
    assert changed_settings(base, base) == []
    assert changed_settings(base, _info("0.33", (1024,), "H100")) == [
        "mtp4, hardware: V100 -> H100",
        "mtp4, version: 0.32 -> 0.33",
        "mtp4, flag block: 0.32 -> 0.33",
        "tiers: (512,) -> (1024,)",
    ]


def test_what_a_server_reckons_from_its_memory_is_no_difference_of_settings() -> None:
    base = _info("0.32", (512,), "V100")
    told = structs.replace(base.facts["mtp4"], flags={"block": "0.32", "full_length_requests": "4.0"})
    assert changed_settings(structs.replace(base, facts={"mtp4": told}), base) == []


def test_totals_of_unequal_outputs_are_reckoned_at_the_length_both_sides_reached() -> None:
    # at 101 tokens 2 + 100 x 0.01 = 3 against 1 + 100 x 0.02 = 3; as measured 3 would stand beside 7
    rows = [trial("a", 2.0, 0.01, output=101, number=i) for i in range(6)]
    rows += [trial("b", 1.0, 0.02, output=301, number=i) for i in range(6)]
    (total,) = [one for one in compare(rows, "b") if one.quantity == "total_s"]
    assert total.ratio is not None and total.ratio.value == pytest.approx(1.0)
    assert (total.verdict, total.output_tokens) == ("~", 101)
    assert total.warnings[0] == (
        "total latencies are reckoned at 101 output tokens by TTFT and time per token: "
        "outputs are 101 and 301 tokens long"
    )
    (decode,) = [one for one in compare(rows, "b") if one.quantity == "decode_tok_s"]
    assert decode.output_tokens is None and decode.warnings == ()


def test_outputs_within_a_hundredth_are_one_length_and_totals_stay_as_measured() -> None:
    rows = [trial("a", 2.0, 0.01, output=200, number=i, total_s=9.0) for i in range(6)]
    rows += [trial("b", 1.0, 0.02, output=202, number=i, total_s=3.0) for i in range(6)]
    (total,) = [one for one in compare(rows, "b") if one.quantity == "total_s"]
    assert total.ratio is not None and total.ratio.value == 3.0 and total.output_tokens is None


def test_outputs_that_vary_from_trial_to_trial_are_reckoned_at_one_length_too() -> None:
    # equal speeds and equal median lengths; as measured the totals would scatter by their lengths
    lengths = (50, 100, 150, 200, 400, 500)
    rows = [trial(r, 1.0, 0.01, output=n, number=i) for r in "ab" for i, n in enumerate(lengths)]
    (total,) = [one for one in compare(rows, "b") if one.quantity == "total_s"]
    assert total.output_tokens == 175 and total.difference is not None
    assert (total.difference.low, total.difference.high) == (0.0, 0.0)
    assert "50 to 500 and 50 to 500" in total.warnings[0]


@pytest.mark.parametrize("missing", [{"ttft_s": None}, {"tpot_s": None}, {"output_tokens": None}])
def test_totals_that_cannot_be_reckoned_at_one_length_are_not_compared(missing: dict[str, None]) -> None:
    rows = [trial("a", 2.0, 0.01, output=101, number=i) for i in range(6)]
    rows += [trial("b", 1.0, 0.02, output=301, number=i) for i in range(6)]
    rows[0] = structs.replace(rows[0], **missing)
    (total,) = [one for one in compare(rows, "b") if one.quantity == "total_s"]
    assert (total.verdict, total.lacking, total.ratio, total.difference) == (
        "undecided",
        "length",
        None,
        None,
    )
    assert len(total.warnings) == 1


def test_what_chance_alone_would_show_is_told_with_the_number_of_comparisons() -> None:
    rows = [
        row
        for tier, ratio in ((1000, 1.0), (2000, 2.0))
        for route, factor in (("a", ratio), ("b", 1.0))
        for row in study(route, 10 * factor, 0.02, 6, np.random.default_rng(tier + len(route)), tier=tier)
    ]
    found = [one for one in compare(rows, "b") if one.quantity in ("ttft_s", "decode_tok_s")]
    # four comparisons, the TTFT of one tier differs; 4 x 5% = 0.2
    assert by_chance(found) == (
        "1 of 4 comparisons shows a difference; of as many between equal routes up to 0.2 would by chance "
        "(5% each)"
    )
    assert by_chance(compare(rows[:4] + rows[6:10], "b")) is None
    assert by_chance([]) is None
