"""Facts that a server's log states about its setup, of its latest life."""

from __future__ import annotations

import re
from typing import cast

import msgspec
from msgspec import Struct

from bench.analysis.logs.known import KNOWN
from bench.records import ServerFacts

_LENGTHS_MAX = 8
_STATS_INTERVAL_S = 10.0
"""vLLM writes its throughput line every ten seconds (VLLM_LOG_STATS_INTERVAL)."""
_WHOLE = {"max_model_len", "drafter_limit", "block_size", "kv_tokens", "out_tokens", "length", "kv_blocks"}
_MODEL_FREE = ("ngram", "suffix")


class LogFacts(Struct, frozen=True, kw_only=True):
    """What the log says; a field it does not state is `None`."""

    engine: str | None = None
    version: str | None = None
    model: str | None = None
    max_model_len: int | None = None
    drafter_limit: int | None = None
    """From the second "Using max model len" (vLLM prints it twice with a drafter), or a later cut."""
    kv_tokens: int | None = None
    concurrency: float | None = None
    """Full-length requests that fit into the KV cache."""
    block_size: int | None = None
    """Only where the log states it: the enlarged block of hybrid models."""
    speculation_method: str | None = None
    num_speculative_tokens: int | None = None
    prefix_caching: bool | None = None
    runner: str | None = None
    """vLLM's model runner, `v1` or `v2`, where the log names it."""
    flags: dict[str, str] = {}
    """Arguments and configuration that bear on speed (`FLAGS`), as vLLM writes them at its start."""
    lines: dict[str, int] = {}
    """Field -> line number it was read from."""

    def server_facts(self) -> ServerFacts:
        """The same as the record that other floors use, with the log as the source of every field."""
        fields = {
            "engine": self.engine or "generic",
            "version": self.version,
            "model": self.model,
            "max_model_len": self.max_model_len,
            "block_size": self.block_size,
            "kv_capacity_tokens": self.kv_tokens,
            "num_speculative_tokens": self.num_speculative_tokens,
            "drafter_limit": self.drafter_limit,
            "prefix_caching": self.prefix_caching,
        }
        renamed = {"kv_tokens": "kv_capacity_tokens"}
        sources = {renamed.get(name, name): f"server log, line {line}" for name, line in self.lines.items()}
        stated = {name: source for name, source in sources.items() if fields.get(name) is not None}
        extra = {"model_runner": self.runner, "full_length_requests": self.concurrency}
        flags = {**self.flags, **{name: str(value) for name, value in extra.items() if value is not None}}
        return ServerFacts(**fields, flags=flags, sources=stated)  # type: ignore[arg-type]


class MergedFacts(Struct, frozen=True, kw_only=True):
    """Facts of a server, completed from its log."""

    facts: ServerFacts
    problem: str | None = None
    """Why the log is not believed: it contradicts the server, so it is another one's, or an older start's."""


_FILLED = (
    "max_model_len",
    "block_size",
    "kv_capacity_tokens",
    "num_speculative_tokens",
    "drafter_limit",
    "prefix_caching",
)
_MUST_AGREE = {"max_model_len": "maximum length", "num_speculative_tokens": "speculative tokens"}


def merge_log_facts(said: ServerFacts, logged: ServerFacts) -> MergedFacts:
    """What the server says of itself, and from its log what it does not say.

    Where both exist the server's own word stays; `sources` tells of every field where it was read. A
    log that names another length, k or version is not this server's, and nothing of it is used.
    """
    for name, words in _MUST_AGREE.items():
        own, theirs = getattr(said, name), getattr(logged, name)
        if own is not None and theirs is not None and own != theirs:
            return _contradicted(said, words, f"{own:,}", f"{theirs:,}", logged.sources.get(name))
    same_engine = said.engine == logged.engine
    if same_engine and said.version and logged.version and not _same_version(said.version, logged.version):
        return _contradicted(said, "version", said.version, logged.version, logged.sources.get("version"))
    fields = (*_FILLED, "version") if same_engine else _FILLED
    new = {name: getattr(logged, name) for name in fields if getattr(said, name) is None}
    new = {name: value for name, value in new.items() if value is not None}
    facts = msgspec.structs.replace(
        said,
        **new,
        flags={**logged.flags, **said.flags},
        sources={**{n: logged.sources.get(n, "server log") for n in new}, **said.sources},
    )
    return MergedFacts(facts=facts)


def _contradicted(said: ServerFacts, what: str, own: str, theirs: str, source: str | None) -> MergedFacts:
    text = f"the server says {what} {own}, the log {theirs} ({source or 'server log'}): is it this server's?"
    return MergedFacts(facts=said, problem=f"{text} Nothing in it is used as a fact")


def _same_version(one: str, other: str) -> bool:
    """Up to what a build appends: `0.32.0` and `0.32.0+cpu` are the same."""
    return one.partition("+")[0].removeprefix("v") == other.partition("+")[0].removeprefix("v")


class FactBook:
    """Collects facts line by line; a new start of the server opens a new page."""

    def __init__(self) -> None:
        self.starts = 0
        self.output_tokens = 0.0
        self.output_tokens_exact = True
        self._facts: dict[str, object] = {}
        self._lines: dict[str, int] = {}
        self._lengths: list[int] = []

    def take(self, known_id: str, message: str, number: int) -> None:
        """Note what one recognised line states."""
        known = KNOWN[known_id]
        if known.role == "start":
            self._new_life(known.engine)
        if known.pattern is None:
            return
        match = known.pattern.search(message)
        for name, text in match.groupdict().items() if match else ():
            if text is not None:
                self._note(name, text, number)
        if known.engine in ("vllm", "sglang", "llamacpp", "1cat-vllm") and known.role == "fact":
            self._facts.setdefault("engine", known.engine)

    def facts(self) -> LogFacts:
        facts, lines = dict(self._facts), dict(self._lines)
        if self._lengths:
            facts.setdefault("max_model_len", self._lengths[0])
            lines.setdefault("max_model_len", lines.get("length", 0))
            drafts = str(facts.get("speculation_method") or "mtp").lower()
            if len(self._lengths) > 1 and not drafts.startswith(_MODEL_FREE):
                facts.setdefault("drafter_limit", min(self._lengths[:2]))
                lines.setdefault("drafter_limit", lines.get("length", 0))
        known = set(LogFacts.__struct_fields__) - {"lines"}
        stated = {name: value for name, value in facts.items() if name in known}
        return LogFacts(**stated, lines={n: at for n, at in lines.items() if n in stated})  # type: ignore[arg-type]

    def _new_life(self, engine: str) -> None:
        self.starts += 1
        self._facts, self._lines, self._lengths = {"engine": engine}, {}, []

    def _note(self, name: str, text: str, number: int) -> None:
        if name in _WHOLE:
            digits = text.replace(",", "")
            if len(digits) > 15:
                return  # no number of tokens
            whole = int(digits)
        if name == "length":
            if self._lengths and "kv_tokens" in self._facts:  # a new start, without a line that says so
                self.starts = max(1, self.starts)
                self._new_life(str(self._facts.get("engine", "vllm")))
            if len(self._lengths) < _LENGTHS_MAX:
                self._lengths.append(whole)
                self._lines["length"] = number
        elif name == "out_tokens":
            self.output_tokens += whole
        elif name == "gen_tok_s":
            self.output_tokens += float(text[:12]) * _STATS_INTERVAL_S
            self.output_tokens_exact = False
        elif name in ("config", "args"):
            self._configuration(text, number)
            self._flags(text, arguments=name == "args")
        elif name == "concurrency":
            self._keep(name, float(text[:15]), number)
        elif name in _WHOLE:
            self._keep(name, whole, number)
        elif name == "version":
            self._keep(name, text[:40], number)
        elif name == "runner":
            self._keep(name, text.lower(), number)

    def _keep(self, name: str, value: object, number: int) -> None:
        self._facts[name] = value
        self._lines[name] = number

    def _configuration(self, text: str, number: int) -> None:
        """What vLLM's line of arguments, or of its configuration, says about speculation and caching."""
        for name, pattern in _CONFIGURATION.items():
            match = pattern.search(text)
            if match is None:
                continue
            value: object = match[1]
            if name == "num_speculative_tokens":
                value = int(match[1])
            elif name == "prefix_caching":
                value = match[1] == "True"
            self._keep(name, value, number)

    def _flags(self, text: str, *, arguments: bool) -> None:
        """Of a list of names and values only what is known to be no secret; the rest may hold keys.

        `arguments`: the line lists all that differ from their default.
        """
        flags = dict(cast(dict[str, str], self._facts.get("flags", {})))
        for name, pattern in FLAGS.items():
            if match := pattern.search(text):
                flags[name] = match[1].strip("'")
            elif arguments and name in _ARGUMENTS:
                flags.setdefault(name, "default")
        self._facts["flags"] = flags


_ARGUMENTS = ("max_num_seqs", "max_num_batched_tokens", "gpu_memory_utilization", "cpu_offload_gb")
"""Flags that only the line of arguments names."""
FLAGS = {
    name: re.compile(rf"\b{name}(?:=|': )('[\w./+-]{{0,60}}'|[\w./+-]{{1,60}})")
    for name in (
        *_ARGUMENTS,
        "dtype",
        "quantization",
        "kv_cache_dtype",
        "tensor_parallel_size",
        "pipeline_parallel_size",
        "data_parallel_size",
        "enforce_eager",
        "enable_chunked_prefill",
        "attention_backend",
        "mamba_cache_mode",
    )
}
"""What is taken of vLLM's lines of arguments and configuration, besides model and speculation."""

_CONFIGURATION = {
    "model": re.compile(r"(?:^|[ ,{'])model(?:'?: |=)'([^']{1,200})'"),
    "speculation_method": re.compile(r"(?:SpeculativeConfig\(method=|'method': )'(\w{1,40})'"),
    "num_speculative_tokens": re.compile(r"(?:num_spec_tokens=|'num_speculative_tokens': )(\d{1,4})\b"),
    "prefix_caching": re.compile(r"enable_prefix_caching(?:=|': )(True|False)"),
}
