"""What the wire saw of one exchange: stamps and bytes, kept now and understood later."""

from __future__ import annotations

import asyncio
from array import array
from bisect import bisect_left
from typing import Any

from bench.wire.broken import FramingError, TooLarge
from bench.wire.http1 import Dechunker

BLOCK = 256 * 1024
"""Bytes of one piece of memory to read into."""
_LEAST = 16 * 1024  # room that a read finds at least
_SPARE = 128  # blocks kept for the next exchange: 32 MB
_BLANK_LINE = b"\r\n\r\n"
_TAIL = 64


def fail(future: asyncio.Future[Any], error: Exception) -> None:
    """Fails it, if it is not done yet. Nothing is logged where nobody waits for it any more: whoever was
    cancelled has said so."""
    if not future.done():
        future.set_exception(error)
        future.exception()


class Blocks:
    """Memory to read into, used again and again: the kernel clears every page of new memory at its
    first touch, and that alone takes longer than the reading.
    """

    def __init__(self) -> None:
        self._spare: list[bytearray] = []

    def take(self) -> bytearray:
        return self._spare.pop() if self._spare else bytearray(BLOCK)

    def give(self, block: bytearray) -> None:
        """Take back what nobody reads into any more."""
        if len(block) == BLOCK and len(self._spare) < _SPARE:
            self._spare.append(block)


class Recorder:
    """Stamps are monotonic nanoseconds, not yet relative to `sent`.

    The socket is read straight into `room()`; `stamp` notes when, and how much. A read lies in one
    block. Everything else happens when what was read is taken.
    """

    __slots__ = (
        "_block",
        "_blocks",
        "_dechunker",
        "_ends",
        "_from",
        "_held",
        "_quiet_ns",
        "_stamps",
        "_start",
        "_view",
        "_waiting",
        "broken",
        "connect_ns",
        "ended_ns",
        "headers_ns",
        "limit",
        "over",
        "read_bytes",
        "read_ns",
        "reads",
        "sent_ns",
        "size",
        "status",
        "uploaded_ns",
    )

    def __init__(self, limit: int, blocks: Blocks | None = None) -> None:
        self.limit = limit
        self.size = 0
        """Bytes of the body so far, with its framing."""
        self.status: int | None = None
        self.connect_ns: int | None = None
        """How long opening the connection took."""
        self.sent_ns = 0
        self.uploaded_ns: int | None = None
        self.headers_ns: int | None = None
        self.ended_ns: int | None = None
        self.read_ns: array[int] = array("q")
        self.read_bytes: array[int] = array("q")
        self.reads: list[tuple[int, bytes]] = []
        """Unframed and not yet taken: (stamp, body bytes)."""
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when the body has ended; failed when it broke."""
        self.broken: FramingError | None = None
        """The server's chunks made no sense from some point on; nothing after it is kept."""
        self._blocks = blocks or Blocks()
        self._held: list[tuple[int, bytearray]] = []  # (place of its first byte, block), the last one open
        self._block = bytearray()
        self._view = memoryview(self._block)
        self._start = 0  # place of the open block's first byte
        self._stamps: array[int] = array("q")  # of the reads that are still framed
        self._ends: array[int] = array("q")  # and the places where they end
        self._from = 0  # the place up to which the framing is off
        self._waiting = 0  # bytes in `reads`
        self._quiet_ns = 0
        self._dechunker: Dechunker | None = None

    def start(self, now_ns: int) -> None:
        """The request goes out now."""
        self.sent_ns = now_ns

    def begin(self, now_ns: int, status: int, *, chunked: bool = False) -> None:
        """The head of the answer has come."""
        self.headers_ns = now_ns
        self.status = status
        self._dechunker = Dechunker() if chunked else None

    def end(self, now_ns: int) -> None:
        """The body has ended."""
        self.ended_ns = now_ns
        if not self.over.done():
            self.over.set_result(None)

    def fail(self, error: Exception) -> None:
        """The body has broken off."""
        fail(self.over, error)

    # --- the hot path

    def room(self) -> memoryview:
        """Where the next read goes."""
        used = self.size - self._start
        if len(self._view) - used < _LEAST:
            self._open(self._blocks.take())
            used = 0
        return self._view[used:]

    def stamp(self, now_ns: int, nbytes: int) -> None:
        """So many bytes have come into `room()`. Raises TooLarge."""
        self.size += nbytes
        self._stamps.append(now_ns)
        self._ends.append(self.size)
        if self.size > self.limit:
            raise TooLarge(f"the answer is larger than {self.limit} bytes")

    @property
    def may_be_over(self) -> bool:
        """Whether a chunked body can have ended: it does so with an empty line, which few others are."""
        used = self.size - self._start
        return used < len(_BLANK_LINE) or self._block.endswith(_BLANK_LINE, 0, used)

    # --- what is known without looking into the bytes

    def add(self, now_ns: int, data: bytes) -> None:
        """Keep one read that lies elsewhere. Raises TooLarge."""
        room = self.room()
        if len(data) > len(room):
            self._open(bytearray(data))
        else:
            room[: len(data)] = data
        self.stamp(now_ns, len(data))

    @property
    def pending(self) -> int:
        """How many bytes are kept and not yet taken (framing counts while it is on)."""
        return self.size - self._from + self._waiting

    @property
    def last_ns(self) -> int:
        """When anything last arrived; `sent` before that."""
        if self._stamps:
            return self._stamps[-1]
        return max(self._quiet_ns, self.headers_ns or 0, self.sent_ns)

    @property
    def tail(self) -> bytes:
        """The last few bytes that came, with their framing."""
        used = self.size - self._start
        return bytes(self._view[max(0, used - _TAIL) : used])

    @property
    def is_unframed(self) -> bool:
        """The framing is off everything that came."""
        return not self._stamps

    @property
    def is_complete(self) -> bool:
        """The last chunk was among what is unframed, or nonsense was."""
        return self.broken is not None or (self._dechunker is not None and self._dechunker.ended)

    @property
    def is_empty(self) -> bool:
        """Everything that came has been taken."""
        return not self._stamps and not self.reads

    # --- afterwards

    def unframe(self, most: int | None = None) -> None:
        """Take the framing off what has come, or off the first `most` bytes of it (and a read more)."""
        feed = self._dechunker.feed if self._dechunker else None
        stamps, sizes, reads = self.read_ns, self.read_bytes, self.reads
        for now_ns, data in self._next(most):
            try:
                body = feed(data) if feed else data
            except FramingError as error:
                self.broken = error
            if self.broken is not None:
                return
            if body:
                size = len(body)
                stamps.append(now_ns)
                sizes.append(size)
                reads.append((now_ns, body))
                self._waiting += size

    def take(self, most: int | None = None) -> list[tuple[int, bytes]]:
        """Body reads that were not taken yet; with `most`, about that many bytes of them."""
        if most is None or not self.reads:
            self.unframe(most)
        reads, self.reads = self.reads, []
        self._waiting = 0
        if self.over.done() and self.is_unframed:
            for _, block in self._held:
                self._blocks.give(block)
            self._held.clear()
        return reads

    def _next(self, most: int | None) -> list[tuple[int, bytes]]:
        """The first reads that are still framed, copied out of their blocks."""
        count = len(self._ends)
        if most is not None:
            count = min(count, bisect_left(self._ends, self._from + most) + 1)
        reads = []
        start = following = self._from
        for now_ns, end in zip(self._stamps[:count], self._ends[:count], strict=True):
            if start >= following:
                first, view, following = self._block_of(start)
            reads.append((now_ns, view[start - first : end - first].tobytes()))
            start = end
        if reads:
            self._quiet_ns = reads[-1][0]
            self._block_of(start)  # gives back what has been copied to its end
            self._from = start
        del self._stamps[:count], self._ends[:count]
        return reads

    def _block_of(self, place: int) -> tuple[int, memoryview, int]:
        """The block with that place: the place of its first byte, the block, and the place behind its end;
        those before it are given back."""
        while len(self._held) > 1 and place >= self._held[1][0]:
            self._blocks.give(self._held.pop(0)[1])
        first, block = self._held[0]
        following = self._held[1][0] if len(self._held) > 1 else first + len(block)
        return first, memoryview(block), following

    def _open(self, block: bytearray) -> None:
        self._start = self.size
        self._block = block
        self._view = memoryview(block)
        self._held.append((self.size, block))
