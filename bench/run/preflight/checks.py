"""Preflight: refuses a wrong setup before the first expensive request.

The cheap facts come from what the server said when it was connected; one tiny request, judged like
a trial, shows the rest: whether the key may generate, whether usage is reported, whether `ignore_eos`
is honoured, whether the stream comes in pieces, whether anybody else is served.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from msgspec import Struct

from bench.analysis.verdicts.verdict import COUNT_TOLERANCE, LAG_MS
from bench.engines.context import past_drafter_limit
from bench.engines.machine import gauges_of
from bench.errors import BenchError, EngineError, SuiteError
from bench.plan.trials import side_tiers
from bench.records import ClientHealth, Speculation, Suite
from bench.run.lifecycle.serverlog import log_source
from bench.run.openroute import OpenRoute
from bench.run.preflight import probe as probing
from bench.run.preflight.chats import chat_findings
from bench.run.preflight.limits import over_limit_problem
from bench.run.preflight.probe import Probe
from bench.wire.lag import LagMeter
from bench.wire.logs import parse_source

State = Literal["ok", "warn", "fail"]

_ROOM_BYTES = 200_000_000
_LAG_WINDOW_S = 0.2
_KNOCKS = 8  # at the event loop in that time
_SLOW_PAGE_S = 1.0
_PAST_ON_PURPOSE = ("drafter_short", "context_reduced")
"""Findings of the context rules that a suite with the condition `over-limit` is about."""
_IN_LOGS = {
    "max_model_len": "a maximum length of",
    "kv_capacity_tokens": "a KV capacity of",
    "block_size": "blocks of",
    "drafter_limit": "a drafter limit of",
    "num_speculative_tokens": "k =",
}


class Check(Struct, frozen=True, kw_only=True):
    """One line of the preflight."""

    route: str
    name: str
    state: State
    text: str
    """What was found and, unless ok, what to do."""
    fault: Literal["suite", "engine"] = "engine"
    """Whose fault a failure is: decides the exit code of `run`."""

    def error(self) -> BenchError:
        """The failure as an error."""
        kind = SuiteError if self.fault == "suite" else EngineError
        return kind(f"route {self.route}: {self.text}" if self.route else self.text)


async def check_route(suite: Suite, opened: OpenRoute, *, folder: Path) -> list[Check]:
    """All checks of one route, most basic first. `folder`: where the suite's relative paths start."""
    name = opened.route.name
    logs = list(_log(opened, folder))
    if all(one.state == "ok" for one in logs):  # else that says it already
        logs += _log_facts(opened)
    found = [
        Check(route=name, name="server", state="ok", text=_server(opened)),
        *await _metrics(opened),
        *logs,
        *await _machine(opened),
        *_limits(suite, opened),
        *_context(suite, opened),
        *_drafter(suite, opened),
        *_over_limit(suite, opened),
        *_cache(suite, opened),
        *_speculation(opened),
        *await _chats(suite, opened, folder),
    ]
    if await probing.busy(opened):
        text = "the server is still working for somebody: wait until it is idle, or keep others away"
        return [*found, Check(route=name, name="idle", state="fail", text=text)]
    answer = list(_answer(suite, opened, await probing.send(suite, opened)))
    if any(one.name == "speculation" for one in answer):  # what is only declared is not ok then
        found = [one for one in found if (one.name, one.state) != ("speculation", "ok")]
    return [*found, *answer]


def _server(opened: OpenRoute) -> str:
    """`vLLM 0.32.0, model (known: 0.8.5 to 0.33)`."""
    title, version = opened.dialect.title, opened.facts.version
    found = re.fullmatch(r"(\D+?) \(?(\d.*?)\)?", title)
    engine, known = (found[1], f" (known: {found[2]})") if found else (title, "")
    return f"{engine} {version}, {opened.model}{known}" if version else f"{engine}, {opened.model}{known}"


def refused(route: str, name: str, error: BenchError) -> Check:
    """An error as the line of a failed check."""
    text = str(error).removeprefix(f"route {route}: ")
    fault: Literal["suite", "engine"] = "engine" if isinstance(error, EngineError) else "suite"
    return Check(route=route, name=name, state="fail", text=text, fault=fault)


async def check_client() -> Check:
    """Whether this machine can time a stream now: how late its event loop is while nothing happens."""
    async with LagMeter(period_s=_LAG_WINDOW_S / _KNOCKS) as meter:
        window = meter.window()
        await asyncio.sleep(_LAG_WINDOW_S)
        seen = window.close()
    return _client(seen)


def _client(seen: ClientHealth | None) -> Check:
    if seen is None:
        text = (
            f"the event loop was not heard for {_LAG_WINDOW_S} s: this machine is too busy to time a stream"
        )
        return Check(route="", name="client", state="warn", text=text)
    lag = f"event loop late by {seen.loop_lag_p50_ms:.1f} ms, at most {seen.loop_lag_max_ms:.1f} ms"
    if seen.loop_lag_p50_ms <= LAG_MS:
        return Check(route="", name="client", state="ok", text=lag)
    text = f"{lag}: this machine is busy, and chunk times are blurred by as much; free it"
    return Check(route="", name="client", state="warn", text=text)


def check_disk(results: Path) -> list[Check]:
    """A folder for the run directory, and room for it."""
    place = next(path for path in (results, *results.absolute().parents) if path.exists())
    if not place.is_dir():
        text = f"{place} is a file: choose a folder with --results"
        return [Check(route="", name="disk", state="fail", text=text, fault="suite")]
    if not os.access(place, os.W_OK | os.X_OK):
        text = f"{place} cannot be written: give yourself the right, or choose another folder with --results"
        return [Check(route="", name="disk", state="fail", text=text, fault="suite")]
    free = shutil.disk_usage(place).free
    if free >= _ROOM_BYTES:
        return []
    text = (
        f"{free / 1e6:.0f} MB are left on the disk of {results}: make room, or choose another with --results"
    )
    return [Check(route="", name="disk", state="fail", text=text, fault="suite")]


async def _metrics(opened: OpenRoute) -> Iterable[Check]:
    """Whether the page is there, in time, and holds what this engine's pages hold."""
    name = opened.route.name
    if opened.metrics_url is None:
        return [Check(route=name, name="metrics", state="warn", text=note) for note in opened.notes]
    page = await probing.look(opened)
    if page.problem is not None:
        text = f"{opened.metrics_url}: {page.problem}"
    elif not page.values:
        text = f"{opened.metrics_url} holds no metric of {opened.dialect.title}: nothing can be proven by it"
    elif page.took_ns > _SLOW_PAGE_S * 1e9:
        text = (
            f"{opened.metrics_url} takes {page.took_ns / 1e9:.1f} s, twice for every trial and once a "
            "second during it: look for a busy server or a slow network"
        )
    else:
        return [Check(route=name, name="metrics", state="ok", text=opened.metrics_url)]
    return [Check(route=name, name="metrics", state="warn", text=text)]


def _log(opened: OpenRoute, folder: Path) -> Iterable[Check]:
    """A log source that is no file is only asked when it is read."""
    name, log = opened.route.name, opened.route.log
    if log is None:
        return
    try:
        parse_source(log_source(log, folder))
    except SuiteError as error:
        yield Check(route=name, name="log", state="fail", text=str(error), fault="suite")
        return
    yield Check(route=name, name="log", state="ok", text=f"{log}: an excerpt is kept for every exchange")


def _log_facts(opened: OpenRoute) -> Iterable[Check]:
    """What only the server's log has told, and where it contradicts the server or the suite."""
    name, facts = opened.route.name, opened.facts
    if opened.log_problem is not None:
        yield Check(route=name, name="log", state="warn", text=opened.log_problem)
    found = [
        f"{words} {getattr(facts, field):,} ({facts.sources[field]})"
        for field, words in _IN_LOGS.items()
        if facts.sources.get(field, "").startswith("server log")
    ]
    if found:
        yield Check(route=name, name="log", state="ok", text=f"it states {', '.join(found)}")


async def _machine(opened: OpenRoute) -> Iterable[Check]:
    """What each exporter tells; a study goes on without."""
    name, found = opened.route.name, []
    answers = await asyncio.gather(*(look() for look in opened.machine.values()))
    for source, (values, problem) in zip(opened.machine, answers, strict=True):
        gauges = [f"{g} x {n}" if n > 1 else g for g, n in gauges_of(values).items()]
        text = problem.removeprefix(f"GET {source}: ") if problem else f"tells {', '.join(gauges)}"
        state: State = "warn" if problem else "ok"
        found.append(Check(route=name, name="machine", state=state, text=f"{source}: {text}"))
    return found


def _limits(suite: Suite, opened: OpenRoute) -> Iterable[Check]:
    """Newer servers clamp the output silently instead of refusing, so we refuse before sending."""
    name, limit = opened.route.name, opened.facts.max_model_len
    if limit is None:
        text = "the server does not say its length limit; a tier above it fails when it is sent"
        yield Check(route=name, name="limit", state="warn", text=text)
        return
    source = opened.facts.sources.get("max_model_len", "the server")
    longest = max(suite.tiers)
    if longest + suite.output_tokens > limit:
        text = (
            f"tier {longest:,} + {suite.output_tokens:,} output tokens exceed the served limit of "
            f"{limit:,} tokens ({source}): lower the tier or raise that limit"
        )
        yield Check(route=name, name="limit", state="fail", text=text, fault="suite")
        return
    text = f"{limit:,} tokens ({source}); longest trial {longest + suite.output_tokens:,}"
    yield Check(route=name, name="limit", state="ok", text=text)


def _context(suite: Suite, opened: OpenRoute) -> Iterable[Check]:
    name, verdict = opened.route.name, opened.context
    if verdict is None:
        return
    meant = _PAST_ON_PURPOSE if "over-limit" in suite.conditions else ()
    failures = [f for f in verdict.findings if f.severity == "fail" and f.code not in meant]
    if failures:
        yield Check(route=name, name="context", state="fail", text=failures[0].message, fault="suite")
    elif not verdict.ok:
        yield Check(route=name, name="context", state="warn", text=verdict.summary)
    else:
        yield Check(route=name, name="context", state="ok", text=verdict.summary)
    for tier in verdict.tiers:
        if tier.kind in ("crosses while decoding", "fallback"):
            text = f"tier {tier.tier:,}: {tier.kind}: {tier.detail}"
            yield Check(route=name, name="context", state="warn", text=text)


def _drafter(suite: Suite, opened: OpenRoute) -> Iterable[Check]:
    """Tiers past a drafter limit that somebody states; what the context rules say of it is told there."""
    facts, verdict, declared = opened.facts, opened.context, opened.route.speculation
    limit = facts.drafter_limit
    if declared is None or limit is None or (verdict is not None and verdict.engine.drafter_limit == limit):
        return
    source, k = facts.sources.get("drafter_limit", "the server"), declared.num_speculative_tokens
    for tier in suite.tiers:
        kind = past_drafter_limit(tier, suite.output_tokens, k, limit)
        if kind is None:
            continue
        text = f"tier {tier:,} + {suite.output_tokens:,} output tokens: {kind}, past {limit:,} ({source})"
        yield Check(route=opened.route.name, name="drafter", state="warn", text=text)


def _over_limit(suite: Suite, opened: OpenRoute) -> Iterable[Check]:
    route, facts = opened.route, opened.facts
    if "over-limit" not in suite.conditions or route.speculation is None:
        return
    if problem := over_limit_problem(suite, opened):
        text = f"over-limit cannot be measured: {problem}"
        yield Check(route=route.name, name="over-limit", state="fail", text=text, fault="suite")
        return
    limit = facts.drafter_limit or 0
    tiers = side_tiers(suite, route, limit)
    past = " or ".join(facts.past_drafter_limit) or "not known of this version"
    text = (
        f"drafter limit {limit:,} ({facts.sources.get('drafter_limit', 'the server')}): prompts of "
        f"{tiers['under']:,} and {tiers['over']:,} tokens; expected past it: {past}"
    )
    yield Check(route=route.name, name="over-limit", state="ok", text=text)


def _cache(suite: Suite, opened: OpenRoute) -> Iterable[Check]:
    """A replay cannot hit what is switched off, what does not fit, or what is under one block."""
    name, facts = opened.route.name, opened.facts
    if "replay" not in suite.conditions:
        return
    if facts.prefix_caching is False:
        text = "prefix caching is off, so every replay will miss: switch it on, or leave out replay"
        yield Check(route=name, name="cache", state="fail", text=text, fault="suite")
        return
    capacity = facts.kv_capacity_tokens
    source = f" ({facts.sources['kv_capacity_tokens']})" if "kv_capacity_tokens" in facts.sources else ""
    longest = max(suite.tiers) + suite.output_tokens
    if capacity is not None and capacity < longest:
        text = (
            f"the KV cache holds {capacity:,} tokens{source}, the longest trial has {longest:,}: a replay "
            "cannot hit"
        )
        yield Check(route=name, name="cache", state="fail", text=text, fault="suite")
    elif capacity is not None and capacity < longest * max(suite.concurrency):
        text = (
            f"{max(suite.concurrency)} requests at once of {longest:,} tokens are more than the KV cache of "
            f"{capacity:,} tokens{source}: their replays cannot hit; lower concurrency to "
            f"{capacity // longest}, the tier, or leave out replay"
        )
        yield Check(route=name, name="cache", state="fail", text=text, fault="suite")
    elif capacity is not None:
        text = f"KV cache of {capacity:,} tokens{source}"
        yield Check(route=name, name="cache", state="ok", text=text)
    for tier in suite.tiers:
        expected = opened.dialect.expected_cached(tier, tier, facts, opened.route.speculation)
        if expected is not None and expected[0] == 0:
            text = (
                f"tier {tier:,} is too short to prove a replay (block of {facts.block_size or 'unknown'} "
                "tokens): its replays will be unprovable"
            )
            yield Check(route=name, name="cache", state="warn", text=text)


async def _chats(suite: Suite, opened: OpenRoute, folder: Path) -> list[Check]:
    """Whether every recorded chat can be sent to its end, and its reuse be proven."""
    return [
        Check(route=opened.route.name, name="chats", state=state, text=text, fault=fault)
        for state, fault, text in await chat_findings(suite, opened, folder)
    ]


def _speculation(opened: OpenRoute) -> Iterable[Check]:
    name, declared, seen = opened.route.name, opened.route.speculation, opened.facts.num_speculative_tokens
    if declared is None and seen:
        text = f"the server drafts {seen} tokens a step, but the route declares no speculation: declare it"
        yield Check(route=name, name="speculation", state="fail", text=text, fault="suite")
    elif declared is not None and seen is not None and seen != declared.num_speculative_tokens:
        text = (
            f"declared are {declared.num_speculative_tokens} speculative tokens, the server shows "
            f"{seen}: this is another route than the suite says"
        )
        yield Check(route=name, name="speculation", state="fail", text=text, fault="suite")
    elif declared is not None:
        yield Check(route=name, name="speculation", state="ok", text=_declared(declared, seen))


def _declared(declared: Speculation, seen: int | None) -> str:
    agrees = ", and so does the server"
    silent = "; the server does not show it before the first draft"
    k = declared.num_speculative_tokens
    return f"the suite declares {declared.method}, k = {k}{silent if seen is None else agrees}"


def _answer(suite: Suite, opened: OpenRoute, probe: Probe) -> Iterable[Check]:
    """What the tiny request showed."""
    name, exchange = opened.route.name, probe.exchange
    if exchange.failure is not None:
        text = f"a tiny request failed: {exchange.failure.message}"
        yield Check(route=name, name="request", state="fail", text=text)
        return
    found = list(probe.findings())
    declared = list(_speculation(opened))
    said = {one.name for one in declared if one.state == "fail"}
    for check, invalidates, text in found:
        if check in said:
            continue  # the server's own words have said it already
        if check == "speculation" and declared:
            text = f"{declared[0].text}: {text}"
        # Without usage no length is proven at all: a trial could do with counters, a suite should not.
        state: State = "fail" if invalidates or check == "usage" else "warn"
        yield Check(route=name, name=check, state=state, text=text)
    usage = exchange.usage
    if not any(check == "usage" for check, _, _ in found) and usage is not None:
        text = f"{usage.completion_tokens} tokens came as asked for"
        if not any(check in ("ignore_eos", "output") for check, _, _ in found):
            yield Check(route=name, name="request", state="ok", text=text)
        yield from _count(suite, opened, probe)
        yield from _cached_tokens(opened, probe)


def _count(suite: Suite, opened: OpenRoute, probe: Probe) -> Iterable[Check]:
    """The server's tokenizer and the server's usage must agree on one and the same prompt."""
    expected, counted = probe.expected_tokens, probe.measured.prompt_tokens
    if expected is None or counted is None or expected == counted:
        return
    off = abs(expected - counted)
    text = (
        f"usage counts {counted:,} prompt tokens where the server's own tokenizer counts {expected:,}: look "
        "for truncation, a proxy that adds text, or a template that differs"
    )
    # Over 0.1% of a tier makes a trial invalid: so little is allowed at the shortest one.
    state: State = "fail" if off > COUNT_TOLERANCE * min(suite.tiers) else "warn"
    yield Check(route=opened.route.name, name="count", state=state, text=text)


def _cached_tokens(opened: OpenRoute, probe: Probe) -> Iterable[Check]:
    exchange = probe.exchange
    told = exchange.usage is not None and exchange.usage.cached_tokens is not None
    if told or "cached_tokens" in opened.dialect.reported(exchange.reported):
        return
    text = (
        "usage does not tell cached tokens; counters alone prove reuse "
        "(vLLM: --enable-prompt-tokens-details, SGLang: --enable-cache-report)"
    )
    yield Check(route=opened.route.name, name="cached tokens", state="warn", text=text)
