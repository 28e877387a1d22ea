"""A watch that was kept, told again from its run directory."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import msgspec

from bench.analysis.watch_totals import Totals
from bench.errors import JournalError
from bench.journal import read_run
from bench.records import Event, RunInfo
from bench.run.watch.watcher import NOTED, WATCH_ENDED, WATCHED, Hearer, Seen


def tell_again(path: Path, hearer: Hearer, totals: Totals) -> None:
    """Tells all that an earlier watch kept, as it was told then, and how long it watched.

    Raises `JournalError` when `path` is no directory of a watch, or an entry of it is damaged.
    """
    info, entries = read_run(path)
    if not is_watch(info):
        raise JournalError(
            f"{path}: this is a run, not a watch: ctxbench report {path} shows what it measured, "
            f"ctxbench status {path} how it stands"
        )
    watched_s: float | None = None
    last_at = info.created_at
    for entry in entries:
        if not isinstance(entry, Event):
            continue
        last_at = entry.at
        if entry.name == NOTED:
            hearer.note(entry.message)
        elif entry.name == WATCHED:
            seen = _seen(path, entry)
            totals.add(seen.watched)
            hearer.seen(seen)
        elif entry.name == WATCH_ENDED:
            watched_s = _number(entry.data.get("watched_s"))
    # A watch that was killed has no last event: what it kept last shows how long it watched at least.
    hearer.ended(_between(info.created_at, last_at) if watched_s is None else watched_s)


def is_watch(info: RunInfo) -> bool:
    """Whether a run directory was made by a watch: it planned nothing, and no length was asked for."""
    return not info.plan and not info.suite.tiers


def _seen(path: Path, entry: Event) -> Seen:
    try:
        return msgspec.convert(entry.data, Seen)
    except msgspec.ValidationError as error:
        raise JournalError(f"{path}: an entry of {entry.at} is damaged: {error}") from error


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, (int, float)) else None


def _between(begin: str, end: str) -> float:
    """Seconds between two wall-clock times; 0 where they cannot be read."""
    try:
        return max(0.0, (datetime.fromisoformat(end) - datetime.fromisoformat(begin)).total_seconds())
    except (ValueError, TypeError):  # no time, or one of them without its zone
        return 0.0
