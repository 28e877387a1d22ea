"""`ctxbench check`: a line for everything that can be known before a run, also where a route fails."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

from bench.analysis.decisions.differences import unexplained
from bench.errors import BenchError, EngineError
from bench.prompting.compose import Composer
from bench.records import RunInfo, ServerFacts, Suite, Trial
from bench.run.forecast.expect import expect
from bench.run.lifecycle.stage import Stage
from bench.run.openroute import OpenRoute
from bench.run.order import Order, only_routes
from bench.run.preflight.chats import counted_chats
from bench.run.preflight.checks import Check, check_client, check_disk, check_route, refused
from bench.run.preflight.probe import server_count
from bench.run.progress import Progress
from bench.run.prompts import composers
from bench.run.study import describe


async def preflight(order: Order) -> list[Check]:
    """All checks of a suite, prompts and expected time included; nothing is written.

    A route that cannot be opened is a failed line, and the others are checked all the same. Servers
    of the suite's own are started for it, one after another where they cannot be up together.
    """
    suite = only_routes(order.suite, order.routes)
    found = [*check_disk(order.results), await check_client()]
    facts: dict[str, ServerFacts] = {}
    async with Stage(suite, order.folder, Progress(), results=order.results, force=True) as stage:
        for route in suite.routes:
            found += await _route(order, suite, stage, route.name, facts)
        found += _differences(suite, facts)
        if len(stage.composers) == len(suite.routes):
            found += await _time(order, suite, stage)
    return found


def _differences(suite: Suite, facts: Mapping[str, ServerFacts]) -> list[Check]:
    """Whether the routes differ in nothing but the speculation they declare, as far as anybody tells."""
    if len(suite.routes) < 2:
        return []
    found = unexplained(suite, facts)
    return [
        Check(route="", name="routes", state="warn", text=f"they differ in more than speculation: {one.text}")
        for one in found
    ] or [Check(route="", name="routes", state="ok", text="no difference but the declared speculation")]


async def _route(
    order: Order, suite: Suite, stage: Stage, name: str, facts: dict[str, ServerFacts]
) -> list[Check]:
    """One route, whose facts are put into `facts`; a server that cannot stay up beside others is stopped."""
    try:
        opened = await stage.open(name)
    except BenchError as error:
        return [refused(name, "server", error)]
    facts[name] = opened.facts
    found = await check_route(suite, opened, folder=order.folder)
    info = describe(order, suite, {name: opened}, path=Path("check"))
    try:
        made = await composers(info, {name: opened}, folder=order.folder)
        found.append(await _prompts(info, opened, made[name]))
        stage.composers.update(made)
    except BenchError as error:
        found.append(refused(name, "prompts", error))
    if name not in stage.first():
        await stage.close(name)
    return found


async def _time(order: Order, suite: Suite, stage: Stage) -> list[Check]:
    try:
        chats = await counted_chats(suite, next(iter(stage.open_routes.values())), order.folder)
        info = describe(order, suite, stage.open_routes, path=Path("check"), chats=chats)
        expected = await expect(order, info, stage.open_routes, stage.composers)
    except BenchError as error:
        return [refused("", "time", error)]
    text = expected.text
    if "not known" in text and not order.calibrate:
        text += "; --calibrate finds out with two small prompts a route"
    return [
        Check(route="", name="time", state="ok", text=text),
        *(
            Check(route="", name="time", state="warn" if note.startswith("budget") else "ok", text=note)
            for note in expected.notes
        ),
    ]


async def _prompts(info: RunInfo, opened: OpenRoute, composer: Composer) -> Check:
    """Composing has proven the tokenizer on samples; the longest prompt is counted by the server as a whole.

    That also takes a body as large as any trial's past whatever stands between.
    """
    name, identity = opened.route.name, composer.tokenizer.identity
    mine = [trial for trial in info.plan if trial.route == name and not trial.turn]
    longest = max(mine, key=lambda trial: trial.tier)
    told = await _longest(opened, composer, longest)
    if told is not None and told != longest.tier:
        text = f"the longest prompt has {longest.tier:,} tokens here, {told:,} by the server's own count"
        return Check(route=name, name="prompts", state="fail", text=text)
    if identity.kind == "server":
        agrees = "counted by the server's own tokenizer"
    elif opened.dialect.tokenize_request("a", opened.model) is not None:
        agrees = f"{identity.kind} tokenizer, counts as the server does on ten samples"
    else:
        agrees = f"{identity.kind} tokenizer (the server tokenises nothing: its usage will prove the counts)"
    if told is not None:
        agrees += " and on the longest prompt"
    lengths = " and ".join(f"{tier:,}" for tier in sorted({min(t.tier for t in mine), longest.tier}))
    text = f"{agrees}; template of {composer.template.overhead} tokens; prompts of {lengths} tokens are exact"
    return Check(route=name, name="prompts", state="ok", text=text)


async def _longest(opened: OpenRoute, composer: Composer, trial: Trial) -> int | None:
    """The server's count of a whole prompt; `None`: it cannot be asked for one.

    Raises `EngineError` when a body of that size does not get through.
    """
    if opened.route.request.endpoint != "chat":
        return None
    prompt = await asyncio.to_thread(composer.compose, trial, pair="check")
    messages = prompt.fields()["messages"]
    assert isinstance(messages, list)  # noqa: S101 - a chat's prompt
    try:
        return await server_count(opened, messages)
    except EngineError as error:
        size = sum(len(message["content"].encode()) for message in messages)
        raise EngineError(
            f"the longest prompt ({size / 1e6:.1f} MB) could not be counted by the server; a proxy may limit "
            f"bodies (nginx: client_max_body_size): {error}"
        ) from error
