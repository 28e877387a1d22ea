"""Addresses as people write them: which server one means, and what is wrong with one."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import SplitResult, urlsplit

MOST_EXPORTERS = 16
_THIS_MACHINE = "localhost"
_PORTS = {"http": 80, "https": 443}
_LONGEST_LABEL = 63


class ServerAt(NamedTuple):
    """A server: equal for all addresses that lead to it, as far as their text tells."""

    host: str
    """In lower case; every loopback name is `localhost`."""
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@lru_cache(maxsize=256)  # of every request it is asked whether it goes to the server itself
def server_at(url: str) -> ServerAt:
    """Which server an address means, without asking anybody: `http://Host/v1` -> `host:80`.

    An address that is none is a server of its own: its text and port 0.
    """
    parts = _split(url)
    port = _port(parts)
    if not parts.hostname or port is None:
        return ServerAt(url, 0)
    host = parts.hostname.removesuffix(".")
    if is_here(host):
        return ServerAt(_THIS_MACHINE, port)
    number = _number(host)
    return ServerAt(host if number is None else str(number), port)


def is_loopback(host: str) -> bool:
    """Whether nobody but this machine can be meant by a name or number: `localhost`, 127.*.*.*, `::1`."""
    name = host.lower().removesuffix(".")
    number = _number(name)
    return name == _THIS_MACHINE if number is None else number.is_loopback


def is_here(host: str) -> bool:
    """Whether a client that connects to it stays on this machine: loopback, and 0.0.0.0 and `::` too."""
    number = _number(host)
    return is_loopback(host) or (number is not None and number.is_unspecified)


def is_address(address: str) -> bool:
    """Whether a connection could be opened to it, as far as its text tells."""
    url = _split(address)
    labels = (url.hostname or "").removesuffix(".").split(".")
    return (
        url.scheme in _PORTS
        and address.isprintable()
        and " " not in address
        and _port(url) is not None
        and all(0 < len(label) <= _LONGEST_LABEL for label in labels)  # else no name server is even asked
    )


def address_problem(key: str, address: str, instead: str = "leave it out") -> str | None:
    """What is wrong with an address for `key`, in a sentence, with what to do `instead` of a key in it.

    What may hold a secret is not repeated, since addresses are kept in runs and shown in reports.
    """
    url = _split(address)
    for what, part in (
        ("user or password", url.username or url.password),
        ("query or fragment", url.query or url.fragment),
    ):
        if part:
            return f"{key} holds a {what}, which would be kept in the run: {instead}"
    if not is_address(address):
        shown = "" if set(address) & set("@?#") else f" = {address[:200]!r}"
        return f"{key}{shown}: an http:// or https:// address, e.g. http://127.0.0.1:8000/v1"
    return None


def exporter_problems(key: str, addresses: tuple[str, ...]) -> Iterator[str]:
    """What is wrong with the addresses of a route's exporters."""
    if len(addresses) > MOST_EXPORTERS or len(set(addresses)) < len(addresses):
        yield f"{key}: at most {MOST_EXPORTERS} addresses, each of them once"
    for address in addresses:
        if problem := address_problem(key, address):
            yield problem


def _split(url: str) -> SplitResult:
    """The parts of an address; empty ones for what is none."""
    try:
        return urlsplit(url)
    except ValueError:
        return urlsplit("")


def _port(url: SplitResult) -> int | None:
    """1 to 65535, the scheme's own where none is written; `None`: none of them."""
    try:
        port = _PORTS.get(url.scheme) if url.port is None else url.port
    except ValueError:
        return None
    return port or None


def _number(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        number = ipaddress.ip_address(host)
    except ValueError:
        return None
    return getattr(number, "ipv4_mapped", None) or number
