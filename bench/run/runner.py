"""Works through a plan: the only place where exchanges follow each other.

For every block of trials the runner sends each group (a cold prompt, its replays, its salted twin; waves
of them, whose prompts are let go together; or a recorded chat, turn by turn), then repeats what came out
invalid, with fresh salts. Every entry is in the journal before the next request is sent. The same code runs
a new run and the rest of an interrupted one: what is left is read from the ledger, never from the position
in a loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

from bench.analysis.verdicts.ledger import Sent
from bench.errors import EngineError
from bench.journal import Entry, Journal
from bench.plan.times import RouteModel
from bench.plan.trials import groups, waves
from bench.prompting.compose import Prompt
from bench.prompting.conversation import Conversation
from bench.records import Purpose, RunInfo, Trial
from bench.records.events import FINISHED, TOKENIZED
from bench.run.books import Books
from bench.run.chats import ChatSender
from bench.run.lifecycle.stage import Stage
from bench.run.progress import Progress
from bench.run.sender import Sender


class Runner:
    """One run in progress. Use `run()` once; afterwards the journal holds everything."""

    def __init__(
        self,
        info: RunInfo,
        journal: Journal,
        stage: Stage,
        progress: Progress,
        *,
        models: Mapping[str, RouteModel] | None = None,
        chats: Mapping[str, Conversation] | None = None,
    ) -> None:
        """`stage`: the routes, of which some may be open; `models`: what is known of their times; `chats`:
        those of the plan."""
        self._info = info
        self._suite = info.suite
        self._path = journal.path
        self._stage = stage
        self._open_routes = stage.open_routes
        self._composers = stage.composers
        self._progress = progress
        self._books = Books(info, journal, progress, models)
        self._ledger = self._books.ledger
        self._sender = Sender(info, stage, progress, self._books)
        self._care = self._sender.care
        self._chats = ChatSender(info, stage, progress, self._sender, chats or {})

    def recall(self, entries: Iterator[Entry]) -> None:
        """Takes in what earlier sessions of this run have done."""
        self._books.recall(entries)

    async def run(self) -> None:
        """Warms up every route and sends all that is left.

        Cancelled, it leaves a sound journal with the request in flight marked as such. Raises
        `EngineError` at the end when trials are left because of a server.
        """
        plan = self._info.plan
        self._progress.total = len(plan)
        self._books.show_done()
        started_ns = time.monotonic_ns()
        try:
            await self._care.announce()
            blocks = [block for block in self._blocks() if self._ledger.left(block)]
            for number, block in enumerate(blocks, 1):
                await self._run_block(block)
                for route in self._care.over({trial.route for later in blocks[number:] for trial in later}):
                    await self._time_tokenizers([route])
                    await self._care.close(route)
            await self._catch_up(blocks)
            if blocks:
                await self._time_tokenizers(list(self._open_routes))
        finally:
            self._progress.enter("finished", time.monotonic_ns())
            await self._books.note(FINISHED, data=self._account(started_ns))
            self._books.close()
        self._end(plan)

    async def _catch_up(self, blocks: Sequence[list[Trial]]) -> None:
        """Does what is left of routes that were lost and found again, after all others."""
        await self._sender.find_again()
        for block in blocks:
            own = [trial for trial in block if trial.route in self._care.returned]
            if self._left(own):
                await self._run_block(own)

    def _end(self, plan: Sequence[Trial]) -> None:
        """Raises `EngineError` where trials are left because of a server."""
        left = self._ledger.left(plan)
        reasons = [f"route {name}: {reason}" for name, reason in self._care.lost.items()]
        reasons += [reason for name, reason in self._care.left.items() if any(name == t.id for t in left)]
        if left and reasons:
            raise EngineError(
                f"{'; '.join(reasons)}; {len(left)} of {len(plan)} trials "
                f"are left: see to it, then ctxbench run --resume {self._path}"
            )

    async def _time_tokenizers(self, routes: Sequence[str]) -> None:
        """Times each server's own /tokenize once per tier, after the trials so that it warms nothing."""
        for name in routes:
            if name not in self._care.lost:
                with contextlib.suppress(EngineError):  # nothing depends on it
                    await self._time_tokenizer(name)

    async def _time_tokenizer(self, name: str) -> None:
        opened, composer = self._open_routes[name], self._composers[name]
        for tier in self._suite.tiers:
            trial = Trial(
                id=f"{name}/{tier}/tokenize",
                route=name,
                tier=tier,
                condition="cold",
                repeat=0,
                task=self._suite.prompt.tasks[0],
            )
            prompt = await asyncio.to_thread(composer.compose, trial, pair=self._sender.pair(trial))
            took = await self._sender.exchanger.time_tokenizer(opened, prompt.rest)
            if took is not None:
                data: dict[str, object] = {"route": name, "tier": tier, **took}
                await self._books.note(TOKENIZED, data=data)

    def _blocks(self) -> Iterator[list[Trial]]:
        """Interleaved: one repeat of all routes; else one repeat of one route."""

        def block_of(trial: Trial) -> tuple[int, str]:
            return trial.repeat, "" if self._suite.interleave else trial.route

        for _, block in groupby(self._info.plan, key=block_of):
            yield list(block)

    async def _run_block(self, block: Sequence[Trial]) -> None:
        await self._sender.find_again()
        for route in dict.fromkeys(trial.route for trial in self._left(block)):
            await self._care.open(route)
            await self._sender.warm_up(route)
        faults = self._care.faults.total()
        for group in groups(block):
            untried = [trial for trial in self._left(group) if not self._ledger.is_tried(trial)]
            await self._send_group(group, untried, fresh=False)
        rounds = 0
        # A fault of the server uses up no attempt of its trial, so it brings a round of its own.
        while rounds < self._suite.retry_invalid + self._care.faults.total() - faults:
            rounds += 1
            for group in groups(block):
                await self._send_group(group, self._left(group), fresh=True)

    def _left(self, group: Sequence[Trial]) -> list[Trial]:
        """What is left of a group for this session."""
        return [trial for trial in self._ledger.left(group) if trial.id not in self._care.left]

    async def _send_group(self, group: Sequence[Trial], wanted: Sequence[Trial], *, fresh: bool) -> None:
        """Sends the `wanted` trials of a group, and what their conditions need before them.

        `fresh`: a replay is repeated behind a new cold prompt, not behind the one it missed.
        """
        route = group[0].route
        if not wanted or route in self._care.lost:
            return
        async with self._sender.sheltered(route):
            if group[0].turn:
                await self._chats.send(group, wanted)
            else:
                await self._send_wanted(group, wanted, fresh=fresh)
        self._books.decide()

    async def _send_wanted(self, group: Sequence[Trial], wanted: Sequence[Trial], *, fresh: bool) -> None:
        cold, *others = waves(group)
        asked = {trial.id for trial in wanted}
        # One trial of a wave is never sent without the others.
        due = [wave for wave in others if any(trial.id in asked for trial in wave)]
        prompts: list[Prompt] = []
        if any(trial.id in asked for trial in cold):
            prompts, sent = await self._send_cold(cold, "trial")
            if not sent:
                return  # nothing to replay; all of the group is left for the retry
        if replays := [wave for wave in due if wave[0].condition == "replay"]:
            prompts = prompts or ([] if fresh else await self._prompts_in_cache(cold))
            if not prompts:
                prompts, sent = await self._send_cold(cold, "prime")
                if not sent:
                    return
            await self._send_replays(others, replays, prompts)
        for wave in due:
            if wave[0].condition == "salted":
                await self._send_salted(cold, wave, prompts)

    async def _send_cold(self, cold: tuple[Trial, ...], purpose: Purpose) -> tuple[list[Prompt], bool]:
        """The prompts, and whether all of them were answered."""
        if any(trial.id in self._care.left for trial in cold):
            return [], False
        await self._sender.reset_cache(cold[0].route)
        if cold[0].route in self._care.lost:
            return [], False
        attempt = self._sender.next_attempt(cold)
        prompts = await self._compose(cold, attempt)
        sent = await self._sender.send_wave(cold, prompts, attempt, purpose)
        return prompts, all(exchange.failure is None for exchange in sent)

    async def _send_replays(
        self, others: Sequence[tuple[Trial, ...]], due: Sequence[tuple[Trial, ...]], prompts: list[Prompt]
    ) -> None:
        """Replays in order; one that is valid already is sent again unmeasured, for its place. A server that
        fails may take the prompts with it: the rest is left for the retry."""
        route = others[0][0].route
        faults, last = self._care.faults[route], False
        for wave in others:
            # A first replay that missed is judged by the next one, where there is one.
            over = last and self._books.undecided is None
            if over or self._care.faults[route] != faults:
                return
            if wave[0].condition != "replay" or route in self._care.lost:
                continue
            purpose: Purpose = "trial" if wave in due else "prime"
            await self._sender.send_wave(wave, prompts, self._sender.next_attempt(wave), purpose)
            last = last or wave == due[-1]

    async def _send_salted(
        self, cold: tuple[Trial, ...], wave: tuple[Trial, ...], prompts: list[Prompt]
    ) -> None:
        if wave[0].route in self._care.lost:
            return
        if not prompts:
            prompts = await self._compose(cold, max(1, self._sender.next_attempt(cold) - 1))
        attempt = self._sender.next_attempt(wave)
        composer = self._composers[wave[0].route]

        def salted() -> list[Prompt]:
            pairs = zip(prompts, wave, strict=True)
            return [composer.salted(prompt, trial, attempt) for prompt, trial in pairs]

        with self._sender.counting(composer):
            twins = await asyncio.to_thread(salted)
        await self._sender.send_wave(wave, twins, attempt, "trial")

    async def _prompts_in_cache(self, cold: tuple[Trial, ...]) -> list[Prompt]:
        """The cold prompts an earlier session left in the server's cache, if they may still be there."""
        last = self._ledger.last_sent(cold)
        if any(self._restarted_since(sent) for sent in last):
            return []
        composer, pair = self._composers[cold[0].route], self._sender.pair(cold[0])

        def again() -> list[Prompt]:
            return [composer.again(sent.prompt, sent.trial, pair=pair) for sent in last]

        return await asyncio.to_thread(again)

    def _restarted_since(self, sent: Sent) -> bool:
        now = self._open_routes[sent.trial.route].facts.started_at
        return now is not None and sent.server_started is not None and now != sent.server_started

    async def _compose(self, cold: tuple[Trial, ...], attempt: int) -> list[Prompt]:
        self._progress.enter("composing", time.monotonic_ns())
        composer, pair = self._composers[cold[0].route], self._sender.pair(cold[0])

        def composed() -> list[Prompt]:
            return [composer.compose(trial, attempt=attempt, pair=pair) for trial in cold]

        with self._sender.counting(composer):
            return await asyncio.to_thread(composed)

    def _account(self, started_ns: int) -> dict[str, object]:
        """Where the time went: `harness_s` is what neither the servers nor the pauses of chats needed."""
        wall_s = (time.monotonic_ns() - started_ns) / 1e9
        server_s, paused_s = self._sender.exchanger.server_s, self._chats.paused_s
        account: dict[str, object] = {"wall_s": wall_s, "server_s": server_s}
        account |= {"paused_s": paused_s} if paused_s else {}
        return account | {"harness_s": wall_s - server_s - paused_s}
