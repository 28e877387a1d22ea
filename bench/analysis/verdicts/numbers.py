"""The numbers of one exchange, each with its witness or the reason why it is absent."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from itertools import dropwhile
from typing import Any

import msgspec
from msgspec import Struct

from bench.analysis.verdicts.counters import PLACES, CachedCount, Deltas, SpeculationCount, mean_of_one
from bench.analysis.verdicts.timing import Times
from bench.analysis.verdicts.uncertainty import client_uncertainty_s
from bench.engines.base import Dialect
from bench.records import Exchange, Measurement, Scrape, Verdict

_PLACEHOLDER = Verdict(valid=False)
_NO_SPECULATION = "no speculation on this route"
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


class Tokens(Struct, frozen=True, kw_only=True):
    """Prompt and output tokens of one exchange, each by its best witness."""

    prompt: int | None
    output: int | None
    sources: dict[str, str]

    @classmethod
    def of(cls, exchange: Exchange, deltas: Deltas, reported: dict[str, float], dialect: Dialect) -> Tokens:
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


class Draft(Struct, frozen=True, kw_only=True):
    """What the numbers of one exchange are made of."""

    exchange: Exchange
    deltas: Deltas
    reported: dict[str, float]
    tokens: Tokens
    clock: Times
    cached: CachedCount
    counted: SpeculationCount
    expected: tuple[int, int] | None
    speculates: bool = True
    """The route declares that it drafts, or its server says so."""


def numbers_of(draft: Draft, source: str, order: int) -> Measurement:
    """All figures of an exchange, its verdict a placeholder. `source`: the run; `order`: its place there."""
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
        concurrency=trial.concurrency,
        stream=trial.stream,
        chat=trial.chat,
        turn=trial.turn,
        order=order,
        pair=exchange.prompt.sha256 or None,
        text_key=text_key(exchange),
        prompt_tokens=tokens.prompt,
        output_tokens=tokens.output,
        uploaded_s=_seconds(exchange.uploaded_ns),
        connect_s=_seconds(exchange.connect_ns),
        finish_reason=exchange.finish_reason,
        text_sha256=hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest() if text else None,
        client_uncertainty_s=client_uncertainty_s(exchange.client),
        failure=exchange.failure,
        sources=sources,
        absent=absent,
        verdict=_PLACEHOLDER,
        **{name: getattr(clock, name) for name in _CLOCK_FIELDS},
        **fields,
    )


def text_key(exchange: Exchange) -> str:
    """A name for the text of a prompt: its corpus, where it begins there, its length, task and needles.

    Salt and attempt are no part of it; nor are template and filler, which move its end by some words.
    Empty for turns of chats, whose text may be the server's own answers, and where no corpus is named.
    """
    recipe = exchange.prompt
    if exchange.trial.turn or not recipe.corpus_sha256:
        return ""
    parts = (recipe.corpus_sha256, recipe.start, recipe.tokens, recipe.task, recipe.needles)
    return hashlib.sha256(msgspec.json.encode(parts)).hexdigest()[:16]


def _speculation_fields(draft: Draft, sources: dict[str, str], absent: dict[str, str]) -> dict[str, Any]:
    """acceptance = accepted / drafted; acceptance_length = 1 + accepted / drafts; per position = accepted
    at i / drafts. None without drafts, and where rounded counters leave too much open."""
    counted, deltas = draft.counted, draft.deltas
    counts = {name: getattr(counted, name) for name in ("drafts", "draft_tokens", "accepted_tokens")}
    for name, value in counts.items():
        source = counted.drafts_source if name == "drafts" else counted.source
        rough = deltas.rough(name) if source == "counters" else None
        if value is None:
            absent[name] = _uncounted(draft, name, "the engine does not count it")
        elif rough is not None:
            counts[name], absent[name] = None, rough
        else:
            sources[name] = source
    drafts, drafted, accepted = counts.values()
    shares = {
        "acceptance": accepted / drafted if accepted is not None and drafted else None,
        "acceptance_length": 1 + accepted / drafts if accepted is not None and drafts else None,
    }
    for name, basis in (("acceptance", "draft_tokens"), ("acceptance_length", "drafts")):
        if shares[name] is None:
            absent[name] = absent.get(basis) or absent.get("accepted_tokens") or _none_drafted(draft)
    return {**counts, **shares, "acceptance_per_position": _by_place(draft, drafts, absent)}


def _uncounted(draft: Draft, name: str, otherwise: str) -> str:
    """Why a count of drafts is absent. Engines have these counters where they speculate, and only there."""
    if draft.speculates:
        return draft.deltas.absence(name, otherwise)
    # Of a wave's requests too, whose counters are not split.
    return _NO_SPECULATION if draft.exchange.wave else draft.deltas.absence(name, _NO_SPECULATION)


def _none_drafted(draft: Draft) -> str:
    return "nothing was drafted" if draft.speculates else _NO_SPECULATION


def _by_place(draft: Draft, drafts: int | None, absent: dict[str, str]) -> tuple[float, ...] | None:
    places = draft.counted.per_position
    if not drafts:
        why = absent.get("drafts") or _none_drafted(draft)
    elif not places:
        why = _uncounted(draft, PLACES, "the engine does not count by place in the draft")
    else:
        rough = (draft.deltas.rough(f"{PLACES}.{place}", of=drafts) for place in range(len(places)))
        why = next(filter(None, rough), "")
        if not why:
            return tuple(count / drafts for count in places)
    absent["acceptance_per_position"] = why
    return None


def _cache_fields(draft: Draft, sources: dict[str, str], absent: dict[str, str]) -> dict[str, Any]:
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


def _server_fields(draft: Draft, sources: dict[str, str], absent: dict[str, str]) -> dict[str, Any]:
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
            absent[name] = deltas.absence(metric, "the engine does not report it for one request alone")
        else:
            sources[name] = "reply" if own is not None else f"histogram {metric}"
    found["preemptions"] = deltas.count("preemptions")
    if found["preemptions"] is None:
        absent["preemptions"] = deltas.absence("preemptions", "the engine does not count them")
    return {**found, **_gauge_fields(exchange, deltas, absent)}


def _gauge_fields(exchange: Exchange, deltas: Deltas, absent: dict[str, str]) -> dict[str, float | None]:
    """What was sampled during the exchange."""
    series, after = exchange.samples, exchange.after
    unseen = (exchange.wave and deltas.why) or "no sample during the exchange"
    found: dict[str, float | None] = {}
    for name, column, metric in (
        ("kv_usage_peak", series.kv_usage, "kv_usage"),
        ("running_peak", series.running, "running"),
        ("waiting_peak", series.waiting, "waiting"),
    ):
        stale, sampled = _renewed(column, exchange.before, metric)
        # The KV use of the pages around counts too: an engine may keep what it computed.
        ends = [page.values.get(metric) for page in (None if stale else exchange.before, after) if page]
        known = [value for value in ends if value is not None] if metric == "kv_usage" else []
        found[name] = max(sampled + known, default=None) if sampled else None
        if not sampled:
            lacking = "the gauge was not renewed" if stale else "the engine has no such gauge"
            absent[name] = lacking if series.at_ns else unseen
    _, during = _renewed(series.kv_usage, exchange.before, "kv_usage")
    found["kv_usage_mean"] = sum(during) / len(during) if during else None
    if not during:
        absent["kv_usage_mean"] = unseen
    return found


def _renewed(column: Sequence[float | None], before: Scrape | None, metric: str) -> tuple[bool, list[float]]:
    """(whether the gauges were stale, samples since they were renewed): where requests seemed to run
    before ours was sent, what the page says is of earlier ones until it changes."""
    values = [value for value in column if value is not None]
    earlier = before.values.get(metric) if before is not None and before.values.get("running") else None
    if not earlier:
        return False, values
    return True, list(dropwhile(lambda value: value == earlier, values))


def _first(*witnesses: tuple[str, int | None]) -> tuple[int | None, str]:
    for name, value in witnesses:
        if value is not None:
            return value, name
    return None, ""


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)


def _seconds(ns: int | None) -> float | None:
    return None if ns is None else ns / 1e9
