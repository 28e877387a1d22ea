"""Why a request did not succeed, by cause and in one sentence.

Exceptions of the transports, of aiohttp and of the operating system end here. The chain of causes
decides, and how far the exchange had come.
"""

from __future__ import annotations

import errno
import re
import socket
import ssl
from collections.abc import Iterator, Sequence

from bench.errors import EngineError
from bench.masking import hide
from bench.records import Failure
from bench.wire.broken import ConnectError, ConnectTimeout, FramingError, TooLarge
from bench.wire.said import BODY_LIMIT, error_text, short

_PROXY_STATUS = 407
_WANTS_USER = "wants a user and password: are they in its address, http://user:password@host:port, and right?"


class StatusError(EngineError):
    """The server answered, but not with 200."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


def classify(error: BaseException, *, where: str, answered: bool, proxy: str | None = None) -> Failure:
    """A failed request as data.

    `where` is the host and port for the sentence, `proxy` those of the proxy that was to carry it there;
    `answered` says that the response head had come.
    """
    chain = list(_causes(error))

    def first(*kinds: type[BaseException]) -> BaseException | None:
        return next((e for e in chain if isinstance(e, kinds)), None)

    if found := first(TooLarge):
        return Failure(kind="too_large", message=str(found))
    if found := first(FramingError):
        return Failure(kind="malformed", message=f"{where} broke HTTP: {short(str(found))}")
    if proxy is not None and (of_proxy := _proxy_failed(chain, proxy)):
        return Failure(kind="refused", message=of_proxy)
    if first(socket.gaierror) or _named(chain, "ClientConnectorDNSError"):
        return Failure(kind="refused", message=f"the host of {where} is not known (DNS)")
    if found := first(ssl.SSLCertVerificationError):
        why = getattr(found, "verify_message", "") or short(str(found))
        hint = "name its authority with ca_file, or set insecure = true"
        return Failure(kind="refused", message=f"the certificate of {where} is not trusted ({why}); {hint}")
    if found := first(ssl.SSLError):
        return Failure(
            kind="refused", message=f"TLS with {where} failed ({short(str(found))}); http or https?"
        )
    if first(ConnectionRefusedError) or _refused_everywhere(chain):
        return Failure(kind="refused", message=f"nobody listens at {where}")
    if answered:
        return Failure(kind="truncated", message=f"the stream broke: {_reason(chain)}")
    if first(ConnectTimeout):
        return Failure(
            kind="connect_timeout", message=f"{where} did not accept a connection in time{_through(proxy)}"
        )
    if first(ConnectError):
        message = f"{where} cannot be reached{_through(proxy)}: {_reason(chain)}"
        return Failure(kind="refused", message=message)
    return Failure(kind="reset", message=f"the connection broke before the answer began: {_reason(chain)}")


def of_status(status: int, body: str) -> Failure:
    """An HTTP status other than 200."""
    message = f"HTTP {status}: {error_text(body)}" if body.strip() else f"HTTP {status} without a word"
    if status == _PROXY_STATUS:  # no server's: only a proxy answers so
        message = f"the proxy {_WANTS_USER} ({message})"
    return Failure(kind="status", message=message, status=status, body=body[:BODY_LIMIT])


def advice(status: int, *, of_base: bool = True, if_missing: str = "") -> str:
    """What to do about a status on a path that ought to exist.

    `of_base`: the path counts from `base_url`, which may be the wrong one. `if_missing`: what a 404 makes
    one ask of any other path.
    """
    if status in (401, 403):
        return "; the key is missing or wrong: name its environment variable with api_key_env"
    if status == 404:
        if of_base:
            if_missing = "does base_url end in the version part, such as /v1?"
        return f"; there is no such path: {if_missing}" if if_missing else ""
    if 300 <= status < 400:
        return f"; it redirects: {'put' if of_base else 'give'} the final address{' into base_url' * of_base}"
    return ""


def redacted(failure: Failure, secrets: Sequence[str]) -> Failure:
    """The failure without the key and its like."""
    if not secrets:
        return failure
    return Failure(
        kind=failure.kind,
        message=hide(failure.message, secrets),
        status=failure.status,
        body=None if failure.body is None else hide(failure.body, secrets),
    )


def _causes(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        inner = getattr(current, "os_error", None)  # aiohttp keeps the real cause there
        if isinstance(inner, BaseException) and id(inner) not in seen:
            seen.add(id(inner))
            yield inner
        current = current.__cause__ or current.__context__


def _proxy_failed(chain: list[BaseException], proxy: str) -> str | None:
    """What kept the proxy itself from carrying the request; `None`: something behind it did."""
    if _named(chain, "ClientHttpProxyError"):
        status = next((found for e in chain if (found := getattr(e, "status", None)) is not None), None)
        if status == _PROXY_STATUS:
            return f"the proxy {proxy} {_WANTS_USER}"
        return f"the proxy {proxy} does not connect: it answers HTTP {status}"
    if _named(chain, "ClientConnectorDNSError"):
        return f"the host of the proxy {proxy} is not known (DNS)"
    if _named(chain, "ClientProxyConnectionError"):
        return f"the proxy {proxy} does not answer"
    return None


def _refused_everywhere(chain: list[BaseException]) -> bool:
    """Whether a host of several addresses (`localhost`) refused at each: asyncio raises one plain OSError
    that tells them all."""
    told = next((str(e) for e in chain if str(e).startswith("Multiple exceptions: ")), "")
    return set(re.findall(r"\[Errno (\d+)\]", told)) == {str(errno.ECONNREFUSED)}


def _through(proxy: str | None) -> str:
    return f" (through the proxy {proxy})" if proxy else ""


def _named(chain: list[BaseException], name: str) -> bool:
    """Whether aiohttp's exception of that name is in the chain; aiohttp need not be there at all."""
    return any(
        kind.__name__ == name and kind.__module__.startswith("aiohttp")
        for error in chain
        for kind in type(error).__mro__
    )


def _reason(chain: list[BaseException]) -> str:
    deepest = next((e for e in reversed(chain) if str(e)), chain[-1])
    return short(str(deepest)) or type(deepest).__name__
