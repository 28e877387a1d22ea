from __future__ import annotations

import numpy as np
from decision_samples import study, trial

from bench.analysis.arrival import arrival
from bench.analysis.compare import compare
from bench.analysis.crossover import crossovers
from bench.analysis.lines import report_lines, tokens_short
from bench.records import Chunks, Exchange, Measurement, PromptRecipe, Trial


def _lines(rows: list[Measurement], base: str = "b") -> list[str]:
    return report_lines(rows, compare(rows, base), crossovers(rows, base))


def test_nothing_measured_says_nothing() -> None:
    assert report_lines([]) == []


def test_no_difference_is_said_and_no_number_is_given_for_it() -> None:
    rng = np.random.default_rng(5)
    lines = _lines(study("a", 10, 0.02, 8, rng) + study("b", 10, 0.02, 8, rng))
    assert "decode of a and b shows no difference at 1k" in lines
    assert not any("decode is" in line or "beats" in line for line in lines)


def test_a_spread_that_reaches_the_other_side_is_no_claim() -> None:
    rows = [trial("a", t, 0.01) for t in (1.0, 3.0)] + [trial("b", 2.0, 0.02)]
    lines = _lines(rows)
    assert not any("TTFT" in line for line in lines)
    assert "a decode is 2.00x b at 1k" in lines


def test_always_is_said_as_such() -> None:
    assert "a beats b at every output length at 1k" in _lines([trial("a", 1.0, 0.01), trial("b", 2.0, 0.02)])


def test_the_share_of_the_limit_needs_one_known_limit_for_every_route() -> None:
    rows = [trial("a", tier=5000), trial("b", tier=5000)]
    assert report_lines(rows, limits={"a": 10_000, "b": 10_000}) == [
        "tested up to 5,000 tokens, 50% of the configured limit; nothing measured above"
    ]
    for limits in ({"a": 10_000}, {"a": 10_000, "b": 20_000}, {}):
        assert report_lines(rows, limits=limits) == ["tested up to 5,000 tokens; nothing measured above"]


def test_lengths_are_short() -> None:
    assert [tokens_short(n) for n in (512, 6316, 564_577, 999_999, 1_048_576)] == [
        "512",
        "6.32k",
        "564k",
        "999k",
        "1.05M",
    ]


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
