"""How well a time is known that this client measured."""

from __future__ import annotations

import pytest

from bench.analysis.verdicts.uncertainty import client_uncertainty_s, not_longer
from bench.records import ClientHealth


def health(p99: float, pause: float | None) -> ClientHealth:
    return ClientHealth(
        loop_lag_p50_ms=0.1, loop_lag_p99_ms=p99, loop_lag_max_ms=90.0, cpu_share=0.1, gc_pause_max_ms=pause
    )


@pytest.mark.parametrize(
    ("p99", "pause", "ms"),
    [(0.2, 0.1, 0.3), (2.0, 0.1, 2.0), (2.0, 7.5, 7.5), (2.0, None, 2.0), (0.0, None, 0.3)],
)
def test_the_largest_of_floor_lag_and_pause_counts(p99: float, pause: float | None, ms: float) -> None:
    assert client_uncertainty_s(health(p99, pause)) == pytest.approx(ms / 1000)


def test_a_client_that_was_not_watched_has_no_known_uncertainty() -> None:
    assert client_uncertainty_s(None) is None
    assert not_longer(None, {"TTFT": 0.0}) == ()


def test_times_up_to_the_uncertainty_are_named() -> None:
    times = {"TTFT": 0.002, "decode time": 0.0021, "nothing": None, "gap": 0.0}
    assert not_longer(0.002, times) == ("TTFT", "gap")
