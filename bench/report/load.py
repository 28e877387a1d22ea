"""What machines did, for summary.json: the one under the servers, and this client's own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median

from msgspec import Struct

from bench.analysis.statistics.machine import PHASES, Phase, PhaseUse
from bench.report.content import Content
from bench.report.cost import Cost
from bench.report.machine import sorted_uses


class MachineLine(Struct, frozen=True, kw_only=True):
    """One gauge of the machine under a route's server, during one phase of valid trials of one kind."""

    route: str
    tier: int
    condition: str
    """Cold ones count valid salted trials, too."""
    concurrency: int
    phase: Phase
    gauge: str
    """`gpu_utilisation` and `gpu_dram_active`: fractions, averaged over devices; `gpu_memory_used` and
    `host_memory_used`: bytes, `gpu_power`: watts, `host_load`: processes, each added up over devices."""
    devices: int
    mean: float
    """Over all looks of the phase."""
    peak: float
    """The largest look."""
    looks: int


class ClientLine(Struct, frozen=True, kw_only=True):
    """How this client kept up with a route's exchanges; `None`: not recorded by any of them."""

    route: str
    exchanges: int
    scrapes: int
    """Readings of the metrics page while exchanges were under way."""
    scrape_p50_ms: float | None
    """Median of the exchanges' medians."""
    scrape_max_ms: float | None
    scrape_share: float | None
    """Share of an exchange that its scrapes took together; median."""
    loop_lag_p99_ms: float | None
    """Median of the exchanges'."""
    loop_lag_max_ms: float | None
    gc_pause_max_ms: float | None
    cpu_share: float | None
    """CPU seconds of the client per second of an exchange; median."""
    uncertainty_ms: float | None
    """What the client's own delays may add to a time; median."""


def machine_lines(content: Content) -> tuple[MachineLine, ...]:
    """In the order of the machine table; empty where no machine was looked at."""
    return tuple(
        MachineLine(
            route=route,
            tier=tier,
            condition=condition,
            concurrency=level,
            phase=phase,
            gauge=gauge,
            devices=use.devices,
            mean=use.mean,
            peak=use.peak,
            looks=use.looks,
        )
        for (route, tier, level, condition), found in sorted_uses(content)
        for phase, gauge, use in _in_order(found.values())
    )


def client_lines(content: Content) -> tuple[ClientLine, ...]:
    """A line for each route of which any exchange tells how the client kept up."""
    found = []
    for route in content.routes:
        costs = [one.cost for one in content.details if one.route == route]
        uncertain = [one.client_uncertainty_s for one in content.measurements if one.route == route]
        if any(cost.scrapes or cost.client for cost in costs) or any(one is not None for one in uncertain):
            found.append(_client(route, costs, uncertain))
    return tuple(found)


def _in_order(uses: Iterable[PhaseUse]) -> list[tuple[Phase, str, PhaseUse]]:
    """By phase; gauges stay as they are."""
    ordered = sorted(uses, key=lambda use: PHASES.index(use.phase))
    return [(use.phase, use.gauge, use) for use in ordered]


def _client(route: str, costs: Sequence[Cost], uncertain: Sequence[float | None]) -> ClientLine:
    clients = [cost.client for cost in costs if cost.client is not None]
    return ClientLine(
        route=route,
        exchanges=len(costs),
        scrapes=sum(cost.scrapes for cost in costs),
        scrape_p50_ms=_median(cost.scrape_ms for cost in costs),
        scrape_max_ms=max((cost.longest_ms for cost in costs if cost.longest_ms is not None), default=None),
        scrape_share=_median(cost.share for cost in costs),
        loop_lag_p99_ms=_median(one.loop_lag_p99_ms for one in clients),
        loop_lag_max_ms=max((one.loop_lag_max_ms for one in clients), default=None),
        gc_pause_max_ms=max(
            (one.gc_pause_max_ms for one in clients if one.gc_pause_max_ms is not None), default=None
        ),
        cpu_share=_median(one.cpu_share for one in clients),
        uncertainty_ms=_median(None if one is None else one * 1000 for one in uncertain),
    )


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None
