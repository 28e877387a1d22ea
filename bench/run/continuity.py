"""Whether a route's server is still the process that was last looked at: by its metrics pages, in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Mapping

from bench.analysis.verdicts.continuity import change_between
from bench.analysis.verdicts.counters import Deltas, difference
from bench.engines.base import Dialect
from bench.errors import EngineError
from bench.records import Scrape
from bench.run.openroute import OpenRoute

_KEPT = 16
"""Pages from which a route's counters jumped: a balancer shows by the first few."""

_SECOND_LOOKS = 8
"""A balancer of a few servers comes round in these; they cost one that has restarted some milliseconds."""


class Restarted(EngineError):
    """A server has restarted while nothing was sent to it: it may be another one now, so nothing was sent."""


class _Behind:
    """What is known of the processes behind one route's address."""

    def __init__(self) -> None:
        self.page: Scrape | None = None
        self.unknown: Scrape | None = None  # the page of a process that is not known yet
        self.starts: set[float] = set()
        self.infos: list[Mapping[str, str]] = []
        self.left: deque[Scrape] = deque(maxlen=_KEPT)
        self.take_turns = False

    def take(self, page: Scrape) -> None:
        """This page is of a process that is known."""
        self.page, self.unknown = page, None
        start = page.values.get("process_start")
        if start is not None:
            self.starts.add(start)
        if page.info not in self.infos:
            self.infos.append(page.info)

    def old_starts(self) -> frozenset[float]:
        """Process starts seen before the present one."""
        known = self.page.values.get("process_start") if self.page else None
        return frozenset(self.starts - {known})

    def returns_to(self, page: Scrape, our_tokens: int | None, dialect: Dialect) -> bool:
        """Whether this page is, without anything of ours, where counters were before they jumped away: no
        process goes back there, so there are several. Remembers where they jump from.

        A page of zeros is that of any new process, and one that carries a process start needs no such clue.
        """
        last = self.unknown or self.page
        if last is None or "process_start" in page.values:
            return False
        moved = difference(last, page, dialect)
        rise = moved.get("generation_tokens")
        if not moved.fell and (our_tokens is None or rise is None or rise <= our_tokens):
            return False
        back = our_tokens == 0 and any(_equal(before, page, dialect) for before in self.left)
        self.left.append(last)
        return back


def _equal(before: Scrape, page: Scrape, dialect: Dialect) -> bool:
    moved = difference(before, page, dialect)
    still = not moved.fell and not moved.vanished and not any(moved.values.values())
    return still and any(page.values[name] > 0 for name in moved.values)


class Continuity:
    """The last page of every route, and the processes that are known.

    Several servers that take turns behind one address hold up nothing: they are for the verdicts, which judge
    by the pages of each exchange. `say` is told of them once.
    """

    def __init__(self, say: Callable[[str], None] | None = None) -> None:
        self._say = say
        self._routes: dict[str, _Behind] = {}
        self.clues: dict[str, str] = {}
        """By route: what tells that its server is another process now, which is not known yet."""

    def forget(self, opened: OpenRoute) -> None:
        """It is known who this route's server is now, whatever its former pages said."""
        behind = self._of(opened)
        self.clues.pop(opened.route.name, None)
        behind.page = None
        if behind.unknown is not None:
            behind.take(behind.unknown)

    def look(self, opened: OpenRoute, page: Scrape, our_tokens: int | None = None) -> None:
        """Takes in the next page of a route. One of another process stays out, and leaves its clue.

        `our_tokens`: output tokens of what was sent since the last page; `None`: that is not known.
        """
        name, behind = opened.route.name, self._of(opened)
        if not page.values:
            return
        if not behind.take_turns and behind.returns_to(page, our_tokens, opened.dialect):
            self._take_turns(name, behind)
        if behind.take_turns and page.info in behind.infos and "process_start" not in page.values:
            behind.take(page)
            return
        # The counters of several servers tell nothing.
        moved = Deltas() if behind.take_turns else None
        change, clue = change_between(
            behind.page, page, opened.dialect, starts_seen=behind.old_starts(), moved=moved
        )
        if change == "restart":
            behind.unknown = page
            self.clues[name] = clue
            return
        if name in self.clues:  # the former process is there again, so it has not restarted
            self._take_turns(name, behind)
        behind.take(page)

    def require(self, opened: OpenRoute, page: Scrape) -> None:
        """As `look`, for a page since the last of which nothing was sent. Raises `Restarted` when it is of
        another process."""
        self.look(opened, page, our_tokens=0)
        name = opened.route.name
        if name in self.clues:
            raise Restarted(f"route {name}: its server has restarted between requests ({self.clues[name]})")

    async def look_again(self, opened: OpenRoute, look: Callable[[], Awaitable[Scrape]]) -> bool:
        """Where a server seems to have restarted: whether some more looks find the former one again."""
        name = opened.route.name
        for _ in range(_SECOND_LOOKS):
            if name not in self.clues:
                return True
            self.look(opened, await look(), our_tokens=0)
        return name not in self.clues

    def _of(self, opened: OpenRoute) -> _Behind:
        return self._routes.setdefault(opened.route.name, _Behind())

    def _take_turns(self, name: str, behind: _Behind) -> None:
        behind.take_turns = True
        self.clues.pop(name, None)
        if behind.unknown is not None:
            behind.take(behind.unknown)
        if self._say is not None:
            self._say(
                f"route {name}: several servers take turns behind its address (their counters come back): "
                "address one of them for requests and metrics, not the balancer"
            )
