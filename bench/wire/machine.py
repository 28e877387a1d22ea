"""What the machine under a server does during an exchange: exporters and local GPUs, looked at slowly."""

from __future__ import annotations

import asyncio
import time
from array import array
from collections.abc import Awaitable, Callable, Mapping
from typing import Self

from bench.engines.machine import GAUGES, MOST_DEVICES, read_machine
from bench.errors import EngineError
from bench.records import MachineSamples
from bench.wire.client import Client
from bench.wire.looks import FIRST_S, pause_s

MachineLook = Callable[[], Awaitable[tuple[dict[str, float], str | None]]]
"""Gauges by name and device as `engines.machine` names them, and why there is none."""

PERIOD_S = 2.0
MOST_SAMPLES = 600
"""Samples kept of one exchange and source: when they are full every second one is let go, and from then
on looks are half as frequent."""
_TIMEOUT_S = 10.0
_MOST_COLUMNS = MOST_DEVICES * len(GAUGES)
_LARGE_PAGE = 8 * 1024


async def look_at(client: Client, url: str) -> tuple[dict[str, float], str | None]:
    """One page of an exporter; what goes wrong is the second part of the answer."""
    try:
        text = await client.get_text(url, timeout_s=_TIMEOUT_S)
    except EngineError as error:
        return {}, str(error)
    return await asyncio.to_thread(read_machine, text) if len(text) > _LARGE_PAGE else read_machine(text)


class MachineSampler:
    """Samples all sources while its `async with` lasts, each at `period_s` or slower."""

    def __init__(
        self,
        looks: Mapping[str, MachineLook],
        *,
        period_s: float = PERIOD_S,
        clock_ns: Callable[[], int] = time.monotonic_ns,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._books = {source: _Book(look, period_s, clock_ns, sleep) for source, look in looks.items()}
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        for source, book in self._books.items():
            self._tasks.add(asyncio.create_task(book.run(), name=f"machine sampler {source}"))
        return self

    async def __aexit__(self, *_: object) -> None:
        tasks, self._tasks = self._tasks, set()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)  # not `await task`: a cancellation of ours must stay ours
        for task in tasks:
            if not task.cancelled():
                task.result()

    def samples(self, sent_ns: int, ended_ns: int) -> tuple[MachineSamples, ...]:
        """The columns of every source, of looks up to `ended_ns` (monotonic), times relative to `sent_ns`."""
        return tuple(book.samples(source, sent_ns, ended_ns) for source, book in self._books.items())

    def forget(self, before_ns: int) -> None:
        """Lets go of looks earlier than `before_ns` (monotonic): nobody will ask for them any more."""
        for book in self._books.values():
            book.forget(before_ns)


class _Book:
    """The looks at one source."""

    def __init__(
        self,
        look: MachineLook,
        period_s: float,
        clock_ns: Callable[[], int],
        sleep: Callable[[float], Awaitable[None]],
    ) -> None:
        self._look, self._clock_ns, self._sleep = look, clock_ns, sleep
        self._first_period_s = self._period_s = period_s
        self._at: array[int] = array("q")
        self._columns: dict[str, list[float | None]] = {}
        self._problem: str | None = None

    async def run(self) -> None:
        await self._sleep(FIRST_S)
        while True:
            started_ns = self._clock_ns()
            values, problem = await self._look()
            now_ns = self._clock_ns()
            spent_s = (now_ns - started_ns) / 1e9
            self._problem = problem or self._problem
            if values:
                self._take(now_ns, values)
            await self._sleep(pause_s(self._period_s, spent_s))

    def _take(self, at_ns: int, values: Mapping[str, float]) -> None:
        if len(self._at) == MOST_SAMPLES:
            self._at = self._at[::2]
            self._columns = {name: column[::2] for name, column in self._columns.items()}
            self._period_s *= 2
        before = len(self._at)
        self._at.append(at_ns)
        for name in values:
            if len(self._columns) < _MOST_COLUMNS:
                self._columns.setdefault(name, [None] * before)
        for name, column in self._columns.items():
            value = values.get(name)
            column.append(None if value is None else float(f"{value:.6g}"))

    def forget(self, before_ns: int) -> None:
        gone = sum(1 for at in self._at if at < before_ns)
        self._at = self._at[gone:]
        self._columns = {name: column[gone:] for name, column in self._columns.items() if self._at}
        if not self._at:
            self._period_s = self._first_period_s

    def samples(self, source: str, sent_ns: int, ended_ns: int) -> MachineSamples:
        count = sum(1 for at in self._at if at <= ended_ns)
        return MachineSamples(
            source=source,
            at_ns=tuple(at - sent_ns for at in self._at[:count]),
            values={name: tuple(column[:count]) for name, column in self._columns.items()},
            problem=self._problem,
        )
