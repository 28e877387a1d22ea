"""What reading a stream costs the client: CPU per 1,000 chunks, against readers that do less.

    python -m benchmarks.client_cpu [client ...]

Flat out: eight streams, as fast as the server writes. Paced: 32 streams of 100 chunks a second, where
every chunk is a wake-up of its own. Every client reads the same bytes, twice; the second time counts,
when its connections stand and its memory has been used before, as after the first exchange of a run.

    loop    CPU of the event loop's thread from the release of the streams to the end of the last one
    whole   CPU of the process with all that comes before and after: connecting, and (`ctxbench`) taking
            the framing off and decoding events and JSON to text, chunks and usage

`bare protocol` is the floor: an asyncio.BufferedProtocol that looks at the last bytes of a read and
forgets it. `bare reader` is the same on asyncio's StreamReader. Both keep nothing and stamp nothing.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from bench.wire.client import Client
from bench.wire.loop import run
from benchmarks.clock import LIMITS
from benchmarks.stub import Order, body, running

LAST = b"\r\n0\r\n\r\n"


class Meter:
    """CPU seconds of the latest `reading` in the thread of the loop."""

    def __init__(self) -> None:
        self.loop_s = 0.0

    @contextmanager
    def reading(self) -> Iterator[None]:
        started = time.thread_time()
        yield
        self.loop_s = time.thread_time() - started


Way = Callable[[str, list[list[Order]], Meter, Callable[[], None]], Awaitable[None]]
"""Reads each list of streams in its turn; calls the last argument before each."""


def request_of(order: Order) -> bytes:
    data = body(order)
    return b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s" % (
        len(data),
        data,
    )


class Bare(asyncio.BufferedProtocol):
    """Reads to the end and forgets."""

    buffer = memoryview(bytearray(256 * 1024))

    def __init__(self) -> None:
        self.over = asyncio.get_running_loop().create_future()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self.buffer

    def buffer_updated(self, nbytes: int) -> None:
        if self.buffer[max(0, nbytes - 7) : nbytes] == LAST:
            self.over.set_result(None)


async def bare_protocol(
    base_url: str, rounds: list[list[Order]], meter: Meter, begin: Callable[[], None]
) -> None:
    address = urlsplit(base_url)
    host, port = str(address.hostname), int(address.port or 80)
    loop = asyncio.get_running_loop()
    for orders in rounds:
        begin()
        made = [await loop.create_connection(Bare, host, port) for _ in orders]
        requests = [request_of(order) for order in orders]
        with meter.reading():
            for (transport, _), request in zip(made, requests, strict=True):
                transport.write(request)
            await asyncio.gather(*(protocol.over for _, protocol in made))
        for transport, _ in made:
            transport.abort()


async def bare_reader(
    base_url: str, rounds: list[list[Order]], meter: Meter, begin: Callable[[], None]
) -> None:
    address = urlsplit(base_url)

    async def one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes) -> None:
        writer.write(request)
        tail = b""
        while not tail.endswith(LAST):
            data = await reader.read(256 * 1024)
            tail = (tail + data)[-16:]

    for orders in rounds:
        begin()
        made = [await asyncio.open_connection(address.hostname, address.port) for _ in orders]
        requests = [request_of(order) for order in orders]
        with meter.reading():
            await asyncio.gather(*(one(*pair, data) for pair, data in zip(made, requests, strict=True)))
        for _, writer in made:
            writer.close()


async def ours(base_url: str, rounds: list[list[Order]], meter: Meter, begin: Callable[[], None]) -> None:
    async with Client(base_url) as client:
        for orders in rounds:
            begin()
            prepared = [
                client.prepare(
                    "/chat/completions", body(order), timeouts=LIMITS, prompt_tokens=9, endpoint="chat"
                )
                for order in orders
            ]
            await client.warm(connections=len(orders))
            with meter.reading():
                raws = await asyncio.gather(*(client.exchange(one) for one in prepared))
            for raw, order in zip(raws, orders, strict=True):
                while not raw.recorder.is_empty:
                    for at_ns, data in raw.recorder.take(256 * 1024):
                        raw.decoder.feed(at_ns - raw.sent_ns, data)
                answer = raw.decoder.finish()
                assert raw.failure is None and answer.failure is None, (raw.failure, answer.failure)
                assert answer.usage is not None and answer.usage.completion_tokens == order.tokens


async def aiohttp_raw(
    base_url: str, rounds: list[list[Order]], meter: Meter, begin: Callable[[], None]
) -> None:
    import aiohttp

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

        async def one(order: Order) -> None:
            async with session.post(f"{base_url}/chat/completions", data=body(order)) as response:
                async for _ in response.content.iter_any():
                    pass

        for orders in rounds:
            begin()
            with meter.reading():
                await asyncio.gather(*(one(order) for order in orders))


async def through_httpx(
    client: Any, base_url: str, rounds: list[list[Order]], meter: Meter, begin: Callable[[], None]
) -> None:
    async def one(order: Order) -> None:
        url = f"{base_url}/chat/completions"
        async with client.stream("POST", url, content=body(order), timeout=60) as response:
            async for _ in response.aiter_raw():
                pass

    for orders in rounds:
        begin()
        with meter.reading():
            await asyncio.gather(*(one(order) for order in orders))


async def httpx_raw(
    base_url: str, rounds: list[list[Order]], meter: Meter, begin: Callable[[], None]
) -> None:
    import httpx

    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    async with httpx.AsyncClient(trust_env=False, limits=limits) as client:
        await through_httpx(client, base_url, rounds, meter, begin)


async def httpx_aiohttp_raw(
    base_url: str, rounds: list[list[Order]], meter: Meter, begin: Callable[[], None]
) -> None:
    import aiohttp
    import httpx
    from httpx_aiohttp import AiohttpTransport

    def session() -> aiohttp.ClientSession:
        return aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))

    async with httpx.AsyncClient(transport=AiohttpTransport(client=session), trust_env=False) as client:
        await through_httpx(client, base_url, rounds, meter, begin)


FLOOR = "bare protocol"
WAYS: dict[str, Way] = {
    FLOOR: bare_protocol,
    "bare reader": bare_reader,
    "ctxbench": ours,
    "aiohttp": aiohttp_raw,
    "httpx-aiohttp": httpx_aiohttp_raw,
    "httpx": httpx_raw,
}
SLOW = ("httpx-aiohttp", "httpx")  # a fifth of the bytes is enough to tell


async def cost(way: Way, base_url: str, streams: int, order: Order) -> tuple[float, float]:
    """CPU seconds per chunk of reading that many such streams: of the loop, and of it all."""
    rounds = [
        [Order(**{**fields(order), "id": f"{order.id}/{turn}/{i}"}) for i in range(streams)]
        for turn in range(2)
    ]
    async with Client(base_url) as client:
        await client.post_json("/prepare", rounds[0] + rounds[1])
    meter = Meter()
    started = 0.0

    def begin() -> None:
        nonlocal started
        gc.collect()
        started = time.process_time()

    await way(base_url, rounds, meter, begin)
    whole_s = time.process_time() - started
    chunks = streams * order.tokens
    return meter.loop_s / chunks, whole_s / chunks


def fields(order: Order) -> dict[str, Any]:
    return {name: getattr(order, name) for name in order.__struct_fields__}


def measure(
    tokens: int = 12_500, rounds: int = 5, ways: tuple[str, ...] = tuple(WAYS)
) -> list[dict[str, Any]]:
    """The best of some rounds, taken in turns so that a busy moment hits all alike."""
    loads = {
        "8 streams flat out": (8, Order(id="flat", tokens=tokens, tok_s=0.0, most_per_chunk=1), rounds),
        "32 streams x 100/s": (
            32,
            Order(id="paced", tokens=200, tok_s=100.0, ttft_s=0.2, most_per_chunk=1),
            2,
        ),
    }
    rows = []
    with running() as base_url:
        for load, (streams, order, turns) in loads.items():
            best: dict[str, tuple[float, float]] = {}
            for _ in range(turns):
                for name in ways:
                    few = {"tokens": order.tokens // 5} if name in SLOW and not order.tok_s else {}
                    found = run(cost(WAYS[name], base_url, streams, Order(**{**fields(order), **few})))
                    best[name] = min(best.get(name, found), found)
            floor_s = best[FLOOR][0] if FLOOR in best else None
            rows += [row(name, load, *found, floor_s) for name, found in best.items()]
    return rows


def row(client: str, load: str, loop_s: float, whole_s: float, floor_s: float | None) -> dict[str, Any]:
    return {
        "client": client,
        "load": load,
        "loop_ms_per_1000_chunks": loop_s * 1e6,
        "of_bare_percent": 100 * floor_s / loop_s if floor_s is not None else 0.0,
        "chunks_per_loop_cpu_s": 1 / loop_s,
        "whole_ms_per_1000_chunks": whole_s * 1e6,
        "chunks_per_whole_cpu_s": 1 / whole_s,
    }


if __name__ == "__main__":
    import sys

    for line in measure(ways=tuple(sys.argv[1:]) or tuple(WAYS)):
        print({k: round(v, 3) if isinstance(v, float) else v for k, v in line.items()})
