"""Runs the benchmarks and writes benchmarks/RESULTS.md.

python -m benchmarks all            every one of them, on a quiet machine
python -m benchmarks clock memory   some; the other sections of RESULTS.md stay as they are

"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from bench.wire.host import environment

PEERS = ("httpx", "httpx-aiohttp")
"""Clients that ours is compared with; it does not use them."""
RESULTS = Path(__file__).with_name("RESULTS.md")
TITLES: dict[str, str] = {
    "clock": "Clock: our times against a server's own send times",
    "pace": "Pace: how late the simulated server is, and the client beside it",
    "client_cpu": "CPU of reading streams",
    "memory": "Memory",
    "startup": "Start-up",
    "report": "Report on a large journal",
    "study": "A whole command: 128 requests, 32 at a time",
    "prompts": "Composing prompts",
    "logs": "Reading logs",
}
PRINTED = ("prompts", "logs")
"""These print their own tables; README.md says what of."""


def measured(name: str) -> list[dict[str, Any]]:
    """The rows of one benchmark, run in a process of its own: none inherits another's memory."""
    command = [sys.executable, "-m", "benchmarks", "--rows", name]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    rows: list[dict[str, Any]] = json.loads(done.stdout)
    return rows


def rows_of(name: str) -> list[dict[str, Any]]:
    found = importlib.import_module(f"benchmarks.{name}").measure()
    return [found] if isinstance(found, dict) else list(found)


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    names = list(rows[0])
    lines = [
        "| " + " | ".join(name.replace("_", " ") for name in names) + " |",
        "|" + "|".join("---" if isinstance(rows[0][name], str) else "---:" for name in names) + "|",
    ]
    lines += ["| " + " | ".join(shown(row[name]) for name in names) + " |" for row in rows]
    return "\n".join(lines)


def shown(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def printed(name: str) -> str:
    """What one of `PRINTED` says."""
    command = [sys.executable, "-m", f"benchmarks.{name}"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return f"```text\n{done.stdout.rstrip()}\n```"


def section(name: str, told: str) -> str:
    facts = environment() | {f"version.{peer}": metadata.version(peer) for peer in PEERS}
    load = f"{os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else "?"
    machine = ", ".join(facts[key] for key in ("cpu_model", "platform", "python", "loop") if key in facts)
    when = datetime.now(UTC).strftime("%Y-%m-%d")
    versions = ", ".join(
        f"{key.removeprefix('version.')} {value}"
        for key, value in facts.items()
        if key.removeprefix("version.") in (*PEERS, "aiohttp", "uvloop", "msgspec")
    )
    head = f"{when}; {facts['cpus']} CPUs ({machine}), load {load} at the end; {versions}."
    return f"## {TITLES[name]}\n\n{head}\n\n{told}\n"


def main(names: Sequence[str]) -> None:
    kept = RESULTS.read_text(encoding="utf-8") if RESULTS.exists() else ""
    sections = {name: text for name in TITLES if (text := found(kept, TITLES[name]))}
    for name in names:
        print(f"{name} ...", file=sys.stderr)
        sections[name] = section(name, printed(name) if name in PRINTED else table(measured(name)))
        start = "# Results\n\nWritten by `python -m benchmarks`; what the columns mean: README.md.\n\n"
        parts = [sections[each] for each in TITLES if each in sections]
        RESULTS.write_text(start + "\n".join(parts), encoding="utf-8")


def wanted() -> list[str]:
    """The names on the command line."""
    lines = "\n".join(f"    {name:12}{title}" for name, title in TITLES.items())
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=f"{__doc__}names:\n{lines}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="+", choices=["all", *TITLES], metavar="name")
    names: list[str] = parser.parse_args().names
    return list(TITLES) if "all" in names else names


def found(text: str, title: str) -> str | None:
    match = re.search(rf"^## {re.escape(title)}\n.*?(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    return match[0].rstrip() + "\n" if match else None


if __name__ == "__main__":
    if sys.argv[1:2] == ["--rows"]:
        print(json.dumps(rows_of(sys.argv[2])))
    else:
        main(wanted())
