"""Which event loop everything runs on."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Coroutine
from typing import Any, TypeVar

_SWITCH_S = 0.0005
_T = TypeVar("_T")


def run(main: Coroutine[Any, Any, _T]) -> _T:
    """`asyncio.run` on the best loop there is: uvloop where installed, else the standard one.

    Threads hand the interpreter over after half a millisecond meanwhile, not after five, so that a
    page parsed or a journal line written in a thread does not hold up a stamp.
    """
    previous = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH_S)
    try:
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            return runner.run(main)
    finally:
        sys.setswitchinterval(previous)


def loop_factory() -> Any:
    """uvloop's, or `None` for the standard loop."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop
