"""Crossovers for a chosen cached part of the prompt: what the laws say of prompts that were not measured."""

from __future__ import annotations

from bench.analysis.decisions.reused import Reuse
from bench.report import sources
from bench.report.content import Content
from bench.report.told import Told
from bench.report.words import crossover_line, laws

NOTE = (
    "From the prefill and decode laws of the routes, not from prompts measured with this part cached. "
    "Spreads are those of the laws; beyond the longest measured output the laws are extrapolated as well."
)


def title(reuse: Reuse) -> str:
    """Of the section: `Crossover with 75% of the prompt cached`."""
    what = f"{reuse} of the prompt" if reuse.tokens is None else f"{reuse.tokens:,} prompt tokens"
    return f"Crossover with {what} cached"


def reused_lines(content: Content) -> list[str]:
    """The crossovers as sentences, then what their laws lack; empty where no part was chosen.

    What the laws warn of in general stands among the report's warnings.
    """
    several = len({one.task for one in content.reused}) > 1
    general = {text for law in laws(content) for text in law.warnings}
    lines: list[str] = []
    lacking: dict[str, dict[str, None]] = {}
    for one in content.reused:
        line = crossover_line(one, several)
        for text in one.warnings:
            route, _, what = text.partition(": ")
            if route not in (one.route, one.base):
                line += f"; {text}"
            elif what not in general:
                lacking.setdefault(what, {})[route] = None
        lines.append(Told(line, sources.crossover(one)))
    fitted = sources.derived("prefill")
    return lines + [Told(f"{', '.join(routes)}: {what}", fitted) for what, routes in lacking.items()]
