"""How wrong the clock is: our times against the send times of a server that knows them.

    python -m benchmarks.clock

Streams are released together. Per stream the server waits 1 s, then sends 256 tokens at 100 tokens a
second. Two loads:

    burst       chunks of 1 to 5 tokens, and every stream's chunks are due at the same instants
    paced       a chunk for every token, the streams spread evenly over the 10 ms between two of them

A single stream is asked for five times, one after another: one first token has no median.

Errors are our figure minus the server's own:

    TTFT        (first text - sent) - (first text sent - request arrived)
    decode      relative error of the decode rate
    chunk       arrival stamp - send stamp, of every chunk (one clock, one machine)
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import time
from collections.abc import Awaitable, Callable
from itertools import chain
from typing import Any

import numpy as np

from bench.records import Timeouts
from bench.wire.client import Client
from bench.wire.loop import run
from bench.wire.stream import decode
from benchmarks.stub import Order, body, running

LIMITS = Timeouts(first_token_s=60.0, idle_s=60.0)
# what one client saw of one stream: `sent` and, per chunk with text, its stamp; monotonic
Seen = tuple[int, list[int]]
Row = dict[str, Any]
Study = Callable[[str, list[Order]], Awaitable[list[Seen]]]


async def ours(base_url: str, orders: list[Order]) -> list[Seen]:
    async with Client(base_url) as client:
        prepared = [
            client.prepare("/chat/completions", body(o), timeouts=LIMITS, prompt_tokens=9, endpoint="chat")
            for o in orders
        ]
        await client.warm(connections=len(orders))
        raws = await asyncio.gather(*(client.exchange(p) for p in prepared))
    seen = []
    for raw in raws:
        for at_ns, data in raw.recorder.take():
            raw.decoder.feed(at_ns - raw.sent_ns, data)
        answer = raw.decoder.finish()
        assert raw.failure is None and answer.failure is None, (raw.failure, answer.failure)
        seen.append((raw.sent_ns, text_stamps(answer.chunks, raw.sent_ns)))
    return seen


async def through_httpx(client: Any, base_url: str, orders: list[Order]) -> list[Seen]:
    """The usual way: stream the response, stamp in the loop over it."""

    async def one(order: Order) -> Seen:
        reads = []
        sent_ns = time.monotonic_ns()
        async with client.stream(
            "POST", f"{base_url}/chat/completions", content=body(order), timeout=60
        ) as response:
            async for data in response.aiter_raw():
                reads.append((time.monotonic_ns() - sent_ns, data))
        return sent_ns, text_stamps(decode(reads, "chat").chunks, sent_ns)

    await asyncio.gather(*(client.get(f"{base_url}/models") for _ in orders))
    return list(await asyncio.gather(*(one(o) for o in orders)))


async def plain_httpx(base_url: str, orders: list[Order]) -> list[Seen]:
    import httpx

    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    async with httpx.AsyncClient(trust_env=False, limits=limits) as client:
        return await through_httpx(client, base_url, orders)


async def httpx_aiohttp(base_url: str, orders: list[Order]) -> list[Seen]:
    import aiohttp
    import httpx
    from httpx_aiohttp import AiohttpTransport

    def session() -> aiohttp.ClientSession:
        return aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))

    async with httpx.AsyncClient(transport=AiohttpTransport(client=session), trust_env=False) as client:
        return await through_httpx(client, base_url, orders)


def text_stamps(chunks: Any, sent_ns: int) -> list[int]:
    return [at + sent_ns for at, chars in zip(chunks.at_ns, chunks.chars, strict=True) if chars]


def decode_rate(stamps: list[int], tokens: int) -> float:
    return (tokens - 1) / ((stamps[-1] - stamps[0]) / 1e9)


def burst(name: str, streams: int) -> list[Order]:
    return [Order(id=f"{name}/{i}", ttft_s=1.0, seed=i if streams > 1 else 7) for i in range(streams)]


def paced(name: str, streams: int) -> list[Order]:
    return [
        Order(id=f"{name}/{i}", ttft_s=1.0 + 0.01 * i / streams, most_per_chunk=1) for i in range(streams)
    ]


LOADS = {"burst": burst, "paced": paced}
ALONE = 5  # requests of a single stream


async def study(name: str, way: Study, load: str, base_url: str, streams: int, turn: int) -> Row:
    waves = [
        LOADS[load](f"{name}/{load}/{streams}/{turn}/{wave}", streams)
        for wave in range(ALONE if streams == 1 else 1)
    ]
    seen: list[Seen] = []
    cpu = 0.0
    for orders in waves:
        async with Client(base_url) as client:
            await client.post_json("/prepare", orders)
        gc.collect()
        before = time.process_time()
        seen += await way(base_url, orders)
        cpu += time.process_time() - before
    async with Client(base_url) as client:
        truth = json.loads(await client.get_text("/truth"))
    ttft, rate, chunk = [], [], []
    for order, (sent_ns, stamps) in zip(chain.from_iterable(waves), seen, strict=True):
        true = truth[order.id]
        assert len(stamps) == len(true["sent_ns"]), (len(stamps), len(true["sent_ns"]))
        ttft.append((stamps[0] - sent_ns) - (true["sent_ns"][0] - true["arrived_ns"]))
        true_rate = decode_rate(true["sent_ns"], order.tokens)
        rate.append(abs(decode_rate(stamps, order.tokens) - true_rate) / true_rate)
        chunk += [ours - theirs for ours, theirs in zip(stamps, true["sent_ns"], strict=True)]
    in_ms = np.array(ttft) / 1e6
    late = np.array(chunk) / 1e6
    return {
        "client": name,
        "load": load,
        "streams": streams,
        "ttft_median_ms": float(np.median(in_ms)),
        "ttft_mean_ms": float(in_ms.mean()),
        "ttft_p99_ms": float(np.percentile(in_ms, 99)),
        "decode_error_percent": float(np.median(rate)) * 100,
        "chunk_p50_ms": float(np.percentile(late, 50)),
        "chunk_p99_ms": float(np.percentile(late, 99)),
        "chunk_max_ms": float(late.max()),
        "cpu_s": cpu,
        "chunks": len(chunk),
    }


PEERS: dict[str, Study] = {"httpx-aiohttp": httpx_aiohttp, "httpx": plain_httpx}


def measure(counts: tuple[int, ...] = (1, 8, 32, 128), peers_at: int = 32, rounds: int = 3) -> list[Row]:
    """Of some rounds, taken in turns, the one that this machine disturbed least (smallest mean TTFT
    error): what a neighbour steals is not the client's. All clients are treated alike."""
    cases: list[tuple[str, Study, str, int]] = [
        ("ctxbench", ours, load, streams) for load in LOADS for streams in counts
    ]
    cases += [(name, way, "burst", peers_at) for name, way in PEERS.items()]
    best: dict[tuple[str, str, int], Row] = {}
    with running() as base_url:
        for turn in range(rounds):
            for name, way, load, streams in cases:
                row = run(study(name, way, load, base_url, streams, turn))
                kept = best.setdefault((name, load, streams), row)
                if row["ttft_mean_ms"] < kept["ttft_mean_ms"]:
                    best[name, load, streams] = row
    return list(best.values())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 8, 32, 128])
    parser.add_argument("--rounds", type=int, default=1)
    options = parser.parse_args()
    for line in measure(tuple(options.streams), rounds=options.rounds):
        print({k: round(v, 4) if isinstance(v, float) else v for k, v in line.items()})
