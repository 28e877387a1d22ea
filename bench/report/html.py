"""report.html: one file that works from disk, asks nobody for anything, and can be printed.

Every text from outside passes Jinja's escaping; the trials travel as JSON that the page's own script
turns into text nodes, never into markup. A content security policy forbids all requests.
"""

from __future__ import annotations

import hashlib
from base64 import b64encode
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from bench.report import answers, markdown, words
from bench.report.content import Content
from bench.report.drill import drill
from bench.report.escape import visible
from bench.report.grid import WITH_SPREAD, grid
from bench.report.plots import Plot
from bench.report.quantities import QUANTITIES, TABLE
from bench.report.style import inline_svg, looks

_TEMPLATES = Path(__file__).parent / "templates"
EXCLUDED_SHOWN = 50


def render(content: Content, plots: Sequence[Plot] = ()) -> str:
    """The whole page."""
    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    environment.filters["shown"] = visible
    script = (_TEMPLATES / "report.js").read_text(encoding="utf-8")
    page = environment.get_template("report.html.j2")
    return page.render(
        **_texts(content),
        css=Markup((_TEMPLATES / "report.css").read_text(encoding="utf-8")),  # noqa: S704 - our own file
        script=Markup(script),  # noqa: S704 - our own file
        script_hash=_hash(script),
        plots=[_plot(plot) for plot in plots],
    )


def _texts(content: Content) -> dict[str, Any]:
    found = words.excluded(content)
    trials = drill(content)
    look = looks(content.routes)
    return {
        "title": ", ".join(visible(run.info.suite.name, 60) for run in content.runs) or "nothing",
        "runs": [
            {
                "name": visible(run.path, 100),
                "created": visible(run.info.created_at, 40),
                "state": words.state_line(run, content.measurements),
                "harness": words.harness_line(run),
                "suite": visible_lines(run.info.suite_text),
                "environment": sorted(run.info.environment.items()),
            }
            for run in content.runs
        ],
        "routes": [{"name": visible(name, 60), "color": look[name].color} for name in content.routes],
        "colors": {visible(name, 60): look[name].color for name in content.routes},
        "grid": grid(content),
        "spreads": sorted(WITH_SPREAD),
        "columns": [QUANTITIES[key] for key in TABLE],
        "headline": words.headline(content),
        "crossovers": words.crossover_lines(content),
        "comparisons": words.comparison_rows(content),
        "comparison_head": words.COMPARISON_HEAD,
        "comparison_note": words.COMPARISON_NOTE,
        "needles": answers.needle_rows(content),
        "needle_head": answers.NEEDLE_HEAD,
        "needle_note": answers.NEEDLE_NOTE,
        "greedy": answers.greedy_rows(content),
        "greedy_head": answers.GREEDY_HEAD,
        "greedy_note": answers.greedy_notes(content),
        "tasks": answers.task_lines(content),
        "reuse": words.reuse_lines(content),
        "tokenisation": words.tokenisation_lines(content),
        "setting": markdown.setting_rows(content),
        "notes": [visible(note, 1000) for run in content.runs for note in run.info.notes]
        + words.cell_warnings(content),
        "warnings": words.warnings(content),
        "reading": markdown.READING,
        "remedies": words.remedies(found),
        "excluded": [words.excluded_line(one) for one in found[:EXCLUDED_SHOWN]],
        "excluded_more": max(0, len(found) - EXCLUDED_SHOWN),
        "boundary": words.boundary_lines(content),
        "definitions": markdown.definition_rows(content),
        "drill": trials,
        "drill_json": Markup(trials.json),  # noqa: S704 - JSON without `<`, see drill.py
    }


def visible_lines(text: str) -> str:
    """A text of several lines, each made harmless; indentation is kept."""
    lines = text.splitlines()[:2000]
    return "\n".join(" " * (len(line) - len(line.lstrip(" "))) + visible(line, 500) for line in lines)


def _plot(plot: Plot) -> dict[str, Any]:
    title = str(escape(plot.title))
    return {
        "name": plot.name,
        "title": plot.title,
        "caption": plot.caption,
        # matplotlib escapes every text it draws.
        "svg": Markup(inline_svg(plot.svg, plot.name, title)),  # noqa: S704
    }


def _hash(script: str) -> str:
    return b64encode(hashlib.sha256(script.encode()).digest()).decode()
