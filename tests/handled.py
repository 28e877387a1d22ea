"""A transport that asks a function: servers for tests that need no socket. httpx gives the messages."""

from __future__ import annotations

import time
from collections.abc import Callable

import httpx

from bench.wire.recorder import Recorder
from bench.wire.transport import Request, Url, kept_headers


class Handled:
    """Every request is answered by `handler`, at once."""

    sees_upload = False

    def __init__(self, handler: Callable[[httpx.Request], httpx.Response]) -> None:
        self._handler = handler

    async def send(self, request: Request, recorder: Recorder, *, connect_s: float) -> _Answer:
        del connect_s
        recorder.start(time.monotonic_ns())
        asked = httpx.Request(
            request.method, str(request.url), headers=dict(request.headers), content=request.body
        )
        response = self._handler(asked)
        recorder.begin(time.monotonic_ns(), response.status_code)
        return _Answer(response, recorder)

    def is_warm(self, url: Url, connections: int) -> bool:
        del url, connections
        return False

    async def close(self) -> None:
        """There is nothing to close."""


class _Answer:
    def __init__(self, response: httpx.Response, recorder: Recorder) -> None:
        self.headers = kept_headers(response.headers.raw)
        self._response = response
        self._recorder = recorder

    async def finish(self) -> None:
        if self._response.content:
            self._recorder.add(time.monotonic_ns(), self._response.content)
        self._recorder.end(time.monotonic_ns())

    async def close(self) -> None:
        """Nothing was opened."""
