"""What reading a stream costs the client: CPU per 1,000 chunks, against readers that do less.

    python -m benchmarks.client_cpu

Flat out: eight streams, as fast as the server writes. `bare asyncio` reads the same bytes with a
StreamReader and throws them away; it is the floor. `ctxbench record` is what happens while a stream
runs (stamp, keep, find the end); `ctxbench record + decode` ends with text, chunks and usage.
Paced: 32 streams of 100 chunks a second, where every chunk is a wake-up of its own.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import urlsplit

from bench.wire.client import Client
from bench.wire.loop import run
from benchmarks.clock import LIMITS
from benchmarks.stub import Order, body, running

Way = Callable[[str, list[Order]], Awaitable[None]]


async def bare(base_url: str, orders: list[Order]) -> None:
    address = urlsplit(base_url)

    async def one(order: Order) -> None:
        reader, writer = await asyncio.open_connection(address.hostname, address.port)
        data = body(order)
        writer.write(
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(data) + data
        )
        tail = b""
        while not tail.endswith(b"\r\n0\r\n\r\n"):
            data = await reader.read(256 * 1024)
            tail = (tail + data)[-16:]
        writer.close()

    await asyncio.gather(*(one(o) for o in orders))


async def kept(base_url: str, orders: list[Order]) -> None:
    """The least that measures anything: a bare reader that stamps and keeps what it reads."""
    address = urlsplit(base_url)

    async def one(order: Order) -> None:
        reader, writer = await asyncio.open_connection(address.hostname, address.port)
        data = body(order)
        writer.write(
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(data) + data
        )
        reads: list[tuple[int, bytes]] = []
        while not reads or not reads[-1][1].endswith(b"0\r\n\r\n"):
            data = await reader.read(256 * 1024)
            reads.append((time.monotonic_ns(), data))
        writer.close()

    await asyncio.gather(*(one(o) for o in orders))


async def record(base_url: str, orders: list[Order], *, decode: bool = False) -> None:
    async with Client(base_url) as client:
        prepared = [
            client.prepare("/chat/completions", body(o), timeouts=LIMITS, prompt_tokens=9, endpoint="chat")
            for o in orders
        ]

        async def one(place: int) -> None:
            raw = await client.exchange(prepared[place])
            assert raw.failure is None, raw.failure
            if decode:
                for at_ns, data in raw.recorder.take():
                    raw.decoder.feed(at_ns - raw.sent_ns, data)
                answer = raw.decoder.finish()
                assert answer.failure is None, answer.failure
                assert answer.usage is not None
                assert answer.usage.completion_tokens == orders[place].tokens

        await asyncio.gather(*(one(i) for i in range(len(orders))))


async def record_and_decode(base_url: str, orders: list[Order]) -> None:
    await record(base_url, orders, decode=True)


async def aiohttp_raw(base_url: str, orders: list[Order]) -> None:
    import aiohttp

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

        async def one(order: Order) -> None:
            async with session.post(f"{base_url}/chat/completions", data=body(order)) as response:
                async for _ in response.content.iter_any():
                    pass

        await asyncio.gather(*(one(o) for o in orders))


async def httpx_raw(base_url: str, orders: list[Order]) -> None:
    import httpx

    async with httpx.AsyncClient(trust_env=False) as client:

        async def one(order: Order) -> None:
            url = f"{base_url}/chat/completions"
            async with client.stream("POST", url, content=body(order), timeout=60) as response:
                async for _ in response.aiter_raw():
                    pass

        await asyncio.gather(*(one(o) for o in orders))


async def httpx_aiohttp_raw(base_url: str, orders: list[Order]) -> None:
    import aiohttp
    import httpx
    from httpx_aiohttp import AiohttpTransport

    def session() -> aiohttp.ClientSession:
        return aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))

    async with httpx.AsyncClient(transport=AiohttpTransport(client=session), trust_env=False) as client:

        async def one(order: Order) -> None:
            url = f"{base_url}/chat/completions"
            async with client.stream("POST", url, content=body(order), timeout=60) as response:
                async for _ in response.aiter_raw():
                    pass

        await asyncio.gather(*(one(o) for o in orders))


WAYS: dict[str, Way] = {
    "bare asyncio": bare,
    "bare asyncio, kept": kept,
    "ctxbench record": record,
    "ctxbench record + decode": record_and_decode,
    "aiohttp": aiohttp_raw,
    "httpx-aiohttp": httpx_aiohttp_raw,
    "httpx": httpx_raw,
}
QUICK = ("bare asyncio", "bare asyncio, kept", "ctxbench record", "ctxbench record + decode", "aiohttp")


async def cost(way: Way, base_url: str, orders: list[Order]) -> tuple[float, float]:
    """CPU and wall seconds of reading these streams."""
    async with Client(base_url) as client:
        await client.post_json("/prepare", orders)
    gc.collect()
    wall, cpu = time.monotonic(), time.process_time()
    await way(base_url, orders)
    return time.process_time() - cpu, time.monotonic() - wall


def row(way: str, load: str, cpu_s_each: float, wall_s: float) -> dict[str, Any]:
    return {
        "client": way,
        "load": load,
        "cpu_ms_per_1000_chunks": cpu_s_each * 1e6,
        "chunks_per_cpu_s": 1 / cpu_s_each,
        "wall_s": wall_s,
    }


def measure(
    tokens: int = 12_500, rounds: int = 3, ways: tuple[str, ...] = tuple(WAYS)
) -> list[dict[str, Any]]:
    """The best of some rounds, taken in turns so that a busy moment hits all alike."""
    rows = []
    with running() as base_url:
        best: dict[str, tuple[float, float]] = {}
        for turn in range(rounds):
            for name in ways:
                if turn and name not in QUICK:
                    continue
                each = tokens if name in QUICK else tokens // 5
                orders = [
                    Order(id=f"{name}/{turn}/{i}", tokens=each, tok_s=0.0, most_per_chunk=1) for i in range(8)
                ]
                cpu_s, wall_s = run(cost(WAYS[name], base_url, orders))
                found = (cpu_s / (8 * each), wall_s)
                best[name] = min(best.get(name, found), found)
        rows += [row(name, "8 streams flat out", each, wall_s) for name, (each, wall_s) in best.items()]
        for name in ways:
            orders = [
                Order(id=f"paced {name}/{i}", tokens=200, tok_s=100.0, ttft_s=0.2, most_per_chunk=1)
                for i in range(32)
            ]
            cpu_s, wall_s = run(cost(WAYS[name], base_url, orders))
            rows.append(row(name, "32 streams x 100/s", cpu_s / (32 * 200), wall_s))
    return rows


if __name__ == "__main__":
    import sys

    for line in measure(ways=tuple(sys.argv[1:]) or tuple(WAYS)):
        print({k: round(v, 3) if isinstance(v, float) else v for k, v in line.items()})
