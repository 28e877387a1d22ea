"""Servers in processes of their own: started, waited for, and always stopped.

The child is this program's own `serve` command. It prints one JSON line when it is ready, and ends
when its standard input closes, so that it cannot outlive us however we end.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

import msgspec
from msgspec import Struct

from bench.errors import EngineError


class Ready(Struct, frozen=True, kw_only=True):
    """The line a `serve` command prints once it answers requests."""

    base_url: str
    pid: int


class Child(Struct, frozen=True, kw_only=True):
    """A running server of ours."""

    base_url: str
    process: subprocess.Popen[bytes]


@contextlib.contextmanager
def serving(
    arguments: Sequence[str], *, log: Path | None = None, ready_timeout_s: float = 120.0
) -> Iterator[Child]:
    """Runs `ctxbench serve ARGUMENTS...` while the context lasts.

    `log` takes what the server writes on stderr. Raises `EngineError` with the server's last words
    when it ends, or stays silent for `ready_timeout_s`, before it is ready.
    """
    with contextlib.ExitStack() as stack:
        sink = stack.enter_context(log.open("ab")) if log else None
        process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
            [sys.executable, "-m", "bench", "serve", *arguments, "--with-parent"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=sink if sink else subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C in the terminal is for us; we stop it in order
        )
        stack.callback(_stop, process)
        ready = _wait_ready(process, arguments, log, ready_timeout_s)
        yield Child(base_url=ready.base_url, process=process)


def _wait_ready(
    process: subprocess.Popen[bytes], arguments: Sequence[str], log: Path | None, timeout_s: float
) -> Ready:
    assert process.stdout is not None  # noqa: S101 - a pipe was asked for
    line = _first_line(process.stdout, timeout_s)
    if line:
        return msgspec.json.decode(line, type=Ready)
    state = process.poll()
    reason = "was silent" if state is None else f"ended with exit code {state}"
    words = _last_line(log)
    raise EngineError(f"ctxbench serve {' '.join(arguments)}: {reason} before it was ready{words}")


def _first_line(stream: IO[bytes], timeout_s: float) -> bytes:
    """The stream's first line, or nothing when it ends or the time runs out."""
    found: list[bytes] = []
    reader = threading.Thread(target=lambda: found.append(stream.readline()), daemon=True)
    reader.start()
    reader.join(timeout_s)
    return found[0] if found else b""


def _last_line(log: Path | None) -> str:
    if log is None:
        return ""
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - 4096))
        lines = file.read().decode("utf-8", "replace").strip().splitlines()
    return f": {lines[-1]}" if lines else ""


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Ends the child: first by closing its standard input, then by signals."""
    if process.stdin:
        with contextlib.suppress(BrokenPipeError):  # it has ended already
            process.stdin.close()
    for signal in (None, process.terminate, process.kill):
        if signal:
            signal()
        try:
            process.wait(timeout=10)
            break
        except subprocess.TimeoutExpired:
            continue
    if process.stdout:
        process.stdout.close()
