"""The second process (see `__init__.py`).

    python -m bench.report.second [plots] [RUN...]

Ends with exit code 0, or by an exception: then whoever started it does the rest.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import BinaryIO

from bench.errors import BenchError
from bench.report.entries import read_here
from bench.report.plot import draw_here
from bench.report.second.ahead import Ahead
from bench.report.second.wire import (
    READ_ON,
    WHOLE,
    content_of,
    ending,
    entry_bytes,
    plots_bytes,
    with_length,
)

_BLOCK = 1 << 18
"""Bytes of entries that are handed over together, or somewhat more."""
_AHEAD = 1 << 26
"""Bytes that are read before whoever measures them has taken them."""


def main() -> None:
    """Writes while a thread reads, so that it ends when nobody listens any more."""
    plots, *runs = sys.argv[1:]
    gc.disable()  # entries have no cycles; what figures leave is small
    # what is printed by mistake, by whatever is loaded at the start, must not get between the blocks
    with os.fdopen(os.dup(1), "wb") as out:
        os.dup2(2, 1)
        reader = _Reader([Path(run) for run in runs], plots=bool(plots))
        reader.start()
        for block in reader.blocks:
            out.write(block)
        out.flush()
        reader.join()
        if reader.error is not None:
            raise reader.error
        if plots:
            _draw(out)


class _Reader(Thread):
    """Reads all runs ahead, then loads what drawing needs."""

    def __init__(self, runs: list[Path], *, plots: bool) -> None:
        super().__init__(daemon=True)
        self.blocks = Ahead(_AHEAD)
        self.error: Exception | None = None
        self._runs = runs
        self._plots = plots

    def run(self) -> None:
        """What goes wrong is kept in `error`."""
        try:
            for run in self._runs:
                hand_over(run, self.blocks.put)
            self.blocks.close()
            if self._plots:
                from bench.report.plots import warm_up

                warm_up()
        except Exception as error:
            self.error = error
        finally:
            self.blocks.close()


def hand_over(run: Path, put: Callable[[bytes], None]) -> None:
    """Hands over the entries of a run in blocks, and how the reading ended."""
    block = bytearray()
    ended = WHOLE
    try:
        for seen in read_here(run):
            block += with_length(entry_bytes(seen))
            if len(block) >= _BLOCK:
                put(with_length(block))
                block.clear()
    except (BenchError, OverflowError):  # whoever reads on tells
        ended = READ_ON
    if block:
        put(with_length(block))
    put(ending(ended))


def _draw(out: BinaryIO) -> None:
    out.write(plots_bytes(draw_here(content_of(sys.stdin.buffer.read()))))


if __name__ == "__main__":
    main()
