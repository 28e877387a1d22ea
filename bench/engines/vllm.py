"""vLLM: V1 from 0.8.5 to 0.33, and V0 where its names are the same.

`prompt_tokens` counts cached tokens too. Counters move every step, histograms and
`request_success` at a request's end. Names and units changed over time; see ALIASES.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from bench.engines.base import (
    PROCESS_START,
    Alias,
    Dialect,
    Probes,
    Step,
    Values,
    as_bool,
    as_dict,
    as_int,
    as_str,
    counters_settled,
    listed_model,
    openai_body_fields,
    version_key,
    with_sources,
)
from bench.records import RequestSettings, ServerFacts, Speculation


def _counter(name: str, sample: str, **more: Any) -> Alias:
    return Alias(name=name, sample=sample, kind="counter", **{"unit": "tokens", **more})


def _seconds(name: str, sample: str, **more: Any) -> Alias:
    return Alias(name=name, sample=sample, kind="histogram", unit="seconds", **{"when": "finish", **more})


def _fraction(name: str, sample: str, **more: Any) -> Alias:
    return Alias(name=name, sample=sample, kind="gauge", unit="fraction", largest=True, **more)


ALIASES = (
    _counter("prompt_tokens", "prompt_tokens"),
    _counter(
        "cached_tokens", "prompt_tokens_by_source", only=(("source", ("local_cache_hit",)),), since="0.16"
    ),
    _counter(
        "external_cached_tokens",
        "prompt_tokens_by_source",
        only=(("source", ("external_kv_transfer",)),),
        since="0.16",
    ),
    Alias(
        name="computed_prompt_tokens",
        sample="request_prefill_kv_computed_tokens",
        kind="histogram",
        unit="tokens",
        since="0.13",
        when="finish",
    ),
    _counter("prefix_queries", "prefix_cache_queries", since="0.9.2"),
    _counter("prefix_hits", "prefix_cache_hits", since="0.9.2"),
    _counter(
        "prefix_queries_gpu",
        "gpu_prefix_cache_queries",
        unit="blocks or tokens",
        since="0.7.3",
        until="0.10.2",
    ),
    _counter(
        "prefix_hits_gpu", "gpu_prefix_cache_hits", unit="blocks or tokens", since="0.7.3", until="0.10.2"
    ),
    _counter("external_prefix_hits", "external_prefix_cache_hits", since="0.11.1"),
    _counter("generation_tokens", "generation_tokens"),
    _counter(
        "requests_finished",
        "request_success",
        unit="requests",
        never=(("finished_reason", ("abort",)),),
        when="finish",
    ),
    _counter(
        "requests_aborted",
        "request_success",
        unit="requests",
        only=(("finished_reason", ("abort",)),),
        when="finish",
    ),
    _counter("drafts", "spec_decode_num_drafts", unit="events", since="0.8.5"),
    _counter("draft_tokens", "spec_decode_num_draft_tokens"),
    _counter("accepted_tokens", "spec_decode_num_accepted_tokens"),
    _counter(
        "accepted_tokens_per_pos",
        "spec_decode_num_accepted_tokens_per_pos",
        by="position",
        since="0.8.5",
    ),
    _counter(
        "requests_failed",
        "request_success",
        unit="requests",
        only=(("finished_reason", ("error",)),),
        since="0.13",
        when="finish",
    ),
    _counter("preemptions", "num_preemptions", unit="events"),
    Alias(name="running", sample="num_requests_running", kind="gauge", unit="requests"),
    Alias(name="waiting", sample="num_requests_waiting", kind="gauge", unit="requests"),
    _fraction("kv_usage", "kv_cache_usage_perc", since="0.9.2"),
    _fraction("kv_usage", "gpu_cache_usage_perc", until="0.10.2"),
    _seconds("ttft", "time_to_first_token_seconds", when="step"),
    _seconds("queue", "request_queue_time_seconds", since="0.6.4"),
    _seconds("prefill", "request_prefill_time_seconds", since="0.6.4"),
    _seconds("decode", "request_decode_time_seconds", since="0.6.4"),
    _seconds("e2e", "e2e_request_latency_seconds"),
    PROCESS_START,
)


def recognises(probes: Probes, page: str | None) -> bool:
    """The metric prefix, the owner in `/v1/models`, the configuration, or `/version` alone."""
    return (
        re.search(r"^(?:# \w+ )?vllm[:_]", page or "", re.MULTILINE) is not None
        or listed_model(probes).get("owned_by") == "vllm"
        or "vllm_config" in as_dict(probes.get("/server_info"))
        or as_str(as_dict(probes.get("/version")).get("version")) is not None
    )


def body_fields(settings: RequestSettings) -> dict[str, Any]:
    """Usage in every chunk: the exact tokens of each, which speculation makes many."""
    body = openai_body_fields(settings)
    body["stream_options"] = {"continuous_usage_stats": True, **body["stream_options"]}
    return body


# --- Facts ----------------------------------------------------------------------------------------

_KEPT_FLAGS = (
    "cache_dtype",
    "gpu_memory_utilization",
    "hash_block_size",
    "prefix_cache_retention_interval",
    "disable_eagle_block_drop",
    "mamba_cache_mode",
    "kv_offloading_backend",
)


def facts(probes: Probes, values: Values, info: Mapping[str, str]) -> ServerFacts:
    """From `/version`, `/v1/models`, `cache_config_info`, the counters, and `/server_info` (dev mode)."""
    model = listed_model(probes)
    block, block_from = _block_size(info)
    capacity, capacity_from = _capacity(info, block)
    method, k_config = _configured_speculation(probes)
    k_seen = sum(name.startswith("accepted_tokens_per_pos.") for name in values) or None
    found = {
        "version": as_str(as_dict(probes.get("/version")).get("version")),
        "model": as_str(model.get("id")),
        "max_model_len": as_int(model.get("max_model_len")),
        "block_size": block,
        "kv_capacity_tokens": capacity,
        "num_speculative_tokens": k_seen or k_config,
        "prefix_caching": as_bool(info.get("enable_prefix_caching")),
        "started_at": values.get("process_start"),
    }
    sources = {
        "version": "/version",
        "model": "/v1/models",
        "max_model_len": "/v1/models",
        "block_size": block_from,
        "kv_capacity_tokens": capacity_from,
        "num_speculative_tokens": "per-position counters" if k_seen else "/server_info",
        "prefix_caching": "cache_config_info enable_prefix_caching",
        "started_at": "process_start_time_seconds",
    }
    flags = {name: info[name] for name in _KEPT_FLAGS if info.get(name, "None") != "None"}
    if method:
        flags["speculative_method"] = method
    return with_sources(found, sources, engine="vllm", flags=flags)


def _block_size(info: Mapping[str, str]) -> tuple[int | None, str]:
    """The unit in which prefixes hit: later versions name it, earlier ones only the block."""
    for name in ("cache_hit_alignment_tokens", "effective_attention_block_size", "block_size"):
        if size := as_int(info.get(name)):
            return size, f"cache_config_info {name}"
    return None, ""


def _capacity(info: Mapping[str, str], block: int | None) -> tuple[int | None, str]:
    if size := as_int(info.get("kv_cache_size_tokens")):
        return size, "cache_config_info kv_cache_size_tokens"
    blocks = as_int(info.get("num_gpu_blocks"))
    if blocks and block:
        return blocks * block, "cache_config_info num_gpu_blocks x block (too high for hybrid models)"
    return None, ""


def _configured_speculation(probes: Probes) -> tuple[str | None, int | None]:
    """Method and k from `/server_info`, whose configuration is text or JSON."""
    config = as_dict(probes.get("/server_info")).get("vllm_config")
    if isinstance(config, Mapping):
        spec = as_dict(config.get("speculative_config"))
        return as_str(spec.get("method")), as_int(spec.get("num_speculative_tokens"))
    found = re.search(r"speculative_config=SpeculativeConfig\(([^)]*)\)", str(config or ""))
    if not found:
        return None, None
    method = re.search(r"method='([\w-]+)'", found[1])
    count = re.search(r"num_spec(?:ulative)?_tokens=(\d{1,4})\b", found[1])
    return method[1] if method else None, int(count[1]) if count else None


# --- Tokens ---------------------------------------------------------------------------------------


def tokenize_request(text: str, model: str) -> tuple[str, dict[str, Any]]:
    """As `/v1/completions` counts: special tokens added."""
    return "/tokenize", {"model": model, "prompt": text, "add_special_tokens": True}


def pieces_request(text: str, model: str) -> tuple[str, dict[str, Any]]:
    """Text alone, with the vocabulary's name of every token."""
    return "/tokenize", {
        "model": model,
        "prompt": text,
        "add_special_tokens": False,
        "return_token_strs": True,
    }


def tokenize_messages_request(
    messages: Sequence[Mapping[str, Any]], model: str, chat_template_kwargs: Mapping[str, Any] = {}
) -> tuple[Step, ...]:
    """`/tokenize` applies the chat template itself."""
    body: dict[str, Any] = {
        "model": model,
        "messages": [dict(message) for message in messages],
        "add_generation_prompt": True,
    }
    if chat_template_kwargs:
        body["chat_template_kwargs"] = dict(chat_template_kwargs)
    return (Step(path="/tokenize", body=body),)


def _byte_of_character() -> dict[str, int]:
    """The visible stand-ins of byte-level vocabularies: printable Latin-1 as it is, the rest from U+0100."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    table = {chr(byte): byte for byte in plain}
    hidden = [byte for byte in range(256) if chr(byte) not in table]
    return table | {chr(256 + place): byte for place, byte in enumerate(hidden)}


_BYTES = _byte_of_character()


def read_pieces(answer: object) -> list[bytes] | None:
    """`token_strs` as bytes: byte-level vocabularies, or SentencePiece ones (`▁`, `<0x0A>`)."""
    names = as_dict(answer).get("token_strs")
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        return None
    if any("▁" in name or re.fullmatch(r"<0x[0-9A-F]{2}>", name) for name in names):
        return [_sentencepiece(name) for name in names]
    if not all(character in _BYTES for name in names for character in name):
        return None
    return [bytes(_BYTES[character] for character in name) for name in names]


def _sentencepiece(name: str) -> bytes:
    found = re.fullmatch(r"<0x([0-9A-F]{2})>", name)
    return bytes([int(found[1], 16)]) if found else name.replace("▁", " ").encode()


def reported(numbers: Values) -> dict[str, float]:
    """`metrics.*` of a reply: speculation from 0.29, queue and decode times from 0.25.1 (both opt-in)."""
    keys = {
        "drafts": ("metrics.speculative_decoding.num_spec_steps", 1.0),
        "draft_tokens": ("metrics.speculative_decoding.num_draft_tokens", 1.0),
        "accepted_tokens": ("metrics.speculative_decoding.num_accepted_draft_tokens", 1.0),
        "queue_s": ("metrics.queue_time_ms", 1e-3),
    }
    return {name: numbers[key] * unit for name, (key, unit) in keys.items() if key in numbers}


# --- Prefix cache ---------------------------------------------------------------------------------


def expected_cached(
    shared: int, prompt: int, facts: ServerFacts, speculation: Speculation | None
) -> tuple[int, int] | None:
    """max(0, floor(min(shared, N - 1) / B) - d) * B, with d blocks dropped for the drafter.

    The last prompt token is always computed. Drafters of the EAGLE and MTP family lose the last
    block from 0.8.5 to 0.32 (d = 1); where d may be either, both ends are returned.
    """
    if facts.prefix_caching is False:
        return 0, 0
    block = facts.block_size
    if not block:
        return None
    whole = max(0, min(shared, prompt - 1)) // block
    least_drop, most_drop = _dropped_blocks(facts, speculation)
    least, most = max(0, whole - most_drop) * block, max(0, whole - least_drop) * block
    unit = as_int(facts.flags.get("hash_block_size"))
    if unit and unit < block and most_drop:  # then one hash unit is dropped, not one block
        most = max(most, max(0, min(shared, prompt - 1) // unit - 1) * unit)
    return least, most


def _dropped_blocks(facts: ServerFacts, speculation: Speculation | None) -> tuple[int, int]:
    method = speculation.method if speculation else facts.flags.get("speculative_method")
    if method is None:
        return (0, 1) if facts.num_speculative_tokens else (0, 0)
    if not (method.lower().endswith("mtp") or method.lower().startswith("eagle")):
        return 0, 0
    version = version_key(facts.version)
    if version is None or version < (0, 8, 5) or version >= (0, 33):
        return 0, 1
    return (0, 1) if as_bool(facts.flags.get("disable_eagle_block_drop")) else (1, 1)


DIALECT = Dialect(
    name="vllm",
    title="vLLM 0.8.5 to 0.33 (V1), V0 in part",
    recognises=recognises,
    prefixes=("vllm",),
    aliases=ALIASES,
    info_family="cache_config_info",
    positions_show_k=True,
    every_step_drafts=True,
    probes=("/version", "/v1/models", "/server_info"),
    body_fields=body_fields,
    facts=facts,
    tokenize_request=tokenize_request,
    tokenize_messages_request=tokenize_messages_request,
    pieces_request=pieces_request,
    read_pieces=read_pieces,
    reported=reported,
    settled=counters_settled,
    expected_cached=expected_cached,
)
