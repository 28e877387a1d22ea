"""Sends single requests and waves, with everything that belongs to each: its start in the journal before
it, its record there after it, and a look at its server where it failed.

What to send, and in which order, is for others to know: `runner.py`, and `chats.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterator, Sequence

import msgspec

from bench.analysis.verdicts.blame import End, asked_to_wait_s, is_servers_fault, turned_away
from bench.analysis.verdicts.waves import as_one
from bench.errors import EngineError
from bench.plan.trials import pair_key
from bench.prompting.compose import Composer, Prompt
from bench.records import Event, Exchange, Purpose, RunInfo, Trial
from bench.records.events import RESET, STARTED
from bench.run.books import Books
from bench.run.continuity import Restarted
from bench.run.exchange import Exchanger, NotIdle, utc_now
from bench.run.forecast.outlook import warmup_tokens
from bench.run.lifecycle.care import Caretaker
from bench.run.lifecycle.stage import Stage
from bench.run.private import without_words
from bench.run.progress import Progress
from bench.run.reset import probe_tokens, proof, reset_cache
from bench.run.wave import Member, uncut


class Sender:
    """The requests of one run in progress."""

    def __init__(self, info: RunInfo, stage: Stage, progress: Progress, books: Books) -> None:
        self._suite = info.suite
        self._stage = stage
        self._progress = progress
        self._books = books
        self._ledger = books.ledger
        self._warm: set[str] = set()
        self.exchanger = Exchanger(books.store_page, progress)
        self.care = Caretaker(info, stage, self.exchanger, progress, books.note, books.keep_info)

    def pair(self, trial: Trial) -> str:
        """Routes with equal keys are sent the same prompts."""
        return pair_key(self._suite, self._suite.route(trial.route))

    def next_attempt(self, wave: tuple[Trial, ...]) -> int:
        """The same for all of a wave; one that was cut off while its start was noted may count unequally."""
        return max(self._ledger.next_attempt(trial) for trial in wave)

    async def find_again(self) -> None:
        """Looks once for routes that were lost; those found want warming up."""
        self._warm -= await self.care.find_again()

    @contextlib.contextmanager
    def counting(self, composer: Composer) -> Iterator[None]:
        """Composing with a server's own tokenizer is waiting for that server's /tokenize."""
        started = time.monotonic()
        yield
        if composer.tokenizer.identity.kind == "server":
            self.exchanger.server_s += time.monotonic() - started

    async def warm_up(self, route: str) -> None:
        """One unmeasured prompt of other text, once a session."""
        tokens = warmup_tokens(self._suite)
        if not tokens or route in self._warm or route in self.care.lost:
            return
        self._warm.add(route)
        trial = Trial(
            id=f"{route}/warmup", route=route, tier=tokens, condition="cold", repeat=0, output_tokens=8
        )
        attempt = self._ledger.next_attempt(trial)
        composer, pair = self._stage.composers[route], self.pair(trial)
        async with self.sheltered(route):
            prompt = await asyncio.to_thread(composer.compose_warmup, tokens, number=attempt, pair=pair)
            await self.send(trial, prompt, attempt, "warmup")

    @contextlib.asynccontextmanager
    async def sheltered(self, route: str) -> AsyncIterator[None]:
        """What a server does that cannot even be sent to ends no more than the route's turn."""
        try:
            yield
        except NotIdle as error:
            await self.care.leave_busy(route, error)
        except Restarted as error:
            if await self.care.see_to_restart(route, error):
                self._warm.discard(route)
                await self.warm_up(route)
        except EngineError as error:  # prompts may need the server's own tokenizer
            if await self.care.see_to_tokenizer(route, error):
                self._warm.discard(route)
                await self.warm_up(route)

    async def reset_cache(self, route: str) -> None:
        """Where the route asks for it: empties the server's cache, and proves it with a probe prompt."""
        opened = self._stage.open_routes[route]
        if opened.route.reset is None:
            return
        tokens = probe_tokens(opened.facts, max(self._suite.tiers))
        trial = Trial(
            id=f"{route}/reset", route=route, tier=tokens, condition="cold", repeat=0, output_tokens=2
        )
        attempt, pair = self._ledger.next_attempt(trial), f"reset {self.pair(trial)}"
        composer = self._stage.composers[route]
        prompt = await asyncio.to_thread(composer.compose_warmup, tokens, number=attempt, pair=pair)
        first = await self.send(trial, prompt, attempt, "warmup")
        if route in self.care.lost:
            return
        refused = await reset_cache(opened)
        again = await self.send(trial, prompt, self._ledger.next_attempt(trial), "warmup")
        # A probe that was never computed proves nothing when it is computed later.
        proven, detail = proof(again if first.failure is None else first, opened.dialect)
        proven = False if refused else proven
        data: dict[str, object] = {"route": route, "accepted": refused is None, "proven": proven}
        await self._books.note(RESET, message=refused or detail, data=data)
        if not proven:
            self._progress.notes.append(f"route {route}: the cache reset is not proven: {refused or detail}")

    async def send(self, trial: Trial, prompt: Prompt, attempt: int, purpose: Purpose) -> Exchange:
        """One exchange that is sent alone; else as `send_wave`."""
        (exchange,) = await self.send_wave([trial], [prompt], attempt, purpose)
        return exchange

    async def send_wave(
        self, wave: Sequence[Trial], prompts: Sequence[Prompt], attempt: int, purpose: Purpose
    ) -> list[Exchange]:
        """The exchanges of trials that are sent together, or of one that is sent alone; in the journal before
        this returns, also when they were cut off. A turn of a chat is kept without words, unless the suite
        keeps texts; what is returned has them."""
        await self._begin(wave, attempt, purpose)
        members = [Member(trial=trial, prompt=prompt) for trial, prompt in zip(wave, prompts, strict=True)]
        route = wave[0].route
        log = self._stage.logs.get(route)
        if log is not None:
            await log.mark()
        found = await self.exchanger.perform_wave(self._stage.open_routes[route], members, attempt, purpose)
        personal = wave[0].turn > 0 and not self._suite.prompt.keep_text

        async def keep() -> list[Exchange]:
            if log is not None:
                whole = found[0] if len(found) == 1 else as_one(found)
                whole = await log.excerpt_for(whole, counts_only=personal)
                found[0] = msgspec.structs.replace(found[0], log=whole.log)
            kept = [without_words(one) for one in found] if personal else found
            await self._books.append(kept)
            self._books.show_done()
            return kept

        kept, interrupted = await uncut(keep())
        if interrupted or self.exchanger.interrupted:
            raise asyncio.CancelledError  # it was held back until the exchanges were in the journal
        if self.exchanger.unkept is not None:
            raise self.exchanger.unkept  # likewise
        await self._look_after(kept, wave)
        return found

    async def _begin(self, trials: Sequence[Trial], attempt: int, purpose: Purpose) -> None:
        """Shows what begins, and notes the attempt of each: a cut-off one has used up its salt."""
        self._progress.begin(trials[0], time.monotonic_ns())
        expected_s = self._books.outlook.ttft_s(trials[0])
        # Of a wave, its last: prompts may be taken one after another.
        self._progress.expected_ttft_s = None if expected_s is None else expected_s * len(trials)
        at = utc_now()
        await self._books.append(
            [
                Event(name=STARTED, at=at, data={"trial": trial.id, "attempt": attempt, "purpose": purpose})
                for trial in trials
            ]
        )

    async def _look_after(self, sent: Sequence[Exchange], trials: Sequence[Trial]) -> None:
        """After every exchange, or wave: sees to its server, and warms it up when it may be another one now.
        A server that turns requests away for their number is there, and all it could be asked is known; it
        is left alone for as long as it asks."""
        away = turned_away([End.of(one) for one in sent])
        if away:
            await self.care.rest(trials[0].route, max(asked_to_wait_s(sent[place]) for place in away))
        others = [one for place, one in enumerate(sent) if place not in away]
        if not others:
            return
        failed = (one for one in others if one.failure is not None)
        at_fault = (one for one in others if one.failure is not None and is_servers_fault(one.failure))
        exchange = next(at_fault, next(failed, others[0]))
        if await self.care.see_to(exchange, trials):
            self._warm.discard(exchange.trial.route)
            await self.warm_up(exchange.trial.route)
