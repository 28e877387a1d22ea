"""How much memory the client needs: peak of a fresh process per case, against the same process idle.

    python -m benchmarks.memory

Cases: a prompt of a million tokens in flight (5 MB of body); an answer of 100,000 tokens; 200
exchanges one after the other, and 1,000 (constant means that the two are alike).
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.records import PromptRecipe, Trial
from bench.wire.client import Client, finish
from bench.wire.loop import run
from benchmarks.clock import LIMITS
from benchmarks.stub import Order, body, running

TRIAL = Trial(id="r/1/cold/1", route="r", tier=1, condition="cold", repeat=1)
RECIPE = PromptRecipe(
    sha256="0", tokens=1, endpoint="chat", corpus="x", corpus_sha256="0", task="continue", start=0
)
CASES: dict[str, tuple[int, Order, int]] = {
    # exchanges, what to stream, bytes of prompt
    "idle": (0, Order(id="", tok_s=0.0), 0),
    "prompt of 5 MB (its own 5 MB included)": (1, Order(id="", ttft_s=0.1, tokens=8), 5_000_000),
    "the same, replayed 5 times": (6, Order(id="", ttft_s=0.1, tokens=8), 5_000_000),
    "answer of 100,000 tokens": (
        1,
        Order(id="", ttft_s=0.1, tok_s=20_000.0, tokens=100_000, most_per_chunk=1),
        0,
    ),
    "200 exchanges": (200, Order(id="", tok_s=0.0), 0),
    "1,000 exchanges": (1000, Order(id="", tok_s=0.0), 0),
}


def peak_mb() -> float:
    """Highest resident size of this process so far."""
    status = Path("/proc/self/status")
    if status.exists():  # since its start; getrusage remembers the parent's size too
        [line] = [line for line in status.read_text().splitlines() if line.startswith("VmHWM")]
        return int(line.split()[1]) / 1e3
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1e6 if sys.platform == "darwin" else 1e3)


async def one_case(name: str, base_url: str) -> None:
    count, order, filler = CASES[name]
    async with Client(base_url) as client:
        await client.get_json("/models")
        await client.warm()
        before = peak_mb()
        data = body(order, filler)
        for _ in range(count):
            prepared = client.prepare(
                "/chat/completions", data, timeouts=LIMITS, prompt_tokens=9, endpoint="chat"
            )
            raw = await client.exchange(prepared)
            exchange = await finish(raw, prepared, trial=TRIAL, prompt=RECIPE, request={})
            assert exchange.failure is None, exchange.failure
        print(json.dumps({"case": name, "peak_mb": peak_mb(), "grown_mb": peak_mb() - before}))


def measure() -> Iterator[dict[str, Any]]:
    with running() as base_url:
        for name in CASES:
            command = [sys.executable, "-m", "benchmarks.memory", name, base_url]
            done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
            yield json.loads(done.stdout)


if __name__ == "__main__":
    if len(sys.argv) == 3:
        run(one_case(sys.argv[1], sys.argv[2]))
    else:
        for row in measure():
            print(row, flush=True)
