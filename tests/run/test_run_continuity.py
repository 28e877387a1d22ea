"""Whether a server is still the process that was last looked at."""

from __future__ import annotations

import pytest

from bench.engines import get
from bench.records import Route, Scrape, ServerFacts
from bench.run.continuity import Continuity, Restarted
from bench.run.openroute import OpenRoute
from bench.wire.client import Client


def opened(name: str = "a") -> OpenRoute:
    route = Route(name=name, base_url="http://127.0.0.1:1/v1")
    return OpenRoute(
        route=route,
        client=Client(route.base_url),
        dialect=get("vllm"),
        facts=ServerFacts(),
        model="m",
        metrics_url="http://127.0.0.1:1/metrics",
    )


def page(**values: float) -> Scrape:
    return Scrape(at_ns=0, took_ns=0, status=200, values=values)


def test_another_process_start_is_a_restart_until_its_server_is_recognised() -> None:
    one, route = Continuity(), opened()
    one.require(route, page(process_start=1.0, generation_tokens=5.0))
    for _ in range(2):
        with pytest.raises(Restarted, match=r"route a: .* restarted between requests \(process start 1"):
            one.require(route, page(process_start=2.0, generation_tokens=0.0))
    one.forget(route)
    one.require(route, page(process_start=2.0, generation_tokens=0.0))


def test_without_a_process_start_counters_that_fell_tell() -> None:
    one, route = Continuity(), opened()
    one.require(route, page(generation_tokens=5.0))
    one.require(route, page(generation_tokens=9.0))
    with pytest.raises(Restarted, match="generation_tokens fell from 9 to 0"):
        one.require(route, page(generation_tokens=0.0))


def test_a_restart_seen_after_a_request_is_told_before_the_next_one() -> None:
    one, route = Continuity(), opened()
    one.require(route, page(process_start=1.0))
    one.look(route, page(process_start=2.0))
    assert "process start" in one.clues["a"]
    with pytest.raises(Restarted):
        one.require(route, page(process_start=2.0))


def test_replicas_that_take_turns_behind_one_address_hold_up_nothing() -> None:
    one, route = Continuity(), opened()
    one.require(route, page(process_start=1.0))
    with pytest.raises(Restarted):
        one.require(route, page(process_start=2.0))
    one.forget(route)  # the other replica was recognised
    for start in (1.0, 2.0, 2.0, 1.0):
        one.require(route, page(process_start=start))


def test_routes_are_apart_and_a_page_that_did_not_come_tells_nothing() -> None:
    one = Continuity()
    one.require(opened("a"), page(process_start=1.0))
    one.require(opened("b"), page(process_start=2.0))
    one.require(opened("a"), Scrape(at_ns=0, took_ns=0, problem="nobody listens"))
    one.require(opened("a"), page(process_start=1.0))
