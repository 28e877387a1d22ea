"""Speculation position by position, the fitted laws, and what measuring itself cost."""

from __future__ import annotations

import msgspec
import pytest
import report_samples as samples
from report_runs import Server, plan, suite

from bench.analysis.statistics.summary import summarise
from bench.records import ClientHealth, Measurement, Samples
from bench.report.conditions import HEAD as CLIENT_HEAD
from bench.report.conditions import client_table
from bench.report.cost import cost_of
from bench.report.detail import Detail, reduce_exchange
from bench.report.drafts import acceptance_table
from bench.report.law_table import law_table


def detail(samples_: Samples, client: ClientHealth | None = None) -> Detail:
    """A real exchange of the made-up server, of 4 s, with these scrapes."""
    trial = plan(suite((256,), 1, 65))[0]
    exchange = Server("mtp4").serve(trial, 1.0, 0)
    changed = msgspec.structs.replace(exchange, samples=samples_, ended_ns=4_000_000_000, client=client)
    return reduce_exchange(changed, "run")


def test_positions_and_what_they_are_given_those_before_stand_side_by_side() -> None:
    table = acceptance_table(samples.content())
    assert table is not None
    rows = {row[:3]: row[3:] for row in table.rows}
    # made with 0.92, 0.84, 0.76, 0.67: 84 / 92, 76 / 84 and 67 / 76 given those before
    drafts, accept, step, chunk, positions, given = rows["mtp4", "564,580", "cold"]
    assert (drafts, positions, given) == ("122", "92 84 76 67", "92 91 90 88")
    assert (accept, step) == ("79.7%", "4.19")
    assert chunk == "3.96"  # 511 tokens in 129 chunks after the first
    assert not [row for row in table.rows if row[0] == "target-only"]


def test_positions_of_a_cell_are_its_counts_summed_up_and_not_medians_taken_apart() -> None:
    # accepted at 1 and 2: 8 and 8 of 8, 6 and 2 of 10, 1 and 0 of 2; together 15 and 10 of 20. Medians
    # would say 60, 20 and, given those before, 33.
    first = samples.measurements()[0]
    three = tuple(
        msgspec.structs.replace(first, drafts=drafts, acceptance_per_position=shares)
        for drafts, shares in ((8, (1.0, 1.0)), (10, (0.6, 0.2)), (2, (0.5, 0.0)))
    )
    table = acceptance_table(samples.content(three))
    assert table is not None
    assert table.rows[0][-2:] == ("75 50", "75 67")


def test_acceptance_of_a_cell_is_the_one_of_the_performance_table_where_trials_share_texts() -> None:
    # texts (1.0 and 0.5) and (0.0 and 0.0): 0.75 and 0, so 37.5%; the median of the four trials is 25.0%
    first = samples.measurements()[0]
    seen = [("cold", 1, 0.5, 2.75), ("salted", 1, 1.0, 2.0), ("cold", 2, 0.0, 1.0), ("salted", 2, 0.0, 1.0)]
    rows = tuple(
        msgspec.structs.replace(
            first, condition=condition, repeat=repeat, order=order, pair=f"{condition} {repeat}",
            acceptance=share, acceptance_length=length,
        )
        for order, (condition, repeat, share, length) in enumerate(seen)
    )  # fmt: skip
    content = samples.content(rows, summaries=tuple(summarise(rows)))
    table = acceptance_table(content)
    assert table is not None
    cold = next(row for row in table.rows if row[2] == "cold")
    assert cold[4:6] == ("37.5%", "1.69")
    found = next(one.estimates for one in content.summaries if one.condition == "cold")
    assert (found["acceptance"].value, found["acceptance_length"].value) == (0.375, 1.6875)


def test_nothing_follows_behind_a_position_that_was_never_reached() -> None:
    one = msgspec.structs.replace(samples.measurements()[0], acceptance_per_position=(0.5, 0.0, 0.0))
    table = acceptance_table(samples.content((one,)))
    assert table is not None
    assert table.rows[0][-2:] == ("50 0 0", "50 0 -")


def test_without_drafts_there_is_no_table_of_them() -> None:
    plain = tuple(one for one in samples.measurements() if one.route == "target-only")
    assert acceptance_table(samples.content(plain)) is None


def test_the_cost_of_scrapes_is_their_median_their_longest_and_their_share() -> None:
    one = detail(Samples(at_ns=(0, 1, 2), took_ns=(10_000_000, 20_000_000, 50_000_000))).cost
    assert (one.scrapes, one.scrape_ms, one.longest_ms) == (3, 20.0, 50.0)
    assert one.share == pytest.approx(0.080 / 4)
    bare = detail(Samples()).cost
    assert (bare.scrapes, bare.scrape_ms, bare.share) == (0, None, None)


def test_an_exchange_without_a_duration_has_no_share() -> None:
    trial = plan(suite((256,), 1, 65))[0]
    exchange = Server("mtp4").serve(trial, 1.0, 3)
    assert cost_of(msgspec.structs.replace(exchange, ended_ns=0)).share is None


def test_the_client_is_told_route_by_route() -> None:
    calm = ClientHealth(loop_lag_p50_ms=0.1, loop_lag_p99_ms=0.4, loop_lag_max_ms=1.0, cpu_share=0.05)
    busy = ClientHealth(
        loop_lag_p50_ms=0.1, loop_lag_p99_ms=0.8, loop_lag_max_ms=7.0, cpu_share=0.15, gc_pause_max_ms=2.5
    )
    details = tuple(
        detail(Samples(at_ns=(0,), took_ns=(took,)), client)
        for took, client in ((2_000_000, calm), (6_000_000, busy))
    )
    found = tuple(
        msgspec.structs.replace(one, client_uncertainty_s=0.0005) for one in samples.measurements()[:2]
    )
    table = client_table(samples.content(found, details=details))
    assert table is not None
    (row,) = table.rows
    assert dict(zip(CLIENT_HEAD, row, strict=True)) == {
        "route": "mtp4",
        "exchanges": "2",
        "scrapes": "2",
        "a scrape (ms)": "4.00",
        "longest (ms)": "6.00",
        "share of exchange": "0.10%",  # 2 ms and 6 ms of 4 s each
        "loop lag p99 (ms)": "0.600",
        "worst (ms)": "7.00",
        "longest GC pause (ms)": "2.50",
        "client CPU": "10.00%",
        "uncertainty (ms)": "±0.500",
    }


def test_a_table_of_figures_measured_earlier_has_no_client() -> None:
    assert client_table(samples.content()) is None


def test_laws_are_written_with_units_and_tested_by_a_third_tier_only() -> None:
    table = law_table(samples.content())
    assert table is not None
    rows = {row[0]: row[1:] for row in table.rows}
    law, miss, prefill, step, slowing = rows["target-only"]
    assert "ms/token" in law and "s/token^2" in law
    assert miss == "-"  # two tiers are met by any law
    assert prefill.startswith("6,316: 2,7") and "564,580: 1,03" in prefill
    # 1 / 31 and 1 / 8.772 s a token, one of two trials 1% slower; contexts have half the output added
    assert step == "6,572: 32.4; 564,836: 115"
    assert float(slowing) == pytest.approx((114.6 - 32.4) / (564_836 - 6_572) * 1e5, rel=0.01)


def test_a_route_with_one_tier_has_no_law() -> None:
    found: tuple[Measurement, ...] = tuple(m for m in samples.measurements() if m.tier == 6_316)
    assert law_table(samples.content(found)) is None
