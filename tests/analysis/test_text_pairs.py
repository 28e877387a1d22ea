"""A text is known by what it is, and routes that were sent the same texts are compared text by text."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from analysis_cases import exchange, measure
from decision_samples import invalid, trial
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs
from scipy import stats

from bench.analysis.decisions.crossover import as_json, crossovers
from bench.analysis.decisions.gate import gate, parse_rule
from bench.analysis.statistics import decode, prefill
from bench.analysis.statistics.compare import across, compare
from bench.analysis.statistics.curves import Curves, curve_key
from bench.analysis.statistics.summary import summarise
from bench.analysis.statistics.texts import Texts, in_pairs
from bench.analysis.verdicts.numbers import text_key
from bench.prompting import synthetic
from bench.prompting.borders import index_corpus
from bench.prompting.compose import Composer
from bench.prompting.corpus import Corpus
from bench.prompting.template import Template
from bench.prompting.tokens import load_tokenizer
from bench.records import (
    Comparison,
    Condition,
    Endpoint,
    Estimate,
    Exchange,
    Measurement,
    Needle,
    PromptSettings,
)

TOKENIZER = Path(__file__).resolve().parents[2] / "bench/servers/simulator/tokenizer.json"

_salts = itertools.count()


def salted_hash() -> str:
    """As of a prompt behind a salt of its own: like no other."""
    return f"salt {next(_salts)}"


def row(
    route: str, repeat: int, ttft: float, tpot: float, condition: Condition = "cold", **more: object
) -> Measurement:
    """A trial of text `repeat` behind a salt of its own."""
    return trial(
        route, ttft, tpot, condition=condition, number=repeat, pair=salted_hash(), text_key=f"text {repeat}",
        trial_id=f"{route}/{condition}/{repeat}.{more.get('replay', 0)}", **more,  # type: ignore[arg-type]
    )  # fmt: skip


def sent_again(rows: list[Measurement], *which: int) -> list[Measurement]:
    """The same rows; some were sent behind another salt at the end of the run, and measured the same."""
    again = [
        structs.replace(rows[place], pair=salted_hash(), attempt=2, order=1000 + place) for place in which
    ]
    return [one for place, one in enumerate(rows) if place not in which] + again


def study(texts: int, seed: int = 1, slower: float = 0.05) -> list[Measurement]:
    """Two routes and the same texts, which differ much; a is `slower` seconds later on each."""
    rng = np.random.default_rng(seed)
    rows = []
    for repeat in range(1, texts + 1):
        hard = rng.lognormal(0, 0.2)
        for route, late, step in (("a", slower, 0.010), ("b", 0.0, 0.013)):
            for condition in ("cold", "salted"):
                ttft, tpot = (hard + late, step * hard) * (1 + 0.001 * rng.standard_normal(2))
                rows.append(row(route, repeat, ttft, tpot, condition))
    return rows


def of(found: list[Comparison], quantity: str) -> Comparison:
    (one,) = [one for one in found if one.quantity == quantity]
    return one


# --- What a text is -------------------------------------------------------------------------------


def test_a_text_is_its_place_in_the_corpus_whatever_salt_and_attempt() -> None:
    first = exchange(sha="one")
    again = exchange(sha="other", attempt=2)
    for other in (again, exchange("salted", sha="third"), exchange("replay", sha="fourth")):
        assert text_key(other) == text_key(first) != ""
    assert measure(first).text_key == text_key(first)
    assert (measure(first).pair, measure(again).pair) == ("one", "other")


@pytest.mark.parametrize(
    "change",
    [
        {"corpus_sha256": "d"},
        {"start": 1},
        {"tokens": 1001},
        {"task": "needle"},
        {"needles": (Needle(vault="Amber", code="123456", depth=0.5),)},
    ],
)
def test_another_corpus_place_length_task_or_needle_is_another_text(change: dict[str, object]) -> None:
    one = exchange()
    other = structs.replace(one, prompt=structs.replace(one.prompt, **change))
    assert text_key(other) != text_key(one)


@pytest.mark.parametrize("change", [{"salt": "x"}, {"filler": 3}, {"overhead": 9}, {"cache_salt": "y"}])
def test_what_stands_around_a_text_makes_no_other_one(change: dict[str, object]) -> None:
    one = exchange()
    assert text_key(structs.replace(one, prompt=structs.replace(one.prompt, **change))) == text_key(one)


def test_turns_of_chats_and_prompts_of_no_corpus_are_known_by_their_hash_alone() -> None:
    one = exchange()
    turn = structs.replace(one, trial=structs.replace(one.trial, turn=2, chat="a.jsonl line 1"))
    bare = structs.replace(one, prompt=structs.replace(one.prompt, corpus_sha256=""))
    assert (text_key(turn), text_key(bare)) == ("", "")
    rows = [measure(bare), measure(structs.replace(bare, prompt=structs.replace(bare.prompt, sha256="p2")))]
    assert Texts(rows).keys == ("p1", "p2")


@pytest.mark.parametrize("endpoint", ["chat", "completions"])
def test_a_prompt_composed_again_for_any_attempt_route_or_run_holds_the_same_text(endpoint: Endpoint) -> None:
    tokenizer = load_tokenizer(TOKENIZER)
    corpus = index_corpus(Corpus(name="prose", sha256="p", text=synthetic.prose(60_000, seed=3)), tokenizer)
    runs = [
        Composer(
            tokenizer,
            corpus,
            PromptSettings(),
            template=Template(endpoint=endpoint, overhead=5, fixed_prefix=3),
            nonce=nonce,
            seed=1,
        )
        for nonce in ("one run", "another")
    ]
    one = exchange(prompt=700)

    def composed(composer: Composer, repeat: int, attempt: int, pair: str) -> Exchange:
        planned = structs.replace(one.trial, repeat=repeat)
        recipe = composer.compose(planned, attempt=attempt, pair=pair).recipe
        return structs.replace(one, trial=planned, prompt=recipe)

    for repeat in (1, 2, 3):
        sent = [composed(*how) for how in itertools.product(runs, (repeat,), (1, 2), ("", "a", "b"))]
        assert len({one.prompt.sha256 for one in sent}) == 12  # each behind a salt of its own
        assert len({text_key(one) for one in sent}) == 1
    assert len({text_key(composed(runs[0], repeat, 1, "")) for repeat in range(1, 9)}) == 8


# --- A trial that was sent again ------------------------------------------------------------------


def test_a_replay_behind_a_new_prime_is_no_further_text() -> None:
    # 3 repeats of 2 replays: the second ones are sent again, each behind a new salt
    rows, curves = [], {}
    tokens = np.arange(1.0, 201.0)
    for route, start, step in (("a", 1.5, 0.010), ("b", 1.0, 0.015)):
        for repeat, replay in itertools.product((1, 2, 3), (1, 2)):
            ttft = start + 0.01 * repeat
            one = row(route, repeat, ttft, step, "replay", replay=replay, output=200)
            rows.append(one)
            curves[curve_key(one)] = (tokens, ttft + step * (tokens - 1))
    again = sent_again(rows, *(place for place, one in enumerate(rows) if one.replay == 2))
    curves |= {curve_key(one): curves[curve_key(structs.replace(one, attempt=1))] for one in again}
    (before,), (after,) = crossovers(rows, "b", curves=curves), crossovers(again, "b", curves=curves)
    assert (after.samples, after.trials, after.spread) == ((3, 3), (6, 6), "range")
    assert as_json([after]) == as_json([before])


def _everything(rows: list[Measurement], curves: Curves | None = None) -> list[object]:
    """All that statistics say of rows but their order."""
    return [
        compare(rows, "b"),
        crossovers(rows, curves=curves),
        [one.estimates for one in summarise(rows)],
        sorted(decode.fit(rows).items()),
        [(route, law.tiers, law.predict(1500)) for route, law in sorted(prefill.fit(rows).items())],
    ]


@settings(max_examples=15)
@given(
    texts=st.integers(1, 9),
    seed=st.integers(0, 1000),
    again=st.sets(st.integers(0, 35), max_size=36),
)
def test_sending_trials_again_moves_no_interval_and_no_test(texts: int, seed: int, again: set[int]) -> None:
    rows = study(texts, seed)
    moved = sent_again(rows, *(place for place in again if place < len(rows)))
    # routes keep their order of appearance, which names them
    moved.sort(key=lambda one: one.route)
    rows.sort(key=lambda one: one.route)
    assert _everything(moved) == _everything(rows)


# --- In pairs -------------------------------------------------------------------------------------


def test_routes_behind_salts_of_their_own_are_compared_text_by_text() -> None:
    # 8 texts, a 50 ms later on each: what the texts differ by hides it from a test without pairs
    late = of(compare(study(8), "b"), "ttft_s")
    assert (late.paired, late.test, late.verdict) == (True, "Wilcoxon signed-rank", "higher")
    assert late.p_value == pytest.approx(2 / 2**8)
    alone = [structs.replace(one, text_key="", pair=None) for one in study(8)]
    assert of(compare(alone, "b"), "ttft_s").verdict == "~"


def test_a_lost_text_leaves_the_others_in_pairs_and_is_told() -> None:
    rows = study(8)
    lost = [invalid(one) if (one.route, one.repeat) == ("b", 3) else one for one in rows]
    late = of(compare(lost, "b"), "ttft_s")
    assert (late.paired, late.samples, late.verdict) == (True, (7, 7), "higher")
    assert late.p_value == pytest.approx(2 / 2**7)
    assert late.warnings == ("compared on the 7 texts that both sides have; left out: 1 of a",)
    without = of(compare([one for one in rows if one.repeat != 3], "b"), "ttft_s")
    assert late.left_out == (1, 0)
    assert structs.replace(late, warnings=(), left_out=None) == without
    (meeting,) = crossovers(lost, "b")
    (expected,) = crossovers([one for one in rows if one.repeat != 3], "b")
    assert meeting.samples == (7, 7) and meeting.warnings[0] == late.warnings[0]
    assert (meeting.low, meeting.high) == pytest.approx((expected.low, expected.high), rel=0.02)


def test_runs_of_one_suite_are_compared_text_by_text_in_the_gate() -> None:
    rows = [one for one in study(8) if one.condition == "cold"]
    old = [structs.replace(one, route="r", source="old") for one in rows if one.route == "b"]
    new = [structs.replace(one, route="r", source="new") for one in rows if one.route == "a"]
    late = of(across(old, new), "ttft_s")
    assert (late.paired, late.samples, late.verdict) == (True, (8, 8), "higher")
    (rule,) = gate(new[1:], old[:-1], [parse_rule("ttft cold 1000 <= 2")])
    assert (rule.status, rule.samples) == ("pass", 6)
    assert (
        rule.why
        == "compared on the 6 texts that both sides have; left out: 1 of the new run and 1 of the baseline"
    )


def _texts(route: str, *numbers: int) -> Texts:
    return Texts([row(route, number, 1.0, 0.01) for number in numbers])


def test_pairs_take_six_common_texts_and_half_of_the_smaller_side_or_equal_sides() -> None:
    def pairs(a: range, b: range) -> int | None:
        found = in_pairs(_texts("a", *a), _texts("b", *b))
        assert found == in_pairs(_texts("b", *b), _texts("a", *a))
        return None if found is None else len(found)

    assert pairs(range(3), range(3)) == 3  # the same texts: few, but all
    assert pairs(range(6), range(1, 7)) is None  # five in common: no test of pairs could decide
    assert pairs(range(7), range(1, 8)) == 6
    assert pairs(range(6), range(40)) == 6  # a longer run beside a short one
    assert pairs(range(12), range(6, 18)) == 6
    assert pairs(range(13), range(7, 20)) is None  # six of thirteen: met by chance, as it were
    assert pairs(range(8), range(8, 16)) is None


def _mirrored(one: Estimate | None) -> tuple[float, ...]:
    assert one is not None
    return tuple(-end for end in (one.value, one.high, one.low) if end is not None)


def _ends(one: Estimate | None) -> tuple[float, ...]:
    assert one is not None
    return tuple(end for end in (one.value, one.low, one.high) if end is not None)


@settings(max_examples=40)
@given(
    texts=st.integers(6, 12),
    lost=st.tuples(st.sets(st.integers(1, 12), max_size=3), st.sets(st.integers(1, 12), max_size=3)),
    slower=st.floats(-0.1, 0.1),
    seed=st.integers(0, 1000),
)
def test_pairs_are_scipys_and_the_same_from_both_sides(
    texts: int, lost: tuple[set[int], set[int]], slower: float, seed: int
) -> None:
    gone = dict(zip("ab", lost, strict=True))
    rows = [one for one in study(texts, seed, slower) if one.repeat not in gone[one.route]]
    common = sorted(set(range(1, texts + 1)) - lost[0] - lost[1])
    if len({one.route for one in rows}) < 2:
        return
    one, other = (of(compare(rows, base), "ttft_s") for base in "ba")
    assert one.paired == other.paired
    if not one.paired:
        assert len(common) < 6
        return
    # by hand: of each text and side the middle of its two trials
    sides = [
        np.array([np.mean([x.ttft_s for x in rows if (x.route, x.repeat) == (route, n)]) for n in common])
        for route in "ab"
    ]
    assert one.samples == other.samples == (len(common), len(common))
    if len(common) >= 6:
        expected = stats.wilcoxon(sides[0], sides[1], method="exact").pvalue
        assert one.p_value == pytest.approx(expected, abs=1e-9)
    assert one.ratio is not None
    assert one.ratio.value == pytest.approx(np.median(sides[0]) / np.median(sides[1]))
    assert one.p_value == other.p_value
    assert _ends(one.difference) == pytest.approx(_mirrored(other.difference), abs=1e-12)
    turned = {"higher": "lower", "lower": "higher"}
    assert turned.get(one.verdict, one.verdict) == other.verdict


def test_curves_of_texts_that_one_side_lacks_are_left_out_too() -> None:
    tokens = np.arange(1.0, 201.0)
    rows, curves = [], {}
    for route, start, step in (("a", 1.5, 0.010), ("b", 1.0, 0.015)):
        for repeat in range(1, 8):
            # the seventh text, which b lacks, would move the crossing of medians
            ttft = start + 0.01 * repeat + (50.0 if repeat == 7 else 0.0)
            one = row(route, repeat, ttft, step, output=200)
            if (route, repeat) != ("b", 7):
                rows.append(one)
                curves[curve_key(one)] = (tokens, ttft + step * (tokens - 1))
    found = crossovers(rows, curves=curves)
    assert [(met.basis, met.samples) for met in found] == [("curve", (6, 6))] * 2
    # 1 + 0.5 / 0.005, and no spread: every pair parts alike
    for met in found:
        assert (met.output_tokens, met.low, met.high) == pytest.approx((101.0, 101.0, 101.0))
