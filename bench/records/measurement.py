"""The numbers of one exchange."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from bench.records.exchange import Failure
from bench.records.suite import Condition

Speculated = Literal["none", "as declared", "off", "fallback", "crosses", "unknown"]
"""What speculation did in an exchange. `fallback`: past the drafter limit, target-only in effect;
`crosses`: passed it while decoding."""


class Reason(Struct, frozen=True, kw_only=True):
    """Why a measurement is invalid, or what its reader must know."""

    id: str
    """Key into the table of reasons (`analysis/verdicts/reasons.py`)."""
    detail: str = ""
    """The figures of this case."""


class Verdict(Struct, frozen=True, kw_only=True):
    """Whether a measurement may enter a statistic."""

    valid: bool
    reasons: tuple[Reason, ...] = ()
    """Why it is invalid; empty when valid."""
    warnings: tuple[Reason, ...] = ()
    """What does not invalidate it but must be shown."""
    reuse: Literal["held", "missed", "unprovable", "disagree", "unknown"] = "unknown"
    """What the witnesses say of the condition (cold: nothing reused, replay: all but the last block)."""
    speculation: Speculated = "unknown"


class Window(Struct, frozen=True, kw_only=True):
    """What a wave did as a whole: counters cannot be split between requests that ran together."""

    id: str
    """The wave's."""
    size: int
    """Requests released together."""
    span_s: float | None = None
    """From the release to the last chunk with text or finish reason of the last request; of one that failed,
    to the moment it was refused or given up."""
    prompt_tokens: int | None = None
    """Sum over the requests, like `output_tokens`, `cached_tokens` and `expected_cached`."""
    output_tokens: int | None = None
    cached_tokens: int | None = None
    cached_source: str = ""
    """`usage`, or the counter that tells."""
    expected_cached: int | None = None
    drafts: int | None = None
    draft_tokens: int | None = None
    accepted_tokens: int | None = None
    queue_s: float | None = None
    """Mean time in the server's queue, by its own histogram."""
    preemptions: int | None = None
    kv_usage_peak: float | None = None
    running_peak: float | None = None
    waiting_peak: float | None = None
    waiting_mean: float | None = None
    """Of the samples during the wave."""


class Measurement(Struct, frozen=True, kw_only=True):
    """The numbers of one exchange, each computed once. DESIGN section 2 defines every quantity.

    `sources` names the witness of a number, `absent` says why one is `None`; both by field name.
    """

    trial_id: str
    source: str = ""
    """Run or table it came from; tells routes of equal name apart."""
    route: str
    tier: int
    condition: Condition
    repeat: int = 1
    replay: int = 0
    task: str = "continue"
    attempt: int = 1
    concurrency: int = 1
    """Requests released together, this one included; `analysis/statistics/levels.py` is about more than 1."""
    stream: int = 0
    """Place in the wave, from 1; 0: sent alone."""
    chat: str = ""
    """Of a turn: file and place of its chat; `analysis/statistics/chats.py` is about these."""
    turn: int = 0
    """Of a turn: which one, from 1."""
    order: int = 0
    """Place in the run, from 0: for drift."""
    pair: str | None = None
    """Hash of the prompt as it was sent: equal ones are byte-identical prompts. `None`: a table that does
    not tell."""
    text_key: str = ""
    """Name of the prompt's text, whatever stands before it: equal for all trials, attempts, routes and runs
    that were sent this text. Empty: not known, so the prompt's hash has to tell."""

    prompt_tokens: int | None = None
    output_tokens: int | None = None
    ttft_s: float | None = None
    first_response_s: float | None = None
    total_s: float | None = None
    first_chunk_tokens: int = 1
    """c0: tokens in the first text chunk."""
    text_chunks: int | None = None
    decode_tok_s: float | None = None
    tpot_s: float | None = None
    icl_p50_s: float | None = None
    icl_p99_s: float | None = None
    icl_max_s: float | None = None
    uploaded_s: float | None = None
    connect_s: float | None = None

    drafts: int | None = None
    draft_tokens: int | None = None
    accepted_tokens: int | None = None
    acceptance: float | None = None
    acceptance_length: float | None = None
    acceptance_per_position: tuple[float, ...] | None = None

    cached_tokens: int | None = None
    """Of the best witness (see `sources`)."""
    cached_usage: int | None = None
    cached_counter: int | None = None
    expected_cached: int | None = None
    """What the rule of DESIGN section 8 expects of a replay, or of a turn behind another."""
    prefix_reuse: float | None = None
    """cached_tokens / prompt_tokens."""

    kv_usage_peak: float | None = None
    kv_usage_mean: float | None = None
    """Mean of the samples during the exchange."""
    running_peak: float | None = None
    waiting_peak: float | None = None
    preemptions: int | None = None
    server_ttft_s: float | None = None
    queue_s: float | None = None
    prefill_s: float | None = None
    server_decode_s: float | None = None

    finish_reason: str | None = None
    text_sha256: str | None = None
    client_uncertainty_s: float | None = None
    failure: Failure | None = None
    window: Window | None = None
    """What its wave did as a whole; `None`: sent alone."""
    sources: dict[str, str] = {}
    absent: dict[str, str] = {}
    verdict: Verdict
