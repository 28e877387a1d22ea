"""`ctxbench plan` while nothing is known of the routes: how many trials of what."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from bench.cli.main import app

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
