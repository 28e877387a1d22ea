"""Connecting: where a route's metrics page is looked for, and what is said where there is none.

The answers were constructed after the engines' sources, not recorded.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from handled import Handled

from bench.errors import EngineError, SuiteError
from bench.records import Route
from bench.run.openroute import OpenRoute, connect
from bench.run.preflight.probe import server_ids
from bench.run.watch.order import WatchOrder, metrics_address, watched_route
from bench.wire.client import Client

OTHERS = Path(__file__).parent.parent / "recordings" / "pages" / "others"
TRTLLM_PAGE = (OTHERS / "trtllm_2026_constructed_mtp3_before.prom").read_text(encoding="utf-8")
ITERATIONS = '[{"iter": 1, "numActiveRequests": 1, "kvCacheStats": {"tokensPerBlock": 32}}]'
TRTLLM = {
    "/v1/models": '{"object": "list", "data": [{"id": "glm", "owned_by": "tensorrt_llm"}]}',
    "/version": '{"version": "1.3.0rc24"}',
    "/metrics": ITERATIONS,
    "/prometheus/metrics": TRTLLM_PAGE,
}


def connected(answers: dict[str, str], **route: Any) -> tuple[OpenRoute, list[str]]:
    """A route whose server gives these answers (404 for the rest), and the metrics pages it read."""
    read: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        path = request.url.path
        if path.endswith("metrics"):
            read.append(path)
        return httpx.Response(200, text=answers[path]) if path in answers else httpx.Response(404)

    async def connecting() -> OpenRoute:
        named = Route(name="a", base_url="http://host:8000/v1", **route)
        async with Client(named.base_url, transport=Handled(answer)) as client:
            return await connect(named, client)

    return asyncio.run(connecting()), read


def test_a_named_engine_s_page_is_read_where_it_is_and_no_other() -> None:
    opened, read = connected(TRTLLM, engine="trtllm")
    assert read == ["/prometheus/metrics"]  # reading /metrics would empty it
    assert opened.metrics_url == "http://host:8000/prometheus/metrics"
    assert (opened.dialect.name, opened.facts.num_speculative_tokens) == ("trtllm", 3)
    assert opened.notes == ()


def test_json_where_the_page_usually_is_leads_to_the_other_place_once() -> None:
    opened, read = connected(TRTLLM)
    assert read == ["/metrics", "/prometheus/metrics"]
    assert opened.metrics_url == "http://host:8000/prometheus/metrics"
    assert (opened.dialect.name, opened.facts.block_size) == ("trtllm", 32)


def test_an_address_in_the_suite_wins_over_both() -> None:
    answers = {**TRTLLM, "/behind/metrics": TRTLLM_PAGE}
    for engine in (None, "trtllm"):
        opened, read = connected(answers, engine=engine, metrics_url="http://host:8000/behind/metrics")
        assert read == ["/behind/metrics"]
        assert opened.metrics_url == "http://host:8000/behind/metrics"
    with pytest.raises(EngineError, match=r"404 .*; there is no such path: is metrics_url right[?]$"):
        connected(TRTLLM, metrics_url="http://host:8000/behind/metrics")


@pytest.mark.parametrize("engine", [None, "trtllm"])
def test_a_missing_page_is_a_matter_of_how_the_server_was_started(engine: str | None) -> None:
    without = {path: text for path, text in TRTLLM.items() if path != "/prometheus/metrics"}
    opened, _ = connected(without, engine=engine)
    assert (opened.metrics_url, opened.dialect.name) == (None, "trtllm")
    (note,) = opened.notes
    assert "base_url" not in note
    assert "start it with return_perf_metrics: true" in note and "/prometheus/metrics" in note
    assert note.endswith("only the client's own numbers are proven")


def test_json_in_both_places_is_no_page() -> None:
    opened, _ = connected({**TRTLLM, "/prometheus/metrics": '{"error": "no"}'})
    assert opened.metrics_url is None and "too" in opened.notes[0]


def test_a_server_without_a_page_is_told_what_its_own_engine_needs() -> None:
    models = '{"data": [{"id": "qwen", "owned_by": "lmdeploy"}]}'
    opened, read = connected({"/v1/models": models})
    assert read == ["/metrics"]  # a page that is not there is not looked for elsewhere
    assert "start it without --disable-metrics" in opened.notes[0]
    plain, _ = connected({"/v1/models": '{"data": [{"id": "m", "owned_by": "me"}]}'})
    assert plain.dialect.name == "generic" and "start it" not in plain.notes[0]


def test_the_page_of_a_front_that_serves_no_model_itself_is_refused() -> None:
    page = '# TYPE dynamo_frontend_requests_total counter\ndynamo_frontend_requests_total{model="m"} 4\n'
    answers = {"/v1/models": '{"data": [{"id": "m", "owned_by": "nvidia"}]}', "/metrics": page}
    opened, _ = connected(answers)
    assert (opened.metrics_url, opened.dialect.name) == (None, "generic")
    assert "Dynamo frontend's: give its worker's as metrics_url" in opened.notes[0]


def test_what_an_engine_has_and_this_server_lacks_asks_whose_it_is() -> None:
    async def counting() -> None:
        def answer(request: httpx.Request) -> httpx.Response:
            models = request.url.path == "/v1/models"
            return httpx.Response(200, text=TRTLLM["/v1/models"]) if models else httpx.Response(404)

        route = Route(name="a", base_url="http://host:8000/v1", engine="vllm")
        async with Client(route.base_url, transport=Handled(answer)) as client:
            await server_ids(await connect(route, client), [{"role": "user", "content": "a"}])

    with pytest.raises(
        EngineError, match=r"/tokenize: HTTP 404 .*; there is no such path: is this vLLM .*[?]$"
    ):
        asyncio.run(counting())


def test_models_that_are_not_found_ask_for_base_url() -> None:
    with pytest.raises(EngineError, match=r"/v1/models: HTTP 404 .*does base_url end in the version part"):
        connected({})


def test_a_watch_of_a_named_engine_reads_its_page_too() -> None:
    for url in ("http://h:8000", "http://h:8000/v1/", "http://h:8000/prometheus/metrics"):
        address = metrics_address(url, "trtllm")
        assert address == "http://h:8000/prometheus/metrics"
        assert watched_route(WatchOrder(url=url), address, "trtllm").base_url == "http://h:8000/v1"
    for engine in (None, "vllm", "strange"):
        assert metrics_address("http://h:8000", engine) == "http://h:8000/metrics"
    assert watched_route(WatchOrder(url=""), "http://h/metrics", "vllm").base_url == "http://h/v1"
    with pytest.raises(SuiteError):
        metrics_address("h:8000", "trtllm")


@pytest.mark.parametrize(
    "data",
    [
        '["x", {"id": "glm"}]',
        '[null, 3, [], {"id": 7}, {"id": null}, {"name": "other"}, {"id": "glm", "owned_by": "vllm"}]',
    ],
)
def test_what_is_no_model_in_a_list_of_models_is_passed_over(data: str) -> None:
    opened, _ = connected({"/v1/models": f'{{"data": {data}}}'}, engine="vllm")
    assert (opened.model, opened.facts.model) == ("glm", "glm")


@pytest.mark.parametrize("models", ["[]", "3", '{"data": {"id": "glm"}}', '{"data": ["glm", {"id": 1}]}'])
def test_an_answer_that_lists_no_model_is_one_clear_line(models: str) -> None:
    with pytest.raises(EngineError, match=r"/models lists no model; is base_url right\?$"):
        connected({"/v1/models": models}, engine="vllm")


def test_names_of_any_length_and_number_are_shown_in_short() -> None:
    models = {"data": [{"id": f"{number}" * 5000} for number in range(9)]}
    with pytest.raises(EngineError) as error:
        connected({"/v1/models": msgspec.json.encode(models).decode()}, engine="vllm")
    assert len(str(error.value)) < 1000
