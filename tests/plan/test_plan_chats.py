"""Recorded chats in a suite and its plan."""

from __future__ import annotations

import pytest
from msgspec import structs

from bench.errors import SuiteError
from bench.plan.chats import ChatPlan
from bench.plan.estimate import estimate_trial, within_budget
from bench.plan.suite import parse_suite
from bench.plan.times import learn
from bench.plan.trials import groups, plan
from bench.records import ChatSettings, Measurement, Suite, Trial, Verdict

SUITE = """
[suite]
name = "s"
tiers = [512]
conditions = ["cold"]
output_tokens = 101
seed = 0
repeats = {repeats}
{keys}
[chats]
{chats}
[[route]]
name = "a"
base_url = "http://h:1/v1"
[[route]]
name = "b"
base_url = "http://h:2/v1"
"""
TWO = (ChatPlan(name="x line 1", tokens=(100, 250, 700)), ChatPlan(name="x line 2", tokens=(80,)))


def suite(chats: str = 'files = ["x.jsonl"]', *, repeats: int = 1, keys: str = "") -> Suite:
    return parse_suite(SUITE.format(chats=chats, repeats=repeats, keys=keys))


def test_the_keys_of_the_table_have_defaults_that_compare_routes_on_equal_prompts() -> None:
    assert suite().chats == ChatSettings(files=("x.jsonl",))
    asked = suite('files = ["x.jsonl"]\nanswers = "own"\nthink = 0.5\nmost_turns = 3\nmost_chats = 2').chats
    assert asked == ChatSettings(files=("x.jsonl",), answers="own", think=0.5, most_turns=3, most_chats=2)


@pytest.mark.parametrize(
    ("chats", "message"),
    [
        ("files = []", "at least one file"),
        ('files = [" "]', "at least one file"),
        ('files = ["a/x.jsonl", "b/x.jsonl"]', "two are called 'x.jsonl'"),
        ('files = ["x"]\nthink = -1', r"think = -1\.0: allowed are 0 \(no pauses\) to 10"),
        ('files = ["x"]\nthink = 11', "think = 11"),
        ('files = ["x"]\nmost_turns = 0', "most_turns = 0: allowed are 1 to 1,000"),
        ('files = ["x"]\nmost_chats = 1001', "most_chats = 1001"),
        ('files = ["x"]\nanswers = "mine"', "chats.answers = 'mine': allowed are recorded, own"),
        ('file = "x"', "unknown key 'chats.file'; did you mean 'files'"),
    ],
)
def test_a_mistake_in_the_table_is_named(chats: str, message: str) -> None:
    with pytest.raises(SuiteError, match=message):
        suite(chats)


def test_chats_come_last_each_whole_on_one_route_after_the_other() -> None:
    trials = plan(suite(), chats=TWO)
    assert [trial.id for trial in trials] == [
        "a/512/cold/1",
        "b/512/cold/1",
        *(f"a/chat-1/turn-{turn}/1" for turn in (1, 2, 3)),
        *(f"b/chat-1/turn-{turn}/1" for turn in (1, 2, 3)),
        "a/chat-2/turn-1/1",
        "b/chat-2/turn-1/1",
    ]
    turns = [trial for trial in trials if trial.chat == "x line 1" and trial.route == "a"]
    assert [(t.condition, t.turn, t.tier, t.shared, t.follows) for t in turns] == [
        ("turn", 1, 100, 0, False),
        ("turn", 2, 250, 100, True),
        ("turn", 3, 700, 250, True),
    ]
    assert tuple(turns) in groups(trials)


def test_every_repeat_has_its_chats_also_where_routes_follow_each_other() -> None:
    trials = plan(suite(repeats=2, keys="interleave = false"), chats=TWO[1:])
    assert [trial.id for trial in trials if trial.turn] == [
        f"{route}/chat-1/turn-1/{repeat}" for route in "ab" for repeat in (1, 2)
    ]


def known(tier: int, ttft_s: float, **changes: object) -> Measurement:
    fields: dict[str, object] = {
        "trial_id": f"a/{tier}",
        "route": "a",
        "tier": tier,
        "condition": "cold",
        "prompt_tokens": tier,
        "output_tokens": 101,
        "ttft_s": ttft_s,
        "tpot_s": 0.02,
        "verdict": Verdict(valid=True),
        **changes,
    }
    return Measurement(**fields)  # type: ignore[arg-type]


def test_a_turn_is_expected_to_compute_what_is_new_to_decode_and_to_wait_first() -> None:
    # 1 ms a token: 250 tokens, 100 of them cached.
    model = structs.replace(learn("a", [known(1000, 1.0)]), around_s=0.0)
    turn = plan(suite(), chats=(structs.replace(TWO[0], pauses_s=(0.0, 7.0, 0.0)),))[3]
    found = estimate_trial(turn, model, overhead_s=0.0)
    assert turn.turn == 2
    assert found.ttft_s == pytest.approx(0.150, abs=0.001)
    assert found.total_s == pytest.approx(0.150 + 100 * 0.02 + 7.0, abs=0.01)


def test_turns_teach_nothing_of_prompts_of_a_tier() -> None:
    cold = known(1000, 1.0)
    turns = [known(700, 0.01, condition="turn", turn=3, cached_tokens=650), known(100, 9.0, condition="turn")]
    assert learn("a", [cold, *turns]) == learn("a", [cold])
    assert not learn("a", turns).known


def test_a_budget_drops_repeats_of_chats_and_tiers_but_never_a_turn() -> None:
    asked = suite(repeats=2).routes[:1]
    both = structs.replace(suite(repeats=2), tiers=(512, 4096), routes=asked)
    trials = plan(both, chats=TWO[:1])
    model = {"a": structs.replace(learn("a", [known(1000, 1.0, tpot_s=0.0001)]), around_s=0.0)}
    fit = within_budget(trials, model, 1.5, overhead_s=0.0, warmup_tokens=0)
    assert [trial.id for trial in fit.trials] == [
        "a/512/cold/1",
        *(f"a/chat-1/turn-{turn}/1" for turn in (1, 2, 3)),
    ]
    with pytest.raises(SuiteError, match="smallest tier, 512 tokens, and of the chats takes"):
        within_budget(trials, model, 0.9, overhead_s=0.0, warmup_tokens=0)


def test_a_trial_of_a_tier_follows_only_as_a_replay() -> None:
    cold = Trial(id="x", route="a", tier=1, condition="cold", repeat=1)
    assert not cold.follows and structs.replace(cold, condition="replay").follows
