"""`ctxbench report`: what was measured, for people and machines."""

from __future__ import annotations

import gc
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from bench.cli.command import PATH, argument, command

if TYPE_CHECKING:
    from bench.analysis.decisions.reused import Reuse
    from bench.report.content import Content


@command
@argument(
    "runs", type=PATH, nargs=-1, required=True, metavar="RUN...", help="Run directories, or those of a watch."
)
@click.option("--base", help="Route to compare against. Default: the first without speculation.")
@click.option(
    "--reused",
    metavar="TOKENS|SHARE%",
    help="Adds crossovers and the winner map for prompts with this part cached, by the laws.",
)
@click.option(
    "--into", type=PATH, help="Write one report over all runs into this folder. Default: one into each run."
)
@click.option("--all", "show_all", is_flag=True, help="List every excluded trial with its reasons.")
@click.option("--no-plots", is_flag=True, help="No pictures: faster.")
@click.option("--json", "as_json", is_flag=True, help="Print summary.json instead of the table.")
def report(
    runs: tuple[Path, ...],
    base: str | None,
    reused: str | None,
    into: Path | None,
    show_all: bool,
    no_plots: bool,
    as_json: bool,
) -> None:
    """Write report.md, report.html, measurements.csv, summary.json and plots; print the table. Example:

    ctxbench report results/20261129T100000Z-laptop
    """
    from bench.analysis.decisions.reused import parse_reuse

    asked = _Asked(base, parse_reuse(reused) if reused is not None else None, show_all, not no_plots, as_json)
    for group in [list(runs)] if into is not None else [[run] for run in runs]:
        folder = into if into is not None else group[0]
        if len(group) == 1 and _is_watch(group[0]):
            _report_watch(group[0], folder, asked)
        else:
            _report_runs(group, folder, asked)


class _Asked(NamedTuple):
    """What the options say."""

    base: str | None = None
    reuse: Reuse | None = None
    show_all: bool = False
    plots: bool = True
    as_json: bool = False

    def for_runs_alone(self) -> list[str]:
        """The options given that mean nothing for a watch, which has no routes and no trials."""
        given = {
            "--base": self.base is not None,
            "--reused": self.reuse is not None,
            "--all": self.show_all,
        }
        return [name for name, is_given in given.items() if is_given]


def _report_runs(runs: list[Path], folder: Path, asked: _Asked) -> None:
    from bench.report.content import collect
    from bench.report.second.start import second_process
    from bench.report.write import write_content

    with _no_collector(), second_process(runs, _say, plots=asked.plots) as hands:
        content = collect(runs, asked.base, asked.reuse, read=hands.read)
        written = write_content(content, folder, plots=asked.plots, draw=hands.draw)
    _print(content, as_json=asked.as_json, show_all=asked.show_all)
    _say_where(folder, written)


def print_run(path: Path) -> None:
    """Writes the report of one run and prints its table: what `run` and `demo` end with."""
    _report_runs([path], path, _Asked())


def _is_watch(path: Path) -> bool:
    from bench.analysis.watch.journal import is_watch
    from bench.journal import read_info

    return is_watch(read_info(path))


def _report_watch(path: Path, folder: Path, asked: _Asked) -> None:
    """A watch has a report of its own kind: no routes, no statistics over trials."""
    from bench.cli.layout import hanging
    from bench.report.watch.content import collect_watch
    from bench.report.watch.export import watch_json
    from bench.report.watch.lines import totals_line
    from bench.report.write import write_watch

    if ignored := asked.for_runs_alone():
        said = f"ignored: {', '.join(ignored)} (a watch has no routes and no trials)"
        print(hanging(f"{path}: ", said), file=sys.stderr)
    content = collect_watch(path)
    written = write_watch(content, folder, plots=asked.plots)
    if asked.as_json:
        print(watch_json(content).decode(), end="")
    else:
        said = totals_line(content.totals, content.ended.watched_s).removeprefix("total: ")
        print(hanging("total: ", said))
    _say_where(folder, written)


@contextmanager
def _no_collector() -> Iterator[None]:
    """What a report reads it keeps; looking through it for garbage is a quarter of a long one's time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        # all of it counts as old now: else the next object made would have it looked through
        gc.freeze()
        gc.unfreeze()
        if was_on:
            gc.enable()


def _print(content: Content, *, as_json: bool = False, show_all: bool = False) -> None:
    from bench.report.export import summary_json
    from bench.report.tables import WIDTH, terminal

    if as_json:
        print(summary_json(content).decode(), end="")
    else:
        width = shutil.get_terminal_size((WIDTH, 24)).columns
        print(terminal(content, width, show_all=show_all), end="")


def _say(text: str) -> None:
    from bench.cli.layout import hanging

    print(hanging("report: ", text), file=sys.stderr)


def _say_where(folder: Path, written: list[Path]) -> None:
    from bench.cli.decide_layout import filled

    names = [str(path.relative_to(folder)) for path in written if path.parent == folder]
    plots = len([path for path in written if path.suffix == ".png"])
    more = f", plots/ ({plots})" if plots else ""
    print("\n" + filled(f"{folder}: {', '.join(names)}{more}"), file=sys.stderr)
