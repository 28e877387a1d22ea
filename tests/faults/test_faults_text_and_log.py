"""Faults that leave every number as it is: the text must arrive whole too, and a flooded log is seen."""

from __future__ import annotations

import json
from pathlib import Path

from fault_runs import Ran, run_on

from bench.analysis.logs.analyser import LogAnalyser, LogReport

INSERTED = {"utf8-split": " é漢😀", "line-separator": " one\u2028two"}
"""What the fault puts behind the text of every chunk."""

SAME_TEXT = (
    "role-early",
    "wide-chunks",
    "buffered",
    "comments",
    "crlf",
    "multi-line-data",
    "huge-line",
    "no-done",
    "utf8-split",
    "line-separator",
    "reasoning",
    "reasoning-content",
    "tool-calls",
)


def test_the_text_arrives_whole_however_it_is_sent(tmp_path: Path) -> None:
    """Request 1 is the preflight, 2 the cold prompt, and each replay of it meets another fault: a
    server gives the same answer to the same prompt."""
    faults = [f"{name}@{number}" for number, name in enumerate(SAME_TEXT, start=3)]
    ran = run_on("toy", faults, tmp_path, conditions=("cold", "replay"), replays=len(SAME_TEXT))
    true = ran.exchanges[0].text
    assert len(true) > 16 and len(ran.exchanges) == 1 + len(SAME_TEXT)
    for name, one in zip(SAME_TEXT, ran.exchanges[1:], strict=True):
        assert one.failure is None, name
        if name == "tool-calls":
            assert (json.loads(one.tool_text), one.text, one.reasoning) == ({"text": true}, "", "")
        elif name.startswith("reasoning"):
            assert (one.reasoning, one.text) == (true, "")
            assert set(one.chunks.kinds) - {"e"} == {"r"}
        else:
            piece = INSERTED.get(name, "no such piece")
            assert one.text.replace(piece, "") == true, name
            assert one.text.count(piece) == (sum(map(bool, one.chunks.chars)) if name in INSERTED else 0)


def log_of(fault: str, results: Path) -> tuple[Ran, LogReport]:
    """The log of a run with 64 tokens past the drafter limit of 8,192."""
    ran = run_on("toy", [fault], results, tier=8200, conditions=("cold",), output=64)
    analyser = LogAnalyser(output_tokens=sum(truth.output_tokens for truth in ran.truths))
    analyser.feed("\n".join(ran.log).encode())
    return ran, analyser.report()


def test_a_warning_for_every_step_is_a_flood_in_the_log_and_one_warning_is_none(tmp_path: Path) -> None:
    ran, flooded = log_of("warning-per-step", tmp_path)
    (flood,) = flooded.kind("flood")
    assert (flood.level, flood.count) == ("WARNING", ran.truths[0].over_limit_steps)
    assert flood.count >= 63
    _, quiet = log_of("over-limit-no-drafts", tmp_path)
    assert quiet.kind("flood") == ()
    assert quiet.levels["WARNING"] == 1
