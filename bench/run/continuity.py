"""Whether a route's server is still the process that was last looked at: by its metrics pages, in order."""

from __future__ import annotations

from bench.analysis.verdicts.continuity import change_between
from bench.errors import EngineError
from bench.records import Scrape
from bench.run.openroute import OpenRoute


class Restarted(EngineError):
    """A server has restarted while nothing was sent to it: it may be another one now, so nothing was sent."""


class Continuity:
    """The last page of every route, and the starts of the processes that are known."""

    def __init__(self) -> None:
        self._pages: dict[str, Scrape] = {}
        self._starts: dict[str, set[float]] = {}
        self._new: dict[str, float] = {}  # the start of a process that is not known yet
        self.clues: dict[str, str] = {}
        """By route: what tells that its server is another process now, which is not known yet."""

    def forget(self, opened: OpenRoute) -> None:
        """It is known who this route's server is now, whatever its former pages said."""
        name = opened.route.name
        self._pages.pop(name, None)
        self.clues.pop(name, None)
        if name in self._new:
            self._starts.setdefault(name, set()).add(self._new.pop(name))

    def look(self, opened: OpenRoute, page: Scrape) -> None:
        """Takes in the next page of a route. One of another process stays out, and leaves its clue. Replicas
        that take turns behind one address are for the verdicts."""
        name = opened.route.name
        last, starts = self._pages.get(name), self._starts.setdefault(name, set())
        start, known = page.values.get("process_start"), last and last.values.get("process_start")
        change, clue = change_between(last, page, opened.dialect, starts_seen=frozenset(starts - {known}))
        if change == "restart":
            if start is not None:
                self._new[name] = start
            self.clues[name] = clue
            return
        if page.values:
            self._pages[name] = page
        if start is not None:
            starts.add(start)

    def require(self, opened: OpenRoute, page: Scrape) -> None:
        """As `look`, for the page before a request. Raises `Restarted` when it is of another process."""
        self.look(opened, page)
        name = opened.route.name
        if name in self.clues:
            raise Restarted(f"route {name}: its server has restarted between requests ({self.clues[name]})")
