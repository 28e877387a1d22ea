"""Verifies the crossovers that a finished run has only extrapolated: a few long trials of their own.

They are a small run in a folder of the run (`RUN/verify`), with a plan, a journal and a lock of its own:
no statistic of the suite's trials can mix with them, and an interrupted one is resumed like any run.
Each prompt is a new cold one, sent once per route with about 1.2 n* output tokens: a replay would need
that cold prompt before it anyway, since by now the cache has moved on or its server was stopped.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct, structs

from bench.analysis.decisions.crossover import crossovers, one_way
from bench.analysis.decisions.verified import is_testable, tokens_wanted
from bench.analysis.statistics.arrival import measured_with_curves
from bench.analysis.statistics.cells import plain_route, same_tier
from bench.analysis.statistics.curves import Curves
from bench.journal import FOLLOW_UP, SCHEMA, Journal, has_follow_up, read_entries, read_info
from bench.plan.durations import words
from bench.plan.estimate import PlanEstimate
from bench.plan.times import RouteModel, learn
from bench.plan.trials import plan
from bench.records import Crossover, Event, Exchange, Measurement, RunInfo, Suite, Trial
from bench.records.events import FINISHED
from bench.run.exchange import utc_now
from bench.run.forecast.outlook import forecast
from bench.run.progress import Progress
from bench.run.study import resume

_SHORT = 1.05  # a reach below 1.05 n* shows too little of the far side

_Place = tuple[str, int, str]
"""Route, tier and task of a trial."""


class Target(Struct, frozen=True, kw_only=True):
    """A crossover to be verified, and the output tokens both routes will decode for it."""

    crossover: Crossover
    tier: int
    """As the suite has it."""
    tokens: int
    note: str = ""
    """What its reader must know."""


class FollowUp(Struct, frozen=True, kw_only=True):
    """What will be sent to verify crossovers, what it costs, and what is left out for which reason."""

    suite: Suite
    targets: tuple[Target, ...]
    trials: tuple[Trial, ...]
    estimate: PlanEstimate
    budget_s: float
    left_out: tuple[str, ...] = ()

    def lines(self) -> list[str]:
        """For people, before anything is sent."""
        found = [
            f"verify: {_named(one.crossover)}: {one.tokens:,} output tokens on both{one.note}"
            for one in self.targets
        ]
        if self.trials:
            cost = words(self.estimate.total_s or 0.0)
            again = "; servers of this run start again" if any(r.server for r in self.suite.routes) else ""
            most = words(self.budget_s)
            found.append(f"verify: {len(self.trials)} more trials, about {cost} of at most {most}{again}")
        found += [f"verify: left out: {text}" for text in self.left_out]
        return found or ["verify: no crossover is extrapolated, there is nothing to verify"]


async def verify(
    path: Path,
    progress: Progress,
    *,
    folder: Path | None = None,
    suite: Suite | None = None,
    budget_s: float | None = None,
    force: bool = False,
) -> None:
    """Plans the follow-up of a finished run, unless it has one, and sends what is left of it.

    The plan is told (`progress.notes`) and kept before anything is sent. `budget_s`: longest expected
    time; `None`: what the suite's budget leaves, without one as long as the run itself has taken.
    `folder`, `suite`, `force`: as for `bench.run.study.resume`, whose errors this raises.
    """
    own = path / FOLLOW_UP
    if not has_follow_up(path):
        found = planned(path, budget_s)
        progress.notes.extend(found.lines())
        if not found.trials:
            return
        with Journal.create(own, _info(read_info(path), found)):
            pass
    try:
        await resume(own, progress, folder=folder, suite=suite, force=force)
    finally:
        progress.path = path


def planned(path: Path, budget_s: float | None = None) -> FollowUp:
    """The follow-up of a finished run, as far as its budget goes. Raises `JournalError`."""
    info = read_info(path)
    rows, curves = _measured(path)
    found = one_way(crossovers(rows, curves=curves))
    models = {r.name: learn(r.name, rows, basis="this run") for r in info.suite.routes}
    budget = budget_s if budget_s is not None else _budget(info, _spent_s(path))
    return within(info, found, models, budget)


def _measured(path: Path) -> tuple[list[Measurement], Curves]:
    return measured_with_curves(
        read_info(path), (entry for entry in read_entries(path) if isinstance(entry, Exchange))
    )


def _spent_s(path: Path) -> float:
    """Wall time of all sessions of a run."""
    times = [
        entry.data.get("wall_s")
        for entry in read_entries(path)
        if isinstance(entry, Event) and entry.name == FINISHED
    ]
    return sum(float(t) for t in times if isinstance(t, int | float))


def _budget(info: RunInfo, spent_s: float) -> float:
    return spent_s if info.suite.budget_s is None else max(0.0, info.suite.budget_s - spent_s)


def within(
    info: RunInfo, found: Sequence[Crossover], models: Mapping[str, RouteModel], budget_s: float
) -> FollowUp:
    """As many crossovers as fit into the budget, the shortest first."""
    follow = FollowUp(
        suite=info.suite, targets=(), trials=(), estimate=PlanEstimate(trials=()), budget_s=budget_s
    )
    left_out: list[str] = []
    for one in sorted(filter(is_testable, found), key=lambda it: it.output_tokens or 0.0):
        target = _target(info, one)
        if isinstance(target, str):
            left_out.append(f"{_named(one)}: {target}")
            continue
        more = _with(info.suite, (*follow.targets, target), models, budget_s)
        cost = more.estimate.total_s
        if cost is None:
            left_out.append(f"{_named(one)}: its time is not known")
        elif cost > budget_s:
            needs = words(cost - (follow.estimate.total_s or 0.0))
            left_out.append(f"{_named(one)}: {needs} more, with it over the {words(budget_s)} there are")
        else:
            follow = more
    return structs.replace(follow, left_out=tuple(left_out))


def _target(info: RunInfo, one: Crossover) -> Target | str:
    """How far to decode for a crossover, or why that cannot be."""
    tier = next((tier for tier in info.suite.tiers if same_tier(tier, one.tier)), None)
    if tier is None:
        return "its prompt length is none of the suite's tiers"
    limit = _limit(info, (one.route, one.base))
    tokens = tokens_wanted(one) if limit is None else min(tokens_wanted(one), limit - tier)
    if tokens < _SHORT * (one.output_tokens or 0.0):
        return f"prompt and output would pass the {limit:,} tokens that one of the servers holds"
    return Target(crossover=one, tier=tier, tokens=tokens, note=_drafter_note(info, one, tier + tokens))


def _drafter_note(info: RunInfo, one: Crossover, end: int) -> str:
    for route in map(plain_route, (one.route, one.base)):
        facts = info.facts.get(route)
        limit = facts.drafter_limit if facts is not None else None
        if limit is not None and one.tier < limit < end:
            return f"; {route} drafts only up to {limit:,} tokens, which they pass"
    return ""


def _limit(info: RunInfo, labels: Sequence[str]) -> int | None:
    """Longest sequence that all of these routes' servers serve and have room for, as far as known."""
    facts = [info.facts.get(plain_route(label)) for label in labels]
    limits = [
        limit for fact in facts if fact for limit in (fact.max_model_len, fact.kv_capacity_tokens) if limit
    ]
    return min(limits, default=None)


def _with(
    base: Suite, targets: Sequence[Target], models: Mapping[str, RouteModel], budget_s: float
) -> FollowUp:
    wanted: dict[_Place, int] = {}
    for target in targets:
        for label in (target.crossover.route, target.crossover.base):
            place = (plain_route(label), target.tier, target.crossover.task)
            wanted[place] = max(wanted.get(place, 0), target.tokens)
    suite = _suite(base, wanted)
    trials = tuple(
        structs.replace(trial, output_tokens=wanted[_place(trial)])
        for trial in plan(suite)
        if _place(trial) in wanted
    )
    return FollowUp(
        suite=suite,
        targets=tuple(targets),
        trials=trials,
        estimate=forecast(suite, trials, models),
        budget_s=budget_s,
    )


def _place(trial: Trial) -> _Place:
    return trial.route, trial.tier, trial.task


def _suite(base: Suite, wanted: Mapping[_Place, int]) -> Suite:
    """The suite as it was, reduced to one cold prompt on the routes and tiers that are wanted."""
    routes = {route for route, _, _ in wanted}
    return structs.replace(
        base,
        name=f"{base.name}-{FOLLOW_UP}",
        tiers=tuple(tier for tier in base.tiers if any(tier == it for _, it, _ in wanted)),
        conditions=("cold",),
        output_tokens=max(wanted.values()),
        repeats=1,
        replays=0,
        concurrency=(1,),
        budget_s=None,
        chats=None,
        routes=tuple(route for route in base.routes if route.name in routes),
    )


def _info(base: RunInfo, found: FollowUp) -> RunInfo:
    names = {route.name for route in found.suite.routes}
    return RunInfo(
        schema=SCHEMA,
        id=FOLLOW_UP,
        created_at=utc_now(),
        nonce=secrets.token_hex(8),
        suite=found.suite,
        suite_text=base.suite_text,
        folder=base.folder,
        plan=found.trials,
        facts={name: fact for name, fact in base.facts.items() if name in names},
        tokenizers={name: one for name, one in base.tokenizers.items() if name in names},
        environment=base.environment,
        notes=(f"verifies crossovers of {base.id}", *found.lines()),
    )


def _named(one: Crossover) -> str:
    tokens = f"{one.output_tokens or 0:,.0f}"
    return f"{one.route} against {one.base} at {one.tier:,} {one.condition}, crossover {tokens}"
