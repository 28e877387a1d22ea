"""What happened, raw."""

from __future__ import annotations

import struct
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

from msgspec import Meta, Struct

from bench.records.trial import PromptRecipe, Trial

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Purpose = Literal["trial", "warmup", "prime"]
"""What an exchange is for. `warmup`: other text, never measured. `prime`: puts a prompt into the cache
again before a replay is repeated; never measured either, but its prompt is known afterwards."""


Int64 = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
"""What an array holds: a journal with more is damaged."""


class Columns(NamedTuple):
    """All events, as arrays for arithmetic."""

    at_ns: NDArray[np.int64]
    chars: NDArray[np.int64]
    tokens: NDArray[np.int64]
    """Empty where the server did not say them in every event with text."""


class TextChunks(NamedTuple):
    """The events that carry text, as arrays for arithmetic; all of one length."""

    places: NDArray[np.intp]
    """Their places among all events."""
    at_ns: NDArray[np.int64]
    chars: NDArray[np.int64]
    tokens: NDArray[np.int64] | None
    """`None`: the server did not say them in every one."""


class Chunks(Struct, frozen=True, kw_only=True, dict=True):
    """The stream's events, column by column; all columns have one entry per event with a choice.

    Where another process has read them, a memoryview of numbers stands for a tuple: it has the same length
    and numbers, but is not equal to a tuple and cannot be written; `kinds` is empty then.
    """

    at_ns: tuple[Int64, ...] = ()
    """Nanoseconds after `sent`, stamped when the bytes arrived; events of one read share a stamp."""
    chars: tuple[Int64, ...] = ()
    """Characters of text in the event; 0 for role-only, empty and finish events."""
    kinds: str = ""
    """A letter an event: c content, r reasoning, t tool call, e empty (role-only, finish)."""
    tokens: tuple[Int64, ...] = ()
    """Completion tokens so far, where the server says so in every event with text; else empty. An event
    without text and count repeats the one before it."""
    finish: int | None = None
    """Place of the last event with a finish reason: what follows it is no part of the answer. `None`:
    there was none, or the journal was written before this was noted."""

    @cached_property
    def columns(self) -> Columns:
        """The columns as arrays. Made once, however many look: a journal has millions of events. No part of
        the record: they are neither written nor compared."""
        return Columns(_array(self.at_ns), _array(self.chars), _array(self.tokens))

    @cached_property
    def text(self) -> TextChunks:
        """The events with text; made once, too."""
        at_ns, chars, counts = self.columns
        tokens = counts if len(counts) == len(at_ns) else None
        places = (chars > 0).nonzero()[0]
        if not len(places) == len(chars) == len(at_ns):
            at_ns, chars = at_ns.take(places), chars.take(places)
            tokens = None if tokens is None else tokens.take(places)
        return TextChunks(places=places, at_ns=at_ns, chars=chars, tokens=tokens)

    @cached_property
    def gaps_ns(self) -> NDArray[np.int64]:
        """The times between events with text, shortest first; made once, too."""
        at_ns = self.text.at_ns
        gaps = at_ns[1:] - at_ns[:-1]
        gaps.sort()
        return gaps


def _array(column: tuple[int, ...] | memoryview) -> NDArray[np.int64]:
    """A column for arithmetic; by way of its bytes, since numpy looks at each number of a tuple twice."""
    import numpy as np

    data = column if isinstance(column, memoryview) else struct.pack(f"={len(column)}q", *column)
    return np.frombuffer(data, dtype=np.int64)


class Usage(Struct, frozen=True, kw_only=True):
    """The `usage` object of a reply; a field the server left out is `None`."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None


class Failure(Struct, frozen=True, kw_only=True):
    """Why an exchange did not succeed. A failed request is data, not an exception."""

    kind: Literal[
        "refused",  # nobody listens, DNS or TLS fails
        "connect_timeout",
        "upload_timeout",
        "first_token_timeout",
        "idle_timeout",
        "reset",  # the connection broke before the headers
        "truncated",  # the stream broke, or ended without finish reason and [DONE]
        "status",  # an HTTP status other than 200
        "error_event",  # an error inside the stream
        "malformed",  # an event that is no JSON, or no completion
        "no_tokens",  # success without a token
        "too_large",  # more bytes than any honest answer has
        "cancelled",  # Ctrl-C
    ]
    message: str
    """One sentence; nothing secret in it."""
    status: int | None = None
    body: str | None = None
    """Start of what the server said, at most 64 KiB."""


class Scrape(Struct, frozen=True, kw_only=True):
    """One metrics page, reduced to what its dialect knows; the page itself lies in `file`."""

    at_ns: int
    """Monotonic, when the page had arrived."""
    took_ns: int
    status: int | None = None
    file: str | None = None
    """Path of the raw page within the run directory."""
    values: dict[str, float] = {}
    """Canonical name -> value, engine labels summed for counters. Absent stays absent.
    Per-position counters are `accepted_tokens_per_pos.0`, `.1`, ..."""
    info: dict[str, str] = {}
    """Labels of the engine's configuration family (`cache_config_info`), as they stand."""
    unknown: tuple[str, ...] = ()
    """Canonical names, without suffix, that stand on the page and could not be read in full: neither in
    `values` nor absent."""
    problem: str | None = None
    """Why there is no (complete) page."""


class Samples(Struct, frozen=True, kw_only=True):
    """Gauges sampled during an exchange, column by column; a missing value is `None`."""

    at_ns: tuple[int, ...] = ()
    """Nanoseconds after `sent` (may be negative for the sample before it)."""
    took_ns: tuple[int, ...] = ()
    kv_usage: tuple[float | None, ...] = ()
    """Fraction 0 to 1."""
    running: tuple[float | None, ...] = ()
    waiting: tuple[float | None, ...] = ()
    drafts: tuple[float | None, ...] = ()
    """Counter values while decoding: they show where speculation stops within one exchange."""
    accepted_tokens: tuple[float | None, ...] = ()


class MachineSamples(Struct, frozen=True, kw_only=True):
    """What one exporter said of the machine under the server during an exchange, column by column."""

    source: str
    """Address of the exporter; `nvml`: the GPUs of the machine the client runs on."""
    at_ns: tuple[int, ...] = ()
    """Nanoseconds after `sent`, when the answer had come (may be negative)."""
    values: dict[str, tuple[float | None, ...]] = {}
    """Gauge of `engines/machine.GAUGES`, with its device behind a dot -> a value per look."""
    problem: str | None = None
    """What the last look that failed said."""


class ClientHealth(Struct, frozen=True, kw_only=True):
    """How late and how busy this client was during an exchange."""

    loop_lag_p50_ms: float
    loop_lag_p99_ms: float
    loop_lag_max_ms: float
    cpu_share: float
    """CPU seconds of this process per second of wall time."""
    gc_pauses: int | None = None
    """Runs of Python's garbage collector, all generations. `None`: not watched."""
    gc_pause_max_ms: float | None = None
    """The longest of them; every thread stood still meanwhile. 0 without any."""
    gc_pause_total_ms: float | None = None


class LogExcerpt(Struct, frozen=True, kw_only=True):
    """What the server's log said during one exchange, counted; the text itself lies in `file`."""

    file: str | None = None
    """Path of the excerpt within the run directory."""
    lines: int = 0
    """Lines that were counted."""
    omitted: int = 0
    """Bytes that were too many to be counted: the figures are then a lower bound."""
    levels: dict[str, int] = {}
    """Level as the log writes it -> lines; `none` without one."""
    known: dict[str, int] = {}
    """Lines of known meaning (`analysis/logs/known.py`) -> how many."""
    floods: tuple[str, ...] = ()
    """Templates whose count grows with the output tokens, with their figures."""
    problem: str | None = None
    """Why there is no (complete) excerpt."""


class Wave(Struct, frozen=True, kw_only=True):
    """The requests that were released together; the same in every exchange of a wave."""

    id: str
    """Unique in a run."""
    size: int
    """Requests of the wave."""
    released_ns: int
    """Monotonic; everything was prepared by then, and the requests were let go one right after another."""


class Exchange(Struct, frozen=True, kw_only=True, tag_field="kind", tag="exchange"):
    """What happened for one trial: the request, every read with its time stamp, and the answer.

    Raw and never edited. Times ending in `_ns` count from `sent`, except `sent_ns` itself
    (monotonic clock of this machine) and `connect_ns` (a duration before `sent`).
    """

    trial: Trial
    attempt: int = 1
    purpose: Purpose = "trial"
    engine: str = "generic"
    """Name of the dialect that explains `before` and `after`."""
    prompt: PromptRecipe
    url: str
    request: dict[str, object] = {}
    """The request body without the prompt."""
    started_at: str = ""
    """Wall clock, ISO 8601, UTC; only to find the exchange in a log."""
    sent_ns: int
    """Monotonic; just before the first request byte."""
    connect_ns: int | None = None
    """Time of opening (or reviving) the connection, before `sent`."""
    uploaded_ns: int | None = None
    """When the transport had taken the whole body: a lower bound of the upload."""
    headers_ns: int | None = None
    ended_ns: int
    status: int | None = None
    headers: dict[str, str] = {}
    read_ns: tuple[int, ...] = ()
    """Stamp of every read of the body."""
    read_bytes: tuple[int, ...] = ()
    chunks: Chunks = Chunks()
    text: str = ""
    """The answer: content, or completion text."""
    reasoning: str = ""
    tool_text: str = ""
    finish_reason: str | None = None
    done: bool = False
    """`[DONE]` was seen."""
    usage: Usage | None = None
    reported: dict[str, float] = {}
    """Numbers the reply itself carries (llama.cpp `timings.*`, vLLM `metrics.*`), flattened."""
    failure: Failure | None = None
    before: Scrape | None = None
    after: Scrape | None = None
    samples: Samples = Samples()
    machine: tuple[MachineSamples, ...] = ()
    """One per exporter of the route, and `nvml` where the server's GPUs are this machine's."""
    idle_wait_s: float | None = None
    """How long the server needed to become idle before this exchange."""
    settle_s: float | None = None
    """How long its counters needed to agree with the usage afterwards."""
    settled: bool = False
    client: ClientHealth | None = None
    log: LogExcerpt | None = None
    """`None`: the route names no log."""
    wave: Wave | None = None
    """`None`: sent alone. What exists once for a wave (`before`, `after`, `samples`, `machine`, `log`,
    `idle_wait_s`, `settle_s`, `settled`) stands in its first exchange in the journal, and in no other."""


class Event(Struct, frozen=True, kw_only=True, tag_field="kind", tag="event"):
    """Something in a run's life that is no exchange: a start, a resume, a restart, the end."""

    name: str
    at: str
    """Wall clock, ISO 8601, UTC."""
    message: str = ""
    data: dict[str, object] = {}
