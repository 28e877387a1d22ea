"""llama.cpp's server, from 2025 to builds of late 2026.

Its counters print six significant digits, so the `timings` of every reply are the better witness;
its prompt counter leaves cached tokens out; it caches token by token and always computes one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bench.engines.base import (
    Alias,
    Dialect,
    Probes,
    Step,
    Values,
    as_dict,
    as_int,
    as_str,
    listed_model,
    moved,
    openai_body_fields,
    rounding,
    with_sources,
)
from bench.records import RequestSettings, ServerFacts, Speculation, Usage

DIGITS = 6

ALIASES = (
    Alias(name="prompt_tokens", sample="prompt_tokens", kind="counter", unit="tokens"),
    Alias(
        name="cached_tokens", sample="prompt_tokens_cached", kind="counter", unit="tokens", since="mid-2026"
    ),
    Alias(name="generation_tokens", sample="tokens_predicted", kind="counter", unit="tokens", when="finish"),
    Alias(name="prefill_seconds", sample="prompt_seconds", kind="counter", unit="seconds"),
    Alias(
        name="decode_seconds",
        sample="tokens_predicted_seconds",
        kind="counter",
        unit="seconds",
        when="finish",
    ),
    Alias(name="drafts", sample="spec_decode_num_drafts", kind="counter", unit="events", since="mid-2026"),
    Alias(
        name="draft_tokens",
        sample="spec_decode_num_draft_tokens",
        kind="counter",
        unit="tokens",
        since="mid-2026",
    ),
    Alias(
        name="accepted_tokens",
        sample="spec_decode_num_accepted_tokens",
        kind="counter",
        unit="tokens",
        since="mid-2026",
    ),
    Alias(
        name="accepted_tokens_per_pos",
        sample="spec_decode_num_accepted_tokens_per_pos",
        kind="counter",
        unit="tokens",
        by="position",
        since="mid-2026",
    ),
    Alias(name="running", sample="requests_processing", kind="gauge", unit="requests"),
    Alias(name="waiting", sample="requests_deferred", kind="gauge", unit="requests"),
    Alias(
        name="kv_usage",
        sample="kv_cache_usage_ratio",
        kind="gauge",
        unit="fraction",
        largest=True,
        until="May 2025",
    ),
)


def recognises(probes: Probes, page: str | None) -> bool:
    """`/props` with slots, the metric prefix, or the owner in `/v1/models`."""
    props = as_dict(probes.get("/props"))
    return (
        "total_slots" in props
        or "default_generation_settings" in props
        or "llamacpp:" in (page or "")
        or listed_model(probes).get("owned_by") == "llamacpp"
    )


def body_fields(settings: RequestSettings) -> dict[str, Any]:
    """The prefix cache is asked for by name: older builds left it off."""
    return {"cache_prompt": True, **openai_body_fields(settings)}


def facts(probes: Probes, values: Values, info: Mapping[str, str]) -> ServerFacts:
    """From `/props`; `n_ctx` is per slot."""
    props = as_dict(probes.get("/props"))
    model = listed_model(probes)
    limit = as_int(as_dict(props.get("default_generation_settings")).get("n_ctx"))
    where = "/props"
    if limit is None:
        limit, where = as_int(as_dict(model.get("meta")).get("n_ctx")), "/v1/models"
    slots = as_int(props.get("total_slots"))
    flags = {"slots": str(slots)} if slots else {}
    if path := as_str(props.get("model_path")):
        flags["model_path"] = path.rsplit("/", 1)[-1]
    if ftype := as_str(props.get("model_ftype")):
        flags["model_ftype"] = ftype
    found = {
        "version": as_str(props.get("build_info")),
        "model": as_str(model.get("id")) or as_str(props.get("model_alias")),
        "max_model_len": limit,
        "block_size": 1,
        "kv_capacity_tokens": limit * slots if limit and slots else limit,
        "prefix_caching": True,
        "reports_cached_tokens": True,
        "started_at": values.get("process_start"),
    }
    sources = {
        "version": "/props",
        "model": "/v1/models",
        "max_model_len": where,
        "block_size": "llama.cpp caches single tokens",
        "kv_capacity_tokens": "/props (slots x n_ctx)",
        "started_at": "header Process-Start-Time-Unix",
    }
    return with_sources(found, sources, engine="llamacpp", flags=flags)


def tokenize_request(text: str, model: str) -> tuple[str, dict[str, Any]]:
    """As `/v1/completions` counts: special tokens added and parsed."""
    return "/tokenize", {"content": text, "add_special": True, "parse_special": True}


def pieces_request(text: str, model: str) -> tuple[str, dict[str, Any]]:
    """Text alone, with the bytes of every token."""
    return "/tokenize", {"content": text, "add_special": False, "parse_special": True, "with_pieces": True}


def tokenize_messages_request(
    messages: Sequence[Mapping[str, Any]], model: str, chat_template_kwargs: Mapping[str, Any] = {}
) -> tuple[Step, ...]:
    """The template first, then its text."""
    body: dict[str, Any] = {"messages": [dict(message) for message in messages]}
    if chat_template_kwargs:
        body["chat_template_kwargs"] = dict(chat_template_kwargs)
    return (
        Step(path="/apply-template", body=body),
        Step(
            path="/tokenize",
            body={"add_special": True, "parse_special": True},
            fill={"content": "prompt"},
        ),
    )


def read_pieces(answer: object) -> list[bytes] | None:
    """A piece is text, or a list of bytes where it is no valid text of its own."""
    pieces: list[bytes] = []
    for token in as_dict(answer).get("tokens") or []:
        piece = as_dict(token).get("piece")
        if isinstance(piece, str):
            pieces.append(piece.encode())
        elif isinstance(piece, list) and all(isinstance(b, int) and 0 <= b < 256 for b in piece):
            pieces.append(bytes(piece))
        else:
            return None
    return pieces or None


def reported(numbers: Values) -> dict[str, float]:
    """`timings`: exact where counters are rounded. Draft fields are left out when nothing was drafted."""
    found: dict[str, float] = {}
    for name, key in (("cached_tokens", "cache_n"), ("output_tokens", "predicted_n")):
        if (value := numbers.get(f"timings.{key}")) is not None:
            found[name] = value
    computed = numbers.get("timings.prompt_n")
    if computed is not None and "cached_tokens" in found:
        found["prompt_tokens"] = computed + found["cached_tokens"]
    for name, key in (("prefill_s", "prompt_ms"), ("decode_s", "predicted_ms")):
        if (value := numbers.get(f"timings.{key}")) is not None:
            found[name] = value / 1000
    if "timings.predicted_n" in numbers:
        found["draft_tokens"] = numbers.get("timings.draft_n", 0.0)
        found["accepted_tokens"] = numbers.get("timings.draft_n_accepted", 0.0)
    return found


def settled(before: Values, after: Values, usage: Usage | None) -> bool:
    """Prompt (computed and cached) and predicted tokens hold all of ours, as far as six digits tell."""
    if usage is None or "generation_tokens" not in after:
        return True
    slack = sum(rounding(page.get("generation_tokens", 0.0), DIGITS) for page in (before, after))
    if (moved(before, after, "generation_tokens") or 0.0) + slack < (usage.completion_tokens or 0):
        return False
    cached = moved(before, after, "cached_tokens")
    if cached is None:
        cached = float(usage.cached_tokens or 0)
    slack = sum(
        rounding(page.get(name, 0.0), DIGITS)
        for page in (before, after)
        for name in ("prompt_tokens", "cached_tokens")
    )
    return (moved(before, after, "prompt_tokens") or 0.0) + cached + slack >= (usage.prompt_tokens or 0)


def expected_cached(
    shared: int, prompt: int, facts: ServerFacts, speculation: Speculation | None
) -> tuple[int, int] | None:
    """All shared tokens but the last of the prompt, which is always computed."""
    reuse = max(0, min(shared, prompt - 1))
    return reuse, reuse


DIALECT = Dialect(
    name="llamacpp",
    title="llama.cpp server (2025 to late 2026)",
    recognises=recognises,
    prefixes=("llamacpp",),
    aliases=ALIASES,
    prompt_includes_cached=False,
    digits=DIGITS,
    probes=("/props", "/v1/models"),
    body_fields=body_fields,
    facts=facts,
    tokenize_request=tokenize_request,
    tokenize_messages_request=tokenize_messages_request,
    pieces_request=pieces_request,
    read_pieces=read_pieces,
    reported=reported,
    settled=settled,
    expected_cached=expected_cached,
)
