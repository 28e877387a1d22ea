"""What machines did, in summary.json: figures by hand."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec import structs
from report_samples import detail

from bench.analysis.statistics.machine import PhaseUse
from bench.records import ClientHealth, Measurement, Verdict
from bench.report.content import Content, assemble
from bench.report.cost import Cost
from bench.report.detail import Detail
from bench.report.export import SummaryFile, summary_json
from bench.report.load import client_lines, machine_lines


def use(phase: Any, gauge: str, mean: float, peak: float, looks: int) -> PhaseUse:
    return PhaseUse(phase=phase, gauge=gauge, devices=4, mean=mean, peak=peak, looks=looks)


def client(lag_ms: float, worst_ms: float, cpu: float, gc_ms: float | None) -> ClientHealth:
    return ClientHealth(
        loop_lag_p50_ms=0.1,
        loop_lag_p99_ms=lag_ms,
        loop_lag_max_ms=worst_ms,
        cpu_share=cpu,
        gc_pause_max_ms=gc_ms,
    )


def measurement(name: str, condition: Any, *, valid: bool = True) -> Measurement:
    verdict = Verdict(valid=valid)
    return Measurement(
        trial_id=name, source="run", route="a", tier=1_000, condition=condition, verdict=verdict
    )


def content(*trials: tuple[Measurement, Detail]) -> Content:
    rows, details = zip(*trials, strict=True)
    return assemble(runs=(), measurements=rows, details=details)


def written(made: Content) -> SummaryFile:
    return msgspec.json.decode(summary_json(made), type=SummaryFile)


def test_a_gauge_of_the_machine_is_over_all_looks_of_valid_trials_of_a_kind() -> None:
    made = content(
        (
            measurement("c", "cold"),
            detail(
                "c", use("decode", "gpu_power", 600, 700, 2), use("prefill", "gpu_power", 1_000, 1_200, 10)
            ),
        ),
        (measurement("s", "salted"), detail("s", use("prefill", "gpu_power", 1_300, 1_400, 20))),
        (measurement("x", "cold", valid=False), detail("x", use("prefill", "gpu_power", 9_000, 9_000, 5))),
        (measurement("r", "replay"), detail("r", use("prefill", "gpu_utilisation", 0.25, 0.5, 1))),
    )
    found = [
        (one.condition, one.phase, one.gauge, one.mean, one.peak, one.looks) for one in written(made).machine
    ]
    # (1,000 W x 10 + 1,300 W x 20) / 30 looks = 1,200 W.
    assert found == [
        ("cold", "prefill", "gpu_power", 1_200.0, 1_400.0, 30),
        ("cold", "decode", "gpu_power", 600.0, 700.0, 2),
        ("replay", "prefill", "gpu_utilisation", 0.25, 0.5, 1),
    ]
    (first, *_) = machine_lines(made)
    assert (first.route, first.tier, first.concurrency, first.devices) == ("a", 1_000, 1, 4)


def test_how_the_client_kept_up_is_medians_and_worst_cases_of_a_routes_exchanges() -> None:
    costs = (
        Cost(scrapes=2, scrape_ms=4.0, longest_ms=6.0, share=0.01, client=client(1.0, 9.0, 0.02, 3.0)),
        Cost(scrapes=3, scrape_ms=5.0, longest_ms=20.0, share=0.03, client=client(2.0, 4.0, 0.04, None)),
        Cost(client=client(6.0, 7.0, 0.30, 5.0)),
    )
    made = content(
        *(
            (
                structs.replace(measurement(str(n), "cold"), client_uncertainty_s=0.0003 * (n + 1)),
                detail(str(n), cost=cost),
            )
            for n, cost in enumerate(costs)
        )
    )
    (line,) = written(made).client
    assert (line.route, line.exchanges, line.scrapes) == ("a", 3, 5)
    assert (line.scrape_p50_ms, line.scrape_max_ms, line.scrape_share) == pytest.approx((4.5, 20.0, 0.02))
    assert (line.loop_lag_p99_ms, line.loop_lag_max_ms, line.gc_pause_max_ms) == (2.0, 9.0, 5.0)
    assert (line.cpu_share, line.uncertainty_ms) == pytest.approx((0.04, 0.6))


def test_what_nobody_recorded_is_absent() -> None:
    made = content((measurement("c", "cold"), detail("c")))
    assert machine_lines(made) == () == client_lines(made)
    assert (written(made).machine, written(made).client) == ((), ())
    lone = content((measurement("c", "cold"), detail("c", cost=Cost(client=client(1.0, 2.0, 0.1, None)))))
    (line,) = client_lines(lone)
    assert (line.scrapes, line.scrape_p50_ms, line.scrape_max_ms, line.gc_pause_max_ms) == (
        0,
        None,
        None,
        None,
    )
    assert line.uncertainty_ms is None
