"""Who draws the plots of a report: this process or, beside a long journal, a second one.

Loading matplotlib and drawing take some three seconds, whatever a run holds. Where reading takes as long, a
second process loads meanwhile, is sent the content, and draws while this one makes tables of it. Whatever
goes wrong there, plots are then drawn here: they are the same bytes, only later.
"""

from __future__ import annotations

import contextlib
import gc
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import msgspec
import numpy as np
from msgspec import Struct, structs

from bench.journal import journal_bytes
from bench.report.gaps import GapCounts
from bench.report.shown import shown_exchange, shown_wave

if TYPE_CHECKING:
    from bench.report.content import Content

LONG = 32_000_000
"""Bytes of journals from which a second process saves more than it costs."""


class Plot(Struct, frozen=True, kw_only=True):
    """A plot in both formats."""

    name: str
    """File name without its ending."""
    title: str
    caption: str
    """How to read it, in a sentence."""
    png: bytes
    svg: str


Draw = Callable[["Content"], Iterable[Plot]]
"""Gives the plots of a content, maybe only when they are looked at."""


def draw_here(content: Content) -> list[Plot]:
    """All plots of a content, drawn by this process."""
    from bench.report.plots import draw

    return draw(content)


@contextlib.contextmanager
def painting(runs: Sequence[Path]) -> Iterator[Draw]:
    """How to draw a report on these run directories while the context lasts; entered before they are read."""
    long = sum(map(journal_bytes, runs)) >= LONG
    process = _started() if long and _cores() > 1 else None
    if process is None:
        yield draw_here
        return
    try:
        yield lambda content: _sent(content, process)
    finally:
        process.kill()
        for pipe in (process.stdin, process.stdout):
            with contextlib.suppress(BrokenPipeError):
                _there(pipe).close()
        process.wait()


def _started() -> subprocess.Popen[bytes] | None:
    # -P: never a module that happens to lie in the current folder
    command = [sys.executable, "-P", "-m", "bench.report.painter"]
    try:
        return subprocess.Popen(  # noqa: S603 - our own interpreter and module
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
    except OSError:  # no room for another process, or an interpreter without a file
        return None


def _sent(content: Content, process: subprocess.Popen[bytes]) -> Iterable[Plot]:
    stdin, alone = _there(process.stdin), shown_exchange(content)
    shown = [*([] if alone is None else [alone]), *shown_wave(content)]
    drawn = structs.replace(content, details=tuple(shown))  # of all other exchanges, measurements are drawn
    try:
        stdin.write(msgspec.msgpack.encode(drawn, enc_hook=_encoded))
        stdin.close()
    except (BrokenPipeError, UnicodeEncodeError):  # it has died, or the name of a folder is no text
        return draw_here(content)
    return _Awaited(content, process)


class _Awaited:
    """Plots that a process is drawing; whoever looks at them first waits for it."""

    def __init__(self, content: Content, process: subprocess.Popen[bytes]) -> None:
        self._content = content
        self._process = process

    def __iter__(self) -> Iterator[Plot]:
        return iter(self._plots)

    @cached_property
    def _plots(self) -> list[Plot]:
        data = _there(self._process.stdout).read()
        if self._process.wait():
            return draw_here(self._content)
        return msgspec.msgpack.decode(data, type=list[Plot])


def _there(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe is not None  # noqa: S101 - pipes were asked for
    return pipe


def _cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _encoded(one: Any) -> Any:
    """The part of a content that is no record."""
    if isinstance(one, GapCounts):
        return one.total, one.below.tolist()
    raise NotImplementedError(type(one))


def _decoded(_: type, parts: Any) -> GapCounts:
    total, below = parts
    return GapCounts(total, np.array(below, dtype=np.int64))


def main() -> None:
    """Draws the content that comes in on standard input; its plots go to standard output."""
    from bench.report.content import Content
    from bench.report.plots import draw  # takes a while: the journal is still being read

    gc.disable()  # what it reads it keeps
    content = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=Content, dec_hook=_decoded)
    sys.stdout.buffer.write(msgspec.msgpack.encode(draw(content)))


if __name__ == "__main__":
    main()
