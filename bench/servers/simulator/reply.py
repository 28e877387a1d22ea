"""Sends the answer of one generation request: as a stream, or whole; with the faults of streams."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from typing import Any

import bench.servers.simulator.dialect as dialect

from .core import Core, Passage
from .dialect import ChatRequest, CompletionRequest, Reply
from .framing import COMMENT, DONE, frame, odd_text
from .sequence import Emission

Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
_MERGED = 8
_PING_S = 0.02
_SSE = [(b"content-type", b"text/event-stream; charset=utf-8")]


class Gone(Exception):
    """The client has left, or the server lost the request: nothing more is to be sent."""


class Hangs(Exception):
    """A fault: from here on nothing comes, and the connection stays."""


class Resets(Exception):
    """A fault: the connection is to be reset now."""


class Outlet:
    """Writes to the socket and stamps; holds everything back where a proxy would buffer."""

    def __init__(self, send: Send, passage: Passage) -> None:
        self._send = send
        self._passage = passage
        self._buffered = "buffered" in passage.faults
        self._held: list[tuple[list[bytes], int, int]] = []
        self._events = 0

    async def start(self) -> None:
        await self._send({"type": "http.response.start", "status": 200, "headers": _SSE})

    async def events(self, *events: bytes, due_ns: int = 0, tokens: int = 0) -> None:
        """Events that leave in one write; `tokens` above 0 makes the last one a chunk of text: it
        leaves when it is due, and the truth records it."""
        writes = []
        for data in events:
            self._events += 1
            writes += frame(data, self._passage.faults, self._events)
        if "utf8-split" not in self._passage.faults:
            writes = [b"".join(writes)]
        await self.writes(writes, due_ns, tokens)

    async def writes(self, writes: list[bytes], due_ns: int = 0, tokens: int = 0) -> None:
        if tokens:
            await self._passage.driver.until(due_ns)
        if self._buffered:
            self._held.append((writes, due_ns, tokens))
            return
        if tokens:
            self._passage.truth.chunk(due_ns, time.monotonic_ns(), tokens)
        for body in writes:
            await self._send({"type": "http.response.body", "body": body, "more_body": True})

    async def end(self) -> None:
        held, now = self._held, time.monotonic_ns()
        for _, due_ns, tokens in held:
            if tokens:
                self._passage.truth.chunk(due_ns, now, tokens)
        body = b"".join(part for writes, _, _ in held for part in writes)
        await self._send({"type": "http.response.body", "body": body, "more_body": False})


class Answer:
    """One answer on its way out."""

    def __init__(
        self, core: Core, passage: Passage, reply: Reply, request: ChatRequest | CompletionRequest, send: Send
    ) -> None:
        self.core, self.passage, self.reply = core, passage, reply
        self.faults = passage.faults
        self.options = request.stream_options or dialect.StreamOptions()
        self.ids = passage.sequence.job.answer
        self.outlet = Outlet(send, passage)
        self.struck = False

    async def whole(self, send: Send) -> None:
        """Without streaming: everything once it is all there."""
        last = None
        async for emission in self._emissions():
            last = emission
        if last is None or last.finish is None:
            raise Gone
        self.passage.settle()
        text = odd_text(self.core.tokenizer.decode(self.ids.tolist()), self.faults)
        use = dialect.usage(self._counts(len(self.ids)))
        body = dialect.encode(self.reply.whole(text, last.finish, use))
        due = self.passage.driver.wall_ns(last.at_s)
        await self.passage.driver.until(due)
        self.passage.truth.chunk(due, time.monotonic_ns(), len(self.ids))
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body, "more_body": False})

    async def stream(self) -> None:
        """As events; raises `Hangs`, `Resets` or `Gone` where the stream has no end."""
        await self.outlet.start()
        early = "role-early" in self.faults and self.reply.chat
        if early:
            await self.outlet.events(self._role())
        async for emission in self._chunks():
            if "empty-answer" in self.faults:
                self.passage.driver.abort(self.passage.truth.id)
                break
            # The role leaves in the same write as the first text: the first of two writes would wake
            # the client, and on a busy machine that would take the processor from the second.
            opening = [self._role()] if emission.first and self.reply.chat and not early else []
            await self._text(emission, opening)
            if not self.struck and emission.start + emission.count >= len(self.ids) // 2:
                self.struck = True
                if await self._strike():
                    break
        else:
            await self._usage()
        self.passage.settle()
        if "no-done" not in self.faults:
            await self.outlet.events(DONE)
        await self.outlet.end()

    # --- what comes from the engine ---

    async def _emissions(self) -> AsyncIterator[Emission]:
        queue, started = self.passage.queue, False
        while True:
            emission = await (queue.get() if started else self._first(queue))
            started = True
            if emission is None:
                raise Gone
            yield emission
            if emission.finish:
                return

    async def _first(self, queue: asyncio.Queue[Emission | None]) -> Emission | None:
        """The first emission; comments are sent meanwhile where that is the fault."""
        if "comments" not in self.faults:
            return await queue.get()
        while True:
            await self.outlet.writes([COMMENT])
            try:
                return await asyncio.wait_for(queue.get(), _PING_S)
            except TimeoutError:
                continue

    async def _chunks(self) -> AsyncIterator[Emission]:
        """One emission a chunk, or several merged."""
        merged: list[Emission] = []
        wide = _MERGED if "wide-chunks" in self.faults else 1
        async for emission in self._emissions():
            merged.append(emission)
            if len(merged) >= wide or emission.finish:
                yield Emission(
                    job=emission.job,
                    at_s=emission.at_s,
                    start=merged[0].start,
                    count=sum(part.count for part in merged),
                    first=merged[0].first,
                    finish=emission.finish,
                )
                merged = []

    # --- what goes out ---

    def _role(self) -> bytes:
        return dialect.encode(self._with_usage(self.reply.role(), 0))

    async def _text(self, emission: Emission, opening: list[bytes]) -> None:
        end = emission.start + emission.count
        text = odd_text(self.core.tokenizer.decode(self.ids[emission.start : end].tolist()), self.faults)
        body = self._with_usage(self._body(text, emission), end)
        if emission.finish and not self.options.include_usage:
            body["system_fingerprint"] = dialect.FINGERPRINT
        due = self.passage.driver.wall_ns(emission.at_s)
        await self.outlet.events(*opening, dialect.encode(body), due_ns=due, tokens=emission.count)

    def _body(self, text: str, emission: Emission) -> dialect.Body:
        if self.reply.chat and "tool-calls" in self.faults:
            # The pieces together are one JSON document: {"text": "..."}.
            piece = ('{"text": "' if emission.first else "") + text + ('"}' if emission.finish else "")
            return self.reply.tool(piece, emission.finish, opening=emission.first)
        fields = {"reasoning": "reasoning", "reasoning-content": "reasoning_content"}
        field = next((fields[name] for name in fields if name in self.faults), "content")
        return self.reply.text(text, emission.finish, field=field)

    def _counts(self, completion: int) -> dialect.Counts:
        return self.passage.counts(completion, hide_cached="no-cached-tokens" in self.core.faults)

    def _with_usage(self, body: dialect.Body, completion: int) -> dialect.Body:
        if "usage-null" in self.faults:
            return body | {"usage": None}
        if self.options.continuous_usage_stats and "usage-missing" not in self.faults:
            return body | {"usage": dialect.usage(self._counts(completion), details=False)}
        return body

    async def _usage(self) -> None:
        if not self.options.include_usage or self.faults & {"usage-missing", "usage-null"}:
            return
        use = dialect.usage(self._counts(len(self.ids)))
        if "usage-impossible" in self.faults:
            use = dialect.impossible_usage()
        body = self.reply.chunk(None, usage=use, system_fingerprint=dialect.FINGERPRINT)
        await self.outlet.events(dialect.encode(body))

    async def _strike(self) -> bool:
        """The faults that strike in the middle; True where the stream ends with them."""
        if "counter-reset" in self.faults:
            self.core.reset_counters()
        if "restart" in self.faults:
            self.core.restart()
            raise Resets
        if "hang-stream" in self.faults:
            raise Hangs
        if "reset-stream" in self.faults:
            raise Resets
        if "error-event" in self.faults:
            self.passage.driver.abort(self.passage.truth.id)
            error = {"message": "EngineCore encountered an issue.", "type": "InternalServerError"}
            await self.outlet.events(dialect.encode({"error": {**error, "param": None, "code": 500}}))
            return True
        return False
