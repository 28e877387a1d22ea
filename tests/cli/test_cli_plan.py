"""`ctxbench plan` while nothing is known of the routes: how many trials of what."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from bench.cli.main import app
from bench.errors import SuiteError

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
