"""Was it the same server process on both pages? Several clues, since no single one is always there."""

from __future__ import annotations

from bench.analysis.verdicts.counters import difference
from bench.engines.base import Dialect
from bench.records import Scrape

_IDENTITY = ("num_gpu_blocks", "block_size", "kv_cache_size_tokens", "cache_dtype", "engine")
"""Labels of the configuration family that no running process changes."""


def change_between(
    earlier: Scrape | None,
    later: Scrape | None,
    dialect: Dialect,
    *,
    our_tokens: int | None = None,
    starts_seen: frozenset[float] = frozenset(),
) -> tuple[str | None, str]:
    """(`restart` | `replicas` | None, the clue).

    Clues: another process start; a changed configuration; counters that fell or vanished. A process
    start that was seen before the present one, or counters that fell to a level no fresh process has
    after `our_tokens`, speak of several replicas behind one address. A missing page is no clue.
    """
    if earlier is None or later is None or not earlier.values or not later.values:
        return None, ""
    was, now = earlier.values.get("process_start"), later.values.get("process_start")
    if was is not None and now is not None and was != now:
        if now in starts_seen:
            return "replicas", f"process start {now:.2f} came back"
        return "restart", f"process start {was:.2f} became {now:.2f}"
    for label in _IDENTITY:
        if label in earlier.info and label in later.info and earlier.info[label] != later.info[label]:
            return "restart", f"{label} {earlier.info[label]} became {later.info[label]}"
    moved = difference(earlier, later, dialect)
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
