"""Who draws the plots of a report: this process or, beside a long journal, a second one.

Loading matplotlib and drawing take some three seconds, whatever a run holds. Where reading takes as long, a
second process loads meanwhile, is sent the content, and draws while this one makes tables of it. Whatever
goes wrong there is told, and plots are then drawn here: they are the same bytes, only later.
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import msgspec
import numpy as np
from msgspec import Struct, structs

from bench.journal import journal_bytes
from bench.masking import hide, worth_hiding
from bench.report.escape import visible
from bench.report.gaps import GapCounts
from bench.report.shown import shown_exchange, shown_wave

if TYPE_CHECKING:
    from bench.report.content import Content

LONG = 32_000_000
"""Bytes of journals from which a second process saves more than it costs."""

LAST_WORDS = 4_096
"""Bytes that are looked at of what a process wrote on its standard error."""


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


Say = Callable[[str], None]
"""Takes a sentence for the user."""


@contextlib.contextmanager
def painting(runs: Sequence[Path], say: Say) -> Iterator[Draw]:
    """How to draw a report on these run directories while the context lasts; entered before they are read.

    Where a second process was to draw and did not, `say` is told why.
    """
    if sum(map(journal_bytes, runs)) < LONG or _cores() < 2:
        yield draw_here
        return
    with contextlib.ExitStack() as kept:
        second = _started(kept, say)
        yield draw_here if second is None else second.draw


def _started(kept: contextlib.ExitStack, say: Say) -> _Second | None:
    """A second process, until `kept` is closed; `None`, and why is said, where it cannot be started."""
    # -P: never a module that happens to lie in the current folder
    command = [sys.executable, "-P", "-m", "bench.report.painter"]
    try:
        said = kept.enter_context(tempfile.TemporaryFile())  # noqa: SIM115 - `kept` closes it
        process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said
        )
    except OSError as error:  # no room for a file or a process, or an interpreter without a file
        say(_sentence(f"could not be started: {error.strerror}"))
        return None
    second = _Second(process, said, say)
    kept.callback(second.end)
    return second


class _Second:
    """A second process that draws, and the file that it complains into."""

    def __init__(self, process: subprocess.Popen[bytes], said: IO[bytes], say: Say) -> None:
        self._process = process
        self._said = said
        self._say = say

    def draw(self, content: Content) -> Iterable[Plot]:
        """Has it draw; its plots are waited for when they are looked at."""
        alone = shown_exchange(content)
        shown = [*([] if alone is None else [alone]), *shown_wave(content)]
        # of all other exchanges, measurements are drawn
        drawn = structs.replace(content, details=tuple(shown))
        try:
            sent = msgspec.msgpack.encode(drawn, enc_hook=_encoded)
        except UnicodeEncodeError:
            return self._made_up_for(content, "cannot be sent a name that is no text")
        with contextlib.suppress(BrokenPipeError):  # it has died: how is told when its plots are asked for
            stdin = _there(self._process.stdin)
            stdin.write(sent)
            stdin.close()
        return _Awaited(partial(self._result, content))

    def end(self) -> None:
        """Nothing is left of it afterwards."""
        self._process.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(BrokenPipeError):
                _there(pipe).close()
        self._process.wait()

    def _result(self, content: Content) -> list[Plot]:
        data = _there(self._process.stdout).read()
        code = self._process.wait()
        if code:
            return self._made_up_for(content, _ending(code) + self._last_words())
        try:
            return msgspec.msgpack.decode(data, type=list[Plot])
        except msgspec.DecodeError as error:
            return self._made_up_for(content, f"gave no plots ({error})" + self._last_words())

    def _made_up_for(self, content: Content, why: str) -> list[Plot]:
        self._say(_sentence(why))
        return draw_here(content)

    def _last_words(self) -> str:
        """The end of what it wrote on its standard error; of a Python process that names the exception."""
        size = self._said.seek(0, os.SEEK_END)
        self._said.seek(max(0, size - LAST_WORDS))
        lines = self._said.read(LAST_WORDS).decode(errors="replace").split("\n")
        last = next((line for line in reversed(lines) if line.strip()), "")
        return f": {last}" if last else ""


def _ending(code: int) -> str:
    """How a process ended, by its exit code: below 0 by that signal."""
    known = {int(one): one.name for one in signal.Signals}
    return f"ended by {known.get(-code, f'signal {-code}')}" if code < 0 else f"ended with exit code {code}"


def _sentence(why: str) -> str:
    """Why plots are not those of a second process: in a line, without anything of the environment."""
    hidden = visible(hide(why, worth_hiding(os.environ.values())), 300)
    return f"the second process, which was to draw them, {hidden}; drawn by this one, later but the same"


class _Awaited:
    """Plots that a process is drawing; whoever looks at them first waits for it."""

    def __init__(self, result: Callable[[], list[Plot]]) -> None:
        self._result = result

    def __iter__(self) -> Iterator[Plot]:
        return iter(self._plots)

    @cached_property
    def _plots(self) -> list[Plot]:
        return self._result()


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
