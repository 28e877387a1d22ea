"""Everything a report is made from: what was measured in its runs, and the statistics over it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from bench.analysis.decisions.agreement import Parted, parted
from bench.analysis.decisions.reused import Reuse
from bench.analysis.decisions.verified import Verified
from bench.analysis.statistics.answers import Answers, Equivalence, NeedleScore
from bench.analysis.statistics.cells import plain_route
from bench.analysis.statistics.curves import Curves
from bench.records import (
    Chat,
    Comparison,
    Crossover,
    Level,
    Measurement,
    Summary,
)
from bench.report.detail import Detail
from bench.report.entries import Read, read_here
from bench.report.gaps import GapCounts
from bench.report.labels import Labels, labelled_routes, labels_for, labels_of, under_labels
from bench.report.middle import MiddleCurve, middle_curves
from bench.report.run_pass import Run, RunPass

if TYPE_CHECKING:
    from bench.analysis.statistics.decode import DecodeLaw
    from bench.analysis.statistics.prefill import PrefillLaw
    from bench.report.grid import Grid


class Content(Struct, frozen=True, kw_only=True, dict=True):
    """What all report writers share. Every list is in journal order or sorted: deterministic.

    What several of them derive from it is worked out once, by the properties.
    """

    runs: tuple[Run, ...]
    measurements: tuple[Measurement, ...]
    """Of requests that were sent one at a time: all but the sections on concurrency and chats is of these."""
    summaries: tuple[Summary, ...]
    comparisons: tuple[Comparison, ...]
    crossovers: tuple[Crossover, ...]
    middles: tuple[MiddleCurve, ...] = ()
    """Arrival curves of the cells that have a crossover by curve."""
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
    turns: tuple[Measurement, ...] = ()
    """Of recorded chats."""
    chats: tuple[Chat, ...] = ()
    """Empty where none was sent."""
    palette: tuple[str, ...] = ()
    """Routes of the whole report, where this is a part of it: they keep their order and colours."""

    @cached_property
    def routes(self) -> tuple[str, ...]:
        """Labels of routes in the order of the suites: the order of colours in every plot."""
        if self.palette:
            return self.palette
        planned = labelled_routes([run.info for run in self.runs], self.everything)
        names = dict.fromkeys(route.name for route in planned)
        return (*names, *sorted({one.route for one in self.everything} - names.keys()))

    @cached_property
    def labels(self) -> Labels:
        """The names under which the routes of each run stand here."""
        return labels_of(self.everything)

    @cached_property
    def everything(self) -> tuple[Measurement, ...]:
        """All measurements, in the order of the run."""
        others = (*self.waves, *self.turns)
        if not others:
            return self.measurements
        return tuple(sorted((*self.measurements, *others), key=lambda one: (one.source, one.order)))

    @cached_property
    def sound(self) -> tuple[Measurement, ...]:
        """What plots show: a first replay that missed is neither cold nor a replay that hits."""
        from bench.analysis.statistics.cells import sound

        return tuple(filter(sound, self.measurements))

    @cached_property
    def ttft_laws(self) -> dict[str, PrefillLaw]:
        """The prefill law of every route; without terms where there is none."""
        from bench.analysis.statistics.prefill import fit

        return fit(self.measurements)

    @cached_property
    def step_laws(self) -> dict[str, DecodeLaw]:
        """The law of every route that has a decode rate anywhere."""
        from bench.analysis.statistics.decode import fit

        return fit(self.measurements)

    @cached_property
    def parted(self) -> tuple[Parted, ...]:
        """The measured crossovers that the winner map contradicts."""
        one_task = len({one.task for one in self.measurements}) == 1
        laws = (self.ttft_laws, self.step_laws) if one_task else None
        return parted(self.measurements, self.crossovers, laws)

    @cached_property
    def cells(self) -> tuple[Cell, ...]:
        """Rows of the performance table: by tier, condition, then route in suite order."""
        return tuple(_cells(self))

    @cached_property
    def grid(self) -> Grid:
        """The performance table of every format."""
        from bench.report.grid import grid

        return grid(self)


class Asked(Struct, frozen=True, kw_only=True):
    """Tasks and answers of all runs, by what their measurements are known by."""

    tasks: dict[str, str] = {}
    answers: Answers = {}
    left_out: int = 0


class Cell(Struct, frozen=True, kw_only=True, dict=True):
    """A row of the performance table: a summary and the measurements it stands for."""

    summary: Summary
    measurements: tuple[Measurement, ...]

    @property
    def condition(self) -> str:
        """See `called`."""
        return called(self.summary)

    @cached_property
    def valid(self) -> tuple[Measurement, ...]:
        """The measurements that entered the statistics."""
        return tuple(m for m in self.measurements if m.verdict.valid)

    @cached_property
    def texts(self) -> int:
        """Prompt texts that these are of."""
        from bench.analysis.statistics.texts import Texts

        return len(Texts(self.valid))


def called(summary: Summary) -> str:
    """The condition, with `1` or `2+` for the first and the later replays where kept apart."""
    first = summary.first_replay
    return summary.condition + ("" if first is None else " 1" if first else " 2+")


def collect(
    paths: Sequence[Path], base: str | None = None, reuse: Reuse | None = None, *, read: Read = read_here
) -> Content:
    """Reads run directories and computes everything a report shows.

    `base` names the route to compare against; default: the first route without speculation, else
    the first. `reuse`: a cached part of the prompt to show crossovers and the winner map for, too.
    Raises `JournalError` for a directory that is no run or is damaged, `SuiteError` where no laws tell
    of `reuse`.
    """
    passes = [RunPass(path, read) for path in paths]
    measurements = under_labels([m for one in passes for m in one.measurements])
    content = assemble(
        runs=tuple(one.run() for one in passes),
        measurements=measurements,
        details=_labelled([detail for one in passes for detail in one.details], measurements),
        gaps=_gaps(passes, measurements),
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
    from bench.analysis.decisions.reused import reused_crossovers
    from bench.analysis.statistics.answers import equivalences, needle_scores
    from bench.analysis.statistics.cells import alone, default_base, is_turn
    from bench.analysis.statistics.chats import chats, planned_turns
    from bench.analysis.statistics.levels import levels
    from bench.analysis.statistics.summary import summarise

    found, measurements = measurements, tuple(alone(measurements))
    routes = labelled_routes([run.info for run in runs], found)
    asked, base = asked or Asked(), base or default_base(routes, measurements)
    crossovers = _crossovers(measurements, curves)
    return Content(
        runs=runs,
        measurements=measurements,
        summaries=tuple(summarise(measurements)),
        comparisons=_comparisons(measurements, base),
        crossovers=crossovers,
        middles=middle_curves(measurements, curves or {}, crossovers),
        reuse=reuse,
        reused=reused_crossovers(measurements, reuse, blocks=_blocks(runs, found))
        if reuse is not None
        else (),
        details=details,
        gaps=gaps or {},
        base=base,
        tasks=asked.tasks,
        needle_scores=tuple(needle_scores(measurements, asked.answers)),
        equivalences=tuple(equivalences(measurements, asked.answers)),
        answers_left_out=asked.left_out,
        waves=tuple(one for one in found if one.concurrency > 1),
        levels=tuple(levels(found)),
        turns=tuple(one for one in found if is_turn(one)),
        chats=tuple(chats(found, planned_turns(trial for run in runs for trial in run.info.plan))),
    )


def _comparisons(measurements: Sequence[Measurement], base: str | None) -> tuple[Comparison, ...]:
    """All routes against `base`, where there are several."""
    from bench.analysis.statistics.compare import compare

    return tuple(compare(measurements, base)) if base and _several(measurements) else ()


def _crossovers(measurements: Sequence[Measurement], curves: Curves | None) -> tuple[Crossover, ...]:
    """Of every two routes, by task, tier and condition; within a cell in the order they came."""
    from bench.analysis.decisions.crossover import crossovers, one_way

    if not _several(measurements):
        return ()
    found = one_way(crossovers(measurements, curves=curves))
    return tuple(sorted(found, key=lambda one: (one.task, one.tier, one.condition)))


def _blocks(runs: Sequence[Run], measurements: Sequence[Measurement]) -> dict[str, int]:
    """Tokens of a cache block by route, under its labels, where the server told."""
    labels = labels_of(measurements)
    return {
        plain_route(label): facts.block_size
        for run in runs
        for route, facts in run.info.facts.items()
        if facts.block_size
        for label in labels_for(labels, run.info, route)
    }


def _several(measurements: Sequence[Measurement]) -> bool:
    return len({one.route for one in measurements}) > 1


def _cells(content: Content) -> list[Cell]:
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


def _labelled(details: Sequence[Detail], measurements: Sequence[Measurement]) -> tuple[Detail, ...]:
    """Details under the route names of their measurements."""
    names = {(one.source, one.trial_id, one.attempt): one.route for one in measurements}
    found = [(one, names.get((one.source, one.trial_id, one.attempt), one.route)) for one in details]
    return tuple(
        one if name == one.route else msgspec.structs.replace(one, route=name) for one, name in found
    )


def _gaps(passes: Sequence[RunPass], measurements: Sequence[Measurement]) -> dict[str, GapCounts]:
    """The gaps of all runs under the route names of their measurements."""
    known = {(one.source, one.route) for one in measurements}
    return GapCounts.merge(
        {
            name if (one.source, name) in known else f"{one.source}:{name}": counts
            for name, counts in one.gaps.items()
        }
        for one in passes
    )
