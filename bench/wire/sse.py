"""Server-sent events, to the letter of the standard and without I/O.

A line ends with LF, CR LF or CR, and with nothing else: U+2028 inside a JSON string is text. A line
may be of any length and may be cut anywhere, also inside a UTF-8 sequence or between CR and LF.
The events do not depend on where the bytes were cut, and the work is linear in the number of bytes
however they arrive. The parser sets no limit of its own: whoever reads the socket bounds the total.

Source: WHATWG HTML, "Server-sent events", sections 9.2.5 and 9.2.6.
"""

from __future__ import annotations

from msgspec import Struct

_BOM = b"\xef\xbb\xbf"


class SseEvent(Struct, frozen=True, gc=False):
    """One dispatched event."""

    event: str
    """Its type: empty unless the server named one (`error`, `ping`, ...)."""
    data: str
    """The data lines, joined with LF; bytes that are no UTF-8 became U+FFFD."""
    complete: bool = True
    """False for what was still open when the stream ended: no blank line closed it."""


class SseParser:
    """Bytes in, events out.

    >>> parser = SseParser()
    >>> parser.feed(b'data: {"a"')
    []
    >>> parser.feed(b': 1}\\n\\n')[0].data
    '{"a": 1}'
    """

    __slots__ = ("_data", "_event", "_first", "_skip_lf", "_tail", "comments")

    def __init__(self) -> None:
        self.comments = 0
        """Comment lines seen so far (`: ping`); they carry no event."""
        self._tail = bytearray()  # a line without its end yet; grows in place, so byte by byte is linear
        self._skip_lf = False  # the last byte was CR: a LF that follows belongs to it
        self._first = True
        self._data: list[bytes] = []
        self._event = b""

    def feed(self, data: bytes) -> list[SseEvent]:
        """The events that `data` completes, in order."""
        inside = self._is_inside_an_event()
        events: list[SseEvent] = []
        if inside:
            # Up to the end of that event line by line; what follows is often of the plain kind.
            end = data.find(b"\n\n") + 2
            if end < 2:
                return self._feed(data)
            events = self._feed(data[:end])
            data = data[end:]
        end = data.rfind(b"\n\n") + 2
        if end >= 2:
            whole = data[:end]
            plain = self._plain(whole)
            events += self._feed(whole) if plain is None else plain
            data = data[end:]
        return events + self._feed(data) if data else events

    def whole_event(self, data: bytes) -> bytes | None:
        """The payload, when `data` is one plain event and nothing else, as most reads of a paced stream are.
        `None`: it is not. It need not be fed then: to this parser it makes no difference."""
        if (
            data.startswith(b"data: ")
            and data.find(b"\n") == len(data) - 2
            and data.endswith(b"\n")
            and b"\r" not in data
            and not self._is_inside_an_event()
        ):
            self._first = False
            return data[6:-2]
        return None

    def _is_inside_an_event(self) -> bool:
        return bool(self._tail or self._data or self._event or self._skip_lf)

    def _plain(self, data: bytes) -> list[SseEvent] | None:
        """What servers send nearly always: one-line events, LF, nothing else. `None` when it is not.

        The same result as line by line, at a quarter of the cost.
        """
        if self._is_inside_an_event() or not data.startswith(b"data: ") or b"\r" in data:
            return None
        blocks = data.decode("utf-8", "replace").split("\n\n")
        count = len(blocks) - 1  # behind the last blank line stands nothing
        if data.count(b"\n") != 2 * count or data.count(b"\n\ndata: ") != count - 1:
            return None
        self._first = False
        return [SseEvent("", block[6:]) for block in blocks[:-1]]

    def _feed(self, data: bytes) -> list[SseEvent]:
        if self._skip_lf and data:
            self._skip_lf = False
            if data[0] == 10:
                data = data[1:]
        if b"\r" in data:
            self._skip_lf = data.endswith(b"\r")
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        end = data.rfind(b"\n")
        if end < 0:
            self._tail += data
            return []
        lines = data[:end].split(b"\n")
        if self._tail:
            self._tail += lines[0]
            lines[0] = bytes(self._tail)
            self._tail.clear()
        if end + 1 < len(data):
            self._tail += data[end + 1 :]
        return self._lines(lines)

    def close(self) -> list[SseEvent]:
        """What the stream's end left open, as at most one event with `complete=False`.

        The standard drops it. Some servers forget the last blank line, so the caller decides.
        """
        events = self._lines([bytes(self._tail)]) if self._tail else []
        self._tail.clear()
        if self._data:
            events.append(self._dispatch(complete=False))
        return events

    def _lines(self, lines: list[bytes]) -> list[SseEvent]:
        events = []
        if self._first:
            self._first = False
            lines[0] = lines[0].removeprefix(_BOM)
        for line in lines:
            if not line:
                if self._data:
                    events.append(self._dispatch())
                self._event = b""
            elif line.startswith(b"data: "):
                self._data.append(line[6:])
            else:
                self._field(line)
        return events

    def _field(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._data.append(value)
        elif name == b"event":
            self._event = value
        elif not name:
            self.comments += 1
        # `id` and `retry` are for clients that reconnect; any other field is ignored by the standard.

    def _dispatch(self, *, complete: bool = True) -> SseEvent:
        data = self._data[0] if len(self._data) == 1 else b"\n".join(self._data)
        event = self._event.decode("utf-8", "replace")
        self._data = []
        self._event = b""
        return SseEvent(event, data.decode("utf-8", "replace"), complete)
