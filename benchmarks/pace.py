"""How late the simulated server is itself, and what the client adds: `python -m benchmarks.pace`.

`ctxbench demo --simulated` allows 1 ms of a first token that comes after 92 ms. Single requests of that
size, one after another on one server in a process of its own, say where such a millisecond goes:

    there    request arrived at the server - sent by the client
    late     first text handed to the socket - due by the laws of the profile
    back     first text stamped by the client - handed to the socket
    error    first token as measured - as planned: the sum of the three
    end      last text handed to the socket - due
"""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import numpy as np

from bench.records import Timeouts
from bench.servers.child import serving
from bench.wire.client import Client
from bench.wire.loop import run

SPEED, REQUESTS, OUTPUT = 32, 30, 512
PROFILES = ("qwen3.8-27b-v100-mtp4", "qwen3.8-27b-v100-target-only")
TEXT = "The quick brown fox jumps over the lazy dog, and then it walks home again. " * 233
"""With the chat template 6,303 tokens of the simulator's."""
PAUSE_S = 0.05


async def one(client: Client, number: int) -> dict[str, float]:
    """Parts of one request's first token, and the lateness of its last text, in ms."""
    messages = [{"role": "user", "content": f"{number} {TEXT}"}]
    body = msgspec.json.encode(
        {"messages": messages, "max_tokens": OUTPUT, "ignore_eos": True, "stream": True}
    )
    limits = Timeouts(first_token_s=60.0, idle_s=60.0)
    prepared = client.prepare("/chat/completions", body, timeouts=limits, prompt_tokens=6303, endpoint="chat")
    await client.warm()
    await asyncio.sleep(PAUSE_S)  # as between exchanges: caches are cold and processors asleep
    raw = await client.exchange(prepared)
    for at_ns, data in raw.recorder.take():
        raw.decoder.feed(at_ns - raw.sent_ns, data)
    answer = raw.decoder.finish()
    assert raw.failure is None and answer.failure is None, (raw.failure, answer.failure)
    chunks = answer.chunks
    first_ns = next(at for at, chars in zip(chunks.at_ns, chunks.chars, strict=True) if chars) + raw.sent_ns
    truth = (await client.get_json(client.origin + "/truth"))["requests"][-1]
    due, sent = truth["chunk_due_ns"], truth["chunk_sent_ns"]
    parts = {
        "there": truth["arrived_ns"] - raw.sent_ns,
        "late": sent[0] - due[0],
        "back": first_ns - sent[0],
        "error": first_ns - raw.sent_ns - truth["ttft_s"] * 1e9,
        "end": sent[-1] - due[-1],
    }
    return {name: value / 1e6 for name, value in parts.items()}


async def study(base_url: str, *, again: bool) -> list[dict[str, float]]:
    """The same prompt over and over where it is to be found in the cache; the first one is left out."""
    async with Client(base_url) as client:
        return [await one(client, 0 if again else number) for number in range(REQUESTS + 1)][1:]


def measure() -> list[dict[str, Any]]:
    rows = []
    for profile in PROFILES:
        for again in (False, True):
            with serving(["simulator", "--profile", profile, "--speed", str(SPEED)]) as server:
                found = run(study(server.base_url, again=again))
            row: dict[str, Any] = {"profile": profile, "prompt": "replay" if again else "cold"}
            for name in found[0]:
                values = [parts[name] for parts in found]
                row |= {f"{name}_p50_ms": float(np.median(values)), f"{name}_max_ms": max(values)}
            rows.append(row)
    return rows


if __name__ == "__main__":
    for line in measure():
        print({k: round(v, 3) if isinstance(v, float) else v for k, v in line.items()})
