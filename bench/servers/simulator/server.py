"""Starts and stops a simulated server: in this process (a thread), or for good."""

from __future__ import annotations

import asyncio
import ipaddress
import math
import socket
import threading
from collections.abc import Iterable
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
    import uvicorn

    from .app import Transports

_START_S = 20.0


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
        raise EngineError(f"cannot bind the simulator to {address} port {port}: {error}") from error
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
        self._transports: Transports = {}
        self._server: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

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
        """Serve in this thread until interrupted."""
        if "refused" in self.core.faults:
            threading.Event().wait()
            return
        self._server = self._make_server()
        self._server.run(sockets=[self._socket])

    def run_in_thread(self) -> None:
        if "refused" in self.core.faults:
            return  # bound, so that nobody else gets the port, but nobody listens
        self._server = self._make_server()
        ready = threading.Event()
        self._thread = threading.Thread(target=self._serve, args=(ready,), name="simulator", daemon=True)
        self._thread.start()
        if not ready.wait(_START_S):
            raise EngineError(f"the simulator did not start within {_START_S:.0f} s")

    def stop(self) -> None:
        """Stop serving; open connections are reset. May be called twice."""
        if self._server and self._thread and self._loop and self._thread.is_alive():
            self._server.should_exit = True
            self._loop.call_soon_threadsafe(self._drop_all)
            self._thread.join(_START_S)
        self._socket.close()

    def _serve(self, ready: threading.Event) -> None:
        server = self._server
        if server is None:
            return

        async def serve() -> None:
            self._loop = asyncio.get_running_loop()
            task = asyncio.create_task(server.serve(sockets=[self._socket]))
            while not server.started and not task.done():
                await asyncio.sleep(0.001)
            ready.set()
            await task

        with asyncio.Runner(loop_factory=server.config.get_loop_factory()) as runner:
            runner.run(serve())

    def _drop_all(self) -> None:
        self.core.driver.stop()
        for transport in list(self._transports.values()):
            transport.abort()

    def _make_server(self) -> uvicorn.Server:
        try:
            import uvicorn
            from uvicorn.protocols.http.h11_impl import H11Protocol

            from .app import make_app
        except ImportError as error:
            raise EngineError("the simulator needs `pip install ctxbench[simulator]`") from error
        transports = self._transports

        class Protocol(H11Protocol):
            """Remembers its connection, so that a fault can reset it."""

            def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
                super().connection_made(transport)
                if self.client:
                    transports[self.client] = transport

            def connection_lost(self, exc: Exception | None) -> None:
                if self.client:
                    transports.pop(self.client, None)
                super().connection_lost(exc)

        options: dict[str, Any] = {"log_config": None, "access_log": False, "ws": "none", "lifespan": "on"}
        app = make_app(self.core, transports)
        config = uvicorn.Config(app, http=Protocol, timeout_graceful_shutdown=2, **options)
        return uvicorn.Server(config)
