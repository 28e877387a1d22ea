"""LMDeploy (`lmdeploy serve api_server`), written after the sources of 0.18.0; not yet seen live.

Token and draft counters move every step, finished requests and cached tokens at a request's end, the
gauges every ten seconds. It tells neither its version nor its length limit. Prefix caching is off
unless it was started with `--enable-prefix-caching`, which nothing tells either. Only its PyTorch
engine drafts; the draft counters are there, at zero, without a drafter too.

Sources: lmdeploy/metrics/loggers.py, stats.py and metrics_processor.py, serve/openai/api_server.py and
endpoints, pytorch/paging/block_trie/trie.py, pytorch/messages.py, pytorch/strategies/ar_spec.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from bench.engines.base import (
    PROCESS_START,
    Alias,
    Dialect,
    Probes,
    Values,
    as_dict,
    as_int,
    as_str,
    counters_settled,
    listed_model,
    with_sources,
)
from bench.engines.base import read_tokens as read_token_list
from bench.records import ServerFacts, Speculation

_ENGINE_INFO = "/distserve/engine_info"
_MAX_INFO = 65_536


def _counter(name: str, sample: str, **more: Any) -> Alias:
    return Alias(name=name, sample=sample, kind="counter", **{"unit": "tokens", **more})


def _seconds(name: str, sample: str, **more: Any) -> Alias:
    return Alias(name=name, sample=sample, kind="histogram", unit="seconds", **{"when": "finish", **more})


ALIASES = (
    _counter("prompt_tokens", "prompt_tokens"),
    _counter("generation_tokens", "generation_tokens"),
    _counter("cached_tokens", "cached_tokens", since="mid-2026", when="finish"),
    _counter("requests_finished", "request_success", unit="requests", when="finish"),
    _counter("drafts", "spec_decode_num_drafts", unit="events", since="mid-2026"),
    _counter("draft_tokens", "spec_decode_num_draft_tokens", since="mid-2026"),
    _counter("accepted_tokens", "spec_decode_num_accepted_tokens", since="mid-2026"),
    _counter(
        "accepted_tokens_per_pos",
        "spec_decode_num_accepted_tokens_per_pos",
        by="position",
        since="mid-2026",
    ),
    Alias(name="running", sample="num_requests_running", kind="gauge", unit="requests", when="report"),
    Alias(name="waiting", sample="num_requests_waiting", kind="gauge", unit="requests", when="report"),
    Alias(
        name="kv_usage",
        sample="gpu_cache_usage_perc",
        kind="gauge",
        unit="fraction",
        largest=True,
        when="report",
    ),
    _seconds("ttft", "time_to_first_token_seconds", when="step"),
    _seconds("queue", "request_queue_time_seconds"),
    _seconds("prefill", "request_prefill_time_seconds"),
    _seconds("decode", "request_decode_time_seconds"),
    _seconds("e2e", "e2e_request_latency_seconds"),
    PROCESS_START,
)


def recognises(probes: Probes, page: str | None) -> bool:
    """The metric prefix, or the owner in `/v1/models`."""
    return (
        re.search(r"^(?:# \w+ )?lmdeploy[:_]", page or "", re.MULTILINE) is not None
        or listed_model(probes).get("owned_by") == "lmdeploy"
    )


def facts(probes: Probes, values: Values, info: Mapping[str, str]) -> ServerFacts:
    """From `/v1/models`, the counters by place, and `/distserve/engine_info` (PyTorch engine only)."""
    places = sum(name.startswith("accepted_tokens_per_pos.") for name in values)
    found = {
        "model": as_str(listed_model(probes).get("id")),
        "block_size": as_int(_engine_info(probes).get("block_size")),
        "num_speculative_tokens": places or None,
        "started_at": values.get("process_start"),
    }
    sources = {
        "model": "/v1/models",
        "block_size": f"{_ENGINE_INFO} (as it was started)",
        "num_speculative_tokens": "per-position counters",
        "started_at": "process_start_time_seconds",
    }
    return with_sources(found, sources, engine="lmdeploy")


def _engine_info(probes: Probes) -> dict[str, Any]:
    """The PyTorch engine's configuration: JSON inside a JSON text."""
    text = probes.get(_ENGINE_INFO)
    if not isinstance(text, str) or len(text) > _MAX_INFO:
        return {}
    try:
        return as_dict(json.loads(text))
    except (ValueError, RecursionError):
        return {}


def tokenize_request(text: str, model: str) -> tuple[str, dict[str, Any]]:
    """As `/v1/completions` counts: an opening token added where the model has one."""
    return "/v1/encode", {"input": text, "do_preprocess": False, "add_bos": True}


def pieces_request(text: str, model: str) -> tuple[str, dict[str, Any]]:
    """Text alone; the answer has no text of single tokens."""
    return "/v1/encode", {"input": text, "do_preprocess": False, "add_bos": False}


def read_tokens(answer: object) -> list[int]:
    """Token ids of a `/v1/encode` answer: `{"input_ids": [1, 2], "length": 2}`."""
    return read_token_list({"tokens": as_dict(answer).get("input_ids")})


def expected_cached(
    shared: int, prompt: int, facts: ServerFacts, speculation: Speculation | None
) -> tuple[int, int] | None:
    """Whole blocks of the shared prefix, never the last prompt token. A drafter computes the last block
    before that token again, whether it would have hit or not: min(S // B, (N - 1) // B - 1) blocks.

    The PyTorch engine's rule (`BlockTrie._match_block_prefix`, `get_prefix_cache_max_match_step`).
    Where the block is not told, as by TurboMind, nothing is expected.
    """
    block = facts.block_size
    if block is None or block < 1:
        return None
    whole = max(0, prompt - 1) // block
    drafts = speculation is not None or bool(facts.num_speculative_tokens)
    reuse = min(shared // block, max(0, whole - 1) if drafts else whole) * block
    return reuse, reuse


DIALECT = Dialect(
    name="lmdeploy",
    title="LMDeploy (2026)",
    recognises=recognises,
    prefixes=("lmdeploy",),
    aliases=ALIASES,
    metrics_advice="start it without --disable-metrics",
    positions_show_k=True,
    every_step_drafts=True,
    probes=("/v1/models", _ENGINE_INFO),
    facts=facts,
    tokenize_request=tokenize_request,
    pieces_request=pieces_request,
    read_tokens=read_tokens,
    settled=counters_settled,
    expected_cached=expected_cached,
)
