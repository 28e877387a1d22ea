"""A series of metrics pages, cut where the server was quiet.

A `Segment` runs from the last page on which nothing was going on to the first page on which nothing
goes on any more and the counters hold everything. A server that is never quiet is cut at intervals,
once it is clear that its requests cannot be told apart. Only two pages and a few peaks are kept,
however long it lasts. What a segment says is for `analysis/watch/described.py`.

Quiet means what the engine makes sure: nothing running and nothing waiting where these gauges are
live; where they are refreshed now and then only (SGLang), as many requests ended as had a first
token, by the counters.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from bench.analysis.verdicts.continuity import change_between
from bench.analysis.verdicts.counters import difference
from bench.engines.base import Dialect
from bench.errors import EngineError
from bench.records import Scrape

Ending = Literal["quiet", "cut off", "busy", "restart", "open"]
"""`cut off`: quiet again, but no request was counted as finished; `busy`: cut while requests were
running, to show their sums; `open`: watching ended first."""
BUSY_S = 60.0
"""After so long the sums of overlapping requests are shown."""
_STARTS_KEPT = 64
_RESTARTS = 3
_WITHIN_PAGES = 10


class Segment(Struct, frozen=True, kw_only=True):
    """Pages between two quiet ones."""

    before: Scrape
    after: Scrape
    previous_end_ns: int
    """Monotonic: the segment before ended here, or watching began: nothing is known of earlier."""
    ended: Ending
    clue: str = ""
    """What shows the restart."""
    began_before: bool = False
    """Requests were running on the first page already, since before watching began or a restart."""
    continued: bool = False
    """The same, since the segment before was cut while busy."""
    pages: int = 0
    """Pages between the quiet ones, the last one included."""
    busy_pages: int = 0
    """Those on which something was running."""
    live_gauges: bool = True
    """The engine's gauges are true at every moment; else a request before its first token is not seen."""
    unread: int = 0
    """Pages that could not be had meanwhile."""
    in_flight_peak: float | None = None
    """Most requests running and waiting on one page, or counted to be in flight."""
    waiting_peak: float | None = None
    kv_usage_peak: float | None = None
    prompt_steps: int = 0
    """Pages on which the prompt counter had moved: a lower bound of the prompts."""
    output_steps: int = 0
    """The same of generated tokens."""

    @property
    def span_s(self) -> float:
        """From the last quiet page to the next one, the time of fetching the first included."""
        return (self.after.at_ns - self.before.at_ns + self.before.took_ns) / 1e9


class Segmenter:
    """Feed it the pages of one server in order; every page gives at most one finished segment."""

    def __init__(self, dialect: Dialect, *, busy_s: float = BUSY_S) -> None:
        self._dialect = dialect
        self._busy_ns = round(busy_s * 1e9)
        self._carried = 0.0  # requests in flight when a busy segment was cut, by the counters
        self._stale = dialect.lagging_gauges
        self._base: Scrape | None = None
        self._last: Scrape | None = None
        self._previous_end_ns = 0
        self._open: _Open | None = None
        self._starts: dict[float, None] = {}
        self._restarts: list[int] = []
        self._read = 0

    @property
    def kept(self) -> tuple[Scrape, ...]:
        """The pages that a coming segment may still begin or end with."""
        return tuple(page for page in (self._base, self._last) if page is not None)

    def add(self, page: Scrape) -> Segment | None:
        """The segment that this page ends, if any.

        A page with a problem is left out. Raises `EngineError` when the pages are of several servers.
        """
        if not page.values or page.problem is not None:
            if self._open is not None:
                self._open.unread += 1
            return None
        self._read += 1
        if self._base is None or self._last is None:
            self._start(page)
            return None
        change, clue = change_between(
            self._last, page, self._dialect, starts_seen=frozenset(self._starts) - {_start_of(self._last)}
        )
        if change is not None:
            return self._restart(page, change, clue)
        previous, self._last = self._last, page
        busy = self._busy(page)
        if self._open is None:
            if not busy and not self._moved(self._base, page):
                self._base = page
                return None
            self._open = _Open()
        self._open.see(previous, page, self._in_flight(page), busy)
        if busy:
            return self._cut(page)
        ended = self._ended(previous, page)
        return self._close(page, ended) if ended else None

    def finish(self) -> Segment | None:
        """What was still going on on the last page, if anything."""
        if self._open is None or self._last is None or self._last is self._base:
            return None
        return self._close(self._last, "open")

    # --- the small parts

    def _start(self, page: Scrape) -> None:
        self._base = self._last = page
        self._note_start(page)
        self._previous_end_ns = page.at_ns
        if self._busy(page):
            self._open = _Open(began_before=True)
            self._open.see(page, page, self._in_flight(page), True)

    def _restart(self, page: Scrape, change: str, clue: str) -> Segment:
        self._restarts = [at for at in self._restarts if self._read - at < _WITHIN_PAGES] + [self._read]
        if change == "replicas" or len(self._restarts) >= _RESTARTS:
            raise EngineError(
                f"several servers answer under this address ({clue}): give one server's own address"
            )
        assert self._last is not None  # noqa: S101 - a first page has been there
        segment = self._close(self._last, "restart", clue)
        self._start(page)
        return segment

    def _cut(self, page: Scrape) -> Segment | None:
        """A busy segment that is long enough, and in which no request can be told apart any more."""
        assert self._base is not None and self._open is not None  # noqa: S101 - called with both
        if page.at_ns - self._base.at_ns < self._busy_ns:
            return None
        begun, ended = self._counted(page)
        several = (
            max(begun or 0, ended or 0, self._open.output_steps, self._open.peaks.get("in_flight", 0)) > 1
        )
        if not (several or self._open.began_before or self._open.continued):
            return None
        carried = self._in_flight(page) or 0.0
        segment = self._close(page, "busy")
        self._carried = carried if self._stale else 0.0
        self._open = _Open(continued=True)
        return segment

    def _close(self, page: Scrape, ended: Ending, clue: str = "") -> Segment:
        assert self._base is not None  # noqa: S101 - a first page has been there
        seen = self._open or _Open()
        segment = Segment(
            before=self._base,
            after=page,
            previous_end_ns=self._previous_end_ns,
            ended=ended,
            clue=clue,
            began_before=seen.began_before,
            continued=seen.continued,
            pages=seen.pages,
            busy_pages=seen.busy_pages,
            live_gauges=not self._stale,
            unread=seen.unread,
            in_flight_peak=seen.peaks.get("in_flight"),
            waiting_peak=seen.peaks.get("waiting"),
            kv_usage_peak=seen.peaks.get("kv_usage"),
            prompt_steps=seen.prompt_steps,
            output_steps=seen.output_steps,
        )
        self._base, self._open, self._previous_end_ns = page, None, page.at_ns
        self._carried = 0.0
        return segment

    def _note_start(self, page: Scrape) -> None:
        start = _start_of(page)
        if start is not None:
            self._starts[start] = None
            if len(self._starts) > _STARTS_KEPT:
                self._starts.pop(next(iter(self._starts)))

    def _moved(self, earlier: Scrape, later: Scrape) -> bool:
        return any(difference(earlier, later, self._dialect).values.values())

    def _counted(self, page: Scrape) -> tuple[float | None, float | None]:
        """(requests that had a first token, requests that ended) in this segment; those that had one
        when it was cut off from a busy one count as begun."""
        assert self._base is not None  # noqa: S101 - a first page has been there
        moved = difference(self._base, page, self._dialect)
        finished = moved.get("requests_finished")
        ended = None if finished is None else finished + (moved.get("requests_aborted") or 0.0)
        begun = moved.get("ttft_count")
        return None if begun is None else begun + self._carried, ended

    def _in_flight(self, page: Scrape) -> float | None:
        """Running and waiting by live gauges; else first tokens without an end, by the counters."""
        gauges = [page.values[name] for name in ("running", "waiting") if name in page.values]
        if gauges and not self._stale:
            return sum(gauges)
        begun, ended = self._counted(page)
        return None if begun is None else max(0.0, begun - (ended or 0.0))

    def _busy(self, page: Scrape) -> bool:
        return bool(self._in_flight(page))

    def _ended(self, previous: Scrape, page: Scrape) -> Ending | None:
        """Whether a page on which nothing runs holds all counts, too: some are published late."""
        assert self._base is not None  # noqa: S101 - a first page has been there
        moved = difference(self._base, page, self._dialect)
        begun, ended = self._counted(page)
        if ended is None:  # the engine counts no requests
            whole = counted = bool(moved.get("generation_tokens"))
        else:
            e2e = moved.get("e2e_count")
            counted = ended > 0
            whole = (
                counted
                and (e2e is None or e2e >= (moved.get("requests_finished") or 0.0))
                and (begun is None or begun <= ended)
            )
        if whole:
            return "quiet"
        if previous is not self._base and previous.values == page.values:
            return "quiet" if counted else "cut off"
        return None


class _Open:
    """Running figures of a segment that has not ended."""

    __slots__ = (
        "began_before", "busy_pages", "continued", "output_steps", "pages", "peaks", "prompt_steps", "unread",
    )  # fmt: skip

    def __init__(self, *, began_before: bool = False, continued: bool = False) -> None:
        self.began_before, self.continued = began_before, continued
        self.pages = self.busy_pages = self.unread = self.prompt_steps = self.output_steps = 0
        self.peaks: dict[str, float] = {}

    def see(self, previous: Scrape, page: Scrape, in_flight: float | None, busy: bool) -> None:
        was, now = previous.values, page.values
        self.pages += 1
        self.busy_pages += busy
        self.prompt_steps += now.get("prompt_tokens", 0.0) > was.get("prompt_tokens", 0.0)
        self.output_steps += now.get("generation_tokens", 0.0) > was.get("generation_tokens", 0.0)
        levels = {"in_flight": in_flight, "waiting": now.get("waiting"), "kv_usage": now.get("kv_usage")}
        for name, level in levels.items():
            if level is not None:
                self.peaks[name] = max(self.peaks.get(name, level), level)


def _start_of(page: Scrape) -> float | None:
    return page.values.get("process_start")
