"""The entries of a run as its report takes them: each exchange beside what is kept of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from bench.journal import Entry, read_entries
from bench.records import Exchange
from bench.report.detail import Detail, reduce_exchange


class Seen(NamedTuple):
    """An entry of a journal, its exchange without the reads."""

    entry: Entry
    detail: Detail | None
    """Of the exchange of a trial; `None` for all others."""


Read = Callable[[Path, str], Iterator[Seen]]
"""Gives the entries of a run directory in order. The text: what its details name as their source."""


def read_here(path: Path, source: str) -> Iterator[Seen]:
    """The entries as this process reads them.

    Raises `JournalError` like `bench.journal.read_entries`.
    """
    for entry in read_entries(path, reads=False):
        if isinstance(entry, Exchange) and entry.purpose == "trial":
            yield Seen(entry, reduce_exchange(entry, source))
        else:
            yield Seen(entry, None)
