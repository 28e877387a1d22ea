"""Suites on simulated servers, and the command line as a person calls it."""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from unittest import mock

from bench.cli.main import main
from bench.journal import read_entries
from bench.records import Event, Exchange
from bench.run.progress import Progress
from bench.run.study import Order, start
from bench.servers import simulator

TOKENIZER = Path(simulator.__file__).with_name("tokenizer.json")


def suite_text(base_urls: dict[str, str], *, suite: str = "", route: str = "", prompt: str = "") -> str:
    """A small suite on these servers; extra lines go to the end of their tables."""
    routes = "".join(f'[[route]]\nname = "{n}"\nbase_url = "{u}"\n{route}\n' for n, u in base_urls.items())
    return f"""
[suite]
name = "small"
tiers = [256, 512]
output_tokens = 16
repeats = 2
replays = 1
retry_invalid = 3
{suite}
[prompt]
corpus = "synthetic"
tokenizer = '{TOKENIZER}'
{prompt}
{routes}
"""


def ctxbench(arguments: Sequence[str], cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs the command line in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "bench", *arguments],
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def ctxbench_here(
    arguments: Sequence[str], cwd: Path, **environment: str
) -> subprocess.CompletedProcess[str]:
    """The same in this process: as much of a command line as matters, without its start-up time."""
    out, err = io.StringIO(), io.StringIO()
    code = 0
    with (
        contextlib.chdir(cwd),
        mock.patch.object(sys, "argv", ["ctxbench", *arguments]),
        mock.patch.dict(os.environ, environment),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            main()
        except SystemExit as left:
            code = left.code if isinstance(left.code, int) else 1
    return subprocess.CompletedProcess(arguments, code, out.getvalue(), err.getvalue())


async def interrupted(order: Order, when: Callable[[Progress], bool]) -> None:
    """Starts a run, and cancels it as Ctrl-C does once `when` is so."""
    progress = Progress()
    task = asyncio.create_task(start(order, progress))
    while not when(progress) and not task.done():
        await asyncio.sleep(0.005)
    task.cancel()
    await task


def only_run(results: Path) -> Path:
    """The one run directory in a results folder."""
    (run,) = [path for path in results.iterdir() if path.is_dir()]
    return run


def exchanges(run: Path) -> list[Exchange]:
    """All but the warm-ups, in order."""
    entries = read_entries(run)
    return [entry for entry in entries if isinstance(entry, Exchange) and entry.purpose != "warmup"]


def events(run: Path, name: str) -> list[Event]:
    return [entry for entry in read_entries(run) if isinstance(entry, Event) and entry.name == name]
