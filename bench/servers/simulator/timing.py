"""The laws of time of a simulated server: pure functions, in seconds of the server being simulated.

Everything here is before `--speed`, which divides all durations alike later on.

=============  ==========================================================================
tokenise       n / tokenize_tok_s
admission      start_s + cached_token_s * p       (p tokens come from the prefix cache)
prefill        token_s * (n - p) + token2_s * (n^2 - p^2)      for the tokens [p, n)
decode step    step_s + draft_s * k
               + sum over sequences of (context_s + draft_context_s * k) * context
               + sequence_s for every sequence after the first
=============  ==========================================================================

The prefill law is additive: the chunks of a chunked prefill cost together what one piece costs.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct


class Timing(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Coefficients of the laws above; a profile's `[timing]` table."""

    tokenize_tok_s: float
    """Tokens per second of the tokenizer (one request at a time)."""
    start_s: float
    """Once per request, with its first prefill chunk."""
    token_s: float
    """Per prompt token computed: the linear part of prefill."""
    token2_s: float
    """Per (prompt token)^2: attention."""
    cached_token_s: float = 0.0
    """Per prompt token found in the prefix cache (hashing and looking up blocks, restoring states)."""
    step_s: float
    """A decode step of one sequence without context and without drafting."""
    draft_s: float = 0.0
    """Per drafted token and step."""
    context_s: float = 0.0
    """Per context token and step."""
    draft_context_s: float = 0.0
    """Per context token, drafted token and step."""
    sequence_s: float = 0.0
    """Per further sequence in the same decode step."""


def tokenize_time_s(timing: Timing, tokens: int) -> float:
    """How long the server tokenises a prompt of `tokens` tokens."""
    return tokens / timing.tokenize_tok_s


def admission_s(timing: Timing, cached: int) -> float:
    """What a request costs before its first chunk: a constant, and the cached prefix' overhead."""
    return timing.start_s + timing.cached_token_s * cached


def prefill_s(timing: Timing, begin: int, end: int) -> float:
    """Prefill of the tokens [begin, end), with everything before `begin` already computed."""
    return timing.token_s * (end - begin) + timing.token2_s * (end * end - begin * begin)


def decode_step_s(timing: Timing, contexts: Sequence[int], drafted: int) -> float:
    """One decode step of a batch; `contexts` are the tokens each sequence attends to.

    `drafted` is k, the tokens drafted and verified per sequence (0: no speculation).
    """
    slope = timing.context_s + timing.draft_context_s * drafted
    further = timing.sequence_s * max(0, len(contexts) - 1)
    return timing.step_s + timing.draft_s * drafted + slope * sum(contexts) + further


def cold_ttft_s(timing: Timing, tokens: int) -> float:
    """First token of a request that is alone and finds nothing in the cache."""
    return tokenize_time_s(timing, tokens) + admission_s(timing, 0) + prefill_s(timing, 0, tokens)
