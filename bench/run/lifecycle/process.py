"""A server's process and everything it starts: begun in a group of its own, and ended with it.

Should this program be killed before it can stop anything, a guard (a few lines of shell that wait for
the end of a pipe) ends the group in its place.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import IO

import msgspec
from msgspec import Struct

from bench.errors import EngineError
from bench.masking import hide
from bench.plan.hooks import Command, shown
from bench.wire.logs import EXCERPT_BYTES, Excerpt, LogTail

GRACE_S = 30.0
"""From the signal TERM to KILL: a large server needs a while to let go of its GPUs."""
DOWN_LIMIT_S = 120.0
_LOOK_S = 0.05
_PROC = Path("/proc")
_LAST_LINES = 5
_LINE_CHARACTERS = 300
_TAIL_BYTES = 16 * 1024
_GUARD = (
    'read -r _; kill -s TERM -- "-$1" || exit 0; n=0; '
    'while [ $n -lt "$2" ] && kill -s 0 -- "-$1"; do sleep 1; n=$((n + 1)); done; kill -s KILL -- "-$1"'
)


class Surroundings(Struct, frozen=True, kw_only=True):
    """Where the commands of one route run."""

    cwd: Path
    env: dict[str, str]
    """Variables beside our own, with their values: never shown, never recorded."""
    secrets: tuple[str, ...] = ()
    """Texts that must not be in any excerpt, out of `worth_hiding`."""


class ServerProcess:
    """One start of a server. `stop()` may be called at any time, and more than once."""

    def __init__(self, command: Command, where: Surroundings) -> None:
        """Starts the command at once; raises `EngineError` when it cannot be started."""
        self._where = where
        # Without a name: it takes no room once the server is gone, and no secret in it outlives that.
        self._output: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed by stop()
        self._mark = 0
        self._stopped = False
        try:
            self._process = self._spawn(command)
        except BaseException:
            self._output.close()
            raise
        self.pid = self._process.pid
        self._guard = _guard(self.pid)

    def _spawn(self, command: Command) -> subprocess.Popen[bytes]:
        argv = ["/bin/sh", "-c", command] if isinstance(command, str) else list(command)
        try:
            return subprocess.Popen(  # noqa: S603 - the user's own suite says so; it was shown before
                argv,
                stdin=subprocess.DEVNULL,
                stdout=self._output,
                stderr=subprocess.STDOUT,
                cwd=self._where.cwd,
                env={**os.environ, **self._where.env},
                start_new_session=True,  # Ctrl-C in the terminal is for us; we stop it in order
            )
        except OSError as error:
            raise EngineError(f"{shown(command)}: cannot be started: {error.strerror}") from error

    def exit_code(self) -> int | None:
        """Of the command itself; `None` while it runs. Negative: the signal that ended it."""
        return self._process.poll()

    def mark(self) -> None:
        """Remember where the output ends now."""
        self._mark = _size(self._output)

    def excerpt(self, limit: int = EXCERPT_BYTES) -> Excerpt:
        """What was written since `mark()`: its first and its last half of `limit` bytes."""
        descriptor, end = self._output.fileno(), _size(self._output)
        start = min(self._mark, end)
        if end - start <= limit:
            return Excerpt(data=self._clean(os.pread(descriptor, end - start, start)))
        half = limit // 2
        data = os.pread(descriptor, half, start) + os.pread(descriptor, half, end - half)
        return Excerpt(data=self._clean(data), omitted=end - start - 2 * half)

    def last_lines(self) -> str:
        """The last lines of the output in one line, `: ...`; empty when there is none."""
        end = _size(self._output)
        data = self._clean(os.pread(self._output.fileno(), _TAIL_BYTES, max(0, end - _TAIL_BYTES)))
        lines = [line.strip() for line in data.decode("utf-8", "replace").splitlines() if line.strip()]
        kept = [line[:_LINE_CHARACTERS] for line in lines[-_LAST_LINES:]]
        return f": {' | '.join(kept)}" if kept else ""

    def _clean(self, data: bytes) -> bytes:
        return hide(data, self._where.secrets)

    async def ended_within(self, limit_s: float) -> bool:
        """Whether the command ends within that time: a connection breaks before its process is gone."""
        end = time.monotonic() + limit_s
        while self.exit_code() is None:
            if time.monotonic() >= end:
                return False
            await asyncio.sleep(_LOOK_S)
        return True

    async def stop(self, down: Command | None = None, *, grace_s: float = GRACE_S) -> str | None:
        """Runs `down`, then ends all that is left of the group. What went wrong with `down`, or `None`.

        Cancelled or interrupted on the way, it kills the group before it passes that on.
        """
        problem = None
        if self._stopped:
            return problem  # its number may belong to somebody else by now
        try:
            if down is not None:
                problem = await self._run_down(down)
                await self._gone_within(grace_s if problem is None else 0.0)
            if _signal_group(self.pid, signal.SIGTERM):
                await self._gone_within(grace_s)
        finally:
            self._finish()
        return problem

    async def _run_down(self, down: Command) -> str | None:
        try:
            process = self._spawn(down)
        except EngineError as error:
            return str(error)
        end = time.monotonic() + DOWN_LIMIT_S
        try:
            while (code := process.poll()) is None:
                if time.monotonic() >= end:
                    return f"{shown(down)}: still running after {DOWN_LIMIT_S:.0f} s"
                await asyncio.sleep(_LOOK_S)
        finally:
            _signal_group(process.pid, signal.SIGKILL)
            process.wait()
        return f"{shown(down)}: exit code {code}{self.last_lines()}" if code else None

    async def _gone_within(self, limit_s: float) -> None:
        end = time.monotonic() + limit_s
        while self._process.poll() is None or _group_lives(self.pid):
            if time.monotonic() >= end:
                return
            await asyncio.sleep(_LOOK_S)

    def _finish(self) -> None:
        """Without waiting for anything but the system: also runs when we are being torn down."""
        self._stopped = True
        _signal_group(self.pid, signal.SIGKILL)
        self._process.wait()
        self._guard.kill()
        self._guard.communicate()
        self._output.close()


def _guard(group: int) -> subprocess.Popen[bytes]:
    """Ends a process group as soon as this program ends, however it ends."""
    return subprocess.Popen(  # noqa: S603 - fixed text
        ["/bin/sh", "-c", _GUARD, "ctxbench-guard", str(group), str(round(GRACE_S))],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def _signal_group(group: int, number: int) -> bool:
    """Whether there was anybody to signal."""
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return False
    except PermissionError:  # only remains that their parent has not collected yet (macOS)
        return False
    return True


def _group_lives(group: int) -> bool:
    """Whether anything of the group still runs; what only waits to be collected does not."""
    if not _signal_group(group, 0):
        return False
    if not _PROC.is_dir():
        return True
    return any(_stat(path)[2:3] == [str(group)] for path in _PROC.glob("[0-9]*/stat"))


def _stat(path: Path) -> list[str]:
    """A process's state, parent, group ... as Linux lists them; empty when it is no longer there."""
    try:
        fields = path.read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
    except OSError:
        return []
    return [] if fields[:1] in (["Z"], ["X"]) else fields


def _size(file: IO[bytes]) -> int:
    return os.fstat(file.fileno()).st_size


class SecretFree:
    """A log without the secrets of its server."""

    def __init__(self, tail: LogTail, secrets: tuple[str, ...]) -> None:
        self._tail, self._secrets = tail, secrets

    def mark(self) -> None:
        self._tail.mark()

    def excerpt(self, limit: int = EXCERPT_BYTES) -> Excerpt:
        found = self._tail.excerpt(limit)
        return msgspec.structs.replace(found, data=hide(found.data, self._secrets))


class Identity(Struct, frozen=True, kw_only=True):
    """A process, told apart from a later one of the same number."""

    pid: int
    started: str
    """As the system says it; equal only for the same process."""
    boot: str = ""


def identity(pid: int) -> Identity | None:
    """Of a running process; `None` when there is none, or it cannot be told."""
    if _PROC.is_dir():
        fields = _stat(_PROC / str(pid) / "stat")
        boot = (_PROC / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return Identity(pid=pid, started=fields[19], boot=boot) if fields else None
    result = subprocess.run(  # noqa: S603 - fixed words and a number
        ["ps", "-o", "lstart=", "-p", str(pid)],  # noqa: S607 - wherever the system has it
        capture_output=True,
        text=True,
        check=False,
    )
    return Identity(pid=pid, started=result.stdout.strip()) if result.stdout.strip() else None
