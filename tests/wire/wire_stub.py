"""A raw-socket server for the wire tests: it says exactly the bytes it is told to, and remembers."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

Handler = Callable[["Conversation"], Awaitable[None]]

OK_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"


class Conversation:
    """One accepted connection after a complete request was read from it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.request = b""
        self.body = b""

    async def read_request(self) -> bool:
        try:
            head = await self.reader.readuntil(b"\r\n\r\n")
        except (asyncio.IncompleteReadError, ConnectionError):
            return False
        self.request = head
        length = 0
        for line in head.split(b"\r\n"):
            if line.lower().startswith(b"content-length:"):
                length = int(line.split(b":")[1])
        self.body = await self.reader.readexactly(length)
        return True

    async def say(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def chunk(self, data: bytes) -> None:
        await self.say(b"%x\r\n%s\r\n" % (len(data), data))

    async def stream(self, *pieces: bytes, end: bool = True) -> None:
        """A chunked event stream of these pieces."""
        await self.say(OK_HEAD + b"transfer-encoding: chunked\r\n\r\n")
        for piece in pieces:
            await self.chunk(piece)
        if end:
            await self.say(b"0\r\n\r\n")

    async def answer(self, status: int, body: bytes, content_type: str = "application/json") -> None:
        head = f"HTTP/1.1 {status} X\r\ncontent-type: {content_type}\r\ncontent-length: {len(body)}\r\n\r\n"
        await self.say(head.encode() + body)

    async def gone(self) -> None:
        """Until the client has closed the connection."""
        with suppress(ConnectionError):
            while await self.reader.read(65536):
                pass

    def reset(self) -> None:
        self.writer.transport.abort()


class Stub:
    """The running server: its address and what it has seen."""

    def __init__(self) -> None:
        self.port = 0
        self.connections = 0
        self.closed = 0
        self.requests: list[bytes] = []
        self.all_closed = asyncio.Event()

    def base_url(self, scheme: str = "http") -> str:
        return f"{scheme}://127.0.0.1:{self.port}/v1"


@asynccontextmanager
async def serve(
    post: Handler, *, tls: ssl.SSLContext | None = None, get: Handler | None = None, reads: bool = True
) -> AsyncIterator[Stub]:
    """Serve on a free loopback port: `post` answers POSTs, GETs get an empty JSON object.

    With `reads=False` the handler is called before anything of the request is read.
    """
    stub = Stub()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        stub.connections += 1
        stub.all_closed.clear()
        try:
            while True:
                talk = Conversation(reader, writer)
                if reads and not await talk.read_request():
                    break
                stub.requests.append(talk.request + talk.body)
                if talk.request.startswith(b"GET"):
                    await (get(talk) if get else talk.answer(200, b"{}"))
                else:
                    await post(talk)
                if writer.transport.is_closing() or not reads:
                    break
        except ConnectionError:
            pass
        finally:
            writer.close()
            stub.closed += 1
            if stub.closed == stub.connections:
                stub.all_closed.set()

    server = await asyncio.start_server(connected, "127.0.0.1", 0, ssl=tls)
    stub.port = server.sockets[0].getsockname()[1]
    try:
        yield stub
    finally:
        server.close()
