"""One exchange, from the idle server to the settled counters."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime

import msgspec
from msgspec import Struct

from bench.analysis.verdicts.waves import usage_of
from bench.errors import EngineError, JournalError
from bench.plan.durations import words
from bench.plan.trials import wave_name
from bench.prompting.compose import Prompt
from bench.records import ClientHealth, Exchange, Purpose, Samples, Scrape, Trial, Wave
from bench.run.continuity import Continuity, Restarted
from bench.run.openroute import OpenRoute
from bench.run.pace import bytes_per_token
from bench.run.progress import Phase, Progress
from bench.run.wave import Member, Released, release, uncut
from bench.wire.client import Prepared, Raw, finish
from bench.wire.lag import LagMeter
from bench.wire.machine import MachineSampler
from bench.wire.sampler import Sampler
from bench.wire.scrape import Wait, scrape, wait_idle, wait_settled, wait_still

PATHS = {"chat": "/chat/completions", "completions": "/completions", "tokens": "/completions"}
"""Where the requests of an endpoint go."""
_SCRAPE_TIMEOUT_S = 30.0
_IDLE_LIMIT_S = 900.0  # a cut-off cold prompt may still be prefilling for minutes
_SETTLE_LIMIT_S = 10.0
_STILL_S = 1.0  # engines that publish now and then do so at least once a second when requests end
_TOKENIZE_TIMEOUT_S = 300.0

StorePage = Callable[[str, str], Awaitable[str]]
"""(name, page) -> path within the run directory."""
_BodyKey = tuple[str, str, str | None, int]
"""Route, hash of the content, `cache_salt`, output tokens: all that two requests may differ in."""
_ScrapePage = Callable[[OpenRoute], Awaitable[tuple[Scrape, str | None]]]


class Body(Struct, frozen=True, kw_only=True):
    """A request ready to send, and its fields without the prompt, for the record."""

    data: bytes
    fields: dict[str, object]


class NotIdle(EngineError):
    """A server did not become idle in time, so a request was not sent: it would have disturbed somebody,
    and would have been invalid. The message says what was seen and what to do."""

    def __init__(self, message: str, waited_s: float) -> None:
        super().__init__(message)
        self.waited_s = waited_s


def utc_now() -> str:
    """Wall clock for people and logs, ISO 8601 in UTC."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def body_of(opened: OpenRoute, prompt: Prompt, output_tokens: int) -> Body:
    """The request body: explicit fields first, the prompt last, encoded once."""
    fields: dict[str, object] = {
        "model": opened.model,
        "max_tokens": output_tokens,
        **opened.dialect.body_fields(opened.route.request),
    }
    return Body(data=msgspec.json.encode({**fields, **prompt.fields()}), fields=fields)


class Exchanger:
    """Sends one request, or one wave of them, and records everything around it.

    `keep_cancelled`: a request cut off by Ctrl-C is a record like any other, and the caller has to stop
    once it is kept; without, the cancellation is raised, for requests that no journal keeps.
    """

    def __init__(self, store_page: StorePage, progress: Progress, *, keep_cancelled: bool = True) -> None:
        self._keep_cancelled = keep_cancelled
        self._store_page = store_page
        self._progress = progress
        self._bodies: dict[_BodyKey, Body] = {}
        self._bytes_per_token: dict[str, float] = {}  # of each route's last answer, for the display
        self.interrupted = False
        """Ctrl-C came while requests ran that are on record: the caller has to stop."""
        self.unkept: JournalError | None = None
        """A page could not be kept: the caller has to stop once the exchanges are."""
        self.server_s = 0.0
        """Time spent waiting for servers: idle, scrapes, the exchange itself, settling."""
        self.continuity = Continuity(progress.notes.append)
        self._doubtful: set[str] = set()
        """Metrics pages that may lack what was sent last: it failed, or was never counted in full."""

    async def perform(
        self, opened: OpenRoute, prompt: Prompt, trial: Trial, attempt: int, purpose: Purpose
    ) -> Exchange:
        """One exchange that is sent alone; else as `perform_wave`."""
        member = Member(trial=trial, prompt=prompt)
        (exchange,) = await self.perform_wave(opened, [member], attempt, purpose)
        return exchange

    async def perform_wave(
        self, opened: OpenRoute, members: Sequence[Member], attempt: int, purpose: Purpose
    ) -> list[Exchange]:
        """The exchanges of a wave, or of one request: one wait, two pages and one series of samples for all
        of them, which stand in the first. A request that fails or is cut off is a record like the others.

        Raises `NotIdle` when the server does not become idle in time, `Restarted` when it is another process
        than at the last look; nothing was sent then.
        """
        ready = self._prepare(opened, members)
        name = f"{wave_name(members[0].trial)}-{purpose}{attempt}"
        page = name.replace("/", "-")
        started = time.monotonic()
        self._enter("waiting until idle")
        idle_s, before = await self._ready(opened, f"{page}-before")
        if before is not None:
            await self._require_same(opened, before)
        seen = await self._release(opened, [one.prepared for one in ready])
        self.server_s += time.monotonic() - started

        async def recorded() -> list[Exchange]:
            found = await self._read_out(opened, seen, ready, attempt, purpose)
            found[0] = seen.beside(found[0], before, idle_s)
            if members[0].trial.concurrency > 1:
                wave = Wave(id=name, size=len(members), released_ns=seen.out.at_ns)
                found = [msgspec.structs.replace(exchange, wave=wave) for exchange in found]
            return await self._settle_together(opened, found, before, f"{page}-after")

        if not self._keep_cancelled:
            return await recorded()
        # Its answer has come: that must not be lost, whatever is still to be waited for.
        found, interrupted = await uncut(recorded())
        self.interrupted = self.interrupted or seen.out.interrupted or interrupted
        return found

    async def _read_out(
        self, opened: OpenRoute, seen: _Seen, ready: Sequence[_Ready], attempt: int, purpose: Purpose
    ) -> list[Exchange]:
        """What the answers say, once nothing is watched any more."""
        await seen.watchers.aclose()
        found = []
        for raw, one in zip(seen.out.raws, ready, strict=True):
            exchange = await finish(
                raw,
                one.prepared,
                trial=one.member.trial,
                prompt=one.member.prompt.recipe,
                request=one.fields,
                attempt=attempt,
                purpose=purpose,
                engine=opened.dialect.name,
            )
            found.append(msgspec.structs.replace(exchange, client=seen.client))
        self._learn(opened, seen.out.raws, found)
        return found

    async def _release(self, opened: OpenRoute, prepared: Sequence[Prepared]) -> _Seen:
        """The measured part: connections warmed, requests sent, client, machine and gauges watched."""
        async with contextlib.AsyncExitStack() as watchers:
            meter = await watchers.enter_async_context(LagMeter())
            machine = await watchers.enter_async_context(MachineSampler(opened.machine))
            with contextlib.suppress(EngineError):  # the exchanges will meet the same trouble
                await opened.client.warm(connections=len(prepared))
            self._progress.pace.begin(self._bytes_per_token.get(opened.route.name))
            self._enter("prefill")
            gauges = None
            if opened.metrics_url is not None:
                gauges = await watchers.enter_async_context(Sampler(_Looks(self._scrape, opened)))
            window = meter.window()
            out = await release(opened.client, prepared, self._progress, keep_cancelled=self._keep_cancelled)
            # The watchers are closed by whoever records what came: closing waits, and waiting can be cut off.
            return _Seen(
                out=out,
                client=window.close(),
                machine=machine,
                gauges=gauges,
                watchers=watchers.pop_all(),
            )

    async def _settle_together(
        self, opened: OpenRoute, found: list[Exchange], before: Scrape | None, name: str
    ) -> list[Exchange]:
        """Waits until the counters hold the requests of a wave all together."""
        if opened.metrics_url is None or before is None or any(map(_is_cut_off, found)):
            return found
        first, *others = found
        failure = next((one.failure for one in found if one.failure is not None), None)
        usage = usage_of(found) if others else first.usage
        whole = msgspec.structs.replace(first, usage=usage, failure=failure)
        settled = await self._settle(opened, whole, before, name)
        return [msgspec.structs.replace(settled, usage=first.usage, failure=first.failure), *others]

    def new_server(self, opened: OpenRoute) -> None:
        """Another process is behind this route's address: nothing is known of its page."""
        self.continuity.forget(opened)
        if opened.metrics_url is not None:
            self._doubtful.add(opened.metrics_url)

    async def time_tokenizer(self, opened: OpenRoute, text: str) -> dict[str, float] | None:
        """Tokens of a text and the seconds that the server's own /tokenize needed for them, to the last byte
        of its answer: reading a million ids out of that is our own work.

        `None` when it has no such endpoint, or does not answer it now: nothing depends on it.
        """
        request = opened.dialect.tokenize_request(text, opened.model)
        if request is None:
            return None
        path, body = request
        started = time.monotonic()
        try:
            answer = await opened.client.post_text(opened.root + path, body, timeout_s=_TOKENIZE_TIMEOUT_S)
        except EngineError:
            return None
        finally:
            seconds = time.monotonic() - started
            self.server_s += seconds
        try:
            tokens = len(opened.dialect.read_tokens(msgspec.json.decode(answer)))
        except (EngineError, msgspec.DecodeError, RecursionError):
            return None
        return {"tokens": tokens, "seconds": seconds}

    async def _ready(self, opened: OpenRoute, name: str) -> tuple[float | None, Scrape | None]:
        """Waits until the server is idle, and after an exchange in doubt until its page stands still:
        what is counted late would be taken for foreign traffic.

        Seconds waited, and the page that ended the wait, kept under `name`: what stood before the
        exchange. `None` without a page. Raises `NotIdle` when the server is at work to the end of the
        limit.
        """
        if opened.metrics_url is None:
            return None, None
        look = _Looks(self._scrape, opened)
        wait = await wait_idle(look, opened.dialect, limit_s=_IDLE_LIMIT_S)
        if wait.reached is False:
            self.server_s += wait.waited_s
            raise _not_idle(opened, wait)
        waited_s = wait.waited_s
        if opened.metrics_url in self._doubtful:
            wait = await wait_still(look, still_s=_STILL_S, limit_s=_SETTLE_LIMIT_S)
            waited_s += wait.waited_s
        return waited_s, await self._with_file(wait.last, look.page, name)

    def _prepare(self, opened: OpenRoute, members: Sequence[Member]) -> list[_Ready]:
        """Everything that can be done before `sent`; a replay reuses the bytes of its cold prompt."""
        keys = [_body_key(opened, one) for one in members]
        # What was sent before is let go first: prompts may have megabytes.
        self._bodies = {key: self._bodies[key] for key in keys if key in self._bodies}
        settings = opened.route.request
        # The time to the first token allows for all prompts of a wave, taken one after another.
        tokens = sum(one.prompt.recipe.tokens for one in members)
        ready = []
        for key, one in zip(keys, members, strict=True):
            if key not in self._bodies:
                self._bodies[key] = body_of(opened, one.prompt, one.trial.output_tokens)
            prepared = opened.client.prepare(
                PATHS[settings.endpoint],
                self._bodies[key].data,
                timeouts=settings.timeouts,
                prompt_tokens=tokens,
                endpoint=settings.endpoint,
            )
            ready.append(_Ready(member=one, prepared=prepared, fields=self._bodies[key].fields))
        return ready

    async def _require_same(self, opened: OpenRoute, before: Scrape) -> None:
        """Raises `Restarted` when the page before a request is of another process, for good."""
        try:
            self.continuity.require(opened, before)
        except Restarted:
            if not await self.continuity.look_again(opened, _Looks(self._scrape, opened)):
                raise

    async def _settle(self, opened: OpenRoute, exchange: Exchange, before: Scrape, name: str) -> Exchange:
        """Waits until the counters hold all of our request, and keeps the page that says so."""
        self._enter("settling")
        started = time.monotonic()
        look = _Looks(self._scrape, opened)
        wait = await wait_settled(
            look,
            opened.dialect,
            before,
            exchange.usage,
            failed=exchange.failure is not None,
            limit_s=_SETTLE_LIMIT_S,
        )
        try:
            after = await self._with_file(wait.last, look.page, name)
        except JournalError as error:  # the answer is worth more than the text of its page
            self.unkept, after = error, wait.last
        self.continuity.look(opened, after, exchange.usage.completion_tokens if exchange.usage else None)
        await self.continuity.look_again(opened, look)
        self.server_s += time.monotonic() - started
        if opened.metrics_url is not None:
            settled = wait.reached is True and exchange.failure is None
            (self._doubtful.discard if settled else self._doubtful.add)(opened.metrics_url)
        return msgspec.structs.replace(
            exchange, after=after, settle_s=wait.waited_s, settled=wait.reached is True
        )

    async def _with_file(self, found: Scrape, page: str | None, name: str) -> Scrape:
        if page is None:
            return found
        return msgspec.structs.replace(found, file=await self._store_page(name, page))

    async def _scrape(self, opened: OpenRoute) -> tuple[Scrape, str | None]:
        """A route's page with its text; what it tells is shown."""
        assert opened.metrics_url is not None  # noqa: S101 - callers ask before
        found, page = await scrape(
            opened.client, opened.metrics_url, opened.dialect, timeout_s=_SCRAPE_TIMEOUT_S
        )
        self._progress.kv_usage = found.values.get("kv_usage")
        generated = found.values.get("generation_tokens")
        if generated is not None and self._progress.phase == "decode" and _counts_steps(opened):
            self._progress.pace.counted(found.at_ns, generated)
        return found, page

    def _learn(self, opened: OpenRoute, raws: Sequence[Raw], found: Sequence[Exchange]) -> None:
        """What a token of this route takes on the wire."""
        size = sum(raw.recorder.size for raw in raws)
        learnt = bytes_per_token(size, usage_of(found).completion_tokens)
        if learnt is not None and all(one.failure is None for one in found):
            self._bytes_per_token[opened.route.name] = learnt

    def _enter(self, phase: Phase) -> None:
        self._progress.enter(phase, time.monotonic_ns())


class _Ready(Struct, frozen=True, kw_only=True, eq=False):
    """A request as it is sent."""

    member: Member
    prepared: Prepared
    fields: dict[str, object]
    """The request body without the prompt."""


class _Seen(Struct, frozen=True, kw_only=True, eq=False):
    """What came of requests that were let go, and what was watched meanwhile."""

    out: Released
    client: ClientHealth | None
    machine: MachineSampler
    gauges: Sampler | None
    """`None`: the server has no metrics page."""
    watchers: contextlib.AsyncExitStack
    """Still to be closed."""

    def beside(self, first: Exchange, before: Scrape | None, idle_s: float | None) -> Exchange:
        """The first exchange with all that was seen beside it, once the watchers are closed."""
        sent_ns, last_ns = self.out.raws[0].sent_ns, self.out.last_ns
        return msgspec.structs.replace(
            first,
            before=before,
            samples=self.gauges.samples(sent_ns, last_ns) if self.gauges else Samples(),
            machine=self.machine.samples(sent_ns, last_ns),
            idle_wait_s=idle_s,
        )


class _Looks:
    """Looks at a route's metrics page, again and again, and holds the text of the last look."""

    def __init__(self, scrape_page: _ScrapePage, opened: OpenRoute) -> None:
        self._scrape_page = scrape_page
        self._opened = opened
        self.page: str | None = None

    async def __call__(self) -> Scrape:
        found, self.page = await self._scrape_page(self._opened)
        return found


def _body_key(opened: OpenRoute, one: Member) -> _BodyKey:
    recipe = one.prompt.recipe
    return opened.route.name, recipe.sha256, recipe.cache_salt, one.trial.output_tokens


def _not_idle(opened: OpenRoute, wait: Wait) -> NotIdle:
    page, waited = wait.last, words(wait.waited_s)
    where = f"route {opened.route.name}: its"
    if not page.values:
        text = f"metrics page did not come for {waited} ({page.problem}), so nothing was sent; look at it"
        return NotIdle(f"{where} {text}", wait.waited_s)
    busy = ", ".join(
        f"{page.values[name]:.0f} {name}" for name in ("running", "waiting") if page.values.get(name)
    )
    return NotIdle(
        f"{where} server was still at work for somebody after {waited} ({busy}), so nothing was sent; "
        f"another client, or a request given up that is still computed: see ctxbench watch {opened.root}",
        wait.waited_s,
    )


def _counts_steps(opened: OpenRoute) -> bool:
    """Whether the server counts generated tokens while it generates them, not at a request's end."""
    return any(one.name == "generation_tokens" and one.when == "step" for one in opened.dialect.aliases)


def _is_cut_off(exchange: Exchange) -> bool:
    return exchange.failure is not None and exchange.failure.kind == "cancelled"
