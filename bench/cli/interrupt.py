"""Ends a command in order when it is told to end, not only on Ctrl-C."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType

INTERRUPTED = 130
"""Exit code of a command that Ctrl-C has ended, as shells have it."""


@contextlib.contextmanager
def ended_in_order() -> Iterator[None]:
    """While this lasts, TERM (`kill`, a shutdown) and HUP (a closed terminal) do what Ctrl-C does.

    A signal that is ignored, as under `nohup`, stays ignored.
    """
    taken = [
        number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) == signal.SIG_DFL
    ]
    for number in taken:
        signal.signal(number, _like_ctrl_c)
    try:
        yield
    finally:
        for number in taken:
            signal.signal(number, signal.SIG_DFL)


def _like_ctrl_c(number: int, frame: FrameType | None) -> None:
    handler = signal.getsignal(signal.SIGINT)
    if callable(handler):
        handler(signal.SIGINT, frame)
        return
    raise KeyboardInterrupt  # Ctrl-C is ignored, as in a background job; we are meant all the same
