"""The run directory: created once, appended to line by line, readable at any moment.

A run is `run.json` (written atomically), `journal.jsonl` (append-only, one `Exchange` or
`Event` a line, fsynced) and `scrapes/*.prom.gz` (raw metrics pages). Whatever kills the writer, all
that was appended is there afterwards: a torn last line is ignored by readers and cut on resume.
One directory has one writer, held by an advisory lock that the system drops with the process.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import fnmatch
import functools
import gzip
import os
from collections.abc import Iterator
from io import FileIO
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from bench.errors import JournalError
from bench.records import Event, Exchange, RunInfo
from bench.records.events import REPEATED

SCHEMA = 1
"""Version of run.json and journal.jsonl.

1 (2026-11): first version.
"""

Entry = Exchange | Event


FOLLOW_UP = "verify"
"""Folder of a run in which the trials that verify its crossovers are a run of their own."""

_RUN = "run.json"
_JOURNAL = "journal.jsonl"
_LOCK = ".lock"
_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_SCRAPES = "scrapes"
_BLOCK = 1 << 16
"""Bytes read at a time, up to the next end of a line: few enough that what is decoded of them is still near
the processor when it is used. A line of a long answer has some tens of thousands."""


class Journal:
    """The one writer of a run directory; use as a context manager.

    Not thread-safe: append from one thread (an executor with a single worker keeps the order).
    """

    def __init__(self, path: Path, lock: FileIO, lines: FileIO) -> None:
        self.path = path
        self._lock = lock
        self._lines = lines

    @classmethod
    def create(cls, path: Path, info: RunInfo) -> Self:
        """Makes a new run directory and writes `run.json`.

        What an earlier attempt left that got no further than that (no room, a power cut) is taken as new.
        Raises `JournalError` when the directory exists already or cannot be made.
        """
        taken = JournalError(f"{path}: this run directory exists; resume it with --resume or choose another")
        try:
            if path.exists() and not _is_stillborn(path):
                raise taken
            (path / _SCRAPES).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise JournalError(f"{path}: cannot make the run directory: {error.strerror}") from error
        with contextlib.ExitStack() as stack:
            lock = stack.enter_context(_lock(path))
            if (path / _RUN).exists():  # somebody else was quicker
                raise taken
            write_atomically(path / _RUN, _info_bytes(info))
            lines = FileIO(path / _JOURNAL, "a")
            stack.pop_all()
        return cls(path, lock, lines)

    @classmethod
    def resume(cls, path: Path) -> Self:
        """Opens an existing run directory for more lines, cutting a torn last one.

        Raises `JournalError` when it is not a run directory, cannot be written, or another process is writing
        to it.
        """
        read_info(path)
        with contextlib.ExitStack() as stack:
            lock = stack.enter_context(_lock(path))
            file = path / _SCRAPES
            try:
                file.mkdir(exist_ok=True)
                file = path / _JOURNAL
                lines = stack.enter_context(FileIO(file, "a"))
                lines.truncate(_whole_lines(file))
            except OSError as error:
                raise _unwritten(file, error) from error
            lines.seek(0, os.SEEK_END)
            stack.pop_all()
        return cls(path, lock, lines)

    def append(self, *entries: Entry) -> None:
        """Writes a line for each and waits until all of them are on disk.

        Raises `JournalError` when there is no room for them; what was written before stays whole.
        """
        whole = self._lines.seek(0, os.SEEK_END)
        left = memoryview(b"".join(msgspec.json.encode(entry) + b"\n" for entry in entries))
        try:
            while left:
                left = left[self._lines.write(left) :]
            os.fsync(self._lines.fileno())
        except OSError as error:
            self._lines.truncate(whole)  # half a line would spoil the next one
            raise _unwritten(self.path / _JOURNAL, error) from error

    def update_info(self, info: RunInfo) -> None:
        """Writes `run.json` anew: a route whose server was started later is known by now."""
        write_atomically(self.path / _RUN, _info_bytes(info))

    def store_scrape(self, name: str, page: str) -> str:
        """Keeps a raw metrics page; returns its path within the run directory."""
        relative = f"{_SCRAPES}/{name}.prom.gz"
        # mtime=0: the same page gives the same bytes.
        data = gzip.compress(page.encode("utf-8", "surrogatepass"), compresslevel=6, mtime=0)
        try:
            with (self.path / relative).open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise _unwritten(self.path / relative, error) from error
        return relative

    def close(self) -> None:
        """Releases the directory for other writers."""
        self._lines.close()
        self._lock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _unwritten(file: Path, error: OSError) -> JournalError:
    """What could not be written in a run directory, and what to do."""
    todo = "make room" if error.errno in _NO_ROOM else "see to it"
    return JournalError(f"{file}: cannot be written: {error.strerror}; {todo}, then go on with --resume")


def _info_bytes(info: RunInfo) -> bytes:
    return msgspec.json.format(msgspec.json.encode(info), indent=1) + b"\n"


class _Versioned(msgspec.Struct):
    """What is looked at first: of a later version, the rest may be anything."""

    schema: object = None


def has_follow_up(path: Path) -> bool:
    """Whether crossovers of a run are verified by trials of their own, measured already or only planned."""
    return (path / FOLLOW_UP / _RUN).exists()


def read_info(path: Path) -> RunInfo:
    """The run's `run.json`.

    Raises `JournalError` when `path` is not a run directory, or was made by a later version.
    """
    file = path / _RUN
    try:
        text = file.read_bytes()
    except OSError as error:
        raise JournalError(f"{path}: not a run directory ({_RUN}: {error.strerror})") from error
    try:
        schema = msgspec.json.decode(text, type=_Versioned).schema
        if isinstance(schema, int) and schema > SCHEMA:
            raise JournalError(
                f"{file}: schema {schema} is from a later ctxbench than this (schema {SCHEMA}): upgrade"
            )
        return msgspec.json.decode(text, type=RunInfo)
    except msgspec.DecodeError as error:
        raise JournalError(f"{file}: damaged: {error}") from error


class _WithoutReads(Exchange, frozen=True, kw_only=True, tag_field="kind", tag="exchange"):
    """An exchange as the decoder sees it when it passes over the reads: under these names there are none."""

    read_ns: tuple[int, ...] = msgspec.field(name="read_ns, left out", default=())
    read_bytes: tuple[int, ...] = msgspec.field(name="read_bytes, left out", default=())


@functools.cache
def _decoder(reads: bool) -> msgspec.json.Decoder[Entry]:
    """Made at its first use: a run only writes."""
    exchange = Exchange if reads else _WithoutReads
    return msgspec.json.Decoder(exchange | Event)


def read_entries(path: Path, *, reads: bool = True) -> Iterator[Entry]:
    """The journal's entries in order, streamed; a torn last line is left out.

    `reads=False` leaves the stamps and sizes of reads empty in every exchange that has events: for those
    who look at events only, and half of a journal of long answers.

    An exchange whose very line came before (a journal that was put together by hand) is counted
    once: in its place comes an event `REPEATED` that says so.

    Raises `JournalError` naming the line when a line before the last is damaged.
    """
    file = path / _JOURNAL
    try:
        lines = file.open("rb", buffering=_BLOCK)
    except FileNotFoundError:
        return  # killed between run.json and the first line: an empty run
    except OSError as error:
        raise JournalError(f"{file}: cannot be read: {error.strerror}") from error
    seen: set[tuple[int, int]] = set()
    read = 0
    with lines:
        # A block is decoded before its first entry is used: a fifth faster than line by line.
        while block := lines.readlines(_BLOCK):
            torn = not block[-1].endswith(b"\n")
            if torn:
                del block[-1]
            entries = [_decoded(line, reads, file, number) for number, line in enumerate(block, read + 1)]
            for line, entry in zip(block, entries, strict=True):
                read += 1
                yield entry if isinstance(entry, Event) else _once(entry, line, read, seen)
            if torn:
                return  # whoever is writing it may have gone on meanwhile


def _decoded(line: bytes, reads: bool, file: Path, number: int) -> Entry:
    try:
        entry = _decoder(reads).decode(line)
        whole = reads or isinstance(entry, Event) or entry.chunks.at_ns
        return entry if whole else _decoder(True).decode(line)
    except msgspec.DecodeError as error:
        raise JournalError(
            f"{file}, line {number}: damaged: {error}; to use the rest, keep a copy of the file and "
            "take that line out"
        ) from error


def _once(exchange: Exchange, line: bytes, number: int, seen: set[tuple[int, int]]) -> Entry:
    """The exchange, or what stands for it where its line has been seen."""
    mark = (exchange.sent_ns, hash(line))
    if mark in seen:
        message = f"line {number} of the journal repeats {exchange.trial.id}, attempt {exchange.attempt}"
        return Event(name=REPEATED, at=exchange.started_at, message=f"{message}: counted once")
    seen.add(mark)
    return exchange


def journal_bytes(path: Path) -> int:
    """Size of a run's journal; 0 where there is none to be read."""
    try:
        return (path / _JOURNAL).stat().st_size
    except OSError:
        return 0


def read_run(path: Path, *, reads: bool = True) -> tuple[RunInfo, Iterator[Entry]]:
    """`read_info` and `read_entries` of one run directory."""
    return read_info(path), read_entries(path, reads=reads)


def write_atomically(path: Path, data: bytes, *, lasting: bool = True) -> None:
    """Writes a file so that whoever looks finds either the old or the new one.

    `lasting`: one of them is there even after a loss of power. What can be made again need not wait for the
    disk. Raises `JournalError`.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            if lasting:
                file.flush()
                os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise JournalError(f"{path}: cannot be written: {error.strerror}") from error
    if not lasting:
        return
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _is_stillborn(path: Path) -> bool:
    """Whether a folder holds no more than what is there before a `run.json`, and no page."""
    if not path.is_dir() or any((path / _SCRAPES).glob("*")):
        return False
    names = {file.name for file in path.iterdir()} - {_SCRAPES, _LOCK}
    return all(fnmatch.fnmatch(name, f".{_RUN}.*.tmp") for name in names)


def _lock(path: Path) -> FileIO:
    try:
        file = FileIO(path / _LOCK, "a+")
    except OSError as error:
        raise JournalError(f"{path / _LOCK}: cannot be written: {error.strerror}") from error
    with contextlib.ExitStack() as stack:
        stack.enter_context(file)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            file.seek(0)
            owner = file.read(32).strip().decode("ascii", "replace")
            raise JournalError(
                f"{path}: in use by another ctxbench (process {owner or 'unknown'}): wait for it, or stop it"
            ) from error
        try:
            file.truncate(0)
            file.write(f"{os.getpid()}\n".encode())
        except OSError as error:
            raise _unwritten(path / _LOCK, error) from error
        stack.pop_all()
    return file


def _whole_lines(path: Path) -> int:
    """Length in bytes of the file up to and including its last newline."""
    position = path.stat().st_size
    block = 1 << 16
    with path.open("rb") as file:
        while position > 0:
            start = max(0, position - block)
            file.seek(start)
            found = file.read(position - start).rfind(b"\n")
            if found >= 0:
                return start + found + 1
            position = start
    return 0
