"""What a pair of routes may be said to be: by the signs of two differences, and by how many trials."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from bench.analysis.statistics import bootstrap
from bench.records import Crossover, Estimate


def hedge(*samples: int, trials: Sequence[int] | None = None) -> str:
    """What a claim of a pair of routes must carry, by the texts of each side: the one rule for all who
    tell of crossovers. Empty from five texts a side on. `trials` of these texts, where they are more."""
    spread = bootstrap.spread_of(*samples)
    if spread == "interval":
        return ""
    if spread is None:
        return f"a point: one {unit_of(trials)} a side, no spread"
    return f"in the range seen of {counted(samples, trials)}"


def many(count: int, thing: str) -> str:
    """`1 trial`, `1,200 trials`."""
    return f"{count:,} {thing}" + ("" if count == 1 else "s")


def counted(samples: Sequence[int], trials: Sequence[int] | None = None) -> str:
    """What was measured on each side: `5 and 6 trials`, or `3 and 3 texts (6 and 6 trials)`."""
    if trials is None:
        return _listed(samples, "trial")
    return f"{_listed(samples, 'text')} ({_listed(trials, 'trial')})"


def unit_of(trials: Sequence[int] | None) -> str:
    """What a number of samples counts: trials, or texts where a text had several."""
    return "trial" if trials is None else "text"


def _listed(counts: Sequence[int], thing: str) -> str:
    if len(counts) == 1:
        return many(counts[0], thing)
    if set(counts) == {1}:
        return f"one {thing} a side"
    *others, last = map(str, counts)
    return f"{', '.join(others)} and {last} {thing}s"


def sign_of(estimate: Estimate | None) -> int | None:
    """-1 or 1 when the whole spread lies on one side, 0 for an exact tie, `None` when it contains 0."""
    if estimate is None:
        return None
    low = estimate.value if estimate.low is None else estimate.low
    high = estimate.value if estimate.high is None else estimate.high
    if low > 0:
        return 1
    if high < 0:
        return -1
    return 0 if low == high == 0 else None


def status_of(
    ttft: Estimate | None, tpot: Estimate | None
) -> Literal["crosses", "always", "never", "undecided"]:
    """What two differences, route - base, say of their order.

    `undecided` where a spread contains 0, and instead of `always` and `never` where no spread is known:
    points that cross give a point, but points alone are no ground for a claim about every length.
    """
    start, step = sign_of(ttft), sign_of(tpot)
    if start is None or step is None or start == step == 0:
        return "undecided"
    if start * step < 0:
        return "crosses"
    if not (_has_spread(ttft) and _has_spread(tpot)):
        return "undecided"
    return "always" if start + step < 0 else "never"


def _has_spread(estimate: Estimate | None) -> bool:
    return estimate is not None and estimate.low is not None and estimate.high is not None


def leader(one: Crossover) -> str:
    """The route whose lead `until` ends."""
    if one.status == "undecided" and one.ahead is not None:
        return one.ahead
    return one.route if one.wins == "above" or one.status == "always" else one.base


def by_points(route: str, base: str, ttft: Estimate | None, tpot: Estimate | None) -> str | None:
    """What two differences without a spread say at every output length; `None`: they have one, or cross."""
    start, step = sign_of(ttft), sign_of(tpot)
    if start is None or step is None or start * step < 0 or start == step == 0:
        return None
    if _has_spread(ttft) and _has_spread(tpot):
        return None
    return f"by the points alone {route if start + step < 0 else base} is faster at every output length"
