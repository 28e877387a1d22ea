"""Works through a plan: the only place where exchanges follow each other.

For every block of trials the runner sends each group (a cold prompt, its replays, its salted twin),
then repeats what came out invalid, with fresh salts. Every entry is in the journal before the next
request is sent. The same code runs a new run and the rest of an interrupted one: what is left is
read from the ledger, never from the position in a loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from typing import Literal, TypeVar

from bench.analysis.measure import Measurer
from bench.errors import EngineError
from bench.journal import Entry, Journal
from bench.plan.estimate import RouteModel
from bench.plan.trials import groups, pair_key
from bench.prompting.compose import Composer, Prompt
from bench.records import Event, Exchange, Measurement, RunInfo, Trial
from bench.run.exchange import Exchanger, utc_now
from bench.run.forecast.outlook import SHORT_WARMUP, Outlook
from bench.run.ledger import STARTED, Ledger
from bench.run.lifecycle.care import Caretaker
from bench.run.lifecycle.stage import Stage
from bench.run.progress import Progress
from bench.run.reset import RESET, probe_tokens, proof, reset_cache

Purpose = Literal["trial", "warmup", "prime"]
_T = TypeVar("_T")

FINISHED = "finished"
"""Name of the event at the end of a session, with its account of time."""
TOKENIZED = "tokenized"
"""Name of the event that holds one timing of a server's /tokenize: route, tier, tokens, seconds."""


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
    ) -> None:
        """`stage`: the routes, of which some may be open; `models`: what is known of their times."""
        self._info = info
        self._suite = info.suite
        self._journal = journal
        self._stage = stage
        self._sessions = stage.sessions
        self._composers = stage.composers
        self._progress = progress
        self._measurer = Measurer(info)
        self._ledger = Ledger(info.suite.retry_invalid)
        self._outlook = Outlook([route.name for route in info.suite.routes], models)
        # One thread: lines keep their order, and no fsync ever holds up the event loop.
        self._writer = ThreadPoolExecutor(max_workers=1, thread_name_prefix="journal")
        self._exchanger = Exchanger(self._store_page, progress)
        self._warm: set[str] = set()
        self._care = Caretaker(stage, self._exchanger, progress, self._note)

    def recall(self, entries: Iterator[Entry]) -> None:
        """Takes in what earlier sessions of this run have done."""
        for entry in entries:
            self._take_in(entry)

    async def run(self) -> None:
        """Warms up every route and sends all that is left.

        Cancelled, it leaves a sound journal with the request in flight marked as such. Raises
        `EngineError` at the end when trials are left because a server went away.
        """
        plan = self._info.plan
        self._progress.total = len(plan)
        self._show_done()
        started_ns = time.monotonic_ns()
        try:
            await self._care.announce()
            blocks = [block for block in self._blocks() if self._ledger.left(block)]
            for number, block in enumerate(blocks, 1):
                await self._run_block(block)
                for route in self._care.over({trial.route for later in blocks[number:] for trial in later}):
                    await self._time_tokenizers([route])
                    await self._care.close(route)
            if blocks:
                await self._time_tokenizers(list(self._sessions))
        finally:
            self._progress.enter("finished", time.monotonic_ns())
            await self._note(FINISHED, data=self._account(started_ns))
            self._writer.shutdown(wait=True)
        if self._care.lost:
            reasons = "; ".join(f"route {name}: {reason}" for name, reason in self._care.lost.items())
            raise EngineError(
                f"{reasons}; {len(self._ledger.left(plan))} of {len(plan)} trials "
                f"are left: see to it, then ctxbench run --resume {self._journal.path}"
            )

    async def _time_tokenizers(self, routes: Sequence[str]) -> None:
        """Times each server's own /tokenize once per tier, after the trials so that it warms nothing."""
        for name in routes:
            if name in self._care.lost:
                continue
            session = self._sessions[name]
            composer = self._composers[name]
            for tier in self._suite.tiers:
                trial = Trial(
                    id=f"{name}/{tier}/tokenize",
                    route=name,
                    tier=tier,
                    condition="cold",
                    repeat=0,
                    task=self._suite.prompt.tasks[0],
                )
                prompt = await asyncio.to_thread(composer.compose, trial, pair=self._pair(trial))
                took = await self._exchanger.time_tokenizer(session, prompt.rest)
                if took is not None:
                    data: dict[str, object] = {"route": name, "tier": tier, **took}
                    await self._note(TOKENIZED, data=data)

    def _blocks(self) -> Iterator[list[Trial]]:
        """Interleaved: one repeat of all routes; else one repeat of one route."""

        def block_of(trial: Trial) -> tuple[int, str]:
            return trial.repeat, "" if self._suite.interleave else trial.route

        for _, block in groupby(self._info.plan, key=block_of):
            yield list(block)

    async def _run_block(self, block: Sequence[Trial]) -> None:
        for route in dict.fromkeys(trial.route for trial in block):
            await self._care.open(route, self._info, self._keep_info)
            await self._warm_up(route)
        falls = self._care.falls.total()
        for group in groups(block):
            untried = [trial for trial in group if not self._ledger.is_tried(trial)]
            await self._send_group(group, untried, fresh=False)
        rounds = 0
        # A fall uses up no attempt of its trial, so it brings a round of its own.
        while rounds < self._suite.retry_invalid + self._care.falls.total() - falls:
            rounds += 1
            for group in groups(block):
                await self._send_group(group, self._ledger.left(group), fresh=True)

    async def _warm_up(self, route: str) -> None:
        """One unmeasured prompt of other text, once a session."""
        if self._suite.warmup == "none" or route in self._warm or route in self._care.lost:
            return
        self._warm.add(route)
        longest = max(self._suite.tiers)
        tokens = longest if self._suite.warmup == "tier" else min(SHORT_WARMUP, longest // 2)
        trial = Trial(
            id=f"{route}/warmup", route=route, tier=tokens, condition="cold", repeat=0, output_tokens=8
        )
        attempt = self._ledger.next_attempt(trial)
        composer, pair = self._composers[route], self._pair(trial)
        prompt = await asyncio.to_thread(composer.compose_warmup, tokens, number=attempt, pair=pair)
        await self._send(trial, prompt, attempt, "warmup")

    async def _send_group(self, group: Sequence[Trial], wanted: Sequence[Trial], *, fresh: bool) -> None:
        """Sends the `wanted` trials of a group, and what their conditions need before them.

        `fresh`: a replay is repeated behind a new cold prompt, not behind the one it missed.
        """
        if not wanted or group[0].route in self._care.lost:
            return
        cold, *others = group
        prompt: Prompt | None = None
        if cold in wanted:
            prompt, sent = await self._send_cold(cold, "trial")
            if not sent:
                return  # nothing to replay; all of the group is left for the retry
        if replays := [trial for trial in wanted if trial.condition == "replay"]:
            prompt = prompt or (None if fresh else await self._prompt_in_cache(group))
            if prompt is None:
                prompt, sent = await self._send_cold(cold, "prime")
                if not sent:
                    return
            await self._send_replays(others, replays, prompt)
        for trial in wanted:
            if trial.condition == "salted":
                await self._send_salted(cold, trial, prompt)

    async def _send_cold(self, cold: Trial, purpose: Purpose) -> tuple[Prompt, bool]:
        await self._reset_cache(cold.route)
        attempt = self._ledger.next_attempt(cold)
        prompt = await self._compose(cold, attempt)
        exchange = await self._send(cold, prompt, attempt, purpose)
        return prompt, exchange.failure is None

    async def _reset_cache(self, route: str) -> None:
        """Where the route asks for it: empties the server's cache, and proves it with a probe prompt."""
        session = self._sessions[route]
        if session.route.reset is None:
            return
        tokens = probe_tokens(session.facts, max(self._suite.tiers))
        trial = Trial(
            id=f"{route}/reset", route=route, tier=tokens, condition="cold", repeat=0, output_tokens=2
        )
        attempt, pair = self._ledger.next_attempt(trial), f"reset {self._pair(trial)}"
        composer = self._composers[route]
        prompt = await asyncio.to_thread(composer.compose_warmup, tokens, number=attempt, pair=pair)
        await self._send(trial, prompt, attempt, "warmup")
        refused = await reset_cache(session)
        again = await self._send(trial, prompt, self._ledger.next_attempt(trial), "warmup")
        proven, detail = proof(again, session.dialect)
        proven = False if refused else proven
        data: dict[str, object] = {"route": route, "accepted": refused is None, "proven": proven}
        await self._note(RESET, message=refused or detail, data=data)
        if not proven:
            self._progress.notes.append(f"route {route}: the cache reset is not proven: {refused or detail}")

    async def _send_replays(self, others: Sequence[Trial], wanted: Sequence[Trial], prompt: Prompt) -> None:
        """Replays in order; one that is valid already is sent again unmeasured, for its place.

        A server that falls takes the prompt with it: the rest is left for the retry.
        """
        falls = self._care.falls[others[0].route]
        for trial in others:
            if self._care.falls[trial.route] != falls:
                return
            if trial.condition != "replay" or trial.route in self._care.lost:
                continue
            purpose: Purpose = "trial" if trial in wanted else "prime"
            await self._send(trial, prompt, self._ledger.next_attempt(trial), purpose)
            if trial == wanted[-1]:
                return

    async def _send_salted(self, cold: Trial, trial: Trial, prompt: Prompt | None) -> None:
        if trial.route in self._care.lost:
            return
        if prompt is None:
            prompt = await self._compose(cold, max(1, self._ledger.next_attempt(cold) - 1))
        attempt = self._ledger.next_attempt(trial)
        composer = self._composers[trial.route]
        with self._counting(composer):
            salted = await asyncio.to_thread(composer.salted, prompt, trial, attempt)
        await self._send(trial, salted, attempt, "trial")

    async def _prompt_in_cache(self, group: Sequence[Trial]) -> Prompt | None:
        """The cold prompt an earlier session left in the server's cache, if it may still be there."""
        last = self._ledger.last_sent(group)
        if last is None or self._restarted_since(last):
            return None
        composer, pair = self._composers[last.trial.route], self._pair(last.trial)
        return await asyncio.to_thread(composer.again, last.prompt, group[0], pair=pair)

    def _restarted_since(self, exchange: Exchange) -> bool:
        now = self._sessions[exchange.trial.route].facts.started_at
        then = exchange.after.values.get("process_start") if exchange.after else None
        return now is not None and then is not None and now != then

    async def _compose(self, cold: Trial, attempt: int) -> Prompt:
        self._progress.enter("composing", time.monotonic_ns())
        composer = self._composers[cold.route]
        with self._counting(composer):
            return await asyncio.to_thread(composer.compose, cold, attempt=attempt, pair=self._pair(cold))

    @contextlib.contextmanager
    def _counting(self, composer: Composer) -> Iterator[None]:
        """Composing with a server's own tokenizer is waiting for that server's /tokenize."""
        started = time.monotonic()
        yield
        if composer.tokenizer.identity.kind == "server":
            self._exchanger.server_s += time.monotonic() - started

    def _pair(self, trial: Trial) -> str:
        return pair_key(self._suite, self._suite.route(trial.route))

    async def _send(self, trial: Trial, prompt: Prompt, attempt: int, purpose: Purpose) -> Exchange:
        """One exchange, in the journal before this returns, also when it was cut off."""
        self._progress.begin(trial, time.monotonic_ns())
        self._progress.expected_ttft_s = self._outlook.ttft_s(trial)
        await self._note(STARTED, data={"trial": trial.id, "attempt": attempt, "purpose": purpose})
        session = self._sessions[trial.route]
        log = self._stage.logs.get(trial.route)
        if log is not None:
            await log.mark()
        exchange = await self._exchanger.perform(session, prompt, trial, attempt, purpose)
        if log is not None:
            exchange = await log.excerpt_for(exchange)
        await self._keep(exchange)
        if exchange.failure and exchange.failure.kind == "cancelled":
            raise asyncio.CancelledError  # it was held back until the exchange was in the journal
        if exchange.failure and await self._care.see_to(exchange):
            self._warm.discard(trial.route)
            await self._warm_up(trial.route)
        return exchange

    async def _keep(self, exchange: Exchange) -> None:
        await self._append(exchange)
        self._take_in(exchange)
        self._show_done()

    def _take_in(self, entry: Entry) -> None:
        """The same bookkeeping for what is happening and for what a journal recalls."""
        if isinstance(entry, Event):
            self._ledger.note_event(entry)
            return
        measurement: Measurement | None = None
        if entry.purpose == "trial":
            measurement = self._measurer.add(entry)
        else:
            self._measurer.skip(entry)
            if entry.purpose == "warmup" and entry.chunks.at_ns:
                first_s = entry.chunks.at_ns[0] / 1e9
                self._outlook.warmed_up(entry.trial.route, entry.prompt.tokens, first_s)
        self._ledger.note_exchange(entry, measurement)
        if measurement is not None:
            self._outlook.measured(measurement)
        if measurement is not None and not measurement.verdict.valid:
            self._progress.invalid += 1
            reasons = ", ".join(reason.id for reason in measurement.verdict.reasons)
            self._progress.notes.append(f"{entry.trial.id} is invalid: {reasons}")

    async def _note(self, name: str, message: str = "", data: dict[str, object] | None = None) -> None:
        event = Event(name=name, at=utc_now(), message=message, data=data or {})
        await self._append(event)
        self._take_in(event)

    async def _keep_info(self, info: RunInfo) -> None:
        await self._write(self._journal.update_info, info)

    async def _append(self, entry: Entry) -> None:
        await self._write(self._journal.append, entry)

    async def _write(self, write: Callable[[_T], None], what: _T) -> None:
        await asyncio.get_running_loop().run_in_executor(self._writer, write, what)

    async def _store_page(self, name: str, page: str) -> str:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._writer, self._journal.store_scrape, name, page)

    def _show_done(self) -> None:
        left = self._ledger.left(self._info.plan)
        self._progress.done = len(self._info.plan) - len(left)
        self._progress.left_s = self._outlook.left_s(left)

    def _account(self, started_ns: int) -> dict[str, object]:
        """Where the time went: `harness_s` is what the servers did not need."""
        wall_s = (time.monotonic_ns() - started_ns) / 1e9
        server_s = self._exchanger.server_s
        return {"wall_s": wall_s, "server_s": server_s, "harness_s": wall_s - server_s}
