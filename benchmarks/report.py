"""What a large journal costs to understand: `ctxbench report` on many long exchanges.

    python -m benchmarks.report [exchanges] [chunks of each]

The journal is made up: one route, two tiers, plausible times, no server. The command runs in a
process of its own, which has a second one read and draw for it: CPU time is that of both, memory that of the
larger one.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from bench.journal import SCHEMA, Journal
from bench.plan.suite import parse_suite
from bench.records import Chunks, Exchange, PromptRecipe, RunInfo, Suite, Trial, Usage

SUITE = """
[suite]
name = "large"
tiers = [4096, 8192]
conditions = ["cold"]
output_tokens = {tokens}
repeats = {repeats}
[[route]]
name = "made-up"
base_url = "http://127.0.0.1:1/v1"
"""


def exchanges(suite: Suite, count: int, chunks: int) -> Iterator[Exchange]:
    rng = np.random.default_rng(1)
    for number in range(count):
        tier = suite.tiers[number % 2]
        repeat = number // 2 + 1
        first_ns = int(tier * 2e5)
        at_ns = (first_ns + np.cumsum(rng.integers(9_000_000, 11_000_000, chunks))).tolist()
        trial_id = f"made-up/{tier}/cold/{repeat}"
        yield Exchange(
            trial=Trial(
                id=trial_id, route="made-up", tier=tier, condition="cold", repeat=repeat, output_tokens=chunks
            ),
            prompt=PromptRecipe(
                sha256=f"{number:064x}",
                tokens=tier,
                endpoint="chat",
                corpus="synthetic",
                corpus_sha256="0" * 64,
                task="continue",
                start=number,
            ),
            url="http://127.0.0.1:1/v1/chat/completions",
            sent_ns=number * 10_000_000_000,
            uploaded_ns=100_000,
            headers_ns=first_ns,
            ended_ns=at_ns[-1],
            status=200,
            read_ns=tuple(at_ns),
            read_bytes=(230,) * chunks,
            chunks=Chunks(at_ns=tuple(at_ns), chars=(5,) * chunks, kinds="c" * chunks),
            text="token" * chunks,
            finish_reason="length",
            done=True,
            usage=Usage(prompt_tokens=tier, completion_tokens=chunks, cached_tokens=0),
        )


def make(path: Path, count: int, chunks: int) -> None:
    text = SUITE.format(tokens=chunks, repeats=max(1, count // 20))
    suite = parse_suite(text, name="large.toml")
    info = RunInfo(
        schema=SCHEMA,
        id=path.name,
        created_at="2026-01-01T00:00:00Z",
        nonce="0",
        suite=suite,
        suite_text=text,
        plan=tuple(entry.trial for entry in exchanges(suite, count, 1)),
    )
    with Journal.create(path, info) as journal:
        for entry in exchanges(suite, count, chunks):
            journal.append(entry)


def measure(count: int = 10_000, chunks: int = 500) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "large"
        make(path, count, chunks)
        size_mb = (path / "journal.jsonl").stat().st_size / 1e6
        started = time.monotonic()
        command = [sys.executable, "-m", "bench", "report", str(path)]
        subprocess.run(command, check=True, capture_output=True, timeout=900)
        took_s = time.monotonic() - started
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {
        "exchanges": count,
        "chunks_each": chunks,
        "journal_mb": size_mb,
        "report_s": took_s,
        "cpu_s": usage.ru_utime + usage.ru_stime,
        "peak_mb": usage.ru_maxrss / (1e6 if sys.platform == "darwin" else 1e3),
    }


if __name__ == "__main__":
    print(measure(*(int(argument) for argument in sys.argv[1:])))
