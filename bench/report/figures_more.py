"""Plots that let a reader judge the figures: acceptance, reuse, drift, gaps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MaxNLocator, PercentFormatter

from bench.analysis.statistics.texts import Texts
from bench.analysis.verdicts.counters import conditional_acceptance
from bench.records import Measurement
from bench.report import style
from bench.report.content import Cell, Content
from bench.report.drafts import position_shares
from bench.report.figures import (
    add_legend,
    dots,
    few_ticks,
    log_axis,
    thousands,
    tier_axis,
    tiers_of,
)
from bench.report.gaps import EDGES_S


def acceptance(content: Content) -> Figure | None:
    """Left: acceptance of each draft position at the longest tier, plain and given those before it.

    Right: acceptance over tiers.
    """
    drafted = [m for m in content.sound if m.acceptance is not None]
    if not drafted:
        return None
    figure, (left, right) = style.new_figure(2)
    look = style.looks(content.routes)
    longest = max(m.tier for m in drafted)
    for route in content.routes:
        own = [m for m in drafted if m.route == route]
        _positions(left, [m for m in own if m.tier == longest], look[route])
        by_tier = {tier: [m for m in own if m.tier == tier] for tier in tiers_of(content)}
        shown = [(tier, Texts(rows).middle("acceptance")) for tier, rows in by_tier.items() if rows]
        if shown:
            right.plot(*zip(*shown, strict=True), color=look[route].color, marker=look[route].marker)
    left.set_title(f"By position, {longest:,} tok")
    left.set_xlabel("draft position")
    left.xaxis.set_major_locator(MaxNLocator(integer=True))
    left.set_ylabel("accepted at this position / drafts")
    right.set_title("By prompt length")
    right.set_xlabel("prompt tokens")
    right.set_ylabel("accepted / drafted tokens")
    tier_axis(right, content, most=4)
    for axis in (left, right):
        _shares(axis)
    drawn = [route for route in content.routes if any(m.route == route for m in drafted)]
    given = Line2D([], [], color=style.NOTE, label="given those before", **style.HOLLOW)
    add_legend(figure, drawn, content, more=[given])
    return figure


def _positions(axis: Axes, own: Sequence[Measurement], look: style.Look) -> None:
    """Accepted / drafts at each position, and, hollow, / accepted at the one before: all trials together."""
    shares = position_shares(own)
    solid: dict[str, Any] = {"color": look.color, "marker": look.marker}
    for values, options in (
        (shares, solid),
        (conditional_acceptance(shares), {**style.HOLLOW, **solid}),
    ):
        points = [np.nan if point is None else point for point in values]
        axis.plot(range(1, len(points) + 1), points, **options)


def reuse(content: Content) -> Figure | None:
    """Prefix reuse by repeat: cold and salted must stay at 0, replays at all but the last block."""
    known = [m for m in content.measurements if m.prefix_reuse is not None]
    if not known:
        return None
    longest = max(m.tier for m in known)
    names = ["cold", "salted", *(f"replay {i}" for i in sorted({m.replay for m in known if m.replay}))]
    figure, (axis,) = style.new_figure()
    look = style.looks(content.routes)
    count = len(content.routes)
    for index, route in enumerate(content.routes):
        for place, name in enumerate(names):
            own = [m for m in known if m.route == route and _label(m) == name]
            if not own:
                continue
            spread = np.linspace(-0.05, 0.05, len(own)) if len(own) > 1 else np.zeros(1)
            where = place + (index - (count - 1) / 2) * 0.8 / max(count, 1)
            placed = [(where + float(shift), one) for one, shift in zip(own, spread, strict=True)]
            for full in (True, False):
                points = [
                    (x, one.prefix_reuse or 0.0, one.verdict.valid)
                    for x, one in placed
                    if (one.tier == longest) is full
                ]
                fill = {} if full else {"markerfacecolor": style.PAPER}
                judged(axis, points, look[route], clip_on=False, markersize=6, **fill)
    axis.set_xticks(range(len(names)), names)
    axis.grid(visible=False, axis="x")
    axis.set_xlim(-0.5, len(names) - 0.5)
    axis.set_ylabel("cached / prompt tokens")
    axis.set_title("Prefix reuse by repeat (x: excluded)")
    _shares(axis)
    add_legend(figure, content.routes, content)
    return figure


def order(content: Content) -> Figure | None:
    """Run order: TTFT against the median of its cell. A trend is drift, a lone point an outlier."""
    cells = [(cell.summary, _own(cell)) for cell in content.cells if "ttft_s" in cell.summary.estimates]
    cells = [(summary, own) for summary, own in cells if sum(one.verdict.valid for one in own) > 1]
    if not cells:
        return None
    figure, (axis,) = style.new_figure()
    look = style.looks(content.routes)
    for summary, own in cells:
        middle = summary.estimates["ttft_s"].value
        points = [(one.order + 1, (one.ttft_s or 0.0) / middle, one.verdict.valid) for one in own]
        judged(axis, points, look[summary.route])
    axis.axhline(1, color=style.NOTE, linewidth=0.8)
    low, high = axis.get_ylim()
    if high / max(low, 1e-9) > 5:
        log_axis(axis, "y")
    else:
        axis.set_ylim(min(low, 0.9), max(high, 1.1))
        few_ticks(axis, "y", 5)
    axis.set_xlabel("place in the run")
    axis.set_ylabel("TTFT / median of its cell")
    axis.set_title("Run order (x: excluded)")
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    routes = {summary.route for summary, _ in cells}
    add_legend(figure, [name for name in content.routes if name in routes], content)
    return figure


def _own(cell: Cell) -> list[Measurement]:
    """Those of its measurements with a TTFT that stand in no other cell: salted ones have their own."""
    return [one for one in cell.measurements if one.ttft_s and one.condition == cell.summary.condition]


def gaps(content: Content) -> Figure | None:
    """Inter-chunk latency: the share of gaps that are longer than x, by route."""
    drawn = {route: counts for route, counts in content.gaps.items() if counts.total >= 2}
    if not drawn:
        return None
    figure, (axis,) = style.new_figure()
    look = style.looks([*content.routes, *sorted(set(drawn) - set(content.routes))])
    for route, counts in drawn.items():
        longer = 1 - np.cumsum(counts.counts) / counts.total
        used = np.flatnonzero(counts.counts)
        span = slice(max(0, used[0] - 1), used[-1] + 1)
        shares = np.maximum(longer[span], 0.5 / counts.total)
        axis.step(EDGES_S[1:][span] * 1e3, shares, where="pre", color=look[route].color)
    log_axis(axis, "x")
    axis.xaxis.set_major_formatter(thousands)
    log_axis(axis, "y")
    axis.set_ylim(0.4 / max(counts.total for counts in drawn.values()), 1.3)
    axis.yaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{share * 100:g}%"))
    axis.set_xlabel("gap between chunks (ms)")
    axis.set_ylabel("share of gaps longer than that")
    axis.set_title("Inter-chunk latency")
    add_legend(figure, [route for route in content.routes if route in drawn], content)
    return figure


def judged(axis: Axes, points: Sequence[tuple[float, float, bool]], look: style.Look, **options: Any) -> None:
    """Points of a route: its marker where valid, an x where excluded."""
    for valid in (True, False):
        chosen = [(x, y) for x, y, ok in points if ok is valid]
        dots(axis, chosen, look.color, look.marker if valid else "x", **options)


def _label(one: Measurement) -> str:
    return f"replay {one.replay}" if one.replay else one.condition


def _shares(axis: Axes) -> None:
    axis.set_ylim(-0.02, 1.02)
    axis.yaxis.set_major_formatter(PercentFormatter(1.0))
