"""A watch as its journal keeps it: written while watching, and read by all that tell of it later."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import TypeVar

import msgspec
from msgspec import Struct

from bench.analysis.watch.described import Watched
from bench.errors import JournalError
from bench.records import Event, Exchange, RunInfo
from bench.records.events import NOTED, WATCH_ENDED, WATCHED

_Kept = TypeVar("_Kept", "Seen", "Ended")


class LogLine(Struct, frozen=True, kw_only=True):
    """All lines of a server's log that have one template and deserve attention."""

    count: int
    level: str | None = None
    text: str
    """The first of them, or what it means."""
    why: str = ""


class Seen(Struct, frozen=True, kw_only=True):
    """One thing that was watched, as the journal keeps it."""

    at: str
    """Wall clock of its end, ISO 8601, UTC."""
    watched: Watched
    before: str | None = None
    """Raw page of its beginning, within the run directory."""
    after: str | None = None
    log: tuple[LogLine, ...] = ()
    """What the server's log complained of meanwhile."""


class Note(Struct, frozen=True, kw_only=True):
    """A line about the watching itself."""

    at: str
    text: str


class Ended(Struct, frozen=True, kw_only=True):
    """How long it was watched; always the last that is told."""

    watched_s: float
    whole: bool
    """False: the watch was killed, so it lasted at least so long."""
    pages: int | None = None
    """Looks at the metrics page."""
    missed: int | None = None
    """Looks that brought no page, or none that could be read."""


def is_watch(info: RunInfo) -> bool:
    """Whether a run directory was made by a watch: it planned nothing, and no length was asked for."""
    return not info.plan and not info.suite.tiers


def kept(info: RunInfo, entries: Iterable[Exchange | Event], where: str) -> Iterator[Seen | Note | Ended]:
    """What a watch kept, in order; `Ended` comes last, whatever ended it.

    Raises `JournalError` naming `where` when an entry is damaged.
    """
    ended: Ended | None = None
    last_at = info.created_at
    for entry in entries:
        if not isinstance(entry, Event):
            continue
        last_at = entry.at
        if entry.name == NOTED:
            yield Note(at=entry.at, text=entry.message)
        elif entry.name == WATCHED:
            yield _converted(entry, Seen, entry.data, where)
        elif entry.name == WATCH_ENDED and "watched_s" in entry.data:
            ended = _converted(entry, Ended, {"whole": True, **entry.data}, where)
    # A watch that was killed has no last event: what it kept last shows how long it watched at least.
    yield ended or Ended(watched_s=_between(info.created_at, last_at), whole=False)


def _converted(entry: Event, kind: type[_Kept], data: object, where: str) -> _Kept:
    try:
        return msgspec.convert(data, kind)
    except msgspec.ValidationError as error:
        raise JournalError(f"{where}: an entry of {entry.at} is damaged: {error}") from error


def _between(begin: str, end: str) -> float:
    """Seconds between two wall-clock times; 0 where they cannot be read."""
    try:
        return max(0.0, (datetime.fromisoformat(end) - datetime.fromisoformat(begin)).total_seconds())
    except (ValueError, TypeError):  # no time, or one of them without its zone
        return 0.0
