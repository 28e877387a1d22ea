"""What goes over the wire, whichever transport carries it: an address, a request, an answer.

There are two transports: our own, which stamps at the socket (`connection.py`), and aiohttp's where a
proxy is asked for (`proxied.py`). Tests bring a third.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol
from urllib.parse import quote, urlsplit

from msgspec import Struct

from bench.wire.recorder import Recorder

_PORTS = {"http": 80, "https": 443}
_LONGEST = 65_536
_AS_IT_STANDS = "/%!$&'()*+,;=:@~"  # beside letters, digits, `-._`: what RFC 3986 lets stand in a path
_HEADER_LIMIT = 64
_VALUE_LIMIT = 1024


class Url(Struct, frozen=True, kw_only=True):
    """An address to send to, without user, password and fragment."""

    scheme: str
    host: str
    """In ASCII and lower case, an IPv6 address without brackets."""
    port: int
    target: str
    """Path and query, as the request line has them."""

    @property
    def authority(self) -> str:
        """Host and port, as the `Host` header has them: the scheme's own port is left out."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS.get(self.scheme) else f"{host}:{self.port}"

    @property
    def place(self) -> str:
        """Host and port for a sentence."""
        return f"{self.host}:{self.port}"

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}{self.target}"


def read_url(text: str) -> Url:
    """Raises `ValueError` for what is no http or https address."""
    if len(text) > _LONGEST or not text.isprintable():
        raise ValueError("it is too long, or holds a character that no address has")
    parts = urlsplit(text)
    port = parts.port or _PORTS.get(parts.scheme)
    if port is None or not parts.hostname or parts.port == 0:
        raise ValueError("it must look like http://host:port/v1")
    try:
        host = parts.hostname if parts.hostname.isascii() else parts.hostname.encode("idna").decode()
    except UnicodeError as error:
        raise ValueError(f"its host is no name ({error})") from error
    path = quote(parts.path or "/", safe=_AS_IT_STANDS)
    query = f"?{quote(parts.query, safe=_AS_IT_STANDS + '?')}" if parts.query else ""
    return Url(scheme=parts.scheme, host=host, port=port, target=path + query)


class Request(Struct, frozen=True, kw_only=True, eq=False):
    """A request whose every byte is known."""

    method: str
    url: Url
    headers: Mapping[str, str]
    head: bytes
    """Request line and headers, with those of length and host, to the blank line."""
    body: bytes = b""
    """Kept, not copied."""

    def __repr__(self) -> str:  # headers may hold a key
        return f"Request({self.method} {self.url})"


def request_of(method: str, url: Url, headers: Mapping[str, str], body: bytes | None = None) -> Request:
    """A request with its head; `headers` are those beside length and host."""
    lines = [f"{method} {url.target} HTTP/1.1", f"Host: {url.authority}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    if body is not None:
        lines.append(f"Content-Length: {len(body)}")
    head = "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n"
    return Request(method=method, url=url, headers=headers, head=head, body=body or b"")


class Answer(Protocol):
    """An answer whose head has come; its body goes to the request's recorder."""

    headers: dict[str, str]
    """Names in lower case."""

    async def finish(self) -> None:
        """Waits for the end of the body. Raises `TransportError`, `TooLarge`."""

    async def close(self) -> None:
        """Ends with it: its connection serves the next request, or is closed where it broke off."""


class Transport(Protocol):
    """Carries requests to servers."""

    sees_upload: bool
    """It knows when the last byte of a request has left."""

    async def send(self, request: Request, recorder: Recorder, *, connect_s: float | None) -> Answer:
        """Sends a request and waits for the head of its answer, within `connect_s` for a new connection.

        `recorder` is given every stamp and every byte of the body. Raises `TransportError`.
        """

    def is_warm(self, url: Url, connections: int) -> bool:
        """Whether that many connections to a server stand ready, each used a moment ago."""

    async def close(self) -> None:
        """Closes every connection."""


def told(headers: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """Headers as they are kept: no cookies, no endless ones, those of one name together.

    The body is kept without its transfer coding, so that header is left out.
    """
    kept: dict[str, str] = {}
    for raw_name, raw_value in headers:
        name, value = raw_name.decode("latin-1").lower(), raw_value.decode("utf-8", "replace")
        if name not in ("set-cookie", "transfer-encoding"):
            kept[name] = f"{kept[name]}, {value}" if name in kept else value
    return {name: value[:_VALUE_LIMIT] for name, value in list(kept.items())[:_HEADER_LIMIT]}
