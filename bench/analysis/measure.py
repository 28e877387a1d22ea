"""Exchanges -> measurements: every number once, with its witness, and a verdict on all of them.

A `Measurer` reads the exchanges of one run in their order, since a replay is judged beside its cold
prompt and a restart shows between two exchanges. It needs nothing but the run's record: facts that
the run does not hold are read from the scrapes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
from msgspec import Struct

from bench.analysis.case import Case
from bench.analysis.counters import (
    CachedCount,
    Deltas,
    SpeculationCount,
    cached_prompt_tokens,
    difference,
    mean_of_one,
    speculation,
)
from bench.analysis.history import RouteHistory
from bench.analysis.timing import Times, times
from bench.analysis.verdict import judge
from bench.engines import DIALECTS
from bench.engines.base import Dialect
from bench.records import Exchange, Measurement, RunInfo, ServerFacts, Speculation, Verdict

_PLACEHOLDER = Verdict(valid=False)
_CLOCK_FIELDS = (
    "ttft_s",
    "first_response_s",
    "total_s",
    "first_chunk_tokens",
    "text_chunks",
    "decode_tok_s",
    "tpot_s",
    "icl_p50_s",
    "icl_p99_s",
    "icl_max_s",
)
"""Fields that a measurement takes over from the client's clock as they are."""


class Measurer:
    """Measures the exchanges of one run, one after the other."""

    def __init__(self, info: RunInfo) -> None:
        self._info = info
        self._routes: dict[str, RouteHistory] = {}
        self._order = 0

    def add(self, exchange: Exchange) -> Measurement:
        """Numbers and verdict of the next exchange of the run."""
        case = self._case(exchange)
        verdict = judge(case)
        measured = msgspec.structs.replace(case.numbers, verdict=verdict)
        self._history(exchange.trial.route).remember(exchange, measured, case.history.change is not None)
        self._order += 1
        return measured

    def skip(self, exchange: Exchange) -> None:
        """Take notice of a warm-up or priming exchange: its pages and prompt matter, its numbers do not."""
        dialect = dialect_of(exchange)
        history = self._history(exchange.trial.route)
        change, _ = history.change_within(exchange, dialect)
        history.observe(exchange, dialect)
        if exchange.purpose == "prime":
            history.primed(exchange)
        history.turn_page(exchange, restarted=change is not None)

    def _history(self, route: str) -> RouteHistory:
        return self._routes.setdefault(route, RouteHistory())

    def _case(self, exchange: Exchange) -> Case:
        dialect = dialect_of(exchange)
        history = self._history(exchange.trial.route)
        history.observe(exchange, dialect)
        declared = self._declared(exchange.trial.route)
        facts = facts_of(self._info.facts.get(exchange.trial.route), exchange, dialect)
        deltas = difference(exchange.before, exchange.after, dialect)
        reported = dialect.reported(exchange.reported)
        tokens = _Tokens.of(exchange, deltas, reported, dialect)
        clock = times(exchange, tokens.output)
        cached = cached_prompt_tokens(deltas, facts, tokens.prompt)
        counted = speculation(deltas, reported, facts, tokens.output)
        expected = None
        if exchange.trial.condition == "replay":
            prompt = tokens.prompt or exchange.prompt.tokens
            expected = dialect.expected_cached(prompt, prompt, facts, declared)
        draft = _Draft(
            exchange=exchange,
            deltas=deltas,
            reported=reported,
            tokens=tokens,
            clock=clock,
            cached=cached,
            counted=counted,
            expected=expected,
        )
        return Case(
            exchange=exchange,
            numbers=_numbers(draft, self._info.id, self._order),
            dialect=dialect,
            facts=facts,
            declared=declared,
            deltas=deltas,
            cached=cached,
            counted=counted,
            times=clock,
            expected=expected,
            history=history.before(exchange, dialect),
        )

    def _declared(self, route: str) -> Speculation | None:
        try:
            return self._info.suite.route(route).speculation
        except KeyError:
            return None


def measure_all(info: RunInfo, exchanges: Iterable[Exchange]) -> Iterator[Measurement]:
    """Measurements of all trials of a run, in order; warm-ups and primings are only taken notice of."""
    measurer = Measurer(info)
    for exchange in exchanges:
        if exchange.purpose == "trial":
            yield measurer.add(exchange)
        else:
            measurer.skip(exchange)


def dialect_of(exchange: Exchange) -> Dialect:
    """The dialect that explains an exchange; `generic` for an engine this version does not know."""
    return DIALECTS.get(exchange.engine, DIALECTS["generic"])


def facts_of(known: ServerFacts | None, exchange: Exchange, dialect: Dialect) -> ServerFacts:
    """What the run recorded of a server, completed from the exchange's own pages."""
    pages = [page for page in (exchange.after, exchange.before) if page is not None and page.values]
    scraped = dialect.facts({}, pages[0].values, pages[0].info) if pages else dialect.facts({}, {}, {})
    if known is None:
        return scraped
    missing = {
        field: getattr(scraped, field)
        for field in ServerFacts.__struct_fields__
        if getattr(known, field) is None and getattr(scraped, field) is not None
    }
    flags = {**scraped.flags, **known.flags}
    return msgspec.structs.replace(known, **missing, flags=flags)


# --- Numbers --------------------------------------------------------------------------------------


class _Tokens(Struct, frozen=True, kw_only=True):
    prompt: int | None
    output: int | None
    sources: dict[str, str]

    @classmethod
    def of(cls, exchange: Exchange, deltas: Deltas, reported: dict[str, float], dialect: Dialect) -> _Tokens:
        """Usage first; then the reply's own figures, the counters, and the count in the chunks."""
        usage, chunks = exchange.usage, exchange.chunks
        prompt_moved = deltas.count("prompt_tokens") if dialect.prompt_includes_cached else None
        prompt, prompt_source = _first(
            ("usage", usage.prompt_tokens if usage else None),
            ("reply", _whole(reported.get("prompt_tokens"))),
            ("counter prompt_tokens", prompt_moved),
        )
        output, output_source = _first(
            ("usage", usage.completion_tokens if usage else None),
            ("reply", _whole(reported.get("output_tokens"))),
            ("chunks", chunks.tokens[-1] if chunks.tokens else None),
            ("counter generation_tokens", deltas.count("generation_tokens")),
        )
        sources = {"prompt_tokens": prompt_source, "output_tokens": output_source}
        return cls(prompt=prompt, output=output, sources={f: s for f, s in sources.items() if s})


class _Draft(Struct, frozen=True, kw_only=True):
    """What the numbers of one exchange are made of."""

    exchange: Exchange
    deltas: Deltas
    reported: dict[str, float]
    tokens: _Tokens
    clock: Times
    cached: CachedCount
    counted: SpeculationCount
    expected: tuple[int, int] | None


def _numbers(draft: _Draft, source: str, order: int) -> Measurement:
    exchange, clock, tokens = draft.exchange, draft.clock, draft.tokens
    trial = exchange.trial
    sources, absent = dict(tokens.sources), dict(clock.absent)
    for name, value in (("prompt_tokens", tokens.prompt), ("output_tokens", tokens.output)):
        if value is None:
            absent[name] = "no usage in the reply, and no other witness"
    fields = {
        **_speculation_fields(draft, sources, absent),
        **_cache_fields(draft, sources, absent),
        **_server_fields(draft, sources, absent),
    }
    text = exchange.reasoning + exchange.text + exchange.tool_text
    return Measurement(
        trial_id=trial.id,
        source=source,
        route=trial.route,
        tier=trial.tier,
        condition=trial.condition,
        repeat=trial.repeat,
        replay=trial.replay,
        task=trial.task,
        attempt=exchange.attempt,
        order=order,
        pair=exchange.prompt.sha256 or None,
        prompt_tokens=tokens.prompt,
        output_tokens=tokens.output,
        uploaded_s=_seconds(exchange.uploaded_ns),
        connect_s=_seconds(exchange.connect_ns),
        finish_reason=exchange.finish_reason,
        text_sha256=hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest() if text else None,
        client_uncertainty_s=exchange.client.loop_lag_p99_ms / 1000 if exchange.client else None,
        failure=exchange.failure,
        sources=sources,
        absent=absent,
        verdict=_PLACEHOLDER,
        **{name: getattr(clock, name) for name in _CLOCK_FIELDS},
        **fields,
    )


def _speculation_fields(draft: _Draft, sources: dict[str, str], absent: dict[str, str]) -> dict[str, Any]:
    """acceptance = accepted / drafted; acceptance_length = 1 + accepted / drafts; per position = accepted
    at i / drafts. None without drafts."""
    counted = draft.counted
    drafts, drafted, accepted = counted.drafts, counted.draft_tokens, counted.accepted_tokens
    for name, value in (("drafts", drafts), ("draft_tokens", drafted), ("accepted_tokens", accepted)):
        if value is None:
            absent[name] = draft.deltas.why or "the engine does not count it"
        else:
            sources[name] = counted.drafts_source if name == "drafts" else counted.source
    places = counted.per_position
    by_place = tuple(a / drafts for a in places) if places and drafts else None
    fields: dict[str, Any] = {
        "acceptance": accepted / drafted if accepted is not None and drafted else None,
        "acceptance_length": 1 + accepted / drafts if accepted is not None and drafts else None,
        "acceptance_per_position": by_place,
    }
    for name, value in fields.items():
        if value is None:
            absent[name] = absent.get("drafts") or absent.get("accepted_tokens") or "nothing was drafted"
    return {"drafts": drafts, "draft_tokens": drafted, "accepted_tokens": accepted, **fields}


def _cache_fields(draft: _Draft, sources: dict[str, str], absent: dict[str, str]) -> dict[str, Any]:
    """The reply's own count, then usage, then counters; the first two are one witness (the reply)."""
    usage = draft.exchange.usage
    reported = _whole(draft.reported.get("cached_tokens"))
    in_usage = usage.cached_tokens if usage else None
    counter = draft.cached.tokens
    best, source = _first(("reply", reported), ("usage", in_usage), (draft.cached.source, counter))
    if best is None:
        absent["cached_tokens"] = draft.deltas.why or "neither usage nor counters tell"
        absent["prefix_reuse"] = absent["cached_tokens"]
    else:
        sources["cached_tokens"] = source
    prompt = draft.tokens.prompt
    return {
        "cached_tokens": best,
        "cached_usage": in_usage if in_usage is not None else reported,
        "cached_counter": counter,
        "expected_cached": draft.expected[0] if draft.expected else None,
        "prefix_reuse": best / prompt if best is not None and prompt else None,
    }


def _server_fields(draft: _Draft, sources: dict[str, str], absent: dict[str, str]) -> dict[str, Any]:
    """Gauges sampled during the exchange, and the engine's own times of this one request."""
    exchange, deltas, reported = draft.exchange, draft.deltas, draft.reported
    found: dict[str, Any] = {}
    for name, metric, field in (
        ("server_ttft_s", "ttft", None),
        ("queue_s", "queue", "queue_s"),
        ("prefill_s", "prefill", "prefill_s"),
        ("server_decode_s", "decode", "decode_s"),
    ):
        own = reported.get(field) if field else None
        value = own if own is not None else mean_of_one(deltas, metric)
        found[name] = value
        if value is None:
            absent[name] = deltas.why or "the engine does not report it for one request alone"
        else:
            sources[name] = "reply" if own is not None else f"histogram {metric}"
    series = exchange.samples
    pages = [page.values for page in (exchange.before, exchange.after) if page is not None]
    for name, column, metric in (
        ("kv_usage_peak", series.kv_usage, "kv_usage"),
        ("running_peak", series.running, "running"),
        ("waiting_peak", series.waiting, "waiting"),
    ):
        sampled = [value for value in column if value is not None]
        # The KV use of the pages around counts too: an engine may keep what it computed.
        ends = [page[metric] for page in pages if metric in page] if metric == "kv_usage" else []
        found[name] = max(sampled + ends, default=None) if sampled else None
        if not sampled:
            none = "the engine has no such gauge" if series.at_ns else "no sample during the exchange"
            absent[name] = none
    during = [value for value in series.kv_usage if value is not None]
    found["kv_usage_mean"] = sum(during) / len(during) if during else None
    if not during:
        absent["kv_usage_mean"] = "no sample during the exchange"
    found["preemptions"] = deltas.count("preemptions")
    if found["preemptions"] is None:
        absent["preemptions"] = deltas.why or "the engine does not count them"
    return found


def _first(*witnesses: tuple[str, int | None]) -> tuple[int | None, str]:
    return next(((value, name) for name, value in witnesses if value is not None), (None, ""))


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)


def _seconds(ns: int | None) -> float | None:
    return None if ns is None else ns / 1e9
