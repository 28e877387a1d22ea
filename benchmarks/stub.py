"""A server with known truth: it says when it sent what, on the clock its client uses.

`python -m benchmarks.stub` prints its port and serves until its standard input ends. What to stream
stands in the request body under `bench` (see `Order`). `POST /prepare` with a list of orders renders
their streams beforehand, so that an arriving request costs a look-up and a send a stamp and a write.
`GET /truth` gives the stamps of all requests so far.
"""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

ROLE = b'{"id":"x","model":"tiny","choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}'
EVENT = (
    b'{"id":"chatcmpl-962b9dd6db35c515","object":"chat.completion.chunk","created":1795963959,'
    b'"model":"tiny","choices":[{"index":0,"delta":{"content":"%s"},"logprobs":null,'
    b'"finish_reason":null,"token_ids":null}]}'
)


class Order(msgspec.Struct, kw_only=True, frozen=True):
    """What to stream."""

    id: str
    ttft_s: float = 1.0
    tokens: int = 256
    tok_s: float = 100.0
    """0: everything at once, in large writes (flat out)."""
    most_per_chunk: int = 5
    seed: int = 1


def framed(data: bytes) -> bytes:
    """One event in one HTTP chunk."""
    event = b"data: " + data + b"\n\n"
    return b"%x\r\n%s\r\n" % (len(event), event)


def chunk_sizes(order: Order) -> list[int]:
    """Tokens of every chunk: 1 for the first, then 1 to `most_per_chunk`."""
    rng = random.Random(order.seed)
    sizes, left = [1], order.tokens - 1
    while left > 0:
        sizes.append(min(left, rng.randint(1, order.most_per_chunk)))
        left -= sizes[-1]
    return sizes


class Rendered(msgspec.Struct):
    """A stream ready to be sent."""

    head: bytes
    chunks: list[bytes]
    dues: list[float]
    """Seconds after the request's arrival."""
    end: bytes
    sizes: list[int]
    flat: bytes | None
    """All of it in one, when nothing is paced."""


def render(order: Order) -> Rendered:
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    head += framed(ROLE)
    sizes = chunk_sizes(order)
    chunks = [framed(EVENT % (b" token" * size)) for size in sizes]
    usage = b'{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":%d}}' % order.tokens
    finish = b'{"choices":[{"index":0,"delta":{},"finish_reason":"length"}]}'
    end = framed(finish) + framed(usage) + framed(b"[DONE]") + b"0\r\n\r\n"
    if not order.tok_s:
        return Rendered(head, [], [], b"", sizes, head + b"".join(chunks) + end)
    due, dues = order.ttft_s, []
    for size in sizes:
        dues.append(due)
        due += size / order.tok_s
    return Rendered(head, chunks, dues, end, sizes, None)


class Server(asyncio.Protocol):
    """One connection."""

    truth: dict[str, dict[str, Any]] = {}  # noqa: RUF012 - of all connections, on purpose
    prepared: dict[str, Rendered] = {}  # noqa: RUF012

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.buffer = bytearray()
        self.need = -1

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: Any = transport

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        if self.need < 0:
            end = self.buffer.find(b"\r\n\r\n")
            if end < 0:
                return
            head = bytes(self.buffer[:end]).lower()
            at = head.find(b"content-length:")
            length = int(head[at + 15 :].split(b"\r\n")[0]) if at >= 0 else 0
            self.need = end + 4 + length
            self.start = end + 4
        if len(self.buffer) >= self.need:
            arrived_ns = time.monotonic_ns()
            request, body = bytes(self.buffer[: self.start]), bytes(self.buffer[self.start : self.need])
            self.buffer.clear()
            self.need = -1
            self.answer(request, body, arrived_ns)

    def answer(self, request: bytes, body: bytes, arrived_ns: int) -> None:
        if request.startswith(b"GET"):
            told = {"data": [{"id": "tiny"}]} if b"/models" in request else Server.truth
            if b"/forget" in request:
                Server.truth = {}
            text = json.dumps(told).encode()
            self.transport.write(
                b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(text)
                + text
            )
            return
        if b"/prepare" in request[:64]:
            alike: dict[Order, Rendered] = {}
            for order in msgspec.json.decode(body, type=list[Order]):
                nameless = msgspec.structs.replace(order, id="")
                alike[nameless] = Server.prepared[order.id] = alike.get(nameless) or render(order)
            self.transport.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")
            return
        order = msgspec.json.decode(body[-4096:].rsplit(b'"bench":', 1)[1][:-1], type=Order)
        prepared = Server.prepared.pop(order.id) if order.id in Server.prepared else render(order)
        self.stream(order.id, prepared, arrived_ns)

    def stream(self, name: str, stream: Rendered, arrived_ns: int) -> None:
        sent: list[int] = []
        Server.truth[name] = {"arrived_ns": arrived_ns, "sent_ns": sent, "tokens": stream.sizes}
        if stream.flat is not None:
            sent.append(time.monotonic_ns())
            self.transport.write(stream.flat)
            return
        self.transport.write(stream.head)
        zero = self.loop.time() - (time.monotonic_ns() - arrived_ns) / 1e9
        chunks, dues = stream.chunks, stream.dues

        def send() -> None:
            place = len(sent)
            last = place + 1 == len(chunks)
            sent.append(time.monotonic_ns())
            self.transport.write(chunks[place] + stream.end if last else chunks[place])
            if not last:
                self.loop.call_at(zero + dues[place + 1], send)

        self.loop.call_at(zero + dues[0], send)


async def serve() -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Server, "127.0.0.1", 0, backlog=512)
    print(server.sockets[0].getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.read)
    server.close()


@contextmanager
def running() -> Iterator[str]:
    """The stub in a process of its own; gives its base URL."""
    command = [sys.executable, "-m", "benchmarks.stub"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdin is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}/v1"
        finally:
            process.stdin.close()
            process.wait(10)


def body(order: Order, filler: int = 0) -> bytes:
    """A request body with that order, and `filler` bytes of prompt before it."""
    start, end = b'{"model":"tiny","stream":true,"prompt":"', b'","bench":%s}' % msgspec.json.encode(order)
    # Joined from small pieces, so that memory holds one copy and never two.
    return b"".join([start, *[b"x" * 1000] * (filler // 1000), end])


if __name__ == "__main__":
    from bench.wire.loop import run

    run(serve())
