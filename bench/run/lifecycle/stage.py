"""The routes that are open at the moment, and their servers where the run starts them."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from bench.errors import BenchError, EngineError
from bench.prompting.compose import Composer
from bench.records import Route, RunInfo, Suite
from bench.run.finish import check_finish
from bench.run.lifecycle.logfacts import route_tail, with_log_facts
from bench.run.lifecycle.machine import machine_looks
from bench.run.lifecycle.routes import Register, Server, check_servers
from bench.run.lifecycle.serverlog import ServerLog, server_logs
from bench.run.openroute import OpenRoute, api_key, connect, headers_of, proxy_of
from bench.run.order import with_ca_files
from bench.run.preflight.checks import Check, check_route
from bench.run.preflight.limits import with_limits
from bench.run.progress import Phase, Progress
from bench.run.prompts import composers, tokenizer_of_server
from bench.run.same import (
    Difference,
    Earlier,
    refusal,
    server_differences,
    text_differences,
    tokenizer_difference,
)
from bench.wire.client import Client
from bench.wire.machine import MachineLook


def client_for(route: Route) -> Client:
    """A client with the route's key, headers, certificate authority and proxy."""
    headers, secrets = headers_of(route)
    return Client(
        route.base_url,
        api_key=api_key(route),
        headers=headers,
        secrets=secrets,
        ca_file=route.ca_file,
        insecure=route.insecure,
        proxy=proxy_of(route),
        connect_s=route.request.timeouts.connect_s,
    )


def without_name(error: BenchError, route: str) -> str:
    """What is told behind the name of the route, on one line."""
    return "; ".join(line.removeprefix(f"route {route}: ") for line in str(error).splitlines())


def _way_on(others: Iterable[str], *, many: bool) -> str:
    """What to do where some of the servers are not there."""
    them, do = ("them", "they do") if many else ("it", "it does")
    told = " ".join(f"--route {name}" for name in others)
    return (
        f"to measure the others: {told}, or --allow-absent, which looks for {them} again later (if {do} not "
        "come, the run ends with exit code 3 and names what is left)"
    )


class Stage:
    """Opens and closes routes; use as a context manager, which closes all that are open.

    `folder`: where the suite's relative paths start. `results`: where runs keep which servers they
    have started. `force`: a route that fails a check, or is not what the run recorded, is opened all the
    same.
    """

    def __init__(
        self, suite: Suite, folder: Path, progress: Progress, *, results: Path, force: bool = False
    ) -> None:
        check_servers(suite, folder)
        check_finish(suite.on_finish, folder)
        self._suite = with_ca_files(suite, folder)
        self._folder = folder
        self._progress = progress
        self._force = force
        self._register = Register(results)
        self._run: Path | None = None
        self._servers: dict[str, Server] = {}
        self._stacks: dict[str, contextlib.AsyncExitStack] = {}
        self._machines: dict[str, dict[str, MachineLook]] = {}
        self._earlier = Earlier()
        self.open_routes: dict[str, OpenRoute] = {}
        """By route; only those that are open."""
        self.composers: dict[str, Composer] = {}
        self.logs: dict[str, ServerLog] = {}
        self.forced: list[Difference] = []
        """What is not as the run recorded it, though the session goes on: for the journal."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        async with contextlib.AsyncExitStack() as stack:  # one that fails to close holds up no other
            for name in list(self._stacks):
                stack.push_async_callback(self.close, name)

    def first(self) -> list[str]:
        """Routes to be open from the beginning: those that are up anyway, and of ours the first, or all
        where routes take turns."""
        ours = [route.name for route in self._suite.routes if route.server is not None]
        later = () if self._suite.interleave else ours[1:]
        return [route.name for route in self._suite.routes if route.name not in later]

    def is_ours(self, name: str) -> bool:
        """Whether the run starts and stops this route's server."""
        return self._suite.route(name).server is not None

    def keep_in(self, run: Path, earlier: Earlier | None = None) -> None:
        """From now on servers are registered, and their logs kept, in this run directory. `earlier`: what
        former sessions of the run have sent."""
        self._run = run
        self._register.keep_in(run)
        self._earlier = earlier or Earlier()
        theirs = tuple(route for route in self._suite.routes if route.server is None)
        suite = msgspec.structs.replace(self._suite, routes=theirs)
        self.logs.update(server_logs(suite, run, self._folder))
        for name, server in self._servers.items():
            self.logs[name] = ServerLog(server.log(), run)

    async def open_at_first(self, names: Iterable[str], *, all_needed: bool) -> None:
        """Opens the routes a session begins with. Those whose server is somebody else's and not there are
        left to `bring`, when their turn comes.

        Raises an `EngineError` that names all of these where `all_needed`, or where no other route is left.
        """
        absent: dict[str, str] = {}
        for name in names:
            try:
                await self.open(name)
            except EngineError as error:
                if self.is_ours(name):
                    raise
                absent[name] = f"route {name}: {without_name(error, name)}"
        others = [route.name for route in self._suite.routes if route.name not in absent]
        if absent and (all_needed or not others):
            text = "\n".join(absent.values())
            raise EngineError(f"{text}; {_way_on(others, many=len(absent) > 1)}" if others else text)
        self._progress.notes.extend(
            f"{text}; looked for again when its turn comes" for text in absent.values()
        )

    async def open(self, name: str) -> OpenRoute:
        """Starts the route's server where that is ours to do, and connects.

        A server of ours that cannot be up beside it is stopped before. Raises `BenchError`; nothing of
        the route is left open then.
        """
        route = self._suite.route(name)
        if route.server is not None and not self._suite.interleave:
            for other in [other for other in self._servers if other != name]:
                await self.close(other)
        async with contextlib.AsyncExitStack() as stack:
            client = await stack.enter_async_context(client_for(route))
            self._machines[name] = await stack.enter_async_context(machine_looks(route))
            if route.server is not None:
                server = Server(route, self._folder, self._register, self._progress.notes.append)
                stack.push_async_callback(server.stop)
                self._enter("starting the server")
                await server.start(client)
                self._servers[name] = server
                stack.callback(self._servers.pop, name, None)
            opened = self._take(await self._ask(route, client))
            self._stacks[name] = stack.pop_all()
        return opened

    async def _ask(self, route: Route, client: Client) -> OpenRoute:
        """What a route's server says of itself now."""
        opened = await self._with_log_facts(await connect(route, client))
        opened = msgspec.structs.replace(opened, machine=self._machines.get(route.name, {}))
        return with_limits(self._suite, opened, self._folder)

    def _take(self, opened: OpenRoute) -> OpenRoute:
        """From now on a route is this."""
        name = opened.route.name
        self.open_routes[name] = opened
        if name in self._servers and self._run is not None:
            self.logs[name] = ServerLog(self._servers[name].log(), self._run)
        return opened

    async def _with_log_facts(self, opened: OpenRoute) -> OpenRoute:
        """What only the log says; a server of ours always has one."""
        route = opened.route
        server = self._servers.get(route.name)
        if server is not None:
            return await with_log_facts(opened, server.log)
        if route.log is None:
            return opened
        log = route.log
        return await with_log_facts(opened, lambda: route_tail(log, self._folder, opened.facts))

    async def bring(self, name: str, info: RunInfo) -> list[Check]:
        """Opens a route whose turn has come: server, checks, composer. Returns what was not ok.

        The run's facts and tokenizers take it in. Unless forced, raises the error of the first failed check,
        and the one of `accept`; the route is closed then.
        """
        opened = await self.open(name)
        try:
            self.accept(server_differences(opened.route, info.facts.get(name), opened.facts))
            checks = await check_route(self._suite, opened, folder=self._folder)
            failed = [one for one in checks if one.state == "fail"]
            if failed and not self._force:
                raise failed[0].error()
            # Salts of other routes do not count: their caches are others, and pairs need equal prompts.
            taken = self._earlier.salts.get(name, ())
            made = await composers(info, {name: opened}, folder=self._folder, taken=taken)
            self.accept(text_differences(info, self._earlier, made))
        except BaseException:
            await self.close(name)
            raise
        self.composers.update(made)
        info.facts[name] = opened.facts
        info.tokenizers[name] = made[name].tokenizer.identity
        return [one for one in checks if one.state != "ok"]

    def accept(self, found: Iterable[Difference]) -> None:
        """Goes on with what is not as the run recorded it, if that is forced; else raises what
        `bench.run.same.refusal` makes of it."""
        new = [one for one in found if one not in self.forced]
        if new and not self._force:
            raise refusal(new)
        self.forced += new

    async def fallen(self, name: str, *, refused: bool) -> str | None:
        """How the server of a route has ended, asked after a failure; `None`: it lives, or is not ours.

        `refused`: whether it took no connection.
        """
        server = self._servers.get(name)
        return None if server is None else await server.fallen(refused=refused)

    def counts(self, name: str) -> bool:
        """Whether the route's prompts are counted by the server's own tokenizer."""
        composer = self.composers.get(name)
        return composer is not None and composer.tokenizer.identity.kind == "server"

    def may_restart(self, name: str) -> bool:
        """Whether the suite allows this server one more start."""
        return self._servers[name].may_restart()

    async def restart(self, name: str, info: RunInfo) -> OpenRoute:
        """Starts a server that fell again. Raises `EngineError` when it does not come; else as `recognise`
        does."""
        server = self._servers[name]
        self._enter("starting the server")
        await server.stop()
        await server.start(self.open_routes[name].client)
        return await self.recognise(name, info)

    async def recognise(self, name: str, info: RunInfo) -> OpenRoute:
        """Asks a server that may have been started anew who it is, and takes that in.

        Unless forced, raises the error of `accept` when it is not the one that the run recorded; forced, the
        run's facts become its own. Another tokenizer of its own is refused in any case: the prompts at hand
        were cut with the former.
        """
        was, composer = self.open_routes[name], self.composers.get(name)
        now = await self._ask(was.route, was.client)
        found = list(server_differences(was.route, info.facts.get(name), now.facts))
        if composer is not None and self.counts(name):
            cut_with = composer.tokenizer.identity
            other = tokenizer_difference(name, cut_with, await tokenizer_of_server(now))
            if other is not None:
                raise refusal([*found, other])
        self.accept(found)
        if found:
            info.facts[name] = now.facts
        return self._take(now)

    async def close(self, name: str) -> None:
        """Stops the route's server if it is ours, and lets the route go."""
        stack = self._stacks.pop(name, None)
        self.open_routes.pop(name, None)
        if stack is not None:
            if name in self._servers:
                self.logs.pop(name, None)
                self._enter("stopping the server")
            await stack.aclose()

    def _enter(self, phase: Phase) -> None:
        self._progress.trial = None
        self._progress.enter(phase, time.monotonic_ns())
