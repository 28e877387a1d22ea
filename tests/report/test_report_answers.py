"""Sections on what was asked and answered: only where a run carries them."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import msgspec
import pytest
import report_samples as samples
from report_runs import Server, plan, suite

from bench.analysis.statistics.answers import Divergence, Equivalence, NeedleScore
from bench.journal import Journal
from bench.records import Exchange, Needle, PromptSettings, RunInfo
from bench.report import html, markdown, run_pass
from bench.report.answers import TASKS_POOLED, greedy_notes, greedy_rows, needle_rows, task_lines
from bench.report.content import collect
from bench.report.export import summary_json, summary_schema
from bench.report.words import reuse_lines

SCORE = NeedleScore(route="mtp4", tier=6_316, condition="cold", answers=4, depths=(0.9, 0.1), found=(3, 4))
SAME = Divergence(characters=100, first=None, share=1.0)


def parted(first: int, tokens: int | None = None) -> Divergence:
    return Divergence(characters=100, first=first, words=first // 5, tokens=tokens, share=first / 100)


def equivalence(route: str, base: str, *pairs: Divergence, task: str = "continue") -> Equivalence:
    return Equivalence(route=route, base=base, tier=6_316, task=task, divergences=pairs)


def test_without_needles_tasks_and_greedy_answers_there_is_no_section() -> None:
    plain = samples.content()
    assert (needle_rows(plain), greedy_rows(plain), task_lines(plain)) == ([], [], [])
    for page in (markdown.render(plain), html.render(plain)):
        assert not {word for word in ("Needles", "Greedy answers", "Tasks") if word in page}


def test_needles_stand_by_depth_from_the_front_with_what_they_are_out_of() -> None:
    found = samples.content(needle_scores=(SCORE,))
    assert needle_rows(found) == [("mtp4", "6,316", "cold", "4", "88%", "10%: 4/4, 90%: 3/4")]
    assert "10%: 4/4, 90%: 3/4" in markdown.render(found)
    assert "10%: 4/4, 90%: 3/4" in html.render(found)


def test_greedy_answers_are_told_with_share_and_place_beside_a_route_against_itself() -> None:
    found = samples.content(
        equivalences=(
            equivalence("mtp4", "target-only", SAME, parted(50, 12), parted(20, 6)),
            equivalence("target-only", "target-only", SAME, SAME),
        )
    )
    assert greedy_rows(found) == [
        ("mtp4", "target-only", "6,316", "3", "1", "50% (7 words, 9 tokens)", "20% (4 words, 6 tokens)"),
        ("target-only", "itself (replay, cold)", "6,316", "2", "2", "100%", "none"),
    ]
    for page in (markdown.render(found), html.render(found)):
        assert "Greedy answers" in page and "No verdict" in page and "50% (7 words, 9 tokens)" in page


def test_needles_and_greedy_answers_stand_in_the_summary_too() -> None:
    pairs = (SAME, parted(50, 12), parted(20, 6))
    found = samples.content(
        needle_scores=(SCORE,),
        equivalences=(equivalence("mtp4", "target-only", *pairs), equivalence("mtp4", "mtp4", SAME)),
        answers_left_out=3,
    )
    data = json.loads(summary_json(found))
    (needles,) = data["needles"]
    assert (needles["route"], needles["answers"], needles["found"]) == ("mtp4", 4, [3, 4])
    assert needles["score"] == 7 / 8  # three and four of four each
    other, itself = data["greedy"]
    assert (other["pairs"], other["identical"], other["share"]) == (3, 1, 0.5)
    assert (other["earliest"]["first"], other["earliest"]["words"], other["earliest"]["tokens"]) == (20, 4, 6)
    assert (itself["base"], itself["identical"], itself["earliest"]) == ("mtp4", 1, None)
    assert data["greedy_left_out"] == 3
    jsonschema.validate(data, json.loads(summary_schema()))
    assert json.loads(summary_json(samples.content()))["needles"] == []


def test_notes_say_what_was_not_compared() -> None:
    alone = samples.content(equivalences=(equivalence("mtp4", "mtp4", parted(50)),), answers_left_out=3)
    assert greedy_rows(alone)[0][5:] == ("50% (10 words)", "50% (10 words)")
    assert "3 answers were too many" in greedy_notes(alone)
    assert "No two routes answered the same prompts" in greedy_notes(alone)


def test_several_tasks_are_listed_with_their_class_and_told_apart() -> None:
    found = samples.content(
        tasks={"edit-code": "high", "mine|x": "unknown"},
        equivalences=(
            equivalence("a", "a", SAME, task="edit-code"),
            equivalence("a", "a", SAME, task="mine|x"),
        ),
    )
    assert task_lines(found) == [
        "edit-code: high acceptance expected",
        "mine|x: unknown acceptance expected",
        TASKS_POOLED,
    ]
    assert [row[2] for row in greedy_rows(found)] == ["6,316 edit-code", "6,316 mine|x"]
    assert "mine|x" not in markdown.render(found)  # it would be two columns


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Two tasks; the needle is found by all but mtp4, whose text also differs from target-only's."""
    given = msgspec.structs.replace(suite((512,), 1, 16), prompt=PromptSettings(task=("edit-code", "needle")))
    trials = [
        msgspec.structs.replace(trial, task=task, id=f"{trial.id}~{task}")
        for trial in plan(given)
        for task in given.prompt.tasks
    ]
    info = RunInfo(
        schema=1, id="r", created_at="", nonce="n", suite=given, suite_text="", plan=tuple(trials)
    )  # fmt: skip
    servers = {route.name: Server(route.name) for route in given.routes}
    journal = Journal.create(tmp_path / "r", info)
    for trial in trials:
        journal.append(answered(servers[trial.route].serve(trial, 1.0, 2)))
    journal.close()
    return tmp_path / "r"


def answered(one: Exchange) -> Exchange:
    needle = one.trial.task == "needle"
    code = "111111" if one.trial.route == "mtp4" else "123456"
    prompt = msgspec.structs.replace(
        one.prompt,
        sha256=f"{one.trial.task} {one.prompt.sha256}",
        acceptance_class="middle" if needle else "high",
        needles=(Needle(vault="Harbour", code="123456", depth=0.5),) if needle else (),
    )
    text = f"Harbour: {code}" if needle else one.text
    return msgspec.structs.replace(one, prompt=prompt, text=text)


def test_a_run_of_several_tasks_is_graded_and_compared_from_its_journal(run: Path) -> None:
    found = collect([run])
    assert found.tasks == {"edit-code": "high", "needle": "middle"}
    assert {(one.route, one.condition): one.score for one in found.needle_scores} == {
        ("mtp4", "cold"): 0.0,
        ("mtp4", "replay"): 0.0,
        ("mtp2", "cold"): 1.0,
        ("mtp2", "replay"): 1.0,
        ("target-only", "cold"): 1.0,
        ("target-only", "replay"): 1.0,
    }
    parts = {(one.task, one.route): one.share for one in found.equivalences if one.base == "target-only"}
    assert {line.partition(":")[0] for line in reuse_lines(found)} == {
        "512 tokens, replay 1, edit-code",
        "512 tokens, replay 1, needle",
    }
    assert parts["needle", "mtp4"] == len("Harbour: 1") / len("Harbour: 123456")
    assert parts["needle", "mtp2"] == parts["edit-code", "mtp4"] == parts["edit-code", "target-only"] == 1.0


def test_answers_beyond_the_room_for_them_are_counted_and_still_graded(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_pass, "ANSWER_CHARACTERS", 0)
    found = collect([run])
    assert found.answers_left_out == len(found.measurements) == 18
    assert not found.equivalences
    assert len(found.needle_scores) == 6
