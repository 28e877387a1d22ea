"""`[route.server]`: the commands of a suite that start and stop servers, checked, shown and recorded.

Commands are shown before they run. Values of environment variables never are, and no file holds them.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from bench.address import ServerAt, server_at
from bench.errors import SuiteError
from bench.masking import worth_hiding
from bench.records import FromEnv, Route, RouteServer, Suite

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_BARE = r"(?![\"']?\$)"  # a value that is written out, not taken from a variable
_KEY_IN_COMMAND = re.compile(
    rf"--[a-z-]*(?:api[-_]key|token|password)(?:=|\s+){_BARE}[^\s-]"
    rf"|\bAuthorization:\s*\w+\s+{_BARE}\S"
    rf"|\b[A-Z][A-Z0-9_]*(?:KEY|TOKEN|SECRET|PASSWORD)=(?!\d+\b){_BARE}[^\s'\"]"
    r"|\b(?:hf_|sk-|ghp_|github_pat_|xox[abp]-)[A-Za-z0-9_-]{16}"
    r"|://[^\s/]+:[^\s/$]+@|//hooks\.slack\.com/|//discord(?:app)?\.com/api/|\.webhook\.office\.com/"
)
"""Keys, tokens and passwords as they stand in commands, and addresses that are secrets themselves."""
NOT_RECORDED = '"(not recorded)"'

Command = str | tuple[str, ...]


def server_of(server: RouteServer | None) -> RouteServer | None:
    """The table with its numbers in `env` as text."""
    if server is None:
        return None
    env = {name: str(value) if isinstance(value, int) else value for name, value in server.env.items()}
    return msgspec.structs.replace(server, env=env)


def server_problems(where: str, server: RouteServer) -> Iterator[str]:
    """What is wrong with a `[route.server]` table."""
    for key, command in (("up", server.up), ("down", server.down)):
        yield from command_problems(f"{where}: server.{key}", command)
    for name, value in server.env.items():
        if not _VARIABLE.fullmatch(name):
            yield f"{where}: server.env: {name!r} is no name of an environment variable"
        elif isinstance(value, FromEnv) and not _VARIABLE.fullmatch(value.from_env):
            yield f"{where}: server.env.{name}: from_env is the name of an environment variable"
        elif isinstance(value, str) and "\0" in value:
            yield f"{where}: server.env.{name}: a NUL character cannot be in it"
    if not 0 < server.ready_timeout_s <= 1_000_000:
        yield f"{where}: server.ready_timeout_s = {server.ready_timeout_s}: seconds above 0"
    if not 0 <= server.restart <= 100:
        yield f"{where}: server.restart = {server.restart}: allowed are 0 to 100"
    if server.log == "-":
        yield f"{where}: server.log = '-': a file, docker:NAME or journal:UNIT"


def command_problems(where: str, command: Command | None) -> Iterator[str]:
    """What is wrong with a command of the suite; it is shown and recorded, so it holds no key."""
    if command is None:
        return
    if not command or not command[0].strip() or "\0" in "".join(command):
        yield f"{where}: a command for the shell, or a list of arguments without one"
    elif _KEY_IN_COMMAND.search(command if isinstance(command, str) else " ".join(command)):
        # Not repeated here: it is most likely the key itself.
        yield (
            f"{where} holds a key, or an address that is one, and commands are shown and recorded: "
            "take it from a variable, $NAME, of your environment or of server.env"
        )


def together_problems(suite: Suite) -> Iterator[str]:
    """Servers on one address cannot be up together."""
    if not suite.interleave:
        return
    taken: dict[ServerAt, str] = {}
    for route in suite.routes:
        if route.server is None:
            continue
        address = server_at(route.base_url)
        if address in taken:
            yield (
                f"[suite] interleave = true: the servers of {taken[address]} and {route.name} cannot both "
                f"be up on {address}; leave interleave out, or give them ports of their own"
            )
            return
        taken[address] = route.name


def shown(command: Command) -> str:
    """A command as a person would type it."""
    return command if isinstance(command, str) else shlex.join(command)


def hook_lines(route: Route) -> list[str]:
    """Everything that will be run for a route, for people; values of variables are left out."""
    server = route.server
    if server is None:
        return []
    lines = [f"starts: {shown(server.up)}"]
    if server.env:
        lines.append(f"with: {', '.join(_variable(name, value) for name, value in server.env.items())}")
    if server.cwd:
        lines.append(f"in: {server.cwd}")
    lines.append(f"stops: {shown(server.down)}" if server.down else "stops: by signals TERM, then KILL")
    return lines


def announcement(suite: Suite) -> list[str]:
    """All commands that a run of this suite may execute, a line each route, to be shown before it starts."""
    lines = [
        f"route {route.name}: {'; '.join(hook_lines(route))}"
        for route in suite.routes
        if route.server is not None
    ]
    return [*lines, *finish_lines(suite)]


def finish_lines(suite: Suite) -> list[str]:
    """What is run when a run ends, for people."""
    return [] if suite.on_finish is None else [f"on finish, or trouble: {shown(suite.on_finish)}"]


def _variable(name: str, value: object) -> str:
    if isinstance(value, FromEnv):
        return name if value.from_env == name else f"{name} (from {value.from_env})"
    return f"{name} (from the suite)"


def recorded(suite: Suite, text: str, folder: Path) -> tuple[Suite, str]:
    """Suite and text as a run keeps them: no value of a variable, and folders that can be found again.

    A written value becomes `from_env` with the variable's own name, so that a resumed run takes it
    from there. `folder`: where relative paths of the suite start.
    """
    routes = tuple(
        msgspec.structs.replace(route, server=_without_values(route.server, folder)) for route in suite.routes
    )
    return msgspec.structs.replace(suite, routes=routes), _masked(text, suite.routes)


def _without_values(server: RouteServer | None, folder: Path) -> RouteServer | None:
    if server is None:
        return None
    env = {n: v if isinstance(v, FromEnv) else FromEnv(from_env=n) for n, v in server.env.items()}
    return msgspec.structs.replace(server, env=env, cwd=str((folder / (server.cwd or ".")).resolve()))


def _masked(text: str, routes: Iterable[Route]) -> str:
    """The text with every written value replaced; a short note in its place when that is not certain."""
    written = list(_written(routes))
    for name, _ in written:
        assignment = rf"(?<![\w-])([\"']?{re.escape(name)}[\"']?\s*=\s*)"
        literal = r'("""(?:[^\\]|\\.)*?"""|\'\'\'.*?\'\'\'|"(?:[^"\\\n]|\\.)*"|\'[^\'\n]*\'|\d+)'
        text = re.sub(assignment + literal, rf"\1{NOT_RECORDED}", text, flags=re.DOTALL)
    for value in worth_hiding(value for _, value in written):
        text = text.replace(value, NOT_RECORDED.strip('"'))
    return text


def _written(routes: Iterable[Route]) -> Iterator[tuple[str, str]]:
    for route in routes:
        for name, value in route.server.env.items() if route.server else ():
            if isinstance(value, str):
                yield name, value


def with_values_of(kept: Suite, suite: Suite) -> Suite:
    """A run's suite with the values of a suite file that is given again, by route and variable.

    Raises `SuiteError` when a route of the run is not in that suite.
    """
    given = {route.name: route for route in suite.routes}
    if missing := [route.name for route in kept.routes if route.name not in given]:
        raise SuiteError(
            f"route {missing[0]} of the run is not in this suite: give the suite it was made with"
        )

    def filled(route: Route) -> Route:
        fresh = given[route.name].server
        if route.server is None or fresh is None:
            return route
        env = {name: fresh.env.get(name, value) for name, value in route.server.env.items()}
        return msgspec.structs.replace(route, server=msgspec.structs.replace(route.server, env=env))

    return msgspec.structs.replace(kept, routes=tuple(filled(route) for route in kept.routes))
