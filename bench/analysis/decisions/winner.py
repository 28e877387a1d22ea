"""The winner map: which route is fastest for every prompt and output length, and how sure that is.

Latency of a route for a prompt of n tokens, a share of it cached, and k output tokens: the prefill
law plus k - c0 steps at the mean context n + k/2 (`prefill`, `decode`), c0 being the tokens of the first
chunk. Of replays each route has the TTFT and the cached part that its own replays had (`replayed`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from msgspec import Struct, structs
from numpy.typing import NDArray

from bench.analysis.decisions.replayed import Replayed, is_replay, replayed
from bench.analysis.decisions.reused import Reuse
from bench.analysis.statistics import decode, prefill
from bench.analysis.statistics.bootstrap import Floats
from bench.analysis.statistics.cells import labelled, pooled, usable
from bench.analysis.statistics.decode import DecodeLaw
from bench.analysis.statistics.latency import steps_to, total_s
from bench.analysis.statistics.prefill import PrefillLaw
from bench.records import Measurement

POINTS = 96
"""Default grid points on each axis."""
_REACH = 4.0  # how far beyond the measured lengths the default axes go
_ALIKE = 0.05
"""Of a prompt: cached parts that differ by less are one."""


class WinnerMap(Struct, frozen=True, kw_only=True):
    """Arrays over (prompt length, output length); row i is `prompts[i]`, column j `outputs[j]`."""

    routes: tuple[str, ...]
    """Routes with a prefill and a decode law; indexes in `winner` point here."""
    reused_share: float
    """Share of every prompt that is cached, on every route: 0 is cold, or `reused_tokens` are, or the map is
    of `replays`."""
    reused_tokens: int | None = None
    """Cached tokens of every prompt, where a number of them was asked for."""
    replays: bool = False
    """Each route with what its own replays had cached, and with their TTFT."""
    prompts: Floats
    """(P,) tokens, ascending, log-spaced by default; longer than `reused_tokens`."""
    outputs: Floats
    """(K,) tokens, ascending, log-spaced by default."""
    latency_s: Floats
    """(R, P, K)."""
    winner: NDArray[np.intp]
    """(P, K) index of the fastest route."""
    margin: Floats
    """(P, K) second fastest / fastest - 1."""
    certain: NDArray[np.bool_]
    """(P, K) the 95% spreads of the two fastest do not reach each other. False where a spread is
    unknown."""
    beyond: NDArray[np.bool_]
    """(P, K) outside the prompt or output lengths measured on every route."""
    boundary: tuple[tuple[float, float, str, str], ...]
    """Crossover line: (prompt tokens, output tokens, winner below, winner above)."""
    measured: tuple[tuple[int, int], ...]
    """(prompt tokens, output tokens) that were measured on every route with this part cached, within
    `_ALIKE` of the prompt. Without any, the whole map is the laws'."""
    left_out: dict[str, str] = {}
    """Route -> why it is not on the map."""
    warnings: tuple[str, ...] = ()


class Latency(NamedTuple):
    """How long one route takes, for any prompt and output."""

    law: PrefillLaw
    step: DecodeLaw
    cached: Reuse | Replayed

    def at(self, prompts: Floats, outputs: Floats) -> tuple[Floats, Floats]:
        """As `latency`, with this route's cached part."""
        if isinstance(self.cached, Replayed):
            return _with_steps(self.cached.ttft(self.law, prompts), self.step, prompts, outputs)
        tokens, share = self.cached
        cached = prompts * (share or 0.0) if tokens is None else float(tokens)
        return latency(self.law, self.step, prompts, cached, outputs)

    @property
    def span(self) -> tuple[int, int]:
        """The shortest and the longest prompt that was measured."""
        if isinstance(self.cached, Replayed):
            return self.cached.tiers[0], self.cached.tiers[-1]
        return self.law.tiers[0], self.law.longest


def latency(
    ttft: PrefillLaw, step: DecodeLaw, prompts: Floats, reused: Floats | float, outputs: Floats
) -> tuple[Floats, Floats]:
    """Expected total latency and half of its 95% spread (NaN where unknown); arguments broadcast."""
    start = ttft.ttft_s(prompts, reused), ttft.half_width_s(prompts, reused)
    return _with_steps(start, step, prompts, outputs)


def _with_steps(
    start: tuple[Floats, Floats], step: DecodeLaw, prompts: Floats, outputs: Floats
) -> tuple[Floats, Floats]:
    context = prompts + outputs / 2
    steps = steps_to(outputs, step.first_chunk_tokens)
    value = total_s(outputs, start[0], step.at(context), step.first_chunk_tokens)
    return value, np.hypot(start[1], steps * step.half_at(context))


Laws = tuple[Mapping[str, PrefillLaw], Mapping[str, DecodeLaw]]
"""Of every route its TTFT law and, where it has a decode rate, its decode law."""


def laws_of(rows: Sequence[Measurement]) -> Laws:
    """Fitted to these measurements."""
    return prefill.fit(rows), decode.fit(rows)


def latencies(
    rows: Sequence[Measurement], laws: Laws, cached: Reuse | None
) -> tuple[dict[str, Latency], dict[str, str]]:
    """Of every route that has what it takes, and why the others have not; `cached=None`: of replays."""
    ttfts, steps = laws
    found: dict[str, Latency] = {}
    left_out: dict[str, str] = {}
    for route, law in ttfts.items():
        if law.absent:
            left_out[route] = law.absent
            continue
        own = cached if cached is not None else replayed([row for row in rows if row.route == route], law)
        if route not in steps:
            left_out[route] = "no decode rate"
        elif own is None:
            left_out[route] = "no replay that tells what was cached"
        else:
            found[route] = Latency(law, steps[route], own)
    return found, left_out


def winner_map(
    measurements: Iterable[Measurement],
    *,
    reused_share: float = 0.0,
    reused_tokens: int | None = None,
    replays: bool = False,
    prompts: Floats | None = None,
    outputs: Floats | None = None,
    task: str | None = None,
) -> WinnerMap | str:
    """The map, or a sentence that says why there is none (fewer than two routes with both laws).

    `reused_share` from 0 (cold) to 1, on every route. `reused_tokens` instead: that many of every prompt,
    and only longer prompts are mapped. `replays` instead: each route with what its own replays had cached, so
    that the map agrees with their crossovers at the measured prompts. Axes default to four times beyond what
    was measured. `task`: only its trials; `None` pools several, and the map's warnings say so.
    """
    rows = [row for row in labelled(measurements) if usable(row) and task in (None, row.task)]
    cached: Reuse | None = Reuse(tokens=reused_tokens)
    if reused_tokens is None:
        cached = None if replays else Reuse(share=reused_share)
    routes, left_out = latencies(rows, laws_of(rows), cached)
    if len(routes) < 2:
        why = "; ".join(f"{route}: {reason}" for route, reason in left_out.items())
        return f"a winner map needs two routes with a prefill law and a decode rate ({why or 'no routes'})"
    if prompts is None or outputs is None:
        axes = _axes(routes.values())
        prompts = axes[0] if prompts is None else prompts
        outputs = axes[1] if outputs is None else outputs
    prompts = prompts[prompts > (reused_tokens or 0)]
    if not prompts.size:
        return f"a winner map needs prompts longer than the {reused_tokens:,} tokens that are cached"
    return structs.replace(
        _map(routes, prompts, outputs),
        reused_share=(cached and cached.share) or 0.0,
        reused_tokens=reused_tokens,
        replays=cached is None,
        measured=_measured(rows, tuple(routes), cached),
        left_out=left_out,
        warnings=_warnings(rows, routes),
    )


def replayed_share(measurements: Iterable[Measurement]) -> float | None:
    """Median prefix reuse of the valid replays; `None` without one."""
    shares = [
        row.prefix_reuse
        for row in measurements
        if usable(row) and row.condition == "replay" and row.prefix_reuse is not None
    ]
    return float(np.median(shares)) if shares else None


def _axes(routes: Collection[Latency]) -> tuple[Floats, Floats]:
    shortest = min(one.law.tiers[0] for one in routes)
    longest = max(one.law.longest for one in routes)
    output = max(one.step.longest_output for one in routes)
    prompts = np.geomspace(max(16, shortest / 2), longest * _REACH, POINTS)
    return prompts, np.geomspace(1, max(64, output * _REACH**3), POINTS)


def _map(routes: Mapping[str, Latency], prompts: Floats, outputs: Floats) -> WinnerMap:
    n, k = prompts[:, None], outputs[None, :]
    pairs = [one.at(n, k) for one in routes.values()]
    values = np.stack([np.broadcast_to(v, (n.size, k.size)) for v, _ in pairs])
    halves = np.stack([np.broadcast_to(h, (n.size, k.size)) for _, h in pairs])
    order = np.argsort(values, axis=0, kind="stable")
    best, second = order[0], order[1]
    fastest = np.take_along_axis(values, best[None], 0)[0]
    next_ = np.take_along_axis(values, second[None], 0)[0]
    reach = np.hypot(
        np.take_along_axis(halves, best[None], 0)[0], np.take_along_axis(halves, second[None], 0)[0]
    )
    spans = [one.span for one in routes.values()]
    lowest, highest = max(first for first, _ in spans), min(last for _, last in spans)
    furthest = min(one.step.longest_output for one in routes.values())
    return WinnerMap(
        routes=tuple(routes),
        reused_share=0.0,
        prompts=prompts,
        outputs=outputs,
        latency_s=values,
        winner=best,
        margin=next_ / fastest - 1,
        certain=np.greater(
            next_ - fastest, reach
        ),  # NaN compares as False: an unknown spread is no certainty
        beyond=(n < lowest) | (n > highest) | (k > furthest),
        boundary=_boundary(tuple(routes), prompts, outputs, values, best),
        measured=(),
    )


def _measured(
    rows: Sequence[Measurement], routes: Sequence[str], cached: Reuse | None
) -> tuple[tuple[int, int], ...]:
    """The cells in which every route was measured with this part cached, up to the shortest output."""
    outputs: dict[int, dict[str, set[int]]] = {}
    for row in rows:
        if row.route in routes and _cached_alike(row, cached):
            outputs.setdefault(row.tier, {}).setdefault(row.route, set()).add(row.output_tokens or 0)
    return tuple(
        (tier, output)
        for tier, by_route in sorted(outputs.items())
        if len(by_route) == len(routes)
        for output in sorted(set().union(*by_route.values()))
        if output <= min(map(max, by_route.values()))
    )


def _cached_alike(row: Measurement, cached: Reuse | None) -> bool:
    """Whether about the part in question of this prompt was cached; of replays, whether it is one."""
    if cached is None:
        return is_replay(row)
    share = 0.0 if pooled(row.condition) == "cold" else row.prefix_reuse
    return share is not None and abs(share * row.tier - cached.of(row.tier)) < _ALIKE * row.tier


def _warnings(rows: Sequence[Measurement], routes: Mapping[str, Latency]) -> tuple[str, ...]:
    tasks = sorted({row.task for row in rows})
    pooled_tasks = [f"the tasks {', '.join(tasks)} are pooled"] if len(tasks) > 1 else []
    return (
        *pooled_tasks,
        *(
            f"{route}: {text}"
            for route, one in routes.items()
            for text in (*one.law.warnings, *one.step.warnings)
        ),
    )


def _boundary(
    routes: tuple[str, ...], prompts: Floats, outputs: Floats, values: Floats, best: NDArray[np.intp]
) -> tuple[tuple[float, float, str, str], ...]:
    """Where the winner changes along each prompt length, linear between grid points."""
    found = []
    for i, j in np.argwhere(best[:, :-1] != best[:, 1:]):
        below, above = int(best[i, j]), int(best[i, j + 1])
        gap = values[above, i, j : j + 2] - values[below, i, j : j + 2]
        share = float(gap[0] / (gap[0] - gap[1])) if gap[0] != gap[1] else 0.0
        output = float(outputs[j] + share * (outputs[j + 1] - outputs[j]))
        found.append((float(prompts[i]), output, routes[below], routes[above]))
    return tuple(found)
