"""The list of plots, and their files."""

from __future__ import annotations

from collections.abc import Callable

from matplotlib.figure import Figure
from msgspec import Struct

from bench.report import figures, figures_more, figures_winner, style
from bench.report.content import Content


class Plot(Struct, frozen=True, kw_only=True):
    """A plot in both formats."""

    name: str
    """File name without its ending."""
    title: str
    caption: str
    """How to read it, in a sentence."""
    png: bytes
    svg: str


Draw = Callable[[Content], Figure | None]

PLOTS: dict[str, tuple[str, str, Draw]] = {
    "total_latency": (
        "Total latency over output tokens",
        "Cold prompts. Solid: measured; dashed: extrapolated; ring: crossover, band: its spread.",
        figures.total_latency,
    ),
    "winner_map": (
        "Which route is fastest",
        "Colour: the fastest route for a prompt and an output. Pale: not certain; hatched: not measured.",
        figures_winner.winner_map,
    ),
    "ttft": (
        "TTFT over prompt length",
        "Points: trials; lines: medians of a tier; wide faint lines: the fitted prefill law.",
        figures.ttft,
    ),
    "decode": (
        "Decode rate over prompt length",
        "Points: trials; lines: medians of a tier. Hollow and dashed: replays.",
        figures.decode,
    ),
    "acceptance": (
        "Acceptance of drafted tokens",
        "Left: how often the n-th drafted token was accepted. Right: all positions together.",
        figures_more.acceptance,
    ),
    "reuse": (
        "Prefix reuse by repeat",
        "Cold and salted prompts must reuse nothing, replays all but the last block.",
        figures_more.reuse,
    ),
    "timeline": (
        "One exchange in time",
        "When text arrived and how full the KV cache was, for one exchange of the longest tier.",
        figures_more.timeline,
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
    """All plots that the content carries, in the order of `PLOTS`."""
    found = []
    with style.drawing():
        for name, (title, caption, function) in PLOTS.items():
            figure = function(content)
            if figure is not None:
                style.settle(figure)
                found.append(
                    Plot(
                        name=name,
                        title=title,
                        caption=caption,
                        png=style.png(figure),
                        svg=style.svg(figure),
                    )
                )
    return found
