"""A whole run: connect, check, compose, create or reopen the run directory, and work through the plan."""

from __future__ import annotations

import asyncio
import secrets
import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from bench.analysis.watch.journal import is_watch
from bench.errors import JournalError
from bench.journal import SCHEMA, Journal, read_entries, read_info
from bench.plan.chats import ChatPlan
from bench.plan.hooks import recorded, with_values_of
from bench.plan.trials import pair_key, plan
from bench.prompting.corpus import Corpus
from bench.records import Event, RunInfo, Suite
from bench.records.events import SESSION
from bench.run.exchange import utc_now
from bench.run.forecast.chats import chats_as_planned
from bench.run.forecast.expect import expect
from bench.run.lifecycle.stage import Stage
from bench.run.lifecycle.stage import client_for as client_for
from bench.run.openroute import OpenRoute
from bench.run.order import Order as Order
from bench.run.order import only_routes, with_ca_files
from bench.run.preflight.chats import counted_chats
from bench.run.preflight.checks import Check, check_client, check_disk, check_route
from bench.run.preflight.limits import over_limits
from bench.run.progress import Progress
from bench.run.prompts import composers, corpus_of
from bench.run.runner import Runner
from bench.run.same import Difference, earlier, server_differences, text_differences
from bench.wire.host import environment


def new_run_path(results: Path, suite: Suite) -> Path:
    """`results/<utc>-<suite>`, with a number behind it when that second is taken."""
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    path = results / f"{stamp}-{suite.name}"
    number = 2
    while path.exists():
        path = results / f"{stamp}-{suite.name}-{number}"
        number += 1
    return path


async def start(order: Order, progress: Progress) -> Path:
    """Runs a suite from the beginning; returns the run directory.

    Nothing is written before every route that can be up by then has passed its checks and the
    shortest and the longest prompt have been composed. Raises the error of the first check that
    failed, unless forced, or one that names the servers that are not there, unless that is allowed.
    """
    suite = only_routes(order.suite, order.routes)
    _refuse(check_disk(order.results), order)  # before a server is started, or waited for
    stage = Stage(suite, order.folder, progress, results=order.results, force=order.force)
    async with stage:
        await stage.open_at_first(stage.first(), all_needed=not order.allow_absent)
        open_routes = stage.open_routes
        checks, facts, corpus = await _look_around(suite, open_routes, order)
        _refuse(checks, order)
        chats = await counted_chats(suite, next(iter(open_routes.values())), order.folder)
        path = new_run_path(order.results, suite)
        info = describe(order, suite, open_routes, path=path, checks=checks, chats=chats)
        info = msgspec.structs.replace(info, environment=facts)
        progress.enter("composing", time.monotonic_ns())
        made = await composers(info, open_routes, folder=order.folder, corpus=corpus)
        del corpus  # tens of megabytes that nobody needs any more
        expected = await expect(order, info, open_routes, made)
        info = msgspec.structs.replace(
            info,
            plan=expected.plan,
            notes=(*info.notes, *expected.notes),
            tokenizers={name: composer.tokenizer.identity for name, composer in made.items()},
        )
        progress.notes.extend(info.notes)
        known = chats_as_planned(info, order.folder)
        with Journal.create(path, info) as journal:
            progress.path = path
            stage.composers.update(made)
            stage.keep_in(path)
            runner = Runner(info, journal, stage, progress, models=expected.models, chats=known)
            await _work(runner, journal, info, open_routes)
    return path


def _refuse(checks: Sequence[Check], order: Order) -> None:
    """Raises the error of the first check that failed, unless forced."""
    failed = [one for one in checks if one.state == "fail"]
    if failed and not order.force:
        raise failed[0].error()


def describe(
    order: Order,
    suite: Suite,
    open_routes: Mapping[str, OpenRoute],
    *,
    path: Path,
    checks: Sequence[Check] = (),
    chats: Sequence[ChatPlan] = (),
) -> RunInfo:
    """What run.json will say, but for the client; before prompts are composed and a budget is applied."""
    kept, text = recorded(with_ca_files(suite, order.folder), order.suite_text, order.folder)
    return RunInfo(
        schema=SCHEMA,
        id=path.name,
        created_at=utc_now(),
        nonce=secrets.token_hex(8),
        suite=kept,
        suite_text=text,
        folder=str(order.folder.resolve()),
        plan=plan(suite, over_limits(suite, open_routes), chats),
        facts={name: opened.facts for name, opened in open_routes.items()},
        chats={chat.name: chat.sha256 for chat in chats},
        notes=_notes(suite, checks),
    )


async def resume(
    path: Path,
    progress: Progress,
    *,
    folder: Path | None = None,
    suite: Suite | None = None,
    force: bool = False,
) -> Path:
    """Does what is left of an interrupted run, with the suite as it was then.

    Servers of ours are started when their turn comes; somebody else's that is not there now is looked for
    when it comes, and again later, while the other routes are measured. `folder`: where the suite's relative
    paths start; `None`: `suite_folder`. `suite`: where the written values of environment variables are, which
    a run does not keep. Where a server, a tokenizer or the corpus is no longer what the run recorded
    (`bench.run.same`), nothing is sent and an error names every difference; `force` goes on, and the journal
    tells them.
    """
    info = run_info(path)
    folder = suite_folder(info) if folder is None else folder
    live = with_values_of(info.suite, suite) if suite else info.suite
    chats = chats_as_planned(info, folder)
    with Journal.resume(path) as journal:
        progress.path = path
        async with Stage(live, folder, progress, results=path.parent, force=force) as stage:
            before = earlier(path)
            stage.keep_in(path, before)
            theirs = [route.name for route in live.routes if route.server is None]
            await stage.open_at_first(theirs, all_needed=False)
            stage.accept(_differences(info, stage))
            taken = [salt for used in before.salts.values() for salt in used]
            made = await composers(info, stage.open_routes, folder=folder, taken=taken)
            stage.accept(text_differences(info, before, made))
            stage.composers.update(made)
            if _take_over(info, stage):
                journal.update_info(info)
            runner = Runner(info, journal, stage, progress, chats=chats)
            runner.recall(read_entries(path))
            await _work(runner, journal, info, stage.open_routes)
    return path


def run_info(path: Path) -> RunInfo:
    """What a run says of itself. Raises `JournalError` when `path` is none, or the directory of a watch."""
    info = read_info(path)
    if is_watch(info):
        raise JournalError(
            f"{path}: this is a watch, not a run: there is nothing to resume; "
            f"ctxbench report {shlex.quote(str(path))} shows what it saw"
        )
    return info


def suite_folder(info: RunInfo) -> Path:
    """Where the relative paths of a run's suite start: the folder that it recorded, else the current one."""
    recorded_folder = Path(info.folder or "")
    return recorded_folder if recorded_folder.is_dir() else Path()


def _differences(info: RunInfo, stage: Stage) -> Iterator[Difference]:
    for name, opened in stage.open_routes.items():
        yield from server_differences(opened.route, info.facts.get(name), opened.facts)


def _take_over(info: RunInfo, stage: Stage) -> bool:
    """What later sessions are held against: of a server that was not there before, and of all of them where
    the session is forced to go on. Whether that is new."""
    new = [name for name in stage.open_routes if stage.forced or name not in info.facts]
    for name in new:
        info.facts[name] = stage.open_routes[name].facts
        info.tokenizers[name] = stage.composers[name].tokenizer.identity
    return bool(new)


async def check(suite: Suite, open_routes: Mapping[str, OpenRoute], order: Order) -> list[Check]:
    """All checks that need no composed prompt. The client listens to itself while servers are asked."""

    async def routes() -> list[Check]:
        found: list[Check] = []
        for opened in open_routes.values():
            found += await check_route(suite, opened, folder=order.folder)
        return found

    client, servers = await asyncio.gather(check_client(), routes())
    return [*check_disk(order.results), client, *servers]


async def _look_around(
    suite: Suite, open_routes: Mapping[str, OpenRoute], order: Order
) -> tuple[list[Check], dict[str, str], Corpus]:
    """The checks and, while servers answer, what needs none: what the client is made of, and the corpus."""

    def without_servers() -> tuple[dict[str, str], Corpus]:
        return environment(), corpus_of(suite, order.folder)

    try:
        async with asyncio.TaskGroup() as group:
            checks = group.create_task(check(suite, open_routes, order))
            # One after the other: a second thread would hold up what the servers wait for.
            others = group.create_task(asyncio.to_thread(without_servers))
    except ExceptionGroup as errors:
        first = errors.exceptions[0]
        raise first from first.__cause__
    return checks.result(), *others.result()


async def _work(
    runner: Runner, journal: Journal, info: RunInfo, open_routes: Mapping[str, OpenRoute]
) -> None:
    facts = {name: msgspec.to_builtins(opened.facts) for name, opened in open_routes.items()}
    journal.append(Event(name=SESSION, at=utc_now(), message=f"run {info.id}", data={"facts": facts}))
    await runner.run()


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
