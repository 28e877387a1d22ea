"""A first replay that missed: how the server is where a later one of its prompt held, else a failed cache."""

from __future__ import annotations

import pytest

from bench.analysis.statistics.cells import by_cell, sound, usable
from bench.analysis.statistics.summary import summarise
from bench.analysis.verdicts.firstreplay import FirstReplays, is_first_miss
from bench.records import Condition, Measurement, Reason, Verdict


def replay(number: int, cached: int, *, route: str = "a", also: tuple[str, ...] = ()) -> Measurement:
    """A replay of 1,000 tokens of which 960 should be cached; `also`: what else is wrong with it."""
    missed = (Reason(id="replay_missed", detail=f"{cached} of 1,000"),) if cached < 960 else ()
    reasons = (*missed, *(Reason(id=name) for name in also))
    return Measurement(
        trial_id=f"{route}/1000/replay/1.{number}",
        route=route,
        tier=1000,
        condition="replay",
        replay=number,
        ttft_s=2.0 if missed else 0.1,
        cached_tokens=cached,
        verdict=Verdict(
            valid=not reasons,
            reasons=reasons,
            warnings=(Reason(id="queued"),),
            reuse="missed" if missed else "held",
        ),
    )


def other(condition: Condition, *, route: str = "a") -> Measurement:
    return Measurement(
        trial_id=f"{route}/1000/{condition}/1",
        route=route,
        tier=1000,
        condition=condition,
        verdict=Verdict(valid=True, reuse="held"),
    )


def told(*measurements: tuple[Measurement, str]) -> list[Measurement]:
    book, found = FirstReplays(), []
    for one, prompt in measurements:
        found += book.take(one, prompt)
    return [*found, *book.decide()]


def test_it_is_valid_with_a_warning_once_the_next_replay_of_the_prompt_held() -> None:
    first, second = told((replay(1, 0), "p"), (replay(2, 960), "p"))
    assert (first.trial_id, first.verdict.valid, first.verdict.reuse) == ("a/1000/replay/1.1", True, "missed")
    assert first.verdict.warnings == (
        Reason(id="first_replay_missed", detail="0 of 1,000"),
        Reason(id="queued"),
    )
    assert is_first_miss(first) and not is_first_miss(second)
    assert second == replay(2, 960)


def test_nothing_is_told_of_it_before_that_and_everything_in_order() -> None:
    book = FirstReplays()
    assert book.take(other("cold"), "p") == [other("cold")]
    assert book.take(replay(1, 0), "p") == []
    assert book.undecided == "a/1000/replay/1.1"
    assert [one.replay for one in book.take(replay(2, 960), "p")] == [1, 2]
    assert book.undecided is None and book.decide() == []


@pytest.mark.parametrize(
    "later",
    [
        (),
        ((replay(2, 0), "p"),),  # the second one missed too: nothing stays in this cache
        ((replay(2, 500), "p"),),
        ((replay(2, 960), "another"),),
        ((replay(2, 960, route="b"), "p"),),  # routes are sent equal prompts
        ((other("cold", route="b"), "p"),),
        ((other("salted"), "q"), (replay(2, 960), "p")),
        ((replay(2, 960, also=("foreign_traffic",)), "p"),),
    ],
)
def test_without_a_hit_of_the_same_prompt_next_it_stays_a_miss(
    later: tuple[tuple[Measurement, str], ...],
) -> None:
    assert told((replay(1, 0), "p"), *later)[0] == replay(1, 0)


def test_only_a_first_replay_with_nothing_else_wrong_is_held_back() -> None:
    spoilt = replay(1, 0, also=("foreign_traffic",))
    assert told((spoilt, "p"), (replay(2, 960), "p"))[0] == spoilt
    assert told((replay(2, 0), "p"), (replay(3, 960), "p"))[0] == replay(2, 0)


def test_it_stands_in_the_row_of_first_replays_and_in_no_other_statistic() -> None:
    rows = [
        one
        for _ in range(2)
        for one in told((replay(1, 0), "p"), (replay(2, 960), "p"), (replay(3, 960), "p"))
    ]
    first, later = summarise(rows)
    assert (first.first_replay, first.valid, first.invalid, first.estimates["ttft_s"].value) == (
        True,
        2,
        0,
        2.0,
    )
    assert (later.first_replay, later.valid, later.estimates["ttft_s"].value) == (False, 4, 0.1)
    assert not usable(rows[0]) and not sound(rows[0])
    ((cell, sides),) = by_cell(rows).items()
    assert cell.condition == "replay" and {one.replay for one in sides["a"]} == {2, 3}
