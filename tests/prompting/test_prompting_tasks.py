from __future__ import annotations

from pathlib import Path

import pytest

from bench.errors import SuiteError
from bench.prompting.tasks import load_task, parse_task


@pytest.mark.parametrize("name", ["continue", "summarise", "extract", "edit-code", "open-ended", "needle"])
def test_every_shipped_task_reads_and_says_what_its_acceptance_is_like(name: str) -> None:
    task = load_task(name)
    assert task.instruction == task.instruction.strip() != ""
    assert task.acceptance in {"high", "middle", "low"}


def test_a_task_may_be_a_plain_file_below_the_suite(tmp_path: Path) -> None:
    (tmp_path / "mine.md").write_text("Count the words.\n")
    task = load_task("mine.md", tmp_path)
    assert (task.instruction, task.acceptance, task.bare_completion) == ("Count the words.", "unknown", False)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("---\nacceptance: huge\n---\nx", "acceptance: huge is not known"),
        ("---\ncolour: red\n---\nx", "colour: red is not known"),
        ("---\nacceptance: low\nx", "no closing"),
        ("---\nacceptance: low\n---\n \n", "no instruction"),
    ],
)
def test_a_task_that_says_nothing_or_too_much_is_refused(text: str, message: str) -> None:
    with pytest.raises(SuiteError, match=message):
        parse_task("t", text)


def test_an_unknown_task_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(SuiteError, match="continue, edit-code, extract"):
        load_task("sing", tmp_path)
    (tmp_path / "long.md").write_text("x" * 70_000)
    with pytest.raises(SuiteError, match="longer than 64 KiB"):
        load_task("long.md", tmp_path)
