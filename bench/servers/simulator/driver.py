"""Runs an engine against the clock: absolute deadlines, so that lateness never adds up."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from .engine import Engine
from .sequence import Emission, Job, Sequence


class Driver:
    """Belongs to one event loop. The engine's second 0 is the moment this object was made."""

    def __init__(self, engine: Engine, speed: float, clock_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self.engine = engine
        self.speed = speed
        self._clock_ns = clock_ns
        self._origin_ns = clock_ns()
        self._queues: dict[str, asyncio.Queue[Emission | None]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def engine_s(self, at_ns: int) -> float:
        """A monotonic time on the engine's clock."""
        return (at_ns - self._origin_ns) * self.speed / 1e9

    def wall_ns(self, at_s: float) -> int:
        """A time of the engine's clock as monotonic nanoseconds."""
        return self._origin_ns + round(at_s / self.speed * 1e9)

    def submit(self, job: Job) -> tuple[Sequence, asyncio.Queue[Emission | None]]:
        """Hand a job over; its emissions come through the queue (`None`: it will never end)."""
        self.catch_up()
        queue: asyncio.Queue[Emission | None] = asyncio.Queue()
        self._queues[job.id] = queue
        sequence = self.engine.submit(job)
        self._arm()
        return sequence, queue

    def abort(self, job_id: str) -> None:
        """Drop a job; nothing happens when it has ended already."""
        self.catch_up()
        self._queues.pop(job_id, None)
        self.engine.abort(job_id, self.engine_s(self._clock_ns()))
        self._arm()

    def catch_up(self) -> None:
        """Bring the engine to now, and hand out what it produced."""
        for emission in self.engine.advance(self.engine_s(self._clock_ns())):
            queue = self._queues.get(emission.job)
            if queue is not None:
                queue.put_nowait(emission)
                if emission.finish:
                    del self._queues[emission.job]

    def stop(self) -> None:
        """Let every waiting request know that nothing comes any more."""
        if self._timer:
            self._timer.cancel()
        for queue in self._queues.values():
            queue.put_nowait(None)
        self._queues.clear()

    def _fire(self) -> None:
        self.catch_up()
        self._arm()

    def _arm(self) -> None:
        if self._timer:
            self._timer.cancel()
            self._timer = None
        when = self.engine.next_s()
        if when is not None:
            delay = (self.wall_ns(when) - self._clock_ns()) / 1e9
            self._timer = asyncio.get_running_loop().call_later(max(0.0, delay), self._fire)
