"""What starting costs: imports, help, and a run until it asks its server, against a bare interpreter.

    python -m benchmarks.startup

CPU seconds, since wall time is also that of the disk. `import click` is the floor of every command.
"""

from __future__ import annotations

import resource
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CASES = {
    "bare interpreter": ["-c", "pass"],
    "import click": ["-c", "import click"],
    "import asyncio": ["-c", "import asyncio"],
    "import bench.records": ["-c", "import bench.records"],
    "import bench.wire.client": ["-c", "import bench.wire.client"],
    "ctxbench --help": ["-m", "bench", "--help"],
    "ctxbench run --help": ["-m", "bench", "run", "--help"],
}
FIRST_REQUEST = "ctxbench run, to its first request"
SUITE = """
[suite]
name = "start"
tiers = [1000]
output_tokens = 16

[[route]]
name = "only"
base_url = "http://127.0.0.1:{port}/v1"
"""


def measure(rounds: int = 15) -> list[dict[str, Any]]:
    """The best of some rounds, taken in turns."""
    nothing = (float("inf"), float("inf"))
    best = dict.fromkeys([*CASES, FIRST_REQUEST], nothing)
    for _ in range(rounds):
        for name, arguments in CASES.items():
            best[name] = min(best[name], started(arguments))
        best[FIRST_REQUEST] = min(best[FIRST_REQUEST], asked())
    bare = best["bare interpreter"][0]
    return [
        {"case": name, "cpu_s": cpu_s, "bare_starts": cpu_s / bare, "wall_s": wall_s}
        for name, (cpu_s, wall_s) in best.items()
    ]


def started(arguments: list[str]) -> tuple[float, float]:
    """CPU and wall seconds of one start, its end included."""
    with spent() as seconds:
        subprocess.run([sys.executable, *arguments], check=True, capture_output=True, timeout=60)
    return seconds[0], seconds[1]


def asked() -> tuple[float, float]:
    """The same of a run that is ended as soon as it connects to its server."""
    with socket.create_server(("127.0.0.1", 0)) as server, tempfile.TemporaryDirectory() as folder:
        server.settimeout(60)
        suite = Path(folder, "suite.toml")
        suite.write_text(SUITE.format(port=server.getsockname()[1]), encoding="utf-8")
        command = [sys.executable, "-m", "bench", "run", str(suite), "--results", folder, "--quiet"]
        with spent() as seconds, subprocess.Popen(command) as run:
            server.accept()[0].close()
            run.kill()
    return seconds[0], seconds[1]


@contextmanager
def spent() -> Iterator[list[float]]:
    """Holds CPU and wall seconds of the processes that have ended meanwhile, once they have."""
    seconds: list[float] = []
    before, at = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    yield seconds
    wall_s, after = time.monotonic() - at, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    seconds += [cpu_s, wall_s]


if __name__ == "__main__":
    for row in measure():
        print(row)
