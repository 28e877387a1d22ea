"""The life of a route's server: started, waited for, watched, started again, and stopped."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from bench.address import server_at
from bench.errors import EngineError, JournalError, SuiteError
from bench.journal import write_atomically
from bench.masking import worth_hiding
from bench.plan.hooks import shown
from bench.records import FromEnv, Route, RouteServer, Suite
from bench.run.lifecycle.process import Identity, SecretFree, ServerProcess, Surroundings, identity
from bench.run.lifecycle.serverlog import Tail, log_source
from bench.run.openroute import names_in, shown_names
from bench.wire.client import Client
from bench.wire.failures import StatusError
from bench.wire.logs import LogTail, parse_source

SERVERS = "servers.json"
"""File of a run directory that names the servers it has running at the moment."""

_OWN_PROGRAMS = str(Path(sys.executable).parent)
_FIRST_LOOK_S, _LONGEST_LOOK_S = 0.1, 2.0
_PROBE_S = 5.0
_OTHER_MODEL_S = 10.0  # a server may list an adapter before its model
_FALL_S = 2.0
_FREE_S = 30.0
_RUNS_LOOKED_THROUGH = 200

Say = Callable[[str], None]


class Kept(Struct, frozen=True, kw_only=True):
    """One running server in `servers.json`."""

    route: str
    base_url: str
    command: str
    since: str
    """Wall clock, ISO 8601, UTC."""
    process: Identity


def surroundings(route: Route, folder: Path) -> Surroundings:
    """Folder and variables of a route's commands. `folder`: where relative paths start.

    Raises `SuiteError` when a variable is not set, or folder or program are not there.
    """
    server = route.server
    assert server is not None  # noqa: S101 - callers ask before
    where = f"route {route.name}: [route.server]"
    env: dict[str, str] = {}
    for name, value in server.env.items():
        if isinstance(value, FromEnv):
            found = os.environ.get(value.from_env)
            if found is None:
                raise SuiteError(
                    f"{where} env: the environment variable {value.from_env} is not set; set it"
                    " (or, on --resume, give the suite file again)"
                )
            env[name] = found
        else:
            env[name] = str(value)
    named = [value.from_env for value in (*route.headers.values(), route.proxy) if isinstance(value, FromEnv)]
    sent = [os.environ.get(name) for name in (*named, route.api_key_env or "")]
    secrets = worth_hiding((*env.values(), *sent))
    # Last on the path: the programs that are installed beside this one, ctxbench itself above all.
    env["PATH"] = os.pathsep.join((env.get("PATH") or os.environ.get("PATH", os.defpath), _OWN_PROGRAMS))
    cwd = (folder / (server.cwd or ".")).resolve()
    if not cwd.is_dir():
        raise SuiteError(f"{where} cwd: there is no folder {cwd}")
    for command in (server.up, server.down):
        if isinstance(command, tuple) and not _program(command[0], cwd, env):
            raise SuiteError(f"{where}: there is no program {command[0]!r}")
    return Surroundings(cwd=cwd, env=env, secrets=secrets)


def _program(name: str, cwd: Path, env: dict[str, str]) -> bool:
    if os.sep in name:
        return (cwd / name).is_file()
    return shutil.which(name, path=env["PATH"]) is not None


def check_servers(suite: Suite, folder: Path) -> None:
    """Refuses what would only be found out when a route's turn comes, perhaps at three in the morning."""
    for route in suite.routes:
        if route.server is not None:
            surroundings(route, folder)


class Server:
    """The server of one route. Not up before `start()`, nothing left of it after `stop()`."""

    def __init__(self, route: Route, folder: Path, register: Register, say: Say) -> None:
        assert route.server is not None  # noqa: S101 - callers ask before
        self.route = route
        self._table: RouteServer = route.server
        self._where = surroundings(route, folder)
        self._folder = folder
        self._register = register
        self._say = say
        self._process: ServerProcess | None = None
        self.starts = 0

    async def start(self, client: Client) -> float:
        """Runs `up` and waits until the model is listed; seconds that took.

        Raises `EngineError` with the server's last words when it ends or stays silent, and without
        having started anything when its address is taken or an earlier server of this run lives.
        """
        name = self.route.name
        waited = await self._register.refuse_stale(name, self._say)
        # A killed process is gone before the last of its threads, and only with that its address is free.
        if not await self._is_free_within(_FREE_S if waited else _FALL_S):
            raise EngineError(self._register.taken(self.route))
        self._say(f"route {name}: starting its server: {shown(self._table.up)}")
        started = time.monotonic()
        self._process = ServerProcess(self._table.up, self._where)
        self.starts += 1
        try:
            self._register.add(self.route, self._process.pid, shown(self._table.up))
            await self._until_ready(client)
        except BaseException:
            await self.stop()
            raise
        took = time.monotonic() - started
        self._say(f"route {name}: serving after {took:.0f} s")
        return took

    async def stop(self) -> None:
        """Stops it, however far its start had come, and waits until its address is free."""
        process, self._process = self._process, None
        if process is None:
            return
        try:
            problem = await process.stop(self._table.down)
            if problem:
                self._say(f"route {self.route.name}: {problem}")
            await self._until_free()
        finally:
            with contextlib.suppress(JournalError):  # the record is only for a run that ends badly
                self._register.remove(self.route.name)

    def log(self) -> Tail:
        """Where the running server's log is read: the source the suite names, else its own output.

        Raises `SuiteError` for a source that is none.
        """
        process, text = self._process, self._table.log or self.route.log
        assert process is not None  # noqa: S101 - asked while it is up
        if text is None:
            return process
        tail = LogTail(parse_source(log_source(text, self._folder)))
        return SecretFree(tail, self._where.secrets)

    async def fallen(self, *, refused: bool) -> str | None:
        """How the server has ended by itself, asked after a request failed; `None`: it has not."""
        process = self._process
        if process is None or not await process.ended_within(_FALL_S):
            return None
        code = process.exit_code() or 0
        if not self._elsewhere(code):
            return _ended(code)
        gone = refused and not await _answers(self.route.base_url)
        return "refuses connections" if gone else None

    def may_restart(self) -> bool:
        """Whether the suite allows one more start in this session."""
        return self.starts <= self._table.restart

    def _elsewhere(self, code: int | None) -> bool:
        """`up` has ended well and the server runs elsewhere: a container, a unit."""
        return code == 0 and self._table.down is not None

    async def _until_ready(self, client: Client) -> None:
        process = self._process
        assert process is not None  # noqa: S101 - just started
        where, limit_s = f"route {self.route.name}: its server", self._table.ready_timeout_s
        end, pause = time.monotonic() + limit_s, _FIRST_LOOK_S
        other_model_since: float | None = None
        last = "nothing answers"
        while True:
            code = process.exit_code()
            if code is not None and not self._elsewhere(code):
                hint = "; a command that starts it elsewhere needs down" if code == 0 else ""
                raise EngineError(f"{where} {_ended(code)} before it was ready{hint}{process.last_lines()}")
            try:
                names = names_in(await client.get_json("/models", timeout_s=_PROBE_S))
                if names and (self.route.model is None or self.route.model in names):
                    return
                last = f"it serves {shown_names(names) or 'no model'}, not {self.route.model or 'any'}"
                other_model_since = other_model_since or time.monotonic()
            except StatusError as error:
                if error.status in (401, 403):
                    raise  # it is there, and waiting longer gives no other key
                last = str(error)
            except EngineError as error:
                last = str(error)
            now = time.monotonic()
            if now >= end or (other_model_since and now - other_model_since >= _OTHER_MODEL_S):
                raise EngineError(f"{where} was not ready in {limit_s:g} s ({last}){process.last_lines()}")
            await asyncio.sleep(pause)
            pause = min(_LONGEST_LOOK_S, pause * 1.5)

    async def _until_free(self) -> None:
        if not await self._is_free_within(_FREE_S):
            self._say(f"route {self.route.name}: {self.route.base_url} still answers after its server's end")

    async def _is_free_within(self, limit_s: float) -> bool:
        """Whether nobody answers at the address by then."""
        end = time.monotonic() + limit_s
        while await _answers(self.route.base_url):
            if time.monotonic() >= end:
                return False
            await asyncio.sleep(_FIRST_LOOK_S)
        return True


class Register:
    """Which servers of ours are running, kept in the run directory for a run that cannot stop them."""

    def __init__(self, results: Path) -> None:
        self._results = results
        self._path: Path | None = None
        self._kept: dict[str, Kept] = {}
        self._stale: dict[str, Kept] = {}

    def keep_in(self, run: Path) -> None:
        """From now on in this directory; what an earlier session left there is remembered."""
        self._path, self._results = run, run.parent
        self._stale = {kept.route: kept for kept in _read(run) if _lives(kept)}
        self._write()

    def add(self, route: Route, pid: int, command: str) -> None:
        process = identity(pid)
        if process is None:
            return  # it has ended already; the wait for it will say so
        self._kept[route.name] = Kept(
            route=route.name,
            base_url=route.base_url,
            command=command,
            since=datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
            process=process,
        )
        self._write()

    def remove(self, route: str) -> None:
        self._kept.pop(route, None)
        self._write()

    async def refuse_stale(self, route: str, say: Say) -> bool:
        """Waits a moment for servers of an earlier session to end; raises `EngineError` when they live on.

        Whether that session has left any.
        """
        left = bool(self._stale)
        end = time.monotonic() + _FREE_S + _FALL_S
        for kept in self._stale.values():
            if _lives(kept):
                say(f"route {route}: waits for the end of the server of an earlier session, {_who(kept)}")
            while _lives(kept):
                if time.monotonic() >= end:
                    raise EngineError(
                        f"route {route}: a server of an earlier session still runs: {_who(kept)}; "
                        f"look at it, then stop it: kill -- -{kept.process.pid}"
                    )
                await asyncio.sleep(_FIRST_LOOK_S)
        self._stale = {}
        self._write()
        return left

    def taken(self, route: Route) -> str:
        """Why a route's address cannot be used, and whose server is there if a run's record tells."""
        text = f"route {route.name}: something answers at {route.base_url} already, so no server was started"
        for kept in _known(self._results):
            if server_at(kept.base_url) == server_at(route.base_url) and _lives(kept):
                return (
                    f"{text}: a run left {_who(kept)}; look at it, then stop it: kill -- -{kept.process.pid}"
                )
        return f"{text}; stop it, or leave [route.server] out to measure it as it is"

    def _write(self) -> None:
        if self._path is None:
            return
        file, kept = self._path / SERVERS, [*self._stale.values(), *self._kept.values()]
        if kept:
            write_atomically(file, msgspec.json.format(msgspec.json.encode(kept), indent=1) + b"\n")
        else:
            file.unlink(missing_ok=True)


def _who(kept: Kept) -> str:
    return f"process {kept.process.pid} of route {kept.route}, started {kept.since} ({kept.command[:200]})"


def _lives(kept: Kept) -> bool:
    return identity(kept.process.pid) == kept.process


def _read(run: Path) -> list[Kept]:
    try:
        return msgspec.json.decode((run / SERVERS).read_bytes(), type=list[Kept])
    except (OSError, msgspec.DecodeError):
        return []  # none, or damaged: then nothing is known of any server


def _known(results: Path) -> Iterator[Kept]:
    """Servers in the records of the latest runs."""
    try:
        runs = sorted((path for path in results.iterdir() if path.is_dir()), reverse=True)
    except OSError:
        return
    for run in runs[:_RUNS_LOOKED_THROUGH]:
        yield from _read(run)


def _ended(code: int) -> str:
    return f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"


async def _answers(base_url: str) -> bool:
    """Whether anybody takes connections at an address."""
    url = urlsplit(base_url)
    port = url.port or (443 if url.scheme == "https" else 80)
    try:
        _, writer = await asyncio.wait_for(asyncio.open_connection(url.hostname, port), _PROBE_S)
    except (OSError, UnicodeError):  # a name that no name server can be asked for is the latter
        return False
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    return True
