"""From a suite to its trials, in the order in which they are sent. Pure and seeded."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby

from bench.records import Route, Suite, Trial


def plan(suite: Suite) -> tuple[Trial, ...]:
    """All trials of a suite in sending order.

    A cold prompt, its replays and its salted twin follow each other on one route, so that no other
    prompt of ours can push the cold one out of the cache before it is replayed. Interleaved suites
    go through all routes at every tier and repeat, in an order that turns and then reverses from
    repeat to repeat (ABC CBA BCA ...): slow drift of a machine then falls on all routes alike.
    Otherwise routes are measured one after another, since their servers cannot be up together.
    """
    if suite.interleave:
        groups = (
            (route, tier, repeat)
            for repeat in range(1, suite.repeats + 1)
            for tier in sorted(suite.tiers)
            for route in _turn(suite.routes, repeat, suite.seed)
        )
    else:
        groups = (
            (route, tier, repeat)
            for route in suite.routes
            for repeat in range(1, suite.repeats + 1)
            for tier in sorted(suite.tiers)
        )
    return tuple(trial for group in groups for trial in _group(suite, *group))


def _turn(routes: Sequence[Route], repeat: int, seed: int) -> list[Route]:
    """The routes' order in one repeat: rotated every second repeat, reversed in between."""
    start = (seed + (repeat - 1) // 2) % len(routes)
    order = [*routes[start:], *routes[:start]]
    return order if repeat % 2 else order[::-1]


def _group(suite: Suite, route: Route, tier: int, repeat: int) -> Iterable[Trial]:
    """A cold prompt and the trials that depend on its text, in order."""
    for condition in ("cold", "replay", "salted"):
        if condition not in suite.conditions:
            continue
        for replay in range(1, suite.replays + 1) if condition == "replay" else (0,):
            yield Trial(
                id=f"{route.name}/{tier}/{condition}/{repeat}" + (f".{replay}" if replay else ""),
                route=route.name,
                tier=tier,
                condition=condition,
                repeat=repeat,
                replay=replay,
                task=suite.prompt.task,
                output_tokens=suite.output_tokens,
            )


def groups(trials: Iterable[Trial]) -> list[tuple[Trial, ...]]:
    """Neighbouring trials that share a prompt's text: each group starts with its cold one."""
    return [
        tuple(group)
        for _, group in groupby(trials, key=lambda trial: (trial.route, trial.tier, trial.repeat))
    ]


def pair_key(suite: Suite, route: Route) -> str:
    """Routes with equal keys are sent the same prompts, so that they can be compared in pairs.

    Routes that share a cache (one server, or one external KV store: `cache_group`) must not see
    each other's prompts: each has a key of its own.
    """
    mine = cache_of(route)
    shared = sum(cache_of(other) == mine for other in suite.routes) > 1
    return f"route {route.name}" if shared else "all"


def cache_of(route: Route) -> str:
    """Name of the prefix cache that a route's server uses: its group, else its address."""
    return route.cache_group or route.base_url.split("://", 1)[1].split("/", 1)[0].lower()
