"""From the reads of a stream to the answer in it: pure, after the fact, off the hot path.

`decode` takes what the wire recorded (stamps and bytes) and says what the server answered: text by
kind, chunks with their times, finish reason, usage, the server's own figures, and what was wrong.
It knows the dialects of OpenAI-compatible servers, whatever the engine: nothing here asks which
engine it is.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from typing import Any

from msgspec import Struct

from bench.records import Chunks, Endpoint, Failure, Usage
from bench.wire.completion import (
    DECODE_ERRORS,
    Choice,
    Event,
    count,
    flatten,
    parses,
    read_event,
    read_piece,
    usage_of,
)
from bench.wire.said import BODY_LIMIT, error_text, short
from bench.wire.sse import SseEvent, SseParser


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
        self._tokens: array[int] = array("q")  # one too few for every event of text that does not say them
        self._counts = False  # whether any event says them
        self._finish_at: int | None = None
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

    @property
    def last_ns(self) -> int:
        """When the last event with a choice came, in nanoseconds after `sent`; 0 before."""
        return self._at[-1] if self._at else 0

    def feed(self, at_ns: int, data: bytes) -> None:
        """Take one read, stamped `at_ns` nanoseconds after `sent`."""
        if not self._events and len(self._head) < BODY_LIMIT:
            self._head += data[:BODY_LIMIT]
        alone = None if self._done else self._parser.whole_event(data)
        if alone is not None and self._piece(at_ns, alone):
            self._events += 1
            return
        events = self._parser.feed(data)
        if events:
            self._events += len(events)
            self._take(at_ns, events)

    def finish(self) -> Answer:
        """The stream is over: what it said."""
        last = self._at[-1] if self._at else 0
        for event in self._parser.close():
            # Cut off in the middle, or only the last blank line forgotten? The text itself tells.
            if event.data.strip() == "[DONE]" or parses(event.data):
                self._events += 1
                self._take(last, [event])
            else:
                self._note("an event was cut off by the end of the stream")
        usage = usage_of(self._usage)
        if self._parser.comments:
            self._note("comment lines (keep-alive)", self._parser.comments)
        return Answer(
            chunks=Chunks(
                at_ns=tuple(self._at),
                chars=tuple(self._chars),
                kinds=self._kinds.decode("ascii"),
                tokens=tuple(self._tokens) if self._counts and len(self._tokens) == len(self._at) else (),
                finish=self._finish_at,
            ),
            text="".join(self._text),
            reasoning="".join(self._reasoning),
            tool_text="".join(self._tool),
            finish_reason=self._finish,
            done=self._done,
            usage=usage,
            reported=flatten(self._reported),
            failure=self._failure or self._verdict(usage),
            notes=tuple(f"{what}: {n}" if n > 1 else what for what, n in self._ignored.items()),
        )

    def _take(self, at_ns: int, events: list[SseEvent]) -> None:
        for event in events:
            if not event.event and not self._done and self._piece(at_ns, event.data):
                continue
            try:
                parsed = None if self._done else read_event(event.data)
            except DECODE_ERRORS:
                self._no_json(event)
                continue
            self._other(at_ns, event, parsed)

    def _piece(self, at_ns: int, data: bytes | str) -> bool:
        """Takes what nearly every event of a stream is, a piece of text, perhaps with the usage so far.
        `False`: it is something else, or more. `_other` would give the same, at twice the cost."""
        try:
            event = read_piece(data)
        except DECODE_ERRORS:
            return False
        choice = event.choices[0]
        delta = choice.delta
        if delta is None:
            text, thought = choice.text, None
        else:
            text, thought = delta.content, delta.reasoning or delta.reasoning_content
        if text and not thought:
            self._text.append(text)
            self._chars.append(len(text))
            self._kinds += b"c"
        elif thought and not text:
            self._reasoning.append(thought)
            self._chars.append(len(thought))
            self._kinds += b"r"
        else:
            return False
        self._at.append(at_ns)
        usage = event.usage
        if usage is not None:
            self._usage = usage
            if usage.completion_tokens is not None:
                self._counts = True
                self._tokens.append(usage.completion_tokens)
        return True

    def _other(self, at_ns: int, event: SseEvent, parsed: Event | None) -> None:
        if parsed is None:
            self._note("events after [DONE] were ignored")
        elif event.event == "error" or parsed.error is not None:
            self._fail("error_event", _error_message(parsed.error, event.data), event.data)
        elif event.event not in ("", "message"):
            self._note(f"events of type {event.event[:40]!r} were ignored")
        else:
            self._completion(at_ns, parsed, event.data)

    def _no_json(self, event: SseEvent) -> None:
        data = event.data
        if data.strip() == "[DONE]":
            self._done = True
        elif event.event == "error":
            self._fail("error_event", f"the server sent an error inside the stream: {short(data)}", data)
        elif event.event in ("", "message"):
            what = "no completion" if parses(data) else "no JSON"
            self._fail("malformed", f"the server sent an event that is {what}: {short(data)}", data)

    def _completion(self, at_ns: int, parsed: Event, data: str) -> None:
        usage = parsed.usage
        if usage is not None:
            self._usage = usage
        told = parsed.timings is not None or parsed.metrics is not None or parsed.sglext is not None
        if told:
            self._keep_reported(parsed)
        choices = parsed.choices
        if choices:
            self._choice(at_ns, choices[0], usage)
            if len(choices) > 1:
                self._note("choices beyond the first were ignored")
        elif choices is None and usage is None and not told:
            self._fail("malformed", f"the server sent an event that is no completion: {short(data)}", data)

    def _keep_reported(self, parsed: Event) -> None:
        for name in ("timings", "metrics", "sglext"):
            value = getattr(parsed, name)
            if value is not None:
                self._reported[name] = value

    def _choice(self, at_ns: int, choice: Choice, usage: Any) -> None:
        delta = choice.delta
        content = choice.text if delta is None else delta.content
        kind, chars = b"e", 0
        if delta is not None:
            if delta.tool_calls:
                kind, chars = self._tools(delta.tool_calls)
            reasoning = delta.reasoning or delta.reasoning_content
            if reasoning and isinstance(reasoning, str):
                kind, chars = b"r", chars + len(reasoning)
                self._reasoning.append(reasoning)
        if content and isinstance(content, str):
            kind, chars = b"c", chars + len(content)
            self._text.append(content)
        if choice.finish_reason and isinstance(choice.finish_reason, str):
            self._finish = choice.finish_reason
            self._finish_at = len(self._at)
        self._at.append(at_ns)
        self._chars.append(chars)
        self._kinds += kind
        self._count_so_far(usage, chars)

    def _count_so_far(self, usage: Any, chars: int) -> None:
        """What the server says it has generated up to and with the chunk that was taken last."""
        so_far = count(usage.get("completion_tokens")) if isinstance(usage, dict) else None
        if so_far is not None:
            self._counts = True
            self._tokens.append(so_far)
        elif not chars:  # SGLang's role and finish chunks come without
            self._tokens.append(self._tokens[-1] if self._tokens else 0)

    def _tools(self, calls: Any) -> tuple[bytes, int]:
        chars = 0
        for call in calls if isinstance(calls, list) else ():
            function = call.get("function") if isinstance(call, dict) else None
            arguments = function.get("arguments") if isinstance(function, dict) else None
            if isinstance(arguments, str) and arguments:
                self._tool.append(arguments)
                chars += len(arguments)
        return (b"t", chars) if chars else (b"e", 0)

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
        error = read_event(text).error
    except DECODE_ERRORS:
        error = None
    if error is not None:
        return Failure(kind="error_event", message=_error_message(error, text), body=text)
    message = f"the server did not answer with an event stream but with: {short(text)}"
    return Failure(kind="malformed", message=message, body=text)


def _error_message(error: Any, data: str) -> str:
    return f"the server sent an error inside the stream: {error_text(data) if error else short(data)}"
