"""How fast the log analyser is, and how much memory it takes.

    python benchmarks/logs.py [MEGABYTES]

Three logs of the given size (100 MB by default) are made up as they are read, so that the disk has
no part in it: a flood past the drafter limit, a busy server with request ids in its lines, and text
that never repeats (the worst case: nearly every line has a new shape). Only the analyser's CPU time counts.
"""

from __future__ import annotations

import random
import resource
import sys
import time
from collections.abc import Callable, Iterator
from itertools import count

from bench.analysis.logs.analyser import LogAnalyser

BLOCK_LINES = 5_000
FLOOD = (
    "(EngineCore pid=10024) WARNING {} [gpu_model_runner.py:4431] Skipping speculative drafts because "
    "the drafter context limit is reached: max_seq_len={}, num_spec_tokens=4, "
    "effective_drafter_max_model_len=262144"
)
REQUEST = (
    "(APIServer pid=9988) INFO {} [logger.py:40] Received request chatcmpl-{:032x}: "
    "params: SamplingParams(n=1, temperature=0.0, max_tokens={}), prompt_token_ids: None."
)
ANSWER = 'INFO:     127.0.0.1:{} - "POST /v1/chat/completions HTTP/1.1" 200 OK'
STATS = (
    "(APIServer pid=9988) INFO {} [loggers.py:259] Engine 000: Avg prompt throughput: {:.1f} tokens/s, "
    "Avg generation throughput: {:.1f} tokens/s, Running: 2 reqs, Waiting: 0 reqs, "
    "GPU KV cache usage: {:.1f}%"
)


def stamp(second: int) -> str:
    return f"11-29 {second // 3600 % 24:02d}:{second // 60 % 60:02d}:{second % 60:02d}"


def flood(rng: random.Random, number: int) -> str:
    return FLOOD.format(stamp(number // 9), 262_144 + number % 60_000)


def busy(rng: random.Random, number: int) -> str:
    when = stamp(number // 4)
    if number % 3 == 0:
        return REQUEST.format(when, rng.getrandbits(128), rng.randrange(4096))
    if number % 3 == 1:
        return ANSWER.format(rng.randrange(30_000, 60_000))
    return STATS.format(when, rng.random() * 9_000, rng.random() * 90, rng.random() * 100)


def unlike(rng: random.Random, number: int) -> str:
    return "".join(rng.choices("abcdefghijklmnopqrstuvwxyz      ", k=120))


def blocks(line: Callable[[random.Random, int], str], size: int) -> Iterator[bytes]:
    rng, made, numbers = random.Random(1), 0, count()
    while made < size:
        block = "\n".join(line(rng, next(numbers)) for _ in range(BLOCK_LINES)).encode() + b"\n"
        made += len(block)
        yield block


def main() -> None:
    size = int(float(sys.argv[1]) * 1e6) if len(sys.argv) > 1 else 100_000_000
    head = (
        ("lines", 12),
        ("MB", 8),
        ("CPU s", 8),
        ("MB/s", 8),
        ("lines/s", 12),
        ("GB in s", 9),
        ("peak MB", 9),
    )
    print(f"{'log':8}" + "".join(name.rjust(width) for name, width in head) + "  floods")
    for name, line in {"flood": flood, "busy": busy, "unlike": unlike}.items():
        analyser, spent = LogAnalyser(), 0.0
        for block in blocks(line, size if name != "unlike" else size // 20):
            start = time.process_time()
            analyser.feed(block)
            spent += time.process_time() - start
        report = analyser.report()
        unit = 1e6 if sys.platform == "darwin" else 1e3
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit
        rate = report.bytes / spent / 1e6
        print(
            f"{name:8}{report.lines:12,}{report.bytes / 1e6:8.0f}{spent:8.2f}{rate:8.0f}"
            f"{report.lines / spent:12,.0f}{1000 / rate:9.0f}{peak:9.0f}  {len(report.kind('flood'))}"
        )


if __name__ == "__main__":
    main()
