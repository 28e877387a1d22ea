"""Everything a report is made from, gathered in one pass over each run directory.

The journal is streamed: an exchange is measured, reduced to a `Detail` (its curve in at most
`CURVE_POINTS` points) and dropped, so that memory does not grow with the number of tokens.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from bench.analysis.answers import Answer, Answers, Equivalence, Key, NeedleScore
from bench.analysis.crossover import Arrival, Curves
from bench.analysis.reused import Reuse
from bench.analysis.verified import FOLDER, Verified, verified
from bench.analysis.watch_journal import is_watch
from bench.errors import JournalError
from bench.journal import REPEATED, Entry, read_run
from bench.records import (
    Comparison,
    Crossover,
    Event,
    Exchange,
    Level,
    Measurement,
    RunInfo,
    Summary,
)
from bench.report.detail import Detail, picks, reduce_exchange
from bench.report.gaps import GapCounts

ARRIVAL_POINTS = 512
"""Points kept of a curve for the crossover inside the measured window: twice those it is read at."""
CURVED_TRIALS = 6_000
"""Trials up to which curves are used: some 50 MB of them. `Crossover.basis` says what was used."""


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


class Content(Struct, frozen=True, kw_only=True):
    """What all report writers share. Every list is in journal order or sorted: deterministic."""

    runs: tuple[Run, ...]
    measurements: tuple[Measurement, ...]
    """Of requests that were sent one at a time: everything but the section on concurrency is of these."""
    summaries: tuple[Summary, ...]
    comparisons: tuple[Comparison, ...]
    crossovers: tuple[Crossover, ...]
    reuse: Reuse | None = None
    """The cached part of the prompt that was asked about."""
    reused: tuple[Crossover, ...] = ()
    """The crossovers with that part cached, by the laws."""
    verified: tuple[Verified, ...] = ()
    """What follow-up trials (`run --verify-crossover`) say of them, run by run."""
    details: tuple[Detail, ...]
    gaps: dict[str, GapCounts]
    """Route -> counts of inter-chunk gaps."""
    base: str | None
    """The route that the comparisons are against."""
    tasks: dict[str, str] = {}
    """Task -> how easily a drafter follows its answers: `high`, `middle`, `low`, `unknown`."""
    needle_scores: tuple[NeedleScore, ...] = ()
    equivalences: tuple[Equivalence, ...] = ()
    answers_left_out: int = 0
    """Greedy answers beyond `ANSWER_CHARACTERS`: not compared."""
    waves: tuple[Measurement, ...] = ()
    """Of requests that were released together."""
    levels: tuple[Level, ...] = ()
    """Empty where nothing ran together."""
    palette: tuple[str, ...] = ()
    """Routes of the whole report, where this is a part of it: they keep their order and colours."""

    @property
    def routes(self) -> tuple[str, ...]:
        """Route names in the order of the suites: the order of colours in every plot."""
        if self.palette:
            return self.palette
        planned = [route.name for run in self.runs for route in run.info.suite.routes]
        measured = {measurement.route for measurement in self.everything}
        names = [name for name in dict.fromkeys(planned) if name in measured]
        return (*names, *sorted(measured - set(names)))

    @property
    def everything(self) -> tuple[Measurement, ...]:
        """All measurements, in the order of the run."""
        if not self.waves:
            return self.measurements
        return tuple(sorted((*self.measurements, *self.waves), key=lambda one: (one.source, one.order)))


class Asked(Struct, frozen=True, kw_only=True):
    """Tasks and answers of all runs, by what their measurements are known by."""

    tasks: dict[str, str] = {}
    answers: Answers = {}
    left_out: int = 0


class Cell(Struct, frozen=True, kw_only=True):
    """A row of the performance table: a summary and the measurements it stands for."""

    summary: Summary
    measurements: tuple[Measurement, ...]

    @property
    def condition(self) -> str:
        """The condition, with `1` or `2+` for the first and the later replays where kept apart."""
        first = self.summary.first_replay
        return self.summary.condition + ("" if first is None else " 1" if first else " 2+")

    @property
    def valid(self) -> tuple[Measurement, ...]:
        """The measurements that entered the statistics."""
        return tuple(m for m in self.measurements if m.verdict.valid)


def collect(paths: Sequence[Path], base: str | None = None, reuse: Reuse | None = None) -> Content:
    """Reads run directories and computes everything a report shows.

    `base` names the route to compare against; default: the first route without speculation, else
    the first. `reuse`: a cached part of the prompt to show crossovers and the winner map for, too.
    Raises `JournalError` for a directory that is no run or is damaged, `SuiteError` where no laws tell
    of `reuse`.
    """
    passes = [_Pass(path) for path in paths]
    measurements = _named([m for one in passes for m in one.measurements])
    content = assemble(
        runs=tuple(one.run() for one in passes),
        measurements=measurements,
        details=tuple(detail for one in passes for detail in one.details),
        gaps=GapCounts.merge(one.gaps for one in passes),
        curves={key: curve for one in passes for key, curve in one.curves.items()},
        base=base,
        reuse=reuse,
        asked=Asked(
            tasks={task: kind for one in passes for task, kind in one.tasks.items()},
            answers={key: answer for one in passes for key, answer in one.answers.items()},
            left_out=sum(one.left_out for one in passes),
        ),
    )
    return msgspec.structs.replace(
        content, verified=tuple(found for one in passes for found in one.verified())
    )


def assemble(
    *,
    runs: tuple[Run, ...],
    measurements: tuple[Measurement, ...],
    details: tuple[Detail, ...] = (),
    gaps: dict[str, GapCounts] | None = None,
    curves: Curves | None = None,
    base: str | None = None,
    reuse: Reuse | None = None,
    asked: Asked | None = None,
) -> Content:
    """Adds the statistics to what was measured; `collect` without the files."""
    from bench.analysis.answers import equivalences, needle_scores
    from bench.analysis.cells import alone
    from bench.analysis.compare import compare
    from bench.analysis.crossover import crossovers, one_way
    from bench.analysis.levels import levels
    from bench.analysis.summary import summarise
    from bench.report.reused import reused_crossovers

    found, measurements = measurements, tuple(alone(measurements))
    asked = asked or Asked()
    base = base or choose_base(runs, measurements)
    several = len({m.route for m in measurements}) > 1
    return Content(
        runs=runs,
        measurements=measurements,
        summaries=tuple(summarise(measurements)),
        comparisons=tuple(compare(measurements, base)) if several and base else (),
        crossovers=tuple(_sorted(one_way(crossovers(measurements, curves=curves)))) if several else (),
        reuse=reuse,
        reused=reused_crossovers(measurements, reuse) if reuse is not None else (),
        details=details,
        gaps=gaps or {},
        base=base,
        tasks=asked.tasks,
        needle_scores=tuple(needle_scores(measurements, asked.answers)),
        equivalences=tuple(equivalences(measurements, asked.answers)),
        answers_left_out=asked.left_out,
        waves=tuple(one for one in found if one.concurrency > 1),
        levels=tuple(levels(found)),
    )


def _sorted(found: list[Crossover]) -> list[Crossover]:
    """By task, tier and condition; within a cell in the order they came."""
    return sorted(found, key=lambda one: (one.task, one.tier, one.condition))


def choose_base(runs: Sequence[Run], measurements: Iterable[Measurement]) -> str | None:
    """The route to compare against: the first without speculation, else the first; measured ones only."""
    measured = {measurement.route for measurement in measurements}
    routes = [route for run in runs for route in run.info.suite.routes if route.name in measured]
    plain = [route.name for route in routes if route.speculation is None]
    named = plain + [route.name for route in routes] + sorted(measured)
    return named[0] if named else None


def cells(content: Content) -> list[Cell]:
    """Rows of the performance table: by tier, condition, then route in suite order."""
    place = {name: index for index, name in enumerate(content.routes)}
    conditions = {"cold": 0, "salted": 1, "replay": 2}
    grouped: dict[tuple[str, int, str, str], list[Measurement]] = {}
    for one in content.measurements:
        grouped.setdefault((one.route, one.tier, one.condition, one.task), []).append(one)
    rows = []
    for summary in content.summaries:
        group = grouped.get((summary.route, summary.tier, summary.condition, summary.task), [])
        first = summary.first_replay
        kept = tuple(m for m in group if first is None or (m.replay == 1) is first)
        if summary.condition == "cold":
            salted = grouped.get((summary.route, summary.tier, "salted", summary.task), [])
            kept += tuple(m for m in salted if m.verdict.valid)
        rows.append(Cell(summary=summary, measurements=kept))
    return sorted(
        rows,
        key=lambda cell: (
            cell.summary.task,
            cell.summary.tier,
            conditions[cell.summary.condition],
            cell.summary.first_replay is False,
            place.get(cell.summary.route, len(place)),
        ),
    )


class _Pass:
    """One pass over one run directory."""

    def __init__(self, path: Path) -> None:
        from bench.analysis.measure import measure_all

        self._path = path
        self._info, entries = read_run(path)
        if is_watch(self._info):
            raise JournalError(
                f"{path}: this is a watch, not a run: ctxbench report {path} shows it by itself"
            )
        self._events: list[Event] = []
        self._count = self._warmups = 0
        self._harness_ns = self._span_ns = 0
        self._last: Exchange | None = None
        self.details: list[Detail] = []
        self.gaps: dict[str, GapCounts] = {}
        self.curves: dict[tuple[str, str, int], Arrival] = {}
        self.tasks: dict[str, str] = {}
        self.answers: dict[Key, Answer] = {}
        self.left_out = self._characters = 0
        self.measurements: list[Measurement] = []
        for one in measure_all(self._info, self._watch(entries)):
            self.measurements.append(one)
            if one.concurrency == 1:  # those of a wave come all at once, after its last exchange
                self._keep_curve(one)
                self._keep_answer(one)

    def verified(self) -> list[Verified]:
        """What the follow-up of the run has shown of its crossovers."""
        from bench.analysis.crossover import crossovers, one_way

        folder = self._path / FOLDER
        if not (folder / "run.json").exists():
            return []
        follow = _Pass(folder)
        predicted = one_way(crossovers(self.measurements, curves=self.curves))
        return verified(self.measurements, predicted, follow.measurements, follow.curves)

    def run(self) -> Run:
        told = [event.data for event in self._events if {"harness_s", "wall_s"} <= event.data.keys()]
        harness = _total(told, "harness_s")
        repeated = [event.message for event in self._events if event.name == REPEATED]
        return Run(
            path=self._path.resolve().name,
            info=msgspec.structs.replace(self._info, notes=(*self._info.notes, *repeated)),
            events=tuple(self._events),
            exchanges=self._count,
            warmups=self._warmups,
            harness_s=harness if harness is not None else self._seen(self._harness_ns, 2),
            span_s=_total(told, "wall_s") if harness is not None else self._seen(self._span_ns, 1),
        )

    def _seen(self, nanoseconds: int, least: int) -> float | None:
        return nanoseconds / 1e9 if self._count >= least else None

    def _watch(self, entries: Iterable[Entry]) -> Iterator[Exchange]:
        for entry in entries:
            if isinstance(entry, Event):
                self._events.append(entry)
                if entry.name == "session":
                    self._last = None  # another process: its monotonic clock may be another one
                continue
            self._time(entry)
            self._count += 1
            if entry.purpose != "trial":
                self._warmups += 1
            else:
                self.details.append(reduce_exchange(entry, self._info.id))
                self.gaps.setdefault(entry.trial.route, GapCounts()).add(entry.chunks)
            yield entry

    def _keep_curve(self, one: Measurement) -> None:
        """The arrival curve of what was just measured, thinned where it is very long."""
        from bench.analysis.arrival import arrival
        from bench.analysis.crossover import curve_key

        exchange = self._last
        if exchange is None or (exchange.trial.id, exchange.attempt) != (one.trial_id, one.attempt):
            return
        if len(self.measurements) > CURVED_TRIALS:
            self.curves.clear()
            return
        curve = arrival(exchange, one.output_tokens)
        if curve is not None:
            kept = picks(len(curve[0]), ARRIVAL_POINTS)
            self.curves[curve_key(one)] = (curve[0][kept], curve[1][kept])

    def _keep_answer(self, one: Measurement) -> None:
        """What the answer just measured is graded by or compared with, as far as there is room."""
        from bench.analysis.answers import answer_key, answer_of

        exchange = self._last
        if exchange is None:
            return
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


def _total(told: list[dict[str, object]], key: str) -> float | None:
    """The sum of what every part of a run says of itself; `None` when one does not."""
    values = [data[key] for data in told]
    numbers = [float(value) for value in values if isinstance(value, int | float)]
    return sum(numbers) if numbers and len(numbers) == len(values) else None


def _named(measurements: list[Measurement]) -> tuple[Measurement, ...]:
    """The measurements under the names that the statistics give them: see `analysis/cells.py`.

    The source is kept, unlike there: details are found by it.
    """
    from bench.analysis.cells import renamed

    return tuple(
        msgspec.structs.replace(one, route=other.route, tier=other.tier)
        for one, other in zip(measurements, renamed(measurements), strict=True)
    )
