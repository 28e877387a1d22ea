"""Needles found again, and where greedy answers part."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from analysis_cases import exchange
from hypothesis import given
from hypothesis import strategies as st

from bench.analysis.statistics.answers import (
    KEPT_CHARACTERS,
    Answer,
    Said,
    answer_key,
    answer_of,
    divergence,
    equivalences,
    grade,
    needle_scores,
)
from bench.records import Chunks, Exchange, Failure, Measurement, Needle, Usage, Verdict

A = Needle(vault="Harbour", code="123456", depth=0.1)
B = Needle(vault="Lantern", code="222222", depth=0.5)
C = Needle(vault="Valley", code="333333", depth=0.9)


def asked(text: str, *needles: Needle, **more: Any) -> Exchange:
    """An exchange whose prompt hid these needles, and its answer."""
    one = exchange(text=text, **more)
    return msgspec.structs.replace(one, prompt=msgspec.structs.replace(one.prompt, needles=needles))


def measured(route: str = "plain", condition: Any = "cold", replay: int = 0, **more: Any) -> Measurement:
    speculation = more.pop("speculation", "none" if route == "plain" else "as declared")
    verdict = Verdict(valid=more.pop("valid", True), speculation=speculation)
    pair = more.pop("pair", "p1")
    fields = {"tier": 1000, "trial_id": f"{route}/{condition}/{replay}/{pair}", "source": "run", **more}
    return Measurement(route=route, condition=condition, replay=replay, pair=pair, verdict=verdict, **fields)


# --- needles --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        ("1. **Harbour**: 123456\n- Lantern = 222222.\nValley: `333333`", (True, True, True)),
        ("the code of vault Harbour is 123456, of Lantern 222222", (True, True, False)),
        ("Harbour: 1234560\nLantern: 22222\nValley 333334", (False, False, False)),
        ("Harbour: 222222\nLantern: 222222", (False, True, False)),
        ("Harbour: 123456\nHarbour: 111111", (False, False, False)),
        ("Harbour:\n123456", (False, False, False)),
        ("harbour: 123456 Harbours: 123456", (False, False, False)),
        ("", (False, False, False)),
    ],
)
def test_an_answer_is_graded_needle_by_needle_and_to_the_digit(answer: str, found: tuple[bool, ...]) -> None:
    graded = grade(answer, (A, B, C))
    assert graded.found == found
    assert graded.score == pytest.approx(sum(found) / 3)


def test_names_of_vaults_are_taken_as_they_stand_and_not_as_patterns() -> None:
    assert grade("a.b: 123456", [Needle(vault="a.b", code="123456", depth=0)]).score == 1
    assert grade("axb: 123456", [Needle(vault="a.b", code="123456", depth=0)]).score == 0


def test_what_a_model_only_thinks_of_is_no_answer() -> None:
    answer = answer_of(asked("", A, reasoning="Harbour: 123456"))
    assert answer is not None and answer.grade is not None
    assert answer.grade.found == (False,)


def test_a_failed_exchange_gives_no_answer() -> None:
    assert answer_of(asked("Harbour: 123456", A, failure=Failure(kind="reset", message="gone"))) is None


def test_scores_stand_by_route_tier_condition_and_depth_and_leave_invalid_answers_out() -> None:
    texts = {
        ("plain", "cold", 0): "Harbour: 123456\nValley: 333333",
        ("plain", "salted", 0): "Harbour: 123456",
        ("plain", "replay", 1): "Valley: 333333",
        ("mtp", "cold", 0): "nothing",
    }
    rows = [measured(route, condition, replay) for route, condition, replay in texts]
    answers = {
        answer_key(row): answer_of(asked(text, A, C)) for row, text in zip(rows, texts.values(), strict=True)
    }
    lost = measured("mtp", "replay", 1, valid=False)
    answers[answer_key(lost)] = answer_of(asked("Harbour: 123456", A, C))
    found = needle_scores([*rows, lost], {k: v for k, v in answers.items() if v is not None})
    assert [(one.route, one.condition, one.answers, one.found, one.score) for one in found] == [
        ("plain", "cold", 2, (2, 1), 0.75),
        ("mtp", "cold", 1, (0, 0), 0.0),
        ("plain", "replay", 1, (0, 1), 0.5),
    ]
    assert {one.depths for one in found} == {(0.1, 0.9)}


# --- divergence -----------------------------------------------------------------------------------


def test_the_first_difference_is_told_in_characters_words_and_share() -> None:
    found = divergence(Said(text="the river and the market"), Said(text="the river and the harbour"))
    assert (found.characters, found.first, found.words, found.tokens) == (24, 18, 4, None)
    assert found.share == 18 / 24


def test_equal_answers_and_one_that_was_cut_off_earlier_do_not_differ() -> None:
    for other in ("the river", "the ri", ""):
        found = divergence(Said(text="the river"), Said(text=other))
        assert (found.first, found.share, found.characters) == (None, 1.0, len(other))


def test_an_answer_that_ended_by_itself_differs_from_one_that_goes_on() -> None:
    found = divergence(Said(text="the river flows on"), Said(text="the river", ended=True))
    assert (found.first, found.words, found.characters, found.share) == (9, 1, 18, 0.5)
    same = Said(text="the river", ended=True)
    assert divergence(same, same).first is None
    assert divergence(Said(text="", ended=True), Said(text="ab")).share == 0


def test_tokens_are_those_of_the_chunks_that_lie_wholly_before_the_difference() -> None:
    drafted = Said(text="abcdefgh", ends=(1, 5, 8), tokens=(1, 4, 6))
    assert divergence(drafted, Said(text="abcdeXgh")).tokens == 4
    assert divergence(drafted, Said(text="abcXefgh")).tokens == 1
    single = Said(text="abcXefgh", ends=tuple(range(1, 9)), tokens=tuple(range(1, 9)))
    assert divergence(drafted, single).tokens == 3  # the finer of both counts
    assert divergence(drafted, Said(text="Xbc")).tokens == 0


@given(st.text(max_size=40), st.text(max_size=40))
def test_before_the_first_difference_both_are_the_same_and_there_they_are_not(a: str, b: str) -> None:
    found = divergence(Said(text=a), Said(text=b))
    assert found == divergence(Said(text=b), Said(text=a))
    assert 0 <= found.share <= 1
    if found.first is None:
        assert a.startswith(b) or b.startswith(a)
    else:
        assert a[: found.first] == b[: found.first]
        assert a[found.first] != b[found.first]


# --- what is kept of an answer --------------------------------------------------------------------


def said(one: Exchange) -> Said | None:
    answer = answer_of(one)
    return answer.said if answer is not None else None


@pytest.mark.parametrize("request_fields", [{"temperature": 0.7}, {}, {"temperature": "0"}])
def test_only_greedy_answers_are_kept(request_fields: dict[str, object]) -> None:
    assert said(exchange(request=request_fields)) is None
    assert said(exchange(request={"temperature": 0})) is not None


def test_reasoning_comes_before_the_content_and_an_end_is_one_only_when_all_is_kept() -> None:
    kept = said(exchange(reasoning="think ", text="say", finish_reason="stop"))
    assert kept is not None and (kept.text, kept.ended) == ("think say", True)
    long = said(exchange(text="x" * (KEPT_CHARACTERS + 1), finish_reason="stop"))
    assert long is not None and (len(long.text), long.ended) == (KEPT_CHARACTERS, False)


def test_tokens_come_from_the_events_or_from_a_stream_of_one_token_a_chunk() -> None:
    shape = {"at_ns": (1, 2, 3, 4), "kinds": "ecce", "chars": (0, 2, 3, 0)}
    counted = said(exchange(text="abcde", chunks=Chunks(**shape, tokens=(0, 1, 4, 4))))
    assert counted is not None and (counted.ends, counted.tokens) == ((2, 5), (1, 4))
    single = said(exchange(text="abcde", chunks=Chunks(**shape), usage=Usage(completion_tokens=2)))
    assert single is not None and (single.ends, single.tokens) == ((2, 5), (1, 2))
    unknown = said(exchange(text="abcde", chunks=Chunks(**shape), usage=Usage(completion_tokens=4)))
    assert unknown is not None and (unknown.ends, unknown.tokens) == ((), ())


# --- equivalence ----------------------------------------------------------------------------------


def equal(rows: list[tuple[Measurement, str]]) -> dict[tuple[str, str], tuple[int, int]]:
    """(route, base) -> pairs and identical ones."""
    answers = {answer_key(row): Answer(said=Said(text=text)) for row, text in rows}
    found = equivalences([row for row, _ in rows], answers)
    return {(one.route, one.base): (len(one.divergences), one.identical) for one in found}


def test_routes_are_put_beside_target_only_and_replays_beside_their_cold() -> None:
    rows = [
        (measured("mtp"), "a b c d"),
        (measured("mtp", "replay", 1), "a b x d"),
        (measured("mtp", "replay", 2), "a b c d"),
        (measured("plain"), "a b c d"),
        (measured("plain", "replay", 1), "a b c d"),
        (measured("plain", "replay", 2), "a b c d"),
    ]
    assert equal(rows) == {("mtp", "plain"): (3, 2), ("mtp", "mtp"): (2, 1), ("plain", "plain"): (2, 2)}
    assert list(equal(rows)) == [("mtp", "plain"), ("mtp", "mtp"), ("plain", "plain")]


def test_other_prompts_runs_and_replays_are_never_compared() -> None:
    plain = (measured("plain"), "a")
    for other in (
        measured("mtp", pair="p2"),
        measured("mtp", source="other"),
        measured("mtp", "replay", 1),
        measured("mtp", valid=False),
        measured("mtp", pair=None),
    ):
        assert equal([plain, (other, "b")]) == {}


def test_two_speculating_routes_without_a_target_only_one_are_not_compared() -> None:
    assert equal([(measured("mtp2"), "a"), (measured("mtp4"), "b")]) == {}


def test_the_earliest_difference_and_the_median_share_are_told() -> None:
    texts = {"p1": "a b c d", "p2": "a b c x", "p3": "a x c d"}
    rows = [measured("plain", pair=pair) for pair in texts] + [measured("mtp", pair=pair) for pair in texts]
    plain = {answer_key(row): Answer(said=Said(text="a b c d")) for row in rows}
    answers = plain | {
        answer_key(row): Answer(said=Said(text=texts[row.pair or ""])) for row in rows if row.route == "mtp"
    }
    (found,) = equivalences(rows, answers)
    earliest = found.earliest()
    assert earliest is not None and (earliest.first, earliest.words) == (2, 1)
    assert found.share == 6 / 7
    assert found.identical == 1
