"""The entries of a run as its report takes them: each exchange beside what is kept of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from bench.journal import Entry, read_run
from bench.records import Exchange
from bench.report.detail import Detail, reduce_exchange


class Seen(NamedTuple):
    """An entry of a journal, its exchange without the reads."""

    entry: Entry
    detail: Detail | None
    """Of the exchange of a trial; `None` for all others."""


Read = Callable[[Path], Iterator[Seen]]
"""Gives the entries of a run directory in order. They are taken to their end before another run is read."""


def read_here(path: Path) -> Iterator[Seen]:
    """The entries as this process reads them.

    Raises `JournalError` for what is no run or is damaged, like `bench.journal.read_run`.
    """
    info, entries = read_run(path, reads=False)
    for entry in entries:
        if isinstance(entry, Exchange) and entry.purpose == "trial":
            yield Seen(entry, reduce_exchange(entry, info.id))
        else:
            yield Seen(entry, None)
