"""SGLang, 0.4.4 to 0.5.23.

Its token counters move when a request finishes, and series appear with their first use. Its gauges
are renewed at every prefill batch, every 40th decode step, and 30 s after the last of these when it
is idle: what ran last seems to run until then. It counts verify steps but neither drafted nor
accepted tokens; these follow from k and the tokens generated.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from bench.engines.base import (
    PROCESS_START,
    Alias,
    Dialect,
    Probes,
    Values,
    as_bool,
    as_dict,
    as_int,
    as_str,
    counters_settled,
    listed_model,
    openai_body_fields,
    with_sources,
)
from bench.records import RequestSettings, ServerFacts, Speculation

_OUTSIDE = (("cache_source", ("", "device", "total")),)

ALIASES = (
    Alias(name="prompt_tokens", sample="prompt_tokens", kind="counter", unit="tokens", when="finish"),
    Alias(
        name="cached_tokens",
        sample="cached_tokens",
        kind="counter",
        unit="tokens",
        only=(("cache_source", ("", "device")),),
        since="0.4.4",
        when="finish",
    ),
    Alias(
        name="external_cached_tokens",
        sample="cached_tokens",
        kind="counter",
        unit="tokens",
        never=_OUTSIDE,
        since="0.5.9",
        when="finish",
    ),
    Alias(
        name="computed_prompt_tokens",
        sample="uncached_prompt_tokens_histogram",
        kind="histogram",
        unit="tokens",
        since="0.5.12",
        when="finish",
    ),
    Alias(name="generation_tokens", sample="generation_tokens", kind="counter", unit="tokens", when="finish"),
    Alias(name="requests_finished", sample="num_requests", kind="counter", unit="requests", when="finish"),
    Alias(
        name="requests_aborted",
        sample="num_aborted_requests",
        kind="counter",
        unit="requests",
        since="0.4.7",
        when="finish",
    ),
    Alias(
        name="verify_calls",
        sample="spec_verify_calls",
        kind="counter",
        unit="events",
        since="0.5.13",
        when="finish",
    ),
    Alias(
        name="spec_draft_tokens",
        sample="spec_num_draft_tokens",
        kind="gauge",
        unit="tokens",
        largest=True,
        since="0.5.13",
        when="report",
    ),
    Alias(
        name="window_acceptance_length",
        sample="spec_accept_length",
        kind="window",
        unit="tokens",
        largest=True,
        since="0.4.3",
        when="report",
    ),
    Alias(
        name="preemptions",
        sample="num_retracted_requests",
        kind="counter",
        unit="events",
        since="0.5.7",
        when="report",
    ),
    Alias(
        name="preemptions",
        sample="num_retractions",
        kind="counter",
        unit="events",
        since="0.5.5",
        until="0.5.10",
        when="report",
    ),
    Alias(name="running", sample="num_running_reqs", kind="gauge", unit="requests", when="report"),
    Alias(name="waiting", sample="num_queue_reqs", kind="gauge", unit="requests", when="report"),
    Alias(name="kv_usage", sample="token_usage", kind="gauge", unit="fraction", largest=True, when="report"),
    Alias(name="kv_used_tokens", sample="num_used_tokens", kind="gauge", unit="tokens", when="report"),
    Alias(
        name="kv_capacity_tokens",
        sample="max_total_num_tokens",
        kind="gauge",
        unit="tokens",
        largest=True,
        since="0.5.6",
    ),
    Alias(name="block_size", sample="page_size", kind="gauge", unit="tokens", largest=True, since="0.5.11"),
    Alias(
        name="context_len", sample="context_len", kind="gauge", unit="tokens", largest=True, since="0.5.11"
    ),
    Alias(name="ttft", sample="time_to_first_token_seconds", kind="histogram", unit="seconds"),
    Alias(name="e2e", sample="e2e_request_latency_seconds", kind="histogram", unit="seconds", when="finish"),
    Alias(name="queue", sample="queue_time_seconds", kind="histogram", unit="seconds", since="0.5.3"),
    PROCESS_START,
)


def recognises(probes: Probes, page: str | None) -> bool:
    """The metric prefix, `/get_model_info`, SGLang's `/server_info`, or the owner in `/v1/models`."""
    info = as_dict(probes.get("/server_info"))
    return (
        re.search(r"^(?:# \w+ )?sglang[:_]", page or "", re.MULTILINE) is not None
        or "is_generation" in as_dict(probes.get("/get_model_info"))
        or "internal_states" in info
        or "chunked_prefill_size" in info
        or listed_model(probes).get("owned_by") == "sglang"
    )


def body_fields(settings: RequestSettings) -> dict[str, Any]:
    """Usage in every chunk (0.5.5 and later; earlier versions ignore the wish)."""
    body = openai_body_fields(settings)
    body["stream_options"] = {"continuous_usage_stats": True, **body["stream_options"]}
    return body


def facts(probes: Probes, values: Values, info: Mapping[str, str]) -> ServerFacts:
    """From `/server_info`, gauges and `/v1/models`."""
    server = as_dict(probes.get("/server_info"))
    model = listed_model(probes)
    radix_off = as_bool(server.get("disable_radix_cache"))
    drafted = as_int(server.get("speculative_num_draft_tokens")) or as_int(values.get("spec_draft_tokens"))
    found = {
        "version": as_str(server.get("version")),
        "model": as_str(model.get("id")) or as_str(server.get("served_model_name")),
        "max_model_len": as_int(model.get("max_model_len"))
        or as_int(values.get("context_len"))
        or as_int(server.get("context_length")),
        "block_size": as_int(values.get("block_size")) or as_int(server.get("page_size")),
        "kv_capacity_tokens": as_int(values.get("kv_capacity_tokens"))
        or as_int(server.get("max_total_num_tokens")),
        "num_speculative_tokens": drafted - 1 if drafted else None,
        "prefix_caching": None if radix_off is None else not radix_off,
        "reports_cached_tokens": as_bool(server.get("enable_cache_report")),
        "started_at": values.get("process_start"),
    }
    sources = {
        "version": "/server_info",
        "model": "/v1/models",
        "max_model_len": "/v1/models, else gauge context_len",
        "block_size": "gauge page_size, else /server_info",
        "kv_capacity_tokens": "gauge max_total_num_tokens, else /server_info",
        "num_speculative_tokens": "draft tokens without their root",
        "prefix_caching": "/server_info disable_radix_cache",
        "reports_cached_tokens": "/server_info enable_cache_report",
        "started_at": "process_start_time_seconds",
    }
    flags = {
        name: str(server[name])
        for name in ("kv_cache_dtype", "chunked_prefill_size", "tp_size", "quantization")
        if server.get(name) is not None
    }
    if algorithm := as_str(server.get("speculative_algorithm")):
        flags["speculative_method"] = algorithm.lower()
    return with_sources(found, sources, engine="sglang", flags=flags)


def tokenize_request(text: str, model: str) -> tuple[str, dict[str, Any]]:
    """`/tokenize` is there from 0.5.4 on."""
    return "/tokenize", {"model": model, "prompt": text}


def expected_cached(
    shared: int, prompt: int, facts: ServerFacts, speculation: Speculation | None
) -> tuple[int, int] | None:
    """Whole pages (one token by default) of the shared prefix, never the last prompt token.

    Drafters of the EAGLE and MTP family key the tree by pairs of tokens: up to one page less.
    """
    if facts.prefix_caching is False:
        return 0, 0
    page = facts.block_size or 1
    most = max(0, min(shared, prompt - 1))
    drafts = speculation is not None or bool(facts.num_speculative_tokens)
    least = max(0, most - 1) if drafts else most
    return least // page * page, most // page * page


DIALECT = Dialect(
    name="sglang",
    title="SGLang 0.4.4 to 0.5.23",
    recognises=recognises,
    prefixes=("sglang",),
    aliases=ALIASES,
    replica_labels=("tp_rank", "pp_rank", "moe_ep_rank", "pid"),
    probes=("/server_info", "/get_model_info", "/v1/models"),
    body_fields=body_fields,
    facts=facts,
    tokenize_request=tokenize_request,
    settled=counters_settled,
    expected_cached=expected_cached,
)
