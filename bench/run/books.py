"""What a run keeps and what follows from it: the journal, and the books that are read from every line of it.

An entry counts once it is in the journal, never before. The same bookkeeping serves what is happening
and what a journal recalls of earlier sessions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from bench.analysis.verdicts.ledger import was_cut_off
from bench.journal import Entry, Journal
from bench.plan.times import RouteModel
from bench.records import Event, Measurement, Reason, RunInfo
from bench.run.exchange import utc_now
from bench.run.progress import Progress
from bench.run.tally import Tally


class Books:
    """The journal of one run, and the tally of its lines."""

    def __init__(
        self,
        info: RunInfo,
        journal: Journal,
        progress: Progress,
        models: Mapping[str, RouteModel] | None = None,
    ) -> None:
        """`models`: what is known of the routes' times."""
        self._tally = Tally(info, models)
        self.ledger = self._tally.ledger
        self.outlook = self._tally.outlook
        self._plan = info.plan
        self._journal = journal
        self._progress = progress
        # One thread: lines keep their order, and no fsync ever holds up the event loop.
        self._writer = ThreadPoolExecutor(max_workers=1, thread_name_prefix="journal")

    def recall(self, entries: Iterator[Entry]) -> None:
        """Takes in what earlier sessions of this run have done. What waits for a replay still waits."""
        for entry in entries:
            self._say_invalid(self._tally.take(entry))
        self._say_invalid(self._tally.close_wave())

    @property
    def undecided(self) -> str | None:
        """Id of a trial, a first replay that missed, whose verdict waits for the next one of its prompt."""
        return self._tally.undecided

    def decide(self) -> None:
        """No more replays of the prompt at hand follow: what waited for one is judged without."""
        self._say_invalid(self._tally.decide())

    async def append(self, entries: Sequence[Entry]) -> None:
        """Into the journal, and from there into the books; returns when it is on the disk."""
        await self._write(self._journal.append, *entries)
        for entry in entries:
            self._say_invalid(self._tally.take(entry))

    async def note(self, name: str, message: str = "", data: dict[str, object] | None = None) -> None:
        """An event of now."""
        await self.append([Event(name=name, at=utc_now(), message=message, data=data or {})])

    async def keep_info(self, info: RunInfo) -> None:
        """What the run says of itself, written anew."""
        await self._write(self._journal.update_info, info)

    async def store_page(self, name: str, page: str) -> str:
        """Keeps a metrics page; its path within the run directory."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._writer, self._journal.store_scrape, name, page)

    def show_done(self) -> None:
        """Tells the display how many trials are done, and how long the rest will take."""
        left = self.ledger.left(self._plan)
        self._progress.done = len(self._plan) - len(left)
        self._progress.unmeasured = self.ledger.unmeasured(self._plan)
        self._progress.left_s = self.outlook.left_s(left)

    def close(self) -> None:
        """Waits for what is still being written."""
        self._writer.shutdown(wait=True)

    def _say_invalid(self, found: Sequence[Measurement]) -> None:
        """Says which of the new measurements are invalid, and why: a wave in one line.

        Of what Ctrl-C cut off nothing is said: it will be sent again.
        """
        blamed: dict[str, dict[str, None]] = {}
        cut_off = set()
        for one in found:
            name = one.window.id if one.window else one.trial_id
            if was_cut_off(one):
                cut_off.add(name)
            elif not one.verdict.valid:
                blamed.setdefault(name, {}).update(dict.fromkeys(map(_in_short, one.verdict.reasons)))
        for name, reasons in blamed.items():
            if name in cut_off:
                continue
            own = [reason for reason in reasons if reason != "wave_spoilt"]
            self._progress.notes.append(f"{name} is invalid: {', '.join(own or reasons)}")

    async def _write(self, write: Callable[..., None], *what: Entry | RunInfo) -> None:
        await asyncio.get_running_loop().run_in_executor(self._writer, write, *what)


def _in_short(reason: Reason) -> str:
    """Its id; of a request that failed also how."""
    return f"{reason.id} ({reason.detail})" if reason.id == "failed" and reason.detail else reason.id
