"""From the reads of a stream to the answer in it: pure, after the fact, off the hot path.

`decode` takes what the wire recorded (stamps and bytes) and says what the server answered: text by
kind, chunks with their times, finish reason, usage, the server's own figures, and what was wrong.
It knows the dialects of OpenAI-compatible servers, whatever the engine: nothing here asks which
engine it is.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from bench.records import Chunks, Endpoint, Failure, Usage
from bench.wire.sse import SseEvent, SseParser

BODY_LIMIT = 64 * 1024
"""Characters of a server's words that are kept with a failure."""
_REPORTED_LIMIT = 512  # numbers kept of one reply; no server sends a tenth of it
_LARGEST_COUNT = 2**53


class Answer(Struct, frozen=True, kw_only=True):
    """What one stream said. Times are nanoseconds after `sent`."""

    chunks: Chunks = Chunks()
    text: str = ""
    """Content of a chat answer, or completion text."""
    reasoning: str = ""
    tool_text: str = ""
    """Arguments of tool calls, in the order in which they came."""
    finish_reason: str | None = None
    done: bool = False
    """`[DONE]` was seen."""
    usage: Usage | None = None
    reported: dict[str, float] = {}
    """Numbers the reply carries under `timings`, `metrics` and `sglext`, flattened with dots."""
    failure: Failure | None = None
    """`error_event`, `malformed`, `truncated` or `no_tokens`; the first two win over the others."""
    notes: tuple[str, ...] = ()
    """Oddities that are no failure, in words."""


# What an event may hold. Everything that servers fill differently is `Any` and looked at in code:
# a null, a list or a string in an unexpected place must not lose the event.
class _Delta(Struct):
    content: Any = None
    reasoning: Any = None
    reasoning_content: Any = None
    tool_calls: Any = None


class _Choice(Struct):
    delta: _Delta | None = None
    text: Any = None
    finish_reason: Any = None
    index: Any = 0


class _Event(Struct):
    choices: list[_Choice] | None = None
    usage: Any = None
    error: Any = None
    timings: Any = None
    metrics: Any = None
    sglext: Any = None


_decode_event = msgspec.json.Decoder(_Event).decode


def decode(reads: Iterable[tuple[int, bytes]], endpoint: Endpoint) -> Answer:
    """The answer in `reads`: pairs of (nanoseconds after `sent`, bytes of one read), in order.

    Never raises: whatever a server sends ends in the answer or in its `failure`.
    """
    decoder = StreamDecoder(endpoint)
    for at_ns, data in reads:
        decoder.feed(at_ns, data)
    return decoder.finish()


class StreamDecoder:
    """`decode` in portions, for streams that are too long to keep or to decode in one go."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._parser = SseParser()
        self._at: array[int] = array("q")
        self._chars: array[int] = array("q")
        self._tokens: array[int] = array("q")  # -1: the event did not say
        self._kinds = bytearray()
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._tool: list[str] = []
        self._reported: dict[str, Any] = {}
        self._head = bytearray()  # of the body, until the first event: a server may not stream at all
        self._ignored: dict[str, int] = {}
        self._finish: str | None = None
        self._usage: Any = None
        self._failure: Failure | None = None
        self._events = 0
        self._done = False

    @property
    def has_text(self) -> bool:
        """Whether any content, reasoning or tool-call argument has come."""
        return bool(self._text or self._reasoning or self._tool)

    @property
    def done(self) -> bool:
        """Whether `[DONE]` has come."""
        return self._done

    def feed(self, at_ns: int, data: bytes) -> None:
        """Take one read, stamped `at_ns` nanoseconds after `sent`."""
        if not self._events and len(self._head) < BODY_LIMIT:
            self._head += data[:BODY_LIMIT]
        for event in self._parser.feed(data):
            self._take(at_ns, event)

    def finish(self) -> Answer:
        """The stream is over: what it said."""
        last = self._at[-1] if self._at else 0
        for event in self._parser.close():
            # Cut off in the middle, or only the last blank line forgotten? The text itself tells.
            if event.data.strip() == "[DONE]" or _parses(event.data):
                self._take(last, event)
            else:
                self._note("an event was cut off by the end of the stream")
        usage = _usage(self._usage)
        if self._parser.comments:
            self._note("comment lines (keep-alive)", self._parser.comments)
        return Answer(
            chunks=Chunks(
                at_ns=tuple(self._at),
                chars=tuple(self._chars),
                kinds=self._kinds.decode("ascii"),
                tokens=() if not self._tokens or -1 in self._tokens else tuple(self._tokens),
            ),
            text="".join(self._text),
            reasoning="".join(self._reasoning),
            tool_text="".join(self._tool),
            finish_reason=self._finish,
            done=self._done,
            usage=usage,
            reported=_flatten(self._reported),
            failure=self._failure or self._verdict(usage),
            notes=tuple(f"{what}: {n}" if n > 1 else what for what, n in self._ignored.items()),
        )

    def _take(self, at_ns: int, event: SseEvent) -> None:
        self._events += 1
        data = event.data
        if self._done:
            self._note("events after [DONE] were ignored")
            return
        try:
            parsed = _decode_event(data)
        except (msgspec.DecodeError, RecursionError):
            self._no_json(event)
            return
        if event.event == "error" or parsed.error is not None:
            self._fail("error_event", _error_message(parsed.error, data), data)
        elif event.event not in ("", "message"):
            self._note(f"events of type {event.event[:40]!r} were ignored")
        else:
            self._completion(at_ns, parsed, data)

    def _no_json(self, event: SseEvent) -> None:
        data = event.data
        if data.strip() == "[DONE]":
            self._done = True
        elif event.event == "error":
            self._fail("error_event", f"the server sent an error inside the stream: {short(data)}", data)
        elif event.event in ("", "message"):
            what = "no completion" if _parses(data) else "no JSON"
            self._fail("malformed", f"the server sent an event that is {what}: {short(data)}", data)

    def _completion(self, at_ns: int, parsed: _Event, data: str) -> None:
        if parsed.usage is not None:
            self._usage = parsed.usage
        for name in ("timings", "metrics", "sglext"):
            value = getattr(parsed, name)
            if value is not None:
                self._reported[name] = value
        choices = parsed.choices
        if choices:
            self._choice(at_ns, choices[0], parsed.usage)
            if len(choices) > 1:
                self._note("choices beyond the first were ignored")
        elif choices is None and parsed.usage is None and not (parsed.timings or parsed.metrics):
            self._fail("malformed", f"the server sent an event that is no completion: {short(data)}", data)

    def _choice(self, at_ns: int, choice: _Choice, usage: Any) -> None:
        delta = choice.delta
        chars = 0
        kind = "e"
        if delta is None:
            if isinstance(choice.text, str) and choice.text:
                kind, chars = "c", len(choice.text)
                self._text.append(choice.text)
        else:
            if delta.tool_calls:
                kind, chars = self._tools(delta.tool_calls)
            reasoning = delta.reasoning or delta.reasoning_content
            if isinstance(reasoning, str) and reasoning:
                kind, chars = "r", chars + len(reasoning)
                self._reasoning.append(reasoning)
            if isinstance(delta.content, str) and delta.content:
                kind, chars = "c", chars + len(delta.content)
                self._text.append(delta.content)
        if isinstance(choice.finish_reason, str):
            self._finish = choice.finish_reason
        self._at.append(at_ns)
        self._chars.append(chars)
        self._kinds += kind.encode()
        so_far = _count(usage.get("completion_tokens")) if isinstance(usage, dict) else None
        self._tokens.append(-1 if so_far is None else so_far)

    def _tools(self, calls: Any) -> tuple[str, int]:
        chars = 0
        for call in calls if isinstance(calls, list) else ():
            function = call.get("function") if isinstance(call, dict) else None
            arguments = function.get("arguments") if isinstance(function, dict) else None
            if isinstance(arguments, str) and arguments:
                self._tool.append(arguments)
                chars += len(arguments)
        return ("t", chars) if chars else ("e", 0)

    def _verdict(self, usage: Usage | None) -> Failure | None:
        if not self._events and self._head.strip():
            return _not_a_stream(bytes(self._head))
        if self._finish is None and not self._done:
            return Failure(kind="truncated", message="the stream ended without a finish reason and [DONE]")
        if not self.has_text:
            tokens = usage.completion_tokens if usage else None
            counted = f", though usage counts {tokens} tokens" if tokens else ""
            return Failure(kind="no_tokens", message=f"the answer holds no text{counted}")
        if usage is not None and usage.completion_tokens == 0:
            return Failure(kind="no_tokens", message="usage counts 0 completion tokens for this answer")
        return None

    def _fail(self, kind: Any, message: str, body: str) -> None:
        # An error event explains what follows it; otherwise the first thing that was wrong counts.
        if self._failure is None or (kind == "error_event" != self._failure.kind):
            self._failure = Failure(kind=kind, message=message, body=body[:BODY_LIMIT])

    def _note(self, what: str, count: int = 1) -> None:
        if what in self._ignored or len(self._ignored) < 16:
            self._ignored[what] = self._ignored.get(what, 0) + count


def _not_a_stream(body: bytes) -> Failure:
    text = body.decode("utf-8", "replace")
    try:
        error = _decode_event(text).error
    except (msgspec.DecodeError, RecursionError):
        error = None
    if error is not None:
        return Failure(kind="error_event", message=_error_message(error, text), body=text)
    message = f"the server did not answer with an event stream but with: {short(text)}"
    return Failure(kind="malformed", message=message, body=text)


def error_text(body: str) -> str:
    """The sentence inside an error body of any server, or the start of the body itself."""
    try:
        found = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return short(body)
    if isinstance(found, dict):
        inner = found.get("error", found)
        for value in (inner.get("message") if isinstance(inner, dict) else inner, found.get("message")):
            if isinstance(value, str) and value.strip():
                return short(value)
        detail = found.get("detail")
        if isinstance(detail, str):
            return short(detail)
    return short(body)


def _error_message(error: Any, data: str) -> str:
    return f"the server sent an error inside the stream: {error_text(data) if error else short(data)}"


def short(text: str, limit: int = 300) -> str:
    """One printable line, however long or binary `text` is."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text[: 4 * limit]).split())
    return line if len(line) <= limit else line[:limit] + " ..."


def _parses(data: str) -> bool:
    try:
        msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError):
        return False
    return True


def _count(value: Any) -> int | None:
    """A token count, or `None` for what cannot be one."""
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _LARGEST_COUNT:
        return value
    return None


def _usage(raw: Any) -> Usage | None:
    if not isinstance(raw, dict):
        return None
    prompt = raw.get("prompt_tokens_details")
    completion = raw.get("completion_tokens_details")
    cached = prompt.get("cached_tokens") if isinstance(prompt, dict) else raw.get("cached_tokens")
    reasoning = completion.get("reasoning_tokens") if isinstance(completion, dict) else None
    return Usage(
        prompt_tokens=_count(raw.get("prompt_tokens")),
        completion_tokens=_count(raw.get("completion_tokens")),
        cached_tokens=_count(cached),
        reasoning_tokens=_count(reasoning),
    )


def _flatten(tree: dict[str, Any]) -> dict[str, float]:
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
