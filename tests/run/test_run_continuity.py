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
    with pytest.raises(Restarted, match="route b"):  # what b had is still known
        one.require(opened("b"), page(process_start=1.0))


# --- Several servers behind one address, without a process start on their pages -----------------------------


def first(generated: float) -> Scrape:
    return page(generation_tokens=generated, prompt_tokens=10 * generated)


def test_a_level_that_comes_back_at_a_second_look_is_no_restart() -> None:
    said: list[str] = []
    one, route = Continuity(said.append), opened()
    one.require(route, first(448.0))
    with pytest.raises(Restarted):
        one.require(route, first(80.0))
    one.require(route, first(448.0))  # the second look
    for level in (80.0, 448.0, 88.0, 512.0, 0.0, 88.0):
        one.require(route, first(level))
    assert one.clues == {}
    (told,) = said
    assert told.startswith("route a: several servers take turns behind its address")


def test_a_second_look_that_finds_the_former_server_further_on_is_no_restart() -> None:
    one, route = Continuity(), opened()
    one.require(route, first(448.0))
    one.look(route, first(80.0), 64)  # the request went to the other one
    assert "a" in one.clues
    one.require(route, first(512.0))
    assert one.clues == {}


def test_a_level_that_comes_back_after_a_supposed_restart_was_none() -> None:
    """As behind a balancer of connections, where all second looks find the same server."""
    one, route = Continuity(), opened()
    one.require(route, first(448.0))
    with pytest.raises(Restarted):
        one.require(route, first(80.0))
    one.forget(route)
    one.look(route, first(88.0), 8)
    one.require(route, first(448.0))
    one.require(route, first(88.0))


def test_every_restart_is_seen_whatever_its_engine_counts_by_itself() -> None:
    """SGLang asks itself something when it starts, and after each start the same requests may follow."""
    one, route = Continuity(), opened()
    one.require(route, first(100.0))
    for _ in range(5):
        with pytest.raises(Restarted, match=r"generation_tokens fell from [0-9]+ to 8"):
            one.require(route, first(8.0))
        one.forget(route)
        one.require(route, first(8.0))
        one.look(route, first(16.0), 8)
        one.require(route, first(16.0))
        one.look(route, first(100.0), 84)
    with pytest.raises(Restarted):
        one.require(route, first(0.0))


def test_servers_in_turns_with_configurations_of_their_own_are_told_from_a_third_one() -> None:
    def configured(blocks: str, generated: float) -> Scrape:
        return Scrape(
            at_ns=0,
            took_ns=0,
            status=200,
            values={"generation_tokens": generated},
            info={"num_gpu_blocks": blocks},
        )

    one, route = Continuity(), opened()
    one.require(route, configured("1000", 448.0))
    with pytest.raises(Restarted, match="num_gpu_blocks 1000 became 1003"):
        one.require(route, configured("1003", 500.0))
    one.require(route, configured("1000", 448.0))
    one.require(route, configured("1003", 500.0))
    with pytest.raises(Restarted, match="num_gpu_blocks 1003 became 500"):
        one.require(route, configured("500", 600.0))
