from __future__ import annotations

import pytest


@pytest.fixture
def single_preflight(monkeypatch: pytest.MonkeyPatch) -> None:
    """The preflight is exactly one request: a busy machine would make it send a second one, and faults are
    counted in requests."""
    monkeypatch.setattr("bench.run.preflight.probe._DOUBTFUL", frozenset())
