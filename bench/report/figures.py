"""Plots that answer the three questions: what a prompt costs, what speculation pays, where routes meet.

Each function draws one figure or returns `None` where the data does not carry it. They share axes
with units, one colour per route, and draw what was measured solid and what was not dashed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullLocator

from bench.analysis.statistics.texts import Texts
from bench.records import Crossover, Measurement
from bench.report import style
from bench.report.choice import spans
from bench.report.content import Content
from bench.report.middle import MiddleCurve
from bench.report.shown import State, state_of
from bench.report.words import laws, tokens

MANY_POINTS = 300
MOST_TICKS = 8
MOST_CROSSINGS = 4
"""Crossovers marked in one panel."""


class Line(NamedTuple):
    """The total latency of one route over output tokens, by its medians over prompt texts."""

    ttft_s: float
    tpot_s: float
    first: float
    """Tokens in the first chunk."""
    longest: int
    """The longest output measured, in tokens."""

    def at(self, outputs: Any) -> Any:
        """Seconds until the last of so many output tokens, a number or an array of them."""
        return self.ttft_s + (outputs - self.first) * self.tpot_s


def total_latency(content: Content) -> Figure | None:
    """Total latency over output tokens for cold prompts, with the crossover and its spread.

    Of several tiers the shortest and the longest: more panels could not be read in a column.
    """
    known = [tier for tier in tiers_of(content) if _lines(content, tier)]
    if not known:
        return None
    tiers = sorted({known[0], known[-1]})
    figure, axes = style.new_figure(len(tiers))
    for axis, tier in zip(axes, tiers, strict=True):
        _latency_panel(axis, content, tier)
    axes[0].set_ylabel("total latency (s)")
    add_legend(figure, content.routes, content)
    return figure


def _latency_panel(axis: Axes, content: Content, tier: int) -> None:
    lines = _lines(content, tier)
    measured = max(line.longest for line in lines.values())
    found = [one for one in content.crossovers if (one.tier, one.condition) == (tier, "cold")]
    crossings = [one for one in found if one.status == "crosses" and one.output_tokens]
    if len(crossings) > MOST_CROSSINGS:  # those that change which route is fastest
        borders = [span.border for span in spans(found, content.routes)]
        crossings = [one for one in crossings if one in borders]
    near = [one.output_tokens for one in crossings if one.output_tokens and one.output_tokens < 30 * measured]
    reach = max([1.25 * measured, *(1.5 * place for place in near)])
    curves = _curves(content, tier, crossings)
    look = style.looks(content.routes)
    for route, line in lines.items():
        _route_latency(axis, line, curves.get(route), reach, look[route])
    shown = sorted((one.output_tokens, index) for index, one in enumerate(crossings) if one.output_tokens)
    for turn, (place, index) in enumerate(shown):
        if place <= reach:
            # beside the axis there is room on the right only: by turns below and above the ring
            at_axis = ((8, -11), (9, 7))[turn % 2] if place < 0.15 * reach else None
            _mark_crossing(axis, crossings[index], lines, curves, at_axis)
    axis.set_title(f"{tier:,} prompt tokens, cold")
    axis.set_xlabel("output tokens")
    axis.set_xlim(0, reach)
    few_ticks(axis, "x", 5)
    few_ticks(axis, "y")


def _curves(content: Content, tier: int, crossings: Sequence[Crossover]) -> dict[str, MiddleCurve]:
    """The routes' arrival curves where a crossing of the panel was read off them, of one task."""
    own = [one for one in content.middles if one.tier == tier]
    by_curve = any(one.basis == "curve" for one in crossings)
    return {one.route: one for one in own} if by_curve and len({one.task for one in own}) == 1 else {}


def _route_latency(axis: Axes, line: Line, curve: MiddleCurve | None, reach: float, look: style.Look) -> None:
    """Solid as it was measured, by its curve or else its line; then its line, dashed."""
    inside, heights = [line.first, line.longest], [line.at(line.first), line.at(line.longest)]
    if curve is not None:
        inside, heights = list(curve.tokens), list(curve.seconds)
    beyond, above = [inside[-1], reach], [heights[-1], line.at(reach)]
    if inside[-1] < line.longest:  # the shortest stream ended before
        beyond.insert(1, line.longest)
        above.insert(1, line.at(line.longest))
    axis.plot(inside, heights, color=look.color)
    axis.plot(beyond, above, color=look.color, linestyle=(0, (4, 2)), linewidth=1.3)
    axis.plot([line.longest], [line.at(line.longest)], color=look.color, marker=look.marker)


def _mark_crossing(
    axis: Axes,
    one: Crossover,
    lines: dict[str, Line],
    curves: dict[str, MiddleCurve],
    at_axis: tuple[float, float] | None,
) -> None:
    """A ring, a band for the spread and the figure: left of the ring or, without room there, `at_axis`."""
    place = one.output_tokens
    if place is None or one.route not in lines:
        return
    height, said = lines[one.route].at(place), tokens(place)
    curve = curves.get(one.route)
    if curve is not None and one.basis == "curve":
        height = float(np.interp(place, curve.tokens, curve.seconds))
    elif curve is not None and place <= curve.tokens[-1]:
        said += " by lines"  # which are not what is drawn here
    if one.low is not None and one.high is not None:
        axis.axvspan(one.low, one.high, color=style.NOTE, alpha=0.18, linewidth=0)
    axis.plot([place], [height], marker="o", markersize=8, markerfacecolor="none", color=style.INK)
    axis.annotate(
        said,
        (place, height),
        textcoords="offset points",
        xytext=at_axis or (-7, 7),
        ha="left" if at_axis else "right",
        bbox={"facecolor": style.PAPER, "alpha": 0.75, "edgecolor": "none", "pad": 0.6},
        fontsize=8,
        fontweight="bold",
    )


def ttft(content: Content) -> Figure | None:
    """TTFT over prompt length, log-log, by condition, with the fitted prefill law."""
    points = [m for m in content.sound if m.ttft_s and m.prompt_tokens]
    if not points:
        return None
    figure, (axis,) = style.new_figure()
    _by_state(axis, content, points, "ttft_s")
    _laws(axis, content)
    tier_axis(axis, content)
    log_axis(axis, "y")
    axis.set_xlabel("prompt tokens")
    axis.set_ylabel("TTFT (s)")
    axis.set_title("Time to first token")
    add_legend(figure, content.routes, content, states=True)
    return figure


def _laws(axis: Axes, content: Content) -> None:
    look = style.looks(content.routes)
    tiers = tiers_of(content)
    for law in laws(content):
        if len(tiers) < 2 or law.route not in look:
            continue
        lengths = np.geomspace(tiers[0], tiers[-1], 60)
        seconds = law.ttft_s(lengths)
        axis.plot(lengths, seconds, color=look[law.route].color, linewidth=5, alpha=0.16, zorder=1)


def decode(content: Content) -> Figure | None:
    """Decode rate over prompt length by route."""
    points = [m for m in content.sound if m.decode_tok_s and m.prompt_tokens]
    if not points:
        return None
    figure, (axis,) = style.new_figure()
    _by_state(axis, content, points, "decode_tok_s")
    tier_axis(axis, content)
    axis.set_ylim(bottom=0)
    few_ticks(axis, "y")
    axis.set_xlabel("prompt tokens")
    axis.set_ylabel("decode (tok/s)")
    axis.set_title("Decode rate over context")
    add_legend(figure, content.routes, content, states=True)
    return figure


def _by_state(axis: Axes, content: Content, points: Sequence[Measurement], field: str) -> None:
    """A line a route and state over the prompt length."""
    look = style.looks(content.routes)
    for route in content.routes:
        for state in ("cold", "replay"):
            own = [m for m in points if m.route == route and state_of(m) == state]
            _medians(axis, own, field, look[route], state)


def _medians(axis: Axes, points: Sequence[Measurement], field: str, look: style.Look, state: State) -> None:
    """Every trial as a faint point; medians of the tiers over prompt texts, as in the tables, joined."""
    grouped: dict[int, list[Measurement]] = {}
    for one in points:
        grouped.setdefault(one.tier, []).append(one)
    if not grouped:
        return
    hollow = state == "replay"
    face = style.PAPER if hollow else look.color
    tiers = sorted(grouped)
    middles = [float(np.median(Texts(grouped[tier]).column(field))) for tier in tiers]
    dots(
        axis,
        [(m.prompt_tokens or m.tier, getattr(m, field)) for m in points],
        look.color,
        look.marker,
        markersize=3,
        alpha=0.45,
    )
    axis.plot(
        tiers,
        middles,
        color=look.color,
        marker=look.marker,
        markerfacecolor=face,
        linestyle=(0, (2, 1.5)) if hollow else "-",
        linewidth=1.3 if hollow else 1.8,
    )


def dots(axis: Axes, points: Sequence[tuple[float, float]], color: str, marker: str, **options: Any) -> None:
    """Single points in one go; as pixels within the SVG where there are hundreds."""
    if points:
        xs, ys = zip(*points, strict=True)
        options = {"alpha": 0.85, "rasterized": len(points) > MANY_POINTS, **options}
        axis.plot(xs, ys, color=color, marker=marker, linestyle="", **options)


def tiers_of(content: Content) -> list[int]:
    return sorted({one.tier for one in content.sound})


def _lines(content: Content, tier: int) -> dict[str, Line]:
    """Of each route that has one, its line over cold and salted prompts of a tier."""
    found = {}
    for route in content.routes:
        own = [m for m in content.sound if m.route == route and m.tier == tier and state_of(m) == "cold"]
        texts = Texts(own)
        start, step, first = map(texts.middle, ("ttft_s", "tpot_s", "first_chunk_tokens"))
        longest = max((m.output_tokens or 0 for m in own), default=0)
        if start is not None and step is not None and first is not None and longest:
            found[route] = Line(start, step, first, longest)
    return found


_STEPS = ((1.0,), (1.0, 3.0), (1.0, 2.0, 5.0), (1.0, 1.5, 2.0, 3.0, 5.0, 7.0))
"""Ticks within a decade of a log axis, from few to many."""


def log_axis(axis: Axes, which: Literal["x", "y"]) -> None:
    """A log axis with plain numbers on it: four or more, with the fewest steps within a decade."""
    (axis.set_xscale if which == "x" else axis.set_yscale)("log")
    own = axis.xaxis if which == "x" else axis.yaxis
    low, high = axis.get_xlim() if which == "x" else axis.get_ylim()
    locators = [LogLocator(base=10, subs=steps) for steps in _STEPS]
    shown = [one for one in locators if sum(low <= tick <= high for tick in one.tick_values(low, high)) >= 4]
    own.set_major_locator(shown[0] if shown else MaxNLocator(nbins=5, steps=[1, 2, 2.5, 5, 10]))
    own.set_major_formatter(FuncFormatter(short if which == "x" else thousands))
    own.set_minor_locator(NullLocator())


def tier_axis(axis: Axes, content: Content, most: int = MOST_TICKS) -> None:
    """A log axis of prompt lengths with its ticks at the tiers, where they do not touch each other."""
    log_axis(axis, "x")
    tiers = tiers_of(content)
    if not 1 < len(tiers) <= MOST_TICKS:
        return
    room = math.log(tiers[-1] / tiers[0]) / most
    kept = [tiers[0]]
    for tier in tiers[1:]:
        if math.log(tier / kept[-1]) >= room:
            kept.append(tier)
    axis.xaxis.set_major_locator(FixedLocator(kept))


def few_ticks(axis: Axes, which: Literal["x", "y"], most: int = 7) -> None:
    """A linear axis with no more ticks than its labels leave room for, plain numbers on them."""
    own = axis.xaxis if which == "x" else axis.yaxis
    own.set_major_locator(MaxNLocator(nbins=most, steps=[1, 2, 2.5, 5, 10]))
    own.set_major_formatter(FuncFormatter(thousands))


def thousands(value: float, _: Any = None) -> str:
    if value == 0:
        return "0"
    return f"{value:,.0f}" if abs(value) >= 1 and value == round(value) else f"{value:,.6g}"


def short(value: float, _: Any = None) -> str:
    """Prompt lengths: `512`, `6,316`, `10k`, `1M`."""
    if value < 10_000 and value % 100:
        return f"{value:,.6g}"
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.3g}{letter}"
    return f"{value:g}"


def add_legend(
    figure: Figure,
    routes: Iterable[str],
    content: Content,
    states: bool = False,
    more: Sequence[Line2D] = (),
) -> None:
    """`states`: cold and replayed prompts are told apart, where there are both."""
    look = style.looks(content.routes)
    handles = [
        Line2D([], [], color=look[route].color, marker=look[route].marker, label=style.named(route))
        for route in routes
    ]
    if states and len({state_of(one) for one in content.sound}) > 1:
        handles.append(Line2D([], [], color=style.NOTE, label="cold and salted"))
        handles.append(Line2D([], [], color=style.NOTE, label="replay", **style.HOLLOW))
    handles += more
    style.legend(figure, handles)
