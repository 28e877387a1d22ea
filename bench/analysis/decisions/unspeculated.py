"""Where a route ran without the speculation that it declares.

Past its drafter's limit a route decodes plainly and stays valid (`fallback`); where nothing is drafted for no
reason at all a measurement is invalid (`off`). Either way it is not the route it says, be it in all of its
measurements or in some.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct

from bench.analysis.statistics.cells import FALLBACK, Cell, labelled, plain_route, pooled, sound
from bench.records import Measurement

_REASONS = ("speculation_fallback", "speculation_batch_limit", "drafts_rejected", "speculation_off")


class Unspeculated(Struct, frozen=True, kw_only=True):
    """One route in one cell of one run."""

    route: str
    cell: Cell
    without: int
    """Measurements without speculation: valid ones that fell back, and every attempt that was `off`."""
    among: int
    """Valid ones and attempts that were `off`; where none is valid, all of the cell."""
    kept: int
    """Valid ones that are not without; 0: nothing of this cell stands for the route as it was declared."""
    repeated: bool
    """Nothing fell back, every trial that was `off` has a valid attempt with speculation, and attempts that
    were `off` are fewer than those: what was lost was made good."""
    reason: str
    """Id and figures of the first that says why; empty: a table that does not."""

    def told(self) -> str:
        """`8 of 8 measurements (speculation_off: 0 drafts for 101 tokens)`."""
        why = f" ({self.reason})" if self.reason else ""
        return f"{self.without:,} of {self.among:,} measurements{why}"


def unspeculated(measurements: Iterable[Measurement]) -> list[Unspeculated]:
    """Every route and cell with a valid measurement that fell back or with an attempt that was `off`."""
    groups: dict[tuple[str, Cell], list[Measurement]] = {}
    for row in labelled(measurements):
        groups.setdefault((plain_route(row.route), cell_of(row)), []).append(row)
    found = (_unspeculated(route, cell, rows) for (route, cell), rows in groups.items())
    return [one for one in found if one.without]


def _unspeculated(route: str, cell: Cell, rows: Sequence[Measurement]) -> Unspeculated:
    valid = [row for row in rows if sound(row)]
    fell = [row for row in valid if is_plain(row)]
    kept = [row for row in valid if not is_plain(row)]
    off = [row for row in rows if not sound(row) and row.verdict.speculation == "off"]
    made_good = set(map(_trial, off)) <= set(map(_trial, kept))
    return Unspeculated(
        route=route,
        cell=cell,
        without=len(fell) + len(off),
        among=len(valid) + len(off) if valid else len(rows),
        kept=len(kept),
        repeated=not fell and made_good and len(off) < len(kept),
        reason=_reason([*fell, *off]),
    )


def is_plain(row: Measurement) -> bool:
    """Whether a valid measurement is one of plain decoding. A table may call valid what was `off`."""
    return row.route.endswith(FALLBACK) or row.verdict.speculation in ("fallback", "off")


def _trial(row: Measurement) -> tuple[str, int, int]:
    """Which trial of its cell a measurement is an attempt at, in runs and in their tables alike."""
    return row.condition, row.repeat, row.replay


def cell_of(row: Measurement) -> Cell:
    """Where a measurement stands, salted ones with the cold ones."""
    return Cell(row.tier, pooled(row.condition), row.task)


def _reason(rows: Sequence[Measurement]) -> str:
    for row in rows:
        for reason in (*row.verdict.reasons, *row.verdict.warnings):
            if reason.id in _REASONS:
                return f"{reason.id}: {reason.detail}" if reason.detail else reason.id
    return ""
