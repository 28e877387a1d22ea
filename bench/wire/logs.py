"""Where server logs come from: a file, standard input, a container, or a journal unit.

Everything is handed on in blocks of bytes; nobody here splits lines or keeps more than one block.
`docker:NAME` and `journal:UNIT` are read through the tools of those systems, as child processes
without a shell.
"""

from __future__ import annotations

import gzip
import os
import re
import selectors
import shutil
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, Protocol, cast

from msgspec import Struct

from bench.errors import EngineError, SuiteError

BLOCK_BYTES = 1 << 20
EXCERPT_BYTES = 256 * 1024
"""Most of the log that is kept for one exchange: half from its start, half from its end."""
CHILD_SILENT_S = 30.0
"""A log tool that says nothing for so long is given up."""
_NAME = re.compile(r"[A-Za-z0-9][\w.@:\\-]{0,200}")


class LogSource(Struct, frozen=True, kw_only=True):
    """One place a log can be read from."""

    kind: Literal["file", "stdin", "docker", "journal"]
    name: str = ""
    """Path, container or unit."""


def parse_source(text: str) -> LogSource:
    """`-`, `docker:NAME`, `journal:UNIT`, or the path of a file (plain or gzip).

    Raises `SuiteError` for a name that could be taken for an option, and for what is no file.
    """
    if text == "-":
        return LogSource(kind="stdin")
    kind, colon, name = text.partition(":")
    if colon and kind in ("docker", "journal"):
        if not _NAME.fullmatch(name):
            raise SuiteError(f"log source {text!r}: {name!r} is no name of a container or unit")
        return LogSource(kind="docker" if kind == "docker" else "journal", name=name)
    path = Path(text)
    if not path.exists():
        raise SuiteError(f"log source {text!r}: no such file (or write docker:NAME, journal:UNIT, -)")
    if path.is_dir():
        raise SuiteError(f"log source {text!r} is a folder: name one file")
    return LogSource(kind="file", name=text)


def blocks(source: LogSource, *, since: datetime | None = None) -> Iterator[bytes]:
    """The log from its start, in blocks. `since` is passed to docker and journald; a file ignores it.

    Raises `SuiteError` when a file cannot be read, `EngineError` when a log tool fails.
    """
    if source.kind == "file":
        yield from _file_blocks(Path(source.name))
    elif source.kind == "stdin":
        yield from _read(cast(_Stream, sys.stdin.buffer))  # a BufferedReader, whatever its stub says
    else:
        yield from _child_blocks(command(source, since))


def command(source: LogSource, since: datetime | None) -> list[str]:
    """The log tool's command line for a container or unit."""
    if source.kind == "docker":
        when = ["--since", since.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")] if since else []
        return ["docker", "logs", *when, source.name]
    when = [f"--since=@{since.timestamp():.6f}"] if since else []
    return ["journalctl", "--no-pager", "--output=short-iso", *when, f"--unit={source.name}"]


class Excerpt(Struct, frozen=True, kw_only=True):
    """What a log said since the last mark."""

    data: bytes
    """At most the limit: its start and its end."""
    omitted: int = 0
    """Bytes left out between the two."""
    rotated: bool = False
    """The file was replaced or cut meanwhile: what it said before that is lost."""


class LogTail:
    """The part of a log that belongs to one exchange: `mark()` before it, `excerpt()` after it.

    Standard input cannot be marked (`SuiteError`). `now` is the wall clock, for containers and
    units, whose tools select by time.
    """

    def __init__(self, source: LogSource, *, now: Callable[[], float] = time.time) -> None:
        if source.kind == "stdin":
            raise SuiteError("log source '-': standard input cannot be split between exchanges")
        self._source, self._now = source, now
        self._at: tuple[int, int] | None = None
        self._since: datetime | None = None

    def mark(self) -> None:
        """Remember where the log ends now."""
        if self._source.kind == "file":
            self._at = _file_end(Path(self._source.name))
        else:
            self._since = datetime.fromtimestamp(self._now(), UTC)

    def excerpt(self, limit: int = EXCERPT_BYTES) -> Excerpt:
        """What came since `mark()` (since the start when there was none), within `limit` bytes."""
        return self._read(limit)[0]

    def take(self, limit: int = EXCERPT_BYTES) -> Excerpt:
        """`excerpt()`, and the mark moves to its end: of a file no line is lost or told twice. (A
        container or a unit is selected by time: lines written while it is read may be in both.)"""
        since = datetime.fromtimestamp(self._now(), UTC)
        found, self._at = self._read(limit)
        self._since = since
        return found

    def _read(self, limit: int) -> tuple[Excerpt, tuple[int, int] | None]:
        """The excerpt, and where it ends in a file."""
        if self._source.kind != "file":
            return _bounded(blocks(self._source, since=self._since), limit), None
        path = Path(self._source.name)
        inode, offset = self._at or (-1, 0)
        now_inode, end = _file_end(path)
        rotated = self._at is not None and (inode != now_inode or end < offset)
        start = 0 if rotated else offset
        found = _bounded(_file_blocks(path, start, end - start), limit)
        excerpt = Excerpt(data=found.data, omitted=found.omitted, rotated=rotated)
        return excerpt, (now_inode, end)


def _bounded(source: Iterator[bytes], limit: int) -> Excerpt:
    """The first and the last half of `limit`, and how much lies between."""
    half = max(1, limit // 2)
    head, tail, tail_bytes, omitted = b"", deque[bytes](), 0, 0
    for block in source:
        if len(head) < half:
            taken = half - len(head)
            head += block[:taken]
            block = block[taken:]
        if block:
            tail.append(block[-half:])
            omitted += len(block) - len(tail[-1])
            tail_bytes += len(tail[-1])
        while len(tail) > 1 and tail_bytes - len(tail[0]) >= half:
            tail_bytes -= len(tail[0])
            omitted += len(tail.popleft())
    rest = b"".join(tail)
    kept = rest[-half:]
    return Excerpt(data=head + kept, omitted=omitted + len(rest) - len(kept))


def _file_end(path: Path) -> tuple[int, int]:
    try:
        stat = path.stat()
    except OSError as error:
        raise SuiteError(f"log file {path}: {error.strerror}") from error
    return stat.st_ino, stat.st_size


def _file_blocks(path: Path, start: int = 0, length: int | None = None) -> Iterator[bytes]:
    try:
        with path.open("rb") as raw:
            packed = raw.read(2) == b"\x1f\x8b"
            raw.seek(0 if packed else start)
            if not packed:
                yield from _read(raw, length)
                return
            with gzip.open(raw) as unpacked:
                yield from _read(unpacked)
    except (OSError, EOFError) as error:
        raise SuiteError(f"log file {path} cannot be read: {error}") from error


class _Stream(Protocol):
    def read1(self, size: int, /) -> bytes: ...


def _read(stream: _Stream, length: int | None = None) -> Iterator[bytes]:
    """Blocks as they come: a pipe hands over what it has instead of waiting for a full block."""
    left = sys.maxsize if length is None else length
    while left > 0 and (block := stream.read1(min(BLOCK_BYTES, left))):
        left -= len(block)
        yield block


def _child_blocks(argv: list[str], *, silent_s: float = CHILD_SILENT_S) -> Iterator[bytes]:
    """Output of a log tool, both of its streams as one; it is ended with the iteration."""
    if shutil.which(argv[0]) is None:
        raise EngineError(f"{argv[0]} is not installed here: give the log as a file, or pipe it into '-'")
    child = subprocess.Popen(  # noqa: S603 - a fixed command, no shell, the name is checked
        argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    assert child.stdout is not None  # noqa: S101 - a pipe was asked for
    last = b""
    try:
        with selectors.DefaultSelector() as ready:
            ready.register(child.stdout, selectors.EVENT_READ)
            while True:
                if not ready.select(silent_s):
                    raise EngineError(f"{' '.join(argv[:2])} said nothing for {silent_s:.0f} s")
                block = os.read(child.stdout.fileno(), BLOCK_BYTES)
                if not block:
                    break
                last = (last + block[-300:])[-300:]
                yield block
        code = child.wait(timeout=silent_s)
    finally:
        child.stdout.close()
        if child.poll() is None:
            child.kill()
        child.wait()
    if code != 0:
        reason = last.decode("utf-8", errors="replace").strip().rpartition("\n")[2]
        raise EngineError(f"{' '.join(argv)} failed with exit code {code}: {reason[:200]}")
