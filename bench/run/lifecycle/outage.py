"""Is a server there again? Asked after a request that failed by the server's fault (`verdicts.blame`)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

import msgspec
from msgspec import Struct

from bench.analysis.verdicts.blame import is_servers_fault, means_later
from bench.errors import EngineError
from bench.records import Failure, Trial
from bench.run.exchange import PATHS, body_of
from bench.run.openroute import OpenRoute, names_in, shown_names
from bench.run.preflight.probe import busy, tiny_prompt
from bench.wire.client import finish
from bench.wire.failures import StatusError

RETURN_LIMIT_S = 900.0
"""How long a server is waited for: a large model is loaded within it."""
_MODELS_TIMEOUT_S = 15.0
_ANSWER_LIMIT_S = 60.0
_TOKENS = 2
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.5, 5.0


class Return(Struct, frozen=True, kw_only=True):
    """How the wait for a server ended."""

    back: bool
    waited_s: float
    last: str = ""
    """What was in the way at the last look; empty: nothing."""


async def wait_back(
    opened: OpenRoute,
    *,
    limit_s: float,
    say: Callable[[str], Awaitable[None]],
    counts: bool = False,
    clock: Callable[[], float] = time.monotonic,
) -> Return:
    """Waits until a server answers a tiny request, at most about `limit_s`.

    `say` is told once what is in the way, if the server is not there at the first look. `counts`: as
    `missing` takes it.
    """
    started, pause, told = clock(), _FIRST_PAUSE_S, False
    while True:
        problem = await missing(opened, counts=counts)
        waited_s = clock() - started
        if problem is None or waited_s >= limit_s:
            return Return(back=problem is None, waited_s=waited_s, last=problem or "")
        if not told:
            told = True
            await say(problem)
        await asyncio.sleep(min(pause, limit_s - waited_s))
        pause = min(pause * 1.5, _LONGEST_PAUSE_S)


async def missing(opened: OpenRoute, *, counts: bool = False) -> str | None:
    """What a server lacks to be measured now; `None`: it lists its model, is idle and answers.

    `counts`: prompts are counted by its own tokenizer, so that must answer as well.

    The cheapest look comes first, and a request is sent only to a server that works for nobody: an
    API may live on before a dead engine, and one that was hung up on may still be computing.
    """
    try:
        models = await opened.client.get_json("/models", timeout_s=_MODELS_TIMEOUT_S)
    except StatusError as error:
        if means_later(error.status):
            return str(error)
    except EngineError as error:
        return str(error)
    else:
        if (other := _other_model(models, opened.model)) is not None:
            return other
    if counts and (problem := await _counts_not(opened)) is not None:
        return problem
    if await busy(opened):
        return f"{opened.root} is at work for somebody, or gives no metrics page"
    failure = await _ask(opened)
    return failure.message if failure is not None and is_servers_fault(failure) else None


async def _counts_not(opened: OpenRoute) -> str | None:
    """Why the server's own tokenizer does not answer now; `None`: it does, or never will."""
    request = opened.dialect.tokenize_request("a", opened.model)
    if request is None:
        return None
    path, body = request
    try:
        await opened.client.post_json(opened.root + path, body, timeout_s=_MODELS_TIMEOUT_S)
    except StatusError as error:
        return str(error) if means_later(error.status) else None
    except EngineError as error:
        return str(error)
    return None


def _other_model(models: object, model: str) -> str | None:
    names = names_in(models)
    return None if not names or model in names else f"it serves {shown_names(names)}, not {model}"


async def _ask(opened: OpenRoute) -> Failure | None:
    """How a request of a few tokens fails; `None`: it does not."""
    settings, prompt = opened.route.request, tiny_prompt(opened)
    patience_s = min(settings.timeouts.first_token_s or _ANSWER_LIMIT_S, _ANSWER_LIMIT_S)
    timeouts = msgspec.structs.replace(
        settings.timeouts,
        first_token_s=patience_s,
        upload_s=min(settings.timeouts.upload_s, _ANSWER_LIMIT_S),
        idle_s=min(settings.timeouts.idle_s, _ANSWER_LIMIT_S),
    )
    prepared = opened.client.prepare(
        PATHS[settings.endpoint],
        body_of(opened, prompt, _TOKENS).data,
        timeouts=timeouts,
        prompt_tokens=0,
        endpoint=settings.endpoint,
    )
    raw = await opened.client.exchange(prepared)
    trial = Trial(id="look", route=opened.route.name, tier=0, condition="cold", repeat=0)
    return (await finish(raw, prepared, trial=trial, prompt=prompt.recipe, request={})).failure
