"""Preflight: refuses a wrong setup before the first expensive request.

The cheap facts come from what the server said when it was connected; one tiny request (a few
tokens of a throw-away text) shows the rest: whether the key may generate, whether usage is reported,
whether `ignore_eos` is honoured, whether the stream comes in pieces.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from bench.engines import context
from bench.errors import BenchError, EngineError, SuiteError
from bench.records import Exchange, PromptRecipe, Suite, Trial
from bench.run.session import Session
from bench.wire.client import finish
from bench.wire.modelconfig import read_config

State = Literal["ok", "warn", "fail"]

PROBE_TOKENS = 8
_PROBE_TEXT = "Write one short line about the weather."
_ROOM_BYTES = 200_000_000
_PATHS = {"chat": "/chat/completions", "completions": "/completions", "tokens": "/completions"}


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


async def check_route(suite: Suite, session: Session, *, folder: Path) -> list[Check]:
    """All checks of one route, most basic first. `folder`: where the suite's relative paths start."""
    name = session.route.name
    facts = session.facts
    version = f" {facts.version}" if facts.version else ""
    found = [
        Check(
            route=name, name="server", state="ok", text=f"{session.dialect.title}{version}, {session.model}"
        ),
        *_metrics(session),
        *_limits(suite, session),
        *_context(suite, session, folder),
        *_cache(suite, session),
        *_speculation(session),
    ]
    probe = await _probe(session)
    return [*found, *_answer(session, probe)]


def check_disk(results: Path) -> list[Check]:
    """Room for the run directory."""
    place = next(path for path in (results, *results.absolute().parents) if path.exists())
    free = shutil.disk_usage(place).free
    if free >= _ROOM_BYTES:
        return []
    text = (
        f"{free / 1e6:.0f} MB are left on the disk of {results}: make room, or choose another with --results"
    )
    return [Check(route="", name="disk", state="fail", text=text, fault="suite")]


def _metrics(session: Session) -> Iterable[Check]:
    name = session.route.name
    if session.metrics_url is None:
        for note in session.notes:
            yield Check(route=name, name="metrics", state="warn", text=note)
        return
    yield Check(route=name, name="metrics", state="ok", text=session.metrics_url)


def _limits(suite: Suite, session: Session) -> Iterable[Check]:
    """Newer servers clamp the output silently instead of refusing, so we refuse before sending."""
    name, limit = session.route.name, session.facts.max_model_len
    if limit is None:
        text = "the server does not say its length limit; a tier above it fails when it is sent"
        yield Check(route=name, name="limit", state="warn", text=text)
        return
    source = session.facts.sources.get("max_model_len", "the server")
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


def _context(suite: Suite, session: Session, folder: Path) -> Iterable[Check]:
    route, facts = session.route, session.facts
    if route.config is None:
        return
    verdict = context.judge(
        read_config(str(folder / route.config)),
        served=facts.max_model_len,
        speculation=route.speculation,
        engine=facts.engine,
        version=facts.version,
        tiers=suite.tiers,
        output_tokens=suite.output_tokens,
    )
    state: State = "ok" if verdict.ok else "fail"
    yield Check(route=route.name, name="context", state=state, text=verdict.summary, fault="suite")
    for tier in verdict.tiers:
        if tier.kind in ("crosses while decoding", "fallback"):
            text = f"tier {tier.tier:,}: {tier.kind}: {tier.detail}"
            yield Check(route=route.name, name="context", state="warn", text=text)


def _cache(suite: Suite, session: Session) -> Iterable[Check]:
    """A replay cannot hit what is switched off, what does not fit, or what is under one block."""
    name, facts = session.route.name, session.facts
    if "replay" not in suite.conditions:
        return
    if facts.prefix_caching is False:
        text = "prefix caching is off, so every replay will miss: switch it on, or leave out replay"
        yield Check(route=name, name="cache", state="fail", text=text, fault="suite")
    capacity = facts.kv_capacity_tokens
    longest = max(suite.tiers) + suite.output_tokens
    if capacity is not None and capacity < longest:
        text = (
            f"the KV cache holds {capacity:,} tokens, the longest trial has {longest:,}: a replay cannot hit"
        )
        yield Check(route=name, name="cache", state="fail", text=text, fault="suite")
    elif capacity is not None:
        text = f"KV cache of {capacity:,} tokens"
        yield Check(route=name, name="cache", state="ok", text=text)
    for tier in suite.tiers:
        expected = session.dialect.expected_cached(tier, tier, facts, session.route.speculation)
        if expected is not None and expected[0] == 0:
            text = (
                f"tier {tier:,} is too short to prove a replay (block of {facts.block_size or 'unknown'} "
                "tokens): its replays will be unprovable"
            )
            yield Check(route=name, name="cache", state="warn", text=text)


def _speculation(session: Session) -> Iterable[Check]:
    name, declared, seen = session.route.name, session.route.speculation, session.facts.num_speculative_tokens
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
        text = f"{declared.method}, k = {declared.num_speculative_tokens}" + (
            "" if seen is not None else "; the server does not show it before the first draft"
        )
        yield Check(route=name, name="speculation", state="ok", text=text)


async def _probe(session: Session) -> Exchange:
    """The tiny request."""
    settings = session.route.request
    prompt = (
        {"messages": [{"role": "user", "content": _PROBE_TEXT}]}
        if settings.endpoint == "chat"
        else {"prompt": _PROBE_TEXT}
    )
    fields: dict[str, object] = {
        "model": session.model,
        "max_tokens": PROBE_TOKENS,
        **session.dialect.body_fields(settings),
    }
    body = msgspec.json.encode({**fields, **prompt})
    prepared = session.client.prepare(
        _PATHS[settings.endpoint],
        body,
        timeouts=settings.timeouts,
        prompt_tokens=64,
        endpoint="chat" if settings.endpoint == "chat" else "completions",
    )
    trial = Trial(id="check", route=session.route.name, tier=0, condition="cold", repeat=0)
    recipe = PromptRecipe(
        sha256="", tokens=0, endpoint=settings.endpoint, corpus="", corpus_sha256="", task="check", start=0
    )
    raw = await session.client.exchange(prepared)
    return await finish(raw, prepared, trial=trial, prompt=recipe, request=fields)


def _answer(session: Session, probe: Exchange) -> Iterable[Check]:
    name = session.route.name
    if probe.failure is not None:
        yield Check(
            route=name, name="request", state="fail", text=f"a tiny request failed: {probe.failure.message}"
        )
        return
    usage = probe.usage
    if usage is None or usage.prompt_tokens is None or usage.completion_tokens is None:
        text = (
            "the stream ends without usage, so no token count can be proven: see stream_options.include_usage"
        )
        yield Check(route=name, name="usage", state="fail", text=text)
        return
    yield Check(route=name, name="request", state="ok", text=f"{usage.completion_tokens} tokens came")
    if session.route.request.ignore_eos and usage.completion_tokens != PROBE_TOKENS:
        text = (
            f"{PROBE_TOKENS} tokens were asked for, {usage.completion_tokens} came: ignore_eos is not "
            "honoured, so answers may be shorter than asked (they are flagged)"
        )
        yield Check(route=name, name="ignore_eos", state="warn", text=text)
    if usage.cached_tokens is None and "cached_tokens" not in session.dialect.reported(probe.reported):
        text = (
            "usage does not tell cached tokens; counters alone prove reuse "
            "(vLLM: --enable-prompt-tokens-details, SGLang: --enable-cache-report)"
        )
        yield Check(route=name, name="cached tokens", state="warn", text=text)
