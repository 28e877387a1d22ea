"""A whole command against the simulator: what `ctxbench run --no-report` costs beyond its server.

    python -m benchmarks.study [requests]

The server's own time is what its `/truth` says each request took.
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

from bench.wire.client import Client
from bench.wire.loop import run

SUITE = """
[suite]
name = "study"
tiers = [512]
conditions = ["cold"]
output_tokens = 256
repeats = {repeats}
seed = 1
warmup = "none"
[prompt]
corpus = "synthetic"
[[route]]
name = "simulated"
base_url = "{base_url}"
"""


def measure(requests: int = 128, speed: float = 20.0) -> dict[str, Any]:
    command = [sys.executable, "-m", "bench", "serve", "simulator", "--profile", "toy-target-only"]
    with subprocess.Popen([*command, "--speed", str(speed)], stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            base_url = json.loads(server.stdout.readline())["base_url"]
            return run_study(base_url, requests)
        finally:
            server.terminate()


async def told(base_url: str) -> Any:
    async with Client(base_url) as client:
        return await client.get_json(f"{client.origin}/truth")


def run_study(base_url: str, requests: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        suite = Path(folder) / "suite.toml"
        suite.write_text(SUITE.format(repeats=requests, base_url=base_url), encoding="utf-8")
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        started = time.monotonic()
        arguments = ["run", str(suite), "--results", folder, "--no-report", "--quiet"]
        subprocess.run(
            [sys.executable, "-m", "bench", *arguments], check=True, stdout=subprocess.DEVNULL, timeout=600
        )
        wall = time.monotonic() - started
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    truth = run(told(base_url))
    server_s = sum(request["total_s"] or 0.0 for request in truth["requests"])
    scale = 1e6 if sys.platform == "darwin" else 1e3
    return {
        "requests": len(truth["requests"]),
        "wall_s": wall,
        "server_s": server_s,
        "beyond_server_s": wall - server_s,
        "cpu_s": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
        "peak_mb": after.ru_maxrss / scale,
    }


if __name__ == "__main__":
    print(measure(*(int(argument) for argument in sys.argv[1:])))
