"""Measured figures beside the simulated server's record of what was planned and what happened."""

from __future__ import annotations

from typing import Any

import pytest

from bench.errors import EngineError
from bench.records import Exchange, Measurement, PromptRecipe, Trial, Verdict
from bench.run.truth import Figure, TrueRequest, TruthPage, compare


def sent(trial: str = "cold", *, tokens: int = 6316, **more: Any) -> Exchange:
    recipe = PromptRecipe(
        sha256="", tokens=tokens, endpoint="chat", corpus="", corpus_sha256="", task="", start=0
    )
    known = Trial(id=trial, route="a", tier=6316, condition="cold", repeat=1)
    return Exchange(trial=known, prompt=recipe, url="", sent_ns=1, ended_ns=1, **more)


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


def test_requests_are_matched_in_order_and_by_length() -> None:
    # Number 1 is a preflight's of another length, 2 fills the cache again and is never measured.
    others = (truth(4, drafts=44), truth(1, prompt_tokens=99), truth(3, drafts=33), truth(2, drafts=22))
    exchanges = [sent("x", purpose="prime"), sent("x"), sent("y")]
    found = compare(exchanges, [measured("y"), measured("x")], page(*others))
    assert [(one.measured.trial_id, one.true.drafts) for one in found] == [("y", 44), ("x", 33)]


def test_a_server_that_never_saw_the_request_is_an_engine_error() -> None:
    with pytest.raises(EngineError, match=r"route a: .* no request of 6,316 tokens for trial cold"):
        compare([sent()], [measured()], page())


def test_the_true_measurement_is_what_a_perfect_client_would_have_taken() -> None:
    (one,) = compare([sent()], [measured()], page(truth()))
    assert (one.true.ttft_s, one.true.total_s) == (0.0923, 0.2758)
    assert one.true.tpot_s == pytest.approx(0.1835 / 511)
