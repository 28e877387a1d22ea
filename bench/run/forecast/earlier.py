"""What earlier runs say of a suite's routes: their measurements, and how long the suite will take."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from statistics import median

from msgspec import Struct, structs

from bench.address import server_at
from bench.analysis.verdicts.measure import measure_all
from bench.errors import JournalError
from bench.journal import Entry, read_entries, read_info
from bench.plan.times import RouteModel, learn
from bench.records import Event, Exchange, Measurement, Route, RunInfo, Suite
from bench.records.events import STARTED

_MOST_RUNS = 8
"""Runs that are read of a route, newest first; more of the same only cost time."""


class Earlier(Struct, frozen=True, kw_only=True):
    """Measurements of the suite's routes, and where they are from."""

    measurements: tuple[Measurement, ...] = ()
    runs: tuple[str, ...] = ()
    """Names of the run directories that were used, newest first."""
    around_s: dict[str, tuple[float, ...]] = {}
    """Seconds that each of the routes' exchanges took beside itself."""

    def models(self, suite: Suite) -> dict[str, RouteModel]:
        """What is known of each route's times; nothing of some, perhaps."""
        names = ", ".join(self.runs)
        return {
            route.name: structs.replace(
                learn(route.name, self.measurements, basis=f"earlier runs ({names})"),
                around_s=median(known) if (known := self.around_s.get(route.name)) else None,
            )
            for route in suite.routes
        }


def earlier_runs(
    suite: Suite, *, results: Path, named: Sequence[Path] = (), models: Mapping[str, str] | None = None
) -> Earlier:
    """Measurements of the same routes, from the `named` runs or else from what lies under `results`.

    A run under `results` counts for a route of the same name and speculation that served the same
    model, as far as both are known (`models`: by route, what is served now). What was measured at another
    address counts only for a route of which nothing was measured at its own, and whose model is known.
    A directory there that is no whole run is passed over; in a named one it is a `JournalError`.
    """
    if named:
        return _collected(list(named), suite.routes, _has)
    paths, known = _newest_first(results), models or {}

    def at_its_own(info: RunInfo, route: Route) -> bool:
        return _same(route, info, known.get(route.name) or route.model, here=True)

    def at_another(info: RunInfo, route: Route) -> bool:
        return _same(route, info, known.get(route.name) or route.model, here=False)

    own = _collected(paths, suite.routes, at_its_own, tolerant=True)
    measured = {m.route for m in own.measurements}
    rest = [route for route in suite.routes if route.name not in measured]
    other = _collected(paths, rest, at_another, tolerant=True)
    return Earlier(
        measurements=own.measurements + other.measurements,
        runs=tuple(sorted({*own.runs, *other.runs}, reverse=True)),
        around_s=own.around_s | other.around_s,
    )


def _collected(
    paths: Sequence[Path],
    routes: Sequence[Route],
    counts: Callable[[RunInfo, Route], bool],
    *,
    tolerant: bool = False,
) -> Earlier:
    """What the runs that count for a route say of it; `tolerant`: what is no run is passed over."""
    used: list[str] = []
    found: list[Measurement] = []
    around: dict[str, tuple[float, ...]] = {}
    left = dict.fromkeys((route.name for route in routes), _MOST_RUNS)
    for path in paths:
        if not any(left.values()):
            break
        try:
            info = read_info(path)
            wanted = {route.name for route in routes if left[route.name] and counts(info, route)}
            gaps = Gaps()
            mine = _measurements(gaps.watching(read_entries(path)), info, wanted) if wanted else []
        except JournalError:
            if not tolerant:
                raise
            continue
        if mine:
            used.append(path.name)
            found += mine
        for route in {m.route for m in mine}:
            left[route] -= 1
            around[route] = (*around.get(route, ()), *gaps.around_s.get(route, ()))
    return Earlier(measurements=tuple(found), runs=tuple(used), around_s=around)


def _newest_first(results: Path) -> list[Path]:
    """Names begin with the time of their start."""
    try:
        return sorted((path for path in results.iterdir() if path.is_dir()), reverse=True)
    except OSError:
        return []  # no results yet


def _has(info: RunInfo, route: Route) -> bool:
    return any(then.name == route.name for then in info.suite.routes)


def _same(route: Route, info: RunInfo, model: str | None, *, here: bool) -> bool:
    """Whether a run measured such a route; `here`: at the same address, else at another one."""
    if not _has(info, route):
        return False
    then = info.suite.route(route.name)
    if (server_at(then.base_url) == server_at(route.base_url)) is not here:
        return False
    if model is None and not here:
        return False  # neither model nor address says that this is the same server
    facts = info.facts.get(route.name)
    model_then = then.model or (facts.model if facts else None)
    return then.speculation == route.speculation and (model is None or model_then in (None, model))


def _measurements(entries: Iterable[Entry], info: RunInfo, routes: set[str]) -> list[Measurement]:
    exchanges = (entry for entry in entries if isinstance(entry, Exchange))
    return [m for m in measure_all(info, exchanges) if m.route in routes]


class Gaps:
    """What exchanges took beside themselves: from a start in the journal to the next, less the exchange.

    Waves are left out, and exchanges that failed or have another event behind them.
    """

    def __init__(self) -> None:
        self.around_s: dict[str, list[float]] = {}
        """Seconds, by route."""
        self._begun: float | None = None
        self._sent: Exchange | None = None

    def watching(self, entries: Iterable[Entry]) -> Iterator[Entry]:
        """The same entries, each looked at as it passes."""
        for entry in entries:
            self._take(entry)
            yield entry

    def _take(self, entry: Entry) -> None:
        if isinstance(entry, Exchange):
            alone = entry.wave is None and entry.failure is None and self._sent is None
            self._sent = entry if alone and self._begun is not None else None
            return
        now = _started_at(entry)
        if now is not None and self._begun is not None and self._sent is not None:
            seconds = max(0.0, now - self._begun - self._sent.ended_ns / 1e9)
            self.around_s.setdefault(self._sent.trial.route, []).append(seconds)
        self._begun, self._sent = now, None


def _started_at(event: Event) -> float | None:
    """Wall clock, seconds; `None` for what is no start of an exchange."""
    if event.name != STARTED:
        return None
    try:
        return datetime.fromisoformat(event.at).timestamp()
    except ValueError:
        return None
