"""From which output length on one route beats another, how sure that is, and what it rests on.

Two total latencies L(n) = ttft + (n - c0) * tpot meet at
n* = c0 + (ttft_A - ttft_B) / (tpot_B - tpot_A)  (DESIGN section 2).
Inside the measured window the measured arrival curves say where, where they are given; beyond it
the lines do, and past twice the measured length, where both routes were measured on two tiers or
more, the step time that grows with context.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np
from msgspec import structs

from bench.analysis.decisions import slowing
from bench.analysis.decisions.claims import by_points, sign_of, status_of, unit_of
from bench.analysis.decisions.slowing import Slope
from bench.analysis.statistics import bootstrap, decode
from bench.analysis.statistics.bootstrap import Floats, Side
from bench.analysis.statistics.cells import Cell, alone, by_cell, labelled, named, routes_of
from bench.analysis.statistics.curves import Arrival, Curves, crossing, curve_key, read_curve
from bench.analysis.statistics.texts import Texts, in_pairs, left_out, pairs_told
from bench.records import Crossover, Estimate, Measurement

FAR = 2.0
"""Extrapolation factor beyond which lines are bent by the decode law."""
BENT = 0.1
"""Relative change of the step time from the first to the second half of a stream that is told."""
_GRID = 256

JSON_FIELDS = (
    "route", "base", "tier", "condition", "status", "wins", "output_tokens", "low", "high", "spread",
    "extrapolation", "samples", "trials", "task", "reused_tokens", "measured", "basis", "line_tokens",
    "ahead", "ahead_from", "ahead_to", "warnings",
)  # fmt: skip


class _Route(NamedTuple):
    name: str
    texts: Texts
    """Those rows by text, in the order of the texts' names."""
    side: Side
    """Columns ttft_s, tpot_s, first_chunk_tokens; a row a text."""
    curves: list[Arrival]
    """One per trial, or empty when any is missing."""
    slope: Slope | None
    """`None`: measured on one tier, so how its decoding slows is unknown."""
    met: dict[str, tuple[Estimate | None, list[str]]]
    """Name of the other route -> where their curves cross, which is the same from both sides."""

    def only(self, keys: Collection[str]) -> _Route:
        """The route with these texts alone; itself, with what it has drawn, where it has no other."""
        if len(keys) == len(self.texts):
            return self
        texts = self.texts.only(keys)
        curves = [self.curves[place] for place in self.texts.rows_of(keys)] if self.curves else []
        return self._replace(texts=texts, side=_side(texts, self.side.stream), curves=curves, met={})


def crossovers(
    measurements: Iterable[Measurement], base: str | None = None, *, curves: Curves | None = None
) -> list[Crossover]:
    """Crossovers of every route against `base` in every cell where both have TTFT and decode rate.

    `base=None` takes every pair of routes both ways; `one_way` thins them to the readable half. Salted
    samples count as cold, routes of equal name from several sources are told apart, tiers within
    0.1% are one. Raises `SuiteError` when no route is called `base`.
    """
    given = alone(measurements)
    keys = [curve_key(row) for row in given]
    rows = labelled(given)
    routes = routes_of(rows)
    bases = named(routes, base) if base is not None else routes
    slopes = {
        task: slowing.slopes_of(decode.fit(row for row in rows if row.task == task))
        for task in dict.fromkeys(row.task for row in rows)
    }
    keyed = {id(row): key for row, key in zip(rows, keys, strict=True)}
    found: list[Crossover] = []
    for cell, sides in by_cell(rows).items():
        ready = _routes(sides, slopes[cell.task], curves or {}, keyed)
        for one in bases:
            found += [
                _crossover(cell, ready[route], ready[one])
                for route in routes
                if route != one and route in ready and one in ready
            ]
    return found


def one_way(found: Sequence[Crossover]) -> list[Crossover]:
    """Each pair of routes once per cell: told of the route that wins for long outputs, or always."""
    kept: dict[tuple[object, ...], Crossover] = {}
    for one in found:
        key = (one.tier, one.condition, one.task, frozenset((one.route, one.base)))
        if key not in kept or one.wins == "above" or one.status == "always":
            kept[key] = one
    return list(kept.values())


def as_json(found: Iterable[Crossover]) -> list[dict[str, object]]:
    """Plain objects with the fields of `JSON_FIELDS`, in this order; ready for `json.dumps`."""
    return [{name: getattr(one, name) for name in JSON_FIELDS} for one in found]


def _routes(
    sides: Mapping[str, Sequence[Measurement]],
    slopes: Mapping[str, Slope],
    curves: Curves,
    keyed: Mapping[int, tuple[str, str, int]],
) -> dict[str, _Route]:
    # streams by name, not by role: swapping route and base changes no interval
    ready: dict[str, _Route] = {}
    for stream, name in enumerate(sorted(sides)):
        rows = [row for row in sides[name] if row.ttft_s is not None and row.tpot_s is not None]
        if rows:
            rows.sort(key=lambda row: (row.condition, row.replay, row.order))
            texts = Texts(rows)
            arrivals = [curves.get(keyed[id(row)]) for row in rows]
            complete = [curve for curve in arrivals if curve is not None and curve[0].size > 1]
            ready[name] = _Route(
                name=name,
                texts=texts,
                side=_side(texts, stream),
                curves=complete if len(complete) == len(rows) else [],
                slope=slopes.get(name),
                met={},
            )
    return ready


def _side(texts: Texts, stream: int) -> Side:
    return Side(tuple(map(texts.column, ("ttft_s", "tpot_s", "first_chunk_tokens"))), stream)


def _crossover(cell: Cell, a: _Route, b: _Route) -> Crossover:
    a, b, is_paired, told = _side_by_side(a, b)
    ttft = bootstrap.two_sides(_ttft_difference, a.side, b.side, paired=is_paired)
    tpot = bootstrap.two_sides(_tpot_difference, a.side, b.side, paired=is_paired)
    measured = _measured(a, b)
    status = status_of(ttft, tpot)
    one = Crossover(
        route=a.name,
        base=b.name,
        tier=cell.tier,
        condition=cell.condition,
        task=cell.task,
        status=status,
        measured=measured,
        samples=(len(a.texts), len(b.texts)),
        trials=_trials(a, b),
        ttft_difference_s=ttft,
        tpot_difference_s=tpot,
        warnings=(*told, *_warnings(status, ttft, tpot, a, b)),
    )
    if status == "undecided":
        return _partly(one, a, b, is_paired)
    if status != "crosses" or tpot is None:
        return one
    return _located(one, a, b, is_paired, "above" if tpot.value < 0 else "below")


def _side_by_side(a: _Route, b: _Route) -> tuple[_Route, _Route, bool, list[str]]:
    """Both routes as they are compared, whether in pairs of texts, and what of them is in no pair."""
    pairs = in_pairs(a.texts, b.texts)
    if pairs is None:
        return a, b, False, []
    out = left_out(a.texts, b.texts, pairs)
    told = [] if out is None else [pairs_told(len(pairs), out, (a.name, b.name))]
    return a.only(pairs), b.only(pairs), True, told


def _trials(a: _Route, b: _Route) -> tuple[int, int] | None:
    """Of both sides, where they are more than the texts."""
    trials = len(a.texts.rows), len(b.texts.rows)
    return None if trials == (len(a.texts), len(b.texts)) else trials


def _ttft_difference(ttft_a: Floats, _pa: Floats, _ca: Floats, ttft_b: Floats, *_: Floats) -> Floats:
    return np.subtract(ttft_a, ttft_b)


def _tpot_difference(
    _ta: Floats, tpot_a: Floats, _ca: Floats, _tb: Floats, tpot_b: Floats, _cb: Floats
) -> Floats:
    return np.subtract(tpot_a, tpot_b)


def _measured(a: _Route, b: _Route) -> int | None:
    longest = [max((row.output_tokens or 0 for row in side.texts.rows), default=0) for side in (a, b)]
    return min(longest) or None


def _bends(side: _Route) -> str | None:
    """Whether a route's own streams are no lines: its lines then hold for this output length only."""
    changes = []
    for tokens, seconds in side.curves:
        middle = tokens.size // 2
        steps = [
            (seconds[end] - seconds[start]) / (tokens[end] - tokens[start])
            for start, end in ((0, middle), (middle, -1))
            if tokens[end] > tokens[start]
        ]
        if tokens.size >= 16 and len(steps) == 2 and steps[0] > 0:
            changes.append(steps[1] / steps[0] - 1)
    change = float(np.median(changes)) if changes else 0.0
    if abs(change) <= BENT:
        return None
    word = "slower" if change > 0 else "faster"
    return (
        f"{side.name} decodes {abs(change):.0%} {word} in the second half of its streams: "
        "what straight lines say further out may be off"
    )


def _warnings(
    status: str, ttft: Estimate | None, tpot: Estimate | None, a: _Route, b: _Route
) -> tuple[str, ...]:
    found: list[str] = []
    unit = unit_of(_trials(a, b))
    if max(a.side.trials, b.side.trials) == 1:
        found.append(f"one {unit} a side: no spread is known")
    elif min(a.side.trials, b.side.trials) < bootstrap.MINIMUM:
        found.append(f"a range of what was measured: an interval needs {bootstrap.MINIMUM} {unit}s a side")
    found += [text for text in (_bends(a), _bends(b)) if text]
    if status == "undecided":
        open_terms = [
            name for name, e in (("TTFT", ttft), ("time per token", tpot)) if sign_of(e) in (None, 0)
        ]
        points = by_points(a.name, b.name, ttft, tpot)
        found.append(points or f"no difference shown in {' and '.join(open_terms)}")
    return tuple(found)


def _located(
    one: Crossover, a: _Route, b: _Route, is_paired: bool, wins: Literal["above", "below"]
) -> Crossover:
    """Adds where the two routes meet: by line, then by curve inside the window or by slowing far out."""
    ahead = -1 if wins == "above" else 1
    line = bootstrap.two_sides(_line(ahead), a.side, b.side, paired=is_paired)
    if line is None:
        return structs.replace(one, status="undecided", warnings=(*one.warnings, "the lines never meet"))
    best, basis, warnings = line, "line", list(one.warnings)
    if a.curves and b.curves and one.measured and line.value <= one.measured:
        if b.name not in a.met:
            a.met[b.name] = b.met[a.name] = _on_curves(a, b, one.measured, ahead, is_paired)
        better, notes = a.met[b.name]
        best, basis = (better, "curve") if better is not None else (line, "line")
        warnings += notes
    elif one.measured and line.value > FAR * one.measured:
        better, notes = _far_out(a, b, one.tier, one.measured, ahead, is_paired)
        best, basis = (better, "slowing") if better is not None else (line, "line")
        warnings += notes
    factor = best.value / one.measured if one.measured else None
    if factor is not None and factor > 1:
        warnings.append(f"extrapolated {factor:.1f}-fold beyond the {one.measured:,} measured tokens")
    return structs.replace(
        one,
        wins=wins,
        output_tokens=best.value,
        low=best.low,
        high=best.high,
        spread=best.spread,
        extrapolation=factor,
        basis=basis,
        line_tokens=line.value if basis != "line" else None,
        warnings=tuple(warnings),
    )


def _partly(one: Crossover, a: _Route, b: _Route, is_paired: bool) -> Crossover:
    """Adds the output lengths at which an undecided pair is decided all the same.

    Where only the TTFTs are not told apart, whatever head start lies in their spread is won back by the
    faster decoding: from the far end of n*'s spread on. Where only the steps are not, the earlier start
    lasts up to its near end. Nothing is said further out than straight lines are trusted.
    """
    start, step = sign_of(one.ttft_difference_s), sign_of(one.tpot_difference_s)
    c0 = max(a.side.medians[2], b.side.medians[2])
    reach = FAR * (one.measured or 0)
    if step and start is None:
        line = bootstrap.two_sides(_line(step), a.side, b.side, paired=is_paired)
        if line is not None and line.high is not None and line.high <= reach:
            ahead = a.name if step < 0 else b.name
            return structs.replace(one, ahead=ahead, ahead_from=max(c0 + 1, line.high))
    elif start and step is None:
        pace = bootstrap.two_sides(_catching_up, a.side, b.side, paired=is_paired)
        if pace is not None and pace.high is not None and pace.high > 0:
            until = min(reach, c0 + 1 / pace.high)
            if until > c0:
                return structs.replace(one, ahead=a.name if start < 0 else b.name, ahead_to=until)
    return one


def _catching_up(ta: Floats, pa: Floats, _ca: Floats, tb: Floats, pb: Floats, _cb: Floats) -> Floats:
    """The share of the TTFTs' difference that each token wins back: 1 / (n* - c0), finite where n* is not."""
    with np.errstate(divide="ignore", invalid="ignore"):
        share: Floats = -np.subtract(pa, pb) / np.subtract(ta, tb)
    return share


def _line(ahead: int) -> bootstrap.Statistic:
    """n* of DESIGN section 2, with each side's own c0; infinite where the steps no longer differ that way."""

    def meet(ta: Floats, pa: Floats, ca: Floats, tb: Floats, pb: Floats, cb: Floats) -> Floats:
        gain = np.subtract(pa, pb)
        start = np.subtract(ta, tb) - (np.multiply(ca, pa) - np.multiply(cb, pb))
        with np.errstate(divide="ignore", invalid="ignore"):
            met: Floats = np.where(gain * ahead > 0, -start / gain, np.inf)
        # written as c0 + difference / difference where c0 is equal, so that no digits are lost
        with np.errstate(divide="ignore", invalid="ignore"):
            plain = ca - np.subtract(ta, tb) / gain
        return np.where(np.equal(ca, cb) & (gain * ahead > 0), plain, met)

    return meet


def _far_out(
    a: _Route, b: _Route, tier: int, measured: int, ahead: int, is_paired: bool
) -> tuple[Estimate | None, list[str]]:
    """Where the bent lines meet; `None`, and why, where that is not known."""
    if a.slope is None or b.slope is None:
        unknown = "how decode slows further out is unknown: it was measured on one tier"
        return None, [unknown, *_by_streams(a, b, measured, ahead)]
    sides = (a.side, a.slope), (b.side, b.slope)
    bent = slowing.meeting(*sides, tier + measured / 2, measured, ahead, is_paired)
    if bent is None:
        return None, ["decode slows with context so much that the routes may never meet"]
    return bent, []


def _by_streams(a: _Route, b: _Route, measured: int, ahead: int) -> list[str]:
    """A second n*, from the streams' own curvature, where it shows: too weak to be the first."""
    slopes = decode.stream_slope(a.curves), decode.stream_slope(b.curves)
    if slopes[0] is None or slopes[1] is None or None in map(sign_of, slopes):
        return []
    met = slowing.point(a.side, b.side, measured, ahead, (slopes[0].value, slopes[1].value))
    if met is None:
        return ["going by how the streams themselves slow, the routes may never meet"]
    return [f"going by how the streams themselves slow, the routes meet at about {met:,.0f}"]


def _on_curves(
    a: _Route, b: _Route, measured: int, ahead: int, is_paired: bool
) -> tuple[Estimate | None, list[str]]:
    """Where the median arrival curves cross inside the measured window, and what is odd about them.

    The window ends with the shortest stream: behind its end a stream has no time.
    """
    curves = (*a.curves, *b.curves)
    start = max(float(tokens[0]) for tokens, _ in curves)
    reach = min(float(measured), *(float(tokens[-1]) for tokens, _ in curves))
    if reach <= start:
        return None, [f"the shortest stream ends at {reach:,.0f} tokens: straight lines say where they meet"]
    grid = np.linspace(start, reach, _GRID)
    left, right = (
        side.texts.middle_curves(np.stack([read_curve(curve, grid) for curve in side.curves]))
        for side in (a, b)
    )
    gap = np.median(left, axis=0) - np.median(right, axis=0)
    value, changes = float(crossing(grid, gap[None, :])[0]), int(np.count_nonzero(np.diff(np.sign(gap))))
    notes = [f"the measured curves cross {changes} times: the last one counts"] if changes > 1 else []
    if not math.isfinite(value) and reach < measured:
        return None, [f"the measured curves do not meet up to {reach:,.0f} tokens, where the shortest ends"]
    if not math.isfinite(value):
        return None, ["the lines meet inside the measured window but the measured curves do not"]
    samples = min(a.side.trials, b.side.trials)
    spread = bootstrap.spread_of(a.side.trials, b.side.trials)
    if spread is None:
        return Estimate(value=value, samples=samples), notes
    line = _line(ahead)
    if spread == "range":
        gaps = (left[:, None, :] - right[None, :, :]).reshape(-1, _GRID)
        lines = np.ravel(line(*bootstrap.every_pair(a.side, b.side)))
        return bootstrap.within(value, _met(grid, gaps, lines, ahead), samples), notes
    streams = (0, 0) if is_paired else (a.side.stream, b.side.stream)
    gaps = bootstrap.resampled_gaps(left, right, streams)
    lines = line(*bootstrap.drawn(a.side, b.side, is_paired))
    return bootstrap.between(value, _met(grid, gaps, lines, ahead), samples), notes


def _met(grid: Floats, gaps: Floats, lines: Floats, ahead: int) -> Floats:
    """Crossings of gaps on the grid; of those that have none, where their lines meet outside of it.

    Leaving these out would cut off an interval at the window's ends. A gap that has the sign of `ahead` all
    along was closed before the grid begins, another one is not closed where it ends.
    """
    met = crossing(grid, gaps)
    outside = np.where(gaps[:, -1] * ahead > 0, np.minimum(lines, grid[0]), np.maximum(lines, grid[-1]))
    found: Floats = np.where(np.isfinite(met), met, outside)
    return found
