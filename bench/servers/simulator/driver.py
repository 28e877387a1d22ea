"""Runs an engine against the clock: absolute deadlines, so that lateness never adds up.

A loop's timers are good to a millisecond (uvloop rounds to the nearest, the standard loop up), and
what lies between a step's end and its bytes in the socket (the step's books, JSON, a task waking with
cold caches) takes half of one more. At a speed of 32 that is two percent of a short prompt's first token.
So a step that ends in a first token, or is far off, is taken up to `_EARLY_NS` before its end: the reply
makes its bytes ready, and the loop turns without sleeping (serving whatever else there is) until the
moment itself. Decode steps that follow each other closely are left to the timer: turning between them
would take a whole core, which the client may need, to be half a millisecond nearer.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from .engine import Engine
from .sequence import Emission, Job, Sequence

_EARLY_NS = 2_000_000
"""Longer than a timer is late (1 ms) and a chunk takes to be made (0.5 ms)."""
_FAR_NS = 5 * _EARLY_NS
"""So turning between decode steps takes a fifth of a core at most."""


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
        self._advance(self.engine_s(self._clock_ns()))

    async def until(self, due_ns: int) -> None:
        """Returns at that time, at once where it has passed; the loop turns without sleeping meanwhile.

        For the emission at hand, which comes at most `_EARLY_NS` and a timer's rounding early.
        """
        while self._clock_ns() < due_ns:
            await asyncio.sleep(0)

    def stop(self) -> None:
        """Let every waiting request know that nothing comes any more."""
        if self._timer:
            self._timer.cancel()
        for queue in self._queues.values():
            queue.put_nowait(None)
        self._queues.clear()

    def _advance(self, to_s: float) -> None:
        for emission in self.engine.advance(to_s):
            queue = self._queues.get(emission.job)
            if queue is not None:
                queue.put_nowait(emission)
                if emission.finish:
                    del self._queues[emission.job]

    def _fire(self, ahead_s: float = 0.0) -> None:
        """Take the steps that have ended by now, and the one that ends at `ahead_s` of the engine's clock."""
        self._advance(max(ahead_s, self.engine_s(self._clock_ns())))
        self._arm()

    def _arm(self) -> None:
        if self._timer:
            self._timer.cancel()
            self._timer = None
        due_s = self.engine.next_s()
        if due_s is None:
            return
        loop = asyncio.get_running_loop()
        wait_ns = self.wall_ns(due_s) - self._clock_ns()
        if wait_ns > 0 and (self.engine.prefilling or wait_ns > _FAR_NS):
            early_ns = min(_EARLY_NS, wait_ns // 2)
            self._timer = loop.call_later((wait_ns - early_ns) / 1e9, self._fire, due_s)
        else:
            self._timer = loop.call_later(max(0, wait_ns) / 1e9, self._fire)
