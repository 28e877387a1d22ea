"""From which output length on one route beats another, how sure that is, and what it rests on.

Two total latencies L(n) = ttft + (n - c0) * tpot meet at
n* = c0 + (ttft_A - ttft_B) / (tpot_B - tpot_A)  (DESIGN section 2).
Inside the measured window the measured arrival curves say where, where they are given; beyond it
the lines do, and past twice the measured length, where both routes were measured on two tiers or
more, the step time that grows with context. By that a lead may end again (`meeting`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np
from msgspec import structs

from bench.analysis.decisions import slowing
from bench.analysis.decisions.arrivals import OnCurves, Streams, on_curves
from bench.analysis.decisions.claims import by_points, sign_of, status_of, unit_of
from bench.analysis.decisions.meeting import line, start_of, with_end
from bench.analysis.decisions.slowing import Slope
from bench.analysis.statistics import bootstrap, decode
from bench.analysis.statistics.bootstrap import Floats, Side
from bench.analysis.statistics.cells import Cell, alone, by_cell, labelled, named, routes_of
from bench.analysis.statistics.curves import Arrival, Curves, curve_key
from bench.analysis.statistics.texts import Texts, in_pairs, left_out, pairs_told
from bench.records import Crossover, Estimate, Measurement

FAR = 2.0
"""Extrapolation factor beyond which lines are bent by the decode law."""
BENT = 0.1
"""Relative change of the step time from the first to the second half of a stream that is told."""

JSON_FIELDS = (
    "route", "base", "tier", "condition", "status", "wins", "output_tokens", "low", "high", "spread",
    "extrapolation", "samples", "trials", "task", "reused_tokens", "measured", "basis", "line_tokens",
    "until", "until_low", "until_high", "may_end", "ahead", "ahead_from", "ahead_to", "warnings",
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
    met: dict[str, OnCurves]
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
        return _ended(one, a, b, _by_slowing(a, b, one, -1 if status == "always" else 1, is_paired)[1])
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
    straight = bootstrap.two_sides(line(ahead), a.side, b.side, paired=is_paired)
    if straight is None:
        return structs.replace(one, status="undecided", warnings=(*one.warnings, "the lines never meet"))
    bent, until = _by_slowing(a, b, one, ahead, is_paired)
    if one.measured and straight.value > one.measured and bent is None and a.slope and b.slope:
        return _never_met(one, straight, b.name if ahead < 0 else a.name)
    best, basis, warnings = straight, "line", list(one.warnings)
    if a.curves and b.curves and one.measured and straight.value <= one.measured:
        if b.name not in a.met:
            left, right = (Streams(side.side, side.texts, side.curves) for side in (a, b))
            a.met[b.name] = b.met[a.name] = on_curves(left, right, one.measured, ahead, is_paired)
        better, ends, notes = a.met[b.name]
        best, basis = (better, "curve") if better is not None else (straight, "line")
        until = ends or until
        warnings += notes
    elif one.measured and straight.value > FAR * one.measured:
        best, basis = (bent, "slowing") if bent is not None else (straight, "line")
        warnings += _unknown_slowing(a, b, one.measured, ahead) if bent is None else []
    factor = best.value / one.measured if one.measured else None
    if factor is not None and factor > 1:
        warnings.append(f"extrapolated {factor:.1f}-fold beyond the {one.measured:,} measured tokens")
    one = structs.replace(
        one,
        wins=wins,
        output_tokens=best.value,
        low=best.low,
        high=best.high,
        spread=best.spread,
        extrapolation=factor,
        basis=basis,
        line_tokens=straight.value if basis != "line" else None,
        warnings=tuple(warnings),
    )
    return _ended(one, a, b, until)


def _never_met(one: Crossover, straight: Estimate, starter: str) -> Crossover:
    """A pair whose straight lines meet beyond the measured length and whose bent ones do not: no crossover.

    The route that starts first stays ahead as far as straight lines are trusted, and up to the near end of
    their spread.
    """
    told = (
        f"straight lines meet at about {straight.value:,.0f}, but decode slows with context so much that the "
        "routes may never meet"
    )
    ends = [FAR * (one.measured or 0), straight.value, straight.low]
    return structs.replace(
        one,
        status="undecided",
        ahead=starter,
        ahead_to=min(end for end in ends if end is not None),
        warnings=(*one.warnings, told),
    )


def _ended(one: Crossover, a: _Route, b: _Route, until: Estimate | None) -> Crossover:
    """Adds where a lead ends again, behind contexts that were measured."""
    if until is not None and until.value <= max(one.output_tokens or 0.0, one.ahead_from or 0.0):
        return one
    slopes = [side.slope for side in (a, b) if side.slope is not None]
    known = min((slope.law.longest_context for slope in slopes), default=0) - one.tier
    return with_end(one, until, max(known, one.measured or 0))


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
        straight = bootstrap.two_sides(line(step), a.side, b.side, paired=is_paired)
        if straight is not None and straight.high is not None and straight.high <= reach:
            ahead = a.name if step < 0 else b.name
            one = structs.replace(one, ahead=ahead, ahead_from=max(c0 + 1, straight.high))
            return _ended(one, a, b, _by_slowing(a, b, one, step, is_paired)[1])
    elif start and step is None:
        pace = bootstrap.two_sides(_catching_up, a.side, b.side, paired=is_paired)
        if pace is not None and pace.high is not None and pace.high > 0:
            until = min(reach, c0 + 1 / pace.high)
            if until > c0:
                return structs.replace(one, ahead=a.name if start < 0 else b.name, ahead_to=until)
    return one


def _catching_up(*sides: Floats) -> Floats:
    """The share of the head start that each token wins back: 1 / (n* - c0), finite where n* is not."""
    with np.errstate(divide="ignore", invalid="ignore"):
        share: Floats = -_tpot_difference(*sides) / start_of(*sides)[1]
    return share


def _by_slowing(
    a: _Route, b: _Route, one: Crossover, ahead: int, is_paired: bool
) -> tuple[Estimate | None, Estimate | None]:
    """Where the lead is taken and lost by bent lines; neither where no slopes are known.

    An end inside the measured window is none: there the trials themselves say who leads.
    """
    if a.slope is None or b.slope is None or not one.measured:
        return None, None
    sides = (a.side, a.slope), (b.side, b.slope)
    at, until = slowing.lead_of(*sides, one.tier + one.measured / 2, one.measured, ahead, is_paired)
    return at, until if until is not None and until.value > one.measured else None


def _unknown_slowing(a: _Route, b: _Route, measured: int, ahead: int) -> list[str]:
    """What is not known of lines far out of a pair without slopes."""
    unknown = "how decode slows further out is unknown: it was measured on one tier"
    return [unknown, *_by_streams(a, b, measured, ahead)]


def _by_streams(a: _Route, b: _Route, measured: int, ahead: int) -> list[str]:
    """A second n*, from the streams' own curvature, where it shows: too weak to be the first."""
    slopes = decode.stream_slope(a.curves), decode.stream_slope(b.curves)
    if slopes[0] is None or slopes[1] is None or None in map(sign_of, slopes):
        return []
    met = slowing.point(a.side, b.side, measured, ahead, (slopes[0].value, slopes[1].value))
    if met is None:
        return ["going by how the streams themselves slow, the routes may never meet"]
    return [f"going by how the streams themselves slow, the routes meet at about {met:,.0f}"]
