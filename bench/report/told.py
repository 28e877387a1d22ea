"""Texts that know where their figures come from, and the tables made of them."""

from __future__ import annotations

from typing import Self

from msgspec import Struct


class Told(str):
    """A text of a report with its source: what the figures in it mean and who witnessed them.

    A string everywhere (as `markupsafe.Markup` is one), so that a terminal and Markdown need not know;
    report.html shows the source when a reader points at the text. Cutting or joining gives plain strings.
    """

    __slots__ = ("source",)
    source: str

    def __new__(cls, text: str, source: str) -> Self:
        """`source` in whole sentences: definition, sample, witness."""
        one = super().__new__(cls, text)
        one.source = source
        return one


def source_of(text: str) -> str:
    """Where the figures of a text come from; empty for a text without one."""
    return text.source if isinstance(text, Told) else ""


class Table(Struct, frozen=True, kw_only=True):
    """A table for every output. Cells with figures are `Told`."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str
    """What the figures mean and who witnessed them, in short: the footnote where nothing hovers."""
    right: tuple[int, ...] = ()
    """Columns of numbers."""
