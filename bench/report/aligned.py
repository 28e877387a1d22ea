"""Columns of a terminal's table."""

from __future__ import annotations

from collections.abc import Collection, Sequence


def aligned(lines: Sequence[Sequence[str]], right: Collection[int], gap: int = 2) -> list[str]:
    """Lines of equally wide columns `gap` blanks apart; those in `right` are numbers."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return [
        (" " * gap)
        .join(
            cell.rjust(size) if place in right else cell.ljust(size)
            for place, (cell, size) in enumerate(zip(line, widths, strict=True))
        )
        .rstrip()
        for line in lines
    ]


def shortened(text: str, limit: int) -> str:
    """Cut in the middle: of `source:route` the end tells more."""
    if len(text) <= limit:
        return text
    tail = limit * 2 // 3
    return f"{text[: limit - tail - 1]}…{text[-tail:]}"
