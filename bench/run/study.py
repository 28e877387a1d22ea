"""A whole run: connect, check, compose, create or reopen the run directory, and work through the plan."""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from bench.errors import SuiteError
from bench.journal import SCHEMA, Journal, read_entries, read_info
from bench.plan.trials import pair_key, plan
from bench.records import Event, Exchange, Route, RunInfo, Suite
from bench.run.checks import Check, check_disk, check_route
from bench.run.exchange import utc_now
from bench.run.progress import Progress
from bench.run.prompts import composers
from bench.run.runner import Runner
from bench.run.session import Session, api_key, connect
from bench.wire.client import Client
from bench.wire.host import environment

SESSION = "session"
"""Name of the event that opens every session of a run: the first, and each resume."""


class Order(Struct, frozen=True, kw_only=True):
    """What to run and where to keep it."""

    suite: Suite
    suite_text: str
    results: Path = Path("results")
    """Folder in which the run directory is made."""
    folder: Path = Path()
    """Relative paths in the suite start here: the suite file's folder."""
    routes: tuple[str, ...] = ()
    """Only these routes; empty: all."""
    force: bool = False
    """Go on although a check failed; recorded in the run."""


def new_run_path(results: Path, suite: Suite) -> Path:
    """`results/<utc>-<suite>`, with a number behind it when that second is taken."""
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    path = results / f"{stamp}-{suite.name}"
    number = 2
    while path.exists():
        path = results / f"{stamp}-{suite.name}-{number}"
        number += 1
    return path


def only_routes(suite: Suite, names: tuple[str, ...]) -> Suite:
    """The suite with just the named routes; `SuiteError` when one is not in it."""
    if not names:
        return suite
    known = [route.name for route in suite.routes]
    if unknown := [name for name in names if name not in known]:
        raise SuiteError(f"--route {unknown[0]}: the suite has no such route; it has {', '.join(known)}")
    return msgspec.structs.replace(
        suite, routes=tuple(route for route in suite.routes if route.name in names)
    )


async def start(order: Order, progress: Progress) -> Path:
    """Runs a suite from the beginning; returns the run directory.

    Nothing is written before every route has passed its checks and the shortest and the longest
    prompt have been composed. Raises the error of the first check that failed, unless forced.
    """
    suite = only_routes(order.suite, order.routes)
    async with connected(suite) as sessions:
        checks = await check(suite, sessions, order)
        failed = [one for one in checks if one.state == "fail"]
        if failed and not order.force:
            raise failed[0].error()
        path = new_run_path(order.results, suite)
        info = RunInfo(
            schema=SCHEMA,
            id=path.name,
            created_at=utc_now(),
            nonce=secrets.token_hex(8),
            suite=suite,
            suite_text=order.suite_text,
            plan=plan(suite),
            facts={name: session.facts for name, session in sessions.items()},
            environment=environment(),
            notes=_notes(suite, checks),
        )
        progress.notes.extend(info.notes)
        progress.enter("composing", time.monotonic_ns())
        made = await composers(info, sessions, folder=order.folder)
        info = msgspec.structs.replace(
            info, tokenizers={name: composer.tokenizer.identity for name, composer in made.items()}
        )
        with Journal.create(path, info) as journal:
            progress.path = path
            await _work(Runner(info, journal, sessions, made, progress), journal, info, sessions)
    return path


async def resume(path: Path, progress: Progress, *, folder: Path = Path()) -> Path:
    """Does what is left of an interrupted run, with the suite as it was then."""
    info = read_info(path)
    with Journal.resume(path) as journal:
        progress.path = path
        async with connected(info.suite) as sessions:
            salts = [entry.prompt.salt for entry in read_entries(path) if isinstance(entry, Exchange)]
            made = await composers(info, sessions, folder=folder, taken=salts)
            runner = Runner(info, journal, sessions, made, progress)
            runner.recall(read_entries(path))
            await _work(runner, journal, info, sessions)
    return path


async def preflight(order: Order) -> list[Check]:
    """The checks of a suite alone, prompts included; nothing is written."""
    suite = only_routes(order.suite, order.routes)
    async with connected(suite) as sessions:
        found = await check(suite, sessions, order)
        probe = RunInfo(
            schema=SCHEMA,
            id="check",
            created_at=utc_now(),
            nonce=secrets.token_hex(8),
            suite=suite,
            suite_text=order.suite_text,
            plan=plan(suite),
        )
        made = await composers(probe, sessions, folder=order.folder)
        for name, composer in made.items():
            template, identity = composer.template, composer.tokenizer.identity
            text = (
                f"{identity.kind} tokenizer, template of {template.overhead} tokens; "
                f"prompts of {min(suite.tiers):,} and {max(suite.tiers):,} tokens are exact"
            )
            found.append(Check(route=name, name="prompts", state="ok", text=text))
    return found


async def check(suite: Suite, sessions: Mapping[str, Session], order: Order) -> list[Check]:
    """All checks that need no composed prompt."""
    found = check_disk(order.results)
    for session in sessions.values():
        found += await check_route(suite, session, folder=order.folder)
    return found


async def _work(runner: Runner, journal: Journal, info: RunInfo, sessions: Mapping[str, Session]) -> None:
    facts = {name: msgspec.to_builtins(session.facts) for name, session in sessions.items()}
    journal.append(Event(name=SESSION, at=utc_now(), message=f"run {info.id}", data={"facts": facts}))
    await runner.run()


@contextlib.asynccontextmanager
async def connected(suite: Suite) -> AsyncIterator[dict[str, Session]]:
    """All routes of a suite, connected; `EngineError` names the first that cannot be."""
    async with contextlib.AsyncExitStack() as stack:
        sessions: dict[str, Session] = {}
        for route in suite.routes:
            client = await stack.enter_async_context(client_for(route))
            sessions[route.name] = await connect(route, client)
        yield sessions


def client_for(route: Route) -> Client:
    """A client with the route's key, certificate authority and proxy."""
    return Client(
        route.base_url,
        api_key=api_key(route),
        ca_file=route.ca_file,
        insecure=route.insecure,
        proxy=route.proxy,
        connect_s=route.request.timeouts.connect_s,
    )


def _notes(suite: Suite, checks: Sequence[Check]) -> tuple[str, ...]:
    """What a reader of the report must know."""
    notes = [
        f"{'forced past a failed check' if one.state == 'fail' else 'check'}: {one.route}: {one.text}"
        for one in checks
        if one.state != "ok"
    ]
    if len(suite.routes) > 1:
        unpaired = [route.name for route in suite.routes if pair_key(suite, route) != "all"]
        if unpaired:
            notes.append(f"unpaired: {', '.join(unpaired)} share a cache, so each has prompts of its own")
        notes.append("routes take turns" if suite.interleave else "routes are measured one after another")
    notes.extend(
        f"route {route.name}: TLS is not verified (insecure = true)"
        for route in suite.routes
        if route.insecure
    )
    return tuple(notes)
