from __future__ import annotations

import json

import numpy as np
import pytest
from decision_samples import study, trial
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from msgspec import structs

from bench.analysis.decisions.claims import hedge
from bench.analysis.decisions.crossover import as_json, crossovers, one_way
from bench.analysis.statistics.curves import Curves, curve_key
from bench.errors import SuiteError
from bench.records import Crossover, Measurement


def _one(rows: list[Measurement], base: str = "b", **more: object) -> Crossover:
    (one,) = crossovers(rows, base, **more)  # type: ignore[arg-type]
    return one


@pytest.mark.parametrize(
    ("a", "b", "status", "wins"),
    [
        ((2.0, 0.01), (1.0, 0.02), "crosses", "above"),
        ((1.0, 0.02), (2.0, 0.01), "crosses", "below"),
        ((1.0, 0.01), (2.0, 0.02), "always", None),
        ((2.0, 0.02), (1.0, 0.01), "never", None),
        ((1.0, 0.01), (1.0, 0.02), "always", None),
        ((1.0, 0.02), (1.0, 0.01), "never", None),
        ((1.0, 0.01), (2.0, 0.01), "always", None),
        ((2.0, 0.01), (1.0, 0.01), "never", None),
        ((1.0, 0.01), (1.0, 0.01), "undecided", None),
    ],
)
def test_equal_trials_decide_by_their_own_times_and_ties_by_the_other_term(
    a: tuple[float, float], b: tuple[float, float], status: str, wins: str | None
) -> None:
    one = _one([trial("a", *a), trial("b", *b)] * 2)
    assert (one.status, one.wins) == (status, wins)
    if status == "crosses":
        # by hand: 1 + (2 - 1) / (0.02 - 0.01)
        assert one.output_tokens == pytest.approx(101.0)


def test_single_trials_cross_at_a_point_and_claim_nothing_for_every_length() -> None:
    point = _one([trial("a", 2.0, 0.01), trial("b", 1.0, 0.02)])
    assert (point.status, point.wins, point.spread) == ("crosses", "above", None)
    assert point.output_tokens == pytest.approx(101.0) and (point.low, point.high) == (None, None)
    assert "one trial a side: no spread is known" in point.warnings
    for a, b, faster in (((1.0, 0.01), (2.0, 0.02), "a"), ((2.0, 0.02), (1.0, 0.01), "b")):
        one = _one([trial("a", *a), trial("b", *b)])
        assert one.status == "undecided"
        assert f"by the points alone {faster} is faster at every output length" in one.warnings


@pytest.mark.parametrize(
    ("samples", "words"),
    [
        ((5, 6), ""),
        ((6, 2), "in the range seen of 6 and 2 trials"),
        ((6, 1), "in the range seen of 6 and 1 trials"),
        ((6, 6, 4), "in the range seen of 6, 6 and 4 trials"),
        ((1, 1), "a point: one trial a side, no spread"),
    ],
)
def test_one_rule_says_what_a_claim_must_carry(samples: tuple[int, ...], words: str) -> None:
    assert hedge(*samples) == words


def test_equal_starts_leave_open_only_the_first_tokens() -> None:
    # the widest head start of b, 0.2 s, is won back by 10 ms a token within 20 tokens behind the first
    rows = [trial("a", t, 0.01) for t in (0.9, 1.1)] + [trial("b", t, 0.02) for t in (0.9, 1.1)]
    for one in crossovers(rows):
        assert (one.status, one.ahead, one.ahead_to) == ("undecided", "a", None)
        assert one.ahead_from == pytest.approx(21.0)


def test_equal_steps_leave_open_only_what_lies_far_out() -> None:
    # b may win back at most 2 ms a token of the 0.1 s or more by which a is ahead: 50 tokens at the least
    rows = [trial("a", 1.0, p) for p in (0.010, 0.011)] + [trial("b", 1.1, p) for p in (0.009, 0.011)]
    (one,) = crossovers(rows, "b")
    assert (one.status, one.ahead, one.ahead_from) == ("undecided", "a", None)
    assert one.ahead_to == pytest.approx(51.0)


def test_what_would_be_decided_far_beyond_the_measured_outputs_is_not_told() -> None:
    # a head start of 8 s at most, 10 ms a token: 800 tokens, where 101 were measured
    rows = [trial("a", t, 0.01) for t in (2.0, 10.0)] + [trial("b", t, 0.02) for t in (2.0, 10.0)]
    (one,) = crossovers(rows, "b")
    assert (one.status, one.ahead, one.ahead_from) == ("undecided", None, None)


def test_a_difference_that_contains_nothing_is_undecided_and_says_in_what() -> None:
    rows = [trial("a", t, 0.01) for t in (1.0, 3.0)] + [trial("b", t, 0.02) for t in (2.0, 2.1)]
    one = _one(rows)
    assert (one.status, one.output_tokens) == ("undecided", None)
    assert "no difference shown in TTFT" in one.warnings


def test_first_chunks_of_several_tokens_enter_the_formula() -> None:
    # L_a = 2 + (n - 4) * 0.01, L_b = 1 + (n - 1) * 0.02 meet at 98: 2.94
    one = _one([trial("a", 2.0, 0.01, first_chunk_tokens=4), trial("b", 1.0, 0.02)])
    assert one.output_tokens == pytest.approx(98.0)


def test_five_trials_a_side_give_an_interval_fewer_a_range() -> None:
    rng = np.random.default_rng(2)
    rows = study("a", 20, 0.01, 6, rng) + study("b", 10, 0.03, 5, rng)
    one = _one(rows)
    assert (one.status, one.spread, one.samples) == ("crosses", "interval", (6, 5))
    assert (one.low or 0) < 501 < (one.high or 0)
    fewer = _one(rows[:-1])
    assert fewer.spread == "range"
    assert any("a range of what was measured" in text for text in fewer.warnings)


def test_salted_samples_count_as_cold_and_replays_are_their_own() -> None:
    rows = [trial(r, t, p, condition=c) for r, t, p in (("a", 2.0, 0.01), ("b", 1.0, 0.02))
            for c in ("cold", "salted", "replay")]  # fmt: skip
    found = {one.condition: one.samples for one in crossovers(rows, "b")}
    assert found == {"cold": (2, 2), "replay": (1, 1)}


def test_json_has_exactly_the_promised_fields_and_no_nan() -> None:
    found = as_json(crossovers([trial("a", 2.0, 0.01), trial("b", 1.0, 0.02)], "b"))
    assert list(found[0]) == [
        "route", "base", "tier", "condition", "status", "wins", "output_tokens", "low", "high", "spread",
        "extrapolation", "samples", "trials", "task", "reused_tokens", "measured", "basis", "line_tokens",
        "until", "until_low", "until_high", "may_end", "ahead", "ahead_from", "ahead_to", "warnings",
    ]  # fmt: skip
    assert json.loads(json.dumps(found, allow_nan=False))[0]["samples"] == [1, 1]


def test_every_pair_both_ways_thins_to_the_one_that_wins_above() -> None:
    rows = [trial("a", 2.0, 0.01), trial("b", 1.0, 0.02), trial("c", 3.0, 0.03)] * 2
    every = crossovers(rows)
    assert len(every) == 6
    told = {(one.route, one.base): (one.status, one.wins) for one in one_way(every)}
    assert told == {
        ("a", "b"): ("crosses", "above"),
        ("a", "c"): ("always", None),
        ("b", "c"): ("always", None),
    }


def test_an_unknown_base_is_an_error_and_a_route_without_times_is_left_out() -> None:
    with pytest.raises(SuiteError, match="no route 'x'"):
        crossovers([trial("a")], "x")
    assert crossovers([trial("a"), trial("b", None, 0.01), trial("c", 1.0, None)], "a") == []


_times = st.tuples(st.floats(0.01, 1000), st.floats(1e-4, 1))


@settings(max_examples=60, deadline=None)
@given(
    st.lists(_times, min_size=1, max_size=7), st.lists(_times, min_size=1, max_size=7), st.floats(1e-3, 1e3)
)
def test_swapping_routes_and_scaling_times_change_no_crossover(
    a: list[tuple[float, float]], b: list[tuple[float, float]], scale: float
) -> None:
    def rows(factor: float) -> list[Measurement]:
        return [
            trial(name, t * factor, p * factor, number=i + 1)
            for name, times in (("a", a), ("b", b))
            for i, (t, p) in enumerate(times)
        ]

    forth, back = crossovers(rows(1.0))
    assert (forth.output_tokens, forth.low, forth.high) == (back.output_tokens, back.low, back.high)
    mirror = {"above": "below", "below": "above", None: None}
    assert back.wins == mirror[forth.wins]
    turned = {"always": "never", "never": "always"}
    assert back.status == turned.get(forth.status, forth.status)
    scaled, _ = crossovers(rows(scale))
    # an end that touches 0 but for rounding may fall on either side of it
    differences = (forth.ttft_difference_s, forth.tpot_difference_s)
    ends = [end for e in differences if e is not None for end in (e.low, e.high, e.value) if end is not None]
    assume(all(end == 0 or abs(end) > 1e-9 for end in ends))
    assert scaled.status == forth.status
    if forth.output_tokens is not None:
        assert scaled.output_tokens == pytest.approx(forth.output_tokens, rel=1e-6)


@settings(max_examples=40, deadline=None)
@given(st.floats(1.1, 50), st.floats(1.01, 5))
def test_a_later_start_moves_the_crossover_out(start: float, more: float) -> None:
    near = _one([trial("a", start, 0.01), trial("b", 1.0, 0.02)])
    far = _one([trial("a", start * more, 0.01), trial("b", 1.0, 0.02)])
    assert (near.output_tokens or 0) < (far.output_tokens or 0)


def test_inside_the_window_the_measured_curves_decide() -> None:
    # b stalls once by 1 s at token 50: the line over the whole stream blurs that, the curve does not
    tokens = np.arange(1.0, 201.0)
    a, b = trial("a", 2.0, 0.01, output=200), trial("b", 1.0, 0.015, output=200)
    curves = {
        curve_key(a): (tokens, 2.0 + 0.01 * (tokens - 1)),
        curve_key(b): (tokens, 1.0 + 0.01 * (tokens - 1) + np.where(tokens >= 100, 1.5, 0.0)),
    }
    line = _one([a, b])
    assert line.basis == "line" and line.output_tokens == pytest.approx(201.0)
    inside = _one(
        [structs.replace(a, output_tokens=250), structs.replace(b, output_tokens=250)], curves=curves
    )
    assert inside.basis == "curve"
    assert inside.output_tokens == pytest.approx(99.7, abs=1.0)
    assert inside.line_tokens == pytest.approx(201.0)
    assert inside.extrapolation == pytest.approx((inside.output_tokens or 0) / 250)


def test_curves_of_five_trials_give_an_interval() -> None:
    rng = np.random.default_rng(2)
    tokens = np.arange(1.0, 513.0)
    rows, curves = [], {}
    for name, ttft, tpot in (("a", 2.0, 0.01), ("b", 1.0, 0.02)):
        for row in study(name, ttft, tpot, 5, rng, output=512):
            rows.append(row)
            curves[curve_key(row)] = (tokens, (row.ttft_s or 0) + (row.tpot_s or 0) * (tokens - 1))
    one = _one(rows, curves=curves)
    assert (one.basis, one.spread) == ("curve", "interval")
    assert one.output_tokens == pytest.approx(one.line_tokens, rel=0.03)
    assert (one.low or 0) < 101 < (one.high or 0)


def test_the_measured_length_is_the_one_both_routes_reached() -> None:
    one = _one([trial("a", 2.0, 0.01, output=50), trial("b", 1.0, 0.02, output=200)])
    assert one.measured == 50
    assert one.extrapolation == pytest.approx(101 / 50)


def test_the_order_in_which_routes_come_changes_no_interval() -> None:
    rng = np.random.default_rng(8)
    a, b = study("a", 20, 0.01, 6, rng), study("b", 10, 0.03, 7, rng)
    assert _one(a + b) == _one(b + a)


@pytest.mark.parametrize(("start", "basis"), [(1.9, "line"), (3.0, "slowing")])
def test_lines_bend_only_past_twice_the_measured_length(start: float, basis: str) -> None:
    rows = [
        trial(name, ttft, d0 + 20e-9 * (tier + 50), tier=tier, output=100)
        for tier in (1000, 100_000)
        for name, ttft, d0 in (("a", 1.0 + start, 0.010), ("b", 1.0, 0.020))
    ]
    one = {c.tier: c for c in crossovers(rows, "b")}[1000]
    assert one.extrapolation == pytest.approx((1 + 100 * start) / 100, rel=1e-6)
    assert one.basis == basis


def test_curves_that_cross_several_times_count_the_last_and_say_so() -> None:
    tokens = np.arange(1.0, 201.0)
    ahead = np.interp(tokens, [1, 50, 100, 150, 200], [-0.4, 0.2, -0.2, 0.2, 0.4])  # b minus a, seconds
    a, b = trial("a", 2.0, 0.01, output=200), trial("b", 1.6, 0.01 + 0.8 / 199, output=200)
    flat = 2.0 + 0.01 * (tokens - 1)
    one = _one([a, b], curves={curve_key(a): (tokens, flat), curve_key(b): (tokens, flat + ahead)})
    assert one.output_tokens == pytest.approx(125.0, abs=0.5)
    assert one.basis == "curve"
    assert any("cross 3 times: the last lead counts" in text for text in one.warnings)


def test_streams_that_bend_are_named() -> None:
    tokens = np.arange(1.0, 102.0)
    steps = np.where(tokens <= 51, 0.01, 0.013)
    a, b = trial("a", 2.0, 0.0115), trial("b", 1.0, 0.02)
    curves = {
        curve_key(a): (tokens, 2.0 + np.concatenate([[0], np.cumsum(steps[1:])])),
        curve_key(b): (tokens, 1.0 + 0.02 * (tokens - 1)),
    }
    (bent,) = [text for text in _one([a, b], curves=curves).warnings if "second half" in text]
    assert bent == (
        "a decodes 30% slower in the second half of its streams: "
        "what straight lines say further out may be off"
    )


def test_far_out_the_lines_bend_as_decode_slows_with_context() -> None:
    # steps: a 10 ms + 500 ns x context, b 20 ms + 10 ns x context, measured over 100 tokens
    rows = [
        trial(name, ttft, d0 + d1 * (tier + 50), tier=tier, output=100)
        for tier in (1000, 100_000)
        for name, ttft, d0, d1 in (("a", 30.0, 0.010, 500e-9), ("b", 10.0, 0.020, 10e-9))
    ]
    one = {c.tier: c for c in crossovers(rows, "b")}[1000]
    n = np.arange(1, 10_000)
    a, b = (
        t + np.cumsum(d0 + d1 * (1000 + n)) for t, d0, d1 in ((30.0, 0.010, 500e-9), (10.0, 0.020, 10e-9))
    )
    truth = int(np.argmax(a < b)) + 1
    assert one.basis == "slowing"
    assert one.output_tokens == pytest.approx(truth, abs=3)
    assert one.line_tokens is not None and one.line_tokens < truth - 3
    assert any("extrapolated" in text for text in one.warnings)


def test_lines_that_never_meet_once_decode_slows_are_no_crossover() -> None:
    rows = [
        trial(name, ttft, d0 + d1 * (tier + 50), tier=tier, output=100)
        for tier in (1000, 100_000)
        for name, ttft, d0, d1 in (("a", 900.0, 0.018, 90e-9), ("b", 10.0, 0.020, 1e-9))
    ]
    one = {c.tier: c for c in crossovers(rows, "b")}[1000]
    assert (one.status, one.output_tokens, one.basis) == ("undecided", None, None)
    assert any("may never meet" in text for text in one.warnings)
    assert (one.ahead, one.ahead_to) == ("b", 200.0)  # twice what was measured


def test_one_tier_says_that_slowing_is_unknown() -> None:
    one = _one([trial("a", 20.0, 0.01), trial("b", 1.0, 0.02)])
    assert (one.basis, one.line_tokens) == ("line", None)
    assert any("unknown: it was measured on one tier" in text for text in one.warnings)


def test_pairs_share_their_noise_and_narrow_the_interval() -> None:
    rng = np.random.default_rng(6)
    a, b = study("a", 20, 0.01, 8, rng), study("b", 10, 0.03, 8, rng)
    shared = rng.lognormal(0, 0.2, 8)
    a = [structs.replace(r, ttft_s=20 * s) for r, s in zip(a, shared, strict=True)]
    b = [structs.replace(r, ttft_s=20 * s - 10) for r, s in zip(b, shared, strict=True)]
    alone = _one(a + b)
    pairs = _one([structs.replace(r, pair=f"p{r.repeat}") for r in a + b])
    assert alone.status == "undecided" or (alone.high or 0) > (pairs.high or 0)
    assert pairs.status == "crosses" and (pairs.low or 0) <= 501 * 1.05


def test_each_task_slows_by_its_own_law() -> None:
    def rows(task: str, slope: float) -> list[Measurement]:
        return [
            trial(route, ttft + tier / 1e4, step + d1 * (tier + 50), tier=tier, task=task, output=101)
            for tier in (1_000, 9_000)
            for route, ttft, step, d1 in (("a", 9.0, 0.01, slope), ("b", 1.0, 0.02, 0.0))
        ]

    alone = {task: crossovers(rows(task, slope), "b") for task, slope in (("x", 0.0), ("y", 1e-7))}
    both = crossovers([*rows("x", 0.0), *rows("y", 1e-7)], "b")
    for task, found in alone.items():
        mine = [one for one in both if one.task == task]
        assert mine == found and {one.basis for one in mine} == {"slowing"}


def test_what_is_said_of_undecided_pairs_holds_in_nine_of_ten_studies() -> None:
    """The true lines meet at 1 + 1 / 0.015 = 67.7 tokens, and at 1 + 1 / 0.0006 = 1,667.7."""
    said: dict[str, list[bool]] = {"from": [], "to": []}
    for number in range(120):
        rng = np.random.default_rng(number)
        base = study("b", 100.0, 0.030, 5, rng, output=512)
        late = _one([*base, *study("a", 101.0, 0.015, 5, rng, output=512)])
        if late.ahead_from is not None:
            said["from"].append(late.ahead == "a" and late.ahead_from >= 67.7)
        base = study("b", 21.0, 0.030, 5, rng, output=512)
        early = _one([*base, *study("a", 20.0, 0.0306, 5, rng, output=512)])
        if early.ahead_to is not None:
            said["to"].append(early.ahead == "a" and early.ahead_to <= 1_667.7)
    for held in said.values():
        assert len(held) > 40 and sum(held) >= 0.9 * len(held)


def test_requests_of_a_wave_leave_every_crossover_as_it_is() -> None:
    rows = [trial("a", 2.0, 0.01), trial("b", 1.0, 0.02)]
    waves = [trial(route, 9.0, 0.5, number=9, concurrency=4) for route in "ab"]
    assert crossovers([waves[0], *rows, waves[1]], "b") == crossovers(rows, "b")


def _slowing_streams(slopes: tuple[float, float], noise: float = 0.0) -> tuple[list[Measurement], Curves]:
    """Three trials a side of 400 tokens on one tier; each step is longer by a slope than the one before.

    a starts 60 s later; its first step takes 0.01 s, b's 0.03 s.
    """
    rng = np.random.default_rng(2)
    rows, curves = [], {}
    for route, ttft, first, slope in (("a", 61.0, 0.01, slopes[0]), ("b", 1.0, 0.03, slopes[1])):
        for number in range(3):
            steps = first + slope * np.arange(399) + noise * rng.standard_normal(399)
            tpot = float(steps.mean())
            row = trial(route, ttft, tpot, output=400, number=number)
            rows.append(row)
            curves[curve_key(row)] = (np.arange(1.0, 401.0), ttft + np.concatenate([[0.0], np.cumsum(steps)]))
    return rows, curves


def test_streams_that_slow_give_a_second_number_where_one_tier_gives_no_law() -> None:
    rows, curves = _slowing_streams((2e-6, 1e-6), noise=1e-5)
    (one,) = crossovers(rows, "b", curves=curves)
    # after x steps a has won 0.02 x - 0.5e-6 x^2 back, so 60 s at 20,000 - sqrt(20,000^2 - 1.2e8) = 3,267
    assert one.basis == "line"
    (text,) = [text for text in one.warnings if "streams themselves slow" in text]
    assert float(text.rsplit(" ", 1)[1].replace(",", "")) == pytest.approx(3_267, rel=0.02)
    # 0.02 x - 2e-6 x^2 never reaches 60 s
    rows, curves = _slowing_streams((5e-6, 1e-6), noise=1e-5)
    (never,) = crossovers(rows, "b", curves=curves)
    assert "going by how the streams themselves slow, the routes may never meet" in never.warnings


def test_streams_that_do_not_show_a_slope_say_nothing_of_it() -> None:
    rows, curves = _slowing_streams((0.0, 0.0), noise=1e-3)
    (one,) = crossovers(rows, "b", curves=curves)
    assert not any("streams themselves" in text for text in one.warnings)


_TOKENS = np.arange(1.0, 201.0)


def _streams(
    sides: dict[str, list[tuple[float, float, int]]],
) -> tuple[list[Measurement], dict[tuple[str, str, int], tuple[np.ndarray, np.ndarray]]]:
    """Trials (TTFT, step, output tokens) of straight streams, with their arrival curves."""
    rows, curves = [], {}
    for route, trials in sides.items():
        for number, (ttft, tpot, output) in enumerate(trials):
            row = trial(route, ttft, tpot, output=output, number=number + 1)
            rows.append(row)
            curves[curve_key(row)] = (_TOKENS[:output], ttft + tpot * (_TOKENS[:output] - 1))
    return rows, curves


@pytest.mark.parametrize(
    ("start", "met", "basis"),
    [(1.0, 101.0, "line"), (0.7, 41.0, "curve")],  # 1 + 0.5 / 0.005, 1 + 0.2 / 0.005
)
def test_a_stream_that_ends_early_ends_the_curves(start: float, met: float, basis: str) -> None:
    short = [(start, 0.010, 60)] * 4 + [(start, 0.010, 200)]
    rows, curves = _streams({"a": short, "b": [(0.5, 0.015, 200)] * 5})
    one = _one(rows, curves=curves)
    assert (one.measured, one.basis) == (200, basis)
    assert one.output_tokens == pytest.approx(met)
    said = "the measured curves do not meet up to 60 tokens, where the shortest ends"
    assert (said in one.warnings) == (basis == "line")


@pytest.mark.parametrize("starts", [(1.5, 1.55, 1.6, 1.65, 1.7), (1.5, 1.6, 1.7)])
def test_resamples_that_cross_outside_the_window_keep_their_place_in_the_interval(
    starts: tuple[float, ...],
) -> None:
    # 1 + 0.6 / 0.005 = 121 of 128; the fastest and the slowest start meet at 101 and 141
    trials = len(starts)
    rows, curves = _streams({"a": [(t, 0.010, 128) for t in starts], "b": [(1.0, 0.015, 128)] * trials})
    one = _one(rows, curves=curves)
    assert (one.basis, one.spread) == ("curve", "interval" if trials >= 5 else "range")
    assert one.output_tokens == pytest.approx(121.0)
    assert (one.low, one.high) == pytest.approx((101.0, 141.0))


def test_resamples_that_crossed_before_the_window_keep_their_place_too() -> None:
    # first chunks of 40 tokens: nothing is seen before them; 1 + 0.005 x (...) meets at 31, 51 and 71
    rows, curves = _streams(
        {"a": [(t, 0.010, 128) for t in (1.15, 1.25, 1.35)], "b": [(1.0, 0.015, 128)] * 3}
    )
    late = {key: (tokens[39:], seconds[39:]) for key, (tokens, seconds) in curves.items()}
    one = _one(rows, curves=late)
    assert one.basis == "curve" and one.output_tokens == pytest.approx(51.0)
    assert (one.low, one.high) == pytest.approx((31.0, 71.0))


def test_the_slopes_own_scatter_is_in_the_spread_far_out() -> None:
    # at 1,000 tokens the trials are equal, at 101,000 a's steps take 20 and 22 ms: d1 = 100 to 120 ns
    rows = [
        trial(route, ttft, step, tier=tier, output=100, number=number)
        for number, far in ((1, 0.020), (2, 0.022))
        for route, tier, ttft, step in (
            ("a", 1_000, 61.0, 0.010),
            ("a", 101_000, 61.0, far),
            ("b", 1_000, 1.0, 0.030),
            ("b", 101_000, 1.0, 0.030),
        )
    ]
    one = {c.tier: c for c in crossovers(rows, "b")}[1_000]

    def root(slope: float) -> float:
        # x steps win back 0.02 x - slope / 2 x (x - 99) of the 60 s
        return 1 + float(min(np.roots([slope / 2, -0.02 - slope / 2 * 99, 60.0])))

    assert (one.basis, one.spread) == ("slowing", "range")
    assert one.output_tokens == pytest.approx(root(110e-9))
    assert (one.low, one.high) == pytest.approx((root(100e-9), root(120e-9)))


def test_a_slope_from_a_single_trial_gives_a_point() -> None:
    rows = [trial(r, t, p, output=100) for r, t, p in (("a", 61.0, 0.010), ("b", 1.0, 0.030))] * 2
    rows += [trial(r, t, p, tier=9_000, output=100) for r, t, p in (("a", 61.0, 0.011), ("b", 1.0, 0.030))]
    one = {c.tier: c for c in crossovers(rows, "b")}[1_000]
    assert (one.status, one.basis) == ("crosses", "slowing")
    assert (one.low, one.high, one.spread) == (None, None, None)


def test_intervals_far_out_hold_what_they_promise() -> None:
    # tiers a third apart, 2% noise, 220 times the measured output: with exact slopes half of them would miss
    laws = {"a": (150.0, 0.010, 4e-8), "b": (0.0, 0.016, 1e-8)}
    n = np.arange(2, 100_000)
    gap = 150.0 + (n - 1) * (-0.006 + 3e-8 * (8_000 + n / 2))
    truth = float(n[np.argmax(gap < 0)])
    covered = 0
    for seed in range(80):
        rng = np.random.default_rng(seed)
        rows = [
            row
            for route, (late, d0, d1) in laws.items()
            for tier in (8_000, 12_000)
            for row in study(
                route, tier / 270 + late, d0 + d1 * (tier + 64), 6, rng,
                noise=(0.02, 0.02), tier=tier, output=128,
            )
        ]  # fmt: skip
        one = {c.tier: c for c in crossovers(rows, "b")}[8_000]
        if one.basis == "slowing":
            covered += (one.low or 0) <= truth and (one.high is None or truth <= one.high)
    assert covered >= 72
