"""Files: those that ship beside the code (tasks, ready suites, published figures), and those users name.

The former lie in `prompts/` and `results/` at the top of a checkout; in a wheel inside the package.
"""

from __future__ import annotations

import os
import select
import stat
from pathlib import Path
from typing import IO

from bench.errors import SuiteError

PATIENCE_S = 60.0
"""So long a pipe may stay silent: what `<(command)` runs needs its time, and nobody waits for ever."""
LARGEST_TABLE = 256 * 2**20
"""Bytes of a table of figures: some million rows."""
_PIECE = 2**20
_PACKAGE = Path(__file__).resolve().parent


def shipped(*parts: str) -> Path:
    """Path of a shipped file or folder, e.g. `shipped("prompts", "tasks", "continue.md")`.

    Raises `FileNotFoundError` when neither a checkout nor a wheel has it.
    """
    for root in (_PACKAGE / "_shipped", _PACKAGE.parent):
        path = root.joinpath(*parts)
        if path.exists():
            return path
    raise FileNotFoundError("/".join(parts))


def read_bounded(path: Path, limit: int) -> bytes:
    """The bytes of a file of the user's, `limit` at most.

    A pipe is read too (`/dev/stdin`, `<(command)`): people make suites and rules with programs. The
    bound counts what is read, since a pipe or device says nothing of its size. Raises `SuiteError` for
    what is longer, cannot be read, or stays silent.
    """
    data = bytearray()
    try:
        with open(path, "rb", buffering=0, opener=_open_without_waiting) as file:
            is_file = stat.S_ISREG(os.fstat(file.fileno()).st_mode)
            while len(data) <= limit:
                if not is_file and not _says_something(file):
                    raise SuiteError(f"{path}: nothing came out of it for {PATIENCE_S:.0f} s")
                piece = file.read(min(_PIECE, limit + 1 - len(data)))
                if not piece:
                    break
                data += piece
    except OSError as error:
        raise SuiteError(f"{path}: cannot be read: {error.strerror}") from error
    if len(data) > limit:
        raise SuiteError(f"{path}: larger than {limit / 2**20:.3g} MiB, which is the most that is read of it")
    return bytes(data)


def read_text(path: Path, limit: int) -> str:
    """The text of a user's UTF-8 file of `limit` bytes at most, lines ending in `\\n`.

    Raises `SuiteError` as `read_bounded` does, and for what is no such text.
    """
    try:
        text = read_bounded(path, limit).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SuiteError(f"{path}: not UTF-8 text (byte {error.start})") from error
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _open_without_waiting(path: str, flags: int) -> int:
    """Without it a pipe that nobody writes to is waited for before it can be looked at."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _says_something(file: IO[bytes]) -> bool:
    """Whether a pipe or device has something to read, or has ended, within `PATIENCE_S`."""
    poll = select.poll()
    poll.register(file, select.POLLIN)
    return bool(poll.poll(PATIENCE_S * 1000))
