"""Two small cold prompts on a route: enough to say what its long ones will cost."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from msgspec import Struct

from bench.analysis.verdicts.timing import times
from bench.errors import EngineError
from bench.plan.times import RouteModel, calibrated, calibration_lengths
from bench.plan.trials import pair_key
from bench.prompting.compose import Composer
from bench.records import Suite, Trial
from bench.run.exchange import Exchanger
from bench.run.openroute import OpenRoute
from bench.run.progress import Progress

_OUTPUT_TOKENS = 16
_COMPOSABLE = 4096
"""So many tokens have room for any salt, task and template; a shorter prompt has where a tier is as short."""
_FIRST_NUMBER = 1_000_000
"""Numbers of the prompts, far from those of a run's warm-ups: no two share a salt."""


class Calibration(Struct, frozen=True, kw_only=True):
    """What a route's two prompts showed."""

    model: RouteModel
    note: str
    """The figures, for the reader of the run."""


async def calibrate(suite: Suite, opened: OpenRoute, composer: Composer, tiers: Sequence[int]) -> Calibration:
    """Sends the calibration prompts of one route, shortest first; `tiers` are all lengths of the plan.

    Raises `EngineError` when one of them fails.
    """
    name = opened.route.name
    points: list[tuple[int, float]] = []
    tpot_s: float | None = None
    exchanger = Exchanger(_keep_nothing, Progress(), keep_cancelled=False)
    for number, tokens in enumerate(lengths(tiers)):
        trial = Trial(
            id=f"{name}/calibration/{tokens}",
            route=name,
            tier=tokens,
            condition="cold",
            repeat=0,
            output_tokens=_OUTPUT_TOKENS,
        )
        prompt = await asyncio.to_thread(
            composer.compose_warmup,
            tokens,
            number=_FIRST_NUMBER + number,
            pair=pair_key(suite, opened.route),
        )
        exchange = await exchanger.perform(opened, prompt, trial, 1, "warmup")
        output = exchange.usage.completion_tokens if exchange.usage else None
        seen = times(exchange, output)
        if exchange.failure is not None or seen.ttft_s is None:
            why = exchange.failure.message if exchange.failure else "no text came"
            raise EngineError(f"route {name}: the calibration prompt of {tokens:,} tokens failed: {why}")
        points.append((tokens, seen.ttft_s))
        tpot_s = seen.tpot_s or tpot_s
    figures = ", ".join(f"{tokens:,} tokens in {ttft_s:.2f} s" for tokens, ttft_s in points)
    return Calibration(model=calibrated(name, points, tpot_s), note=f"calibrated: {name}: {figures}")


def lengths(tiers: Sequence[int]) -> tuple[int, ...]:
    """The calibration lengths, none below the shortest tier or below what can always be composed."""
    short, long = calibration_lengths(tiers)
    return tuple(sorted({max(short, min(min(tiers), _COMPOSABLE)), long}))


async def _keep_nothing(name: str, page: str) -> str:
    return name
