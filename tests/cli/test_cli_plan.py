"""`ctxbench plan` while nothing is known of the routes: how many trials of what."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from bench.cli.main import app
from bench.errors import SuiteError
from bench.plan.estimate import PlanEstimate, TrialEstimate
from bench.records import Condition, Trial
from bench.run.forecast.expect import Planned

SUITE = """
[suite]
name = "s"
tiers = [1000]
conditions = ["cold", "replay"]
output_tokens = 64
repeats = 2
replays = 1
{}
[[route]]
name = "a"
base_url = "http://127.0.0.1:8000/v1"
"""


@pytest.mark.parametrize(
    ("levels", "expected"),
    [
        ("", ["trials tokens condition route", "2 1,000 cold a", "2 1,000 replay a"]),
        (
            "concurrency = [1, 4]",
            [
                "trials tokens at once condition route",
                "2 1,000 1 cold a",
                "2 1,000 1 replay a",
                "8 1,000 4 cold a",
                "8 1,000 4 replay a",
            ],
        ),
    ],
    ids=["one at a time", "levels"],
)
def test_trials_are_counted_by_cell_and_level(tmp_path: Path, levels: str, expected: list[str]) -> None:
    file = tmp_path / "suite.toml"
    file.write_text(SUITE.format(levels), "utf-8")
    result = CliRunner().invoke(app, ["plan", str(file), "--results", str(tmp_path / "none")])
    assert result.exit_code == 0
    assert [" ".join(line.split()) for line in result.stdout.splitlines()] == expected


def trials_of(level: int, tier: int, condition: Condition) -> list[Trial]:
    name = f"target-only/{tier}/{condition}/1"
    streams = range(1, level + 1) if level > 1 else (0,)
    return [
        Trial(
            id=name + (f"@{level}.{stream}" if stream else ""), route="target-only", tier=tier,
            condition=condition, repeat=1, concurrency=level, stream=stream,
        )
        for stream in streams
    ]  # fmt: skip


@pytest.mark.parametrize("columns", [80, 60])
def test_a_plan_has_one_line_a_trial_or_wave_under_a_heading_and_says_what_its_times_rest_on(
    columns: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trials = (
        *trials_of(1, 8192, "cold"),
        *trials_of(4, 8192, "cold"),
        *trials_of(4, 65536, "cold"),
        *trials_of(1, 65536, "replay"),
    )
    seconds = [0.0123, *[0.25] * 4, *[9.9, 10, 10, 10], 4000]
    rows = tuple(
        TrialEstimate(trial_id=one.id, total_s=s, basis="law" if one.tier == 65536 else "measured")
        for one, s in zip(trials, seconds, strict=True)
    )
    known = Planned(trials=trials, estimate=PlanEstimate(trials=rows), text="about 40 s")
    monkeypatch.setattr("bench.run.forecast.expect.planned", lambda *_, **__: known)
    monkeypatch.setenv("COLUMNS", str(columns))
    file = tmp_path / "suite.toml"
    file.write_text(SUITE.format(""), "utf-8")
    said = CliRunner().invoke(app, ["plan", str(file)]).stdout.splitlines()
    assert said[:6] == [
        "     trial                         time  known from",
        "  1  target-only/8192/cold/1      12 ms  measured",
        "2-5  target-only/8192/cold/1@4    1.0 s  measured",
        "6-9  target-only/65536/cold/1@4    40 s  law",
        " 10  target-only/65536/replay/1  67 min  law",
        "",
    ]
    keys = " ".join(" ".join(said[6:]).split())
    assert keys == (
        "measured: earlier runs had this route, prompt length and condition "
        "law: no earlier run had this prompt length; reckoned by the law of those they had "
        "@N: a wave, N requests sent at once; its time is that of all together"
    )


def test_a_plan_of_single_trials_explains_no_waves_and_no_law(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trials = tuple(trials_of(1, 8192, "cold"))
    rows = (TrialEstimate(trial_id=trials[0].id, total_s=0.0002, basis="measured"),)
    known = Planned(trials=trials, estimate=PlanEstimate(trials=rows), text="about 40 s")
    monkeypatch.setattr("bench.run.forecast.expect.planned", lambda *_, **__: known)
    file = tmp_path / "suite.toml"
    file.write_text(SUITE.format(""), "utf-8")
    said = CliRunner().invoke(app, ["plan", str(file)]).stdout
    assert "  1 ms  measured" in said and "@N" not in said and "law" not in said


@pytest.mark.parametrize("command", [["plan"], ["check"], ["run"], ["run", "--dry-run"]])
@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        ('corpus = "texts/*.md"', "corpus 'texts/*.md' matches no file (looked for "),
        ('corpus = "texts"', "corpus 'texts' is not there (looked for "),
        ('task = "sum.md"', "no task 'sum.md' ("),
    ],
)
def test_texts_that_are_not_there_are_refused_before_anything_is_planned(
    tmp_path: Path, command: list[str], prompt: str, message: str
) -> None:
    file = tmp_path / "suite.toml"
    file.write_text(SUITE.format(f"[prompt]\n{prompt}"), "utf-8")
    result = CliRunner().invoke(app, [*command, str(file), "--results", str(tmp_path / "none")])
    assert isinstance(result.exception, SuiteError), result.output
    assert str(result.exception).startswith(f"{file}: [prompt] {message}")
    assert result.exception.exit_code == 2
