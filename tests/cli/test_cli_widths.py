"""Whatever a command is given to say, its lines stay within a hundred columns, or within the terminal."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from bench.analysis.watch.described import Watched
from bench.analysis.watch.journal import LogLine, Seen
from bench.cli.main import app
from bench.journal import Journal
from bench.plan.estimate import PlanEstimate, TrialEstimate
from bench.records import Event, PromptSettings, Route, RunInfo, Suite, Trial
from bench.run.forecast.expect import Planned
from bench.run.preflight.checks import Check
from bench.run.status import InFlight, Status

LONG = "what was found, at length, in a folder /of/a/name/that/goes/on/and/on/for/ever/and/ever: " * 4
ROUTE = "a-route-with-a-long-name-" * 2
SUITE = f"""
[suite]
name = "s"
tiers = [131072, 1000000]
output_tokens = 4096
[[route]]
name = "{ROUTE}"
base_url = "http://127.0.0.1:8000/v1"
"""

Set = pytest.MonkeyPatch


def check(folder: Path, patch: Set) -> list[str]:
    async def found(order: object) -> list[Check]:
        return [Check(route=ROUTE, name="speculation", state="fail", text=LONG)] * 2

    patch.setattr("bench.run.preflight.whole.preflight", found)
    return ["check", str(suite(folder))]


def plan(folder: Path, patch: Set) -> list[str]:
    trials = tuple(
        Trial(id=f"{ROUTE}/1000000/replay/{n}.1", route=ROUTE, tier=1_000_000, condition="cold", repeat=n)
        for n in range(3)
    )
    rows = tuple(
        TrialEstimate(trial_id=one.id, total_s=40_000.0, basis=f"law, {one.repeat}.2x beyond: {LONG}")
        for one in trials
    )
    known = Planned(trials=trials, estimate=PlanEstimate(trials=rows), notes=(LONG,), text=LONG)
    patch.setattr("bench.run.forecast.expect.planned", lambda *_, **__: known)
    return ["plan", str(suite(folder))]


def plan_of_nothing_known(folder: Path, patch: Set) -> list[str]:
    return ["plan", str(suite(folder)), "--results", str(folder / "none")]


def context(folder: Path, patch: Set) -> list[str]:
    rope = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 262_144}
    config = {
        "text_config": {"max_position_embeddings": 262_144, "mtp_num_hidden_layers": 3, "rope_scaling": rope}
    }
    (folder / "config.json").write_text(json.dumps(config))
    return [
        "context", str(folder), "--max-model-len", "1000000000", "--speculation", "mtp:4",
        "--tiers", "6316,999999999", "--output", "999999999",
    ]  # fmt: skip


def watch(folder: Path, patch: Set) -> list[str]:
    one = Watched(
        kind="window", why=LONG, span_s=1e6, pages=3, requests=999, prompt_tokens=10**9, output_tokens=10**9,
        cached_tokens=10**9, prefix_reuse=1.0, server_ttft_s=1e5, queue_s=1e5, decode_tok_s=1e5,
        acceptance=0.5, acceptance_length=3.5, acceptance_per_position=(0.5,) * 32, notes=(LONG,),
    )  # fmt: skip
    seen = Seen(at="2026-11-01T10:00:00.000Z", watched=one, log=(LogLine(count=9, level="ERROR", text=LONG),))
    route = Route(name="watched", base_url="http://127.0.0.1:1/v1")
    info = RunInfo(
        schema=1, id="w", created_at=seen.at, nonce="n", suite_text="", plan=(), suite=Suite(
            name="watch", tiers=(), conditions=(), output_tokens=0, repeats=0, replays=0, seed=0,
            warmup="none", retry_invalid=0, interleave=False, prompt=PromptSettings(), routes=(route,),
        ),
    )  # fmt: skip
    with Journal.create(folder / "w", info) as journal:
        journal.append(Event(name="watched", at=seen.at, data=msgspec.to_builtins(seen)))
    return ["watch", str(folder / "w")]


def status(folder: Path, patch: Set) -> list[str]:
    stands = Status(
        id=ROUTE * 3, state="running", process=1, total=99_999, done=9, left=99_990, valid=9, invalid=9,
        reasons={f"a_reason_of_some_length_{n}": 1000 for n in range(20)}, last=LONG, last_age_s=9e9,
        in_flight=(InFlight(trial=f"{ROUTE}/1000000/replay/1.1", attempt=99, purpose="trial", since_s=9e9),),
    )  # fmt: skip
    patch.setattr("bench.run.status.status", lambda _: stands)
    return ["status", str(folder)]


def routes(folder: Path, patch: Set) -> list[str]:
    model = "/a/model/folder/with/a/name/of/some/length/" + "x" * 40
    return ["routes", "vllm", "--model", model, "--mtp", "0,2,4", "--serve", "--some-option value " * 9]


def suite(folder: Path) -> Path:
    (folder / "s.toml").write_text(SUITE)
    return folder / "s.toml"


@pytest.mark.parametrize("columns", [100, 60])
@pytest.mark.parametrize(
    "given", [check, plan, plan_of_nothing_known, context, watch, status], ids=lambda one: one.__name__
)
def test_no_line_is_wider_than_the_terminal(
    given: Callable[[Path, Set], list[str]], columns: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    said = CliRunner().invoke(app, given(tmp_path, monkeypatch))
    lines = said.output.splitlines()
    assert len(lines) > 2, said.exception
    assert [line for line in lines if len(line) > columns] == []


def test_no_line_of_a_printed_suite_is_wider_than_a_hundred_columns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = CliRunner().invoke(app, routes(tmp_path, monkeypatch))
    assert said.exit_code == 0 and max(map(len, said.output.splitlines())) <= 100
