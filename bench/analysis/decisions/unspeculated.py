"""Where a route ran without the speculation that it declares.

Past its drafter's limit a route decodes plainly and stays valid (`fallback`); where nothing is drafted for no
reason at all its measurements are invalid (`off`), and none is left. Either way it is not the route it says.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct

from bench.analysis.statistics.cells import Cell, labelled, plain_route, pooled, sound
from bench.records import Measurement

_REASONS = ("speculation_fallback", "speculation_batch_limit", "drafts_rejected", "speculation_off")


class Unspeculated(Struct, frozen=True, kw_only=True):
    """One route in one cell of one run."""

    route: str
    cell: Cell
    without: int
    """Measurements without speculation, every attempt."""
    among: int
    """Valid ones of the cell; where none is, all."""
    reason: str
    """Id and figures of the first that says why; empty: a table that does not."""

    def told(self, where: str) -> str:
        """`ran without its speculation in the new run, 8 of 8 measurements (speculation_off: 0 drafts)`."""
        why = f" ({self.reason})" if self.reason else ""
        return f"ran without its speculation in {where}, {self.without:,} of {self.among:,} measurements{why}"


def unspeculated(measurements: Iterable[Measurement]) -> list[Unspeculated]:
    """Every route and cell with a valid measurement that fell back, or with none valid and one `off`."""
    groups: dict[tuple[str, Cell], list[Measurement]] = {}
    for row in labelled(measurements):
        groups.setdefault((plain_route(row.route), cell_of(row)), []).append(row)
    found = []
    for (route, cell), rows in groups.items():
        valid = [row for row in rows if sound(row)]
        without = [
            row for row in valid or rows if row.verdict.speculation == ("fallback" if valid else "off")
        ]
        if without:
            found.append(
                Unspeculated(
                    route=route,
                    cell=cell,
                    without=len(without),
                    among=len(valid or rows),
                    reason=_reason(without),
                )
            )
    return found


def cell_of(row: Measurement) -> Cell:
    """Where a measurement stands, salted ones with the cold ones."""
    return Cell(row.tier, pooled(row.condition), row.task)


def _reason(rows: Sequence[Measurement]) -> str:
    for row in rows:
        for reason in (*row.verdict.reasons, *row.verdict.warnings):
            if reason.id in _REASONS:
                return f"{reason.id}: {reason.detail}" if reason.detail else reason.id
    return ""
