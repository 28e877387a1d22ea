from __future__ import annotations

import pytest
from decision_samples import invalid, trial, truth
from decision_samples import two_routes as rows
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.analysis.advise import Advisor, Request, advise, advise_workload, read_workload
from bench.errors import SuiteError


def test_between_tiers_the_laws_give_the_expected_latency() -> None:
    request = Request(prompt_tokens=100_000, output_tokens=300)
    found = advise(rows(noise=0.0), request)
    for one in found:
        assert one.total_s is not None
        assert one.total_s.value == pytest.approx(truth(one.route, 100_000, 300), rel=1e-6)
    assert [one.route for one in found] == ["slow", "fast"]
    assert [one.best for one in found] == [True, False]
    assert found[0].prompt_factor == pytest.approx(100 / 256)
    assert found[0].output_factor == pytest.approx(300 / 512)


def test_long_outputs_turn_the_advice() -> None:
    found = advise(rows(), Request(prompt_tokens=100_000, output_tokens=20_000))
    assert found[0].route == "fast" and found[0].best and found[0].certain


def test_a_measured_tier_is_used_as_it_was_measured() -> None:
    measurements = [trial("a", 2.0, 0.01), trial("a", 3.0, 0.02, condition="salted"), trial("b", 9.0, 0.01)]
    first, _ = advise(measurements, Request(prompt_tokens=1000, output_tokens=101))
    assert first.route == "a" and first.ttft_s is not None and first.decode_s is not None
    assert (first.ttft_s.value, first.ttft_s.low, first.ttft_s.high) == (2.5, 2.0, 3.0)
    assert (first.decode_s.low, first.decode_s.high) == pytest.approx((1.0, 2.0))
    assert first.basis["ttft_s"] == "measured at 1,000 tokens (2 trials)"
    assert first.total_s is not None and first.total_s.spread == "range"


def test_a_replay_with_the_same_cached_part_stands_for_the_request() -> None:
    measurements = [trial("a", 9.0, 0.01), trial("a", 0.5, 0.01, condition="replay", cached_tokens=900)]
    (one,) = advise(measurements, Request(prompt_tokens=1000, reused_tokens=900, output_tokens=2))
    assert one.ttft_s is not None and one.ttft_s.value == 0.5
    (other,) = advise(measurements, Request(prompt_tokens=1000, reused_tokens=500, output_tokens=2))
    assert other.ttft_s is None and other.absent["ttft_s"] == "one tier (1,000 tokens) gives no law"


def test_what_cannot_be_known_is_absent_and_never_best() -> None:
    found = advise([*rows(), trial("new", None, 0.001)], Request(prompt_tokens=64_000, output_tokens=10))
    last = found[-1]
    assert (last.route, last.ttft_s, last.total_s, last.best) == ("new", None, None, False)
    assert last.absent["ttft_s"] == "no valid cold trial"
    assert not any(one.certain for one in found)


def test_nothing_valid_and_impossible_requests_are_errors() -> None:
    with pytest.raises(SuiteError, match="no valid measurement"):
        Advisor([invalid(trial())])
    with pytest.raises(SuiteError, match="the reused part is shorter"):
        advise([trial()], Request(prompt_tokens=10, reused_tokens=10, output_tokens=1))


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 2_000_000), st.integers(1, 200_000), st.floats(0, 0.99))
def test_any_request_gets_finite_numbers(prompt: int, output: int, share: float) -> None:
    request = Request(prompt_tokens=prompt, output_tokens=output, reused_tokens=int(prompt * share))
    for one in ADVISOR.advise(request):
        assert one.total_s is not None and 0 < one.total_s.value < 1e9
        assert one.total_s.low is None or one.total_s.low <= one.total_s.value


ADVISOR = Advisor(rows())


def test_a_workload_is_the_sum_of_its_requests() -> None:
    short, long = (Request(prompt_tokens=64_000, output_tokens=k) for k in (10, 9_000))
    totals = {one.route: one for one in advise_workload(rows(noise=0.0), [short, short, long])}
    for route, one in totals.items():
        expected = 2 * truth(route, 64_000, 10) + truth(route, 64_000, 9_000)
        assert one.total_s == pytest.approx(expected, rel=0.01)
        assert (one.requests, one.without, one.beyond) == (3, 0, 1)
    assert (totals["slow"].best_for, totals["fast"].best_for) == (2, 1)


def test_a_route_without_an_answer_has_no_total() -> None:
    measurements = [*rows(), trial("new", None, 0.001)]
    last = advise_workload(measurements, [Request(prompt_tokens=64_000, output_tokens=10)])[-1]
    assert (last.route, last.total_s, last.without, last.absent) == ("new", None, 1, "no valid cold trial")


def test_workloads_are_read_from_csv_and_logged_replies() -> None:
    text = "# a day\nprompt_tokens,output_tokens,reused_tokens,count\n1000,10,,2\n2000,20,500,\n"
    one = Request(prompt_tokens=1000, output_tokens=10)
    two = Request(prompt_tokens=2000, output_tokens=20, reused_tokens=500)
    assert read_workload(text, source="w") == [one, one, two]
    usage = (
        '{"prompt_tokens": 2000, "completion_tokens": 20, "prompt_tokens_details": {"cached_tokens": 500}}'
    )
    lines = f'{{"id": "x", "usage": {usage}}}\n\n{{"response": {{"body": {{"usage": {usage}}}}}}}\n'
    assert read_workload(lines, source="w") == [two, two]
    assert read_workload('{"prompt_tokens": 1000, "output_tokens": 10}', source="w") == [one]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "a workload needs the columns"),
        ("prompt,output\n1,2\n", "a workload needs the columns prompt_tokens and output_tokens"),
        ("prompt_tokens,output_tokens\n", "no request"),
        ("prompt_tokens,output_tokens\n10,x\n", "w, line 2, column output_tokens: 'x' is not a whole"),
        ("prompt_tokens,output_tokens\n10\n", "column output_tokens: 'None'"),
        ("prompt_tokens,output_tokens,reused_tokens\n10,1,10\n", "reused_tokens 10 is not less"),
        ("prompt_tokens,output_tokens,count\n10,1,9999999\n", "more than 1,000,000 requests"),
        ('{"prompt_tokens": 1}', "column output_tokens"),
        ("{bad", "w, line 1: not JSON"),
        ('{"usage": {"prompt_tokens": true, "completion_tokens": 1}}', "column prompt_tokens: 'True'"),
    ],
)
def test_a_bad_workload_is_refused_with_its_place(text: str, message: str) -> None:
    with pytest.raises(SuiteError, match=message):
        read_workload(text, source="w")
