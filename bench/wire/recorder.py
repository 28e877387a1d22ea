"""What the wire saw of one exchange: stamps and bytes, kept now and understood later."""

from __future__ import annotations

import asyncio
from array import array

import httpx

from bench.wire.http1 import Dechunker, FramingError


class TooLarge(httpx.RemoteProtocolError):
    """More bytes than any honest answer has."""


class Recorder:
    """Stamps are monotonic nanoseconds, not yet relative to `sent`."""

    __slots__ = (
        "_dechunker",
        "_quiet_ns",
        "_raw",
        "_raw_ns",
        "_taken",
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

    def __init__(self, limit: int) -> None:
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
        self._raw: list[bytes] = []
        self._raw_ns: array[int] = array("q")
        self._quiet_ns = 0
        self._taken = 0
        self._dechunker: Dechunker | None = None

    def start(self, now_ns: int) -> None:
        """The request goes out now."""
        self.sent_ns = now_ns

    def begin(self, now_ns: int, status: int, *, chunked: bool = False) -> None:
        """The head of the answer has come."""
        self.headers_ns = now_ns
        self.status = status
        self._dechunker = Dechunker() if chunked else None

    def add(self, now_ns: int, data: bytes) -> None:
        """The hot path: keep one read."""
        self._raw_ns.append(now_ns)
        self._raw.append(data)
        self.size += len(data)
        if self.size > self.limit:
            raise TooLarge(f"the answer is larger than {self.limit} bytes")

    @property
    def pending(self) -> int:
        """About how many bytes are kept and not yet taken (framing counts as kept)."""
        return 0 if self.is_empty else self.size - self._taken

    @property
    def last_ns(self) -> int:
        """When anything last arrived; `sent` before that."""
        if self._raw_ns:
            return self._raw_ns[-1]
        return max(self._quiet_ns, self.headers_ns or 0, self.sent_ns)

    @property
    def tail(self) -> bytes:
        """The last read, with its framing if that is still on."""
        if self._raw:
            return self._raw[-1]
        return self.reads[-1][1] if self.reads else b""

    def unframe(self, most: int | None = None) -> bool:
        """Take the framing off what has come, or off the first `most` bytes of it (and a read more).

        True when the last chunk was among it, or nonsense.
        """
        dechunker = self._dechunker
        raw, stamps = self._next(most)
        if self.broken is not None:
            return True
        try:
            for now_ns, data in zip(stamps, raw, strict=True):
                body = dechunker.feed(data) if dechunker else data
                if body:
                    self.read_ns.append(now_ns)
                    self.read_bytes.append(len(body))
                    self.reads.append((now_ns, body))
        except FramingError as error:
            self.broken = error
            return True
        return dechunker.ended if dechunker else False

    def take(self, most: int | None = None) -> list[tuple[int, bytes]]:
        """Body reads that were not taken yet; with `most`, about that many bytes of them."""
        if not self.reads:
            self.unframe(most)
        reads, self.reads = self.reads, []
        if most is None and self._raw:
            self.unframe()
            reads += self.reads
            self.reads = []
        self._taken += sum(len(data) for _, data in reads)
        return reads

    @property
    def is_empty(self) -> bool:
        """Everything that came has been taken."""
        return not self._raw and not self.reads

    def _next(self, most: int | None) -> tuple[list[bytes], array[int]]:
        count = len(self._raw)
        if most is not None:
            size = count = 0
            while size < most and count < len(self._raw):
                size += len(self._raw[count])
                count += 1
        raw, self._raw = self._raw[:count], self._raw[count:]
        stamps, self._raw_ns = self._raw_ns[:count], self._raw_ns[count:]
        if stamps:
            self._quiet_ns = stamps[-1]
        return raw, stamps
