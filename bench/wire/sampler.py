"""Gauges during an exchange: what the KV cache, the queue and the drafter do meanwhile."""

from __future__ import annotations

import asyncio
import time
from array import array
from collections.abc import Awaitable, Callable
from typing import Self

from bench.records import Samples, Scrape
from bench.wire.looks import FIRST_S, pause_s

Look = Callable[[], Awaitable[Scrape]]

_COLUMNS = ("kv_usage", "running", "waiting", "drafts", "accepted_tokens")
_MOST = 100_000  # samples of one exchange


class Sampler:
    """Samples while its `async with` lasts, at `period_s` or slower.

    A page that takes long (llama.cpp answers between two batches, a big page costs milliseconds to
    read) stretches the period to twenty times its cost, so that looking does not disturb.
    """

    def __init__(
        self,
        look: Look,
        *,
        period_s: float = 1.0,
        clock_ns: Callable[[], int] = time.monotonic_ns,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._look = look
        self._period_s = period_s
        self._clock_ns = clock_ns
        self._sleep = sleep
        self._at: array[int] = array("q")
        self._took: array[int] = array("q")
        self._values: dict[str, list[float | None]] = {name: [] for name in _COLUMNS}
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._run(), name="gauge sampler")
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._task is not None:
            task, self._task = self._task, None
            task.cancel()
            await asyncio.wait({task})  # not `await task`: a cancellation of ours must stay ours
            if not task.cancelled():
                task.result()

    def samples(self, sent_ns: int, ended_ns: int | None = None) -> Samples:
        """The columns, with times relative to `sent_ns`; of samples up to `ended_ns` (monotonic)."""
        count = len(self._at)
        if ended_ns is not None:
            count = sum(1 for at in self._at if at <= ended_ns)
        columns = {name: tuple(values[:count]) for name, values in self._values.items()}
        return Samples(
            at_ns=tuple(at - sent_ns for at in self._at[:count]),
            took_ns=tuple(self._took[:count]),
            **columns,
        )

    async def _run(self) -> None:
        await self._sleep(FIRST_S)
        while len(self._at) < _MOST:
            started_ns = self._clock_ns()
            page = await self._look()
            spent_s = (self._clock_ns() - started_ns) / 1e9
            if page.values:
                self._at.append(page.at_ns)
                self._took.append(page.took_ns)
                for name, values in self._values.items():
                    values.append(page.values.get(name))
            await self._sleep(pause_s(self._period_s, spent_s))
