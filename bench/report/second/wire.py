"""What two processes that make one report hand to each other, as bytes.

Columns of chunks go as they lie in memory: the receiver makes no object of a token, and reads them where they
came in. Nobody keeps the bytes, and both processes run the same code.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, cast

import msgspec
import numpy as np
from msgspec import Struct, structs

from bench.records import Chunks, Event, Exchange
from bench.report.detail import Detail
from bench.report.entries import Seen
from bench.report.gaps import GapCounts
from bench.report.plot import Plot

if TYPE_CHECKING:
    from bench.report.content import Content

_LENGTH = struct.Struct("=q")
HEAD = _LENGTH.size
"""Bytes of a length."""
LONGEST = 1 << 32
"""Bytes that no block has: what is longer is no length."""
WHOLE, READ_ON = 0, -1
"""Instead of a length: all of a run has been handed over; what follows could not be read, or not handed."""


class WireError(Exception):
    """What came in is not what a second process hands over."""


class _Handed(Struct, array_like=True):
    """An entry, its exchange without chunks; their columns and `finish` beside it."""

    entry: Exchange | Event
    detail: Detail | None = None
    columns: tuple[memoryview, ...] = ()
    finish: int | None = None


_DECODER = msgspec.msgpack.Decoder(_Handed)


# --- Entries --------------------------------------------------------------------------------------


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


def entry_of(data: memoryview) -> Seen:
    """The entry that was handed over."""
    handed = _DECODER.decode(data)
    if isinstance(handed.entry, Event):
        return Seen(handed.entry, None)
    at_ns, chars, tokens = (cast("tuple[int, ...]", column.cast("q")) for column in handed.columns)
    chunks = Chunks(at_ns=at_ns, chars=chars, tokens=tokens, finish=handed.finish)
    return Seen(structs.replace(handed.entry, chunks=chunks), handed.detail)


# --- Blocks of them -------------------------------------------------------------------------------


def with_length(data: bytes | bytearray) -> bytes:
    """An entry or a block behind its length."""
    return _LENGTH.pack(len(data)) + data


def ending(how: int) -> bytes:
    """`WHOLE` or `READ_ON`, where the next length would stand."""
    return _LENGTH.pack(how)


def length_of(head: bytes) -> int:
    """The length that `HEAD` bytes say, or how the reading ended. Raises `WireError` where it is neither."""
    (length,) = _LENGTH.unpack(head)
    if not READ_ON <= length < LONGEST:
        raise WireError(f"{length} is no length")
    return int(length)


def entries_of(block: bytes) -> list[Seen]:
    """The entries that were handed over in a block. Raises `WireError` where these are none."""
    try:
        return [entry_of(data) for data in _parts(memoryview(block))]
    except (msgspec.DecodeError, struct.error, TypeError, ValueError) as error:
        raise WireError(f"no entries: {error}") from error


def _parts(block: memoryview) -> Iterator[memoryview]:
    place = 0
    while place < len(block):
        (length,) = _LENGTH.unpack_from(block, place)
        if length <= 0:
            raise ValueError(f"{length} is no length")
        place += HEAD + length
        yield block[place - length : place]


# --- Content and plots ----------------------------------------------------------------------------


def content_bytes(content: Content) -> bytes:
    """A content to be drawn.

    Raises `UnicodeEncodeError` where something is called by a name that is no text, `OverflowError` where a
    suite has a number of more than 64 bits.
    """
    from bench.report.shown import shown_exchange, shown_wave

    alone = shown_exchange(content)
    shown = [*([] if alone is None else [alone]), *shown_wave(content)]
    # of all other exchanges, measurements are drawn
    drawn = structs.replace(
        content,
        details=tuple(shown),
        runs=tuple(structs.replace(run, events=()) for run in content.runs),
    )
    return msgspec.msgpack.encode(drawn, enc_hook=_encoded)


def content_of(data: bytes) -> Content:
    """The content that was handed over."""
    from bench.report.content import Content

    return msgspec.msgpack.decode(data, type=Content, dec_hook=_decoded)


def plots_bytes(plots: list[Plot]) -> bytes:
    """Plots to be handed back."""
    return msgspec.msgpack.encode(plots)


def plots_of(data: bytes) -> list[Plot]:
    """The plots that were handed back. Raises `WireError` where these are none."""
    try:
        return msgspec.msgpack.decode(data, type=list[Plot])
    except msgspec.DecodeError as error:
        raise WireError(f"no plots: {error}") from error


def _encoded(one: Any) -> Any:
    """The part of a content that is no record."""
    if isinstance(one, GapCounts):
        return one.total, one.below.tolist()
    raise NotImplementedError(type(one))


def _decoded(kind: type, parts: Any) -> Any:
    if kind is not GapCounts:
        return parts  # what may be anything, as in `extra_body`, is asked about too
    total, below = parts
    return GapCounts(total, np.array(below, dtype=np.int64))
