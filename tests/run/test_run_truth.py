"""Measured figures beside the simulated server's record of what was planned and what happened."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest
from run_helpers import exchanges, suite_text

from bench.analysis.verdicts.measure import measure_all
from bench.errors import EngineError
from bench.journal import read_info
from bench.plan.suite import parse_suite
from bench.records import Exchange, Measurement, PromptRecipe, Trial, Verdict
from bench.run.progress import Progress
from bench.run.study import Order, start
from bench.run.truth import Figure, TrueRequest, TruthPage, compare, fetch
from bench.servers.simulator import start as simulate


def sent(trial: str = "cold", *, sent_ns: int = 999_900_000, **more: Any) -> Exchange:
    """An exchange that lasted for 300 ms, and was sent 0.1 ms before the truth's request arrived."""
    recipe = PromptRecipe(
        sha256="", tokens=6316, endpoint="chat", corpus="", corpus_sha256="", task="", start=0
    )
    known = Trial(id=trial, route="a", tier=6316, condition="cold", repeat=1)
    return Exchange(trial=known, prompt=recipe, url="", sent_ns=sent_ns, ended_ns=300_000_000, **more)


def measured(trial: str = "cold", **more: Any) -> Measurement:
    values: dict[str, Any] = {
        "trial_id": trial,
        "route": "a",
        "tier": 6316,
        "condition": "cold",
        "prompt_tokens": 6316,
        "output_tokens": 512,
        "cached_tokens": 0,
        "drafts": 131,
        "draft_tokens": 524,
        "accepted_tokens": 384,
        "ttft_s": 0.0928,
        "total_s": 0.2764,
        "verdict": Verdict(valid=True),
    }
    return Measurement(**(values | more))


def truth(number: int = 1, **more: Any) -> TrueRequest:
    values: dict[str, Any] = {
        "number": number,
        "prompt_tokens": 6316,
        "output_tokens": 512,
        "cached_tokens": 0,
        "drafts": 131,
        "draft_tokens": 524,
        "accepted_tokens": 384,
        "arrived_ns": 1_000_000_000,
        "ttft_s": 0.0923,
        "total_s": 0.2758,
        "chunk_sent_ns": (1_092_500_000, 1_275_900_000),
        "chunk_tokens": (1, 511),
    }
    return TrueRequest(**(values | more))


def page(*requests: TrueRequest) -> dict[str, TruthPage]:
    return {"a": TruthPage(speed=32, requests=requests)}


def test_an_error_is_the_sum_of_the_simulators_lateness_and_the_clients_own_error() -> None:
    (one,) = compare([sent()], [measured()], page(truth()))
    in_ms = [
        (figure.name, *(round(value * 1000, 6) for value in (figure.plan_s, figure.ruler_s, figure.error_s)))
        for figure in one.figures
    ]
    assert in_ms == [("first token", 0.2, 0.3, 0.5), ("decode", -0.1, 0.2, 0.1), ("total", 0.1, 0.5, 0.6)]


@pytest.mark.parametrize(
    ("measured_s", "planned_s", "tolerance_s", "share"),
    [
        (0.0928, 0.0923, 0.001, 0.5),  # 1% would be 0.923 ms
        (0.2764, 0.2758, 0.002758, 0.6 / 2.758),
        (21.0, 21.3, 0.213, 0.3 / 0.213),  # too small is as wrong as too large
        (0.0010, 0.0, 0.001, 1.0),
    ],
)
def test_a_figure_may_be_off_by_the_larger_of_one_percent_and_a_millisecond(
    measured_s: float, planned_s: float, tolerance_s: float, share: float
) -> None:
    figure = Figure(trial_id="t", name="total", measured_s=measured_s, happened_s=0.0, planned_s=planned_s)
    assert figure.tolerance_s == pytest.approx(tolerance_s)
    assert figure.share == pytest.approx(share)


def test_counts_that_differ_are_told_with_both_values() -> None:
    (one,) = compare([sent()], [measured(drafts=130, cached_tokens=16)], page(truth()))
    assert one.wrong_counts() == {"drafts": (130, 131), "cached_tokens": (16, 0)}


def test_counts_of_speculation_that_a_server_does_not_keep_are_not_wrong() -> None:
    alone = measured(drafts=None, draft_tokens=None, accepted_tokens=None)
    (one,) = compare([sent()], [alone], page(truth(drafts=0, draft_tokens=0, accepted_tokens=0)))
    assert one.wrong_counts() == {}


def test_a_request_that_failed_has_no_figures() -> None:
    failed = measured(ttft_s=None, total_s=None)
    (one,) = compare([sent()], [failed], page(truth(ttft_s=None, total_s=None, chunk_sent_ns=())))
    assert one.figures == ()


def test_the_truth_of_an_exchange_is_the_request_that_arrived_while_it_lasted() -> None:
    # All of one length: a preflight's and two trials. What fills the cache again is never measured, so
    # that it needs no truth.
    requests = [truth(n, drafts=n, arrived_ns=at) for n, at in ((1, 100), (3, 2000), (4, 3000))]
    exchanges = [
        sent("x", sent_ns=990, purpose="prime", attempt=2),
        sent("x", sent_ns=1990, attempt=2),
        sent("y", sent_ns=2990),
    ]
    exchanges = [msgspec.structs.replace(one, ended_ns=500) for one in exchanges]
    found = compare(exchanges, [measured("y"), measured("x", attempt=2)], page(*requests))
    assert [(one.measured.trial_id, one.true.drafts) for one in found] == [("y", 4), ("x", 3)]


@pytest.mark.parametrize("arrived_ns", [999_899_999, 1_299_900_001])
def test_a_server_that_never_saw_the_request_is_an_engine_error(arrived_ns: int) -> None:
    with pytest.raises(EngineError, match=r"route a: .* no request for trial cold"):
        compare([sent()], [measured()], page(truth(arrived_ns=arrived_ns)))


def test_the_true_measurement_is_what_a_perfect_client_would_have_taken() -> None:
    (one,) = compare([sent()], [measured()], page(truth()))
    assert (one.true.ttft_s, one.true.total_s) == (0.0923, 0.2758)
    assert one.true.tpot_s == pytest.approx(0.1835 / 511)


def test_of_a_real_run_every_count_is_exact_and_nobody_is_early(tmp_path: Path) -> None:
    with simulate("toy") as server:
        route = 'speculation = { method = "mtp", num_speculative_tokens = 2 }'
        text = suite_text({"a": server.base_url}, route=route)
        order = Order(suite=parse_suite(text), suite_text=text, results=tmp_path)

        async def run() -> tuple[Path, TruthPage]:
            return await start(order, Progress()), await fetch(order.suite.routes[0])

        path, told = asyncio.run(run())
    sent_ones = exchanges(path)
    found = compare(sent_ones, list(measure_all(read_info(path), sent_ones)), {"a": told})
    assert len(found) >= 12, "two tiers, three conditions, two repeats"
    assert [one.wrong_counts() for one in found] == [{}] * len(found)
    figures = {(one.measured.trial_id, figure.name): figure for one in found for figure in one.figures}
    assert len(figures) >= 3 * 12
    for (trial, name), figure in figures.items():
        if name != "decode":  # a decode looks short where its first token came late
            assert figure.plan_s >= 0 and figure.ruler_s > 0, (trial, name)


def test_a_server_that_is_no_simulator_has_no_truth() -> None:
    with simulate("toy") as server:
        text = suite_text({"a": f"{server.origin}/nowhere/v1"})

        async def ask() -> TruthPage:
            return await fetch(parse_suite(text).routes[0])

        with pytest.raises(EngineError, match="/nowhere/truth"):
            asyncio.run(ask())
