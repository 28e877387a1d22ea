"""Entries of a journal on their way from the process that reads it to the one that measures them.

Columns of chunks go as they lie in memory: the receiver makes no object of a token, and reads them where they
came in. Entries go in blocks, a length before each of both; behind the last block of a run stands how its
reading ended. Both processes run the same code on the same machine, and nobody keeps the bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import cast

import msgspec
from msgspec import Struct, structs

from bench.records import Chunks, Event, Exchange
from bench.report.detail import Detail
from bench.report.reading import Seen

_LENGTH = struct.Struct("=q")
HEAD = _LENGTH.size
"""Bytes of a length."""
WHOLE, READ_ON = 0, -1
"""Instead of a length: all of a run has been handed over; what follows could not be read, or not handed."""


class _Handed(Struct, array_like=True):
    """An entry, its exchange without chunks; their columns and `finish` beside it."""

    entry: Exchange | Event
    detail: Detail | None = None
    columns: tuple[memoryview, ...] = ()
    finish: int | None = None


_DECODER = msgspec.msgpack.Decoder(_Handed)


def entry_bytes(seen: Seen) -> bytes:
    """An entry to be handed over, without the letters of its chunks.

    Raises `OverflowError` where a suite or a server named a number of more than 64 bits.
    """
    entry, detail = seen
    if isinstance(entry, Event):
        return msgspec.msgpack.encode(_Handed(entry))
    chunks = entry.chunks
    bare = structs.replace(entry, chunks=Chunks())
    columns = tuple(column.data for column in chunks.columns)
    return msgspec.msgpack.encode(_Handed(bare, detail, columns, chunks.finish))


def with_length(data: bytes | bytearray) -> bytes:
    """An entry or a block behind its length."""
    return _LENGTH.pack(len(data)) + data


def ending(how: int) -> bytes:
    """`WHOLE` or `READ_ON`, where the next length would stand."""
    return _LENGTH.pack(how)


def length_of(head: bytes) -> int:
    """The length that `HEAD` bytes say, or how the reading ended."""
    (length,) = _LENGTH.unpack(head)
    return int(length)


def entries_of(block: memoryview) -> Iterator[Seen]:
    """The entries that were handed over in a block."""
    place = 0
    while place < len(block):
        (length,) = _LENGTH.unpack_from(block, place)
        place += HEAD + length
        yield entry_of(block[place - length : place])


def entry_of(data: memoryview) -> Seen:
    """The entry that was handed over."""
    handed = _DECODER.decode(data)
    if isinstance(handed.entry, Event):
        return Seen(handed.entry, None)
    # memoryviews read like the tuples that they were
    at_ns, chars, tokens = (cast("tuple[int, ...]", column.cast("q")) for column in handed.columns)
    chunks = Chunks(at_ns=at_ns, chars=chars, tokens=tokens, finish=handed.finish)
    return Seen(structs.replace(handed.entry, chunks=chunks), handed.detail)
