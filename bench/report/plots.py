"""The list of plots, and their files."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

from matplotlib.figure import Figure
from msgspec import structs

from bench.report import figures, figures_more, figures_time, figures_winner, style, winner_told
from bench.report.content import Content
from bench.report.escape import visible
from bench.report.plot import Plot

Drawing = Callable[[Content], Figure | None]

BY_TASK = {"total_latency", "winner_map", "decode", "acceptance"}
"""Plots of what depends on what is asked for: acceptance, and so decoding."""
TASKS_DRAWN = 3
"""Tasks that get plots of their own; tables and crossovers have all of them."""

PLOTS: dict[str, tuple[str, str, Drawing]] = {
    "total_latency": (
        "Total latency over output tokens",
        "Cold prompts. Solid: measured, as median arrival curves where a crossover is read off them, else as "
        "lines; dashed: extrapolated; ring: crossover, band: its spread.",
        figures.total_latency,
    ),
    "winner_map": (
        winner_told.TITLE,
        winner_told.CAPTION,
        figures_winner.winner_map,
    ),
    "ttft": (
        "TTFT over prompt length",
        "Points: trials; lines: medians of a tier over prompt texts; wide faint lines: the fitted "
        "prefill law.",
        figures.ttft,
    ),
    "decode": (
        "Decode rate over prompt length",
        "Points: trials; lines: medians of a tier over prompt texts. Hollow and dashed: replays.",
        figures.decode,
    ),
    "acceptance": (
        "Acceptance of drafted tokens",
        "Left: how often the n-th drafted token was accepted; hollow: given that those before it were. "
        "Right: all positions together. Cold prompts and replays alike.",
        figures_more.acceptance,
    ),
    "reuse": (
        "Prefix reuse by repeat",
        "Cold and salted prompts must reuse nothing, replays all but the last block. Hollow: shorter tiers.",
        figures_more.reuse,
    ),
    "timeline": (
        "One exchange in time",
        "When text arrived and how full the KV cache was, for one exchange of the longest tier.",
        figures_time.timeline,
    ),
    "wave": (
        "Requests released together, in time",
        "When the text of each request of one wave arrived, and how full the KV cache was meanwhile: the "
        "largest wave of the longest tier.",
        figures_time.wave,
    ),
    "gaps": (
        "Inter-chunk latency",
        "The share of gaps between chunks that are longer than x; a step is a regular beat.",
        figures_more.gaps,
    ),
    "order": (
        "Run order",
        "Each trial's TTFT against the median of its cell: a trend is drift.",
        figures_more.order,
    ),
}


def draw(content: Content) -> list[Plot]:
    """All plots that the content carries, in the order of `PLOTS`.

    In a suite of several tasks those of `BY_TASK` are drawn once for each of the first `TASKS_DRAWN`,
    under `<name>-<task>`, and the others say that they show all tasks together.
    """
    tasks = list(dict.fromkeys(one.task for one in content.measurements))
    found = []
    with style.drawing():
        for name in PLOTS:
            if len(tasks) < 2:
                found.append(_plot(name, content))
            elif name not in BY_TASK:
                found.append(_plot(name, content, tail=" All tasks together."))
            else:
                for task, short in zip(tasks, _file_names(tasks), strict=True):
                    if task in tasks[:TASKS_DRAWN]:
                        found.append(_plot(name, of_task(content, task), short, visible(task, 60)))
    return [plot for plot in found if plot is not None]


def warm_up() -> None:
    """Draws a little figure for nobody: the first one of a process takes half a second longer."""
    with style.drawing():
        figure, (axes,) = style.new_figure()
        axes.set_title("0")
        _written(figure)


def _caption(name: str, general: str, content: Content) -> str:
    """How to read a plot of this content."""
    if name == "winner_map":
        return winner_told.caption(content)
    if name in {"ttft", "decode"} and any(one.replay > 1 for one in content.sound):
        return f"{general} First and later replays together, but for first ones that missed."
    return general


def of_task(content: Content, task: str) -> Content:
    """The content without the measurements of other tasks; routes keep their colours."""
    return structs.replace(
        content,
        measurements=tuple(one for one in content.measurements if one.task == task),
        summaries=tuple(one for one in content.summaries if one.task == task),
        crossovers=tuple(one for one in content.crossovers if one.task == task),
        middles=tuple(one for one in content.middles if one.task == task),
        reused=tuple(one for one in content.reused if one.task == task),
        palette=content.routes,
    )


def _file_names(tasks: Sequence[str]) -> list[str]:
    """A harmless file name for each task (it may be a path); a number behind it where two are alike."""
    plain = [re.sub(r"[^a-z0-9]+", "-", Path(task).stem.lower()).strip("-")[:40] or "task" for task in tasks]
    return [
        name if plain.count(name) == 1 else f"{name}-{place}" for place, name in enumerate(plain, start=1)
    ]


def _plot(name: str, content: Content, short: str = "", label: str = "", *, tail: str = "") -> Plot | None:
    """A plot of this content, of one task under its `label` (`short` in the file's name), or none."""
    title, general, function = PLOTS[name]
    figure = function(content)
    if figure is None:
        return None
    if label:  # its own titles do not say it
        figure.suptitle(label, fontsize=9, color=style.NOTE)
    png, svg = _written(figure)
    return Plot(
        name=f"{name}-{short}" if short else name,
        title=f"{title}: {label}" if label else title,
        caption=_caption(name, general, content) + tail,
        png=png,
        svg=svg,
    )


def _written(figure: Figure) -> tuple[bytes, str]:
    """A figure in both formats."""
    style.settle(figure)
    return style.png(figure), style.svg(figure)
