"""How fast a server decodes right now, for the display; what is measured comes from the stamps later."""

from __future__ import annotations

from dataclasses import dataclass, field

_LEAST_TOKENS = 32
"""Of an answer, before its size tells what a token takes: every answer has a head and an end."""
_LEAST_S = 0.5  # of looking, before a rate is shown


@dataclass(slots=True)
class _Span:
    """A quantity that grows, from where it was first seen while text came to where it is now."""

    first_ns: int = 0
    first: float = 0.0
    last_ns: int = 0
    last: float = 0.0

    def see(self, at_ns: int, value: float) -> None:
        if not self.first_ns or value < self.first:
            self.first_ns, self.first = at_ns, value
        self.last_ns, self.last = at_ns, value

    def rate(self) -> float | None:
        """Growth a second; `None` while none was seen."""
        seconds = (self.last_ns - self.first_ns) / 1e9
        return (self.last - self.first) / seconds if seconds >= _LEAST_S and self.last > self.first else None


@dataclass(slots=True)
class Pace:
    """Tokens a second since text came, of all requests in flight together.

    The server's own counter tells, where it counts while it decodes; else the bytes that came, at the
    bytes a token took in this route's last answer.
    """

    bytes_per_token: float | None = None
    _counted: _Span = field(default_factory=_Span)
    _received: _Span = field(default_factory=_Span)

    def begin(self, bytes_per_token: float | None) -> None:
        """Another exchange, or wave, begins."""
        self.bytes_per_token = bytes_per_token
        self._counted, self._received = _Span(), _Span()

    def counted(self, at_ns: int, tokens: float) -> None:
        """The server's counter of generated tokens stood there."""
        self._counted.see(at_ns, tokens)

    def received(self, at_ns: int, size: int) -> None:
        """So many bytes have come by now, text among them."""
        self._received.see(at_ns, size)

    @property
    def tok_s(self) -> float | None:
        """Tokens a second; `None` while neither way tells."""
        counted = self._counted.rate()
        received = self._received.rate()
        if counted is not None or received is None or not self.bytes_per_token:
            return counted
        return received / self.bytes_per_token

    @property
    def is_estimate(self) -> bool:
        """Whether `tok_s` is reckoned from bytes."""
        return self._counted.rate() is None


def bytes_per_token(size: int, tokens: int | None) -> float | None:
    """Of an answer of `size` bytes; `None` where it is too short to tell."""
    return size / tokens if tokens and tokens >= _LEAST_TOKENS else None
