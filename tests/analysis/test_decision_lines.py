from __future__ import annotations

from typing import Literal

import numpy as np
import pytest
from decision_samples import study, trial
from leads import lead_that_ends

from bench.analysis.decisions.claims import counted
from bench.analysis.decisions.crossover import crossovers
from bench.analysis.decisions.lines import report_lines
from bench.analysis.statistics.arrival import arrival
from bench.analysis.statistics.compare import compare
from bench.records import Chunks, Crossover, Exchange, Measurement, PromptRecipe, Trial


def _lines(rows: list[Measurement], base: str = "b") -> list[str]:
    return report_lines(rows, compare(rows, base), crossovers(rows, base))


def test_nothing_measured_says_nothing() -> None:
    assert report_lines([]) == []


def test_no_difference_is_said_and_no_number_is_given_for_it() -> None:
    rng = np.random.default_rng(5)
    lines = _lines(study("a", 10, 0.02, 8, rng) + study("b", 10, 0.02, 8, rng))
    assert "decode of a and b: no difference seen (~) at 1,000" in lines
    assert not any("decode is" in line or "beats" in line for line in lines)


def test_a_spread_that_reaches_the_other_side_is_no_claim() -> None:
    rows = [trial("a", t, 0.01) for t in (1.0, 3.0)] + [trial("b", 2.0, 0.02)]
    lines = _lines(rows)
    assert not any("TTFT" in line for line in lines)
    assert "a decode is 2.00x b at 1,000, in the range seen" in lines


def test_always_is_said_as_such() -> None:
    rows = [trial("a", 1.0, 0.01), trial("b", 2.0, 0.02)]
    assert "a beats b at every output length at 1,000" in _lines(rows * 5)
    assert not any("beats" in line for line in _lines(rows))


def test_a_claim_of_few_trials_says_that_it_is_the_range_seen() -> None:
    rows = [trial("a", 1.0, 0.01)] * 6 + [trial("b", 2.0, 0.02)] * 2
    line = "a beats b at every output length at 1,000, in the range seen of 6 and 2 trials"
    assert line in _lines(rows)


def test_an_undecided_start_leaves_the_longer_outputs_decided() -> None:
    rows = [trial("a", t, 0.01) for t in (0.9, 1.1)] + [trial("b", t, 0.02) for t in (0.9, 1.1)]
    line = "a beats b from at most 21 output tokens on at 1,000, in the range seen of 2 and 2 trials"
    assert line in _lines(rows)


def test_the_share_of_the_limit_needs_one_known_limit_for_every_route() -> None:
    rows = [trial("a", tier=5000), trial("b", tier=5000)]
    assert report_lines(rows, limits={"a": 10_000, "b": 10_000}) == [
        "tested up to 5,000 tokens, 50% of the served limit; nothing measured above"
    ]
    for limits in ({"a": 10_000}, {"a": 10_000, "b": 20_000}, {}):
        assert report_lines(rows, limits=limits) == ["tested up to 5,000 tokens; nothing measured above"]


def test_small_differences_keep_their_digits_and_their_unit() -> None:
    rows = [trial("a", t, 0.0100) for t in (1.0042, 1.0049)] + [trial("b", 1.0, 0.01003)] * 2
    assert _lines(rows)[:2] == [
        "TTFT of a is 4.20-4.90 ms slower than b's at 1,000, in the range seen",
        "a decode is 1.003x b at 1,000, in the range seen",
    ]


def test_a_crossover_before_any_answer_is_long_is_told_as_such() -> None:
    # 1 + 0.004 / 0.01 = 1.4 output tokens
    lines = _lines([trial("a", 1.004, 0.01), trial("b", 1.0, 0.02)])
    point = "(a point: one trial a side, no spread)"
    assert f"a beats b from the second output token on at 1,000 {point}" in lines
    lines = _lines([trial("b", 1.004, 0.01), trial("a", 1.0, 0.02)])
    assert f"a beats b only for a single output token at 1,000 {point}" in lines


@pytest.mark.parametrize(
    ("low", "high", "wins", "said"),
    [
        (1.1, 1.8, "above", "from the second output token on at 1,000 (1.1 to 1.8, 95%)"),
        (1.1, 1.8, "below", "only for a single output token at 1,000 (1.1 to 1.8, 95%)"),
        (1.0, 9.6, "above", "beyond about 1.4 output tokens at 1,000 (1.0 to 9.6, 95%)"),
        (1.0, 9.6, "below", "below about 1.4 output tokens at 1,000 (1.0 to 9.6, 95%)"),
        (1.1, None, "above", "beyond about 1.4 output tokens at 1,000 (at least 1.1, 95%)"),
        (None, 1.8, "above", "from the second output token on at 1,000 (at most 1.8, 95%)"),
    ],
)
def test_the_second_token_is_claimed_only_where_the_whole_spread_lies_before_it(
    low: float | None, high: float | None, wins: Literal["above", "below"], said: str
) -> None:
    one = Crossover(
        route="a", base="b", tier=1000, condition="cold", status="crosses", wins=wins, output_tokens=1.4,
        low=low, high=high, spread="interval", samples=(6, 6),
    )  # fmt: skip
    assert report_lines([], crossovers=[one]) == [f"a beats b {said}"]


def test_how_far_beyond_what_was_measured_is_always_said() -> None:
    near = _lines([trial("a", 2.0, 0.01), trial("b", 1.0, 0.03)])
    point = "(a point: one trial a side, no spread)"
    assert (
        f"a beats b beyond about 51 output tokens at 1,000 {point}; within the 101 measured (0.50x)" in near
    )
    far = _lines([trial("a", 9.0, 0.01), trial("b", 1.0, 0.03)])
    line = (
        f"a beats b beyond about 401 output tokens at 1,000 {point}; extrapolated 4.0-fold from 101 measured"
    )
    assert line in far


def test_a_bent_line_is_told_beside_the_straight_one() -> None:
    rows = [
        trial(route, ttft + tier / 1e4, step + slope * (tier + 50), tier=tier)
        for tier in (1_000, 9_000)
        for route, ttft, step, slope in (("a", 9.0, 0.01, 5e-7), ("b", 1.0, 0.02, 0.0))
    ]
    (bent,) = [line for line in _lines(rows) if line.startswith("a beats b") and " at 1,000" in line]
    # straight: 1 + 8 / 0.009475 = 845; each token more of context takes half a microsecond longer
    assert "(straight lines: 845)" in bent and "about 86" in bent


def test_tasks_are_named_where_there_are_several() -> None:
    rows = [trial(r, t, 0.01, task=task) for task in ("x", "y") for r, t in (("a", 2.0), ("b", 1.0))]
    lines = _lines(rows)
    point = "a point: one trial a side, no spread"
    assert f"TTFT of a is 1.00 s slower than b's at 1,000 (x), {point}" in lines
    assert f"TTFT of a is 1.00 s slower than b's at 1,000 (y), {point}" in lines


def _exchange(chunks: Chunks) -> Exchange:
    recipe = PromptRecipe(
        sha256="", tokens=1, endpoint="chat", corpus="python", corpus_sha256="", task="continue", start=0
    )
    one = Trial(id="a/1/cold/1", route="a", tier=1, condition="cold", repeat=1)
    return Exchange(trial=one, prompt=recipe, url="", sent_ns=0, ended_ns=9, chunks=chunks)


def test_arrival_curves_need_tokens_that_are_known() -> None:
    at = (10**9, 2 * 10**9, 2 * 10**9, 3 * 10**9)
    counted = arrival(_exchange(Chunks(at_ns=at, chars=(3, 3, 3, 0), tokens=(2, 4, 4, 4))), None)
    assert counted is not None
    assert counted[0].tolist() == [2, 4] and counted[1].tolist() == [1, 2]
    single = arrival(_exchange(Chunks(at_ns=at, chars=(3, 3, 3, 0))), 3)
    assert single is not None and single[0].tolist() == [1, 2, 3]
    assert arrival(_exchange(Chunks(at_ns=at, chars=(3, 3, 3, 0))), 7) is None
    assert arrival(_exchange(Chunks()), 3) is None


@pytest.mark.parametrize(
    ("samples", "trials", "text"),
    [
        ([1], None, "1 trial"),
        ([1_200], None, "1,200 trials"),
        ([1, 1], None, "one trial a side"),
        ([1, 1], [2, 2], "one text a side (2 and 2 trials)"),
        ([6, 1], None, "6 and 1 trials"),
        ([1], [3], "1 text (3 trials)"),
    ],
)
def test_one_of_a_thing_is_not_told_in_the_plural(
    samples: list[int], trials: list[int] | None, text: str
) -> None:
    assert counted(samples, trials) == text


def test_a_prompt_length_is_told_exactly() -> None:
    rows = [trial("a", 1.0, 0.01, tier=2048), trial("b", 2.0, 0.02, tier=2048)] * 5
    assert "a beats b at every output length at 2,048" in _lines(rows)


def test_an_open_end_is_told_as_such() -> None:
    one = Crossover(
        route="a", base="b", tier=1000, condition="cold", status="crosses", wins="above", output_tokens=300.0,
        low=250.0, spread="interval", samples=(6, 6),
    )  # fmt: skip
    (line,) = report_lines([], crossovers=[one])
    assert line == "a beats b beyond about 300 output tokens at 1,000 (at least 250, 95%)"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, "a beats b from about 300 to 9,000 output tokens at 1,000 (250 to 350, 95%)"),
        (
            {"until_low": 8_000.0, "until_high": 9_500.0},
            "a beats b from about 300 to 9,000 output tokens at 1,000 "
            "(250 to 350, 95%; the end 8,000 to 9,500, 95%)",
        ),
        ({"wins": "below"}, "a beats b below about 300 output tokens and again beyond 9,000 at 1,000"),
        (
            {"output_tokens": 1.5, "low": 1.2, "high": 1.8},
            "a beats b from the second output token up to about 9,000 at 1,000 (1.2 to 1.8, 95%)",
        ),
        (
            {"output_tokens": 1.5, "low": 1.2, "high": 1.8, "wins": "below"},
            "a beats b for a single output token and again beyond 9,000 at 1,000 (1.2 to 1.8, 95%)",
        ),
        ({"status": "always"}, "a beats b up to about 9,000 output tokens at 1,000"),
    ],
)
def test_a_lead_that_ends_is_told_with_its_end(changes: dict[str, object], said: str) -> None:
    (line,) = report_lines([], crossovers=[lead_that_ends(**changes)])
    assert line.startswith(said)
