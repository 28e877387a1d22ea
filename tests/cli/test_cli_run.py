"""What `ctxbench run` does once its trials have been sent."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.cli.run import _end, _follow_up
from bench.errors import CheckFailed, JournalError, SuiteError


def test_a_run_without_follow_up_trials_is_not_read_again_at_its_end(tmp_path: Path) -> None:
    _end(tmp_path / "r", [None])  # there is nothing to read
    with pytest.raises(CheckFailed, match=r"^2 of 9 planned trials .*; ctxbench status .*r says why"):
        _end(tmp_path / "r", ["2 of 9 planned trials have no valid measurement"])


def test_follow_up_trials_are_read_at_the_end_of_a_run(tmp_path: Path) -> None:
    (tmp_path / "verify").mkdir()
    (tmp_path / "verify" / "run.json").write_text("{}")
    with pytest.raises(JournalError, match="not a run directory"):
        _end(tmp_path, [None])


def test_a_budget_that_is_no_duration_is_told_with_its_option() -> None:
    with pytest.raises(SuiteError, match=r"^--verify-budget: 'soon' is no duration"):
        _follow_up(True, "soon", force=False)
