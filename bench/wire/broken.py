"""What can go wrong on the way of a request; what the machine said of it is the error's cause."""

from __future__ import annotations


class TransportError(Exception):
    """A request that was not answered to its end."""


class ConnectError(TransportError):
    """There was no connection to send it over."""


class ConnectTimeout(ConnectError):
    """None within the time."""


class FramingError(TransportError):
    """What the server sent is no HTTP/1.1; the message says where."""


class TooLarge(TransportError):
    """More bytes than any honest answer has."""
