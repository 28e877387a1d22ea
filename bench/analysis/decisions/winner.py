"""The winner map: which route is fastest for every prompt and output length, and how sure that is.

Latency of a route for a prompt of n tokens, a share of it cached, and k output tokens: the prefill
law plus k - c0 steps at the mean context n + k/2 (`prefill`, `decode`), c0 being the tokens of the first
chunk.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

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
    """Share of every prompt that is cached: 0 is cold, or `reused_tokens` are."""
    reused_tokens: int | None = None
    """Cached tokens of every prompt, where a number of them was asked for."""
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
    """(prompt tokens, output tokens) of the cells that were measured with this part cached, within
    `_ALIKE` of the prompt. Without any, the whole map is the laws'."""
    left_out: dict[str, str] = {}
    """Route -> why it is not on the map."""
    warnings: tuple[str, ...] = ()


def latency(
    ttft: PrefillLaw, step: DecodeLaw, prompts: Floats, reused: Floats | float, outputs: Floats
) -> tuple[Floats, Floats]:
    """Expected total latency and half of its 95% spread (NaN where unknown); arguments broadcast."""
    context = prompts + outputs / 2
    steps = steps_to(outputs, step.first_chunk_tokens)
    value = total_s(outputs, ttft.ttft_s(prompts, reused), step.at(context), step.first_chunk_tokens)
    half = np.hypot(ttft.half_width_s(prompts, reused), steps * step.half_at(context))
    return value, half


def winner_map(
    measurements: Iterable[Measurement],
    *,
    reused_share: float = 0.0,
    reused_tokens: int | None = None,
    prompts: Floats | None = None,
    outputs: Floats | None = None,
    task: str | None = None,
) -> WinnerMap | str:
    """The map, or a sentence that says why there is none (fewer than two routes with both laws).

    `reused_share` from 0 (cold) to 1; `replayed_share` gives the one that was measured. `reused_tokens`
    instead: that many of every prompt, and only longer prompts are mapped. Axes default to four times
    beyond what was measured. `task`: only its trials; `None` pools several, and the
    map's warnings say so.
    """
    rows = [row for row in labelled(measurements) if usable(row) and task in (None, row.task)]
    ttfts, steps = prefill.fit(rows), decode.fit(rows)
    left_out = {r: law.absent for r, law in ttfts.items() if law.absent}
    left_out |= {r: "no decode rate" for r in ttfts if r not in steps and r not in left_out}
    routes = tuple(r for r in ttfts if r not in left_out)
    if len(routes) < 2:
        why = "; ".join(f"{route}: {reason}" for route, reason in left_out.items())
        return f"a winner map needs two routes with a prefill law and a decode rate ({why or 'no routes'})"
    laws = {r: (ttfts[r], steps[r]) for r in routes}
    if prompts is None or outputs is None:
        axes = _axes(laws)
        prompts = axes[0] if prompts is None else prompts
        outputs = axes[1] if outputs is None else outputs
    reuse = Reuse(share=reused_share) if reused_tokens is None else Reuse(tokens=reused_tokens)
    prompts = prompts[prompts > (reuse.tokens or 0)]
    if not prompts.size:
        return f"a winner map needs prompts longer than the {reused_tokens:,} tokens that are cached"
    return _map(rows, laws, reuse, prompts, outputs, left_out)


def replayed_share(measurements: Iterable[Measurement]) -> float | None:
    """Median prefix reuse of the valid replays; `None` without one."""
    shares = [
        row.prefix_reuse
        for row in measurements
        if usable(row) and row.condition == "replay" and row.prefix_reuse is not None
    ]
    return float(np.median(shares)) if shares else None


_Laws = Mapping[str, tuple[PrefillLaw, DecodeLaw]]


def _axes(laws: _Laws) -> tuple[Floats, Floats]:
    shortest = min(law.tiers[0] for law, _ in laws.values())
    longest = max(law.longest for law, _ in laws.values())
    output = max(step.longest_output for _, step in laws.values())
    prompts = np.geomspace(max(16, shortest / 2), longest * _REACH, POINTS)
    return prompts, np.geomspace(1, max(64, output * _REACH**3), POINTS)


def _map(
    rows: Sequence[Measurement],
    laws: _Laws,
    reuse: Reuse,
    prompts: Floats,
    outputs: Floats,
    left_out: dict[str, Any],
) -> WinnerMap:
    n, k = prompts[:, None], outputs[None, :]
    cached = n * (reuse.share or 0.0) if reuse.tokens is None else float(reuse.tokens)
    pairs = [latency(*law, n, cached, k) for law in laws.values()]
    values = np.stack([np.broadcast_to(v, (n.size, k.size)) for v, _ in pairs])
    halves = np.stack([np.broadcast_to(h, (n.size, k.size)) for _, h in pairs])
    order = np.argsort(values, axis=0, kind="stable")
    best, second = order[0], order[1]
    first = np.take_along_axis(values, best[None], 0)[0]
    next_ = np.take_along_axis(values, second[None], 0)[0]
    reach = np.hypot(
        np.take_along_axis(halves, best[None], 0)[0], np.take_along_axis(halves, second[None], 0)[0]
    )
    lowest = max(law.tiers[0] for law, _ in laws.values())
    highest = min(law.longest for law, _ in laws.values())
    furthest = min(step.longest_output for _, step in laws.values())
    cells = {(row.tier, row.output_tokens or 0) for row in rows if _cached_alike(row, reuse)}
    return WinnerMap(
        routes=tuple(laws),
        reused_share=reuse.share or 0.0,
        reused_tokens=reuse.tokens,
        prompts=prompts,
        outputs=outputs,
        latency_s=values,
        winner=best,
        margin=next_ / first - 1,
        certain=np.greater(next_ - first, reach),  # NaN compares as False: an unknown spread is no certainty
        beyond=(n < lowest) | (n > highest) | (k > furthest),
        boundary=_boundary(tuple(laws), prompts, outputs, values, best),
        measured=tuple(sorted(cells)),
        left_out=left_out,
        warnings=_warnings(rows, laws),
    )


def _cached_alike(row: Measurement, reuse: Reuse) -> bool:
    """Whether about the part in question of this prompt was cached."""
    if pooled(row.condition) == "cold":
        share: float | None = 0.0
    else:
        share = row.prefix_reuse
    return share is not None and abs(share * row.tier - reuse.of(row.tier)) < _ALIKE * row.tier


def _warnings(rows: Sequence[Measurement], laws: _Laws) -> tuple[str, ...]:
    tasks = sorted({row.task for row in rows})
    pooled_tasks = [f"the tasks {', '.join(tasks)} are pooled"] if len(tasks) > 1 else []
    return (
        *pooled_tasks,
        *(
            f"{route}: {text}"
            for route, (law, step) in laws.items()
            for text in (*law.warnings, *step.warnings)
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
