"""What starting costs: the command's help and the imports of the client, against a bare interpreter.

    python -m benchmarks.startup

CPU seconds, since wall time is also that of the disk. `import click` is the floor of every command.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from typing import Any

CASES = {
    "bare interpreter": ["-c", "pass"],
    "import click": ["-c", "import click"],
    "import httpx": ["-c", "import httpx"],
    "import bench.records": ["-c", "import bench.records"],
    "import bench.wire.client": ["-c", "import bench.wire.client"],
    "ctxbench --help": ["-m", "bench", "--help"],
    "ctxbench run --help": ["-m", "bench", "run", "--help"],
}


def measure(rounds: int = 15) -> list[dict[str, Any]]:
    """The best of some rounds, taken in turns."""
    nothing = (float("inf"), float("inf"))
    best = dict.fromkeys(CASES, nothing)
    for _ in range(rounds):
        for name, arguments in CASES.items():
            best[name] = min(best[name], started(arguments))
    bare = best["bare interpreter"][0]
    return [
        {"case": name, "cpu_s": cpu_s, "bare_starts": cpu_s / bare, "wall_s": wall_s}
        for name, (cpu_s, wall_s) in best.items()
    ]


def started(arguments: list[str]) -> tuple[float, float]:
    """CPU and wall seconds of one start."""
    before, at = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    subprocess.run([sys.executable, *arguments], check=True, capture_output=True, timeout=60)
    wall_s, after = time.monotonic() - at, resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, wall_s


if __name__ == "__main__":
    for row in measure():
        print(row)
