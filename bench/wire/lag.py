"""How late and how busy this client is: the ruler's own error, measured in every run.

A thread knocks at the event loop twenty times a second, in the way in which a socket does, and the
loop notes how long the knock had to wait. That is how late a stamp taken then would have been. The
knocks do not wait for one another: a loop that is stuck for half a second is seen ten times, not
once. Timers of the loop itself would be worse witnesses: they are late by their own granularity.

Twenty knocks a second miss most pauses of the garbage collector, which stops every thread: those are
timed one by one.
"""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from array import array
from collections.abc import Sequence
from typing import Self

from bench.records import ClientHealth

PERIOD_S = 0.05


class LagMeter:
    """Watches the running loop while its `async with` lasts; `window()` covers one exchange."""

    def __init__(self, *, period_s: float = PERIOD_S) -> None:
        self._period_s = period_s
        self._windows: set[Window] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._collecting_ns = 0

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self._stop.clear()
        gc.callbacks.append(self._collected)
        self._thread = threading.Thread(target=self._knock, name="loop lag", daemon=True)
        self._thread.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        gc.callbacks.remove(self._collected)
        self._stop.set()
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join)
            self._thread = None

    def window(self) -> Window:
        """Starts a window; it ends with `close()`, and overlaps others freely."""
        window = Window(self._windows)
        self._windows.add(window)
        return window

    def note(self, knocked_ns: int) -> None:
        """A knock of that time has been heard now."""
        lag_ns = time.monotonic_ns() - knocked_ns
        for window in self._windows:
            window.lags_ns.append(lag_ns)

    def _collected(self, phase: str, info: dict[str, int]) -> None:
        """Called by the garbage collector before and after each of its runs."""
        now_ns = time.monotonic_ns()
        if phase == "start":
            self._collecting_ns = now_ns
            return
        for window in tuple(self._windows):  # it may run in another thread
            window.pauses_ns.append(now_ns - self._collecting_ns)

    def _knock(self) -> None:
        loop = self._loop
        while loop is not None and not self._stop.wait(self._period_s):
            try:
                loop.call_soon_threadsafe(self.note, time.monotonic_ns())
            except RuntimeError:  # the loop is closed; nothing is measured any more
                return


class Window:
    """Lag and load from its making to `close`."""

    def __init__(self, others: set[Window]) -> None:
        self.lags_ns: array[int] = array("q")
        self.pauses_ns: array[int] = array("q")
        """Of the garbage collector."""
        self._others = others
        self._wall_ns = time.monotonic_ns()
        self._cpu_ns = time.process_time_ns()

    def close(self) -> ClientHealth | None:
        """What was seen; `None` when the window was too short for a single knock."""
        self._others.discard(self)
        wall_ns = time.monotonic_ns() - self._wall_ns
        cpu_ns = time.process_time_ns() - self._cpu_ns
        return health(self.lags_ns, cpu_ns=cpu_ns, wall_ns=wall_ns, pauses_ns=self.pauses_ns)


def health(
    lags_ns: Sequence[int], *, cpu_ns: int, wall_ns: int, pauses_ns: Sequence[int] = ()
) -> ClientHealth | None:
    """Quantiles by the nearest-rank rule: values that were measured, never interpolated ones."""
    if not lags_ns:
        return None
    ordered = sorted(lags_ns)

    def rank(share: float) -> float:
        place = max(0, -(-len(ordered) * share // 1) - 1)
        return ordered[int(place)] / 1e6

    return ClientHealth(
        loop_lag_p50_ms=rank(0.50),
        loop_lag_p99_ms=rank(0.99),
        loop_lag_max_ms=ordered[-1] / 1e6,
        cpu_share=cpu_ns / wall_ns if wall_ns > 0 else 0.0,
        gc_pauses=len(pauses_ns),
        gc_pause_max_ms=max(pauses_ns, default=0) / 1e6,
        gc_pause_total_ms=sum(pauses_ns) / 1e6,
    )
