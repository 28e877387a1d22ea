"""Help of the whole command is quick and says the same."""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Callable
from typing import Any

import pytest

from bench.cli import main


def printed(run: Callable[[], Any]) -> str:
    told = io.StringIO()
    with contextlib.redirect_stdout(told), pytest.raises(SystemExit):
        run()
    return told.getvalue()


@pytest.mark.parametrize("argument", ["-h", "--help"])
def test_the_outline_prints_the_help_of_the_whole(argument: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["ctxbench", argument])
    whole = printed(main.app)
    assert "crossover" in whole and "--version" in whole
    assert printed(main.outline()) == whole


def test_help_of_the_whole_makes_sense_of_no_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(main, "app", None)  # which only the outline's registrations are read from
    monkeypatch.setattr(main, "outline", lambda: lambda: print("the outline"))
    for arguments in ([], ["-h"], ["--help"]):
        monkeypatch.setattr(sys, "argv", ["ctxbench", *arguments])
        assert main._exit_code() == 0
