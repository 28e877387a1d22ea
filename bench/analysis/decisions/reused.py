"""Crossovers for a chosen cached part of the prompt, from the laws: no such prompt need be measured.

ttft(n, m) of a prompt of n tokens, m of them cached, comes from each route's prefill law (`prefill`),
the time per token from its decode law (`decode`), at the context that grows with every token. Both
measured conditions, nothing cached and all but the last block, stay with `crossover`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from msgspec import structs

from bench.analysis.decisions.claims import by_points, status_of
from bench.analysis.decisions.crossover import one_way
from bench.analysis.decisions.meeting import of_gaps, of_lines, with_end
from bench.analysis.statistics import bootstrap, decode, prefill
from bench.analysis.statistics.bootstrap import Floats
from bench.analysis.statistics.cells import labelled, named, plain_route, pooled, routes_of, usable
from bench.analysis.statistics.decode import DecodeLaw
from bench.analysis.statistics.latency import steps_to
from bench.analysis.statistics.prefill import PrefillLaw
from bench.analysis.statistics.texts import Texts
from bench.errors import SuiteError
from bench.records import Crossover, Estimate, Measurement, Spread

_GRID: Floats = np.geomspace(1.0, 1e8, 8192)
"""Output lengths that are looked at."""


class Reuse(NamedTuple):
    """How much of a prompt is cached: a number of tokens, or a share of every prompt."""

    tokens: int | None = None
    share: float | None = None

    def of(self, prompt: int) -> int:
        """Cached tokens of a prompt: a number may be more than it holds, a share below 1 is never all."""
        if self.tokens is not None:
            return self.tokens
        share = self.share or 0.0
        return min(round(share * prompt), prompt - 1 if share < 1 else prompt)

    def __str__(self) -> str:
        """As it is given on a command line: `75%` or `120000`."""
        return f"{(self.share or 0) * 100:g}%" if self.tokens is None else str(self.tokens)


def parse_reuse(text: str) -> Reuse:
    """`120000` or `75%`. Raises `SuiteError` otherwise."""
    digits = text.strip().replace(",", "").replace("_", "")
    try:
        if digits.endswith("%"):
            share = float(digits[:-1]) / 100
            if 0 <= share < 1:
                return Reuse(share=share)
        elif digits.isascii() and digits.isdigit() and len(digits) < 13:
            return Reuse(tokens=int(digits))
    except ValueError:
        pass  # the refusal below says what is allowed
    raise SuiteError(f"--reused {text[:40]!r}: give cached tokens (120000), or a share from 0% to below 100%")


def reused_crossovers(
    measurements: Iterable[Measurement], reuse: Reuse, *, blocks: Mapping[str, int] | None = None
) -> tuple[Crossover, ...]:
    """One a pair and tier, by task and tier: what a report shows. `blocks` as in `reuse_crossovers`.

    Raises `SuiteError` where no pair of routes has the laws, or no prompt is longer than its cached part.
    """
    found = one_way(reuse_crossovers(measurements, reuse, blocks=blocks))
    if any(one.ttft_difference_s is not None for one in found):
        return tuple(sorted(found, key=lambda one: (one.task, one.tier)))
    why = "; ".join(dict.fromkeys(text for one in found for text in one.warnings))
    raise SuiteError(
        f"--reused {reuse}: two routes with a prefill law (two tiers or more) and a decode rate are "
        f"needed ({why or 'no two routes were measured'})"
    )


class _Decoding(NamedTuple):
    """A route's decoding behind prompts of one length."""

    law: DecodeLaw
    seconds: Floats
    """Behind the first chunk, up to every output length of the grid; reckoned once for all pairs."""
    half_s: Floats
    """Half of the spread of these; NaN where unknown."""


_Steps = tuple[_Decoding, _Decoding]


class _Reckoned(NamedTuple):
    """What the laws say of one route at one prompt length."""

    route: str
    ttft: Estimate | None
    step: _Decoding | None
    law: PrefillLaw
    texts: int
    trials: int


def reuse_crossovers(
    measurements: Iterable[Measurement],
    reuse: Reuse,
    base: str | None = None,
    *,
    blocks: Mapping[str, int] | None = None,
) -> list[Crossover]:
    """Crossovers at every measured prompt length with a part of the prompt cached, task by task.

    As `crossover.crossovers`: `base=None` takes every pair both ways. A pair without both laws is
    `undecided`, and its warnings say why. The spread comes from those of the laws, which are taken as
    independent of each other; without one there is a point where the routes cross, and no other claim.
    `blocks`: tokens of a cache block by route, where known: a part that is no whole block, or more than
    the replays reused, is named. Raises `SuiteError` when no route is called `base`, or no prompt is longer
    than its cached part.
    """
    rows = [row for row in labelled(measurements) if usable(row)]
    routes = routes_of(rows)
    bases = named(routes, base) if base is not None else routes
    found: list[Crossover] = []
    for task in dict.fromkeys(row.task for row in rows):
        mine = [row for row in rows if row.task == task]
        ttfts, steps = prefill.fit(mine), decode.fit(mine)
        tiers = sorted({row.tier for row in mine})
        longer = [tier for tier in tiers if reuse.of(tier) < tier]
        for tier in longer:
            cached = reuse.of(tier)
            at = [row for row in mine if row.tier == tier]
            sides = {r: _reckoned(r, tier, cached, ttfts[r], steps.get(r), at) for r in routes_of(at)}
            unseen = {r: _unseen(r, cached, at, (blocks or {}).get(plain_route(r))) for r in sides}
            if shorter := tiers[: len(tiers) - len(longer)]:
                unseen = {r: [*told, f"{r}: {_all_cached(shorter)}"] for r, told in unseen.items()}
            found += [
                _noted(_crossover(sides[route], sides[one], tier, cached, task), unseen)
                for one in bases
                for route in sides
                if route != one and one in sides
            ]
    longest = max((row.tier for row in rows), default=0)
    if longest and reuse.of(longest) >= longest:
        asked = reuse if reuse.tokens is None else f"{reuse.tokens:,}"
        raise SuiteError(
            f"--reused {asked}: no measured prompt is longer than that; the longest has {longest:,} tokens"
        )
    return found


def _all_cached(tiers: Sequence[int]) -> str:
    named = " and ".join(f"{tier:,}" for tier in tiers)
    return f"prompts of {named} tokens are no longer than the cached part: nothing is told of them"


def _reckoned(
    route: str, tier: int, cached: int, law: PrefillLaw, step: DecodeLaw | None, rows: Sequence[Measurement]
) -> _Reckoned:
    cold = [row for row in rows if row.route == route and pooled(row.condition) == "cold"]
    steps = _decoding(step, tier) if step is not None else None
    return _Reckoned(route, law.predict(tier, cached), steps, law, len(Texts(cold)), len(cold))


def _decoding(law: DecodeLaw, tier: int) -> _Decoding:
    steps, context = steps_to(_GRID, law.first_chunk_tokens), tier + _GRID / 2
    return _Decoding(law, steps * law.at(context), steps * law.half_at(context))


def _unseen(route: str, cached: int, rows: Sequence[Measurement], block: int | None) -> list[str]:
    """What is odd about this cached part for a route at one prompt length."""
    found = []
    counts = [row.cached_tokens for row in rows if row.route == route and row.condition == "replay"]
    most = max((count for count in counts if count is not None), default=None)
    if most is not None and cached > most:
        found.append(f"{route}: replays reused {most:,} tokens at most: {cached:,} were never measured")
    broken = no_whole_blocks(cached, block)
    return [*found, f"{route}: {broken}"] if broken else found


def no_whole_blocks(cached: int, block: int | None) -> str | None:
    """What a server would reuse of a cached part that is no whole blocks; `None`: it is, or none is known."""
    if not block or not cached % block:
        return None
    whole = cached // block * block
    return f"{cached:,} tokens are no whole blocks of {block:,}: it would reuse {whole:,}"


def _noted(one: Crossover, unseen: Mapping[str, Sequence[str]]) -> Crossover:
    return structs.replace(one, warnings=(*one.warnings, *unseen[one.route], *unseen[one.base]))


def _crossover(a: _Reckoned, b: _Reckoned, tier: int, cached: int, task: str) -> Crossover:
    one = Crossover(
        route=a.route,
        base=b.route,
        tier=tier,
        condition="replay" if cached else "cold",
        task=task,
        status="undecided",
        samples=(a.texts, b.texts),
        trials=None if (a.texts, b.texts) == (a.trials, b.trials) else (a.trials, b.trials),
        reused_tokens=cached,
        warnings=_warnings(a, b, cached),
    )
    if a.ttft is None or b.ttft is None or a.step is None or b.step is None:
        return one
    measured = min(a.step.law.longest_output, b.step.law.longest_output)
    context = tier + measured / 2
    ttft = _difference(a.ttft, b.ttft)
    tpot = _difference(_step(a.step.law, context), _step(b.step.law, context))
    return _located(one, ttft, tpot, (a.step, b.step), measured)


def _warnings(a: _Reckoned, b: _Reckoned, cached: int) -> tuple[str, ...]:
    found = []
    for side in (a, b):
        if side.ttft is None:
            found.append(f"{side.route}: {side.law.absent}")
        elif side.step is None:
            found.append(f"{side.route}: no decode rate was measured")
        if cached and side.ttft is not None and side.law.cached_s is None:
            found.append(f"{side.route}: no replay was measured, a cached token is reckoned as free")
        found += [f"{side.route}: {text}" for text in side.law.warnings]
    return tuple(found)


def _step(law: DecodeLaw, context: float) -> Estimate:
    value, half = float(law.at(context)), float(law.half_at(context))
    if not math.isfinite(half):
        return Estimate(value=value, samples=law.samples)
    return Estimate(value=value, low=max(0.0, value - half), high=value + half, samples=law.samples)


def _difference(a: Estimate, b: Estimate) -> Estimate:
    """a - b; two independent half widths add in squares."""
    value, samples = a.value - b.value, min(a.samples, b.samples)
    if a.low is None or a.high is None or b.low is None or b.high is None:
        return Estimate(value=value, samples=samples)
    # the upper halves: a lower end that would be below 0 is cut off there
    half = math.hypot(a.high - a.value, b.high - b.value)
    return Estimate(value=value, low=value - half, high=value + half, samples=samples)


def _located(one: Crossover, ttft: Estimate, tpot: Estimate, steps: _Steps, measured: int) -> Crossover:
    status = status_of(ttft, tpot)
    one = structs.replace(
        one, status=status, measured=measured, ttft_difference_s=ttft, tpot_difference_s=tpot
    )
    if ttft.low is None or tpot.low is None:
        points = by_points(one.route, one.base, ttft, tpot)
        why = f"no spread is known (two tiers give a law none): {points}"
        one = structs.replace(one, warnings=(*one.warnings, *([why] if points else [])))
    if status == "undecided":
        return one
    ahead = {"always": -1, "never": 1}.get(status, -1 if tpot.value < 0 else 1)
    known = min(step.law.longest_context for step in steps) - one.tier
    spread: Spread = "interval" if min(one.samples) >= bootstrap.MINIMUM else "range"
    met, until = _lead_of(ttft, steps, ahead, known, spread)
    if status == "crosses":
        if met is None:
            never = "by these laws they never meet"
            return structs.replace(one, status="undecided", warnings=(*one.warnings, never))
        one = structs.replace(
            one,
            wins="above" if ahead < 0 else "below",
            output_tokens=met.value,
            low=met.low,
            high=met.high,
            spread=met.spread,
            extrapolation=met.value / measured if measured else None,
            basis="law",
            line_tokens=_straight(ttft, steps, one.tier + measured / 2, ahead),
        )
    return with_end(one, until, known)


def _straight(ttft: Estimate, steps: _Steps, context: float, ahead: int) -> float:
    """n* of straight lines with the step times of one context."""
    (pa, ca), (pb, cb) = ((law.at(context), np.asarray(law.first_chunk_tokens)) for law, _, _ in steps)
    return float(of_lines(np.asarray(ttft.value), pa, ca, np.zeros(()), pb, cb, ahead=ahead).at)


def _lead_of(
    ttft: Estimate, steps: _Steps, ahead: int, known: float, spread: Spread
) -> tuple[Estimate | None, Estimate | None]:
    """Where the two latencies are equal, and where the lead taken there ends, with their spreads.

    A spread are the output lengths at which the latencies are not told apart: half of the spread of their
    difference joins those of the TTFTs and of both step times at that length, slopes and all, added in
    squares (E. C. Fieller's way with a quotient, JRSS B 16, 1954). An end that is not reached is left open.
    """
    a, b = steps
    behind = -ahead * (ttft.value + a.seconds - b.seconds)
    at, until = (float(place[0]) for place in of_gaps(_GRID, behind[None, :], ahead=-1, known=known))
    half = np.full(_GRID.size, np.nan)
    if ttft.low is not None and ttft.high is not None:
        parts = (ttft.high - ttft.low) / 2, a.half_s, b.half_s
        half = np.sqrt(sum(np.square(part) for part in parts))
    samples = ttft.samples
    if np.isnan(half).any():
        return bootstrap.estimate(at, None, None, samples), bootstrap.estimate(until, None, None, samples)
    return (
        _told(at, (behind - half, behind + half), -1, spread, samples),
        _told(until, (behind + half, behind - half), 1, spread, samples),
    )


def _told(
    place: float, edges: tuple[Floats, Floats], ahead: int, spread: Spread, samples: int
) -> Estimate | None:
    """A place where a gap takes the sign `ahead`, between the two at which the edges of its spread do."""
    if not np.isfinite(place):
        return None
    before = int(np.searchsorted(_GRID, place, side="right")) - 1
    first, last = slice(0, before + 2), slice(before, None)
    low = float(of_gaps(_GRID[first], edges[0][None, first], ahead=ahead).at[0])
    high = float(of_gaps(_GRID[last], edges[1][None, last], ahead=ahead, known=0.0).at[0])
    return Estimate(
        value=place,
        low=min(low, place) if np.isfinite(low) else None,
        high=max(high, place) if np.isfinite(high) else None,
        spread=spread,
        samples=samples,
    )
