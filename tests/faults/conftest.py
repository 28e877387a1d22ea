"""What all tests of this folder want of the preflight."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def one_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """The preflight is exactly one request (a busy machine would make it send a second one, and the
    faults are counted in requests), and looks at this machine for a moment only."""
    monkeypatch.setattr("bench.run.preflight.probe._DOUBTFUL", frozenset())
    monkeypatch.setattr("bench.run.preflight.checks._LAG_WINDOW_S", 0.06)
    monkeypatch.setattr("bench.run.study.environment", dict)  # looking up versions takes a tenth of a run
