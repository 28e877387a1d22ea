"""Under which names the routes of suites stand in a report: the labels of their measurements.

A route goes by its own name, as `source:route` where several runs have it, and with `(fallback)` behind it
past its drafter limit (`analysis/statistics/cells.py` gives the labels). What a run knows by the route's own
name (facts, declared speculation, details, gaps) finds its measurements here, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec import structs

from bench.analysis.statistics.cells import plain_route, renamed
from bench.records import Measurement, Route, RunInfo

Labels = Mapping[tuple[str, str], tuple[str, ...]]
"""(source, the route's own name) -> its labels, that without `(fallback)` first."""


def under_labels(measurements: Sequence[Measurement]) -> tuple[Measurement, ...]:
    """The measurements under the names that the statistics give them: see `analysis/statistics/cells.py`.

    The source is kept, unlike there: details are found by it.
    """
    return tuple(
        structs.replace(one, route=other.route, tier=other.tier)
        for one, other in zip(measurements, renamed(measurements), strict=True)
    )


def own_name(one: Measurement) -> str:
    """The name that its suite gives the route of a labelled measurement."""
    return plain_route(one.route).removeprefix(f"{one.source}:")


def labels_of(measurements: Iterable[Measurement]) -> Labels:
    """The labels under which each route was measured."""
    # one measurement of each pair is as good as all of them
    kinds = {(one.source, one.route): one for one in measurements}
    found: dict[tuple[str, str], list[str]] = {}
    for one in kinds.values():
        found.setdefault((one.source, own_name(one)), []).append(one.route)
    return {key: tuple(sorted(names, key=len)) for key, names in found.items()}


def labels_for(labels: Labels, info: RunInfo, route: str) -> tuple[str, ...]:
    """The labels of a route of this run; empty where it was not measured.

    Measurements without a source are taken for those of any run.
    """
    return labels.get((info.id, route)) or labels.get(("", route), ())


def shown_name(labels: Labels, info: RunInfo, route: str) -> str:
    """What a route of this run is called where its fallback is not told apart."""
    found = labels_for(labels, info, route)
    return plain_route(found[0]) if found else route


def labelled_routes(infos: Iterable[RunInfo], measurements: Iterable[Measurement]) -> list[Route]:
    """The routes of all suites that were measured, under every label they have; in the suites' order."""
    labels = labels_of(measurements)
    return [
        structs.replace(route, name=name)
        for info in infos
        for route in info.suite.routes
        for name in labels_for(labels, info, route.name)
    ]
