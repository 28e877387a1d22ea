"""The HTTP surface of a simulated server: vLLM's paths, and `GET /truth`."""

from __future__ import annotations

import asyncio
import secrets
import socket
import struct
import time
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import suppress
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

import bench.servers.simulator.dialect as dialect

from .core import Core
from .dialect import ChatRequest, CompletionRequest, DetokenizeRequest, Rejected, Reply, TokenizeRequest
from .reply import Answer, Gone, Hangs, Resets, Send
from .sequence import Emission
from .tokens import render_chat
from .truth import PageTruth, RequestTruth, TokenizeTruth

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Scope = MutableMapping[str, Any]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


class Connection:
    """What the application must know of a connection."""

    __slots__ = ("head_ns", "transport")

    def __init__(self, transport: asyncio.Transport) -> None:
        self.transport = transport
        self.head_ns: int | None = None
        """When the first bytes of the request under way were read."""


Connections = dict[tuple[str, int], Connection]
_SLOW_S = 2.0
_BODY_LIMIT = 64 * 2**20
_PATH_LIMIT = 200
_HTML = "<html><head><title>413 Request Entity Too Large</title></head><body>nginx</body></html>"


def reset(connection: Connection | None) -> None:
    """Close with RST instead of FIN, as a died process or a balancer does."""
    if connection is None:
        return
    raw = connection.transport.get_extra_info("socket")
    if raw is not None:
        # The other side may have closed already; uvloop then says ValueError.
        with suppress(OSError, ValueError):
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.transport.abort()


class Generate:
    """`/v1/chat/completions` and `/v1/completions`, as a plain ASGI application."""

    def __init__(
        self, core: Core, connections: Connections, kind: type[ChatRequest] | type[CompletionRequest]
    ):
        self.core, self.connections, self.kind = core, connections, kind

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        core = self.core
        core.generations += 1
        connection = self.connections.get(tuple(scope.get("client") or ("", 0)))
        faults = core.faults.at(core.generations)
        truth = RequestTruth(
            id=("chatcmpl-" if self.kind is ChatRequest else "cmpl-") + secrets.token_hex(8),
            number=core.generations,
            endpoint="",
            faults=tuple(sorted(faults)),
            prompt_tokens=0,
            max_tokens=0,
            arrived_ns=(connection and connection.head_ns) or core.clock_ns(),
        )
        core.ledger.requests.append(truth)
        try:
            body = await self._body(receive, faults)
            await self._answer(body, truth, receive, send)
        except Rejected as error:
            truth.status = error.status
            await _respond(JSONResponse(error.body, error.status), scope, receive, send)
        except _Refusal as refusal:
            truth.status = refusal.response.status_code
            await _respond(refusal.response, scope, receive, send)
        except (Resets, Gone):
            reset(connection)

    async def _body(self, receive: Receive, faults: frozenset[str]) -> bytes:
        if "too-large" in faults:
            raise _Refusal(Response(_HTML, 413, {"connection": "close"}, "text/html"))
        parts: list[bytes] = []
        size = 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise Gone
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            if size > _BODY_LIMIT:
                raise Rejected(413, f"the body is larger than {_BODY_LIMIT:,} bytes", param="body")
            if "reset-upload" in faults:
                raise Resets
            if not message.get("more_body"):
                break
        if "hang-headers" in faults:
            await _gone(receive)
            raise Gone
        refusal = _refusal(faults, self.core)
        if refusal is not None:
            raise _Refusal(refusal)
        return b"".join(parts)

    async def _answer(self, body: bytes, truth: RequestTruth, receive: Receive, send: Send) -> None:
        core = self.core
        request: ChatRequest | CompletionRequest = dialect.decode(body, self.kind)
        if request.model not in (None, core.profile.model):
            raise dialect.unknown_model(str(request.model), core.profile.model)
        prompt, truth.endpoint = await core.prompt(request)
        passage = core.admit(request, prompt, truth)
        chat = self.kind is ChatRequest
        reply = Reply(id=truth.id, created=int(time.time()), model=core.profile.model, chat=chat)
        answer = Answer(core, passage, reply, request, send)
        watch = asyncio.create_task(_gone(receive, passage.queue))
        try:
            await (answer.stream() if request.stream else answer.whole(send))
        except Hangs:
            await asyncio.wait([watch])
            raise Gone from None
        finally:
            watch.cancel()
            passage.driver.abort(truth.id)
            passage.settle()
            core.log.collect(core.driver.engine)


class _Refusal(Exception):
    """An error reply that a fault wants."""

    def __init__(self, response: Response) -> None:
        super().__init__(response.status_code)
        self.response = response


async def _gone(receive: Receive, queue: asyncio.Queue[Emission | None] | None = None) -> None:
    """Returns when the client has left, and tells the queue that nothing more is wanted."""
    while (await receive())["type"] != "http.disconnect":
        pass
    if queue is not None:
        queue.put_nowait(None)


async def _respond(response: Response, scope: Scope, receive: Receive, send: Send) -> None:
    await response(scope, receive, send)


def _refusal(faults: frozenset[str], core: Core) -> Response | None:
    if "unauthorized" in faults:
        return JSONResponse({"error": "Unauthorized"}, 401)
    if "model-missing" in faults:
        error = dialect.unknown_model("the-model-you-asked-for", core.profile.model)
        return JSONResponse(error.body, 404)
    if "rate-limited" in faults:
        body = Rejected(429, "Too many requests.", "RateLimitError").body
        return JSONResponse(body, 429, {"retry-after": "1"})
    if "server-error" in faults:
        body = Rejected(500, "EngineCore encountered an issue.", "InternalServerError").body
        return JSONResponse(body, 500)
    return None


class Pages:
    """Everything that is not generation."""

    def __init__(self, core: Core) -> None:
        self.core = core

    async def models(self, request: Request) -> Response:
        profile = self.core.profile
        created = int(self.core.started_at)
        return JSONResponse(dialect.models(profile.model, profile.max_model_len, created))

    async def version(self, request: Request) -> Response:
        return JSONResponse({"version": dialect.VERSION})

    async def health(self, request: Request) -> Response:
        return Response(status_code=200)

    async def server_info(self, request: Request) -> Response:
        profile = self.core.profile
        shown = "None"
        if speculation := profile.speculation:
            method, k = speculation.method, speculation.num_speculative_tokens
            shown = f"SpeculativeConfig(method='{method}', model='{profile.model}', num_spec_tokens={k})"
        return JSONResponse(dialect.server_info(profile.name, profile.model, profile.max_model_len, shown))

    async def tokenize(self, request: Request) -> Response:
        arrived = self.core.clock_ns()
        asked = dialect.decode(await request.body(), TokenizeRequest)
        if asked.messages is not None:
            text = render_chat(asked.messages, generation_prompt=asked.add_generation_prompt)
        elif asked.prompt is not None:
            text = asked.prompt
        else:
            raise Rejected(400, "either prompt or messages is needed", "Bad Request", "body")
        try:
            prompt = await self.core.prompt_of_text(text)
        except ValueError as error:
            raise Rejected(400, f"prompt: {error}", param="prompt") from error
        ids = prompt.ids.tolist()
        pieces = self.core.tokenizer.pieces(ids) if asked.return_token_strs else None
        limit = self.core.profile.max_model_len
        body = dialect.encode(
            {"count": len(ids), "max_model_len": limit, "tokens": ids, "token_strs": pieces}
        )
        due = arrived + round(len(ids) / self.core.profile.timing.tokenize_tok_s / self.core.speed * 1e9)
        await asyncio.sleep(max(0.0, (due - self.core.clock_ns()) / 1e9))
        told = TokenizeTruth(tokens=len(ids), arrived_ns=arrived, due_ns=due, sent_ns=self.core.clock_ns())
        self.core.ledger.tokenize.append(told)
        return Response(body, media_type="application/json")

    async def detokenize(self, request: Request) -> Response:
        asked = dialect.decode(await request.body(), DetokenizeRequest)
        try:
            return JSONResponse({"prompt": self.core.tokenizer.decode(asked.tokens)})
        except ValueError as error:
            raise Rejected(400, str(error), param="tokens") from error

    async def reset_prefix_cache(self, request: Request) -> Response:
        self.core.driver.catch_up()
        return JSONResponse({"success": self.core.driver.engine.reset()})

    async def metrics(self, request: Request) -> Response:
        self.core.pages += 1
        faults = self.core.faults.at(self.core.pages)
        if "metrics-404" in faults:
            return JSONResponse({"detail": "Not Found"}, 404)
        if "metrics-slow" in faults:
            gone = asyncio.create_task(_gone(request.receive))
            await asyncio.wait([gone], timeout=_SLOW_S)
            gone.cancel()
        text = self.core.late_page if "metrics-late" in faults else self.core.metrics_page(faults)
        kind = "application/openmetrics-text" if "metrics-openmetrics" in faults else "text/plain"
        return Response(text, headers={"content-type": f"{kind}; version=1.0.0; charset=utf-8"})

    async def truth(self, request: Request) -> Response:
        return Response(msgspec.json.encode(self.core.truth()), media_type="application/json")


def make_app(core: Core, connections: Connections) -> Starlette:
    """The application; `connections` by client address, for arrival times and resets."""
    pages = Pages(core)

    routes = [
        Route("/v1/chat/completions", Generate(core, connections, ChatRequest), methods=["POST"]),
        Route("/v1/completions", Generate(core, connections, CompletionRequest), methods=["POST"]),
        Route("/v1/models", pages.models),
        Route("/version", pages.version),
        Route("/health", pages.health),
        Route("/server_info", pages.server_info),
        Route("/tokenize", pages.tokenize, methods=["POST"]),
        Route("/detokenize", pages.detokenize, methods=["POST"]),
        Route("/reset_prefix_cache", pages.reset_prefix_cache, methods=["POST"]),
        Route("/metrics", pages.metrics),
        Route("/truth", pages.truth),
    ]
    app = Starlette(
        routes=routes,
        exception_handlers={Rejected: _rejected, HTTPException: _detail},
    )
    if "loading" in core.faults:
        app.add_middleware(Loading)
    app.add_middleware(Noting, core=core, connections=connections)
    return app


async def _rejected(request: Request, error: Exception) -> Response:
    return (
        JSONResponse(error.body, error.status) if isinstance(error, Rejected) else Response(status_code=500)
    )


async def _detail(request: Request, error: Exception) -> Response:
    status, detail = (error.status_code, error.detail) if isinstance(error, HTTPException) else (500, "")
    return JSONResponse({"detail": detail}, status)


class Noting:
    """Notes when every request came and was answered that generates nothing, but for `/truth`."""

    def __init__(self, app: App, core: Core, connections: Connections) -> None:
        self.app, self.core, self.connections = app, core, connections

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope.get("path", "")
        if scope["type"] != "http" or path == "/truth" or path.endswith("/completions"):
            await self.app(scope, receive, send)
            return
        connection = self.connections.get(tuple(scope.get("client") or ("", 0)))
        arrived_ns = (connection and connection.head_ns) or self.core.clock_ns()
        await self.app(scope, receive, send)
        told = PageTruth(path=path[:_PATH_LIMIT], arrived_ns=arrived_ns, sent_ns=self.core.clock_ns())
        self.core.ledger.pages.append(told)


class Loading:
    """503 for the first requests; `/truth` is always there."""

    def __init__(self, app: App, refused: int = 3) -> None:
        self.app, self.left = app, refused

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] == "/truth" or not self.left:
            await self.app(scope, receive, send)
            return
        self.left -= 1
        body = Rejected(503, "The model is still loading.", "ServiceUnavailableError").body
        await JSONResponse(body, 503)(scope, receive, send)
