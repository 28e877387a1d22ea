"""What measuring itself cost: scrapes during the exchanges, and how busy and how late the client was."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median

from bench.report import sources
from bench.report.content import Content
from bench.report.cost import Cost
from bench.report.escape import visible
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


Reduce = Callable[[Sequence[float]], float]


def client_table(content: Content) -> Table | None:
    """One row a route; `None` where no exchange tells anything of it."""
    rows = []
    for route in content.routes:
        costs = [one.cost for one in content.details if one.route == route]
        uncertain = [
            one.client_uncertainty_s * 1000
            for one in content.measurements
            if one.route == route and one.client_uncertainty_s is not None
        ]
        if any(cost.scrapes or cost.client for cost in costs) or uncertain:
            rows.append(_row(route, costs, uncertain))
    if not rows:
        return None
    right = tuple(range(1, len(HEAD)))
    return Table(title="Client and sampling", head=HEAD, rows=tuple(rows), note=NOTE, right=right)


def _row(route: str, costs: Sequence[Cost], uncertain: Sequence[float]) -> tuple[str, ...]:
    clients = [cost.client for cost in costs if cost.client is not None]
    scrape, client = sources.derived("scrape"), sources.derived("client")
    return (
        visible(route, 60),
        Told(f"{len(costs):,}", "Exchanges of this route in the journal, warm-ups left out."),
        Told(f"{sum(cost.scrapes for cost in costs):,}", scrape),
        _number(median, [cost.scrape_ms for cost in costs], scrape),
        _number(max, [cost.longest_ms for cost in costs], scrape),
        _share([cost.share for cost in costs], scrape),
        _number(median, [one.loop_lag_p99_ms for one in clients], client),
        _number(max, [one.loop_lag_max_ms for one in clients], client),
        _number(max, [one.gc_pause_max_ms for one in clients], client),
        _share([one.cpu_share for one in clients], client),
        _number(median, uncertain, sources.derived("uncertainty"), "±"),
    )


def _number(of: Reduce, values: Sequence[float | None], source: str, sign: str = "") -> str:
    known = [value for value in values if value is not None]
    return Told(sign + significant(of(known), 3), source) if known else MISSING


def _share(values: Sequence[float | None], source: str) -> str:
    known = [value for value in values if value is not None]
    return Told(f"{median(known):.2%}", source) if known else MISSING
