"""The list of trials in report.html: waves stand together, and what is the wave's is called so."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import numpy as np
import pytest
import report_samples as samples
from report_runs import Server, plan, suite
from test_report_levels import mixed, waves

from bench.records import Samples, Verdict, Window
from bench.records.exchange import Wave
from bench.report import html
from bench.report.content import Content
from bench.report.detail import Detail, reduce_exchange
from bench.report.drill import FIELDS, drill
from bench.report.drill_wave import facts_of
from bench.report.figures_time import wave as wave_plot

RELEASED_NS = 5_000_000_000


def member(stream: int, sent_ns: int, samples_: Samples) -> Detail:
    """A request of the first wave of two, as the journal keeps it: samples stand in the first alone."""
    trial = plan(suite((256,), 1, 65))[0]
    exchange = Server("mtp4").serve(trial, 1.0, 0)
    wave = Wave(id="w1", size=2, released_ns=RELEASED_NS)
    waits = (
        {"idle_wait_s": 0.75, "settle_s": 0.5} if samples_.at_ns else {"idle_wait_s": None, "settle_s": None}
    )
    moved = msgspec.structs.replace(exchange, sent_ns=sent_ns, samples=samples_, wave=wave, **waits)
    found = reduce_exchange(moved, "")
    route, tier = samples.suite().routes[0].name, samples.suite().tiers[0]
    return msgspec.structs.replace(found, trial_id=f"{route}/{tier}/cold/1@2.{stream}")


def with_wave() -> Content:
    content = mixed(*waves(4.0))
    used = Samples(at_ns=(0, 1_000_000_000), took_ns=(1, 1), kv_usage=(0.1, 0.4))
    first = member(1, RELEASED_NS + 100_000_000, used)
    second = member(2, RELEASED_NS + 300_000_000, Samples())
    return msgspec.structs.replace(content, details=(first, second))


def rows(content: Content) -> list[dict[str, Any]]:
    return [dict(zip(FIELDS, row, strict=True)) for row in json.loads(drill(content).json)]


def test_requests_of_a_wave_are_listed_with_level_and_stream() -> None:
    found = [row for row in rows(with_wave()) if row["wave"] is not None]
    assert [row["trial"].partition("@")[2] for row in found] == ["2.1", "2.2"]
    assert [row["wave"][:4] for row in found] == [[0, 2, 1, 0.1], [0, 2, 2, 0.3]]
    assert len(rows(with_wave())) == len(rows(mixed())) + 2
    assert all(row["wave"] is None for row in rows(mixed()))


def test_waves_are_told_apart() -> None:
    found = [row["wave"][0] for row in rows(mixed(*waves(4.0, 5.0))) if row["wave"] is not None]
    assert found == [0, 0, 1, 1]


def test_samples_and_waits_are_the_waves_on_each_ones_clock() -> None:
    first, second = (row["detail"] for row in rows(with_wave()) if row["wave"] is not None)
    assert (first[3], first[4]) == ([0.0, 1.0], [0.1, 0.4])
    # sent 0.2 s later: the same looks came 0.2 s earlier after its own first byte
    assert second[3] == pytest.approx([-0.2, 0.8]) and second[4] == [0.1, 0.4]
    assert first[7] == second[7] == [0.75, 0.5]


def test_what_was_counted_for_the_whole_wave_is_told_of_each_of_its_requests() -> None:
    one, other = (dict(row["wave"][4]) for row in rows(with_wave()) if row["wave"] is not None)
    assert one == other and one["span"] == "4.000 s" and one["reused"] == "0 tokens"
    window = Window(
        id="w", size=4, span_s=8.0, output_tokens=400, cached_tokens=960, expected_cached=992,
        cached_source="usage", draft_tokens=200, accepted_tokens=150, queue_s=0.5, kv_usage_peak=0.25,
        waiting_peak=3.0, preemptions=0,
    )  # fmt: skip
    assert dict(facts_of(window)) == {
        "span": "8.000 s",
        "output": "400 tokens (50.0 tok/s)",
        "reused": "960 tokens of 992 expected (usage)",
        "accepted": "150 of 200 drafted (75.0%)",
        "mean queue": "0.5000 s",
        "KV peak": "25.0%",
        "waiting, most": "3",
        "preemptions": "0",
    }


def test_a_wave_is_drawn_on_the_clock_of_its_release() -> None:
    drawn = wave_plot(with_wave())
    assert drawn is not None
    axis, usage = drawn.axes
    curves = [line.get_xdata() for line in axis.get_lines()]
    # the same answer twice, sent 0.1 s and 0.3 s after the release
    assert len(curves) == 2 and np.asarray(curves[1]) - np.asarray(curves[0]) == pytest.approx(0.2)
    assert list(usage.get_lines()[0].get_xdata()) == pytest.approx([0.1, 1.1])
    assert "2 requests released together: mtp4/6316/cold/1" in axis.get_title()


@pytest.mark.parametrize("content", [samples.content(), mixed(*waves(4.0)), mixed(*waves(4.0, valid=False))])
def test_without_a_valid_wave_that_was_kept_none_is_drawn(content: Content) -> None:
    assert wave_plot(content) is None


def test_a_wave_with_an_excluded_request_is_not_drawn() -> None:
    content = with_wave()
    spoilt = msgspec.structs.replace(content.waves[0], verdict=Verdict(valid=False))
    assert wave_plot(msgspec.structs.replace(content, waves=(spoilt, content.waves[1]))) is None


def test_the_page_speaks_of_waves_only_where_there_are_some() -> None:
    said = "and for the other requests of its wave"
    assert said in html.render(with_wave()) and said not in html.render(samples.content())
