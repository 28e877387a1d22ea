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
        """Bytes kept and not yet taken."""
        return self.size - self._taken

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

    def unframe(self) -> bool:
        """Take the framing off what has come; True when the last chunk was among it, or nonsense."""
        dechunker = self._dechunker
        if self._raw_ns:
            self._quiet_ns = self._raw_ns[-1]
        raw, self._raw = self._raw, []
        stamps, self._raw_ns = self._raw_ns, array("q")
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

    def take(self) -> list[tuple[int, bytes]]:
        """The body's reads since the last call."""
        self.unframe()
        reads, self.reads = self.reads, []
        self._taken = self.size
        return reads
