"""A plot, and who draws the plots of a report."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from bench.report.content import Content


class Plot(Struct, frozen=True, kw_only=True):
    """A plot in both formats."""

    name: str
    """File name without its ending."""
    title: str
    caption: str
    """How to read it, in a sentence."""
    png: bytes
    svg: str


def kind_of(name: str) -> str:
    """What a plot shows, by its name: that of one task, `decode-needle`, shows what `decode` shows."""
    return name.partition("-")[0]


Draw = Callable[["Content"], Iterable[Plot]]
"""Gives the plots of a content, maybe only when they are looked at; they can be looked at more than once."""


def draw_here(content: Content) -> list[Plot]:
    """All plots of a content, drawn by this process."""
    from bench.report.plots import draw

    return draw(content)
