"""report.html of runs: what the page's template is given.

The trials travel as JSON that the page's own script turns into text nodes, never into markup.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from markupsafe import Markup, escape

from bench.report import answers, compared, markdown, reused, sources, winner_told, words
from bench.report.chats import chat_table
from bench.report.choice import choices, said, why
from bench.report.conditions import client_table
from bench.report.content import Content
from bench.report.differences import difference_lines
from bench.report.drafts import acceptance_table
from bench.report.drill import FIELDS, drill
from bench.report.escape import visible
from bench.report.grid import WITH_SPREAD
from bench.report.law_table import law_table
from bench.report.levels import level_table
from bench.report.machine import machine_table
from bench.report.page import SOURCE_SHOWN, page
from bench.report.plot import Plot, kind_of
from bench.report.quantities import QUANTITIES, TABLE
from bench.report.setting import setting_rows
from bench.report.style import inline_svg, looks
from bench.report.told import Table, Told

EXCLUDED_SHOWN = 50


def render(content: Content, plots: Iterable[Plot] = (), made: dict[str, Any] | None = None) -> str:
    """The whole page. `made`: its `texts`, where they are there already."""
    made = texts(content) if made is None else made
    return page("report.html.j2", {**made, "plots": [_plot(plot, made["plotted"]) for plot in plots]})


def texts(content: Content) -> dict[str, Any]:
    """What the page says, but for the plots: these may still be in the making."""
    look = looks(content.routes)
    return {
        "title": ", ".join(visible(run.info.suite.name, 60) for run in content.runs) or "nothing",
        "runs": [
            {
                "name": visible(run.path, 100),
                "quoted": shlex.quote(visible(run.path, 300)),
                "created": visible(run.info.created_at, 40),
                "state": words.state_line(run, content.everything),
                "harness": words.harness_line(run),
                "suite": visible_lines(run.info.suite_text),
                "environment": sorted(run.info.environment.items()),
            }
            for run in content.runs
        ],
        "routes": [{"name": visible(name, 60), "color": look[name].color} for name in content.routes],
        "colors": {visible(name, 60): look[name].color for name in content.routes},
        "choices": _choices(content),
        **_performance(content),
        **_trials(content),
        **_setting(content),
        "boundary": words.boundary_lines(content),
        "planned": sources.PLANNED,
        "conditions": sources.CONDITION,
        "environment_source": sources.ENVIRONMENT,
        "definitions": markdown.definition_rows(content),
        "plotted": sources.plotted(content),
    }


def _performance(content: Content) -> dict[str, Any]:
    return {
        "grid": content.grid,
        "spreads": sorted(WITH_SPREAD),
        "columns": [QUANTITIES[key] for key in TABLE],
        "reading": markdown.READING,
        "levels": _present(level_table(content), chat_table(content)),
        "compared": _present(compared.table_of(content), acceptance_table(content)),
        "crossovers": [*words.crossover_lines(content), *words.verified_lines(content)],
        "reused": {
            "title": reused.title(content.reuse) if content.reuse is not None else "",
            "lines": reused.reused_lines(content),
            "note": reused.NOTE,
        },
        "answered": _present(answers.needle_table(content), answers.greedy_table(content)),
        "reuse": words.reuse_lines(content),
        "laws": _present(law_table(content)),
    }


def _trials(content: Content) -> dict[str, Any]:
    found = words.excluded(content)
    trials = drill(content)
    return {
        "trial_head": [*_trial_head()],
        "drill": trials,
        "drill_json": Markup(trials.json),  # noqa: S704 - JSON without `<`, see drill.py
        "remedies": words.remedies(found),
        "excluded": [words.excluded_line(one) for one in found[:EXCLUDED_SHOWN]],
        "excluded_more": max(0, len(found) - EXCLUDED_SHOWN),
    }


def _setting(content: Content) -> dict[str, Any]:
    return {
        "setting": setting_rows(content),
        "tasks": answers.task_lines(content),
        "tokenisation": words.tokenisation_lines(content),
        "client": _present(client_table(content), machine_table(content)),
        "warnings": [
            *(Told(visible(note, 1000), sources.NOTE) for run in content.runs for note in run.info.notes),
            *difference_lines(content),
            *words.cell_warnings(content),
            *winner_told.parted_lines(content),
            *words.warning_lines(content),
        ],
    }


def _present(*tables: Table | None) -> list[Table]:
    return [one for one in tables if one is not None]


def _choices(content: Content) -> list[dict[str, Any]]:
    """The answers for the first screen."""
    look = looks(content.routes)
    return [
        {
            "tier": one.tier,
            "condition": one.condition,
            "spans": [
                {"text": said(span), "colors": [look[name].color for name in span.routes]}
                for span in one.spans
            ],
            "borders": Told(one.borders, why(one)),
            "excluded": Told(one.excluded, sources.EXCLUDED),
        }
        for one in choices(content)
    ]


def _trial_head() -> Iterator[tuple[int, str, str | None, str]]:
    """Columns of the list of trials: place in a trial's values, name, unit (`None`: no number), source."""
    yield FIELDS.index("trial"), "trial", None, sources.TRIAL
    yield FIELDS.index("tier"), "tier", "tok", sources.PLANNED
    yield FIELDS.index("condition"), "condition", None, sources.CONDITION
    shown = {"ttft": "ttft_s", "decode": "decode_tok_s", "acceptance": "acceptance", "reuse": "prefix_reuse"}
    for field, key in {**shown, "total": "total_s"}.items():
        one = QUANTITIES[key]
        yield FIELDS.index(field), one.label, one.unit, f"{one.definition} Open the trial for its witness."
    yield FIELDS.index("verdict"), "verdict", None, sources.TRIAL


def visible_lines(text: str) -> str:
    """A text of several lines, each made harmless; indentation is kept."""
    lines = text.splitlines()[:2000]
    return "\n".join(" " * (len(line) - len(line.lstrip(" "))) + visible(line, 500) for line in lines)


def _plot(plot: Plot, plotted: Mapping[str, str]) -> dict[str, Any]:
    title = str(escape(plot.title))
    return {
        "name": plot.name,
        "title": plot.title,
        "caption": plot.caption,
        "source": visible(plotted[kind_of(plot.name)], SOURCE_SHOWN),
        # matplotlib escapes every text it draws.
        "svg": Markup(inline_svg(plot.svg, plot.name, title)),  # noqa: S704
    }
