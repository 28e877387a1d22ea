"""How measurements are told apart and put together before any statistic.

- Routes of equal name from several sources become `source:route`.
- A speculating route past its drafter limit becomes `route (fallback)`: it is neither the
  speculating route nor the true target-only one.
- Tiers that differ by less than 0.1% are one tier, named by its most frequent length.
- Only valid measurements enter a statistic, and only those of requests that were sent alone: what is
  released together is for `levels.py`, and the turns of recorded chats are for `chats.py`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from msgspec import structs

from bench.analysis.statistics.bootstrap import Floats
from bench.analysis.verdicts.firstreplay import is_first_miss
from bench.errors import SuiteError
from bench.records import Condition, Measurement, Route

SAME_TIER = 0.001
"""Relative difference below which two prompt lengths are one tier."""
FALLBACK = " (fallback)"
"""Behind the name of a route past its drafter limit."""


class Cell(NamedTuple):
    """What is compared with like: one prompt length, condition and task."""

    tier: int
    condition: Condition
    task: str


def alone(measurements: Iterable[Measurement]) -> list[Measurement]:
    """Those of prompts of a tier that were sent one at a time. Every analysis but `levels` and `chats` is
    about these: here, and in `usable`, the others are left out, and nowhere else."""
    return [row for row in measurements if _alone(row)]


def _alone(row: Measurement) -> bool:
    return row.concurrency == 1 and not is_turn(row)


def is_turn(row: Measurement) -> bool:
    """Whether it is a turn of a recorded chat: it has no tier, and is neither cold nor a replay."""
    return row.condition == "turn"


def labelled(measurements: Iterable[Measurement]) -> list[Measurement]:
    """Requests sent alone, under unique route names and merged tiers; order kept."""
    return renamed(alone(measurements))


def renamed(measurements: Iterable[Measurement]) -> list[Measurement]:
    """The same measurements under unique route names and merged tiers; none left out, order kept."""
    rows = list(measurements)
    sources: dict[str, set[str]] = defaultdict(set)
    for row in rows:
        sources[row.route].add(row.source)
    tiers = merged_tiers(row.tier for row in rows if not is_turn(row))
    return [
        _labelled(row, len(sources[row.route]) > 1, row.tier if is_turn(row) else tiers[row.tier])
        for row in rows
    ]


def _labelled(row: Measurement, shared: bool, tier: int) -> Measurement:
    name = label_in_run(row)
    if shared:
        name = f"{row.source}:{name}"
    if name == row.route and tier == row.tier:
        return row
    # the source goes where it has become part of the name: labelling twice changes nothing
    return structs.replace(row, route=name, tier=tier, source="" if shared else row.source)


def label_in_run(row: Measurement) -> str:
    """The name that its route has among those of its own run: with `(fallback)` where it drafted no more."""
    fallen = row.verdict.speculation == "fallback" and not row.route.endswith(FALLBACK)
    return row.route + FALLBACK if fallen else row.route


def plain_route(label: str) -> str:
    """The route's own name, without what `labelled` adds past its drafter limit."""
    return label.removesuffix(FALLBACK)


def merged_tiers(tiers: Iterable[int]) -> dict[int, int]:
    """Every length that occurs -> the length its tier is known by."""
    counts = Counter(tiers)
    groups: list[list[int]] = []
    for tier in sorted(counts):
        if groups and tier - groups[-1][0] < SAME_TIER * tier:
            groups[-1].append(tier)
        else:
            groups.append([tier])
    return {tier: max(group, key=lambda t: (counts[t], -t)) for group in groups for tier in group}


def same_tier(a: int, b: int) -> bool:
    """Whether two prompt lengths count as one tier."""
    return a == b or abs(a - b) < SAME_TIER * max(a, b)


def usable(row: Measurement) -> bool:
    """Whether a measurement may enter a statistic over tiers: sound, and of a request of its own."""
    return _alone(row) and sound(row)


def sound(row: Measurement) -> bool:
    """Whether nothing is wrong with a measurement, and it stands for its condition: a first replay that
    missed as this server's first ones do is summed up by itself alone (`summary.py`)."""
    return row.verdict.valid and row.failure is None and not is_first_miss(row)


def pooled(condition: Condition) -> Condition:
    """A valid salted sample counts as a cold one."""
    return "cold" if condition == "salted" else condition


def by_cell(measurements: Iterable[Measurement]) -> dict[Cell, dict[str, list[Measurement]]]:
    """Usable measurements by cell, then by route; salted ones with the cold ones.

    Cells come by condition, tier and task, routes in their first order of appearance.
    """
    cells: dict[Cell, dict[str, list[Measurement]]] = {}
    for row in measurements:
        if usable(row):
            cell = Cell(row.tier, pooled(row.condition), row.task)
            cells.setdefault(cell, {}).setdefault(row.route, []).append(row)
    return dict(sorted(cells.items(), key=lambda item: (item[0].condition, item[0].tier, item[0].task)))


def routes_of(measurements: Iterable[Measurement]) -> list[str]:
    """Route names in their order of appearance."""
    return list(dict.fromkeys(row.route for row in measurements))


def named(routes: Sequence[str], name: str) -> list[str]:
    """The labels that `name` stands for: itself, or every `source:name`. Raises `SuiteError`."""
    found = [route for route in routes if route == name]
    found = found or [route for route in routes if route.endswith(f":{name}")]
    if not found:
        raise SuiteError(f"no route {name!r} among the measurements: there are {', '.join(routes) or 'none'}")
    return found


def default_base(routes: Iterable[Route], measurements: Iterable[Measurement]) -> str | None:
    """The route to compare with where none is named: of those that were measured the first without
    speculation, else the first. `routes` are those of the suites; `None`: nothing was measured."""
    measured = {measurement.route for measurement in measurements}
    there = [route for route in routes if route.name in measured]
    plain = [route.name for route in there if route.speculation is None]
    found = plain + [route.name for route in there] + sorted(measured)
    return found[0] if found else None


def column(rows: Iterable[Measurement], field: str) -> Floats:
    """The values of one field, without the absent ones."""
    values = (getattr(row, field) for row in rows)
    return np.array([v for v in values if v is not None], dtype=float)
