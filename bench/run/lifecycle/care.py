"""Looks after the routes of a run: opens them in turn, sees to servers that fail, gives up the lost.

After a request that failed by the server's fault (`verdicts.blame`) nothing more is sent on its route
before the server answers a tiny request again. What does not come back in time is lost for the session, and
so is a route with three such failures in a row; a trial with two of them is left for another session. So
neither a dead server nor a prompt that brings it down can keep a run busy for ever. What was only away or
busy is looked for once more now and then, while other routes are measured.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from bench.analysis.verdicts.blame import asked_to_wait_s, is_servers_fault
from bench.errors import BenchError, EngineError
from bench.plan.durations import words
from bench.records import Exchange, RunInfo, Trial
from bench.records.events import (
    FORCED,
    NOT_IDLE,
    ROUTE_LOST,
    SERVER_AWAY,
    SERVER_BACK,
    SERVER_FELL,
    SERVER_STARTED,
    SERVER_STOPPED,
    TRIAL_LEFT,
)
from bench.run.continuity import Restarted
from bench.run.exchange import Exchanger, NotIdle
from bench.run.lifecycle.outage import RETURN_LIMIT_S, missing, wait_back
from bench.run.lifecycle.stage import Stage, without_name
from bench.run.progress import Progress
from bench.wire.failures import StatusError

IN_A_ROW, OF_A_TRIAL = 3, 2
"""Failures by the server's fault after which a route is lost, and a trial left, though the server answers."""

Note = Callable[[str, str, dict[str, object]], Awaitable[None]]
"""Writes an event: name, message, data."""
KeepInfo = Callable[[RunInfo], Awaitable[None]]
"""Writes what a run says of itself anew."""


class Caretaker:
    """Opens, watches and closes the routes of one run, and keeps the journal informed."""

    def __init__(
        self,
        info: RunInfo,
        stage: Stage,
        exchanger: Exchanger,
        progress: Progress,
        note: Note,
        keep: KeepInfo,
    ) -> None:
        self._info = info
        self._stage = stage
        self._exchanger = exchanger
        self._progress = progress
        self._note = note
        self._keep = keep
        self.lost: dict[str, str] = {}
        """Routes given up for this session, with the reason."""
        self.faults: Counter[str] = Counter()
        """How often a request of a route has failed by the server's fault in this session, falls included."""
        self._in_a_row: Counter[str] = Counter()
        self._of_trial: Counter[str] = Counter()
        self.left: dict[str, str] = {}
        """Trials left for another session, with the reason."""
        self.returned: set[str] = set()
        """Routes that were lost and found again."""
        self._away: set[str] = set()
        self._forced = 0

    async def announce(self) -> None:
        """Puts the servers into the journal that were started before there was one, and what was forced."""
        for route in self._ours():
            await self._note(SERVER_STARTED, "", {"route": route})
        await self._note_forced()

    async def _note_forced(self) -> None:
        """Keeps what is not as the run recorded it, once."""
        new, self._forced = self._stage.forced[self._forced :], len(self._stage.forced)
        if new:
            await self._keep(self._info)
        for one in new:
            self._progress.notes.append(f"forced: {one.text}")
            data: dict[str, object] = {"route": one.route, "what": one.what, "was": one.was, "now": one.now}
            await self._note(FORCED, one.text, data)

    async def open(self, route: str) -> None:
        """Opens a route whose turn has come, and starts its server where that is ours to do. What does not
        come is given up."""
        if route in self._stage.open_routes or route in self.lost:
            return
        problem = await self._bring(route)
        if problem is not None:
            await self._lose_for_now(route, problem)

    async def _bring(self, route: str) -> str | None:
        """Opens a route; what is in the way, or `None`."""
        started = time.monotonic()
        try:
            notes = await self._stage.bring(route, self._info)
        except BenchError as error:
            return without_name(error, route)
        finally:
            self._exchanger.server_s += time.monotonic() - started
        opened = self._stage.open_routes[route]
        self._exchanger.new_server(opened)
        self._progress.notes.extend(f"check: {route}: {one.text}" for one in notes)
        await self._keep(self._info)
        await self._note_forced()
        came = SERVER_STARTED if self._stage.is_ours(route) else SERVER_BACK
        await self._note(came, "", {"route": route, "facts": msgspec.to_builtins(opened.facts)})
        return None

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

    async def _lose_for_now(self, route: str, reason: str) -> None:
        """The same; somebody else's server is looked for again now and then."""
        await self.lose(route, reason)
        if not self._stage.is_ours(route):
            self._away.add(route)

    async def leave_busy(self, route: str, error: NotIdle) -> None:
        """Gives a route up for this session whose server did not become idle: nothing was sent."""
        await self._note(NOT_IDLE, str(error), {"route": route, "waited_s": error.waited_s})
        await self._lose_for_now(route, without_name(error, route))

    async def see_to_restart(self, route: str, error: Restarted) -> bool:
        """After a server turned out to have restarted while nothing was sent to it. Whether it goes on."""
        why = without_name(error, route)
        self.faults[route] += 1
        self._in_a_row[route] += 1
        if self._in_a_row[route] >= IN_A_ROW:
            await self.lose(route, f"{IN_A_ROW} troubles in a row, the last: {why}")
            return False
        return await self._welcome(route, why)

    async def see_to_tokenizer(self, route: str, error: EngineError) -> bool:
        """After a server's own tokenizer failed to help with a prompt, so that nothing could be sent.
        Whether the server may be another one now, and wants warming up."""
        if route in self.lost:
            return False
        self.faults[route] += 1
        fall = await self._stage.fallen(route, refused=not isinstance(error, StatusError))
        if fall is not None:
            return await self._pick_up(route, fall, None)
        return await self._wait_for(route, without_name(error, route), None)

    async def find_again(self) -> set[str]:
        """Which of the lost routes are there again: one look at those of somebody else's servers that were
        away or busy. They are lost no more."""
        found = set()
        for route in sorted(self._away & self.lost.keys()):
            if await self._is_found(route):
                found.add(route)
                del self.lost[route]
                self._in_a_row[route] = 0
        self.returned |= found
        return found

    async def _is_found(self, route: str) -> bool:
        opened = self._stage.open_routes.get(route)
        self._progress.enter("waiting for the server to come back", time.monotonic_ns())
        if opened is None:  # it was never there in this session
            return await self._bring(route) is None
        started = time.monotonic()
        problem = await missing(opened, counts=self._stage.counts(route))
        self._exchanger.server_s += time.monotonic() - started
        return problem is None and await self._welcome(route, self.lost[route])

    async def _welcome(self, route: str, why: str, waited_s: float = 0.0) -> bool:
        """Takes up a server that was away and answers again, if it is the one that was measured so far;
        another one's route is lost. Whether it is."""
        try:
            opened = await self._stage.recognise(route, self._info)
        except BenchError as error:
            reason = without_name(error, route)
            if self.lost.get(route) != reason:  # else it has been told
                await self._lose_for_now(route, reason)
            return False
        self._exchanger.new_server(opened)
        await self._note_forced()
        await self._note(SERVER_BACK, why, {"route": route, "waited_s": waited_s})
        after = f" after {words(waited_s)}" if waited_s else ""
        self._progress.notes.append(f"route {route}: its server answers again{after}")
        return True

    async def see_to(self, exchange: Exchange, trials: Sequence[Trial]) -> bool:
        """After every exchange, or the one of a wave that failed: sees to its server. `trials`: what was
        sent with it. Whether the server may be another one now, and wants warming up."""
        route, failure = exchange.trial.route, exchange.failure
        if failure is None:
            if exchange.purpose != "warmup":
                self._in_a_row[route] = 0
            await self._recognise(route)
            return False
        fall = await self._stage.fallen(route, refused=failure.kind in ("refused", "connect_timeout"))
        if fall is None and not is_servers_fault(failure):
            await self._recognise(route)
            return False
        self.faults[route] += 1
        self._of_trial.update(trial.id for trial in trials)
        if fall is not None:
            there = await self._pick_up(route, fall, exchange)
        else:
            there = await self._wait_for(route, failure.message, exchange)
        if there:
            await self._leave(exchange, trials)
        return there

    async def rest(self, route: str, asked_s: float) -> None:
        """Leaves a server alone that asks for it (`Retry-After`), as long as one would be waited for."""
        seconds = min(asked_s, RETURN_LIMIT_S)
        if seconds:
            self._progress.enter("waiting for the server to come back", time.monotonic_ns())
            self._progress.notes.append(
                f"route {route}: its server asks to be left alone for {words(asked_s)} (Retry-After)"
            )
            await asyncio.sleep(seconds)
            self._exchanger.server_s += seconds

    async def _recognise(self, route: str) -> None:
        """After a request that was answered, by a server that has restarted meanwhile all the same."""
        clue = self._exchanger.continuity.clues.get(route)
        if clue is not None:
            await self._welcome(route, f"its server has restarted during a request ({clue})")

    async def _wait_for(self, route: str, why: str, exchange: Exchange | None) -> bool:
        """Waits for a server that lives, for all we know; one of ours that stays silent is started again.
        Whether it is there. `exchange`: what failed; `None`: nothing could be sent."""
        self._in_a_row[route] += 1
        if self._in_a_row[route] >= IN_A_ROW:
            times = f"{IN_A_ROW} requests in a row failed by the server's fault"
            await self.lose(route, f"{times}, the last with: {why}")
            return False
        if exchange is not None:
            await self.rest(route, asked_to_wait_s(exchange))
        opened = self._stage.open_routes[route]
        self._progress.enter("waiting for the server to come back", time.monotonic_ns())

        async def say(problem: str) -> None:
            self._progress.notes.append(
                f"route {route}: {why}; waiting up to {words(RETURN_LIMIT_S)} for it ({problem})"
            )
            await self._note(SERVER_AWAY, why, {"route": route, "problem": problem})

        counts = self._stage.counts(route)
        found = await wait_back(opened, limit_s=RETURN_LIMIT_S, say=say, counts=counts)
        self._exchanger.server_s += found.waited_s
        if not found.back:
            away = f"did not come back within {words(found.waited_s)} ({found.last})"
            if self._stage.is_ours(route) and self._stage.may_restart(route):
                return await self._pick_up(route, away, exchange)
            await self._lose_for_now(route, f"its server {away}")
            return False
        return await self._welcome(route, why, found.waited_s)

    async def _leave(self, exchange: Exchange, trials: Sequence[Trial]) -> None:
        """Leaves trials for another session that failed too often, though their server answers again."""
        assert exchange.failure is not None  # noqa: S101 - `see_to` has asked
        route = exchange.trial.route
        for trial in trials:
            if self._of_trial[trial.id] < OF_A_TRIAL or trial.repeat == 0:
                continue
            self.left[trial.id] = why = (
                f"{trial.id} failed {OF_A_TRIAL} times by the server's fault, the last time with: "
                f"{exchange.failure.message}; the server answers others: does this prompt bring it down?"
            )
            self._progress.notes.append(f"route {route}: {why}")
            await self._note(TRIAL_LEFT, why, {"route": route, "trial": trial.id})

    async def _pick_up(self, route: str, fall: str, exchange: Exchange | None) -> bool:
        """Records a fall with what it cut off, if anything, and starts the server again if the suite
        allows it."""
        what = f"its server {fall} while a prompt was composed"
        data: dict[str, object] = {"route": route}
        if exchange is not None:
            trial, log = exchange.trial.id, exchange.log.file if exchange.log else None
            what = f"its server {fall} during {trial}" + (f"; its log: {log}" if log else "")
            data |= {"trial": trial, "log": log, "attempt": exchange.attempt, "purpose": exchange.purpose}
        self._progress.notes.append(f"route {route}: {what}")
        await self._note(SERVER_FELL, fall, data)
        if not self._stage.may_restart(route):
            await self.lose(route, what)
            return False
        started = time.monotonic()
        try:
            self._exchanger.new_server(await self._stage.restart(route, self._info))
        except BenchError as error:
            await self.lose(route, without_name(error, route))
            return False
        finally:
            self._exchanger.server_s += time.monotonic() - started
        await self._note_forced()
        await self._note(SERVER_STARTED, "", {"route": route, "again": True})
        return True

    def _ours(self) -> list[str]:
        return [route for route in self._stage.open_routes if self._stage.is_ours(route)]
