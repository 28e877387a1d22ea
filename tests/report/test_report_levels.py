"""The section on concurrency: there when requests ran together, and nowhere else."""

from __future__ import annotations

import json

import pytest
from report_samples import content, suite

from bench.records import Estimate, Level, Measurement, Percentiles, Reason, Verdict, Window
from bench.report import html, markdown, words
from bench.report.content import Content, assemble
from bench.report.export import measurements_csv, summary_json, table
from bench.report.levels import concurrency_line, level_table, terminal_levels
from bench.report.tables import terminal


def waves(*spans: float, valid: bool = True) -> tuple[Measurement, ...]:
    """Waves of two requests each on the first route of the sample study."""
    route, tier = suite().routes[0].name, suite().tiers[0]
    reasons = (
        ((), ()) if valid else ((Reason(id="early_stop", detail="3 of 9"),), (Reason(id="wave_spoilt"),))
    )
    return tuple(
        Measurement(
            trial_id=f"{route}/{tier}/cold/{number}@2.{stream}",
            route=route,
            tier=tier,
            condition="cold",
            concurrency=2,
            stream=stream,
            order=1000 + 2 * number + stream,
            prompt_tokens=tier,
            output_tokens=100,
            ttft_s=1.0 * stream,
            tpot_s=0.02,
            window=Window(id=f"w{number}", size=2, span_s=span, prompt_tokens=2 * tier, cached_tokens=0),
            verdict=Verdict(valid=valid, reasons=reasons[stream - 1]),
        )
        for number, span in enumerate(spans, 1)
        for stream in (1, 2)
    )


def mixed(*more: Measurement) -> Content:
    sample = content()
    return assemble(runs=sample.runs, measurements=(*sample.measurements, *more))


def test_without_waves_nothing_of_a_report_speaks_of_levels() -> None:
    one = mixed()
    assert one.levels == () and level_table(one) is None and terminal_levels(one, 100, 100) == ""
    assert "Concurrency" not in markdown.render(one) and "Concurrency" not in html.render(one)
    assert words.boundary_lines(one)[-1].startswith("One request at a time")


def test_levels_stand_in_every_output_with_what_they_are_made_of() -> None:
    one = mixed(*waves(4.0, 5.0))
    table = level_table(one)
    assert table is not None
    level = next(row for row in table.rows if row[3] == "2")
    # 200 tokens in 4 s and in 5 s; TTFT 1, 2, 1, 2.
    assert level[4:9] == ("2", "45.0", "0.450", "1.50/2.00/2.00", "50.0/50.0")
    page, text = html.render(one), markdown.render(one)
    assert "Concurrency" in page and "1.50/2.00/2.00" in page
    # so many columns stand closer, and a phone names the column beside the number
    assert page.count('cards dense"') == 1 and 'data-label="TTFT p50/p90/p99 (s)"' in page
    assert "## Concurrency" in text and "1.50/2.00/2.00" in text
    assert [found["concurrency"] for found in json.loads(summary_json(one))["levels"]].count(2) == 1
    assert concurrency_line(one).startswith("Up to 2 requests at once")


def test_nothing_else_of_a_report_changes_when_waves_are_added() -> None:
    without, with_waves = mixed(), mixed(*waves(4.0, 5.0))
    for field in ("measurements", "summaries", "comparisons", "crossovers", "routes"):
        assert getattr(without, field) == getattr(with_waves, field)
    assert len(table(with_waves)["trial_id"]) == len(table(without)["trial_id"]) + 4
    assert "@2.2" in measurements_csv(with_waves) and "window" not in measurements_csv(with_waves)


def test_an_invalid_wave_is_listed_by_the_request_at_fault_alone() -> None:
    one = mixed(*waves(4.0), *waves(1.0, valid=False))
    assert [bad.trial_id for bad in words.excluded(one) if "@" in bad.trial_id] == ["mtp4/6316/cold/1@2.1"]
    (row,) = [row for row in level_table(one).rows if row[3] == "2"]  # type: ignore[union-attr]
    assert row[4].source == "Valid waves. Excluded: 1 x early_stop."  # type: ignore[attr-defined]


def test_a_run_of_waves_alone_claims_nothing_about_single_requests() -> None:
    sample = content()
    one = assemble(runs=sample.runs, measurements=waves(4.0))
    assert "Nothing was measured" not in markdown.render(one) + html.render(one)
    assert "nothing measured yet" not in terminal(one)
    assert words.boundary_lines(one)[0].startswith("Tested up to 6,316 prompt tokens")


def a_wide_level() -> Content:
    """Everything about as wide as it gets."""
    wide = Estimate(value=123_456.7, low=1.0, high=2.0, spread="range", samples=2)
    times = Percentiles(p50=1234.5, p90=1234.5, p99=1234.5, samples=8)
    level = Level(
        route="a-route-with-a-very-long-name-indeed-that-goes-on",
        tier=1_000_000,
        condition="replay",
        concurrency=1024,
        waves=12,
        invalid=3,
        requests=8,
        output_tok_s=wide,
        requests_s=wide,
        ttft_s=times,
        tpot_s=Percentiles(p50=0.01234, p90=0.1, p99=1.0, samples=8),
        acceptance=Estimate(value=0.5),
        prefix_reuse=Estimate(value=0.9999),
        queue_s=wide,
        waiting_peak=1000.0,
    )
    sample = content()
    return Content(
        runs=sample.runs,
        measurements=(),
        summaries=(),
        comparisons=(),
        crossovers=(),
        details=(),
        gaps={},
        base=None,
        levels=(level,),
    )


@pytest.mark.parametrize("width", [80, 100, 140])
def test_the_terminal_table_fits_and_keeps_its_percentiles(width: int) -> None:
    lines = terminal_levels(a_wide_level(), width, width).splitlines()
    assert max(map(len, lines)) <= width
    row = next(line for line in lines if "123,457" in line)
    assert row.startswith(("a-", "a…"))
    assert "1,234/1,234/1,234" in row and "81.0/10.0" in row


def test_a_narrow_terminal_gets_medians_alone_and_is_told_so() -> None:
    lines = terminal_levels(mixed(*waves(4.0, 5.0)), 50, 50).splitlines()
    assert max(map(len, lines)) <= 50
    assert lines[1].split() == ["route", "tier", "condition", "at", "out", "TTFT", "decode"]
    assert lines[2].split() == ["once", "p50", "p50"] and lines[3].split() == ["tok", "tok/s", "s", "tok/s"]
    assert "/" not in lines[5] and len(lines[5].split()) == 7
    assert " ".join(" ".join(lines[-2:]).split()).endswith(
        "no room for the other percentiles, and more: see report.md"
    )


def test_a_usual_level_keeps_its_names_at_eighty_columns() -> None:
    lines = terminal_levels(mixed(*waves(4.0, 5.0)), 80, 80).splitlines()
    assert max(map(len, lines)) <= 80
    head, row = lines[1].split(), lines[5].split()
    assert head == ["route", "tier", "condition", "at", "waves", "out", "TTFT", "decode", "accept", "reuse"]
    assert len(row) == len(head) and row[3:6] == ["2", "2", "45.0"]
