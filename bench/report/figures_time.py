"""Plots of single exchanges in time: one that was sent alone, and a wave of several."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MaxNLocator

from bench.report import style
from bench.report.content import Content
from bench.report.detail import Detail
from bench.report.escape import visible
from bench.report.figures import few_ticks
from bench.report.shown import shown_exchange, shown_wave

FEW = 20
"""Up to so many samples each is shown as a point: one alone makes no line."""


def timeline(content: Content) -> Figure | None:
    """One exchange in time: when text arrived, and how full the KV cache was."""
    detail = shown_exchange(content)
    if detail is None:
        return None
    return _drawn(
        content, [detail], f"One exchange: {detail.trial_id}", "seconds after the first request byte"
    )


def wave(content: Content) -> Figure | None:
    """Requests released together: when the text of each arrived, and how full the KV cache was."""
    details = shown_wave(content)
    if not details:
        return None
    title = f"{len(details)} requests released together: {details[0].trial_id.partition('@')[0]}"
    return _drawn(content, details, title, "seconds after the release")


def _drawn(content: Content, details: Sequence[Detail], title: str, clock: str) -> Figure:
    """Arrival curves on one clock, with the gauge of the KV cache where it was sampled."""
    figure, (axis,) = style.new_figure()
    look = style.looks(content.routes)
    route, unit = details[0].route, details[0].curve_unit
    color = look[route].color if route in look else style.PALETTE[0]
    first_s = min(_late(one) + (one.first_text_s or 0.0) for one in details)
    axis.axvspan(0, first_s, color=style.FAINT, alpha=0.5, linewidth=0)
    for one in details:
        axis.plot([_late(one) + t for t in one.curve_s], one.curve_count, color=color)
    axis.set_xlabel(clock)
    axis.set_ylabel(f"{unit} received")
    axis.set_xlim(0, max(_late(one) + one.ended_s for one in details) * 1.02)
    axis.set_ylim(bottom=0)
    few_ticks(axis, "x")
    few_ticks(axis, "y")
    axis.set_title(visible(title, 70))
    each = "" if len(details) == 1 else ", a line a request"
    handles = [
        Line2D([], [], color=style.FAINT, linewidth=8, label=f"waiting for text ({first_s:.4g} s)"),
        Line2D([], [], color=color, label=f"{unit} received{each}"),
        *_usage(axis, details),
    ]
    style.legend(figure, handles)
    return figure


def _late(one: Detail) -> float:
    """Seconds from the plot's zero to the first byte of a request: the release of its wave, if it has one."""
    return one.released_s or 0.0


def _usage(axis: Axes, details: Sequence[Detail]) -> list[Line2D]:
    """The KV cache in use, on an axis of its own; its entry in the legend, if there were samples."""
    seen = [
        (_late(one) + t, use)
        for one in details
        for t, use in zip(one.sample_s, one.kv_usage, strict=True)
        if use is not None
    ]
    if not seen:
        return []
    other = axis.twinx()
    look: dict[str, Any] = {"color": style.NOTE, "linestyle": (0, (3, 1.5))}
    if len(seen) <= FEW:
        look |= {"marker": "o", "markersize": 4}
    other.plot(*zip(*seen, strict=True), linewidth=1.3, **look)
    other.set_ylim(0, max(0.01, max(use for _, use in seen) * 1.25))
    other.yaxis.set_major_locator(MaxNLocator(nbins=5, steps=[1, 2, 5, 10]))
    other.yaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{share * 100:g}%"))
    other.set_ylabel("KV cache in use")
    other.grid(visible=False)
    other.spines["right"].set_visible(True)
    return [Line2D([], [], label="KV cache in use", **look)]
