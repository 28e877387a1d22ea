"""Starts a second process where it is worth it, and does what that one does not."""

from __future__ import annotations

import contextlib
import fcntl
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

from bench.journal import journal_bytes
from bench.masking import hide, worth_hiding
from bench.report.entries import Read, Seen, read_here
from bench.report.escape import visible
from bench.report.plot import Draw, Plot, draw_here
from bench.report.second.wire import (
    HEAD,
    READ_ON,
    WireError,
    content_bytes,
    entries_of,
    length_of,
    plots_of,
)

if TYPE_CHECKING:
    from bench.report.content import Content

LONG = 32_000_000
"""Bytes of journals from which a second process saves more than it costs, where there are plots to draw."""
LONG_TO_READ = 100_000_000
"""The same where there are none."""
LAST_WORDS = 4_096
"""Bytes that are looked at of what a process wrote on its standard error."""
_PIPE = 1 << 20
"""Bytes that wait between the processes, where the system lets that be chosen."""
_PATIENCE_S = 5.0
"""How long a process may take to end that says no more."""
_PROGRAM = """\
import sys
sys.path.insert(0, sys.argv.pop(1))
import bench
del sys.path[0]
from bench.report.second.__main__ import main
main()
"""
"""Runs the code of this very process, which need not be that of an installed release."""


class Hands(NamedTuple):
    """Who reads the journals of a report and draws its plots."""

    read: Read
    draw: Draw


ALONE = Hands(read_here, draw_here)

Say = Callable[[str], None]
"""Takes a sentence for the user."""


@contextlib.contextmanager
def second_process(runs: Sequence[Path], say: Say, *, plots: bool = True) -> Iterator[Hands]:
    """The hands for a report on these run directories, read in this order, while the context lasts.

    Where a second process was to help and failed, `say` is told why. What it only hands back (a journal that
    is damaged, another run than the next one) is done here without a word. `plots`: whether any will be
    drawn.
    """
    least = LONG if plots else LONG_TO_READ
    if sum(map(journal_bytes, runs)) < least or _cores() < 2:
        yield ALONE
        return
    with contextlib.ExitStack() as kept:
        second = _started(kept, runs, say, plots)
        yield ALONE if second is None else Hands(second.read, second.draw)


def _started(kept: contextlib.ExitStack, runs: Sequence[Path], say: Say, plots: bool) -> _Second | None:
    """A second process, until `kept` is closed; `None`, and why is said, where it cannot be started."""
    root = str(Path(__file__).resolve().parents[3])
    # -P: never a module that happens to lie in the current folder
    command = [sys.executable, "-P", "-c", _PROGRAM, root, "plots" if plots else "", *map(str, runs)]
    try:
        said = kept.enter_context(tempfile.TemporaryFile())  # noqa: SIM115 - `kept` closes it
        process = subprocess.Popen(  # noqa: S603 - our own interpreter and program
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said
        )
    except OSError as error:  # no room for a file or a process, or an interpreter without a file
        say(_sentence(f"could not be started: {error.strerror}"))
        return None
    second = _Second(process, runs, said, say)
    kept.callback(second.end)
    return second


class _Second:
    """A second process, and the file that it complains into."""

    def __init__(
        self, process: subprocess.Popen[bytes], runs: Sequence[Path], said: IO[bytes], say: Say
    ) -> None:
        self._process = process
        self._left = list(runs)
        self._said = said
        self._say = say
        self._gone = False
        with contextlib.suppress(OSError):  # a user may have only so many long pipes
            if hasattr(fcntl, "F_SETPIPE_SZ"):
                fcntl.fcntl(_there(process.stdout), fcntl.F_SETPIPE_SZ, _PIPE)

    def read(self, path: Path) -> Iterator[Seen]:
        """What it reads, and what it does not, read here."""
        if self._gone or self._left[:1] != [path]:
            return read_here(path)
        self._left.pop(0)
        return self._read(path)

    def _read(self, path: Path) -> Iterator[Seen]:
        taken = 0
        while isinstance(block := self._block(), list):
            yield from block
            taken += len(block)
        if block == READ_ON:
            yield from islice(read_here(path), taken, None)

    def _block(self) -> list[Seen] | int:
        """The next entries, or how the reading ended."""
        pipe = _there(self._process.stdout)
        try:
            head = pipe.read(HEAD)
            if len(head) == HEAD:
                length = length_of(head)
                if length <= 0:
                    return length
                data = pipe.read(length)
                if len(data) == length:
                    return entries_of(data)
            self._lose()
        except WireError as error:
            self._lose(f"handed over {error}")
        return READ_ON

    def _lose(self, why: str = "") -> None:
        """It is not listened to any more."""
        self._gone = True
        if why:
            self._process.kill()
        self._say(_sentence((why or _ending(self._wait())) + self._last_words()))

    def _wait(self) -> int:
        """Its exit code, now that it says no more."""
        try:
            return self._process.wait(_PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()

    def draw(self, content: Content) -> Iterable[Plot]:
        """Has it draw; its plots are waited for when they are looked at."""
        if self._gone or self._left:  # it ended, or waits for somebody to take what it has read
            return draw_here(content)
        try:
            sent = content_bytes(content)
        except (UnicodeEncodeError, OverflowError):
            why = "cannot be sent a name that is no text, or a number of more than 64 bits"
            return self._made_up_for(content, why)
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
        code = self._wait()
        if code:
            return self._made_up_for(content, _ending(code) + self._last_words())
        try:
            return plots_of(data)
        except WireError as error:
            return self._made_up_for(content, f"handed over {error}" + self._last_words())

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
