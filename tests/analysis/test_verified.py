"""Predicted crossovers beside streams that go past them."""

from __future__ import annotations

import numpy as np
import pytest
from decision_samples import invalid, trial
from msgspec import structs

from bench.analysis.decisions.crossover import crossovers, one_way
from bench.analysis.decisions.verified import Verified, is_testable, sentence, tokens_wanted, verified
from bench.analysis.statistics.curves import Arrival, curve_key
from bench.records import Condition, Crossover, Measurement

# slow: 1 s, 0.02 s a token; fast: 3 s, 0.01 s a token. They meet at 1 + 2 / 0.01 = 201 tokens.
STARTS: tuple[tuple[Condition, float], ...] = (("cold", 0.0), ("replay", -0.5))
BASE = [
    trial(route, ttft, tpot, output=50, number=i, condition=condition)
    for i in range(1, 4)
    for condition, start in STARTS
    for route, ttft, tpot in (("slow", 1.0, 0.02), ("fast", 3.0 + start * 2, 0.01))
]
PREDICTED = one_way(crossovers(BASE))


def follow(route: str, tpot: float, tokens: int = 242) -> Measurement:
    # its own TTFT is far off: it must not count, since a condition's TTFT is the suite's
    return trial(route, 99.0, tpot, output=tokens, number=9, source="verify")


def curve_of(row: Measurement, late: float = 1.0, after: int = 100) -> Arrival:
    """A stream whose steps take `late` times as long from a token on."""
    tokens = np.arange(1, (row.output_tokens or 0) + 1, dtype=float)
    step = np.where(tokens[1:] > after, late, 1.0) * (row.tpot_s or 0.0)
    return tokens, 99.0 + np.concatenate([[0.0], np.cumsum(step)])


def results(fast_late: float = 1.0, *, tokens: int = 242, curves: bool = True) -> dict[str, Verified]:
    rows = [follow("slow", 0.02, tokens), follow("fast", 0.01, tokens)]
    known = {curve_key(r): curve_of(r, fast_late if r.route == "fast" else 1.0) for r in rows}
    found = verified(BASE, PREDICTED, rows, known if curves else {})
    return {one.crossover.condition: one for one in found}


def test_one_stream_a_side_tests_every_condition_with_the_suites_own_ttft() -> None:
    found = results()
    # cold: 2 s apart, 0.01 s a token; replay: 1 s apart
    assert found["cold"].output_tokens == pytest.approx(201, abs=0.01)
    assert found["replay"].output_tokens == pytest.approx(101, abs=0.01)
    assert {one.status for one in found.values()} == {"confirmed"}
    assert {(one.reached, one.basis, one.samples) for one in found.values()} == {(242, "curve", 1)}


def test_a_route_that_slows_moves_its_crossover() -> None:
    # 99 steps win 0.99 s of 2 s back; then a step wins 0.02 - 0.01 * 1.3 = 0.007: 144.3 more
    found = results(1.3, tokens=300)["cold"]
    assert found.status == "moved" and found.output_tokens == pytest.approx(100 + 1.01 / 0.007, abs=0.1)
    assert "but they meet at 244" in sentence(found)


def test_what_only_the_spread_confirms_says_how_far_off_it_is() -> None:
    wide = [structs.replace(one, low=100.0, high=300.0) for one in PREDICTED if one.condition == "cold"]
    rows = [follow("slow", 0.02, 300), follow("fast", 0.01, 300)]
    known = {curve_key(r): curve_of(r, 1.3 if r.route == "fast" else 1.0) for r in rows}
    (found,) = verified(BASE, wide, rows, known)
    # as above: 244.3 where 201 were predicted
    assert "confirmed at 244, +22% but inside the predicted spread, 100 to 300; " in sentence(found)
    assert "inside the predicted" not in sentence(results()["cold"])


def test_a_stream_that_never_gets_there_refutes_it_unless_the_spread_goes_further() -> None:
    found = results(1.9)["cold"]
    assert found.status == "not met" and found.output_tokens is None
    (cold,) = [one for one in PREDICTED if one.condition == "cold"]
    wide = structs.replace(cold, high=900.0)
    rows = [follow("slow", 0.02), follow("fast", 0.01)]
    known = {curve_key(r): curve_of(r, 1.9 if r.route == "fast" else 1.0) for r in rows}
    (still,) = verified(BASE, [wide], rows, known)
    assert still.status == "open" and "goes to 900" in sentence(still)


def far(low: float | None, high: float | None) -> Crossover:
    """201 predicted, with these ends."""
    (cold,) = [one for one in PREDICTED if one.condition == "cold"]
    return structs.replace(cold, low=low, high=high, spread="interval" if low or high else None)


def followed(prediction: Crossover, tokens: int, late: float) -> Verified:
    """Streams of so many tokens, those of fast `late` times slower after 100."""
    rows = [follow("slow", 0.02, tokens), follow("fast", 0.01, tokens)]
    known = {curve_key(r): curve_of(r, late if r.route == "fast" else 1.0) for r in rows}
    (found,) = verified(BASE, [prediction], rows, known)
    return found


def test_an_open_end_of_the_spread_is_no_limit() -> None:
    # 100 tokens win 0.99 s of 2 s back, then each wins 0.02 - 0.018 = 0.002 s: they meet at 605
    late = followed(far(150.0, None), 700, 1.8)
    assert late.status == "confirmed" and late.output_tokens == pytest.approx(605, abs=1)
    assert "inside the predicted spread, from 150 on; " in sentence(late)
    yet = followed(far(150.0, None), 400, 1.8)
    assert yet.status == "open" and "not met yet, and the predicted spread has no upper end; " in sentence(
        yet
    )
    # each of fast's steps after 100 takes 0.002 s: 1.01 / 0.018 = 56 more
    early = followed(far(None, 400.0), 300, 0.2)
    assert early.status == "confirmed" and early.output_tokens == pytest.approx(156, abs=1)
    assert "inside the predicted spread, up to 400; " in sentence(early)


def test_without_a_spread_the_point_is_what_is_confirmed() -> None:
    assert followed(far(None, None), 700, 1.8).status == "moved"
    assert followed(far(None, None), 400, 1.8).status == "not met"


def test_without_arrival_curves_the_mean_step_decides_and_is_named() -> None:
    found = results(curves=False)["cold"]
    assert (found.status, found.basis) == ("confirmed", "mean step")
    assert "(by the mean time per token)" in sentence(found)


def test_what_cannot_be_judged_says_why() -> None:
    short = results(tokens=150)["cold"]
    assert short.status == "not tested" and "ended after 150 tokens" in sentence(short)
    rows = [follow("slow", 0.02), invalid(follow("fast", 0.01), "foreign_traffic")]
    assert "is invalid (foreign_traffic)" in sentence(verified(BASE, PREDICTED, rows, {})[0])
    assert "no trial on fast" in sentence(verified(BASE, PREDICTED, rows[:1], {})[0])
    assert verified(BASE, PREDICTED, [], {}) == []


def test_a_lead_that_is_lost_again_confirms_nothing_unless_its_end_was_predicted() -> None:
    rows = [follow("slow", 0.02), follow("fast", 0.01)]
    # fast leads from 101 tokens on; after 150 its steps take 0.06 s, and by 163 the lead is gone
    known = {curve_key(r): curve_of(r, 6.0 if r.route == "fast" else 1.0, after=150) for r in rows}
    (replay,) = [one for one in PREDICTED if one.condition == "replay"]
    (found,) = verified(BASE, [replay], rows, known)
    assert found.status == "moved" and found.output_tokens == pytest.approx(101, abs=0.1)
    # 49 steps win 0.49 s, then each loses 0.04 s
    assert found.until == pytest.approx(150 + 0.49 / 0.04, abs=0.1)
    assert "but they meet at 101, and again at 162" in sentence(found)
    (expected,) = verified(BASE, [structs.replace(replay, until=160.0)], rows, known)
    assert (expected.status, expected.until) == ("confirmed", found.until)
    assert "confirmed at 101, and again at 162" in sentence(expected)


def test_only_a_crossover_without_a_measured_curve_is_worth_a_trial() -> None:
    (cold,) = [one for one in PREDICTED if one.condition == "cold"]
    assert is_testable(cold) and tokens_wanted(cold) == 242  # 1.2 * 201 = 241.2
    assert not is_testable(structs.replace(cold, basis="curve"))
    one_token = structs.replace(cold, output_tokens=1.0)
    always: Crossover = structs.replace(cold, status="always", output_tokens=None)
    assert not is_testable(one_token) and not is_testable(always)
