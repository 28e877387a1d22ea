"""What a run keeps and what follows from it: the journal, and the books that are read from every line of it.

An entry counts once it is in the journal, never before. The same bookkeeping serves what is happening
and what a journal recalls of earlier sessions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from bench.analysis.verdicts.measure import Measurer
from bench.journal import Entry, Journal
from bench.plan.times import RouteModel
from bench.records import Event, Exchange, Measurement, Reason, RunInfo
from bench.run.exchange import utc_now
from bench.run.forecast.outlook import Outlook
from bench.run.ledger import Ledger
from bench.run.progress import Progress


class Books:
    """The journal of one run with its ledger, its measurements and its outlook."""

    def __init__(
        self,
        info: RunInfo,
        journal: Journal,
        progress: Progress,
        models: Mapping[str, RouteModel] | None = None,
    ) -> None:
        """`models`: what is known of the routes' times."""
        self.ledger = Ledger(info.suite.retry_invalid)
        self.outlook = Outlook([route.name for route in info.suite.routes], models)
        self._plan = info.plan
        self._journal = journal
        self._progress = progress
        self._measurer = Measurer(info)
        # One thread: lines keep their order, and no fsync ever holds up the event loop.
        self._writer = ThreadPoolExecutor(max_workers=1, thread_name_prefix="journal")

    def recall(self, entries: Iterator[Entry]) -> None:
        """Takes in what earlier sessions of this run have done. What waits for a replay still waits."""
        for entry in entries:
            self._take_in(entry)
        self._judged(self._measurer.close_wave())

    @property
    def undecided(self) -> str | None:
        """Id of a trial, a first replay that missed, whose verdict waits for the next one of its prompt."""
        return self._measurer.undecided

    def decide(self) -> None:
        """No more replays of the prompt at hand follow: what waited for one is judged without."""
        self._judged(self._measurer.decide())

    async def append(self, entries: Sequence[Entry]) -> None:
        """Into the journal, and from there into the books; returns when it is on the disk."""
        await self._write(self._journal.append, *entries)
        for entry in entries:
            self._take_in(entry)

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

    def _take_in(self, entry: Entry) -> None:
        if isinstance(entry, Event):
            self.ledger.note_event(entry)
            return
        self.ledger.note_sent(entry)
        if entry.purpose == "trial":
            self._judged(self._measurer.take(entry))
        else:
            self._judged(self._measurer.skip(entry))
            self._warmed_up(entry)

    def _warmed_up(self, exchange: Exchange) -> None:
        if exchange.purpose == "warmup" and exchange.chunks.at_ns:
            first_s = exchange.chunks.at_ns[0] / 1e9
            self.outlook.warmed_up(exchange.trial.route, exchange.prompt.tokens, first_s)

    def _judged(self, found: Sequence[Measurement]) -> None:
        """Counts what was measured, and says what is invalid: a wave in one line."""
        blamed: dict[str, dict[str, None]] = {}
        self.ledger.undecided = self._measurer.undecided
        self.ledger.note_measured(found)
        for one in found:
            self.outlook.measured(one)
            if not one.verdict.valid:
                reasons = blamed.setdefault(one.window.id if one.window else one.trial_id, {})
                reasons |= dict.fromkeys(map(_in_short, one.verdict.reasons))
        for name, reasons in blamed.items():
            own = [reason for reason in reasons if reason != "wave_spoilt"]
            self._progress.notes.append(f"{name} is invalid: {', '.join(own or reasons)}")

    async def _write(self, write: Callable[..., None], *what: Entry | RunInfo) -> None:
        await asyncio.get_running_loop().run_in_executor(self._writer, write, *what)


def _in_short(reason: Reason) -> str:
    """Its id; of a request that failed also how."""
    return f"{reason.id} ({reason.detail})" if reason.id == "failed" and reason.detail else reason.id
