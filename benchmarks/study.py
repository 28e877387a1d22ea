"""A whole command against the simulator: what `ctxbench run --no-report` costs beyond its server.

    python -m benchmarks.study [waves [requests in each]]

Waves of 32 requests, released together: some 1 s to the first token, then 256 tokens at 100 tokens a
second in chunks of 1 to 5. The server's own time is the time in which it had a request, the check's
small one included, or was making a page, a list of models or tokens for us: from the arrival to the last
byte, as its `/truth` says. What is beyond it is everything else: starting, composing prompts, checks,
settling, the journal. The report is made
afterwards by a command of its own.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from bench.journal import read_entries
from bench.records import Exchange
from bench.servers import simulator
from bench.wire.client import Client
from bench.wire.loop import run

OUTPUT = 256
TOKENIZER = Path(simulator.__file__).with_name("tokenizer.json")
PROFILE = """
name = "study"
about = "32 sequences at once, 30 ms of prefill each, in steps of 30 ms that give three tokens on average"
model = "toy"
max_model_len = 32768
max_num_seqs = 64
max_num_batched_tokens = 65536
block_size = 16
kv_capacity_tokens = 1048576
answer_tokens = [40, 400]
[timing]
tokenize_tok_s = 5000000.0
start_s = 0.03
token_s = 0.0
token2_s = 0.0
cached_token_s = 0.0
step_s = 0.03
draft_s = 0.0
context_s = 0.0
sequence_s = 0.0
[speculation]
method = "mtp"
num_speculative_tokens = 4
drafter_limit = 32768
past_limit = "no-drafts"
block_drop = 1
[[speculation.acceptance]]
context = 0
per_position = [0.8, 0.6, 0.4, 0.2]
"""
SUITE = """
[suite]
name = "study"
tiers = [512]
conditions = ["cold"]
output_tokens = {output}
repeats = {waves}
concurrency = [{together}]
seed = 1
warmup = "none"
[prompt]
corpus = "synthetic"
tokenizer = "{tokenizer}"
[[route]]
name = "simulated"
base_url = "{base_url}"
speculation = {{ method = "mtp", num_speculative_tokens = 4 }}
"""


class Spent:
    """CPU and wall seconds, and the peak memory, of commands run one after the other."""

    def run(self, *arguments: str) -> dict[str, float]:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        started = time.monotonic()
        command = [sys.executable, "-m", "bench", *arguments]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=900)
        wall_s = time.monotonic() - started
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        scale = 1e6 if sys.platform == "darwin" else 1e3
        return {
            "wall_s": wall_s,
            "cpu_s": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
            "peak_mb": after.ru_maxrss / scale,
        }


async def told(base_url: str) -> Any:
    async with Client(base_url) as client:
        return await client.get_json(f"{client.origin}/truth")


def measure(waves: int = 4, together: int = 32) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        profile = folder / "study.toml"
        profile.write_text(PROFILE, encoding="utf-8")
        command = [sys.executable, "-m", "bench", "serve", "simulator", "--profile", str(profile)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
            try:
                assert server.stdout is not None
                base_url = json.loads(server.stdout.readline())["base_url"]
                return run_study(folder, base_url, waves, together)
            finally:
                server.terminate()


def run_study(folder: Path, base_url: str, waves: int, together: int) -> list[dict[str, Any]]:
    suite = folder / "suite.toml"
    suite.write_text(
        SUITE.format(output=OUTPUT, waves=waves, together=together, base_url=base_url, tokenizer=TOKENIZER),
        encoding="utf-8",
    )
    results = folder / "results"
    spent = Spent()
    measured = spent.run("run", str(suite), "--results", str(results), "--no-report", "--quiet")
    [path] = [each for each in results.iterdir() if each.is_dir()]
    reported = spent.run("report", str(path))
    truths = run(told(base_url))
    served = truths["requests"]
    truth = [one for one in served if one["max_tokens"] == OUTPUT]
    exchanges = [one for one in read_entries(path) if isinstance(one, Exchange) and one.purpose == "trial"]
    assert len(exchanges) == len(truth) == waves * together, (len(exchanges), len(truth))
    assert all(one.failure is None for one in exchanges)
    server_s = busy_s(
        [*map(generated, served), *((one["arrived_ns"], one["sent_ns"]) for one in truths["pages"])]
    )
    late = np.array(late_ms(exchanges, truth))
    nothing = {
        "server_s": 0.0,
        "beyond_server_s": 0.0,
        "first_chunk_late_mean_ms": 0.0,
        "first_chunk_late_p99_ms": 0.0,
    }
    return [
        {
            "command": "run --no-report",
            "requests": len(exchanges),
            **measured,
            "server_s": server_s,
            "beyond_server_s": measured["wall_s"] - server_s,
            "first_chunk_late_mean_ms": float(late.mean()),
            "first_chunk_late_p99_ms": float(np.percentile(late, 99)),
        },
        {"command": "report", "requests": len(exchanges), **reported, **nothing},
    ]


def generated(truth: Any) -> tuple[int, int]:
    """When a generation request had arrived, and when its last chunk was sent."""
    return truth["arrived_ns"], max(truth["chunk_sent_ns"], default=truth["arrived_ns"])


def busy_s(spans: list[tuple[int, int]]) -> float:
    """Seconds in which at least one request had arrived and was not yet answered; spans in nanoseconds."""
    busy_ns, until_ns = 0, 0
    for arrived_ns, answered_ns in sorted(spans):
        busy_ns += max(0, answered_ns - max(arrived_ns, until_ns))
        until_ns = max(until_ns, answered_ns)
    return busy_ns / 1e9


def late_ms(exchanges: list[Exchange], truth: list[Any]) -> list[float]:
    """How long after the server had sent its first chunk each of ours was stamped, on the one clock of
    this machine. Both sides are put in order, so single figures may be of neighbours; the mean is not.
    """
    stamped = sorted(one.sent_ns + first_text_ns(one) for one in exchanges)
    sent = sorted(one["chunk_sent_ns"][0] for one in truth)
    return [(ours - theirs) / 1e6 for ours, theirs in zip(stamped, sent, strict=True)]


def first_text_ns(exchange: Exchange) -> int:
    """After `sent`."""
    columns = zip(exchange.chunks.at_ns, exchange.chunks.chars, strict=True)
    return next(at_ns for at_ns, chars in columns if chars)


if __name__ == "__main__":
    for row in measure(*(int(argument) for argument in sys.argv[1:])):
        print({key: round(value, 3) if isinstance(value, float) else value for key, value in row.items()})
