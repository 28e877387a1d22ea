"""How a route's decoding slows as its context grows.

One step reads the weights once and the whole KV cache once, so its time is d0 + d1 x context. A
stream of m tokens behind a prompt of N has a mean context of N + m/2; over several tiers the two
terms can be told apart.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from statistics import median

import numpy as np
from msgspec import Struct

from bench.analysis.statistics import bootstrap
from bench.analysis.statistics.bootstrap import Floats
from bench.analysis.statistics.cells import labelled, usable
from bench.analysis.statistics.prefill import student_t
from bench.analysis.statistics.texts import Texts
from bench.records import Estimate, Measurement

_LEAST_CHUNKS = 64  # a stream of fewer chunks shows no curvature


class DecodeLaw(Struct, frozen=True, kw_only=True):
    """Time per output token of one route over the context length, from all its valid trials.

    Decoding does not depend on how the prompt came into the cache, so cold, salted and replayed
    trials count alike.
    """

    route: str
    contexts: tuple[float, ...]
    """Mean context of each measured tier, tokens, ascending."""
    tpot_s: tuple[float, ...]
    """Median time per output token there."""
    half_s: tuple[float | None, ...]
    """Half of its interval or range there; `None` with a single trial."""
    longest_output: int
    """Longest output measured, tokens."""
    longest_prompt: int
    base_s: float
    """d0: seconds per token at no context."""
    slope_s: float
    """d1: seconds per token for each token of context; 0 with a single tier."""
    samples: int
    """Prompt texts, those of each tier counted."""
    trials: int
    """Their trials."""
    steps_s: tuple[tuple[float, ...], ...] = ()
    """What each of `tpot_s` is the median of: one step time a text."""
    slope_weights: tuple[float, ...] = ()
    """How far d1 moves with a relative change of each tier's step time; empty with a single tier."""
    first_chunk_tokens: float = 1.0
    """c0: tokens of the first chunk, which no step is counted for; median over its texts."""
    warnings: tuple[str, ...] = ()

    @property
    def tiers(self) -> int:
        """Number of prompt lengths behind the law."""
        return len(self.contexts)

    @property
    def longest_context(self) -> int:
        """Tokens of prompt and output behind which nothing was measured."""
        return self.longest_prompt + self.longest_output

    def at(self, context: float | Floats) -> Floats:
        """Seconds per output token at a mean context: between tiers by interpolation, outside by the law.

        Outside the measured contexts the nearest tier is moved along the slope.
        """
        asked = np.asarray(context, dtype=float)
        inside: Floats = np.interp(asked, self.contexts, self.tpot_s)
        below = np.minimum(asked - self.contexts[0], 0)
        above = np.maximum(asked - self.contexts[-1], 0)
        moved = inside + self.slope_s * (below + above)
        return np.maximum(moved, 0.05 * inside)  # far below the first tier a line can reach 0

    def half_at(self, context: float | Floats) -> Floats:
        """Half of the spread there; NaN where unknown.

        Between tiers in proportion to the step time. Outside, the spreads of all tiers move the slope,
        and that of the nearest tier its end, too: squares are added. One tier says nothing of a slope, so
        its spread stays in proportion.
        """
        share = [math.nan if h is None else h / t for h, t in zip(self.half_s, self.tpot_s, strict=True)]
        asked = np.asarray(context, dtype=float)
        inside: Floats = np.interp(asked, self.contexts, share) * self.at(asked)
        if not self.slope_weights:
            return inside
        beyond = asked - np.clip(asked, self.contexts[0], self.contexts[-1])
        nearest = np.where(beyond < 0, 0, self.tiers - 1)[..., None] == np.arange(self.tiers)
        pulls = np.where(nearest, self.tpot_s, 0.0) + beyond[..., None] * np.array(self.slope_weights)
        outside: Floats = np.sqrt(np.sum((pulls * np.array(share)) ** 2, axis=-1))
        return np.where(beyond == 0, inside, outside)


def fit(measurements: Iterable[Measurement]) -> dict[str, DecodeLaw]:
    """The law of every route that has a decode rate anywhere."""
    rows: dict[str, dict[int, list[Measurement]]] = {}
    for row in labelled(measurements):
        if usable(row) and row.tpot_s is not None:
            rows.setdefault(row.route, {}).setdefault(row.tier, []).append(row)
    return {route: _law(route, tiers) for route, tiers in rows.items()}


def stream_slope(streams: Sequence[tuple[Floats, Floats]]) -> Estimate | None:
    """Seconds a step grows per token of context, as the streams themselves show it: (tokens, seconds) each.

    A stream is time over tokens, t = t0 + s k + d1 k^2 / 2, by least squares; mean over streams with the
    95% interval of Student's t. `None` below three streams of 64 chunks.
    """
    long = [(tokens, seconds) for tokens, seconds in streams if tokens.size >= _LEAST_CHUNKS]
    if len(long) < 3:
        return None
    slopes = [2 * float(np.polyfit(tokens - tokens[0], seconds, 2)[0]) for tokens, seconds in long]
    value = float(np.mean(slopes))
    half = student_t(len(slopes) - 1) * float(np.std(slopes, ddof=1)) / math.sqrt(len(slopes))
    return Estimate(value=value, low=value - half, high=value + half, spread="interval", samples=len(slopes))


def mean_context(rows: Sequence[Measurement]) -> float:
    """Prompt plus half the output, median over trials."""
    return median((row.prompt_tokens or row.tier) + (row.output_tokens or 0) / 2 for row in rows)


def _context(point: tuple[float, Floats]) -> float:
    return point[0]


def _law(route: str, tiers: dict[int, list[Measurement]]) -> DecodeLaw:
    steps = sorted(((mean_context(r), Texts(r).column("tpot_s")) for r in tiers.values()), key=_context)
    points = [(context, bootstrap.median(values)) for context, values in steps]
    contexts = np.array([context for context, _ in points])
    times = np.array([estimate.value for _, estimate in points])
    halves = tuple(
        None if e.low is None or e.high is None else max(e.high - e.value, e.value - e.low) for _, e in points
    )
    rows = [row for tier in tiers.values() for row in tier]
    base, slope, warnings = float(times[0]), 0.0, []
    weights: tuple[float, ...] = ()
    if len(points) >= 2:
        # relative errors: a slow tier must not outweigh a fast one
        design = np.stack([np.ones_like(contexts), contexts], axis=1) / times[:, None]
        scale = np.array([1.0, 1.0 / contexts.max()])
        inverse = np.linalg.pinv(design * scale) * scale[:, None]
        base, slope = map(float, inverse.sum(axis=1))
        weights = tuple(map(float, inverse[1]))
        misfit = float(np.max(np.abs((base + slope * contexts) / times - 1)))
        if misfit > 0.1:
            warnings.append(f"the step time is no line over context: the law misses a tier by {misfit:.0%}")
        if slope < 0:
            warnings.append("decode got faster with context: noise, or acceptance differs between tiers")
            base, slope = bootstrap.middle(times), 0.0
    else:
        warnings.append(f"one tier ({contexts[0]:,.0f} tokens of context): how decode slows is unknown")
    return DecodeLaw(
        route=route,
        contexts=tuple(map(float, contexts)),
        tpot_s=tuple(map(float, times)),
        base_s=base,
        slope_s=slope,
        half_s=halves,
        longest_output=max(row.output_tokens or 0 for row in rows),
        longest_prompt=max(row.prompt_tokens or row.tier for row in rows),
        samples=sum(values.size for _, values in steps),
        trials=len(rows),
        steps_s=tuple(tuple(map(float, values)) for _, values in steps),
        slope_weights=weights,
        first_chunk_tokens=bootstrap.middle(Texts(rows).column("first_chunk_tokens")),
        warnings=tuple(warnings),
    )
