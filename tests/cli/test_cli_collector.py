"""How often the garbage collector runs, and what it leaves alone."""

from __future__ import annotations

import gc
import sys

import pytest

from bench.cli.collector import frozen, seldom
from bench.cli.main import main


def test_the_usual_thresholds_come_back_even_after_an_error() -> None:
    usual = gc.get_threshold()
    with pytest.raises(ValueError, match="meanwhile"), seldom():
        assert gc.get_threshold() == (100_000, *usual[1:])
        raise ValueError("meanwhile")
    assert gc.get_threshold() == usual


def test_what_was_there_is_left_alone_until_the_end() -> None:
    before = gc.get_freeze_count()
    with frozen():
        loop: list[object] = []
        loop.append(loop)
        del loop
        assert gc.get_freeze_count() > before
        assert gc.collect() >= 1  # what is new is still looked at
    assert gc.get_freeze_count() == 0


def test_commands_leave_the_collector_as_it_was(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    usual = gc.get_threshold()
    monkeypatch.setattr(sys, "argv", ["ctxbench", "--version"])
    with pytest.raises(SystemExit):
        main()
    assert capsys.readouterr().out.startswith("ctxbench ")
    assert gc.get_threshold() == usual
