"""When Python's garbage collector runs: seldom, and never through what stays to the end anyway."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_YOUNG = 100_000


@contextmanager
def seldom() -> Iterator[None]:
    """A look at the youngest objects whenever there are 100,000 of them, instead of 700.

    While a command loads numpy and its own modules the collector would look some 90 times and find
    nothing: 30 to 40 ms of a run's start.
    """
    usual = gc.get_threshold()
    gc.set_threshold(_YOUNG, *usual[1:])
    try:
        yield
    finally:
        gc.set_threshold(*usual)


@contextmanager
def frozen() -> Iterator[None]:
    """What is there already is not looked at meanwhile.

    One walk through all that is loaded stops every thread for some 30 ms, and a chunk that comes then
    is stamped late.
    """
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
