"""Looks after the routes of a run: opens them in turn, sees to servers that fall, gives up the lost."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Awaitable, Callable

import msgspec

from bench.errors import BenchError
from bench.records import Exchange, RunInfo
from bench.run.exchange import Exchanger
from bench.run.ledger import SERVER_FELL, SERVER_STARTED
from bench.run.lifecycle.stage import Stage
from bench.run.progress import Progress

SERVER_STOPPED = "server-stopped"
"""Name of the event that a server of ours was stopped: `route`."""
ROUTE_LOST = "route-lost"
"""Name of the event with which a route is given up for a session; its message says why."""

Note = Callable[[str, str, dict[str, object]], Awaitable[None]]
"""Writes an event: name, message, data."""
KeepInfo = Callable[[RunInfo], Awaitable[None]]
"""Writes what a run says of itself anew."""


class Caretaker:
    """Opens, watches and closes the routes of one run, and keeps the journal informed."""

    def __init__(self, stage: Stage, exchanger: Exchanger, progress: Progress, note: Note) -> None:
        self._stage = stage
        self._exchanger = exchanger
        self._progress = progress
        self._note = note
        self.lost: dict[str, str] = {}
        """Routes given up for this session, with the reason."""
        self.falls: Counter[str] = Counter()
        """How often the server of a route has fallen in this session."""

    async def announce(self) -> None:
        """Puts the servers into the journal that were started before there was one."""
        for route in self._ours():
            await self._note(SERVER_STARTED, "", {"route": route})

    async def open(self, route: str, info: RunInfo, keep: KeepInfo) -> None:
        """Starts the server of a route whose turn has come. A route that does not come is given up."""
        if route in self._stage.sessions or route in self.lost:
            return
        started = time.monotonic()
        try:
            notes = await self._stage.bring(route, info)
        except BenchError as error:
            await self.lose(route, str(error).removeprefix(f"route {route}: "))
            return
        finally:
            self._exchanger.server_s += time.monotonic() - started
        self._exchanger.new_server(self._stage.sessions[route])
        self._progress.notes.extend(f"check: {route}: {one.text}" for one in notes)
        await keep(info)
        facts = msgspec.to_builtins(self._stage.sessions[route].facts)
        await self._note(SERVER_STARTED, "", {"route": route, "facts": facts})

    def over(self, later: set[str]) -> list[str]:
        """Servers of ours that are up and not needed later."""
        return [route for route in self._ours() if route not in later]

    async def close(self, route: str) -> None:
        """Stops the server of a route."""
        started = time.monotonic()
        await self._stage.close(route)
        self._exchanger.server_s += time.monotonic() - started
        await self._note(SERVER_STOPPED, "", {"route": route})

    async def lose(self, route: str, reason: str) -> None:
        """Gives a route up for this session; the others go on."""
        self.lost[route] = reason
        self._progress.notes.append(f"route {route}: {reason}; its trials wait")
        await self._note(ROUTE_LOST, reason, {"route": route})
        if route in self._ours():
            await self.close(route)

    async def see_to(self, exchange: Exchange) -> bool:
        """After a failed exchange: starts a server of ours that fell again, gives somebody else's a
        moment. Whether a new server is up."""
        assert exchange.failure is not None  # noqa: S101 - callers ask before
        route = exchange.trial.route
        fall = await self._stage.fallen(exchange)
        if fall is not None:
            return await self._pick_up(exchange, fall)
        if exchange.failure.kind not in ("refused", "connect_timeout"):
            return False
        self._progress.notes.append(
            f"route {route}: {exchange.failure.message}; waiting up to a minute for it"
        )
        if not await self._exchanger.is_back(self._stage.sessions[route]):
            await self.lose(route, "the server went away")
        return False

    async def _pick_up(self, exchange: Exchange, fall: str) -> bool:
        """Records a fall with the trial it cut off, and starts the server again if the suite allows it."""
        route, trial = exchange.trial.route, exchange.trial.id
        self.falls[route] += 1
        log = exchange.log.file if exchange.log else None
        what = f"its server {fall} during {trial}" + (f"; its log: {log}" if log else "")
        self._progress.notes.append(f"route {route}: {what}")
        data: dict[str, object] = {"route": route, "trial": trial, "log": log}
        await self._note(
            SERVER_FELL, fall, {**data, "attempt": exchange.attempt, "purpose": exchange.purpose}
        )
        if not self._stage.may_restart(route):
            await self.lose(route, what)
            return False
        started = time.monotonic()
        try:
            self._exchanger.new_server(await self._stage.restart(route))
        except BenchError as error:
            await self.lose(route, str(error).removeprefix(f"route {route}: "))
            return False
        finally:
            self._exchanger.server_s += time.monotonic() - started
        await self._note(SERVER_STARTED, "", {"route": route, "again": True})
        return True

    def _ours(self) -> list[str]:
        return [route for route in self._stage.sessions if self._stage.is_ours(route)]
