"""One pass over a run directory: all that a report keeps of it.

The journal is streamed: an exchange is measured, reduced to a `Detail` (its curve in at most
`CURVE_POINTS` points) and dropped, so that memory does not grow with the number of tokens.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec
from msgspec import Struct

from bench.analysis.decisions.verified import Verified, verified
from bench.analysis.statistics.answers import Answer, Key, answer_key, answer_of
from bench.analysis.statistics.arrival import curve_of, with_exchanges
from bench.analysis.statistics.cells import label_in_run
from bench.analysis.statistics.curves import Arrival, curve_key
from bench.analysis.verdicts.ledger import Ledger
from bench.analysis.watch.journal import is_watch
from bench.errors import JournalError
from bench.journal import FOLLOW_UP, has_follow_up, read_info
from bench.records import Event, Exchange, Measurement, RunInfo
from bench.records.events import FORCED, REPEATED, SESSION
from bench.report.detail import Detail
from bench.report.entries import Read, Seen, read_here
from bench.report.gaps import GapCounts

ARRIVAL_POINTS = 512
"""Points kept of a curve for the crossover inside the measured window: twice those it is read at."""
CURVED_TRIALS = 6_000
"""Trials, planned or measured, up to which curves are used: some 50 MB of them. `Crossover.basis` says
what was used."""
ANSWER_CHARACTERS = 20_000_000
"""Of all greedy answers of a run that are kept to be compared."""


class Run(Struct, frozen=True, kw_only=True):
    """One run directory as the report sees it."""

    path: str
    """Name of the directory, for reproduction lines."""
    info: RunInfo
    events: tuple[Event, ...]
    exchanges: int
    """Exchanges in the journal, warm-ups and the like included."""
    warmups: int
    """Those that are no trial: warm-ups, and prompts put into the cache again."""
    harness_s: float | None
    """This tool's own time: as the run itself tells when it finished, else what lies between its
    exchanges and is no wait for the server."""
    span_s: float | None
    """What `harness_s` is a part of: the run without the pauses between resumed parts."""
    left: int = 0
    """Trials that still need an attempt, by the rule that the run itself goes by."""


class RunPass:
    """What one pass over a run directory has found.

    Raises `JournalError` for a directory that is no run, is that of a watch, or is damaged.
    """

    def __init__(self, path: Path, read: Read = read_here) -> None:
        self._path = path
        self._info = read_info(path)
        if is_watch(self._info):
            raise JournalError(
                f"{path}: this is a watch, not a run: ctxbench report {path} shows it by itself"
            )
        self._events: list[Event] = []
        self._count = self._warmups = 0
        self._harness_ns = self._span_ns = 0
        self._last: Exchange | None = None
        self.details: list[Detail] = []
        self.gaps: defaultdict[str, GapCounts] = defaultdict(GapCounts)
        """By the route's name, with `(fallback)` where that was seen: the label within this run."""
        self.curves: dict[tuple[str, str, int], Arrival] = {}
        self.tasks: dict[str, str] = {}
        self.answers: dict[Key, Answer] = {}
        self.left_out = self._characters = 0
        self.measurements: list[Measurement] = []
        self._ledger = Ledger(self._info.suite.retry_invalid)
        for found in with_exchanges(self._info, self._watch(read(path))):
            self._ledger.note_measured([one for one, _ in found])
            for one, exchange in found:
                self._keep(one, exchange)

    def _keep(self, one: Measurement, exchange: Exchange) -> None:
        """What is kept of an exchange that was just measured."""
        self.measurements.append(one)
        if one.turn:
            return
        self._keep_gaps(one, exchange)
        if exchange.wave is None:
            self._keep_curve(one, exchange)
            self._keep_answer(one, exchange)

    def verified(self) -> list[Verified]:
        """What the follow-up of the run has shown of its crossovers."""
        from bench.analysis.decisions.crossover import crossovers, one_way

        if not has_follow_up(self._path):
            return []
        follow = RunPass(self._path / FOLLOW_UP)
        predicted = one_way(crossovers(self.measurements, curves=self.curves))
        return verified(self.measurements, predicted, follow.measurements, follow.curves)

    def run(self) -> Run:
        told = [event.data for event in self._events if {"harness_s", "wall_s"} <= event.data.keys()]
        harness = _total(told, "harness_s")
        notes = tuple(note for event in self._events if (note := _note_of(event)) is not None)
        return Run(
            path=self._path.resolve().name,
            info=msgspec.structs.replace(self._info, notes=self._info.notes + notes),
            events=tuple(self._events),
            exchanges=self._count,
            warmups=self._warmups,
            harness_s=harness if harness is not None else self._seen(self._harness_ns, 2),
            left=len(self._ledger.left(self._info.plan)),
            span_s=_total(told, "wall_s") if harness is not None else self._seen(self._span_ns, 1),
        )

    def _seen(self, nanoseconds: int, least: int) -> float | None:
        return nanoseconds / 1e9 if self._count >= least else None

    def _watch(self, entries: Iterable[Seen]) -> Iterator[Exchange]:
        for entry, detail in entries:
            if isinstance(entry, Event):
                self._events.append(entry)
                self._ledger.note_event(entry)
                if entry.name == SESSION:
                    self._last = None  # another process: its monotonic clock may be another one
                continue
            self._time(entry)
            self._ledger.note_sent(entry)
            self._count += 1
            if entry.purpose != "trial":
                self._warmups += 1
            elif detail is not None:
                self.details.append(detail)
            yield entry

    def _keep_gaps(self, one: Measurement, exchange: Exchange) -> None:
        """Adds the gaps of what was just measured to those of its route."""
        self.gaps[label_in_run(one)].add(exchange.chunks)

    @property
    def source(self) -> str:
        """What its measurements name as their source."""
        return self._info.id

    def _keep_curve(self, one: Measurement, exchange: Exchange) -> None:
        """The arrival curve of what was just measured, thinned where it is very long."""
        if max(len(self.measurements), len(self._info.plan)) > CURVED_TRIALS:
            self.curves.clear()
            return
        curve = curve_of(one, exchange, most=ARRIVAL_POINTS)
        if curve is not None:
            self.curves[curve_key(one)] = curve

    def _keep_answer(self, one: Measurement, exchange: Exchange) -> None:
        """What the answer just measured is graded by or compared with, as far as there is room."""
        self.tasks.setdefault(exchange.trial.task, exchange.prompt.acceptance_class)
        answer = answer_of(exchange)
        if answer is None:
            return
        self._characters += len(answer.said.text) if answer.said is not None else 0
        if answer.said is not None and self._characters > ANSWER_CHARACTERS:
            self.left_out += 1
            answer = msgspec.structs.replace(answer, said=None)
        self.answers[answer_key(one)] = answer

    def _time(self, exchange: Exchange) -> None:
        ended = exchange.sent_ns + exchange.ended_ns
        last = self._last
        begin = exchange.sent_ns
        if last is not None and exchange.sent_ns >= last.sent_ns + last.ended_ns:
            begin = last.sent_ns + last.ended_ns
            gap = exchange.sent_ns - begin
            waited = (exchange.idle_wait_s or 0.0) + (last.settle_s or 0.0)
            self._harness_ns += max(0, gap - round(waited * 1e9) - (exchange.connect_ns or 0))
        self._span_ns += ended - begin
        self._last = exchange


def _note_of(event: Event) -> str | None:
    """What the reader of the report must know of an event."""
    if event.name == FORCED:
        return f"from {event.at} on, by --force: {event.message}"
    return event.message if event.name == REPEATED else None


def _total(told: list[dict[str, object]], key: str) -> float | None:
    """The sum of what every part of a run says of itself; `None` when one does not."""
    values = [data[key] for data in told]
    numbers = [float(value) for value in values if isinstance(value, int | float)]
    return sum(numbers) if numbers and len(numbers) == len(values) else None
