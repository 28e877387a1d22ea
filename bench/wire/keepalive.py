"""TCP keep-alive: a connection on which nothing is said for minutes stays open.

A silent prefill of minutes dies in NATs and balancers otherwise.
"""

from __future__ import annotations

import socket
from contextlib import suppress
from typing import Any


def keep_alive(address: Any) -> socket.socket:
    """A socket for aiohttp's connector (`address` is an entry of getaddrinfo), kept alive."""
    family, kind, protocol, _, _ = address
    sock = socket.socket(family, kind, protocol)
    set_keep_alive(sock)
    return sock


def set_keep_alive(sock: socket.socket) -> None:
    """Asks the kernel to knock every 30 s while nothing else is sent."""
    options = [(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)]
    # Linux names the first one KEEPIDLE, macOS KEEPALIVE; what a platform lacks stays at its default.
    for name, value in (
        ("TCP_KEEPIDLE", 30),
        ("TCP_KEEPALIVE", 30),
        ("TCP_KEEPINTVL", 30),
        ("TCP_KEEPCNT", 6),
    ):
        option = getattr(socket, name, None)
        if option is not None:
            options.append((socket.IPPROTO_TCP, option, value))
    for level, option, value in options:
        with suppress(OSError):  # not a TCP socket
            sock.setsockopt(level, option, value)
