"""How a run stands, from its directory alone: in progress, interrupted or finished.

The runner is not asked and not disturbed: everything is in the journal, which is written before
the next request is sent.
"""

from __future__ import annotations

import fcntl
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Literal

from msgspec import Struct

from bench.analysis.verdicts.ledger import was_cut_off
from bench.errors import JournalError
from bench.journal import Entry, read_run
from bench.records import Event, Measurement, RunInfo, Trial
from bench.records.events import (
    FINISHED,
    NOT_IDLE,
    ROUTE_LOST,
    SERVER_AWAY,
    SERVER_BACK,
    SERVER_FELL,
    SESSION,
    STARTED,
    WATCH_ENDED,
    WATCHED,
)
from bench.run.tally import Tally


class InFlight(Struct, frozen=True, kw_only=True):
    """An attempt that was started and has no exchange yet."""

    trial: str
    attempt: int
    purpose: str
    since_s: float | None = None
    """Seconds since it was started."""
    expected_ttft_s: float | None = None


class Away(Struct, frozen=True, kw_only=True):
    """A server that is waited for."""

    route: str
    problem: str
    """What was in the way when the wait began."""
    since_s: float | None = None


class Status(Struct, frozen=True, kw_only=True):
    """How a run stands."""

    id: str
    state: Literal["running", "finished", "interrupted"]
    """`running`: a process holds the directory; else whether trials are left."""
    process: int | None = None
    """Id of the process that holds it."""
    total: int = 0
    """Trials of the plan."""
    done: int = 0
    """Valid, or tried as often as allowed."""
    left: int = 0
    unmeasured: int = 0
    """Trials that are done without a valid measurement: every attempt was invalid."""
    valid: int = 0
    """Exchanges with a valid verdict."""
    invalid: int = 0
    """Exchanges with something against them."""
    failed: int = 0
    """Those of the invalid ones whose request failed."""
    cut_off: int = 0
    """Exchanges that Ctrl-C ended, alone or with their wave. They are neither valid nor called invalid, and
    are sent again when the run is resumed."""
    reasons: dict[str, int] = {}
    """Reason id -> how many exchanges it kept from being valid, as `excluded` in a report's summary.json."""
    in_flight: tuple[InFlight, ...] = ()
    """In a run that nobody works on: what was cut off."""
    away: tuple[Away, ...] = ()
    """Servers that a run at work is waiting for."""
    last: str = ""
    """What the journal's last line is."""
    last_age_s: float | None = None
    """Seconds since the journal was written to."""
    left_s: float | None = None
    """Estimated time for the trials that are left; `None` while nothing is known of any route."""
    sessions: int = 0
    """The first start and every resume."""
    watched: int = 0
    """Requests and windows, where this is the directory of a watch."""
    restarts: int = 0
    """Restarts of the watched server."""
    lines: int = 0


def status(path: Path, *, now: Callable[[], float] = time.time) -> Status:
    """How the run in `path` stands; `now` is the wall clock.

    Raises `JournalError` when it is no run directory, or damaged.
    """
    process = holder(path)  # first: what ends while we read has ended
    info, entries = read_run(path)
    reader = _Reader(info)
    for entry in entries:
        reader.take(entry)
    return reader.status(path, process, now())


def holder(path: Path) -> int | None:
    """Id of the process that holds the directory's lock, 0 when it is not known; `None`: nobody does.

    Asks for a shared lock and gives it back at once, so that a writer is never displaced.
    """
    try:
        with (path / ".lock").open("rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                text = file.read(32).strip()
                return int(text) if text.isdigit() else 0
            fcntl.flock(file, fcntl.LOCK_UN)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise JournalError(f"{path}: its lock cannot be read: {error.strerror}") from error
    return None


class _Reader:
    """What a journal that somebody else writes tells of its run's state, beside the tally of its lines."""

    def __init__(self, info: RunInfo) -> None:
        self._info = info
        self._tally = Tally(info)
        self._open: dict[tuple[object, object], Event] = {}
        self._away: dict[str, Event] = {}
        self._ended = False
        self._last: Entry | None = None
        self._valid = self._invalid = self._failed = self._cut_off = 0
        self._sessions = self._watched = self._restarts = self._lines = 0
        self._reasons: dict[str, int] = {}

    def take(self, entry: Entry) -> None:
        """The next line of the journal."""
        self._lines += 1
        self._last = entry
        if isinstance(entry, Event):
            self._take_event(entry)
        else:
            self._open.pop((entry.trial.id, entry.attempt), None)
        self._count(self._tally.take(entry))

    def _take_event(self, event: Event) -> None:
        if event.name == WATCHED:
            self._take_watched(event)
        elif event.name == SERVER_AWAY:
            self._away[str(event.data.get("route", ""))] = event
        elif event.name in (SERVER_BACK, SERVER_FELL, ROUTE_LOST):
            self._away.pop(str(event.data.get("route", "")), None)
            self._open.clear()  # what was begun has ended, or was not sent
        elif event.name == STARTED:
            self._open[event.data.get("trial"), event.data.get("attempt")] = event
        elif event.name == NOT_IDLE:
            self._open.clear()  # what was begun was not sent
        elif event.name == SESSION:
            self._sessions += 1
            self._open.clear()
            self._away.clear()
            self._ended = False
        elif event.name in (FINISHED, WATCH_ENDED):
            self._ended = True

    def _take_watched(self, event: Event) -> None:
        watched = event.data.get("watched")
        restarted = isinstance(watched, dict) and watched.get("kind") == "restart"
        self._restarts += restarted
        self._watched += not restarted

    def _count(self, found: Sequence[Measurement]) -> None:
        for one in found:
            self._valid += one.verdict.valid
            if was_cut_off(one):
                self._cut_off += 1
            else:
                self._invalid += not one.verdict.valid
                self._failed += one.failure is not None
            for reason in one.verdict.reasons:
                self._reasons[reason.id] = self._reasons.get(reason.id, 0) + 1

    def status(self, path: Path, process: int | None, now: float) -> Status:
        """Everything so far, as of the wall clock's `now`; no entry may follow."""
        if process is None:  # else the rest of a wave may be about to be written
            self._count(self._tally.end())
        left = self._tally.ledger.left(self._info.plan)
        in_flight = self._in_flight(now)
        watching = not self._info.plan
        over = self._ended if watching else not left
        return Status(
            id=self._info.id,
            state="running" if process is not None else "finished" if over else "interrupted",
            process=process,
            total=len(self._info.plan),
            done=len(self._info.plan) - len(left),
            left=len(left),
            unmeasured=self._tally.ledger.unmeasured(self._info.plan),
            valid=self._valid,
            invalid=self._invalid,
            failed=self._failed,
            cut_off=self._cut_off,
            reasons=dict(sorted(self._reasons.items(), key=lambda item: (-item[1], item[0]))),
            in_flight=in_flight,
            away=self._waited_for(now) if process is not None else (),
            last=_name(self._last),
            last_age_s=_age_s(path, now),
            left_s=None if watching else self._left_s(left, in_flight if process is not None else ()),
            sessions=self._sessions,
            watched=self._watched,
            restarts=self._restarts,
            lines=self._lines,
        )

    def _left_s(self, left: list[Trial], in_flight: tuple[InFlight, ...]) -> float | None:
        """Time for all trials that are left, less what those in flight have had of theirs."""
        total = self._tally.outlook.left_s(left)
        if total is None:
            return None
        since = {one.trial: one.since_s or 0.0 for one in in_flight}
        spent = [
            min(since[trial.id], self._tally.outlook.left_s([trial]) or 0.0)
            for trial in left
            if trial.id in since
        ]
        return max(0.0, total - max(spent, default=0.0))

    def _in_flight(self, now: float) -> tuple[InFlight, ...]:
        trials = {trial.id: trial for trial in self._info.plan}
        found = []
        for event in self._open.values():
            attempt, began = event.data.get("attempt"), _unix(event.at)
            trial = trials.get(str(event.data.get("trial")))
            one = InFlight(
                trial=str(event.data.get("trial", "")),
                attempt=attempt if isinstance(attempt, int) else 1,
                purpose=str(event.data.get("purpose", "trial")),
                since_s=None if began is None else max(0.0, now - began),
                expected_ttft_s=self._tally.outlook.ttft_s(trial) if trial is not None else None,
            )
            found.append(one)
        return tuple(found)

    def _waited_for(self, now: float) -> tuple[Away, ...]:
        found = []
        for route, event in self._away.items():
            began = _unix(event.at)
            since_s = None if began is None else max(0.0, now - began)
            found.append(Away(route=route, problem=str(event.data.get("problem", "")), since_s=since_s))
        return tuple(found)


def _name(entry: Entry | None) -> str:
    if entry is None:
        return ""
    return f"event {entry.name}" if isinstance(entry, Event) else f"exchange {entry.trial.id}"


def _age_s(path: Path, now: float) -> float | None:
    try:
        return max(0.0, now - (path / "journal.jsonl").stat().st_mtime)
    except OSError:  # killed between run.json and the first line
        return None


def _unix(at: str) -> float | None:
    try:
        return datetime.fromisoformat(at).timestamp()
    except ValueError:
        return None
