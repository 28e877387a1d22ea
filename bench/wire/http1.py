"""The receiving half of HTTP/1.1, without I/O: response head and body framing.

The exchange's hot path only stamps and keeps what arrives; this module makes sense of it later.
Source: RFC 9112, sections 4 to 7.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from bench.wire.broken import FramingError

HEAD_LIMIT = 64 * 1024
_LINE_LIMIT = 8 * 1024


class Head(Struct, frozen=True, kw_only=True):
    """Status line and headers of a response."""

    status: int
    reason: str
    headers: tuple[tuple[bytes, bytes], ...]
    """As they came, names in lower case."""
    framing: Literal["chunked", "length", "close"]
    """What ends the body: the last chunk, a number of bytes, or the connection's end."""
    length: int = 0
    """Body bytes, with framing `length`."""
    keep_alive: bool = True


def parse_head(raw: bytes) -> Head:
    """The head in `raw` (up to and without the blank line); `FramingError` when it is none."""
    first, *lines = raw.split(b"\r\n")
    version, _, rest = first.partition(b" ")
    code, _, reason = rest.partition(b" ")
    if version not in (b"HTTP/1.1", b"HTTP/1.0") or len(code) != 3 or not code.isdigit():
        raise FramingError(f"the answer does not begin like HTTP: {first[:60]!r}")
    headers = []
    for line in lines:
        name, colon, value = line.partition(b":")
        if not colon or not name or name != name.strip():
            raise FramingError(f"not a header line: {line[:60]!r}")
        headers.append((name.lower(), value.strip()))
    found = dict(headers)
    status = int(code)
    framing: Literal["chunked", "length", "close"] = "close"
    length = 0
    if status in (204, 304):  # have no body, whatever else they say
        framing = "length"
    elif b"chunked" in found.get(b"transfer-encoding", b"").lower():
        framing = "chunked"
    elif b"content-length" in found:
        framing, length = "length", _content_length(found[b"content-length"])
    connection = b",".join(value for name, value in headers if name == b"connection").lower()
    keep = framing != "close" and b"close" not in connection
    if version == b"HTTP/1.0":
        keep = keep and b"keep-alive" in connection
    return Head(
        status=status,
        reason=reason.decode("latin-1"),
        headers=tuple(headers),
        framing=framing,
        length=length,
        keep_alive=keep,
    )


def _content_length(value: bytes) -> int:
    if not value.isdigit() or len(value) > 18:
        raise FramingError(f"not a content length: {value[:40]!r}")
    return int(value)


class Dechunker:
    """Takes the chunked transfer coding off; linear, however the bytes are cut."""

    __slots__ = ("_line", "_need", "_state", "ended")

    def __init__(self) -> None:
        self.ended = False
        """The last chunk and its trailers have come."""
        self._state: Literal["size", "data", "crlf", "trailer"] = "size"
        self._line = bytearray()
        self._need = 0

    def feed(self, data: bytes) -> bytes:
        """The body bytes in `data`; `FramingError` for what is no chunk, or follows the last one."""
        if self._state == "size" and not self._line:
            content = _one_chunk(data)
            if content:
                return content
        parts: list[bytes] = []
        at = 0
        end = len(data)
        in_bulk = False
        while at < end:
            if self.ended:
                raise FramingError("bytes after the last chunk")
            if self._state == "size" and not self._line and not in_bulk:
                in_bulk = True  # once a read: what is left then is cut off or unusual
                contents, taken = _whole_chunks(data[at:])
                parts += contents
                at += taken
                continue
            if self._state == "data":
                part = data[at : at + self._need]
                parts.append(part)
                at += len(part)
                self._need -= len(part)
                if not self._need:
                    self._state = "crlf"
                continue
            line_end = data.find(b"\n", at)
            if line_end < 0:
                self._keep(data[at:])
                break
            line = data[at:line_end]
            at = line_end + 1
            if self._line:
                self._keep(line)
                line = bytes(self._line)
                self._line.clear()
            self._take(line.removesuffix(b"\r"))
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _keep(self, part: bytes) -> None:
        self._line += part
        if len(self._line) > _LINE_LIMIT:
            raise FramingError("a chunk header of more than 8 KiB")

    def _take(self, line: bytes) -> None:
        if self._state == "crlf":
            if line:
                raise FramingError(f"a chunk is longer than its header says, at {line[:40]!r}")
            self._state = "size"
        elif self._state == "trailer":
            self.ended = not line
        else:
            digits = line.partition(b";")[0].strip()
            try:
                if not digits or len(digits) > 15 or digits.strip(b"0123456789abcdefABCDEF"):
                    raise ValueError
                self._need = int(digits, 16)
            except ValueError:
                raise FramingError(f"not a chunk header: {line[:40]!r}") from None
            self._state = "data" if self._need else "trailer"


def _one_chunk(data: bytes) -> bytes:
    """The content, when `data` is one whole chunk in plain notation: what most reads of a paced stream
    are. Empty when it is anything else.
    """
    start = data.find(b"\r\n") + 2
    size = len(data) - start - 2
    if size > 0 and data[:start] == b"%x\r\n" % size and data.endswith(b"\r\n"):
        return data[start:-2]
    return b""


def _whole_chunks(data: bytes) -> tuple[list[bytes], int]:
    """The usual case without a loop of ours: whole chunks in plain notation from the start on.

    Returns their contents and where they end. Whatever differs (extensions, capital digits, CR LF
    in a chunk, the last chunk) is left to the careful way, which gives the same.
    """
    pieces = data.split(b"\r\n")
    contents = pieces[1:-1:2]  # what stands behind the last CR LF belongs to the next chunk
    sizes = list(map(len, contents))
    if 0 in sizes:
        del sizes[sizes.index(0) :]
    headers = pieces[0 : 2 * len(sizes) : 2]
    if [b"%x" % size for size in sizes] != headers:
        return [], 0
    return contents[: len(sizes)], sum(sizes) + sum(map(len, headers)) + 4 * len(sizes)
