"""The suite's own command at the end of a run: a message, an upload, a machine switched off."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Literal

from bench.errors import EngineError, SuiteError
from bench.masking import worth_hiding
from bench.plan.hooks import Command, shown
from bench.records import FromEnv, Suite
from bench.run.lifecycle.process import ServerProcess, Surroundings
from bench.wire.transport import read_proxy

Outcome = Literal["finished", "trouble", "interrupted"]

LIMIT_S = 120.0
_GRACE_S = 2.0


def check_finish(command: Command | None, folder: Path) -> None:
    """Refuses a program that is not there before the night, not after it. Raises `SuiteError`."""
    if command is None or isinstance(command, str):
        return
    name = command[0]
    found = (folder / name).is_file() if os.sep in name else shutil.which(name) is not None
    if not found:
        raise SuiteError(f"on_finish: there is no program {name!r}")


def secrets_of(suite: Suite) -> tuple[str, ...]:
    """Values of the environment variables that the suite takes keys and the like from."""
    names = [route.api_key_env for route in suite.routes if route.api_key_env]
    tables: list[Mapping[str, str | int | FromEnv]] = [
        route.server.env for route in suite.routes if route.server
    ]
    tables += [route.headers for route in suite.routes]
    values = [value for table in tables for value in table.values()]
    proxies = [route.proxy for route in suite.routes if route.proxy]
    names += [value.from_env for value in (*values, *proxies) if isinstance(value, FromEnv)]
    found = [os.environ.get(name) for name in names]
    for proxy in proxies:
        given = os.environ.get(proxy.from_env, "") if isinstance(proxy, FromEnv) else proxy
        with suppress(ValueError):  # no address at all: it has been refused, or is nothing but a secret
            found += read_proxy(given).secrets
    return worth_hiding(found)


async def run_finish(
    command: Command,
    folder: Path,
    run: Path | None,
    outcome: Outcome,
    *,
    secrets: tuple[str, ...] = (),
    limit_s: float = LIMIT_S,
) -> str | None:
    """Runs the command once, in the suite's folder; what went wrong with it, or `None`.

    It finds the run directory in CTXBENCH_RUN (empty when none was made) and the outcome in
    CTXBENCH_STATUS, beside our own environment. What it has started ends with it, and so does all of it
    after `limit_s` seconds. `secrets` are masked in what is told of its output.
    """
    env = {"CTXBENCH_RUN": str(run.resolve()) if run else "", "CTXBENCH_STATUS": outcome}
    try:
        process = ServerProcess(command, Surroundings(cwd=folder.resolve(), env=env, secrets=secrets))
    except EngineError as error:
        return str(error)
    try:
        if not await process.ended_within(limit_s):
            return f"{shown(command)}: stopped after {limit_s:g} s{process.last_lines()}"
        code = process.exit_code()
        return f"{shown(command)}: exit code {code}{process.last_lines()}" if code else None
    finally:
        await process.stop(grace_s=_GRACE_S)
