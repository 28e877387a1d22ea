"""The look at a server before the first request."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import cast

import pytest

from bench import engines
from bench.engines.metrics import read_page
from bench.records import Scrape
from bench.run.openroute import OpenRoute
from bench.run.preflight import probe

PAGE = """sglang:num_running_reqs{{model_name="m",tp_rank="0"}} 1.0
sglang:num_queue_reqs{{model_name="m",tp_rank="0"}} 0.0
sglang:time_to_first_token_seconds_sum{{model_name="m"}} 9.5
sglang:time_to_first_token_seconds_count{{model_name="m"}} {begun}
sglang:num_requests_total{{model_name="m"}} 5.0
"""


@pytest.mark.parametrize(("begun", "at_work"), [(5, False), (6, True)])
def test_a_request_that_ended_keeps_no_server_busy_though_its_gauge_lags(
    begun: int, at_work: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe, "_IDLE_LIMIT_S", 2.0)
    monkeypatch.setattr("bench.wire.scrape._LONG_STILL_S", 3600.0)  # not within this test
    dialect = engines.get("sglang")
    values = read_page(PAGE.format(begun=begun), dialect).values

    async def look(opened: OpenRoute) -> Scrape:
        return Scrape(at_ns=0, took_ns=0, status=200, values=values)

    monkeypatch.setattr(probe, "look", look)
    opened = SimpleNamespace(metrics_url="http://127.0.0.1:1/metrics", dialect=dialect)
    assert asyncio.run(probe.busy(cast(OpenRoute, opened))) is at_work
