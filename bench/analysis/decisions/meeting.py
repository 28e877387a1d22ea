"""Where one of two routes becomes the faster one, and where it ceases to be: the one rule for all.

A gap is the difference of two total latencies over the output length. One of the two routes, the
latecomer, starts later and decodes faster. Its crossover is where it becomes the faster one: where the gap
takes the sign `ahead`, -1 where the gap is latecomer - other, 1 where it is other - latecomer. Gaps need not
be lines, so it may lose its lead again further on: `until`. Where it takes the lead several times, the last
time counts.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from msgspec import structs

from bench.analysis.decisions.claims import leader
from bench.analysis.statistics import bootstrap
from bench.analysis.statistics.bootstrap import Floats
from bench.records import Crossover, Estimate


class Met(NamedTuple):
    """Output lengths, one for each gap."""

    at: Floats
    """Where the latecomer becomes the faster one; infinite where it never does."""
    until: Floats
    """Beyond `at`: where it ceases to be; infinite where it does not."""


def of_lines(ta: Floats, pa: Floats, ca: Floats, tb: Floats, pb: Floats, cb: Floats, *, ahead: int) -> Met:
    """Of the lines ttft + (n - c0) tpot of two routes: n* of DESIGN section 2, each route with its own c0."""
    c0, start = start_of(ta, pa, ca, tb, pb, cb)
    met = of_parabola(start, np.subtract(pa, pb), 0.0, ahead=ahead)
    return Met(c0 + met.at, c0 + met.until)


def line(ahead: int) -> bootstrap.Statistic:
    """`of_lines(..., ahead=ahead).at` of the columns ttft_s, tpot_s and first_chunk_tokens of two sides."""

    def meet(*sides: Floats) -> Floats:
        return of_lines(*sides, ahead=ahead).at

    return meet


def start_of(ta: Floats, pa: Floats, ca: Floats, tb: Floats, pb: Floats, cb: Floats) -> tuple[Floats, Floats]:
    """The mean c0 of two routes, and the gap of their lines there: of equal c0 that of their TTFTs."""
    return np.add(ca, cb) / 2, np.subtract(ta, tb) - np.subtract(ca, cb) / 2 * np.add(pa, pb)


def of_parabola(start: Floats, linear: Floats, bend: Floats | float, *, ahead: int) -> Met:
    """Of the gaps start + linear x + bend x^2 at x >= 0; `at` is 0 where the latecomer leads from there on.

    Of the two roots the gap takes the sign `ahead` at the one where its slope has it, and loses it at the
    other.
    """
    start, linear, bend = np.broadcast_arrays(start, linear, np.asarray(bend, dtype=float))
    inner = linear**2 - 4 * bend * start
    reach = ahead * np.sqrt(np.maximum(inner, 0.0))
    with np.errstate(divide="ignore", invalid="ignore"):
        # each root in the form that subtracts no equal numbers: the first one as the bend vanishes, too
        towards = linear * ahead > 0
        taken = np.where(towards, -2 * start / (linear + reach), (reach - linear) / (2 * bend))
        lost = np.where(towards, -(linear + reach) / (2 * bend), -2 * start / (linear - reach))
    is_met = (inner > 0) & (taken >= 0) & np.isfinite(taken)
    begins = np.where(start != 0, start, np.where(linear != 0, linear, bend))
    at = np.where(is_met, taken, np.where(begins * ahead > 0, 0.0, np.inf))
    return Met(at, np.where((inner > 0) & (lost > at), lost, np.inf))


def of_gaps(grid: Floats, gaps: Floats, *, ahead: int, known: float = np.inf) -> Met:
    """Of gaps (rows, grid), linear between places of the grid; a 0 has the sign of the place before it.

    `at` is -infinite where the latecomer leads from the first place on. Where it takes the lead up to
    `known`, the last time up to there counts; else the first time beyond.
    """
    leads = _filled(np.sign(gaps) * ahead) > 0
    taken = ~leads[:, :-1] & leads[:, 1:]
    inside = taken & (grid[:-1] <= known)
    last = taken.shape[1] - 1 - np.argmax(inside[:, ::-1], axis=1)
    place = np.where(inside.any(axis=1), last, np.argmax(taken, axis=1))
    is_taken = taken.any(axis=1)
    at = np.where(is_taken, _zero(grid, gaps, place), np.where(leads[:, 0], -np.inf, np.inf))
    follows = np.arange(grid.size - 1) > np.where(is_taken, place, -1)[:, None]
    lost = leads[:, :-1] & ~leads[:, 1:] & follows
    until = np.where(lost.any(axis=1), _zero(grid, gaps, np.argmax(lost, axis=1)), np.inf)
    return Met(at, until)


def with_end(one: Crossover, until: Estimate | None, known: float) -> Crossover:
    """Adds where the lead of a pair ends again, if it does so over the whole spread of that place.

    Where an end of its spread is open, the lead may end there (`may_end`), which a warning says, too. Beyond
    `known`, the output tokens up to which contexts were measured, it is no fact: there is a warning alone.
    """
    if until is None or (until.spread is None and until.value > known):
        return one
    is_open = until.spread is not None and (until.low is None or until.high is None)
    place = f"from about {until.value:,.0f} output tokens on"
    unsure = "the spread of that place is open"
    lead = leader(one)
    if until.value > known:
        other = one.base if lead == one.route else one.route
        told = (
            f"by the laws {other} would be faster{' again' if one.wins else ''} {place}, "
            "behind more context than any that was measured"
        )
        told += f": {unsure}" if is_open else ""
        return structs.replace(one, warnings=(*one.warnings, told))
    if is_open:
        told = f"the lead of {lead} may end {place}: {unsure}"
        return structs.replace(one, may_end=until.value, warnings=(*one.warnings, told))
    return structs.replace(one, until=until.value, until_low=until.low, until_high=until.high)


def _filled(signs: Floats) -> Floats:
    """Signs with every 0 that of the place before it: touching is not crossing."""
    if signs.all():
        return signs
    places = np.maximum.accumulate(np.where(signs != 0, np.arange(signs.shape[1]), 0), axis=1)
    return np.take_along_axis(signs, places, axis=1)


def _zero(grid: Floats, gaps: Floats, place: Floats) -> Floats:
    """Where each row is 0 between a place and the next one."""
    rows = np.arange(gaps.shape[0])
    before, after = gaps[rows, place], gaps[rows, place + 1]
    with np.errstate(divide="ignore", invalid="ignore"):
        share = before / (before - after)
    zero: Floats = grid[place] + share * (grid[place + 1] - grid[place])
    return zero
