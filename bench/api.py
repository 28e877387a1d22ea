"""A run or a table in Python: typed records, statistics over them, and pandas frames.

::

    run = bench.load("results/20261129T100000Z-laptop")
    run.info.suite.tiers            what was planned
    run.measurements                the numbers of every trial, each with its verdict and witnesses
    run.summary()                   medians and spreads by route, tier and condition
    run.crossovers("target-only")   from which output length on a route wins
    run.frame()                     all measurements as a DataFrame

Everything is recomputed from what the run directory keeps; nothing in it is changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct, structs

from bench.analysis.decisions.baseline import read_table
from bench.analysis.decisions.crossover import crossovers, one_way
from bench.analysis.decisions.verified import Verified, verified
from bench.analysis.decisions.winner import WinnerMap, winner_map
from bench.analysis.statistics.arrival import measured_with_curves
from bench.analysis.statistics.cells import default_base, labelled
from bench.analysis.statistics.chats import chats, planned_turns
from bench.analysis.statistics.compare import compare
from bench.analysis.statistics.curves import Curves
from bench.analysis.statistics.levels import levels
from bench.analysis.statistics.prefill import PrefillLaw, prefill_laws
from bench.analysis.statistics.summary import summarise
from bench.analysis.verdicts.measure import measure_all
from bench.analysis.watch.journal import is_watch
from bench.errors import JournalError, SuiteError
from bench.journal import FOLLOW_UP, has_follow_up, read_entries, read_info
from bench.records import (
    Chat,
    Comparison,
    Crossover,
    Estimate,
    Event,
    Exchange,
    Level,
    Measurement,
    RunInfo,
    Scrape,
    Summary,
)
from bench.report.labels import labelled_routes, under_labels
from bench.report.rows import Table, measurement_table
from bench.resources import LARGEST_TABLE, read_text

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

__all__ = [
    "PrefillLaw",
    "Run",
    "Verified",
    "WinnerMap",
    "compare",
    "crossovers",
    "figure",
    "frame",
    "load",
    "load_table",
    "one_way",
    "prefill_laws",
    "summarise",
    "winner_map",
    "write_report",
]


class Run:
    """A run directory, read lazily: the journal is streamed when something needs it.

    Exchanges are never kept; measurements are, once they have been asked for.
    """

    def __init__(self, path: Path, info: RunInfo) -> None:
        self.path = path
        self.info = info

    def __repr__(self) -> str:
        return f"<Run {self.info.id}: {len(self.info.plan)} trials planned>"

    def exchanges(self) -> Iterator[Exchange]:
        """Every exchange in the order it happened, warm-ups too; read from disk each time."""
        return (entry for entry in read_entries(self.path) if isinstance(entry, Exchange))

    @cached_property
    def measurements(self) -> list[Measurement]:
        """The numbers of every trial, in run order; excluded ones too (`verdict.valid` is False)."""
        return list(measure_all(self.info, self.exchanges()))

    @cached_property
    def events(self) -> list[Event]:
        """What happened in the run besides exchanges: sessions, attempts, the end."""
        return [entry for entry in read_entries(self.path) if isinstance(entry, Event)]

    def scrapes(self) -> Iterator[Scrape]:
        """The metrics pages before and after every exchange, reduced to what their dialect knows; read from
        disk each time.

        `Scrape.file` is the path of the raw page within the run directory.
        """
        for exchange in self.exchanges():
            yield from (page for page in (exchange.before, exchange.after) if page is not None)

    def curves(self) -> Curves:
        """Arrival curves (tokens so far, seconds since sent) of the trials whose stream carries them."""
        measured, curves = measured_with_curves(self.info, self.exchanges())
        self.__dict__.setdefault("measurements", measured)
        return curves

    def summary(self) -> list[Summary]:
        """Medians and spreads of the valid trials by route, tier, condition and task."""
        return summarise(self.measurements)

    def comparisons(self, base: str | None = None) -> list[Comparison]:
        """Every route against `base` in every cell; without one against the route that reports compare with:
        the first without speculation, else the first.

        Raises `SuiteError` when no route is called `base`.
        """
        if base is None:
            rows = labelled(self.measurements)
            base = default_base(labelled_routes([self.info], rows), rows)
        return compare(self.measurements, base)

    def crossovers(self, base: str | None = None) -> list[Crossover]:
        """From which output length on each route beats `base`; every pair both ways without one.

        Raises `SuiteError` when no route is called `base`.
        """
        curves = self.curves()  # measures, too: one pass over the journal for both
        return crossovers(self.measurements, base, curves=curves)

    def verified(self) -> list[Verified]:
        """What the follow-up trials of `run --verify-crossover` say; empty where there are none."""
        if not has_follow_up(self.path):
            return []
        follow = load(self.path / FOLLOW_UP)
        predicted = one_way(self.crossovers())
        curves = follow.curves()
        return verified(self.measurements, predicted, follow.measurements, curves)

    def levels(self) -> list[Level]:
        """Throughput, percentiles, acceptance and reuse at each level of concurrency; empty where
        requests were sent one at a time."""
        return levels(self.measurements)

    def chats(self) -> list[Chat]:
        """Recorded chats, turn by turn and as a whole, on each route; empty where none was sent."""
        return chats(self.measurements, planned_turns(self.info.plan))

    def prefill_laws(self) -> list[PrefillLaw]:
        """TTFT over prompt length, for the routes with two tiers or more."""
        return prefill_laws(self.measurements)

    def frame(self) -> pd.DataFrame:
        """All measurements as a DataFrame: measurements.csv of this run, column for column; missing is NA."""
        return _framed(measurement_table(under_labels(self.measurements), [self.info]))


def load(path: str | Path) -> Run:
    """Opens a run directory. Raises `JournalError` when it is none, is that of a watch, or was made by a
    later version.

    >>> run = load("tests/data/run-small")
    >>> run.info.suite.name, run.info.suite.tiers
    ('small', (256, 1024))
    >>> best = run.crossovers("target-only")[0]
    >>> best.route, best.tier, best.condition, best.status
    ('mtp4', 256, 'cold', 'crosses')
    """
    folder = Path(path)
    info = read_info(folder)
    if is_watch(info):
        raise JournalError(f"{path}: this is a watch, not a run: ctxbench report {path} shows what it saw")
    return Run(folder, info)


def load_table(path: str | Path) -> list[Measurement]:
    """A CSV or JSON table of figures measured earlier, as measurements; see docs/reports.md.

    Raises `SuiteError` naming file, line and column of what is wrong.

    >>> rows = load_table("results/published/qwen3.8-27b-v100.csv")
    >>> for one in one_way(crossovers(rows, "target-only")):
    ...     print(one.route, one.tier, one.status, round(one.output_tokens or 0))
    mtp4 564575 crosses 1766
    mtp2 564575 crosses 96
    """
    file = Path(path)
    text = read_text(file, LARGEST_TABLE)
    return read_table(text, kind="json" if file.suffix == ".json" else "csv", source=file.name)


def frame(records: Iterable[Struct]) -> pd.DataFrame:
    """Any records (measurements, summaries, crossovers, ...) as a DataFrame, a row each; missing is NA.

    Measurements have the columns of measurements.csv; what only a suite knows of their routes
    (`speculation`, `num_speculative_tokens`) is in `Run.frame`. Of other records an estimate becomes its
    value and `_low`, `_high`, `_samples` columns, and summaries get a column per quantity.

    >>> run = load("tests/data/run-small")
    >>> table = frame(run.summary()).set_index(["route", "tier", "condition"])
    >>> f'{table.loc[("mtp4", 1024, "cold"), "acceptance"]:.2f}'
    '0.75'
    """
    rows = list(records)
    found = [row for row in rows if isinstance(row, Measurement)]
    if rows and len(found) == len(rows):
        return _framed(measurement_table(found))
    return _framed([_flat(record) for record in rows])


def figure(
    name: str,
    *runs: Run | str | Path,
    base: str | None = None,
    task: str | None = None,
    reused: str | None = None,
) -> Figure:
    """A plot of the report over one or more runs (or their directories), as a matplotlib figure to change or
    save.

    `name` is one of `total_latency`, `winner_map`, `ttft`, `decode`, `acceptance`, `reuse`,
    `timeline`, `wave`, `gaps`, `order`. `task` shows the measurements of one task alone; without it they
    are shown together. `reused` (`75%`, `120000`) adds that cached part to `winner_map`. Raises `SuiteError`
    for another name, or where the data does not carry the plot; `JournalError` for what is no run directory.
    """
    from bench.analysis.decisions.reused import parse_reuse
    from bench.report import style
    from bench.report.content import collect
    from bench.report.plots import PLOTS, of_task

    if name not in PLOTS:
        raise SuiteError(f"no plot is called {name!r}: there are {', '.join(PLOTS)}")
    reuse = parse_reuse(reused) if reused is not None else None
    content = collect([run.path if isinstance(run, Run) else Path(run) for run in runs], base, reuse)
    with style.drawing():
        drawn = PLOTS[name][2](content if task is None else of_task(content, task))
        if drawn is None:
            raise SuiteError(f"{name}: these measurements do not carry this plot")
        style.settle(drawn)
    return drawn


def write_report(run: str | Path, *, plots: bool = True) -> list[Path]:
    """Rebuilds every report file of a run directory; see `bench.report.write`."""
    from bench.report.write import write_report as write

    return write(Path(run), plots=plots)


def _framed(made: Table | list[dict[str, Any]]) -> pd.DataFrame:
    import pandas as pd

    return pd.DataFrame(made).convert_dtypes()


def _flat(record: Struct) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for name, value in structs.asdict(record).items():
        if name == "estimates":
            for quantity, estimate in value.items():
                row |= _spread(quantity, estimate)
        elif isinstance(value, Estimate):
            row |= _spread(name, value)
        else:
            row[name] = value
    return row


def _spread(name: str, estimate: Estimate) -> dict[str, Any]:
    return {
        name: estimate.value,
        f"{name}_low": estimate.low,
        f"{name}_high": estimate.high,
        f"{name}_samples": estimate.samples,
    }
