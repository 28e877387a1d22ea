"""Writes all files of a report into a run directory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from bench.analysis.watch.journal import is_watch
from bench.errors import JournalError
from bench.journal import read_info, write_atomically
from bench.report import export, markdown
from bench.report.content import Content, collect
from bench.report.plot import Draw, Plot, draw_here
from bench.report.watch.content import WatchContent, collect_watch


def write_report(run_dir: Path, *, plots: bool = True) -> list[Path]:
    """Rebuilds every derived file of a run, or of a watch, from what was kept; returns their paths.

    The same run gives the same bytes. Works on a run that was interrupted or has only failures.
    Each file is either the old or the new one, whatever happens meanwhile. `plots=False` leaves the
    pictures out (and those of an earlier report as they are).

    Raises `JournalError` when `run_dir` is no run, is damaged, or cannot be written.
    """
    if is_watch(read_info(run_dir)):
        return write_watch(collect_watch(run_dir), run_dir, plots=plots)
    return write_content(collect([run_dir]), run_dir, plots=plots)


def write_content(
    content: Content, folder: Path, *, plots: bool = True, draw: Draw = draw_here
) -> list[Path]:
    """Writes a report on any content (several runs, for instance) into `folder`; `draw` draws its plots."""
    return _write(files(content, plots=plots, draw=draw), folder)


def write_watch(content: WatchContent, folder: Path, *, plots: bool = True) -> list[Path]:
    """Writes the report of a watch into `folder`."""
    return _write(watch_files(content, plots=plots), folder)


def _write(made: Iterable[tuple[str, bytes]], folder: Path) -> list[Path]:
    written = []
    for name, data in made:
        path = folder / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise JournalError(f"{path.parent}: no folder for a report: {error.strerror}") from error
        write_atomically(path, data, lasting=False)  # a report can be made again
        written.append(path)
    return written


def watch_files(content: WatchContent, *, plots: bool = True) -> Iterator[tuple[str, bytes]]:
    """Name and bytes of each file of a watch's report."""
    from bench.report.watch import export as watch_export
    from bench.report.watch import render
    from bench.report.watch.figures import draw

    pictures = draw(content) if plots else []
    yield "report.md", render.markdown(content, pictures).encode()
    yield "watched.csv", watch_export.watched_csv(content).encode()
    yield "summary.json", watch_export.watch_json(content)
    yield from _pictures(pictures)
    yield "report.html", render.html(content, pictures).encode()


def files(content: Content, *, plots: bool = True, draw: Draw = draw_here) -> Iterator[tuple[str, bytes]]:
    """Name within the report and bytes of each file; texts first."""
    from bench.report import html

    pictures = draw(content) if plots else []
    table = export.table(content)
    rows, summary = export.measurements_csv(content, table).encode(), export.summary_json(content)
    parquet = export.measurements_parquet(content, table)
    page_texts = html.texts(content)  # all that can be made before the plots are waited for
    report_md = markdown.render(content, (plot.name for plot in pictures)).encode()
    page = html.render(content, pictures, page_texts).encode()
    yield "report.md", report_md
    yield "measurements.csv", rows
    yield "summary.json", summary
    if parquet is not None:
        yield "measurements.parquet", parquet
    yield from _pictures(pictures)
    yield "report.html", page


def _pictures(plots: Iterable[Plot]) -> Iterator[tuple[str, bytes]]:
    for plot in plots:
        yield f"plots/{plot.name}.png", plot.png
        yield f"plots/{plot.name}.svg", plot.svg.encode()
