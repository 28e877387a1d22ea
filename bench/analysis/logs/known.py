"""Log lines whose meaning is known, engine by engine, and the facts some of them carry.

Texts are quoted as far as needed to recognise a line (dialects C3 and C4).
"""

from __future__ import annotations

import re
from typing import Literal

from msgspec import Struct

Role = Literal[
    "start",  # the server starts: facts read before belong to an earlier life
    "ready",  # start-up is over
    "request",  # one such line a request
    "stats",  # written on a timer or every so many steps
    "fact",  # says something about the setup
    "advice",  # harmless by itself, but a reader should know
    "trouble",  # a number measured around it is suspect
    "failure",  # the server, or a request, is broken
]


class Known(Struct, frozen=True, kw_only=True):
    """A line by its meaning."""

    engine: str
    role: Role
    needle: str
    """Literal text that the message must hold: a cheap filter before the pattern."""
    meaning: str
    pattern: re.Pattern[str] | None = None
    """Must match as well; its named groups are facts (see `log_facts`)."""


def _known(engine: str, role: Role, needle: str, meaning: str, pattern: str | None = None) -> Known:
    compiled = re.compile(pattern) if pattern else None
    return Known(engine=engine, role=role, needle=needle, meaning=meaning, pattern=compiled)


KNOWN: dict[str, Known] = {
    # --- vLLM: start-up and facts ---
    "vllm_start": _known(
        "vllm",
        "start",
        "non-default args",
        "vLLM starts with these arguments",
        r"non-default args: (?P<args>.*)",
    ),
    "vllm_version": _known(
        "vllm",
        "fact",
        "version ",
        "version of vLLM",
        r"(?:API server version|█ +version) (?P<version>\d[\w.+]*)",
    ),
    "vllm_engine": _known(
        "vllm",
        "fact",
        "LLM engine (v",
        "configuration of the engine",
        r"LLM engine \(v(?P<version>[\w.+]+)\) with config: (?P<config>.*)",
    ),
    "vllm_speculation": _known(
        "vllm",
        "fact",
        "SpeculativeConfig(",
        "speculation setting",
        r"(?P<config>SpeculativeConfig\(.*)",
    ),
    "vllm_max_model_len": _known(
        "vllm",
        "fact",
        "Using max model len",
        "context length: first the target's, with a drafter then the drafter's",
        r"Using max model len (?P<length>\d+)",
    ),
    "vllm_drafter_cut": _known(
        "vllm",
        "fact",
        "Overriding draft model max model len",
        "the drafter's limit is cut to the target's",
        r"max model len from \d+ to (?P<drafter_limit>\d+)",
    ),
    "vllm_drafter_positions": _known(
        "vllm",
        "fact",
        "Overriding draft model max_position_embeddings",
        "the drafter's rope table is raised to the target's length (not for YaRN)",
    ),
    "vllm_context_reduced": _known(
        "vllm",
        "trouble",
        "can't skip speculation for longer sequences",
        "the served context was cut to the drafter's: tiers above it will be refused",
        r"reducing max_model_len to (?P<max_model_len>\d+)",
    ),
    "vllm_long_length": _known(
        "vllm",
        "trouble",
        "is greater than the derived max_model_len",
        "the requested length is over what the config supports: refused, or let through by a switch",
        r"max_model_len \((?P<requested>\d+)\) is greater than the derived",
    ),
    "vllm_kv_size": _known(
        "vllm",
        "fact",
        "KV cache size:",
        "KV cache capacity",
        r"KV cache size: (?P<kv_tokens>[\d,]+) tokens"
        r"(?:, Maximum concurrency for [\d,]+ tokens per request: (?P<concurrency>[\d.]+)x)?",
    ),
    "vllm_concurrency": _known(
        "vllm",
        "fact",
        "Maximum concurrency for",
        "how many full-length requests fit",
        r"Maximum concurrency for [\d,]+ tokens per request: (?P<concurrency>[\d.]+)x",
    ),
    "vllm_kv_blocks": _known(
        "vllm",
        "fact",
        "# CPU blocks:",
        "KV cache capacity in blocks (V0)",
        r"# (?:GPU|cuda) blocks: (?P<kv_blocks>\d+)",
    ),
    "vllm_kv_too_small": _known(
        "vllm",
        "failure",
        "larger than the available KV cache memory",
        "the KV cache cannot hold one full request",
    ),
    "vllm_block_size": _known(
        "vllm",
        "fact",
        "Setting attention block size",
        "prefix-cache block of a hybrid model: the step of reuse",
        r"attention block size to (?P<block_size>\d+) tokens",
    ),
    "vllm_runner": _known(
        "vllm",
        "fact",
        "model runner instead",
        "which model runner serves: they differ past the drafter limit",
        r"using the (?P<runner>V\d) model runner instead",
    ),
    "vllm_mamba_mode": _known(
        "vllm", "fact", "Mamba cache mode is set to", "how a hybrid model caches prefixes"
    ),
    "vllm_mtp_repeats": _known(
        "vllm",
        "advice",
        "multiple times of forward on same MTP layer",
        "one MTP layer drafts several tokens: acceptance falls",
    ),
    "vllm_scheduled_tokens": _known(
        "vllm",
        "advice",
        "max_num_scheduled_tokens is set to",
        "prefill chunks are smaller because of speculation",
    ),
    "vllm_stats_off": _known(
        "vllm", "advice", "disabling stats logging", "several API servers: no periodic lines in the log"
    ),
    "vllm_deprecated_mtp": _known(
        "vllm", "advice", "is deprecated and replaced with mtp", "old name of the MTP method"
    ),
    "vllm_k_depth": _known(
        "vllm", "failure", "must be divisible by n_predict", "k is no multiple of the checkpoint's MTP layers"
    ),
    # --- vLLM: while serving ---
    "vllm_stats": _known(
        "vllm",
        "stats",
        "Avg generation throughput",
        "throughput, queue and KV usage of the last seconds",
        r"Avg generation throughput: (?P<gen_tok_s>[\d.]+) tokens/s",
    ),
    "vllm_spec": _known("vllm", "stats", "SpecDecoding metrics:", "acceptance since the last such line"),
    "vllm_spec_v0": _known(
        "vllm", "stats", "Speculative metrics: Draft acceptance", "acceptance since the last such line"
    ),
    "vllm_preempted": _known(
        "vllm", "trouble", "is preempted by", "a request lost its KV cache and is computed again"
    ),
    "vllm_cache_reset_refused": _known(
        "vllm",
        "trouble",
        "Failed to reset prefix cache",
        "the prefix cache was not emptied: blocks are still in use",
    ),
    "vllm_dead": _known("vllm", "failure", "EngineCore encountered", "the engine died"),
    "vllm_not_started": _known("vllm", "failure", "EngineCore failed to start", "the engine did not start"),
    "vllm_init_failed": _known(
        "vllm", "failure", "Engine core initialization failed", "the engine did not start"
    ),
    "vllm_worker_died": _known("vllm", "failure", "died unexpectedly", "a worker process died"),
    "drafter_limit_skip": _known(
        "1cat-vllm",
        "trouble",
        "Skipping speculative drafts because the drafter context limit is reached",
        "past the drafter limit: this request is served target-only",
        r"effective_drafter_max_model_len=(?P<drafter_limit>\d+)",
    ),
    # --- SGLang ---
    "sglang_start": _known("sglang", "start", "server_args=", "SGLang starts with these arguments"),
    "sglang_capacity": _known(
        "sglang",
        "fact",
        "max_total_num_tokens=",
        "KV cache capacity and context length",
        r"max_total_num_tokens=(?P<kv_tokens>\d+).*context_len=(?P<max_model_len>\d+)",
    ),
    "sglang_ready": _known("sglang", "ready", "The server is fired up", "start-up is over"),
    "sglang_prefill": _known("sglang", "stats", "Prefill batch", "one prefill batch"),
    "sglang_decode": _known("sglang", "stats", "Decode batch", "every so many decode steps"),
    "sglang_retract": _known(
        "sglang",
        "trouble",
        "KV cache pool is full. Retract requests",
        "a request lost its KV cache and is computed again",
    ),
    "sglang_exception": _known("sglang", "failure", "Scheduler hit an exception", "the scheduler died"),
    "sglang_long_length": _known(
        "sglang",
        "trouble",
        "is greater than the derived context_length",
        "the requested length is over what the config supports",
    ),
    "sglang_drafter_raised": _known(
        "sglang",
        "fact",
        "Overriding the draft model's max_position_embeddings",
        "the drafter's length is raised to the target's",
    ),
    "sglang_truncated": _known(
        "sglang",
        "trouble",
        "Truncating the input",
        "a prompt was cut: the measured length is not the sent one",
    ),
    # --- llama.cpp ---
    "llamacpp_start": _known(
        "llamacpp", "start", "build_info:", "llama.cpp starts", r"build_info: (?P<version>\S+)"
    ),
    "llamacpp_arrival": _known(
        "llamacpp", "stats", "conv_id= (empty=", "a request was read: its prompt is tokenised next"
    ),
    "llamacpp_begin": _known(
        "llamacpp",
        "fact",
        "new prompt, n_ctx_slot",
        "a prompt begins, in a slot of this context",
        r"n_ctx_slot = (?P<max_model_len>\d+)",
    ),
    "llamacpp_slots": _known(
        "llamacpp", "fact", "n_ctx_slot", "context of one slot", r"n_ctx_slot = (?P<max_model_len>\d+)"
    ),
    "llamacpp_ready": _known("llamacpp", "ready", "listening on http", "start-up is over"),
    "llamacpp_request": _known("llamacpp", "request", "stop processing:", "a request ends"),
    "llamacpp_eval": _known(
        "llamacpp",
        "fact",
        "eval time =",
        "decode time of a request",
        r"(?<!prompt )(?:^|\| +|: +)eval time = +[\d.]+ ms / +(?P<out_tokens>\d+) tokens",
    ),
    "llamacpp_prompt_eval": _known("llamacpp", "stats", "prompt eval time =", "prefill time of a request"),
    "llamacpp_draft": _known("llamacpp", "fact", "draft acceptance =", "acceptance of a request"),
    "llamacpp_last_token": _known(
        "llamacpp",
        "advice",
        "need to evaluate at least 1 token",
        "a full prefix hit: the last token is computed again",
    ),
    "llamacpp_reprocess": _known(
        "llamacpp", "trouble", "forcing full prompt re-processing", "the prefix cache could not be used"
    ),
    "llamacpp_capped": _known(
        "llamacpp", "trouble", "exceeds the training context of the model", "the slot context is capped"
    ),
    "llamacpp_overflow": _known(
        "llamacpp",
        "trouble",
        "possible training context overflow",
        "the context is longer than the model was trained for",
    ),
    "llamacpp_too_long": _known(
        "llamacpp",
        "failure",
        "exceeds the available context size",
        "a prompt was refused: longer than a slot",
    ),
    # --- LMDeploy, Transformers, uvicorn ---
    "lmdeploy_stats": _known("lmdeploy", "stats", "Avg thr (in/out)", "throughput and KV usage"),
    "transformers_length": _known(
        "transformers",
        "advice",
        "Token indices sequence length is longer than",
        "advisory of the tokenizer's own length setting, often harmless; no limit of the server",
    ),
    "uvicorn_ready": _known("uvicorn", "ready", "Application startup complete", "start-up is over"),
    "request": _known(
        "uvicorn",
        "request",
        '"POST /',
        "one answered request",
        r'"POST /[^ "]*(?:completions|generate|messages|responses) HTTP',
    ),
    "traceback": _known("any", "failure", "Traceback (most recent call last)", "a Python traceback"),
    "out_of_memory": _known("any", "failure", "out of memory", "an allocation failed"),
}


def recognise(message: str) -> str | None:
    """Id of the known line that a message is, or `None`."""
    for name, known in KNOWN.items():
        if known.needle in message and (known.pattern is None or known.pattern.search(message)):
            return name
    return None
