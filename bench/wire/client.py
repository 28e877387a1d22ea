"""The client: control requests (models, tokenise, metrics), and measured exchanges.

They go over our own transport, which stamps at the socket, or where a proxy is asked for over aiohttp's.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from functools import lru_cache, partial
from types import TracebackType
from typing import Any, Self, TypeVar

import msgspec
from msgspec import Struct

from bench.address import is_here, server_at
from bench.errors import EngineError, SuiteError
from bench.masking import hide, worth_hiding
from bench.records import Endpoint, Failure, Timeouts
from bench.wire.broken import TransportError
from bench.wire.connection import RulerTransport
from bench.wire.exchange import Onlooker, Prepared, Raw, Watch, finish, raw_of
from bench.wire.failures import StatusError, advice, classify, of_status
from bench.wire.recorder import Blocks, Recorder
from bench.wire.tls import ssl_context
from bench.wire.transport import Proxy, Transport, Url, read_proxy, read_url, request_of

__all__ = ["Client", "Prepared", "Raw", "Reply", "StatusError", "finish"]

CONTROL_LIMIT = 64 * 1024 * 1024
"""Bytes of a control answer: the token ids of two million tokens fit."""
STREAM_LIMIT = 1024 * 1024 * 1024
"""Bytes of a measured answer: some four million events."""
_USER_AGENT = "ctxbench"

_T = TypeVar("_T")


class Reply(Struct, frozen=True, kw_only=True):
    """The answer to a control request."""

    status: int
    headers: dict[str, str]
    text: str
    at_ns: int
    """Monotonic, when all of it had arrived."""
    took_ns: int


class Client:
    """One server. An async context manager; nothing is opened before `async with`.

    `base_url` ends in the version part (`http://127.0.0.1:8000/v1`). `connect_s` limits opening a
    connection. A proxy is used only when named here, and never for loopback addresses. `headers` go to
    this server with every request, as the key does; of their values, `secrets` and the key are in no
    record and no message. `transport` replaces both transports, for tests and for embedding.
    """

    def __init__(
        self,
        base_url: str,
        *,
        api_key: str | None = None,
        headers: Mapping[str, str] | None = None,
        secrets: Iterable[str] = (),
        ca_file: str | None = None,
        insecure: bool = False,
        proxy: str | None = None,
        connect_s: float = 10.0,
        transport: Transport | None = None,
    ) -> None:
        self._url = _base_of(base_url)
        self.base_url = str(self._url)
        """Without a trailing slash, user or password."""
        self.origin = f"{self._url.scheme}://{self._url.authority}"
        """Scheme, host and port."""
        if api_key is not None and not _fits_a_header(api_key):
            raise SuiteError("the API key holds characters that no HTTP header can carry")
        self._own: dict[str, str] = dict(headers or {})
        for name, value in self._own.items():
            if not (_fits_a_header(name) and _fits_a_header(value)) or ":" in name:
                raise SuiteError(f"the header {name[:200]!r} holds characters that no HTTP header can carry")
        if api_key is not None:
            self._own["Authorization"] = f"Bearer {api_key}"
        through = None if proxy is None else _proxy(proxy)
        self._secrets = worth_hiding((api_key, *secrets, *(through.secrets if through else ())))
        self._ca_file = ca_file
        self._insecure = insecure
        self._proxy = None if is_here(self._url.host) else through
        self._connect_s = connect_s
        self._given = transport
        self._control: Transport | None = None
        self._measured: Transport | None = None
        self._beside: Transport | None = None  # to this machine, where the server is behind a proxy
        self._gate = asyncio.Lock()
        self._blocks = Blocks()

    async def __aenter__(self) -> Self:
        context = partial(ssl_context, self._ca_file, self._insecure)
        if self._url.scheme == "https" or self._ca_file is not None:
            context()  # a wrong ca_file is heard of now
        if self._given is not None:
            self._control = self._measured = self._given
        elif self._proxy is not None:
            from bench.wire.proxied import ProxyTransport

            self._control = self._measured = ProxyTransport(self._proxy, context())
            self._beside = RulerTransport(context)
        else:
            # Two, so that a scrape never takes the connection that was warmed for an exchange.
            self._control, self._measured = RulerTransport(context), RulerTransport(context)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for transport in {self._measured, self._control, self._beside}:  # some may be one and the same
            if transport is not None:
                await transport.close()
        self._control = self._measured = self._beside = None

    # --- control requests

    async def get_json(self, path_or_url: str, *, timeout_s: float = 30.0) -> Any:
        """The decoded JSON of a GET. A path counts from `base_url`. Raises EngineError."""
        return self._json("GET", path_or_url, await self.get_reply(path_or_url, timeout_s=timeout_s))

    async def post_json(
        self, path_or_url: str, body: object, *, timeout_s: float = 120.0, if_missing: str = ""
    ) -> Any:
        """The decoded JSON answer to a POST of JSON; `if_missing` is as in `get_text`. Raises EngineError."""
        content = msgspec.json.encode(body)
        reply = await self._request("POST", path_or_url, timeout_s, content, if_missing=if_missing)
        return self._json("POST", path_or_url, reply)

    async def post_text(self, path_or_url: str, body: object, *, timeout_s: float = 120.0) -> str:
        """The answer to a POST of JSON, whatever it is. Raises EngineError."""
        return (await self._request("POST", path_or_url, timeout_s, msgspec.json.encode(body))).text

    async def get_text(self, path_or_url: str, *, timeout_s: float = 30.0, if_missing: str = "") -> str:
        """The text of a GET. Raises EngineError.

        `if_missing`: what a 404 makes one ask of an address; of a path it is whether base_url is right.
        """
        return (await self._request("GET", path_or_url, timeout_s, None, if_missing=if_missing)).text

    async def get_reply(self, path_or_url: str, *, timeout_s: float = 30.0) -> Reply:
        """A GET with its headers and times. Raises EngineError, `StatusError` unless it is 200."""
        return await self._request("GET", path_or_url, timeout_s, None)

    # --- measured exchanges

    def prepare(
        self,
        path: str,
        body: bytes,
        *,
        timeouts: Timeouts,
        prompt_tokens: int,
        endpoint: Endpoint,
    ) -> Prepared:
        """A request that only needs to be released. `path` counts from `base_url`.

        `body` is kept, not copied: give the same object for a replay.
        """
        url = self._resolve(path)
        first = timeouts.first_token_s
        headers = {**self._headers(url), "Accept": "text/event-stream", "Content-Type": "application/json"}
        return Prepared(
            request=request_of("POST", url, headers, body),
            url=str(url),
            body=body,
            endpoint=endpoint,
            timeouts=timeouts,
            first_token_s=120.0 + 0.010 * prompt_tokens if first is None else first,
            limit=STREAM_LIMIT,
            secrets=self._secrets,
            gate=self._gate,
        )

    async def warm(self, *, connections: int = 1, timeout_s: float = 30.0) -> None:
        """Opens, or proves alive, the connections that the next exchanges will use: one each.

        For exchanges that are released together, `connections` is how many. Servers close idle
        connections after seconds: those that were used less than a second ago need no proof. Raises
        EngineError.
        """
        transport = self._open(self._measured)
        if transport.is_warm(self._url, connections):
            return
        requests = (self._request("GET", "/models", timeout_s, None, transport) for _ in range(connections))
        # All are under way before the first is answered, so that none uses another's connection.
        for outcome in await asyncio.gather(*requests, return_exceptions=True):
            if isinstance(outcome, BaseException):
                raise outcome

    async def exchange(
        self, prepared: Prepared, *, keep_cancelled: bool = False, onlooker: Onlooker | None = None
    ) -> Raw:
        """Send the request and record its answer. Failures are data; only cancellation is raised.

        With `keep_cancelled` a cancelled exchange returns what it had read, with a failure of kind
        `cancelled`. No connection is left open either way. `onlooker` is told about once a second how
        far the answer is, off the path of the stamps.
        """
        transport = self._open(self._measured)
        recorder = Recorder(prepared.limit, self._blocks)
        watch = Watch(recorder, prepared, sees_upload=transport.sees_upload, onlooker=onlooker)
        headers: dict[str, str] = {}
        failure: Failure | None = None
        started_at = datetime.now(UTC).isoformat(timespec="milliseconds")
        try:
            async with asyncio.timeout(None) as timeout:
                watch.start(timeout)
                await self._converse(transport, prepared, recorder, headers)
        except TimeoutError:
            failure = watch.failure
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if not keep_cancelled or task is None:
                raise
            task.uncancel()
            failure = Failure(kind="cancelled", message="interrupted while the exchange was running")
        except TransportError as error:
            failure = self._failure(error, prepared.request.url, answered=recorder.status is not None)
        finally:
            watch.stop()
        return raw_of(recorder, watch, started_at=started_at, headers=headers, failure=failure)

    async def _converse(
        self,
        transport: Transport,
        prepared: Prepared,
        recorder: Recorder,
        headers: dict[str, str],
    ) -> None:
        answer = await transport.send(prepared.request, recorder, connect_s=prepared.timeouts.connect_s)
        try:
            headers.update(answer.headers)
            await answer.finish()
        finally:
            await answer.close()

    # --- the small parts

    async def _request(
        self,
        method: str,
        path_or_url: str,
        timeout_s: float,
        body: bytes | None,
        transport: Transport | None = None,
        if_missing: str = "",
    ) -> Reply:
        url = self._resolve(path_or_url)
        transport = transport or self._control_of(url)
        headers = self._headers(url)
        if body is not None:
            headers["Content-Type"] = "application/json"
        request = request_of(method, url, headers, body)
        recorder = Recorder(CONTROL_LIMIT, self._blocks)
        started_ns = time.monotonic_ns()
        name = f"{method} {url}"
        try:
            async with asyncio.timeout(timeout_s):
                connect_s = min(timeout_s, self._connect_s)
                answer = await transport.send(request, recorder, connect_s=connect_s)
                try:
                    await answer.finish()
                finally:
                    await answer.close()
        except TimeoutError as error:
            raise EngineError(
                f"{name}: no answer within {timeout_s:g} s; is the server busy or stuck?"
            ) from error
        except TransportError as error:
            failure = self._failure(error, url, answered=False)
            raise EngineError(hide(f"{name}: {failure.message}", self._secrets)) from error
        text = b"".join(data for _, data in recorder.take()).decode("utf-8", "replace")
        status = recorder.status or 0
        if status != 200:
            failure = of_status(status, text)
            to_do = advice(status, of_base=not _is_address(path_or_url), if_missing=if_missing)
            raise StatusError(hide(f"{name}: {failure.message}{to_do}", self._secrets), status)
        encoding = answer.headers.get("content-encoding", "identity")
        if encoding != "identity":
            raise EngineError(
                f"{name}: the answer is compressed ({encoding[:40]}) though identity was asked for: "
                "switch that off at the server or at what stands before it"
            )
        now_ns = time.monotonic_ns()
        return Reply(
            status=status,
            headers=answer.headers,
            text=text,
            at_ns=now_ns,
            took_ns=now_ns - started_ns,
        )

    def _failure(self, error: TransportError, url: Url, *, answered: bool) -> Failure:
        proxy = None if self._proxy is None or is_here(url.host) else self._proxy.url.place
        return classify(error, where=url.place, answered=answered, proxy=proxy)

    def _json(self, method: str, path_or_url: str, reply: Reply) -> Any:
        try:
            return msgspec.json.decode(reply.text)
        except (msgspec.DecodeError, RecursionError) as error:
            name = f"{method} {self._resolve(path_or_url)}"
            start = hide(reply.text[:60], self._secrets)
            raise EngineError(f"{name}: the answer is no JSON but begins with {start!r}") from error

    def _resolve(self, path_or_url: str) -> Url:
        if _is_address(path_or_url):
            return _url(path_or_url)
        return _url(f"{self.base_url}/{path_or_url.lstrip('/')}")

    def _headers(self, url: Url) -> dict[str, str]:
        headers = {"Accept": "*/*", "Accept-Encoding": "identity", "User-Agent": _USER_AGENT}
        # What is this server's own: a metrics page on another host or port does not get the key.
        if url.scheme == self._url.scheme and server_at(str(url)) == server_at(self.base_url):
            headers |= self._own
        return headers

    def _control_of(self, url: Url) -> Transport:
        """What carries a control request; the server's own metrics may be looked at through a tunnel."""
        return self._beside if self._beside is not None and is_here(url.host) else self._open(self._control)

    def _open(self, opened: _T | None) -> _T:
        if opened is None:
            raise RuntimeError("the client is used outside its `async with`")
        return opened


def _is_address(path_or_url: str) -> bool:
    return path_or_url[:8].lower().startswith(("http://", "https://"))


@lru_cache(maxsize=64)  # the same few addresses for every request
def _url(address: str) -> Url:
    try:
        return read_url(address)
    except ValueError as error:
        raise SuiteError(f"{_shown(address)} is no address: {error}") from error


def _base_of(text: str) -> Url:
    """Address of a server, without a slash at its end and without a query."""
    try:
        url = read_url(text.partition("?")[0])
    except ValueError as error:
        raise SuiteError(f"base_url {_shown(text)} is no address: {error}") from error
    return msgspec.structs.replace(url, target=url.target.rstrip("/"))


def _proxy(text: str) -> Proxy:
    try:
        return read_proxy(text)
    except ValueError as error:
        raise SuiteError(f"proxy {_shown(text)} is no address: {error}") from error


def _shown(address: str) -> str:
    """An address for a message, unless it may hold a password."""
    return "***" if "@" in address else repr(address[:200])


def _fits_a_header(text: str) -> bool:
    return text.isascii() and text.isprintable() and bool(text.strip())
