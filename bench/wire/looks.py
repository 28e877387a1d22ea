"""How often a server is looked at while it works: seldom enough that looking does not disturb."""

from __future__ import annotations

FIRST_S = 0.02
"""Wait before the first look: the request goes out undisturbed."""
_SHARE = 0.05  # of the time, at most, may be spent on looks


def pause_s(period_s: float, spent_s: float) -> float:
    """Seconds until the next look: the rest of the period, or more where a look costs much of it."""
    return max(period_s - spent_s, spent_s / _SHARE)
