"""Turns of recorded chats: each is held to what the turn before has left in the cache."""

from __future__ import annotations

from analysis_cases import exchange, ids, measure, run
from msgspec import structs

from bench.analysis.verdicts.measure import Measurer
from bench.records import Exchange, Failure, Measurement, Scrape, ServerFacts

FACTS = ServerFacts(engine="vllm", version="0.32.0", block_size=16, prefix_caching=True)


def turn(
    number: int, *, prompt: int, cached: int, shared: tuple[int, int] | None = None, **more: object
) -> Exchange:
    """A turn of one chat whose prompts have the hashes `t1`, `t2`, ..."""
    one = exchange(prompt=prompt, cached=cached, sha=f"t{number}", fixed_prefix=3, **more)  # type: ignore[arg-type]
    follows = f"t{number - 1}" if number > 1 else None
    return structs.replace(
        one,
        trial=structs.replace(
            one.trial,
            id=f"r/chat-1/turn-{number}/1",
            condition="turn",
            tier=7,
            chat="x line 1",
            turn=number,
        ),
        prompt=structs.replace(one.prompt, follows=follows, shared=shared),
    )


def judged(*turns: Exchange) -> Measurement:
    return measure(*turns, info=run(facts=FACTS))


FIRST = turn(1, prompt=1000, cached=0)


def test_a_turn_that_finds_all_whole_blocks_of_the_turn_before_held() -> None:
    # 1,000 tokens are 62 blocks of 16; with the answer of 64 they are 66.
    for cached in (992, 1056):
        second = judged(FIRST, turn(2, prompt=1500, cached=cached, shared=(1000, 1064)))
        assert (second.verdict.valid, second.verdict.reuse, second.expected_cached) == (True, "held", 992)
        assert ids(second) == ([], ["no_metrics"])
        assert (second.chat, second.turn, second.prefix_reuse) == ("x line 1", 2, cached / 1500)


def test_a_turn_that_finds_less_is_invalid_with_its_own_reason() -> None:
    second = judged(FIRST, turn(2, prompt=1500, cached=976, shared=(1000, 1064)))
    assert (second.verdict.valid, second.verdict.reuse) == (False, "missed")
    assert ids(second)[0] == ["turn_missed"]
    assert second.verdict.reasons[0].detail == (
        "976 of 1,500 tokens cached, 992 to 1,056 expected (block 16)"
    )


def test_more_than_the_turn_before_and_its_answer_is_told() -> None:
    second = judged(FIRST, turn(2, prompt=1500, cached=1072, shared=(1000, 1064)))
    assert second.verdict.valid and "reuse_above_rule" in ids(second)[1]


def test_the_first_turn_is_as_cold_as_any_cold_prompt() -> None:
    assert judged(FIRST).verdict.reuse == "held"
    assert ids(judged(turn(1, prompt=1000, cached=16)))[0] == ["cold_hit"]


def test_a_turn_shorter_than_a_block_proves_nothing() -> None:
    first = turn(1, prompt=12, cached=0)
    second = judged(first, turn(2, prompt=40, cached=0, shared=(12, 15)))
    assert second.verdict.valid and second.verdict.reuse == "unprovable"


def test_a_template_that_rewrites_history_is_told_and_judged_by_what_is_left() -> None:
    second = judged(FIRST, turn(2, prompt=1500, cached=480, shared=(490, 554)))
    assert second.verdict.valid and second.expected_cached == 480
    (told,) = [one for one in second.verdict.warnings if one.id == "history_rewritten"]
    assert told.detail == "490 of the 1,000 tokens of the turn before stand at its front"
    # A few tokens that ask for an answer are no history.
    near = judged(FIRST, turn(2, prompt=1500, cached=976, shared=(984, 1048)))
    assert near.verdict.valid and "history_rewritten" not in ids(near)[1]


def page(start: float) -> Scrape:
    return Scrape(at_ns=0, took_ns=0, status=200, values={"process_start": start, "requests_finished": 5.0})


def test_a_restart_between_two_turns_is_not_taken_for_a_miss() -> None:
    first = structs.replace(FIRST, before=page(1.7e9), after=page(1.7e9))
    second = turn(2, prompt=1500, cached=0, shared=(1000, 1064))
    again = structs.replace(second, before=page(1.8e9), after=page(1.8e9))
    assert ids(judged(first, again))[0] == ["cold_before_restart"]


def test_a_turn_sent_for_its_place_counts_as_the_one_before() -> None:
    measurer = Measurer(run(facts=FACTS))
    measurer.skip(structs.replace(FIRST, purpose="prime"))
    second = measurer.add(turn(2, prompt=1500, cached=992, shared=(1000, 1064)))
    assert second.verdict.reuse == "held"
    other = measurer.add(turn(2, prompt=1500, cached=480, shared=(490, 554)))
    assert "history_rewritten" in ids(other)[1]
    failed = structs.replace(FIRST, failure=Failure(kind="no_tokens", message="none"))
    without = Measurer(run(facts=FACTS))
    without.add(failed)
    third = without.add(turn(2, prompt=1500, cached=0, shared=(1000, 1064)))
    assert ids(third)[0] == ["no_cold"]


def test_later_turns_say_nothing_of_how_long_a_first_turn_or_a_tier_takes() -> None:
    # Ten times as long as the first turn: against these it would seem to have found something.
    slow = [
        turn(number, prompt=9000, cached=992, shared=(1000, 1064), ttft_ms=10_000) for number in (2, 3, 4)
    ]
    again = structs.replace(FIRST, attempt=2, prompt=structs.replace(FIRST.prompt, sha256="t1 again"))
    first = judged(FIRST, *slow, again)
    assert first.verdict.valid and first.verdict.reuse == "held"
    tier = exchange(prompt=7, cached=0, sha="c1")
    assert judged(FIRST, *slow, tier).verdict.reuse == "held"
