"""Up to which length a route's drafter takes part: from the model's config, or as the suite declares."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from bench.engines import context
from bench.engines.context import ContextVerdict
from bench.plan.trials import side_tiers
from bench.records import ServerFacts, Suite
from bench.run.openroute import OpenRoute
from bench.wire.modelconfig import read_config


def context_of(suite: Suite, opened: OpenRoute, folder: Path) -> ContextVerdict | None:
    """The context verdict on a route whose config is named; `folder`: where relative paths start.

    Raises `SuiteError` when the config cannot be used.
    """
    route, facts = opened.route, opened.facts
    if route.config is None:
        return None
    return context.judge(
        read_config(config_path(route.config, folder)),
        served=facts.max_model_len,
        speculation=route.speculation,
        engine=facts.engine,
        version=facts.version,
        # It is up at this length: if that is beyond what it derives, the switch for it must be on.
        allow_long=True,
        tiers=suite.tiers,
        output_tokens=suite.output_tokens,
    )


def config_path(config: str, folder: Path) -> str:
    """A config beside the suite file; else as it stands, since it may be a model id."""
    beside = folder / config
    return str(beside) if beside.exists() else config


def with_limits(suite: Suite, opened: OpenRoute, folder: Path) -> OpenRoute:
    """The route with its context verdict, and facts that hold the drafter limit and what follows past it.

    The suite's own declaration comes first: whoever writes it there has seen it. Then what the server
    (its log) says, then what the context rules make of the config.
    """
    verdict = context_of(suite, opened, folder)
    opened = msgspec.structs.replace(opened, context=verdict)
    facts, route = opened.facts, opened.route
    if route.speculation is None:
        return opened
    limit, source = _drafter_limit(opened)
    if limit is None:
        return opened
    past = (tuple(verdict.engine.past_limit) if verdict is not None else ()) or _past(facts, opened)
    facts = msgspec.structs.replace(
        facts,
        drafter_limit=limit,
        past_drafter_limit=past,
        sources={**facts.sources, "drafter_limit": source},
    )
    problem = opened.log_problem or _disagreement(opened, limit)
    return msgspec.structs.replace(opened, facts=facts, log_problem=problem)


def _disagreement(opened: OpenRoute, limit: int) -> str | None:
    """That the log states another drafter limit than the suite declares, or than the rules expect."""
    told, verdict = opened.facts.drafter_limit, opened.context
    if told is None:
        return None
    said = f"{told:,} ({opened.facts.sources.get('drafter_limit', 'the server')})"
    if told != limit:
        return f"the drafter limit is {limit:,} by the suite, {said} by the server: correct drafter_limit"
    expected = verdict.engine.drafter_limit if verdict is not None else None
    if expected is not None and expected != told:
        return f"the drafter limit is {expected:,} by the context rules, {said} by the server, which counts"
    return None


def _drafter_limit(opened: OpenRoute) -> tuple[int | None, str]:
    """The limit and where it is from; `None`: nobody says."""
    facts, route, verdict = opened.facts, opened.route, opened.context
    if route.drafter_limit is not None:
        return route.drafter_limit, "declared in the suite"
    if facts.drafter_limit is not None:
        return facts.drafter_limit, facts.sources.get("drafter_limit", "the server")
    return (verdict.engine.drafter_limit if verdict is not None else None), "context rules"


def over_limits(suite: Suite, open_routes: Mapping[str, OpenRoute]) -> dict[str, int]:
    """Drafter limits of the routes that both sides can be measured on: neither too short nor too long.

    A route whose server is not up yet counts with the limit that the suite declares.
    """
    found: dict[str, int] = {}
    for route in suite.routes:
        opened = open_routes.get(route.name)
        limit = opened.facts.drafter_limit if opened else route.drafter_limit
        if limit is not None and not (opened and over_limit_problem(suite, opened)):
            found[route.name] = limit
    return found if "over-limit" in suite.conditions else {}


def over_limit_problem(suite: Suite, opened: OpenRoute) -> str | None:
    """Why the condition `over-limit` cannot be measured on a speculating route; `None`: it can."""
    facts, route = opened.facts, opened.route
    if route.speculation is None or facts.drafter_limit is None:
        return "the drafter limit is not known: give config = or drafter_limit = on this route"
    tiers = side_tiers(suite, route, facts.drafter_limit)
    limit, served = facts.drafter_limit, facts.max_model_len
    if served is not None and tiers["over"] + suite.output_tokens > served:
        return f"nothing can be sent past the drafter limit of {limit:,}: {served:,} tokens are served"
    if tiers["under"] < 16:
        return (
            f"no prompt with {suite.output_tokens:,} output tokens fits under the drafter limit of {limit:,}"
        )
    return None


def _past(facts: ServerFacts, opened: OpenRoute) -> tuple[str, ...]:
    """What this version does past any drafter limit: the rules' answer for a model that ends at 1,000."""
    native = {"max_position_embeddings": 1_000, "num_nextn_predict_layers": 1}
    verdict = context.judge(
        native, speculation=opened.route.speculation, engine=facts.engine, version=facts.version
    )
    return tuple(verdict.engine.past_limit) if facts.version else ()
