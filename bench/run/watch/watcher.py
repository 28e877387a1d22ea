"""Watching a server that others use: its metrics page, again and again, and nothing else.

No request that makes the server generate is ever sent; the one other page asked for is llama.cpp's
`/slots`, once after a request has ended, because that engine does not count requests.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator

import msgspec
from msgspec import Struct, structs

from bench import engines
from bench.analysis.statistics.machine import PhaseUse, uses_within
from bench.analysis.watch.described import Watched, describe, slot_lengths
from bench.analysis.watch.journal import LogLine, Seen
from bench.analysis.watch.totals import Totals
from bench.analysis.watch.windows import Segment, Segmenter
from bench.engines.base import Dialect
from bench.engines.metrics import read_page
from bench.errors import BenchError, EngineError, JournalError, SuiteError
from bench.journal import Journal
from bench.records import Event, Scrape, ServerFacts
from bench.records.events import NOTED, WATCH_ENDED, WATCHED
from bench.run.exchange import utc_now
from bench.run.lifecycle.machine import machine_looks
from bench.run.watch.log import LogWatch
from bench.run.watch.order import WatchOrder, exporters_of, kept, key_of, metrics_address, watched_route
from bench.wire.client import Client
from bench.wire.machine import MachineLook, MachineSampler
from bench.wire.scrape import scrape

_TIMEOUT_S = 30.0  # llama.cpp answers between two batches of a long prefill
_SLOTS_TIMEOUT_S = 5.0

WATCHABLE = tuple(name for name, known in engines.DIALECTS.items() if known.aliases)
"""Engines whose metrics page is known."""

Look = Callable[[], Awaitable[tuple[Scrape, str | None]]]
"""Takes one page: as the dialect reads it, and its text."""
Slots = Callable[[], Awaitable[object]]
"""Asks for the engine's slots; `None` where there is no answer."""


class Hearer(Struct, frozen=True, kw_only=True):
    """Who is told what is seen, while it happens."""

    seen: Callable[[Seen], None]
    note: Callable[[str], None]
    """A line for people about the watching itself."""
    ended: Callable[[float], None]
    """Once, at the end, with the seconds watched."""


async def watch(order: WatchOrder, hearer: Hearer, totals: Totals) -> None:
    """Watches until the order's end, or until cancelled; then what is open is told as such.

    Raises `EngineError` when the page cannot be had at the beginning, is no engine's, or turns out
    to be of several servers, `SuiteError` for an order that is wrong, and `JournalError` when its
    directory exists or cannot be made.
    """
    address = _checked(order)
    log = LogWatch(order.log) if order.log else None
    origin = address.removesuffix("/metrics")
    async with Client(
        origin, api_key=key_of(order), ca_file=order.ca_file, insecure=order.insecure
    ) as client:
        dialect, facts = await _meet(client, address, order.engine)
        for text in _first_words(order, dialect, address):
            hearer.note(text)

        async def look() -> tuple[Scrape, str | None]:
            return await scrape(client, address, dialect, timeout_s=_TIMEOUT_S)

        async def slots() -> object:
            try:
                return await client.get_json(f"{origin}/slots", timeout_s=_SLOTS_TIMEOUT_S)
            except EngineError:
                return None  # switched off here: the gauges must do

        counts = any(alias.name == "requests_finished" for alias in dialect.aliases)
        if log is not None:
            log.begin(dialect.name)
        route = watched_route(order, address, dialect.name)
        async with machine_looks(route) as looks:
            with kept(route, order, facts) as journal:
                keeper = Keeper(journal, hearer, totals, log)
                telling = {source: _telling(source, look, keeper.note) for source, look in looks.items()}
                async with MachineSampler(telling) as machine:
                    watcher = Watcher(
                        dialect, facts, keeper, slots=None if counts else slots, machine=machine
                    )
                    await watcher.run(look, order)


class Keeper:
    """Writes what is seen, adds it up, and tells it."""

    def __init__(self, journal: Journal | None, hearer: Hearer, totals: Totals, log: LogWatch | None) -> None:
        self._journal, self._hearer, self._totals, self._log = journal, hearer, totals, log
        self._number = 0

    @property
    def requests(self) -> int:
        """Finished requests so far; a window of an unknown number counts as one."""
        return self._totals.requests + self._totals.uncounted_windows

    def note(self, text: str) -> None:
        """Tells a line about the watching itself, and keeps it."""
        self._hearer.note(text)
        if self._journal is not None:
            self._journal.append(Event(name=NOTED, at=utc_now(), message=text))

    def keep(self, watched: Watched, pages: tuple[str | None, str | None]) -> None:
        """Takes in the next thing seen, with the raw pages of its beginning and end."""
        self._number += 1
        watched, log = self._with_log(watched)
        self._totals.add(watched)
        files = [self._store(place, page) for place, page in zip(("before", "after"), pages, strict=True)]
        seen = Seen(at=utc_now(), watched=watched, before=files[0], after=files[1], log=log)
        if self._journal is not None:
            data = msgspec.to_builtins(seen)
            self._journal.append(Event(name=WATCHED, at=seen.at, message=watched.why, data=data))
        self._hearer.seen(seen)

    def end(self, watched_s: float, pages: int, missed: int) -> None:
        """Writes the last line of the journal, and tells that it is over."""
        if self._journal is not None:
            data: dict[str, object] = {"watched_s": watched_s, "pages": pages, "missed": missed}
            self._journal.append(Event(name=WATCH_ENDED, at=utc_now(), data=data))
        self._hearer.ended(watched_s)

    async def log_settled(self, sleep: Callable[[float], Awaitable[None]]) -> None:
        """Waits for the log's lines of a request that has just ended."""
        if self._log is not None:
            try:
                await self._log.settled(sleep)
            except BenchError as error:
                self._leave_log(error)

    def _with_log(self, watched: Watched) -> tuple[Watched, tuple[LogLine, ...]]:
        if self._log is None:
            return watched, ()
        try:
            return self._log.told_of(watched)
        except BenchError as error:
            self._leave_log(error)
            return watched, ()

    def _leave_log(self, error: BenchError) -> None:
        """A log that cannot be read any more costs the log, not the watch."""
        self._log = None
        self.note(f"the log is left out from now on: {error}")

    def _store(self, place: str, page: str | None) -> str | None:
        if self._journal is None or page is None:
            return None
        return self._journal.store_scrape(f"{self._number:06d}-{place}", page)


class Watcher:
    """Looks at intervals, and hands every finished segment on. At most three pages are held."""

    def __init__(
        self,
        dialect: Dialect,
        facts: ServerFacts,
        keeper: Keeper,
        *,
        slots: Slots | None = None,
        machine: MachineSampler | None = None,
    ) -> None:
        self._dialect, self._facts, self._keeper, self._slots = dialect, facts, keeper, slots
        self._machine = machine or MachineSampler({})
        self._segmenter = Segmenter(dialect)
        self._texts: dict[int, str] = {}
        self._pages = self._missed = 0
        self._silent_since: float | None = None

    async def run(
        self,
        look: Look,
        order: WatchOrder,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """Until the order's end, or until cancelled: then the open segment is told, too."""
        self._segmenter = Segmenter(self._dialect, busy_s=order.busy_s)
        started = due = clock()
        try:
            while True:
                page, text = await look()
                await self._take(page, text, clock(), sleep)
                if order.requests is not None and self._keeper.requests >= order.requests:
                    break
                # A page that was late shifts the following ones: never two at once.
                due = max(due + order.every_s, clock())
                if order.for_s is not None and due - started > order.for_s:
                    break
                await sleep(due - clock())
        finally:
            if (segment := self._segmenter.finish()) is not None:
                self._tell(segment, None)
            self._keeper.end(clock() - started, self._pages, self._missed)

    async def _take(
        self, page: Scrape, text: str | None, now: float, sleep: Callable[[float], Awaitable[None]]
    ) -> None:
        self._pages += 1
        self._note_silence(page, now)
        if text is not None:
            self._texts[page.at_ns] = text
        segment = self._segmenter.add(page)
        if segment is not None:
            lengths = None
            if segment.ended == "quiet":
                await self._keeper.log_settled(sleep)
                if self._slots is not None:
                    # The server is idle: this costs nobody anything.
                    lengths = slot_lengths(await self._slots())
            self._tell(segment, lengths)
        held = {one.at_ns for one in self._segmenter.kept}
        self._texts = {at: text for at, text in self._texts.items() if at in held}
        self._machine.forget(min(held, default=page.at_ns))

    def _tell(self, segment: Segment, lengths: list[int] | None) -> None:
        watched = describe(segment, self._dialect, self._facts, slot_lengths=lengths)
        ends = (segment.before.at_ns, segment.after.at_ns)
        watched = structs.replace(watched, machine=self._machine_uses(*ends))
        self._keeper.keep(watched, (self._texts.get(ends[0]), self._texts.get(ends[1])))

    def _machine_uses(self, start_ns: int, end_ns: int) -> tuple[PhaseUse, ...]:
        return uses_within(self._machine.samples(start_ns, end_ns), 0, end_ns - start_ns)

    def _note_silence(self, page: Scrape, now: float) -> None:
        """Once when pages stop coming, once when they are back."""
        if page.problem is not None or not page.values:
            self._missed += 1
            if self._silent_since is None:
                self._silent_since = now
                self._keeper.note(f"no metrics page: {page.problem or 'nothing known on it'}")
        elif self._silent_since is not None:
            self._keeper.note(f"the metrics page is back after {now - self._silent_since:.0f} s")
            self._silent_since = None


# --- the small parts --------------------------------------------------------------------------------


def _checked(order: WatchOrder) -> str:
    """The address of the metrics page. Raises what `watch` raises before it asks any server."""
    address = metrics_address(order.url, order.engine)
    if order.out is not None and order.out.exists():
        raise JournalError(f"{order.out}: it exists already; give --out a directory that is yet to be made")
    if order.engine is not None and order.engine not in WATCHABLE:
        raise SuiteError(f"--engine {order.engine[:40]!r}: one of {', '.join(WATCHABLE)}")
    exporters_of(order.exporters)
    return address


def _first_words(order: WatchOrder, dialect: Dialect, address: str) -> Iterator[str]:
    """What is watched, and what to know of its engine."""
    yield f"watching {dialect.name} at {address} every {order.every_s:g} s; Ctrl-C ends it"
    if dialect.name == "llamacpp":
        yield (
            "llama.cpp resets its two throughput gauges whenever its page is read: other readers of "
            "this page see them for shorter spans meanwhile"
        )
        if order.log is None:
            yield "llama.cpp's metrics tell no TTFT: --log of a server started with --verbosity 4 does"


def _telling(source: str, look: MachineLook, note: Callable[[str], None]) -> MachineLook:
    """The same look, that notes the first time what keeps it from seeing anything."""
    told = False

    async def looked() -> tuple[dict[str, float], str | None]:
        nonlocal told
        values, problem = await look()
        if problem is not None and not told:
            told = True
            note(f"the machine, by {source}: {problem}")
        return values, problem

    return looked


async def _meet(client: Client, address: str, engine: str | None) -> tuple[Dialect, ServerFacts]:
    """Whose page this is, and what it says of the server."""
    text = await client.get_text(address, timeout_s=_TIMEOUT_S)
    dialect = engines.DIALECTS[engine] if engine else engines.detect({}, text)
    page = read_page(text, dialect)
    if not dialect.aliases or page.problem is not None:
        names = ", ".join(WATCHABLE)
        problem = page.problem or f"no family of {names} is on it"
        raise EngineError(f"{address} cannot be watched: {problem}; give the engine's own metrics page")
    return dialect, dialect.facts({}, page.values, page.info)
