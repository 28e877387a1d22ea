"""What goes over the wire, whichever transport carries it: an address, a request, an answer.

There are two transports: our own, which stamps at the socket (`connection.py`), and aiohttp's where a
proxy is asked for (`proxied.py`). Tests bring a third.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Mapping
from typing import Protocol
from urllib.parse import SplitResult, quote, unquote, urlsplit

from msgspec import Struct

from bench.wire.recorder import Recorder

_PORTS = {"http": 80, "https": 443}
_LONGEST = 65_536
_AS_IT_STANDS = "/%!$&'()*+,;=:@~"  # beside letters, digits, `-._`: what RFC 3986 lets stand in a path
_LOOKS = "it must look like http://host:port/v1"
_HOST = re.compile(r"[a-z0-9._%:-]+")
_HEADER_LIMIT = 64
_VALUE_LIMIT = 1024


class Url(Struct, frozen=True, kw_only=True):
    """An address to send to, without user, password and fragment."""

    scheme: str
    host: str
    """In ASCII and lower case, an IPv6 address without brackets; `%` and an interface may end it."""
    port: int
    target: str
    """Path and query, as the request line has them."""

    @property
    def authority(self) -> str:
        """Host and port; the scheme's own port is left out."""
        return self._name if self.port == _PORTS.get(self.scheme) else self.place

    @property
    def place(self) -> str:
        """Host and port for a sentence."""
        return f"{self._name}:{self.port}"

    @property
    def _name(self) -> str:
        return f"[{self.host}]" if ":" in self.host else self.host

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}{self.target}"


class Proxy(Struct, frozen=True, kw_only=True):
    """A proxy to send through."""

    url: Url
    authorization: str | None
    """What it is told of user and password, as the header has it."""
    secrets: tuple[str, ...]
    """The password in every form in which it may come back: neither records nor messages have it."""

    def __repr__(self) -> str:
        return f"Proxy({self.url})"


def read_url(text: str) -> Url:
    """Raises `ValueError` for what is no http or https address; the message repeats nothing of it."""
    if len(text) > _LONGEST or not text.isprintable():
        raise ValueError("it is too long, or holds a character that no address has")
    parts = _split(text)
    port = parts.port or _PORTS.get(parts.scheme)
    if port is None or parts.scheme not in _PORTS or not parts.hostname or parts.port == 0:
        raise ValueError(_LOOKS)
    path = quote(_without_dots(parts.path or "/"), safe=_AS_IT_STANDS)
    query = f"?{quote(parts.query, safe=_AS_IT_STANDS + '?')}" if parts.query else ""
    return Url(scheme=parts.scheme, host=_host(parts.hostname), port=port, target=path + query)


def read_proxy(text: str) -> Proxy:
    """`http://user:password@host:port`; what no address can hold stands in user and password as `%40`.

    Raises `ValueError` as `read_url` does.
    """
    url = read_url(text)
    parts = _split(text)
    if parts.username is None:
        return Proxy(url=url, authorization=None, secrets=())
    user, password = unquote(parts.username), unquote(parts.password or "")
    told = base64.b64encode(f"{user}:{password}".encode()).decode()  # UTF-8, as browsers and curl have it
    secrets = (password, parts.password or "", quote(password, safe=""), told) if password else ()
    return Proxy(url=url, authorization=f"Basic {told}", secrets=secrets)


def _split(text: str) -> SplitResult:
    try:
        parts = urlsplit(text)
        parts.port  # noqa: B018 - it is read here
    except ValueError:  # which repeats what it cannot read: a piece of a password, perhaps
        raise ValueError(_LOOKS) from None
    return parts


def _host(name: str) -> str:
    """A host in ASCII. Where names have changed their meaning between the standards of 2003 and 2008
    (`straße`), none is guessed: a key would go to somebody else's server."""
    if not name.isascii():
        try:
            ascii_name = name.encode("idna").decode()
            same = ascii_name.encode().decode("idna") == name
        except UnicodeError:
            same = False
        if not same:
            raise ValueError("its host is no name, or not one alone: write it in ASCII, xn--...")
        name = ascii_name
    if ":" in name:
        name = name.replace("%25", "%", 1)  # RFC 6874: `[fe80::1%25eth0]`
    if not _HOST.fullmatch(name.lower()):
        raise ValueError(_LOOKS)
    return name


def _without_dots(path: str) -> str:
    """RFC 3986, section 5.2.4: `/a/../b` is `/b`."""
    kept: list[str] = []
    parts = path.split("/")[1:]
    for part in parts:
        if part == "..":
            del kept[-1:]
        elif part != ".":
            kept.append(part)
    if parts[-1] in (".", ".."):
        kept.append("")
    return "/" + "/".join(kept)


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
    host = re.sub(r"%[^\]]*(?=\])", "", url.authority)  # which interface leads there is this machine's affair
    lines = [f"{method} {url.target} HTTP/1.1", f"Host: {host}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    if body is not None:
        lines.append(f"Content-Length: {len(body)}")
    head = "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n"
    return Request(method=method, url=url, headers=headers, head=head, body=body or b"")


class Response(Protocol):
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

    async def send(self, request: Request, recorder: Recorder, *, connect_s: float) -> Response:
        """Sends a request and waits for the head of its answer, within `connect_s` for a new connection.

        `recorder` is given every stamp and every byte of the body. Raises `TransportError`.
        """

    def is_warm(self, url: Url, connections: int) -> bool:
        """Whether that many connections to a server stand ready, each used a moment ago."""

    async def close(self) -> None:
        """Closes every connection."""


def kept_headers(headers: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """Headers as they are kept: no cookies, no endless ones, those of one name together.

    The body is kept without its transfer coding, so that header is left out.
    """
    kept: dict[str, str] = {}
    for raw_name, raw_value in headers:
        name, value = raw_name.decode("latin-1").lower(), raw_value.decode("utf-8", "replace")
        if name not in ("set-cookie", "transfer-encoding"):
            kept[name] = f"{kept[name]}, {value}" if name in kept else value
    return {name: value[:_VALUE_LIMIT] for name, value in list(kept.items())[:_HEADER_LIMIT]}
