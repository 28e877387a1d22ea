"""Whose fault is a failed request? `bench.analysis.verdicts.blame`, which a report asks, too."""

from __future__ import annotations

from bench.analysis.verdicts.blame import (
    End,
    asked_to_wait_s,
    is_servers_fault,
    means_later,
    status_in,
    turned_away,
)

__all__ = ["End", "asked_to_wait_s", "is_servers_fault", "means_later", "status_in", "turned_away"]
