"""TensorRT-LLM (`trtllm-serve`, PyTorch backend), written after its sources of 2026; not yet seen live.

Its page is not `/metrics`, which is a JSON list of iteration figures that every reader empties, but
`/prometheus/metrics`, and that only where it was started with `return_perf_metrics: true`. What is
read here is published when a request ends. Its gauges are renewed then, too, from the last step of
the request: between requests and during them they tell of the past, so that none of them is read as
a level. So are its counters of drafts and blocks by iteration: some versions add up only the last
iteration of those read at once. Drafts by place come from the requests themselves and are whole.

Sources: tensorrt_llm/metrics/collector.py, serve/openai_server.py, serve/openai_protocol.py,
serve/postprocess_handlers.py, cpp/tensorrt_llm/batch_manager/kvCacheManager.cpp; pull requests 5785,
12545 and 12636.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from bench.engines.base import (
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

_CUT_OFF = (("finished_reason", ("cancelled", "timeout")),)
_SPRING = "spring 2026"


def _counter(name: str, sample: str, **more: Any) -> Alias:
    return Alias(name=name, sample=sample, kind="counter", when="finish", **{"unit": "tokens", **more})


def _seconds(name: str, sample: str, **more: Any) -> Alias:
    return Alias(name=name, sample=sample, kind="histogram", unit="seconds", when="finish", **more)


def _level(name: str, sample: str, **more: Any) -> Alias:
    return Alias(name=name, sample=sample, kind="gauge", largest=True, since=_SPRING, when="report", **more)


_FIRST = (
    _counter("requests_finished", "request_success", unit="requests", never=_CUT_OFF),
    _counter("requests_aborted", "request_success", unit="requests", only=_CUT_OFF),
    _seconds("ttft", "time_to_first_token_seconds"),
    _seconds("queue", "request_queue_time_seconds"),
    _seconds("e2e", "e2e_request_latency_seconds"),
)
"""What every version with a page has; 1.1 printed these names bare."""

ALIASES = (
    *_FIRST,
    *(replace(alias, prefixed=False, since="1.1") for alias in _FIRST),
    _counter("prompt_tokens", "prompt_tokens", since=_SPRING),
    _counter("generation_tokens", "generation_tokens", since=_SPRING),
    _counter("cached_tokens", "prompt_cached_tokens", since=_SPRING),
    _counter(
        "drafts",
        "spec_decode_drafted_tokens",
        unit="events",
        only=(("token_position", ("0",)),),
        since=_SPRING,
    ),
    _counter("draft_tokens", "spec_decode_drafted_tokens", since=_SPRING),
    _counter("accepted_tokens", "spec_decode_accepted_tokens", since=_SPRING),
    _counter("accepted_tokens_per_pos", "spec_decode_accepted_tokens", by="token_position", since=_SPRING),
    _seconds("prefill", "request_prefill_time_seconds", since=_SPRING),
    _seconds("decode", "request_decode_time_seconds", since=_SPRING),
    _level("block_size", "kv_cache_tokens_per_block", unit="tokens"),
    _level("kv_capacity_blocks", "kv_cache_max_blocks", unit="blocks"),
)


def recognises(probes: Probes, page: str | None) -> bool:
    """The metric prefix, or the owner in `/v1/models`: `/version` is shaped as vLLM's."""
    return (
        re.search(r"^(?:# \w+ )?trtllm[:_]", page or "", re.MULTILINE) is not None
        or listed_model(probes).get("owned_by") == "tensorrt_llm"
    )


def body_fields(settings: RequestSettings) -> dict[str, Any]:
    """Usage in every chunk. A field that the server does not know is refused, not ignored."""
    body = openai_body_fields(settings)
    body["stream_options"] = {"continuous_usage_stats": True, **body["stream_options"]}
    return body


def facts(probes: Probes, values: Values, info: Mapping[str, str]) -> ServerFacts:
    """From `/version`, `/v1/models`, the configuration families, and what the first request published.

    Block and capacity come with iteration figures (`enable_iter_perf_stats: true`), after a request.
    """
    block, blocks = as_int(values.get("block_size")), as_int(values.get("kv_capacity_blocks"))
    found = {
        "version": as_str(as_dict(probes.get("/version")).get("version")),
        "model": as_str(listed_model(probes).get("id")),
        "max_model_len": as_int(info.get("max_model_len")),
        "block_size": block,
        "kv_capacity_tokens": block * blocks if block and blocks else None,
        "num_speculative_tokens": as_int(info.get("spec_num_tokens")),
        "prefix_caching": as_bool(info.get("enable_block_reuse")),
        "reports_cached_tokens": True,
    }
    sources = {
        "version": "/version",
        "model": "/v1/models",
        "max_model_len": "model_config_info max_model_len",
        "block_size": "gauge kv_cache_tokens_per_block",
        "kv_capacity_tokens": "gauges kv_cache_max_blocks x kv_cache_tokens_per_block",
        "num_speculative_tokens": "speculative_config_info spec_num_tokens",
        "prefix_caching": "kv_cache_config_info enable_block_reuse",
        "reports_cached_tokens": "TensorRT-LLM counts them in every usage",
    }
    kept = ("enable_partial_reuse", "cache_dtype", "quantization", "tensor_parallel_size")
    flags = {name: info[name] for name in kept if info.get(name, "None") != "None"}
    if method := as_str(info.get("spec_method")):
        flags["speculative_method"] = method.lower()
    return with_sources(found, sources, engine="trtllm", flags=flags)


def expected_cached(
    shared: int, prompt: int, facts: ServerFacts, speculation: Speculation | None
) -> tuple[int, int] | None:
    """Whole blocks of the shared prefix, never the last prompt token; between them and all of it
    where blocks may be reused in part.

    A prompt is stored, and looked up, without its last token (`storeContextBlocks`,
    `chopVectorIntoBlocks`). A block of which only the beginning matches is copied
    (`enable_partial_reuse`, on unless told otherwise): how much of it was filled, and by what, is the
    earlier request's doing. No drafter loses a block.
    """
    if facts.prefix_caching is False:
        return 0, 0
    block = facts.block_size
    if block is None or block < 1:
        return None
    most = max(0, min(shared, prompt - 1))
    least = most // block * block
    return least, least if as_bool(facts.flags.get("enable_partial_reuse")) is False else most


DIALECT = Dialect(
    name="trtllm",
    title="TensorRT-LLM's trtllm-serve (2026)",
    recognises=recognises,
    prefixes=("trtllm",),
    aliases=ALIASES,
    info_family="kv_cache_config_info",
    more_info=("speculative_config_info", "model_config_info", "parallel_config_info"),
    metrics_path="/prometheus/metrics",
    metrics_advice="start it with return_perf_metrics: true",
    probes=("/version", "/v1/models"),
    body_fields=body_fields,
    facts=facts,
    settled=counters_settled,
    expected_cached=expected_cached,
)
