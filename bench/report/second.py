"""The program that reads and draws for another process that makes a report (`helped.py`).

    python -m bench.report.second [plots] [RUN...]

Hands over the entries of the runs on standard output. If its first argument is `plots`, it then takes a
content on standard input, and hands over the plots of it.
"""

from __future__ import annotations

import gc
import queue
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from bench.errors import BenchError
from bench.journal import read_info
from bench.report.handed import READ_ON, WHOLE, ending, entry_bytes, with_length
from bench.report.painter import drawn
from bench.report.reading import read_here

_BLOCK = 1 << 18
"""Bytes of entries that are handed over together, or somewhat more."""
_AHEAD = 256
"""Blocks that are read ahead of whoever measures them: 64 MB, or 1.5 s of his time."""


def main() -> None:
    """See above."""
    plots, *runs = sys.argv[1:]
    gc.disable()  # what it reads it drops or keeps; there are no cycles in it
    blocks: queue.Queue[bytes | None] = queue.Queue(_AHEAD)
    writing = threading.Thread(target=_write, args=[blocks], daemon=True)
    writing.start()
    for run in runs:
        _hand_over(Path(run), blocks.put)
    blocks.put(None)
    if plots:
        from bench.report.plots import warm_up

        warm_up()  # while it is measured what has been read ahead
    writing.join()
    if plots:
        sys.stdout.buffer.write(drawn(sys.stdin.buffer.read()))


def _write(blocks: queue.Queue[bytes | None]) -> None:
    for block in iter(blocks.get, None):
        sys.stdout.buffer.write(block)
    sys.stdout.buffer.flush()


def _hand_over(run: Path, put: Callable[[bytes], None]) -> None:
    """Hands over the entries of a run in blocks, and how the reading ended."""
    block = bytearray()
    ended = WHOLE
    try:
        for seen in read_here(run, read_info(run).id):
            block += with_length(entry_bytes(seen))
            if len(block) >= _BLOCK:
                put(with_length(block))
                block.clear()
    except (BenchError, OverflowError):  # told by the process that reads on
        ended = READ_ON
    if block:
        put(with_length(block))
    put(ending(ended))


if __name__ == "__main__":
    main()
