"""Who reads the journals of a report and draws its plots: this process, or with it a second one.

Decoding a journal takes as long as measuring what stands in it, and plots as long as tables. Where a journal
is long enough to be worth it, a second process (`second.py`) reads it ahead of this one, loads matplotlib, is
sent the content, and draws while this one makes tables of it. Whatever goes wrong there is told, and is then
done here: the report is the same, only later.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, NamedTuple

import msgspec

from bench.journal import journal_bytes
from bench.masking import hide, worth_hiding
from bench.report.escape import visible
from bench.report.handed import HEAD, READ_ON, entries_of, length_of
from bench.report.painter import Draw, Plot, content_bytes, draw_here, plots_of
from bench.report.reading import Read, Seen, read_here

if TYPE_CHECKING:
    from bench.report.content import Content

LONG = 32_000_000
"""Bytes of journals from which a second process saves more than it costs."""

LAST_WORDS = 4_096
"""Bytes that are looked at of what a process wrote on its standard error."""

_PIPE = 1 << 20
"""Bytes on their way between the processes, where the system lets that be chosen."""


class Help(NamedTuple):
    """Who reads the journals of a report and draws its plots."""

    read: Read
    draw: Draw


ALONE = Help(read_here, draw_here)

Say = Callable[[str], None]
"""Takes a sentence for the user."""


@contextlib.contextmanager
def helped(runs: Sequence[Path], say: Say, *, plots: bool = True) -> Iterator[Help]:
    """Help for a report on these run directories, read in this order, while the context lasts.

    Where a second process was to help and did not, `say` is told why. `plots`: whether any will be drawn.
    """
    if sum(map(journal_bytes, runs)) < LONG or _cores() < 2:
        yield ALONE
        return
    with contextlib.ExitStack() as kept:
        second = _started(kept, runs, say, plots)
        yield ALONE if second is None else Help(second.read, second.draw)


def _started(kept: contextlib.ExitStack, runs: Sequence[Path], say: Say, plots: bool) -> _Second | None:
    """A second process, until `kept` is closed; `None`, and why is said, where it cannot be started."""
    # -P: never a module that happens to lie in the current folder
    command = [sys.executable, "-P", "-m", "bench.report.second", "plots" if plots else "", *map(str, runs)]
    try:
        said = kept.enter_context(tempfile.TemporaryFile())  # noqa: SIM115 - `kept` closes it
        process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said, pipesize=_PIPE
        )
    except OSError as error:  # no room for a file or a process, or an interpreter without a file
        say(_sentence(f"could not be started: {error.strerror}"))
        return None
    second = _Second(process, runs, said, say)
    kept.callback(second.end)
    return second


class _Second:
    """A second process that reads and draws, and the file that it complains into."""

    def __init__(
        self, process: subprocess.Popen[bytes], runs: Sequence[Path], said: IO[bytes], say: Say
    ) -> None:
        self._process = process
        self._left = list(runs)
        self._said = said
        self._say = say
        self._gone = False

    def read(self, path: Path, source: str) -> Iterator[Seen]:
        """What it reads, and what it does not, read here."""
        if self._gone or self._left[:1] != [path]:
            return read_here(path, source)
        self._left.pop(0)
        return self._read(path, source)

    def _read(self, path: Path, source: str) -> Iterator[Seen]:
        taken = 0
        while isinstance(block := self._block(), memoryview):
            for seen in entries_of(block):
                yield seen
                taken += 1
        if block == READ_ON:
            yield from islice(read_here(path, source), taken, None)

    def _block(self) -> memoryview | int:
        """The next entries, or how the reading ended."""
        pipe = _there(self._process.stdout)
        head = pipe.read(HEAD)
        if len(head) == HEAD:
            length = length_of(head)
            if length <= 0:
                return length
            block = pipe.read(length)
            if len(block) == length:
                return memoryview(block)
        self._gone = True
        self._say(_sentence(_ending(self._process.wait()) + self._last_words()))
        return READ_ON

    def draw(self, content: Content) -> Iterable[Plot]:
        """Has it draw; its plots are waited for when they are looked at."""
        if self._gone or self._left:  # it ended, or waits for somebody to take what it has read
            return draw_here(content)
        try:
            sent = content_bytes(content)
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
            return plots_of(data)
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
    """Why a second process was no help: in a line, without anything of the environment."""
    hidden = visible(hide(why, worth_hiding(os.environ.values())), 300)
    return f"the second process, which was to help, {hidden}; done by this one, later but the same"


class _Awaited:
    """Plots that a process is drawing; whoever looks at them first waits for it."""

    def __init__(self, result: Callable[[], list[Plot]]) -> None:
        self._result = result

    def __iter__(self) -> Iterator[Plot]:
        yield from self._plots

    @cached_property
    def _plots(self) -> list[Plot]:
        return self._result()


def _there(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe is not None  # noqa: S101 - pipes were asked for
    return pipe


def _cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
