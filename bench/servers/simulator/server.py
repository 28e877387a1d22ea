"""Starts and stops a simulated server: in this process (a thread), or for good."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import math
import socket
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from bench.errors import EngineError, SuiteError

from .core import Core
from .faults import Faults
from .logs import ServerLog
from .profiles import Profile, load_profile
from .truth import Truth

if TYPE_CHECKING:
    from .app import Connections

_PATIENCE_S = 20.0


def start(
    profile: str | Path | Profile,
    *,
    speed: float = 1.0,
    faults: Iterable[str] = (),
    port: int = 0,
    host: str = "127.0.0.1",
    log_file: Path | None = None,
) -> Simulator:
    """A simulated server in a thread of this process, ready to be asked; also a context manager.

    `profile` is a shipped name, the path of a TOML file, or a `Profile`. `speed` divides all
    durations. `faults` are names from `faults.FAULTS`, with `@n`, `@n-m` or `@n-` behind them to
    limit them to some requests. Port 0 takes a free one. `log_file` gets vLLM's log lines.

    Raises `SuiteError` for a wrong argument (any address that is not loopback, too) and
    `EngineError` when the port is taken.
    """
    simulator = Simulator(_core(profile, speed, faults, log_file), _bind(host, port))
    simulator.run_in_thread()
    return simulator


def serve_forever(
    profile: str | Path | Profile,
    *,
    speed: float = 1.0,
    faults: Iterable[str] = (),
    port: int = 0,
    host: str = "127.0.0.1",
    log_file: Path | None = None,
) -> None:
    """As `start`, but serves in this thread until interrupted."""
    with Simulator(_core(profile, speed, faults, log_file), _bind(host, port)) as simulator:
        simulator.run()


def _core(profile: str | Path | Profile, speed: float, faults: Iterable[str], log_file: Path | None) -> Core:
    if not (math.isfinite(speed) and speed > 0):
        raise SuiteError(f"simulator speed must be a number above 0, not {speed}")
    known = profile if isinstance(profile, Profile) else load_profile(profile)
    return Core(known, speed=speed, faults=Faults(faults), log=ServerLog(log_file))


def _bind(host: str, port: int) -> socket.socket:
    """A bound socket on a loopback address; nothing else is ever accepted."""
    address = "127.0.0.1" if host == "localhost" else host
    try:
        loopback = ipaddress.ip_address(address).is_loopback
    except ValueError:
        loopback = False
    if not loopback:
        raise SuiteError(f"the simulator binds to loopback only, not to {host!r}; use 127.0.0.1")
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((address, port))
    except (OSError, OverflowError) as error:
        bound.close()
        why = getattr(error, "strerror", None) or error
        raise EngineError(
            f"cannot bind the simulator to {address} port {port}: {why}; choose another with --port"
        ) from error
    return bound


class Simulator:
    """A simulated server and its address."""

    def __init__(self, core: Core, bound: socket.socket) -> None:
        self.core = core
        self.profile = core.profile
        self._socket = bound
        host, self.port = bound.getsockname()[:2]
        self.origin = f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"
        self.base_url = f"{self.origin}/v1"
        """What a route's `base_url` is."""
        self._connections: Connections = {}
        self._thread: threading.Thread | None = None
        self._ready = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._end: asyncio.Event | None = None

    def __enter__(self) -> Simulator:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def log_lines(self) -> list[str]:
        """What the server would have written to its log."""
        return list(self.core.log.lines)

    def truth(self) -> Truth:
        """What really happened so far; the same as `GET /truth`."""
        return self.core.truth()

    def run(self) -> None:
        """Serve in this thread until interrupted or stopped."""
        if "refused" in self.core.faults:
            threading.Event().wait()  # bound, so that nobody else gets the port, but nobody listens
            return
        with contextlib.suppress(KeyboardInterrupt), asyncio.Runner(loop_factory=_fast_loop()) as runner:
            runner.run(self._serve())

    def run_in_thread(self) -> None:
        if "refused" in self.core.faults:
            return
        self._thread = threading.Thread(target=self.run, name="simulator", daemon=True)
        self._thread.start()
        if not self._ready.wait(_PATIENCE_S):
            raise EngineError(f"the simulator did not start within {_PATIENCE_S:.0f} s")

    def stop(self) -> None:
        """Stop serving; open connections are broken off. May be called twice."""
        if self._thread and self._loop and self._end and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._end.set)
            self._thread.join(_PATIENCE_S)
        self._socket.close()

    async def _serve(self) -> None:
        """Until told to end: uvicorn's HTTP protocol on our socket.

        Not `uvicorn.Server`, which wants the signal handlers, and polls for its end.
        """
        make_protocol, requests = _protocols(self.core, self._connections)
        self._loop, self._end = asyncio.get_running_loop(), asyncio.Event()
        server = await self._loop.create_server(make_protocol, sock=self._socket, backlog=1024)
        ticker = self.core.start_ticking()
        self.core.log.ready()
        self._ready.set()
        try:
            await self._end.wait()
        finally:
            server.close()
            if ticker:
                ticker.cancel()
            self.core.driver.stop()
            for connection in list(self._connections.values()):
                connection.transport.abort()
            if requests:  # each ends by itself now that its client is gone
                await asyncio.wait(requests, timeout=_PATIENCE_S)


def _fast_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop where it is installed: half the delay per chunk."""
    try:
        import uvloop
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


def _protocols(
    core: Core, connections: Connections
) -> tuple[Callable[[], asyncio.Protocol], set[asyncio.Task[None]]]:
    """A maker of HTTP connections that can be reset and timed, and the requests under way."""
    try:
        import uvicorn
        from uvicorn.protocols.http.h11_impl import H11Protocol
        from uvicorn.server import ServerState

        from .app import Connection, make_app
    except ImportError as error:
        raise EngineError("the simulator needs `pip install ctxbench[simulator]`") from error

    class Protocol(H11Protocol):
        """Remembers its transport, and when a request's first bytes came."""

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            if self.client:
                connections[self.client] = Connection(transport)

        def data_received(self, data: bytes) -> None:
            if self.client and (self.cycle is None or self.cycle.response_complete):
                connections[self.client].head_ns = time.monotonic_ns()
            super().data_received(data)

        def connection_lost(self, exc: Exception | None) -> None:
            if self.client:
                connections.pop(self.client, None)
            super().connection_lost(exc)

    app = make_app(core, connections)
    options: dict[str, Any] = {"log_config": None, "access_log": False, "ws": "none", "lifespan": "off"}
    config = uvicorn.Config(app, **options)
    config.load()
    state = ServerState()
    state.default_headers = [(b"server", b"uvicorn")]

    def make() -> asyncio.Protocol:
        return Protocol(config=config, server_state=state, app_state={})

    return make, state.tasks
