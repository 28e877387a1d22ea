"""Sums over everything that was watched: a fixed amount of memory, however long it lasts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from bench.analysis.watch.described import Watched

_SUMMED = (
    "failed",
    "aborted",
    "prompt_tokens",
    "cached_tokens",
    "output_tokens",
    "drafts",
    "draft_tokens",
    "accepted_tokens",
    "preemptions",
)
_SPANNED = ("server_ttft_s", "queue_s", "decode_tok_s", "kv_usage_peak")


@dataclass(slots=True)
class Totals:
    """Running sums; a name is missing where nothing watched had it."""

    windows: int = 0
    """Requests alone and windows of several, together."""
    alone: int = 0
    """Requests that could be told apart."""
    requests: int = 0
    """All requests, those in windows that cannot be split included, where the engine counts them."""
    uncounted_windows: int = 0
    """Windows of an unknown number of requests."""
    restarts: int = 0
    sums: dict[str, float] = field(default_factory=dict)
    spans: dict[str, tuple[float, float]] = field(default_factory=dict)
    """Smallest and largest value over the requests that were alone (the peak: over all windows)."""
    reused: float = 0.0
    """Reused tokens of prompts that are counted whole."""
    reused_of: float = 0.0
    """Tokens of these prompts."""

    def add(self, one: Watched) -> None:
        """Takes in the next request, window or restart."""
        self.windows += 1
        self.alone += one.kind == "request"
        self.restarts += one.kind == "restart"
        self.requests += one.requests or 0
        if one.requests is None and one.kind == "window":
            self.uncounted_windows += 1
        for name in _SUMMED:
            value = getattr(one, name)
            if value is not None:
                self.sums[name] = self.sums.get(name, 0) + value
        if one.prefix_reuse is not None:
            self.reused += one.cached_tokens or 0
            self.reused_of += one.prompt_tokens or 0
        for name in _SPANNED:
            value = getattr(one, name)
            if value is not None and (one.kind == "request" or name == "kv_usage_peak"):
                low, high = self.spans.get(name, (value, value))
                self.spans[name] = (min(low, value), max(high, value))

    @property
    def prefix_reuse(self) -> float | None:
        """Reused prompt tokens of all prompt tokens of which that is known."""
        return self.reused / self.reused_of if self.reused_of else None

    @property
    def acceptance(self) -> float | None:
        """Accepted of all drafted tokens."""
        drafted = self.sums.get("draft_tokens")
        return self.sums.get("accepted_tokens", 0.0) / drafted if drafted else None

    @property
    def acceptance_length(self) -> float | None:
        """1 + accepted tokens per draft."""
        drafts = self.sums.get("drafts")
        return 1 + self.sums.get("accepted_tokens", 0.0) / drafts if drafts else None


def total(watched: Iterable[Watched]) -> Totals:
    """The totals of a series."""
    totals = Totals()
    for one in watched:
        totals.add(one)
    return totals
