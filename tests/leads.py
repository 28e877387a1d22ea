"""A crossover for the tests of what is said of one."""

from __future__ import annotations

from typing import Any

from bench.records import Crossover


def lead_that_ends(**changes: Any) -> Crossover:
    """Route a beats b from 300 (250 to 350) to 9,000 output tokens at 1,000 cold, but for `changes`."""
    told: dict[str, Any] = {
        "route": "a",
        "base": "b",
        "tier": 1_000,
        "condition": "cold",
        "status": "crosses",
        "wins": "above",
        "output_tokens": 300.0,
        "low": 250.0,
        "high": 350.0,
        "spread": "interval",
        "samples": (6, 6),
        "until": 9_000.0,
    }
    return Crossover(**(told | changes))
