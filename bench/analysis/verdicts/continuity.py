"""Was it the same server process on both pages? Several clues, since no single one is always there."""

from __future__ import annotations

from datetime import UTC, datetime

from bench.analysis.verdicts.counters import Deltas, difference
from bench.engines.base import Dialect
from bench.records import Scrape

_IDENTITY = ("num_gpu_blocks", "block_size", "kv_cache_size_tokens", "cache_dtype", "engine")
"""Labels of the configuration family that no running process changes."""
_UNIX = (1e9, 4e9)
"""Seconds that are taken for a time of day: the years 2001 to 2096."""


def change_between(
    earlier: Scrape | None,
    later: Scrape | None,
    dialect: Dialect,
    *,
    our_tokens: int | None = None,
    starts_seen: frozenset[float] = frozenset(),
    moved: Deltas | None = None,
) -> tuple[str | None, str]:
    """(`restart` | `replicas` | None, the clue).

    Clues: another process start; a changed configuration; counters that fell or vanished. A process
    start that was seen before the present one, or counters that fell to a level no fresh process has
    after `our_tokens`, speak of several replicas behind one address. A missing page is no clue. `moved`: the
    `difference` of the two pages, where that is known already.
    """
    if earlier is None or later is None or not earlier.values or not later.values:
        return None, ""
    was, now = earlier.values.get("process_start"), later.values.get("process_start")
    if was is not None and now is not None and was != now:
        if now in starts_seen:
            return "replicas", f"process start {_moment(now)} came back"
        return "restart", f"process start {_moment(was)} became {_moment(now)}"
    for label in _IDENTITY:
        if label in earlier.info and label in later.info and earlier.info[label] != later.info[label]:
            return "restart", f"{label} {earlier.info[label]} became {later.info[label]}"
    moved = difference(earlier, later, dialect) if moved is None else moved
    lost = [name for name in moved.vanished if earlier.values[name] > 0]
    if not moved.fell and not lost:
        return None, ""
    name = next(
        (n for n in ("generation_tokens", "prompt_tokens") if n in moved.fell), (*moved.fell, *lost)[0]
    )
    clue = f"{name} fell from {earlier.values[name]:.0f} to {later.values.get(name, 0):.0f}"
    left = later.values.get("generation_tokens")
    if our_tokens is not None and left is not None and left > our_tokens:
        return "replicas", clue
    return "restart", clue


def _moment(start: float) -> str:
    """A process start as a time; an engine that gives any other constant gets its number back."""
    if not _UNIX[0] <= start <= _UNIX[1]:
        return f"{start:.2f}"
    return datetime.fromtimestamp(start, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-4] + " UTC"
