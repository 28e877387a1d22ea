"""What run.json says."""

from __future__ import annotations

from msgspec import Struct

from bench.records.suite import Suite
from bench.records.trial import Trial


class ServerFacts(Struct, frozen=True, kw_only=True):
    """What one route's server says about itself; `None` where it does not."""

    engine: str = "generic"
    version: str | None = None
    model: str | None = None
    max_model_len: int | None = None
    block_size: int | None = None
    """Tokens per prefix-cache block."""
    kv_capacity_tokens: int | None = None
    num_speculative_tokens: int | None = None
    """k as the server shows it (number of per-position counters, flags)."""
    drafter_limit: int | None = None
    """Longest sequence the drafter takes part in."""
    past_drafter_limit: tuple[str, ...] = ()
    """What this engine version does past it (`engines/context_records.PastLimit`); empty: not known."""
    prefix_caching: bool | None = None
    reports_cached_tokens: bool | None = None
    started_at: float | None = None
    """The server's process start time where it tells (Unix seconds, or any constant)."""
    flags: dict[str, str] = {}
    sources: dict[str, str] = {}
    """Field name -> where it was read."""


class TokenizerIdentity(Struct, frozen=True, kw_only=True):
    """Which tokenizer counted the prompts."""

    kind: str
    """`tiktoken`, `tokenizers`, `server`."""
    name: str
    sha256: str
    vocabulary: int


class RunInfo(Struct, frozen=True, kw_only=True):
    """run.json: everything about a run that is known before its first exchange."""

    schema: int
    id: str
    """Name of the run directory."""
    created_at: str
    nonce: str
    """Random; part of every salt, so that no two runs share a prompt."""
    suite: Suite
    suite_text: str
    """The suite file as read."""
    folder: str | None = None
    """Where the suite's relative paths start, absolute; `None`: a run that did not record it yet."""
    plan: tuple[Trial, ...]
    facts: dict[str, ServerFacts] = {}
    """By route."""
    tokenizers: dict[str, TokenizerIdentity] = {}
    """By route."""
    chats: dict[str, str] = {}
    """Recorded chats by file and place: the hash of each."""
    environment: dict[str, str] = {}
    notes: tuple[str, ...] = ()
    """What the reader must know: unpaired routes, forced checks, TLS not verified, ..."""
