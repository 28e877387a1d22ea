"""Trials of one prompt text count as one: in medians, intervals, tests and crossovers."""

from __future__ import annotations

import numpy as np
import pytest
from decision_samples import trial
from msgspec import structs

from bench.analysis.decisions.crossover import crossovers
from bench.analysis.decisions.gate import gate, parse_rule
from bench.analysis.statistics import decode, prefill
from bench.analysis.statistics.compare import compare
from bench.analysis.statistics.curves import curve_key
from bench.analysis.statistics.levels import levels
from bench.analysis.statistics.summary import summarise
from bench.analysis.statistics.texts import Texts, in_pairs, text_keys
from bench.records import Condition, Measurement, Window


def group(
    route: str, repeat: int, steps: dict[str, float], ttft: float = 1.0, **more: object
) -> list[Measurement]:
    """A cold prompt and the trials of its text, by condition: step time in seconds.

    As in a run: a replay has the cold prompt's hash, the salted twin one of its own.
    """
    return [
        trial(
            route, ttft, step, condition=name.split(".")[0], replay=int(f"{name}.0".split(".")[1]),  # type: ignore[arg-type]
            number=repeat, pair=f"{repeat}s" if name == "salted" else f"{repeat}c", **more,  # type: ignore[arg-type]
        )
        for name, step in steps.items()
    ]  # fmt: skip


def test_cold_salted_and_replayed_trials_of_a_repeat_share_a_text() -> None:
    rows = group("a", 1, {"cold": 0.01, "salted": 0.01, "replay.1": 0.01}) + group("a", 2, {"salted": 0.01})
    assert text_keys(rows) == ["1c", "1c", "1c", "2s"]
    assert len(Texts(rows)) == 2


def test_rows_that_do_not_tell_their_text_are_texts_of_their_own() -> None:
    rows = [trial("a"), trial("a", condition="salted"), trial("a")]
    assert text_keys(rows) == [None] * 3
    assert len(Texts(rows)) == 3
    assert in_pairs(Texts(rows), Texts(rows)) is None


def test_several_cold_prompts_in_a_repeat_keep_their_own_texts() -> None:
    # a table that names prompts but no repeats: its salted rows belong to none of them
    rows = [trial("a", pair="x"), trial("a", pair="y"), trial("a", pair="z", condition="salted")]
    assert text_keys(rows) == ["x", "y", "z"]


def test_a_texts_value_is_the_median_of_its_trials_that_have_one() -> None:
    rows = [
        *group("a", 2, {"cold": 0.05, "replay.1": 0.01, "replay.2": 0.02}),
        *group("a", 1, {"cold": 0.04, "salted": 0.02}),
        *group("a", 3, {"cold": 0.07}),
    ]
    rows[1] = structs.replace(rows[1], tpot_s=None)
    assert Texts(rows).column("tpot_s").tolist() == pytest.approx([0.03, 0.035, 0.07])  # by name
    assert Texts(rows).column("acceptance").tolist() == []
    estimate = Texts(rows).median("tpot_s")
    assert estimate is not None and (estimate.samples, estimate.trials, estimate.spread) == (3, 5, "range")
    assert (estimate.value, estimate.low, estimate.high) == pytest.approx((0.035, 0.03, 0.07))
    assert Texts(rows).median("acceptance") is None


def test_three_texts_of_two_trials_carry_a_range_and_no_test() -> None:
    rows = [
        row
        for route, scale in (("a", 1.0), ("b", 1.5))
        for repeat, step in ((1, 0.010), (2, 0.011), (3, 0.012))
        for row in group(route, repeat, {"cold": step * scale, "salted": step * scale * 1.02})
    ]
    cold = next(one for one in summarise(rows) if one.condition == "cold")
    assert (cold.valid, cold.estimates["tpot_s"].samples, cold.estimates["tpot_s"].trials) == (6, 3, 6)
    assert cold.estimates["tpot_s"].spread == "range"
    decode_rate = next(one for one in compare(rows, "b") if one.quantity == "decode_tok_s")
    assert (decode_rate.verdict, decode_rate.p_value, decode_rate.paired) == ("undecided", None, True)
    assert decode_rate.warnings == ("no test below 5 texts a side: there are 3 and 3 (6 and 6 trials)",)
    assert decode_rate.ratio is not None and decode_rate.ratio.value == pytest.approx(1.5)
    (crossing,) = crossovers(rows, "b")
    assert (crossing.samples, crossing.trials) == ((3, 3), (6, 6))
    assert "a range of what was measured: an interval needs 5 texts a side" in crossing.warnings
    (rule,) = gate(
        [row for row in rows if row.route == "a"],
        [row for row in rows if row.route == "b"],
        [parse_rule("tpot cold 1000 <= 1.05")],
    )
    assert (rule.status, rule.samples, rule.more) == ("cannot tell", 3, 2)
    assert rule.why == "a range is no interval: it takes 2 more texts a side"


def test_one_text_of_several_trials_is_a_point() -> None:
    rows = [
        row
        for route, ttft, step in (("a", 2.0, 0.01), ("b", 1.0, 0.02))
        for row in group(route, 1, {"cold": step, "salted": step}, ttft)
    ]
    (one,) = crossovers(rows, "b")
    assert (one.spread, one.samples, one.trials) == (None, (1, 1), (2, 2))
    assert "one text a side: no spread is known" in one.warnings


def test_six_texts_are_paired_by_text_though_one_lacks_its_salted_twin() -> None:
    rng = np.random.default_rng(3)
    rows = []
    for repeat in range(1, 7):
        text = rng.lognormal(0, 0.2)  # what both routes make of this text alike
        for route, scale in (("a", 1.1), ("b", 1.0)):
            steps = {"cold": 0.01 * text * scale, "salted": 0.01 * text * scale}
            rows += group(route, repeat, steps)
    del rows[1]  # the first salted trial of a
    step = next(one for one in compare(rows, "b") if one.quantity == "tpot_s")
    assert (step.paired, step.test, step.verdict) == (True, "Wilcoxon signed-rank", "higher")
    assert step.p_value == pytest.approx(2 / 2**6)
    assert step.paired_ratio is not None and step.paired_ratio.value == pytest.approx(1.1)


def test_laws_count_texts_and_name_their_trials() -> None:
    rows = [
        row
        for tier in (1_000, 9_000)
        for repeat in (1, 2)
        for row in group("a", repeat, {"cold": 0.01, "salted": 0.02, "replay.1": 0.06}, tier / 100, tier=tier)
    ]
    step, ttft = decode.fit(rows)["a"], prefill.fit(rows)["a"]
    assert (step.samples, step.trials) == (4, 12)
    assert step.steps_s[0] == pytest.approx((0.02, 0.02))
    assert (ttft.samples, ttft.trials, ttft.freedom) == (4, 8, 4 - len(ttft.terms))


def test_curves_are_put_together_by_text() -> None:
    # by text: a's streams start at 1.5 and 1.7 s, b's at 1.0 s; pooled, a's median would be 1.4
    tokens = np.arange(1.0, 201.0)
    rows, curves = [], {}
    for route, step, texts in (("a", 0.01, ((1.4, 1.4, 1.7), (1.7,))), ("b", 0.015, ((1.0,), (1.0,)))):
        for repeat, starts in enumerate(texts, 1):
            for replay, ttft in enumerate(starts):
                row = trial(
                    route, ttft, step, output=200, condition="replay", number=repeat, replay=replay,
                    pair=f"{repeat}c", trial_id=f"{route}/{repeat}.{replay}",
                )  # fmt: skip
                rows.append(row)
                curves[curve_key(row)] = (tokens, ttft + step * (tokens - 1))
    (one,) = crossovers(rows, "b", curves=curves)
    # texts of 1.4 and 1.7 s: 1 + 0.55 / 0.005
    assert (one.basis, one.samples, one.trials) == ("curve", (2, 2), (4, 2))
    assert one.output_tokens == pytest.approx(111.0)
    assert (one.low, one.high) == pytest.approx((81.0, 141.0))


def test_waves_of_the_same_texts_count_as_one() -> None:
    waves: list[tuple[int, Condition, float]] = [
        (1, "cold", 2.0), (1, "salted", 4.0), (2, "cold", 5.0), (2, "salted", 5.0),
    ]  # fmt: skip
    rows = [
        trial(
            "a", 1.0, 0.01, condition=condition, number=repeat, concurrency=2, stream=stream,
            pair=f"{repeat}{condition}{stream}", trial_id=f"{repeat}{condition}{stream}",
            window=Window(id=f"{repeat}{condition}", size=2, span_s=span),
        )
        for repeat, condition, span in waves
        for stream in (1, 2)
    ]  # fmt: skip
    (one,) = levels(rows)
    assert one.waves == 4 and one.requests_s is not None
    # texts: (2/2 + 2/4) / 2 = 0.75 and 2/5
    assert one.requests_s.value == pytest.approx((0.75 + 0.4) / 2)
    assert (one.requests_s.samples, one.requests_s.trials) == (2, 4)


@pytest.mark.parametrize("texts", [3, 4, 6])
def test_routes_that_differ_by_text_alone_are_seldom_told_apart(texts: int) -> None:
    # 3% from text to text, 0.2% from trial to trial; counted by trials, 13 to 21% of studies would be
    alarms = 0
    for seed in range(150):
        rng = np.random.default_rng(seed)
        rows = []
        for route in "ab":
            for repeat in range(1, texts + 1):
                step = 0.01 * (1 + 0.03 * rng.standard_normal())
                noise = 1 + 0.002 * rng.standard_normal(2)
                rows += group(route, repeat, {"cold": step * noise[0], "salted": step * noise[1]})
        alarms += any(
            one.verdict in ("higher", "lower") for one in compare(rows, "a") if one.quantity == "decode_tok_s"
        )
    assert alarms <= 12  # 7.5 expected at most
