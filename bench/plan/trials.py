"""From a suite to its trials, in the order in which they are sent. Pure and seeded."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby, product
from typing import Literal

from bench.address import server_at
from bench.plan.chats import ChatPlan, turns
from bench.records import Condition, Route, Suite, Trial

Side = Literal["under", "over"]
_SIDES: tuple[Side, ...] = ("under", "over")


def plan(
    suite: Suite, drafter_limits: Mapping[str, int] | None = None, chats: Sequence[ChatPlan] = ()
) -> tuple[Trial, ...]:
    """All trials of a suite in sending order.

    A cold prompt, its replays and its salted twin follow each other on one route, so that no other
    prompt of ours can push the cold one out of the cache before it is replayed. Interleaved suites
    go through all routes at every tier and repeat, in an order that turns and then reverses from
    repeat to repeat (ABC CBA BCA ...): slow drift of a machine then falls on all routes alike.
    Otherwise routes are measured one after another, since their servers cannot be up together.
    Of several tasks each goes through all routes before the next, so that pairs stay neighbours; so
    does each level of concurrency, the lowest first.

    `drafter_limits` (by route, in tokens) is what the condition `over-limit` needs: each of these
    routes that speculates gets a cold prompt on either side, after the tiers of every repeat. Recorded
    `chats` come last, each as a whole on one route after the other.
    """
    repeats = range(1, suite.repeats + 1)
    limits = drafter_limits or {}
    blocks = (
        ((repeat, _turn(suite.routes, repeat, suite.seed)) for repeat in repeats)
        if suite.interleave
        else ((repeat, [route]) for route in suite.routes for repeat in repeats)
    )
    trials: list[Trial] = []
    for repeat, routes in blocks:
        cells = product(sorted(suite.tiers), suite.prompt.tasks, sorted(suite.concurrency))
        for tier, task, level in cells:
            for route in routes:
                trials += _group(suite, route, tier, repeat, task, level)
        for side, task in product(_SIDES, suite.prompt.tasks):
            for route in routes:
                trials += _over_limit(suite, route, limits.get(route.name), side, repeat, task)
        for (number, chat), route in product(enumerate(chats, 1), routes):
            trials += turns(suite, route, number, chat, repeat)
    return tuple(trials)


def side_tiers(suite: Suite, route: Route, drafter_limit: int) -> dict[Side, int]:
    """Prompt lengths of the condition `over-limit`: the longest one whose whole answer is drafted, and
    the shortest one that never is.

    A draft is made while sequence + k <= limit, and a step that verifies k drafted tokens holds them
    already (measured on vLLM 0.32; `engines.context.classify`). A length that is a tier already moves
    away from the limit, since a trial of it exists.
    """
    k = route.speculation.num_speculative_tokens if route.speculation else 0
    under = drafter_limit - suite.output_tokens - max(k, 2 * k - 2)
    over = drafter_limit - k + 1
    while under in suite.tiers:
        under -= 1
    while over in suite.tiers:
        over += 1
    return {"under": under, "over": over}


def _over_limit(
    suite: Suite, route: Route, drafter_limit: int | None, side: Side, repeat: int, task: str
) -> Iterable[Trial]:
    if "over-limit" not in suite.conditions or route.speculation is None or drafter_limit is None:
        return
    yield Trial(
        id=f"{route.name}/{side}-limit/cold/{repeat}" + _task_mark(suite, task),
        route=route.name,
        tier=side_tiers(suite, route, drafter_limit)[side],
        condition="cold",
        repeat=repeat,
        task=task,
        output_tokens=suite.output_tokens,
        side=side,
    )


def task_name(task: str) -> str:
    """A task as an id shows it: its name, or that of its file."""
    return task.replace("\\", "/").rsplit("/", 1)[-1].removesuffix(".md")


def _task_mark(suite: Suite, task: str) -> str:
    return f"~{task_name(task)}" if len(suite.prompt.tasks) > 1 else ""


def _turn(routes: Sequence[Route], repeat: int, seed: int) -> list[Route]:
    """The routes' order in one repeat: rotated every second repeat, reversed in between."""
    start = (seed + (repeat - 1) // 2) % len(routes)
    order = [*routes[start:], *routes[:start]]
    return order if repeat % 2 else order[::-1]


def _group(suite: Suite, route: Route, tier: int, repeat: int, task: str, level: int = 1) -> Iterable[Trial]:
    """A cold prompt and the trials that depend on its text, in order; above level 1 a wave of cold
    prompts, and the waves that depend on it."""
    streams = range(1, level + 1) if level > 1 else (0,)
    conditions: tuple[Condition, ...] = ("cold", "replay", "salted")
    for condition in conditions:
        if condition not in suite.conditions:
            continue
        replays = range(1, suite.replays + 1) if condition == "replay" else (0,)
        for replay, stream in product(replays, streams):
            yield Trial(
                id=f"{route.name}/{tier}/{condition}/{repeat}"
                + (f".{replay}" if replay else "")
                + (f"@{level}.{stream}" if stream else "")
                + _task_mark(suite, task),
                route=route.name,
                tier=tier,
                condition=condition,
                repeat=repeat,
                replay=replay,
                task=task,
                output_tokens=suite.output_tokens,
                concurrency=level,
                stream=stream,
            )


def groups(trials: Iterable[Trial]) -> list[tuple[Trial, ...]]:
    """Neighbouring trials that share a prompt's text, the texts of a wave, or a chat: each group starts
    with what is cold in it."""
    return [
        tuple(group)
        for _, group in groupby(
            trials,
            key=lambda one: (one.route, one.chat or one.tier, one.repeat, one.task, one.concurrency),
        )
    ]


def waves(group: Iterable[Trial]) -> list[tuple[Trial, ...]]:
    """A group's trials as they are sent: those of a wave together, others one by one."""
    return [
        tuple(wave)
        for _, wave in groupby(group, key=lambda one: (one.condition, one.replay, one.concurrency))
    ]


def wave_name(trial: Trial) -> str:
    """What the trials of a wave have in common: their id without the stream (`a/512/cold/1@4`)."""
    if trial.stream == 0:
        return trial.id
    level = f"@{trial.concurrency}"
    return trial.id.replace(f"{level}.{trial.stream}", level, 1)


def pair_key(suite: Suite, route: Route) -> str:
    """Routes with equal keys are sent the same prompts, so that they can be compared in pairs.

    Routes that share a cache (one server, or one external KV store: `cache_group`) must not see
    each other's prompts: each has a key of its own.
    """
    mine = cache_of(route)
    shared = sum(cache_of(other) == mine for other in suite.routes) > 1
    return f"route {route.name}" if shared else "all"


def cache_of(route: Route) -> str:
    """Name of the prefix cache that a route's server uses: its group, else its address.

    A server that the run starts for a route is new, and so is its cache.
    """
    if route.server is not None and route.cache_group is None:
        return f"server of {route.name}"
    return route.cache_group or str(server_at(route.base_url))
