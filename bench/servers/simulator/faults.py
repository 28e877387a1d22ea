"""Every way in which the simulated server can misbehave, by name.

`FAULTS` is the only list: the command line, the documentation and the tests read it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal

from msgspec import Struct

from bench.errors import SuiteError

Area = Literal["connection", "stream", "cache", "speculation", "metrics"]


class Fault(Struct, frozen=True):
    """One fault: its name, what it touches, what the server then does."""

    name: str
    area: Area
    about: str
    whole_life: bool = False
    """Cannot be limited to some requests or pages: it holds as long as the server lives."""


_CONNECTION = (
    Fault("refused", "connection", "The port is taken, but nobody listens: connections are refused.", True),
    Fault("loading", "connection", "The first three requests of any kind get 503; then all is well.", True),
    Fault("reset-upload", "connection", "The connection is reset when the first part of the body arrives."),
    Fault("hang-headers", "connection", "The request is taken, and no answer ever comes."),
    Fault("hang-stream", "connection", "The stream stops for ever after half of the tokens."),
    Fault("reset-stream", "connection", "The connection is reset after half of the tokens."),
    Fault("unauthorized", "connection", "401, as for a missing or wrong key."),
    Fault("model-missing", "connection", "404: the model does not exist."),
    Fault("too-large", "connection", "413 with an HTML page, as from a proxy with a body limit."),
    Fault("rate-limited", "connection", "429 with `Retry-After: 1`."),
    Fault("server-error", "connection", "500 with an error body."),
)
_STREAM = (
    Fault("role-early", "stream", "The role-only chunk comes at once, long before the first token."),
    Fault("wide-chunks", "stream", "A chunk carries the tokens of eight steps, the first one too."),
    Fault("buffered", "stream", "Everything is held back and delivered at once, as by a buffering proxy."),
    Fault("comments", "stream", "Comment lines (`: ping`) are sent while the prompt is prefilled."),
    Fault("crlf", "stream", "Lines end in CR LF."),
    Fault("multi-line-data", "stream", "Every event is spread over three `data:` lines."),
    Fault("utf8-split", "stream", "Text beyond ASCII, and every byte is written by itself."),
    Fault("line-separator", "stream", "The text holds U+2028, which is no line end in an event stream."),
    Fault("huge-line", "stream", "One event is 10 MB long."),
    Fault("malformed-json", "stream", "The third event is cut off JSON."),
    Fault("no-done", "stream", "The stream ends without `[DONE]`."),
    Fault("error-event", "stream", "After half of the tokens comes an error event, and then `[DONE]`."),
    Fault("empty-answer", "stream", "`[DONE]` without a single token, status 200."),
    Fault("usage-missing", "stream", "No usage, though it was asked for."),
    Fault("usage-null", "stream", "`usage: null` in every event."),
    Fault("usage-impossible", "stream", "Usage with negative and contradicting numbers."),
    Fault("reasoning", "stream", "Chat text comes in the field `reasoning`."),
    Fault("reasoning-content", "stream", "Chat text comes in the field `reasoning_content`."),
    Fault("tool-calls", "stream", "The chat answer is a tool call, its arguments in pieces."),
    Fault("early-stop", "stream", "The answer ends after half of its tokens (`stop`) despite `ignore_eos`."),
    Fault("clamped-output", "stream", "`max_tokens` is halved silently; the answer ends with `length`."),
    Fault("truncated-prompt", "stream", "The second half of the prompt is dropped silently."),
    Fault("count-off", "stream", "`usage.prompt_tokens` is three more than the server's own `/tokenize`."),
)
_CACHE = (
    Fault("salt-ignored", "cache", "Blocks are found again behind another salt: cold prompts hit.", True),
    Fault("evicts", "cache", "Nothing stays in the prefix cache: replays miss.", True),
    Fault("first-replay-misses", "cache", "The first replay of a prompt misses, the second one hits.", True),
    Fault("block-by-k", "cache", "Real blocks are 16 tokens per drafted token larger than shown.", True),
    Fault("no-cached-tokens", "cache", "Usage says nothing about cached tokens.", True),
    Fault("counters-stuck", "cache", "The prefix cache works, but its counters stay at 0.", True),
)
_SPECULATION = (
    Fault("speculation-off", "speculation", "Speculation is configured, and silently never happens.", True),
    Fault(
        "over-limit-no-drafts",
        "speculation",
        "The drafter keeps a quarter of the served length; past it nothing is drafted (one warning).",
        True,
    ),
    Fault(
        "over-limit-zero-accepted",
        "speculation",
        "The drafter keeps a quarter of the served length; past it drafts count, none is accepted.",
        True,
    ),
    Fault(
        "warning-per-step",
        "speculation",
        "Past the drafter limit (a quarter of the served length) every step writes a warning.",
        True,
    ),
    Fault("two-engines", "speculation", "Counters are spread over two `engine` labels."),
    Fault("positions-incomplete", "speculation", "The last per-position counter is missing."),
)
_METRICS = (
    Fault("metrics-404", "metrics", "There is no metrics page."),
    Fault("metrics-slow", "metrics", "The page takes two seconds (of the wall clock)."),
    Fault("metrics-empty", "metrics", "The page is empty."),
    Fault("metrics-nan", "metrics", "Gauges and prefix counters are NaN."),
    Fault(
        "metrics-malformed", "metrics", "Broken lines stand between the good ones, torn copies of some too."
    ),
    Fault("metrics-openmetrics", "metrics", "OpenMetrics names: `vllm_` samples, `# EOF` at the end."),
    Fault("metrics-no-process", "metrics", "No `process_*` families, as in multi-process mode."),
    Fault("metrics-late", "metrics", "The page is made twice a second and is stale in between.", True),
    Fault("counter-reset", "metrics", "All counters fall to 0 in the middle of a request."),
    Fault("restart", "metrics", "The server restarts in the middle of a request."),
    Fault("foreign-traffic", "metrics", "Somebody else's request comes with each of ours."),
)

FAULTS: dict[str, Fault] = {
    fault.name: fault for fault in (*_CONNECTION, *_STREAM, *_CACHE, *_SPECULATION, *_METRICS)
}

_USE = re.compile(r"(?P<name>[a-z0-9-]+?)(@(?P<first>[1-9]\d{0,6})(?P<open>-(?P<last>[1-9]\d{0,6})?)?)?")


class FaultUse(Struct, frozen=True, kw_only=True):
    """A fault, and the requests (for pages: the scrapes) it strikes, counted from 1."""

    name: str
    first: int = 1
    last: int | None = None

    def strikes(self, number: int) -> bool:
        return self.first <= number and (self.last is None or number <= self.last)


def parse_fault(text: str) -> FaultUse:
    """`name`, `name@3` (the third only), `name@2-4` or `name@2-` (from the second on).

    Generation requests count for the areas connection and stream, and for `counter-reset`,
    `restart` and `foreign-traffic`; metrics pages for the rest. Raises `SuiteError`.
    """
    match = _USE.fullmatch(text)
    fault = FAULTS.get(match["name"]) if match else None
    if match is None or fault is None:
        raise SuiteError(f"no simulator fault {text!r}; the faults are {', '.join(FAULTS)}")
    if match["first"] is None:
        return FaultUse(name=fault.name)
    if fault.whole_life:
        rest = text[len(fault.name) :]
        raise SuiteError(f"simulator fault {fault.name} lasts as long as the server; drop {rest!r}")
    first = int(match["first"])
    last = int(match["last"]) if match["last"] else None if match["open"] else first
    if last is not None and last < first:
        raise SuiteError(f"simulator fault {text!r}: the range ends before it begins")
    return FaultUse(name=fault.name, first=first, last=last)


class Faults:
    """The faults of one server."""

    def __init__(self, uses: Iterable[str] = ()) -> None:
        self.uses = tuple(parse_fault(text) for text in uses)
        self.names = frozenset(use.name for use in self.uses)

    def __contains__(self, name: object) -> bool:
        """Whether the server has the fault at all."""
        return name in self.names

    def at(self, number: int) -> frozenset[str]:
        """The faults that strike the request (or page) of that number."""
        return frozenset(use.name for use in self.uses if use.strikes(number))
