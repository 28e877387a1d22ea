"""Kinds of log lines: what a template's count follows (time, requests, output tokens, or nothing)."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from bench.analysis.logs.known import Role

LineKind = Literal[
    "one-shot",  # once, or once for each process at the same moment
    "start-up",  # several times, all of them before the server was ready, at each of its starts
    "per-request",  # its count follows the requests
    "flood",  # its count grows with output tokens
    "periodic",  # on a timer or every so many steps, by its meaning
    "recurring",  # again and again, following none of these
]

# A flood: at least this often, mostly within a second of each other, many times a request ...
FLOOD_COUNT = 50
FLOOD_NEAR = 0.5
FLOOD_PER_REQUEST = 20
# ... or, where the output tokens are known, with this share of them and well above the requests.
FLOOD_COUNT_KNOWN = 20
FLOOD_PER_TOKEN = 0.05
FLOOD_OVER_REQUESTS = 8
_BURST_SECONDS = 3
_AT_ONCE = 8


class Figures(Struct, frozen=True, kw_only=True):
    """What was counted of one template."""

    count: int
    near: int
    """Lines that came within the same second as the one before (without times: within three lines)."""
    seconds: int | None
    """Different seconds in which it came; `None` without times."""
    early: int
    """Lines before the server was ready."""
    segments: int
    """Requests (stretches between two request lines) in which it came."""
    most: int
    """Most lines in one of them."""
    role: Role | None = None


class Totals(Struct, frozen=True, kw_only=True):
    """What is known of the log as a whole."""

    requests: int | None
    output_tokens: int | None
    source: str | None
    """Where `output_tokens` is from; `given` when the client told."""
    ready: bool
    """Whether the end of a start-up was seen."""
    marked: bool
    """Whether the log shows where requests begin or end."""


def kind_of(figures: Figures, totals: Totals) -> tuple[LineKind, str]:
    """The kind of a template, and why, with the figures."""
    count, requests, tokens = figures.count, totals.requests, totals.output_tokens
    if count == 1:
        return "one-shot", "once"
    if figures.role == "stats":
        return "periodic", f"{count:,} times, on a timer or every so many steps"
    near = figures.near / (count - 1)
    if figures.role not in ("request", "failure") and _is_flood(figures, totals, near):
        ratio = f" for {tokens:,} output tokens ({count / tokens:.2f} a token)" if tokens else ""
        return "flood", f"{count:,} lines{ratio}, {near:.0%} of them within a second of the one before"
    if totals.ready and figures.early == count:
        return "start-up", f"{count:,} times before the server was ready"
    spread = figures.segments > 1 or not totals.marked
    if spread and requests and requests > 1 and 0.2 * requests <= count <= 4 * requests:
        return "per-request", f"{count:,} times for {requests:,} requests"
    if figures.segments > 1 and figures.most <= 4:
        return "per-request", f"in {figures.segments:,} requests, at most {figures.most} times in one"
    if count <= _AT_ONCE and near >= FLOOD_NEAR:
        return "one-shot", f"{count:,} times at once"
    return "recurring", f"{count:,} times"


def _is_flood(figures: Figures, totals: Totals, near: float) -> bool:
    count, tokens = figures.count, totals.output_tokens
    burst = figures.seconds is not None and figures.seconds < _BURST_SECONDS
    if burst and figures.early == count:
        return False  # a list that the server writes while it starts
    if tokens and count >= FLOOD_COUNT_KNOWN and count >= FLOOD_PER_TOKEN * tokens:
        requests = totals.requests or 1
        return count >= FLOOD_OVER_REQUESTS * requests and figures.most >= FLOOD_OVER_REQUESTS
    if totals.source == "given":
        return False  # the tokens are known, and this does not grow with them
    return count >= FLOOD_COUNT and near >= FLOOD_NEAR and count >= FLOOD_PER_REQUEST * figures.segments
