"""Everything the report of a watch is made from, gathered in one pass over its run directory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from bench.analysis.statistics.machine import PhaseUse, pooled
from bench.analysis.watch.journal import Ended, LogLine, Note, Seen, is_watch, kept
from bench.analysis.watch.totals import Totals, total
from bench.engines.machine import GAUGES
from bench.errors import JournalError
from bench.journal import read_run
from bench.records import Route, RunInfo, ServerFacts


class WatchContent(Struct, frozen=True, kw_only=True):
    """What the writers of a watch's report share; everything in the order it was seen."""

    path: str
    """Name of the directory, for the line that makes the report again."""
    info: RunInfo
    seen: tuple[Seen, ...]
    notes: tuple[Note, ...]
    """Lines about the watching itself."""
    ended: Ended
    totals: Totals
    log: tuple[LogLine, ...]
    """What the server's log complained of, equal lines together, the most frequent first."""

    @property
    def route(self) -> Route:
        """The server that was watched."""
        return self.info.suite.routes[0]

    @property
    def facts(self) -> ServerFacts:
        """What it says of itself."""
        return self.info.facts.get(self.route.name, ServerFacts())

    @property
    def alone(self) -> tuple[Seen, ...]:
        """The requests that ran alone, each with numbers of its own."""
        return tuple(one for one in self.seen if one.watched.kind == "request")

    @property
    def windows(self) -> tuple[Seen, ...]:
        """What could not be split."""
        return tuple(one for one in self.seen if one.watched.kind == "window")

    @property
    def machine(self) -> tuple[tuple[str, PhaseUse], ...]:
        """`request` or `window`, and what each gauge of the machine did over all of them."""
        found = []
        for kind, seen in (("request", self.alone), ("window", self.windows)):
            uses = pooled(use for one in seen for use in one.watched.machine)
            found += [(kind, uses["whole", gauge]) for gauge in GAUGES if ("whole", gauge) in uses]
        return tuple(found)

    @property
    def restarts(self) -> tuple[Seen, ...]:
        """Restarts of the server, each with the sums up to it."""
        return tuple(one for one in self.seen if one.watched.kind == "restart")


def collect_watch(path: Path) -> WatchContent:
    """Reads the directory of a watch.

    Raises `JournalError` when it is none, or an entry of it is damaged.
    """
    info, entries = read_run(path)
    if not is_watch(info) or len(info.suite.routes) != 1:
        raise JournalError(f"{path}: no directory that ctxbench watch --out made")
    told = list(kept(info, entries, str(path)))
    seen = tuple(one for one in told if isinstance(one, Seen))
    (ended,) = (one for one in told if isinstance(one, Ended))
    return WatchContent(
        path=path.resolve().name,
        info=info,
        seen=seen,
        notes=tuple(one for one in told if isinstance(one, Note)),
        ended=ended,
        totals=total(one.watched for one in seen),
        log=tuple(_together(line for one in seen for line in one.log)),
    )


def _together(lines: Iterator[LogLine]) -> list[LogLine]:
    counts: dict[tuple[str | None, str, str], int] = {}
    for line in lines:
        key = (line.level, line.text, line.why)
        counts[key] = counts.get(key, 0) + line.count
    found = [
        LogLine(level=level, text=text, why=why, count=count) for (level, text, why), count in counts.items()
    ]
    return sorted(found, key=lambda line: -line.count)
