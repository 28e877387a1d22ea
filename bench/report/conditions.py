"""What measuring itself cost: scrapes during the exchanges, and how busy and how late the client was."""

from __future__ import annotations

from bench.report import sources
from bench.report.content import Content
from bench.report.escape import visible
from bench.report.load import ClientLine, client_lines
from bench.report.quantities import MISSING, significant
from bench.report.told import Table, Told

HEAD = (
    "route", "exchanges", "scrapes", "a scrape (ms)", "longest (ms)", "share of exchange", "loop lag p99 "
    "(ms)",
    "worst (ms)", "longest GC pause (ms)", "client CPU", "uncertainty (ms)",
)  # fmt: skip
NOTE = (
    "Scrapes are readings of the metrics page while an exchange was under way: how long one took (median, "
    "longest) and what share of the exchange they took together (median). Loop lag and CPU are the "
    "client's own: uncertainty (median) is the largest of its lag, its longest pause for collecting "
    "garbage and 0.3 ms. Client clock. A dash: not recorded by these exchanges."
)


def client_table(content: Content) -> Table | None:
    """One row a route; `None` where no exchange tells anything of it."""
    rows = tuple(_row(line) for line in client_lines(content))
    right = tuple(range(1, len(HEAD)))
    return Table(title="Client and sampling", head=HEAD, rows=rows, note=NOTE, right=right) if rows else None


def _row(line: ClientLine) -> tuple[str, ...]:
    scrape, client = sources.derived("scrape"), sources.derived("client")
    return (
        visible(line.route, 60),
        Told(f"{line.exchanges:,}", "Exchanges of this route in the journal, warm-ups left out."),
        Told(f"{line.scrapes:,}", scrape),
        _number(line.scrape_p50_ms, scrape),
        _number(line.scrape_max_ms, scrape),
        _share(line.scrape_share, scrape),
        _number(line.loop_lag_p99_ms, client),
        _number(line.loop_lag_max_ms, client),
        _number(line.gc_pause_max_ms, client),
        _share(line.cpu_share, client),
        _number(line.uncertainty_ms, sources.derived("uncertainty"), "±"),
    )


def _number(value: float | None, source: str, sign: str = "") -> str:
    return MISSING if value is None else Told(sign + significant(value, 3), source)


def _share(value: float | None, source: str) -> str:
    return MISSING if value is None else Told(f"{value:.2%}", source)
