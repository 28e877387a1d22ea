"""Chats as a whole, worked out by hand; and what no other statistic takes them for."""

from __future__ import annotations

from bench.analysis.decisions.crossover import crossovers
from bench.analysis.statistics.cells import alone, by_cell, labelled, renamed, usable
from bench.analysis.statistics.chats import chats
from bench.analysis.statistics.levels import levels, waves_by_level
from bench.analysis.statistics.prefill import fit
from bench.analysis.statistics.summary import summarise
from bench.records import Measurement, Reason, Verdict


def row(turn: int, total_s: float, **changes: object) -> Measurement:
    """A valid turn: 100 tokens a turn, all but the last 100 of them cached."""
    fields: dict[str, object] = {
        "trial_id": f"a/chat-1/turn-{turn}/{changes.get('repeat', 1)}",
        "route": "a",
        "tier": 100 * turn,
        "condition": "turn",
        "chat": "x line 1",
        "turn": turn,
        "prompt_tokens": 100 * turn,
        "cached_tokens": 100 * (turn - 1),
        "output_tokens": 10,
        "ttft_s": total_s / 2,
        "total_s": total_s,
        "tpot_s": 0.02,
        "verdict": Verdict(valid=True),
        **changes,
    }
    return Measurement(**fields)  # type: ignore[arg-type]


def missed(turn: int, **changes: object) -> Measurement:
    return row(turn, 9.0, verdict=Verdict(valid=False, reasons=(Reason(id="turn_missed"),)), **changes)


def cold(tier: int, ttft_s: float, route: str = "a") -> Measurement:
    return Measurement(
        trial_id=f"{route}/{tier}",
        route=route,
        tier=tier,
        condition="cold",
        prompt_tokens=tier,
        output_tokens=10,
        ttft_s=ttft_s,
        total_s=ttft_s + 0.2,
        tpot_s=0.02,
        verdict=Verdict(valid=True),
    )


def test_a_chat_is_summed_over_the_repeats_in_which_every_turn_is_valid() -> None:
    rows = [
        *(row(turn, float(turn)) for turn in (1, 2, 3)),  # 6 s
        *(row(turn, turn + 1.0, repeat=2) for turn in (1, 2, 3)),  # 9 s
        row(1, 1.0, repeat=3),
        missed(2, repeat=3),
    ]
    (chat,) = chats(rows)
    assert (chat.route, chat.chat, chat.whole) == ("a", "x line 1", 2)
    assert (chat.total_s, chat.fastest_s, chat.slowest_s) == (7.5, 6.0, 9.0)
    assert (chat.prompt_tokens, chat.cached_tokens) == (600, 300)
    assert [(turn.valid, turn.invalid, turn.total_s) for turn in chat.turns] == [
        (3, 0, 1.0),
        (2, 1, 2.5),
        (2, 0, 3.5),
    ]
    assert chat.turns[1].excluded == {"turn_missed": 1}
    assert chat.repeats == 3
    assert [turn.ranges["total_s"] for turn in chat.turns] == [(1.0, 2.0), (2.0, 3.0), (3.0, 4.0)]
    assert chat.turns[0].ranges["cached_tokens"] == (0.0, 0.0)


def test_turns_that_came_with_another_attempt_complete_a_repeat() -> None:
    (chat,) = chats([row(1, 1.0), missed(2), row(2, 2.0, attempt=2)])
    assert (chat.whole, chat.total_s) == (1, 3.0)


def test_a_chat_that_never_came_to_its_end_has_no_sum() -> None:
    (chat,) = chats([row(1, 1.0), row(2, 2.0)], {"x line 1": 3})
    assert (chat.whole, chat.total_s, chat.prompt_tokens) == (0, None, None)
    assert (chat.repeats, chat.turns[0].ranges) == (1, {})
    assert [turn.valid for turn in chat.turns] == [1, 1, 0]


def test_a_figure_that_a_turn_lacks_is_missing_in_the_sum() -> None:
    (chat,) = chats([row(1, 1.0, cached_tokens=None), row(2, 2.0)])
    assert chat.cached_tokens is None and chat.total_s == 3.0 and chat.turns[0].cached_tokens is None


def test_turns_past_a_drafter_limit_stay_with_their_chat() -> None:
    past = Verdict(valid=True, speculation="fallback")
    (chat,) = chats([row(1, 1.0), row(2, 2.0, verdict=past)])
    assert (chat.route, chat.whole) == ("a", 1)


def test_routes_and_chats_are_told_apart() -> None:
    found = chats([row(1, 1.0), row(1, 2.0, route="b"), row(1, 3.0, chat="x line 2")])
    assert [(one.chat, one.route, one.total_s) for one in found] == [
        ("x line 1", "a", 1.0),
        ("x line 1", "b", 2.0),
        ("x line 2", "a", 3.0),
    ]


def test_nothing_else_takes_a_turn_for_a_prompt_of_a_tier() -> None:
    tiers = [cold(tier, tier / 1000, route) for route in "ab" for tier in (100, 100_000)]
    turns = [row(turn, 0.5, route=route, tier=100) for route in "ab" for turn in (1, 2)]
    # Near enough to a tier to be taken for it, and more often there.
    turns += [row(1, 0.5, tier=100_001, repeat=repeat) for repeat in range(9)]
    every = [*turns, *tiers, *turns]
    assert not any(map(usable, turns)) and alone(every) == tiers and labelled(every) == labelled(tiers)
    assert [one.tier for one in renamed(every) if one.turn == 0] == [one.tier for one in tiers]
    assert by_cell(every) == by_cell(tiers)
    assert summarise(every) == summarise(tiers)
    assert crossovers(every) == crossovers(tiers)
    assert fit(every) == fit(tiers)
    assert levels(every) == [] and waves_by_level(every) == waves_by_level(tiers)
    assert chats(tiers) == []
