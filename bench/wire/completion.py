"""One event of a completion stream: what servers put into it, and how it is read.

There are two readings. `read_event` takes everything: what servers fill differently is `Any` and looked
at in code, since a null, a list or a string in an unexpected place must not lose the event. `read_piece`
takes the kind that nearly all events of a stream are, one piece of text with or without the usage so far,
and saves looking at everything else: the types say that it is not there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from bench.records import Usage

_REPORTED_LIMIT = 512  # numbers kept of one reply; no server sends a tenth of it
_LARGEST_COUNT = 2**53

DECODE_ERRORS = (msgspec.DecodeError, RecursionError)
"""What reading text that is no such event raises."""


class Delta(Struct, gc=False):
    content: Any = None
    reasoning: Any = None
    reasoning_content: Any = None
    tool_calls: Any = None


class Choice(Struct, gc=False):
    delta: Delta | None = None
    text: Any = None
    finish_reason: Any = None


class Event(Struct, gc=False):
    choices: list[Choice] | None = None
    usage: Any = None
    error: Any = None
    timings: Any = None
    metrics: Any = None
    sglext: Any = None


read_event = msgspec.json.Decoder(Event).decode
"""Everything an event may hold. Raises `DECODE_ERRORS`."""

# The same fields for an event that holds one piece of text, perhaps with the usage so far, and nothing more.
_Count = Annotated[int, Meta(ge=0, le=_LARGEST_COUNT)]


class _PromptDetails(Struct, gc=False):
    cached_tokens: _Count | None = None


class _CompletionDetails(Struct, gc=False):
    reasoning_tokens: _Count | None = None


class PieceUsage(Struct, gc=False):
    prompt_tokens: _Count | None = None
    completion_tokens: _Count | None = None
    cached_tokens: _Count | None = None
    prompt_tokens_details: _PromptDetails | None = None
    completion_tokens_details: _CompletionDetails | None = None


class PieceDelta(Struct, gc=False):
    content: str | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    tool_calls: None = None


class PieceChoice(Struct, gc=False):
    delta: PieceDelta | None = None
    text: str | None = None
    finish_reason: None = None


class PieceEvent(Struct, gc=False):
    choices: Annotated[list[PieceChoice], Meta(min_length=1, max_length=1)]
    usage: PieceUsage | None = None
    error: None = None
    timings: None = None
    metrics: None = None
    sglext: None = None


read_piece = msgspec.json.Decoder(PieceEvent).decode
"""An event that holds no more than a piece of content or of reasoning (or both, or none). Raises
`DECODE_ERRORS` for every other."""


def parses(data: str) -> bool:
    """Whether a text is JSON at all."""
    try:
        msgspec.json.decode(data)
    except DECODE_ERRORS:
        return False
    return True


def count(value: Any) -> int | None:
    """A token count, or `None` for what cannot be one."""
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _LARGEST_COUNT:
        return value
    return None


def usage_of(raw: Any) -> Usage | None:
    """The token counts of an event's usage, in whichever reading it came."""
    if isinstance(raw, PieceUsage):
        raw = msgspec.to_builtins(raw)
    if not isinstance(raw, dict):
        return None
    prompt = raw.get("prompt_tokens_details")
    completion = raw.get("completion_tokens_details")
    cached = prompt.get("cached_tokens") if isinstance(prompt, dict) else raw.get("cached_tokens")
    reasoning = completion.get("reasoning_tokens") if isinstance(completion, dict) else None
    return Usage(
        prompt_tokens=count(raw.get("prompt_tokens")),
        completion_tokens=count(raw.get("completion_tokens")),
        cached_tokens=count(cached),
        reasoning_tokens=count(reasoning),
    )


def flatten(tree: dict[str, Any]) -> dict[str, float]:
    """Numbers of nested objects and lists under dotted names; everything else is left out."""
    flat: dict[str, float] = {}
    open_items = deque(tree.items())
    while open_items and len(flat) < _REPORTED_LIMIT:
        name, value = open_items.popleft()
        children: Sequence[tuple[Any, Any]] = ()
        if isinstance(value, int | float) and not isinstance(value, bool):
            if abs(value) <= 1e300:
                flat[name] = float(value)
        elif isinstance(value, dict):
            children = list(value.items())[:_REPORTED_LIMIT]
        elif isinstance(value, list) and len(value) <= 64:
            children = list(enumerate(value))
        open_items.extend((f"{name}.{key}", child) for key, child in children)
    return flat
