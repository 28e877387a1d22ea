"""A watch that was kept, told again from its run directory."""

from __future__ import annotations

from pathlib import Path

from bench.analysis.watch.journal import Note, Seen, is_watch, kept
from bench.analysis.watch.totals import Totals
from bench.errors import JournalError
from bench.journal import read_run
from bench.run.watch.watcher import Hearer


def tell_again(path: Path, hearer: Hearer, totals: Totals) -> None:
    """Tells all that an earlier watch kept, as it was told then, and how long it watched.

    Raises `JournalError` when `path` is no directory of a watch, or an entry of it is damaged.
    """
    info, entries = read_run(path)
    if not is_watch(info):
        raise JournalError(
            f"{path}: this is a run, not a watch: ctxbench report {path} shows what it measured, "
            f"ctxbench status {path} how it stands"
        )
    for one in kept(info, entries, str(path)):
        if isinstance(one, Note):
            hearer.note(one.text)
        elif isinstance(one, Seen):
            totals.add(one.watched)
            hearer.seen(one)
        else:
            hearer.ended(one.watched_s)
