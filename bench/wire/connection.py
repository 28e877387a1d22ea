"""One HTTP/1.1 exchange on the event loop's own transport: the ruler without weight.

Everything that can be done before `sent` is: the connection stands, head and body are bytes. `sent` is
stamped at the write itself, `uploaded` when the kernel has taken the last byte of the body, and every
read the moment the loop hands it over, before anything looks into it. The socket is read straight into
the memory in which the answer is kept; per read the hot path notes when and how much. Chunk framing
comes off afterwards, JSON later still.

Requests through a proxy do not come here: see `proxied.py`.
"""

from __future__ import annotations

import asyncio
import itertools
import select
import ssl
import time
from collections.abc import Callable
from typing import cast

from bench.wire.broken import ConnectError, ConnectTimeout, FramingError, TooLarge, TransportError
from bench.wire.http1 import HEAD_LIMIT, Head, parse_head
from bench.wire.keepalive import set_keep_alive
from bench.wire.recorder import Recorder, fail
from bench.wire.transport import Request, Url, kept_headers

_PIECE = 256 * 1024
_HEAD_READ = 16 * 1024  # little, so that little of a body must be moved to where the rest of it goes
_SLICE = 32 * 1024  # bytes unframed between two looks at the sockets: about 0.1 ms
_DONE = b"data: [DONE]\n\n\r\n0\r\n\r\n"
_IDLE_NS = 3_500_000_000
"""Servers close idle connections after 5 s or so; a request must not meet the closing."""
_FRESH_NS = 1_000_000_000
"""What was answered so short a time ago needs no proof that it is alive: no server closes it so soon."""


class Connection(asyncio.BufferedProtocol):
    """One connection, one exchange at a time.

    `buffer` receives heads; bodies go to their recorder. Connections of one loop may share it: the
    loop fills it and calls `buffer_updated` in one go.
    """

    def __init__(self, buffer: memoryview) -> None:
        self.transport: asyncio.Transport | None = None
        self.connect_ns: int | None = None
        self.reusable = True
        self._buffer = buffer
        self._recorder: Recorder | None = None
        self._in_body = False
        self._chunked = False
        self._left: int | None = None
        self._start = bytearray()
        self._answered: asyncio.Future[Head] | None = None
        self._drained: asyncio.Future[None] | None = None
        self._paused = False

    # --- what the event loop calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        # 0: a write leaves at once, and writing resumes only when the kernel has taken everything.
        self.transport.set_write_buffer_limits(high=0)
        sock = self.transport.get_extra_info("socket")
        if sock is not None:
            set_keep_alive(sock)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._recorder.room() if self._in_body and self._recorder else self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        now_ns = time.monotonic_ns()
        recorder = self._recorder
        if recorder is None:
            self.abort()  # an idle connection has nothing to say
            return
        try:
            if self._in_body:
                recorder.stamp(now_ns, nbytes)
                self._look_for_end(recorder, nbytes)
            else:
                self._begin(now_ns, bytes(self._buffer[:nbytes]), recorder)
        except (FramingError, TooLarge) as error:
            self._fail(error)

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self.reusable = False
        recorder = self._recorder if self._in_body else None
        if recorder is not None and self._left is None and not self._chunked and exc is None:
            self._end(time.monotonic_ns())  # the connection's end is this body's end
            return
        if recorder is not None and self._chunked:
            recorder.unframe()  # its end may be among what nobody has looked at
            if recorder.is_complete:
                self._end(recorder.last_ns)
                return
        self._fail(exc or ConnectionResetError("the server closed the connection"))

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        self._wake()

    # --- what the transport calls

    async def request(self, head: bytes, body: bytes, recorder: Recorder) -> Head:
        """Send, and wait for the head of the answer. Raises `TransportError`."""
        self._recorder = recorder
        self._answered = asyncio.get_running_loop().create_future()
        self._in_body = False
        self._start.clear()
        recorder.start(time.monotonic_ns())
        await self._upload(head, body, recorder)
        recorder.uploaded_ns = time.monotonic_ns()
        return await self._answered

    async def _upload(self, head: bytes, body: bytes, recorder: Recorder) -> None:
        assert self.transport is not None  # noqa: S101 - set before any request
        if len(body) <= _PIECE:
            self.transport.write(head + body)
            await self._drain()
            return
        self.transport.write(head)
        view = memoryview(body)
        for start in range(0, len(body), _PIECE):
            self.transport.write(view[start : start + _PIECE])
            await self._drain()
            if self._answered is not None and self._answered.done():
                self.reusable = False  # refused before it was read (401, 413, ...), or lost
                return

    async def _drain(self) -> None:
        if self._paused and self._answered is not None and not self._answered.done():
            self._drained = asyncio.get_running_loop().create_future()
            await self._drained

    def _wake(self) -> None:
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)

    def _begin(self, now_ns: int, data: bytes, recorder: Recorder) -> None:
        self._start += data
        head = self._next_head()
        while head is not None and head.status < 200:  # 100 Continue and its like: the answer is yet to come
            head = self._next_head()
        if head is None:
            return
        rest = bytes(self._start)
        self._start.clear()
        self.reusable = head.keep_alive
        self._in_body = True
        self._chunked = head.framing == "chunked"
        self._left = head.length if head.framing == "length" else None
        recorder.begin(now_ns, head.status, chunked=self._chunked)
        if rest:
            recorder.add(now_ns, rest)
        if self._chunked:
            self._verify(recorder)  # whatever it ends with: nonsense shows at the start
        else:
            self._look_for_end(recorder, len(rest))
        if self._answered is not None and not self._answered.done():
            self._answered.set_result(head)
        self._wake()

    def _next_head(self) -> Head | None:
        """Takes a head off what has come; `None`: it is not whole yet."""
        end = self._start.find(b"\r\n\r\n")
        if end < 0:
            if len(self._start) > HEAD_LIMIT:
                raise FramingError("the answer's head is larger than 64 KiB")
            return None
        head = parse_head(bytes(self._start[:end]))
        del self._start[: end + 4]
        return head

    def _look_for_end(self, recorder: Recorder, nbytes: int) -> None:
        if self._chunked:
            if recorder.may_be_over:
                # Said twice over, it is believed: nothing that follows `[DONE]` would count anyway, and
                # whether the chunks before it made sense is found when their framing comes off.
                if recorder.tail.endswith(_DONE):
                    self._end(recorder.last_ns)
                else:
                    self._verify(recorder)
        elif self._left is not None:
            self._left -= nbytes
            if self._left <= 0:
                self._end(recorder.last_ns)

    def _verify(self, recorder: Recorder) -> None:
        """Whether the last chunk has come: a slice now, the next after a look at the sockets."""
        if recorder is not self._recorder:
            return  # it broke meanwhile
        recorder.unframe(_SLICE)
        if recorder.is_complete:
            self._end(recorder.last_ns)
        elif not recorder.is_unframed:
            asyncio.get_running_loop().call_soon(self._verify, recorder)

    def _end(self, now_ns: int) -> None:
        if self._recorder is not None and self._recorder.broken is not None:
            self._fail(self._recorder.broken)
            return
        recorder, self._recorder = self._recorder, None
        self._in_body = False
        if self._left is not None and self._left < 0:
            self.reusable = False
        if recorder is not None:
            recorder.end(now_ns)

    def _fail(self, error: Exception) -> None:
        recorder, self._recorder = self._recorder, None
        self.reusable = False
        failed = _as_ours(error)
        if self._answered is not None and not self._answered.done():
            fail(self._answered, failed)
        elif recorder is not None:
            recorder.fail(failed)
        self._wake()
        if self.transport is not None:
            self.transport.abort()

    def abort(self) -> None:
        """Close at once; nothing is sent any more."""
        self.reusable = False
        self._recorder = None
        if self.transport is not None:
            self.transport.abort()

    @property
    def idle(self) -> bool:
        """Usable for another request, as far as the loop has heard."""
        return (
            self.reusable
            and self._recorder is None
            and self.transport is not None
            and not self.transport.is_closing()
        )

    @property
    def silent(self) -> bool:
        """Whether the kernel has nothing for the loop to read: of an idle connection that is its end, come
        while the loop was busy."""
        sock = None if self.transport is None else self.transport.get_extra_info("socket")
        if sock is None:
            return True
        poll = select.poll()
        poll.register(sock.fileno(), select.POLLIN)
        return not poll.poll(0)


Key = tuple[str, str, int]
"""Scheme, host and port."""


class RulerTransport:
    """Our own transport: stamps at the socket; keeps idle connections for the next request."""

    sees_upload = True

    def __init__(self, ssl_context: Callable[[], ssl.SSLContext]) -> None:
        self._ssl = ssl_context
        self._idle: dict[Key, list[tuple[Connection, int]]] = {}  # since when, the freshest last
        self._buffer = memoryview(bytearray(_HEAD_READ))
        self._closed = False

    async def send(self, request: Request, recorder: Recorder, *, connect_s: float) -> _Answer:
        key = _key(request.url)
        connection = self._pop(key) or await self._open(key, connect_s)
        recorder.connect_ns = connection.connect_ns
        try:
            head = await connection.request(request.head, request.body, recorder)
        except BaseException:
            connection.abort()
            raise
        return _Answer(self, key, connection, recorder, head)

    def is_warm(self, url: Url, connections: int) -> bool:
        oldest_ns = time.monotonic_ns() - _FRESH_NS
        idle = self._idle.get(_key(url), [])
        ready = sum(connection.idle and since_ns >= oldest_ns for connection, since_ns in idle)
        return ready >= connections

    def _pop(self, key: Key) -> Connection | None:
        oldest_ns = time.monotonic_ns() - _IDLE_NS
        idle = self._idle.get(key, [])
        while idle:
            connection, since_ns = idle.pop()
            if connection.idle and since_ns >= oldest_ns and connection.silent:
                return connection
            connection.abort()
        return None

    async def _open(self, key: Key, limit_s: float) -> Connection:
        scheme, host, port = key
        secure = scheme == "https"
        started = time.monotonic_ns()
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(limit_s):
                _, connection = await loop.create_connection(
                    lambda: Connection(self._buffer),
                    host,
                    port,
                    ssl=self._ssl() if secure else None,
                    server_hostname=host if secure else None,
                )
        except TimeoutError as error:
            raise ConnectTimeout(f"no connection within {limit_s:g} s") from error
        except (OSError, ValueError) as error:  # ValueError: a host that nobody can be asked for, `a..b`
            raise ConnectError(str(error)) from error
        connection.connect_ns = time.monotonic_ns() - started
        return connection

    def put_back(self, key: Key, connection: Connection) -> None:
        """Keep the connection for the next request, or close it if it cannot be used again."""
        if connection.idle and not self._closed:
            self._idle.setdefault(key, []).append((connection, time.monotonic_ns()))
        else:
            connection.abort()

    async def close(self) -> None:
        self._closed = True  # what is under way ends with its connection
        for connection, _ in itertools.chain.from_iterable(self._idle.values()):
            connection.abort()
        self._idle.clear()
        await asyncio.sleep(0)  # let the loop see them closed


def _key(url: Url) -> Key:
    return url.scheme, url.host, url.port


class _Answer:
    """An answer that its recorder is given by the event loop, read by read."""

    def __init__(
        self, owner: RulerTransport, key: Key, connection: Connection, recorder: Recorder, head: Head
    ) -> None:
        self.headers = kept_headers(head.headers)
        self._owner = owner
        self._key = key
        self._connection = connection
        self._recorder = recorder

    async def finish(self) -> None:
        await self._recorder.over

    async def close(self) -> None:
        over = self._recorder.over
        if over.done() and not over.cancelled() and over.exception() is None:
            self._owner.put_back(self._key, self._connection)
        else:
            self._connection.abort()


def _as_ours(error: Exception) -> TransportError:
    """The transport's callers know its own errors alone; the cause stays attached."""
    if isinstance(error, TransportError):
        return error
    failed = TransportError(str(error))
    failed.__cause__ = error
    return failed
