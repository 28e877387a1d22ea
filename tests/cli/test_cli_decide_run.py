"""The deciding commands on run directories, whose arrival curves they use."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner, Result

from bench.analysis.statistics.curves import Arrival
from bench.api import Run
from bench.cli.main import app
from bench.errors import SuiteError
from bench.journal import Journal
from bench.records import (
    Chunks,
    Exchange,
    PromptRecipe,
    PromptSettings,
    Route,
    RunInfo,
    ServerFacts,
    Suite,
    Trial,
    Usage,
)

TIER, OUTPUT = 1000, 64
# seconds to the first token, seconds a token: they meet at 1 + 0.3 / 0.01 = 31 tokens
TIMES = {"slow": (1.0, 0.02), "fast": (1.3, 0.01)}


def exchange(trial: Trial, factor: float, sent_ns: int) -> Exchange:
    ttft, tpot = (factor * seconds for seconds in TIMES[trial.route])
    at = tuple(round((ttft + i * tpot) * 1e9) for i in range(OUTPUT))
    return Exchange(
        trial=trial,
        prompt=PromptRecipe(
            sha256=trial.id,
            tokens=TIER,
            endpoint="chat",
            corpus="python",
            corpus_sha256="",
            task="continue",
            start=0,
        ),
        url="http://127.0.0.1:1/v1/chat/completions",
        started_at="2026-11-29T10:00:00Z",
        sent_ns=sent_ns,
        headers_ns=at[0],
        ended_ns=at[-1] + 1_000_000,
        status=200,
        read_ns=(*at, at[-1]),
        read_bytes=(100,) * (OUTPUT + 1),
        chunks=Chunks(at_ns=(*at, at[-1]), chars=(4,) * OUTPUT + (0,), kinds="c" * OUTPUT + "e"),
        text="word" * OUTPUT,
        finish_reason="length",
        done=True,
        usage=Usage(prompt_tokens=TIER, completion_tokens=OUTPUT),
    )


def make_run(path: Path, version: str = "1", factor: float = 1.0) -> str:
    routes = tuple(Route(name=name, base_url=f"http://127.0.0.1:1/{name}/v1") for name in TIMES)
    suite = Suite(
        name="s", tiers=(TIER,), conditions=("cold",), output_tokens=OUTPUT, repeats=5, replays=0, seed=1,
        warmup="none", retry_invalid=0, interleave=False, prompt=PromptSettings(), routes=routes,
    )  # fmt: skip
    plan = tuple(
        Trial(
            id=f"{route}/{TIER}/cold/{i}",
            route=route,
            tier=TIER,
            condition="cold",
            repeat=i,
            output_tokens=OUTPUT,
        )
        for route in TIMES
        for i in range(1, 6)
    )
    info = RunInfo(
        schema=1, id=path.name, created_at="2026-11-29T10:00:00Z", nonce="n", suite=suite, suite_text="",
        plan=plan, facts={route: ServerFacts(version=version) for route in TIMES},
    )  # fmt: skip
    with Journal.create(path, info) as journal:
        for number, trial in enumerate(plan):
            journal.append(exchange(trial, factor * (1 + 0.002 * trial.repeat), number * 10**10))
    return str(path)


def call(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def test_a_crossover_inside_the_measured_window_comes_from_the_curves(tmp_path: Path) -> None:
    run = make_run(tmp_path / "one")
    (found,) = json.loads(call("crossover", run, "--base", "slow", "--json").stdout)
    assert (found["route"], found["status"], found["wins"]) == ("fast", "crosses", "above")
    assert found["output_tokens"] == pytest.approx(31, abs=0.5)
    assert (found["spread"], found["samples"]) == ("interval", [5, 5])
    assert found["low"] < 31.5 and found["high"] > 30.5 and found["extrapolation"] < 0.5


def test_two_runs_are_told_apart_even_when_they_are_called_the_same(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    runs = [make_run(tmp_path / folder / "run", factor=1 + i) for i, folder in enumerate("ab")]
    found = json.loads(call("crossover", *runs, "--base", "slow", "--json").stdout)
    assert len({one["base"] for one in found}) == 2
    assert {one["samples"][0] for one in found} == {5}


def test_compare_lists_what_differs_and_strict_refuses(tmp_path: Path) -> None:
    old, new = make_run(tmp_path / "old"), make_run(tmp_path / "new", version="2", factor=1.5)
    result = call("compare", old, new)
    assert "differs: slow, version: 1 -> 2" in result.stderr
    assert any(" ttft " in line and line.endswith("higher") for line in result.stdout.splitlines())
    strict = call("compare", old, new, "--strict")
    assert isinstance(strict.exception, SuiteError) and strict.stdout == ""


DECISIONS = [
    ("crossover",),
    ("advise", "--prompt", "1000", "--output", "10"),
    ("goodput", "--ttft", "1"),
]


@pytest.mark.parametrize(("command", "options"), [(name, options) for name, *options in DECISIONS])
def test_nothing_is_decided_by_a_watch_or_by_a_run_without_trials(
    tmp_path: Path, command: str, options: list[str]
) -> None:
    run = Path(make_run(tmp_path / "empty"))
    (run / "journal.jsonl").write_text("")
    assert "its journal holds no trial" in str(call(command, str(run), *options).exception)
    info = msgspec.json.decode((run / "run.json").read_bytes())
    info["plan"], info["suite"]["tiers"] = [], []
    (run / "run.json").write_bytes(msgspec.json.encode(info))
    told = str(call(command, str(run), *options).exception)
    assert "this is a watch, not a run: ctxbench report" in told


def test_only_crossovers_read_arrival_curves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are all of a run's chunks, in memory at once."""
    run = make_run(tmp_path / "one")
    asked = []

    def curves(run: Run) -> dict[tuple[str, str, int], Arrival]:
        asked.append(run.path)
        return {}

    monkeypatch.setattr(Run, "curves", curves)
    rule = ("--rule", "ttft cold * <= 1.05")
    for command in (
        ("compare", run, run),
        ("gate", run, "--baseline", run, *rule),
        ("advise", run, "--prompt", "1000", "--output", "10"),
        ("goodput", run, "--ttft", "1"),
        ("crossover", run, "--reused", "50%"),
    ):
        result = call(*command)
        assert result.exit_code == 0 and result.output and not asked, command
    assert call("crossover", run).exit_code == 0 and asked == [Path(run)]
