"""What really happened: served at `GET /truth`, and the measure of every client."""

from __future__ import annotations

from collections import deque

from msgspec import Struct, field


class RequestTruth(Struct, kw_only=True):
    """One generation request. Times ending in `_ns` are of this machine's monotonic clock.

    `due` is when the simulated server produced something by the laws of its profile; `sent` is when
    the bytes were handed to the socket. The difference is this program being late: an overrun.
    """

    id: str
    number: int
    """Counts generation requests from 1, since the start of the simulator."""
    endpoint: str
    faults: tuple[str, ...] = ()
    prompt_tokens: int
    """What was computed on; differs from what was sent under `truncated-prompt`."""
    max_tokens: int
    arrived_ns: int
    """When the request's head had been read: the zero of all laws."""
    status: int = 200
    cached_tokens: int = 0
    output_tokens: int = 0
    drafts: int = 0
    draft_tokens: int = 0
    accepted_tokens: int = 0
    over_limit_steps: int = 0
    preemptions: int = 0
    finish: str | None = None
    published: str | None = None
    """Id of the published row this request reproduces."""
    queue_s: float | None = None
    """Tokenised to scheduled for the first time, at this speed."""
    ttft_s: float | None = None
    """Arrival to first token, at this speed (as a client sees it)."""
    total_s: float | None = None
    full_ttft_s: float | None = None
    """The same before `--speed`: seconds of the server being simulated."""
    full_total_s: float | None = None
    chunk_due_ns: list[int] = field(default_factory=list)
    """Chunks with text only."""
    chunk_sent_ns: list[int] = field(default_factory=list)
    chunk_tokens: list[int] = field(default_factory=list)
    overrun_max_s: float = 0.0
    """How late the latest chunk was."""

    def chunk(self, due_ns: int, sent_ns: int, tokens: int) -> None:
        self.chunk_due_ns.append(due_ns)
        self.chunk_sent_ns.append(sent_ns)
        self.chunk_tokens.append(tokens)
        self.overrun_max_s = max(self.overrun_max_s, (sent_ns - due_ns) / 1e9)


class TokenizeTruth(Struct, kw_only=True):
    """One `/tokenize` request."""

    tokens: int
    arrived_ns: int
    due_ns: int
    sent_ns: int


class PageTruth(Struct, kw_only=True):
    """Any other request: a page, a list of models, ..., `/tokenize` too."""

    path: str
    arrived_ns: int
    sent_ns: int


class Truth(Struct, kw_only=True):
    """The whole page."""

    profile: str
    model: str
    speed: float
    faults: tuple[str, ...]
    block_size: int
    """Real tokens per block, whatever the metrics page says."""
    restarts: int = 0
    requests: list[RequestTruth] = field(default_factory=list)
    tokenize: list[TokenizeTruth] = field(default_factory=list)
    pages: list[PageTruth] = field(default_factory=list)


class Ledger:
    """Keeps the last requests; bounded, so that a long-running simulator stays small."""

    def __init__(self, kept: int = 2000) -> None:
        self.requests: deque[RequestTruth] = deque(maxlen=kept)
        self.tokenize: deque[TokenizeTruth] = deque(maxlen=kept)
        self.pages: deque[PageTruth] = deque(maxlen=kept)
