"""What two runs have to be told of each other where routes ran without the speculation that they declare.

A new run may not lose it, nor lack it in a larger part than its baseline did: one that had it in some
measurements is a baseline by these. A baseline that never had it is none for a new run that does, since
against plain decoding a slow drafter looks fast. Where neither had it, like stands against like.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

from msgspec import structs

from bench.analysis.decisions.unspeculated import Unspeculated, cell_of, is_plain, unspeculated
from bench.analysis.statistics.cells import FALLBACK, Cell, alone, plain_route, same_tier, sound
from bench.records import Measurement

Status = Literal["pass", "fail", "cannot tell"]
NEW, OLD = "the new run", "the baseline"


class Lack(NamedTuple):
    """One route and cell that ran without its speculation on a side, in some measurements or in all."""

    sides: Mapping[str, Unspeculated]
    """By `NEW` and `OLD`: one of them or both."""
    status: Status | None
    """What that alone decides of the new run, whatever is asked; `None`: figures decide."""

    @property
    def route(self) -> str:
        """As it is called in the new run."""
        return next(iter(self.sides.values())).route

    @property
    def cell(self) -> Cell:
        """The new run's, where it lacks there."""
        return next(iter(self.sides.values())).cell

    @property
    def neither(self) -> bool:
        """Whether no side has a valid measurement with speculation."""
        return len(self.sides) == 2 and not any(one.kept for one in self.sides.values())

    def is_of(self, route: str, cell: Cell) -> bool:
        """Whether it is about that route and cell."""
        return any(_same(one, route, cell) for one in self.sides.values())

    def told(self) -> str:
        """`ran without its speculation in the new run, 8 of 8 measurements; in the baseline, 2 of 8 ..`."""
        parts = (f"in {side}, {one.told()}" for side, one in self.sides.items())
        return f"ran without its speculation {'; '.join(parts)}"


def two_sides(new: Iterable[Measurement], baseline: Iterable[Measurement]) -> dict[str, list[Measurement]]:
    """Requests of both sides that were sent alone, by `NEW` and `OLD`, of whatever source; valid ones that
    decoded plainly are called so. Where each side has a single route, both go by the new run's name."""
    rows = {NEW: _own(new), OLD: _own(baseline)}
    names = {side: {plain_route(row.route) for row in own} for side, own in rows.items()}
    if len(names[NEW]) == len(names[OLD]) == 1:
        (name,) = names[NEW]
        rows[OLD] = [_called(row, name) for row in rows[OLD]]
    return rows


def _own(rows: Iterable[Measurement]) -> list[Measurement]:
    return [_called(structs.replace(row, source=""), plain_route(row.route)) for row in alone(rows)]


def _called(row: Measurement, name: str) -> Measurement:
    return structs.replace(row, route=name + FALLBACK if sound(row) and is_plain(row) else name)


def lacking(rows: Mapping[str, Sequence[Measurement]]) -> list[Lack]:
    """Every route and cell of `two_sides` that lacks its speculation somewhere, the new run's first."""
    without = {side: unspeculated(own) for side, own in rows.items()}
    places = {
        side: {(plain_route(row.route), cell_of(row)) for row in own if sound(row)}
        for side, own in rows.items()
    }
    found: list[Lack] = []
    for one in (*without[NEW], *without[OLD]):
        if any(lack.is_of(one.route, one.cell) for lack in found):
            continue
        sides = {
            side: other for side, own in without.items() for other in own if _same(other, one.route, one.cell)
        }
        measured = {side for side, own in places.items() if any(_same(one, *place) for place in own)}
        found.append(Lack(sides, _decided(sides.get(NEW), sides.get(OLD), measured)))
    return found


def _decided(new: Unspeculated | None, old: Unspeculated | None, measured: Container[str]) -> Status | None:
    """What the lack of speculation decides by itself. `measured`: sides with valid measurements there."""
    if old is not None and not old.kept:
        if new is not None and not new.kept:
            return None if NEW in measured and OLD in measured else "cannot tell"
        return "cannot tell" if NEW in measured else None
    if new is None or new.repeated or OLD not in measured:
        return None
    return None if old is not None and _no_more(new, old) else "fail"


def _no_more(new: Unspeculated, old: Unspeculated) -> bool:
    """Whether the new run lacks it in no larger a part, as where a length lies at the drafter's limit."""
    return new.kept > 0 and new.without * old.among <= old.without * new.among


def _same(one: Unspeculated, route: str, cell: Cell) -> bool:
    return one.route == route and same_tier(one.cell.tier, cell.tier) and one.cell[1:] == cell[1:]
