"""Requests through a proxy, carried by aiohttp: it knows tunnels and what proxies say.

Stamps are those of the reading task, a little later than at the socket, and when a request has been
uploaded is not seen. aiohttp is loaded where a proxy is asked for only: that takes a third of a second.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

import aiohttp

from bench.wire.broken import ConnectError, ConnectTimeout, TransportError
from bench.wire.keepalive import keep_alive
from bench.wire.recorder import Recorder
from bench.wire.transport import Proxy, Request, Url, kept_headers

_READ = 16 * 1024
_PIECE = 256 * 1024


class ProxyTransport:
    """Every request goes through one proxy. Made while an event loop runs."""

    sees_upload = False

    def __init__(self, proxy: Proxy, context: ssl.SSLContext) -> None:
        self._proxy = str(proxy.url)
        # Told by ourselves: aiohttp never sees the password, so none of its errors repeats it.
        told_proxy = proxy.authorization
        self._told = {} if told_proxy is None else {"Proxy-Authorization": told_proxy}
        connector = aiohttp.TCPConnector(
            limit=0, ssl=context, keepalive_timeout=4.0, socket_factory=keep_alive
        )
        self._session = aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),  # a balancer's cookie would tie later requests to one server
            trust_env=False,
            auto_decompress=False,
            read_bufsize=1024 * 1024,
        )

    async def send(self, request: Request, recorder: Recorder, *, connect_s: float) -> _ProxiedAnswer:
        headers = {**request.headers}
        in_tunnel = request.url.scheme == "https"  # what is for the proxy goes no further
        if not in_tunnel:
            headers |= self._told
        if request.body:
            headers["Content-Length"] = str(len(request.body))
        recorder.start(time.monotonic_ns())
        with _our_errors():
            response = await self._session.request(
                request.method,
                str(request.url),
                headers=headers,
                data=_pieces(request.body) if request.body else None,
                allow_redirects=False,
                proxy=self._proxy,
                proxy_headers=dict(self._told) if in_tunnel else None,
                timeout=aiohttp.ClientTimeout(connect=connect_s),
            )
        recorder.begin(time.monotonic_ns(), response.status)
        return _ProxiedAnswer(response, recorder)

    def is_warm(self, url: Url, connections: int) -> bool:
        del url, connections  # aiohttp does not tell
        return False

    async def close(self) -> None:
        await self._session.close()


class _ProxiedAnswer:
    def __init__(self, response: aiohttp.ClientResponse, recorder: Recorder) -> None:
        self.headers = kept_headers(response.raw_headers)
        self._response = response
        self._recorder = recorder

    async def finish(self) -> None:
        with _our_errors():
            async for data in self._response.content.iter_chunked(_READ):
                self._recorder.add(time.monotonic_ns(), data)
        self._recorder.end(time.monotonic_ns())

    async def close(self) -> None:
        self._response.release()
        self._recorder.over.cancel()  # where it broke off


async def _pieces(body: bytes) -> AsyncIterator[memoryview]:
    """What is given to aiohttp whole is copied whole."""
    view = memoryview(body)
    for start in range(0, len(body), _PIECE):
        yield view[start : start + _PIECE]


@contextmanager
def _our_errors() -> Iterator[None]:
    """aiohttp's errors as the transport's callers know them; the cause stays attached."""
    try:
        yield
    except aiohttp.ConnectionTimeoutError as error:
        raise ConnectTimeout(str(error)) from error
    except (aiohttp.ClientConnectorError, aiohttp.ClientHttpProxyError, ValueError) as error:
        # ValueError: a host that nobody can be asked for, `a..b`
        raise ConnectError(str(error)) from error
    except (aiohttp.ClientError, OSError) as error:
        raise TransportError(str(error)) from error
