"""report.md and report.html of a watch, in the look of all reports."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from markupsafe import Markup, escape

from bench.report import sources
from bench.report.escape import markdown as safe
from bench.report.escape import visible
from bench.report.markdown import section, sections_of, table_of
from bench.report.page import page
from bench.report.told import Table, Told
from bench.report.watch import tables, words
from bench.report.watch.content import WatchContent

if TYPE_CHECKING:
    from bench.report.plot import Plot

MARKDOWN_ROWS = 100
"""Rows of a table that is to be pasted; watched.csv has all."""
HTML_ROWS = 1_000
PLOTTED = "The numbers of watched.csv. Witness: the server's own account; see Where the numbers come from."


def markdown(content: WatchContent, plots: Sequence[Plot] = ()) -> str:
    """The whole report.md; the plots lie in `plots/` beside it."""
    parts = [
        f"# Watched: {safe(content.path)}",
        f"{safe(words.state_line(content), 1000)} Begun {safe(content.info.created_at)}.",
        sections_of(tables.totals_table(content)),
        sections_of(tables.spread_table(content)),
        sections_of(tables.machine_table(content)),
        "\n\n".join(f"![{plot.title}](plots/{plot.name}.png)" for plot in plots),
        sections_of(tables.alone_table(content, MARKDOWN_ROWS)),
        _list("Missing numbers", words.missing_lines(content)),
        sections_of(tables.windows_table(content, MARKDOWN_ROWS)),
        _list(
            "Restarts, errors and notes",
            [*words.restart_lines(content), *words.trouble_lines(content)] or ["None."],
        ),
        section("Setting", table_of(["", content.route.engine or "server"], words.setting_rows(content))),
        _list("Boundary of what was seen", words.boundary_lines(content)),
        section("Where the numbers come from", _definitions(content)),
        section("How to reproduce", _reproduce(content)),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def html(content: WatchContent, plots: Sequence[Plot] = ()) -> str:
    """The whole report.html."""
    return page(
        "watch.html.j2",
        {
            "title": f"Watched: {visible(content.path, 100)}",
            "name": visible(content.path, 100),
            "created": visible(content.info.created_at, 40),
            "colors": {},
            "state": words.state_line(content),
            "seen": _present(
                tables.totals_table(content), tables.spread_table(content), tables.machine_table(content)
            ),
            "plots": [_plot(plot) for plot in plots],
            "alone": _present(tables.alone_table(content, HTML_ROWS)),
            "missing": words.missing_lines(content),
            "windows": _present(tables.windows_table(content, HTML_ROWS)),
            "restarts": words.restart_lines(content),
            "trouble": words.trouble_lines(content),
            "setting": words.setting_rows(content),
            "boundary": words.boundary_lines(content),
            "definitions": words.definition_rows(content),
            "command": _command(content),
            "environment": _environment(content),
        },
    )


def _plot(plot: Plot) -> dict[str, str | Markup]:
    from bench.report.style import inline_svg

    # matplotlib escapes every text it draws.
    svg = Markup(inline_svg(plot.svg, plot.name, str(escape(plot.title))))  # noqa: S704
    return {"title": plot.title, "caption": plot.caption, "source": PLOTTED, "svg": svg}


def _present(*found: Table | None) -> list[Table]:
    return [one for one in found if one is not None]


def _environment(content: WatchContent) -> list[tuple[str, str]]:
    return [
        (visible(name, 60), Told(visible(value, 200), sources.ENVIRONMENT))
        for name, value in sorted(content.info.environment.items())
    ]


def _list(title: str, lines: Iterable[str]) -> str:
    return section(title, "\n".join(f"- {safe(line, 1000)}" for line in lines))


def _definitions(content: WatchContent) -> str:
    body = table_of(["number", "definition", "witness"], words.definition_rows(content))
    return f"<details><summary>Definitions and witnesses</summary>\n\n{body}\n\n</details>"


def _command(content: WatchContent) -> str:
    name = shlex.quote(visible(content.path, 300).replace("`", "'"))
    return f"ctxbench report {name}   # this report from what was kept"


def _reproduce(content: WatchContent) -> str:
    command = f"```sh\n{_command(content)}\n```"
    rows = _environment(content)
    return f"{command}\n\n{table_of(['environment', ''], rows)}" if rows else command
