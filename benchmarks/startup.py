"""What starting costs: the command's help and the imports of the client, against a bare interpreter.

python -m benchmarks.startup
"""

from __future__ import annotations

import subprocess
import sys
import time
from typing import Any

CASES = {
    "bare interpreter": ["-c", "pass"],
    "import httpx": ["-c", "import httpx"],
    "import bench.records": ["-c", "import bench.records"],
    "import bench.wire.client": ["-c", "import bench.wire.client"],
    "ctxbench --help": ["-m", "bench", "--help"],
    "ctxbench run --help": ["-m", "bench", "run", "--help"],
}


def measure(rounds: int = 5) -> list[dict[str, Any]]:
    """The best of some rounds, taken in turns."""
    best = dict.fromkeys(CASES, float("inf"))
    for _ in range(rounds):
        for name, arguments in CASES.items():
            started = time.monotonic()
            subprocess.run([sys.executable, *arguments], check=True, capture_output=True, timeout=60)
            best[name] = min(best[name], time.monotonic() - started)
    bare = best["bare interpreter"]
    return [
        {"case": name, "wall_s": seconds, "bare_starts": seconds / bare} for name, seconds in best.items()
    ]


if __name__ == "__main__":
    for row in measure():
        print(row)
