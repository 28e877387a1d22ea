"""Servers whose first replay of a prompt misses: measured as they are, at no further cold prompt."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from run_helpers import ctxbench_here, exchanges, only_run, suite_text

from bench.analysis.statistics.curves import curve_key
from bench.analysis.verdicts.firstreplay import is_first_miss
from bench.analysis.verdicts.measure import measure_all
from bench.journal import read_info
from bench.plan.suite import parse_suite
from bench.records import Measurement
from bench.report.content import collect
from bench.report.markdown import render
from bench.report.run_pass import RunPass
from bench.run.progress import Progress
from bench.run.status import status
from bench.run.study import Order, resume, start
from bench.servers.simulator import start as simulate

FAULT = ["first-replay-misses"]


def suite(base_url: str, *, replays: int = 2) -> str:
    """Two repeats of one tier; answers so short that a machine which pauses spoils none."""
    text = suite_text({"a": base_url}).replace("[256, 512]", "[256]")
    text = text.replace("output_tokens = 16", "output_tokens = 4")
    return text.replace("replays = 1", f"replays = {replays}").replace(
        "retry_invalid = 3", "retry_invalid = 1"
    )


def measured(run: Path) -> list[Measurement]:
    return list(measure_all(read_info(run), exchanges(run)))


def test_every_trial_is_sent_once_and_the_run_is_whole(tmp_path: Path) -> None:
    with simulate("toy-target-only", faults=FAULT) as server:
        (tmp_path / "s.toml").write_text(suite(server.base_url))
        result = ctxbench_here(["run", "s.toml", "--force", "--quiet", "--no-report"], tmp_path)
    assert result.returncode == 0, result.stderr
    run = only_run(tmp_path / "results")
    assert [e.trial.id for e in exchanges(run)] == [trial.id for trial in read_info(run).plan]
    now = status(run)
    assert (now.state, now.unmeasured, now.valid, now.invalid) == ("finished", 0, 8, 0)
    first = [one for one in measured(run) if one.replay == 1]
    assert [is_first_miss(one) for one in first] == [True, True]
    report = render(collect([run]))
    (row,) = [line for line in report.splitlines() if "replay 1" in line and "2 ok, not reused" in line]
    assert row
    assert "the first replay of a prompt reused less" in report
    # What is held back finds its own stream again.
    found = RunPass(run)
    assert set(found.curves) == {curve_key(one) for one in found.measurements}


def test_a_cache_that_keeps_nothing_is_still_told_as_such(tmp_path: Path) -> None:
    with simulate("toy-target-only", faults=["evicts"]) as server:
        text = suite(server.base_url)
        run = asyncio.run(
            start(Order(suite=parse_suite(text), suite_text=text, results=tmp_path, force=True), Progress())
        )
    assert status(run).unmeasured == 4
    assert not any(map(is_first_miss, measured(run)))


def test_a_run_cut_off_between_the_two_replays_goes_on_with_the_second(tmp_path: Path) -> None:
    with simulate("toy-target-only", faults=FAULT) as server:
        text = suite(server.base_url).replace("repeats = 2", "repeats = 1")
        run = asyncio.run(
            start(Order(suite=parse_suite(text), suite_text=text, results=tmp_path, force=True), Progress())
        )
        journal = run / "journal.jsonl"
        lines = journal.read_bytes().splitlines(keepends=True)
        (first,) = [n for n, line in enumerate(lines) if b'"exchange"' in line and b'"replay":1' in line]
        journal.write_bytes(b"".join(lines[: first + 1]))  # as if killed right after it
        progress = Progress()
        asyncio.run(resume(run, progress))
    sent = [(e.trial.condition, e.trial.replay, e.purpose) for e in exchanges(run)]
    assert sent == [
        ("cold", 0, "trial"),
        ("replay", 1, "trial"),
        ("replay", 1, "prime"),  # for its place: it hits, which decides what the first one was
        ("replay", 2, "trial"),
        ("salted", 0, "trial"),
    ]
    assert status(run).state == "finished" and progress.unmeasured == 0
    assert [is_first_miss(one) for one in measured(run)] == [False, True, False, False]


@pytest.mark.usefixtures("single_preflight")
def test_a_first_replay_sent_once_more_is_judged_by_one_that_is_not_measured(
    tmp_path: Path,
) -> None:
    # Requests: 1 the preflight's, 2 the warm-up, 3 cold, 4 the first replay, cut off in its stream. What
    # is left behind a new cold prompt: that replay alone, and one more for its sake.
    with simulate("toy-target-only", faults=[*FAULT, "early-stop@4"]) as server:
        text = suite(server.base_url).replace("repeats = 2", "repeats = 1")
        run = asyncio.run(
            start(Order(suite=parse_suite(text), suite_text=text, results=tmp_path, force=True), Progress())
        )
    sent = [(e.trial.condition, e.trial.replay, e.purpose, e.attempt) for e in exchanges(run)]
    assert sent[4:] == [("cold", 0, "prime", 2), ("replay", 1, "trial", 2), ("replay", 2, "prime", 2)]
    assert [(one.attempt, one.verdict.valid) for one in measured(run) if one.replay == 1] == [
        (1, False),
        (2, True),
    ]
    assert status(run).unmeasured == 0
