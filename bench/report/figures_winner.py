"""The winner map: prompt length x output length -> the fastest route."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from bench.analysis.decisions.winner import WinnerMap, replayed_share
from bench.analysis.decisions.winner import winner_map as compute
from bench.report import style
from bench.report.content import Content
from bench.report.figures import log_axis, short
from bench.report.winner_told import ALL_PALE, panel_title
from bench.report.words import laws

_CELLS = 60  # colour cells on each axis: fine enough for a column, small enough for a page
_FULL, _PALE = 0.75, 0.35
"""Opacity of what is certain, and of what is not."""


def winner_map(content: Content) -> Figure | None:
    """Maps for cold prompts, for the cached part that was asked about, and for replays that hit; `None`
    without laws."""
    if len({one.route for one in content.measurements}) < 2:
        return None
    maps = [compute(content.measurements)]
    if content.reuse is not None:
        part, count = content.reuse.share or 0.0, content.reuse.tokens
        maps.append(compute(content.measurements, reused_share=part, reused_tokens=count))
    share = replayed_share(content.measurements)
    if share is not None and share > 0.05:
        maps.append(compute(content.measurements, replays=True))
    drawn = [one for one in maps if not isinstance(one, str)]
    if not drawn:
        return None
    figure, axes = style.new_figure(len(drawn))
    for axis, one in zip(axes, drawn, strict=True):
        _panel(axis, one, content)
    axes[0].set_ylabel("output tokens")
    _legend(figure, drawn, content)
    return figure


def _panel(axis: Axes, one: WinnerMap, content: Content) -> None:
    look = style.looks(content.routes)
    colors = [look[route].color if route in look else style.NOTE for route in one.routes]
    rows = np.unique(np.linspace(0, one.prompts.size - 1, _CELLS).round().astype(int))
    columns = np.unique(np.linspace(0, one.outputs.size - 1, _CELLS).round().astype(int))
    prompts, outputs = one.prompts[rows], one.outputs[columns]
    cut = np.ix_(rows, columns)
    # Pale where the spreads of the two fastest reach each other, or are unknown.
    options: dict[str, Any] = {"alpha": np.where(one.certain[cut].T, _FULL, _PALE)}
    axis.pcolormesh(
        prompts,
        outputs,
        one.winner[cut].T,
        cmap=ListedColormap(colors),
        vmin=-0.5,
        vmax=len(colors) - 0.5,
        shading="nearest",
        rasterized=True,
        **options,
    )
    if one.beyond.any() and not one.beyond.all():
        outside = one.beyond[cut].T.astype(float)
        axis.contourf(prompts, outputs, outside, levels=[0.5, 1.5], colors="none", hatches=["////"])
    for stretch in stretches(one):
        axis.plot(*zip(*stretch, strict=True), color=style.INK, linewidth=1.2)
    if one.measured:
        axis.plot(*zip(*one.measured, strict=True), linestyle="", marker="o", markersize=4, color=style.INK)
    log_axis(axis, "x")
    log_axis(axis, "y")
    axis.yaxis.set_major_formatter(short)
    axis.grid(visible=False)
    axis.set_xlabel("prompt tokens")
    axis.set_title(panel_title(one))


def stretches(one: WinnerMap) -> Iterator[list[tuple[float, float]]]:
    """The crossover lines: of each pair of winners, cut where the pair does not meet for a while."""
    place = {float(prompt): number for number, prompt in enumerate(one.prompts)}
    for pair in dict.fromkeys((below, above) for _, _, below, above in one.boundary):
        line = [(x, y) for x, y, below, above in one.boundary if (below, above) == pair]
        cuts = [end for end in range(1, len(line)) if place[line[end][0]] > place[line[end - 1][0]] + 1]
        for start, end in pairwise((0, *cuts, len(line))):
            yield line[start:end]


def _legend(figure: Figure, maps: list[WinnerMap], content: Content) -> None:
    look = style.looks(content.routes)
    winners = {one.routes[index] for one in maps for index in np.unique(one.winner)}
    handles: list[Any] = [
        Patch(color=look[route].color, alpha=_FULL, linewidth=0, label=style.named(route))
        for route in content.routes
        if route in winners
    ]
    if any(one.boundary for one in maps):
        handles.append(Line2D([], [], color=style.INK, linewidth=1.2, label="crossover"))
    if not all(one.certain.all() for one in maps):
        handles.append(Patch(color=style.NOTE, alpha=_PALE, linewidth=0, label="pale: not certain"))
    handles.append(Patch(facecolor="none", edgecolor=style.NOTE, hatch="////", label="beyond the measured"))
    handles.append(Line2D([], [], linestyle="", marker="o", markersize=4, color=style.INK, label="measured"))
    two_tiers = any(len(law.tiers) < 3 for law in laws(content))
    style.legend(
        figure, handles, ALL_PALE if two_tiers and not any(one.certain.any() for one in maps) else ""
    )
