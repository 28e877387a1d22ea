"""From a request to its record: what is prepared before, watched during and decoded after."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from bench.masking import hide
from bench.records import Endpoint, Exchange, Failure, PromptRecipe, Purpose, Timeouts, Trial
from bench.wire.failures import of_status, redacted
from bench.wire.recorder import Recorder
from bench.wire.said import BODY_LIMIT
from bench.wire.stream import Answer, StreamDecoder
from bench.wire.transport import Request

_SLICE = 32 * 1024  # bytes decoded between two looks at the sockets: about 0.3 ms
SLICE_BESIDE = 4 * 1024
"""The same while other streams of a wave are read: about 0.1 ms."""
_SIP = 1024  # bytes decoded to see whether there is text among them
_KEEP = 1024 * 1024  # bytes of a stream that may wait for decoding while it runs
_TICK_S = 1.0
_SOON_S = 0.002
_AFTER_DONE_NS = 2_000_000_000
_turns = itertools.count()


class Prepared(Struct, frozen=True, kw_only=True, eq=False):
    """A request that only needs to be released: everything slow has been done."""

    request: Request
    url: str
    body: bytes
    """The one copy of the request body; a replay hands over the same object."""
    endpoint: Endpoint
    timeouts: Timeouts
    first_token_s: float
    """From `sent` to the first text."""
    limit: int
    """Bytes the answer may have."""
    secrets: tuple[str, ...]
    """The key and its like, to keep them out of what is recorded; never written."""
    gate: asyncio.Lock
    """One exchange of a client is decoded at a time, so that others keep their stamps."""

    def __repr__(self) -> str:
        return f"Prepared({self.url}, {len(self.body)} bytes)"


class Raw(Struct, frozen=True, kw_only=True, eq=False):
    """What the wire saw of one exchange, before anything was made of it. Times are nanoseconds after
    `sent`, as in `Exchange`; those in `recorder` are monotonic.
    """

    started_at: str
    sent_ns: int
    connect_ns: int | None
    uploaded_ns: int | None
    headers_ns: int | None
    ended_ns: int
    status: int | None
    headers: dict[str, str]
    recorder: Recorder
    """Holds the reads that `decoder` has not been given yet."""
    decoder: StreamDecoder
    failure: Failure | None
    """What broke on the way; what the stream itself says is found by `finish`."""


Onlooker = Callable[[bool, int], None]
"""(text has come, bytes so far): told now and then while an exchange runs, for a display."""


class Watch:
    """Deadlines of one exchange, and the decoding of what a long stream has piled up.

    Nothing of this runs per read: a timer looks, at most once a second. `sent` to `uploaded`, `sent`
    to the first *text* (pings and role-only chunks do not count), and from one event of the answer to
    the next afterwards (pings do not count either). When such an event came is known of what has been
    decoded; the rest is decoded only when a deadline has passed without it, or when much waits.
    """

    def __init__(
        self, recorder: Recorder, prepared: Prepared, *, sees_upload: bool, onlooker: Onlooker | None = None
    ) -> None:
        self.decoder = StreamDecoder(prepared.endpoint)
        self.failure: Failure | None = None
        self._recorder = recorder
        self._prepared = prepared
        self._sees_upload = sees_upload
        self._onlooker = onlooker
        self._timeout: asyncio.Timeout | None = None
        self._handle: asyncio.TimerHandle | None = None
        self._period_s = _TICK_S
        self._passed_ns = 0  # the deadline for which `_wanted` was noted
        self._wanted = 0  # bytes that had come when it passed

    def start(self, timeout: asyncio.Timeout) -> None:
        self._timeout = timeout
        limits = self._prepared.timeouts
        self._period_s = min(_TICK_S, limits.upload_s, limits.idle_s, self._prepared.first_token_s)
        # Streams that start together must not be looked at together: the golden section spreads them.
        self._later(self._period_s * (0.25 + 0.5 * (next(_turns) * 0.618034 % 1.0)))

    def stop(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
        self._timeout = None

    def _later(self, seconds: float) -> None:
        self._handle = asyncio.get_running_loop().call_later(seconds, self._tick)

    def _tick(self) -> None:
        if self._timeout is None:
            return
        recorder = self._recorder
        if not recorder.sent_ns:  # still connecting, which has a limit of its own
            self._later(self._period_s)
            return
        self._decode_some()
        if self._onlooker is not None:
            self._onlooker(self.decoder.has_text, recorder.size)
        now_ns = time.monotonic_ns()
        failure, due_ns = self._next()
        if now_ns < due_ns or not self._is_certain(due_ns):
            # By then a new event may have moved the deadline on.
            self._later(_SOON_S if self._is_behind else min((due_ns - now_ns) / 1e9, _TICK_S))
            return
        self.failure = failure
        self._timeout.reschedule(asyncio.get_running_loop().time())

    def _decode_some(self) -> None:
        """What is wanted now, but a slice at most; `_tick` comes back soon for the next one."""
        taken = 0
        while taken < _SLICE and self._is_behind:
            for at_ns, data in self._recorder.take(_SIP):
                self.decoder.feed(at_ns - self._recorder.sent_ns, data)
                taken += len(data)

    @property
    def _is_behind(self) -> bool:
        """Whether decoding is wanted while the stream runs: up to its first text, when much waits, and
        up to what had come when a deadline passed."""
        recorder = self._recorder
        if recorder.status != 200 or recorder.over.done():
            return False
        pending = recorder.pending
        if pending > (_KEEP if self.decoder.has_text else 0):
            return True
        return recorder.size - pending < self._wanted

    def _is_certain(self, passed_ns: int) -> bool:
        """Whether a deadline that has passed really counts: all that had come by then is decoded, and
        the event that was waited for is not among it. What comes later came too late."""
        recorder = self._recorder
        if passed_ns != self._passed_ns:
            self._passed_ns, self._wanted = passed_ns, recorder.size
        return not self._is_behind or recorder.size - recorder.pending >= self._wanted

    def _next(self) -> tuple[Failure | None, int]:
        """The deadline that is running, and what it means when it passes."""
        recorder, limits = self._recorder, self._prepared.timeouts
        sent_ns = recorder.sent_ns
        if self._sees_upload and recorder.uploaded_ns is None:
            message = f"the server did not take the request body within {limits.upload_s:g} s"
            return Failure(kind="upload_timeout", message=message), sent_ns + _ns(limits.upload_s)
        if not self.decoder.has_text:
            first_s = self._prepared.first_token_s
            came = f"; {recorder.size} bytes without text had come" if recorder.size else ""
            message = f"no text within {first_s:g} s of sending{came}"
            return Failure(kind="first_token_timeout", message=message), sent_ns + _ns(first_s)
        last_ns = sent_ns + self.decoder.last_ns
        if self.decoder.done:  # the answer is whole, only its connection is not closed
            return None, last_ns + _AFTER_DONE_NS
        if b"data: [DONE]" in recorder.tail:
            return None, recorder.last_ns + _AFTER_DONE_NS
        came = "; bytes without a piece of it kept coming" if recorder.last_ns > last_ns else ""
        message = f"no piece of the answer came for {limits.idle_s:g} s in the middle of it{came}"
        return Failure(kind="idle_timeout", message=message), last_ns + _ns(limits.idle_s)


def raw_of(
    recorder: Recorder, watch: Watch, *, started_at: str, headers: Mapping[str, str], failure: Failure | None
) -> Raw:
    """The recorder's absolute stamps as times after `sent`."""
    now_ns = time.monotonic_ns()
    sent_ns = recorder.sent_ns or now_ns

    def after(stamp_ns: int | None) -> int | None:
        return None if stamp_ns is None else stamp_ns - sent_ns

    return Raw(
        started_at=started_at,
        sent_ns=sent_ns,
        connect_ns=recorder.connect_ns,
        uploaded_ns=after(recorder.uploaded_ns),
        headers_ns=after(recorder.headers_ns),
        ended_ns=(recorder.ended_ns or now_ns) - sent_ns,
        status=recorder.status,
        headers=dict(headers),
        recorder=recorder,
        decoder=watch.decoder,
        failure=failure,
    )


async def finish(
    raw: Raw,
    prepared: Prepared,
    *,
    trial: Trial,
    prompt: PromptRecipe,
    request: Mapping[str, object],
    attempt: int = 1,
    purpose: Purpose = "trial",
    engine: str = "generic",
) -> Exchange:
    """The record of an exchange, its answer decoded in small slices so that the loop stays prompt.

    `request` is the body without the prompt. Scrapes, samples and waits are the caller's to add.
    """
    answer, failure = await _judge(raw, prepared)
    return Exchange(
        trial=trial,
        attempt=attempt,
        purpose=purpose,
        engine=engine,
        prompt=prompt,
        url=prepared.url,
        request=dict(request),
        started_at=raw.started_at,
        sent_ns=raw.sent_ns,
        connect_ns=raw.connect_ns,
        uploaded_ns=raw.uploaded_ns,
        headers_ns=raw.headers_ns,
        ended_ns=raw.ended_ns,
        status=raw.status,
        headers={name: hide(value, prepared.secrets) for name, value in raw.headers.items()},
        read_ns=tuple(at - raw.sent_ns for at in raw.recorder.read_ns),
        read_bytes=tuple(raw.recorder.read_bytes),
        chunks=answer.chunks,
        text=answer.text,
        reasoning=answer.reasoning,
        tool_text=answer.tool_text,
        finish_reason=answer.finish_reason,
        done=answer.done,
        usage=answer.usage,
        reported=answer.reported,
        failure=None if failure is None else redacted(failure, prepared.secrets),
    )


async def decode(raw: Raw, prepared: Prepared, *, slice_bytes: int = _SLICE) -> None:
    """Decodes what has come of an answer that has ended and is not decoded yet; `finish` begins with this.

    One exchange at a time, with a look at the sockets after every slice. It must not be cut off: what a
    slice has taken and not yet decoded would be lost.
    """
    if raw.status != 200 or _encoding(raw) is not None:
        return
    async with prepared.gate:
        fed = 0
        while not raw.recorder.is_empty:
            for at_ns, data in raw.recorder.take(slice_bytes):
                for start in range(0, len(data), slice_bytes):
                    piece = data[start : start + slice_bytes]
                    raw.decoder.feed(at_ns - raw.sent_ns, piece)
                    fed += len(piece)
                    if fed >= slice_bytes:
                        fed = 0
                        await asyncio.sleep(0)
        await asyncio.sleep(0)  # and a look at the sockets: a server may have hung up after its answer


def _encoding(raw: Raw) -> str | None:
    """How the answer is compressed; `None`: it is not."""
    encoding = raw.headers.get("content-encoding", "identity")
    return None if encoding == "identity" else encoding


async def _judge(raw: Raw, prepared: Prepared) -> tuple[Answer, Failure | None]:
    if raw.status is None:
        return Answer(), raw.failure
    if raw.status != 200:
        return Answer(), of_status(raw.status, _start_of(raw))
    encoding = _encoding(raw)
    if encoding is not None:
        message = f"the server compressed its stream ({encoding}) though identity was asked for"
        return Answer(), Failure(kind="malformed", message=message, status=200)
    await decode(raw, prepared)
    answer = raw.decoder.finish()
    broken = raw.failure
    if broken is None and raw.recorder.broken is not None:
        broken = Failure(kind="malformed", message=f"the server broke HTTP: {raw.recorder.broken}")
    return answer, _worst(broken, answer)


def _worst(broken: Failure | None, answer: Answer) -> Failure | None:
    """The transport's failure or the stream's: whichever explains the other."""
    told = answer.failure
    if broken is None or (told is not None and told.kind == "error_event"):
        failure = told
    elif answer.done and broken.kind in ("truncated", "idle_timeout"):
        failure = told  # the answer was whole; only the connection ended badly
    else:
        failure = broken
    if failure is None:
        return None
    return Failure(kind=failure.kind, message=failure.message, status=200, body=failure.body)


def _start_of(raw: Raw) -> str:
    body: Any = bytearray()
    for _, data in raw.recorder.take():
        body += data[:BODY_LIMIT]
        if len(body) >= BODY_LIMIT:
            break
    return bytes(body[:BODY_LIMIT]).decode("utf-8", "replace")


def _ns(seconds: float) -> int:
    return int(seconds * 1e9)
