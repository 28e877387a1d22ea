from __future__ import annotations

import pytest
from decision_samples import invalid, trial
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from bench.analysis.decisions.goodput import Goodput, Promise, fewest, goodput, highest, wilson
from bench.records import Failure, Measurement, Window

PROMISE = Promise(ttft_s=1.0, tpot_s=0.05)


def wave(number: int, ttfts: list[float], *, tpot: float = 0.02) -> list[Measurement]:
    """Requests that ran together for two seconds."""
    together = len(ttfts)
    window = Window(id=f"w{together}-{number}", size=together, span_s=2.0)
    return [
        trial("a", ttft, tpot, number=number, concurrency=together, stream=place, window=window)
        for place, ttft in enumerate(ttfts, 1)
    ]


def one(rows: list[Measurement], promise: Promise = PROMISE, share: float = 0.9) -> Goodput:
    [found] = goodput(rows, promise, share=share)
    return found


def test_a_request_is_judged_by_itself_and_the_rate_counts_those_within_the_limits() -> None:
    # 3 of 4 and 4 of 4 within 1 s, in two spans of 2 s: 7 requests in 4 s
    found = one([*wave(1, [0.5, 0.9, 1.0, 1.1]), *wave(2, [0.1, 0.2, 0.3, 0.4])])
    assert (found.waves, found.requests, found.met, found.failed) == (2, 8, 7, 0)
    assert found.share == 0.875
    assert found.requests_s == 1.75
    assert one(wave(1, [0.5, 0.5], tpot=0.06)).met == 0


def test_the_interval_of_a_share_is_wilsons() -> None:
    # Wilson's formula by hand for 9 of 10: middle 1.09207, half 0.28209, both over 1.38415
    assert wilson(9, 10) == pytest.approx((0.59585, 0.98212), abs=2e-5)
    assert wilson(10, 10) == pytest.approx((10 / (10 + 1.959964**2), 1.0))


@given(st.floats(0.01, 0.999))
def test_the_fewest_requests_are_those_whose_interval_just_reaches_the_share(share: float) -> None:
    count = fewest(share)
    assert wilson(count, count)[0] >= share - 1e-12
    assert count == 1 or wilson(count - 1, count - 1)[0] < share


def test_a_share_is_kept_missed_or_undecided() -> None:
    assert one(wave(1, [0.5] * 35)).verdict == "kept"  # 35 / (35 + 3.84) = 0.901
    assert one(wave(1, [0.5] * 34)).verdict == "undecided"  # 0.8985
    assert one(wave(1, [0.5, 2.0] * 10)).verdict == "missed"
    assert one(wave(1, [0.5, 2.0] * 10), share=0.25).verdict == "kept"  # 10 of 20: from 0.299 on


def test_a_failed_request_keeps_no_promise_and_its_neighbours_are_still_judged() -> None:
    rows = wave(1, [0.5, 0.5, 0.5])
    failed = structs.replace(
        invalid(rows[0], "failed"), ttft_s=None, tpot_s=None, failure=Failure(kind="status", message="503")
    )
    found = one([failed, *(invalid(row, "wave_spoilt") for row in rows[1:])])
    assert (found.requests, found.met, found.failed) == (3, 2, 1)
    assert found.left_out == {}


def test_what_is_not_the_servers_doing_is_left_out_with_its_reason() -> None:
    cancelled = Failure(kind="cancelled", message="Ctrl-C")
    rows = [
        *(invalid(row, "cold_hit") for row in wave(1, [0.5, 0.5])),
        *(structs.replace(row, failure=cancelled) for row in wave(2, [0.5, 0.5])),
        *(structs.replace(row, tpot_s=None) for row in wave(3, [0.5, 0.5])),
        *wave(4, [0.5, 2.0]),
    ]
    found = one(rows)
    assert found.left_out == {"cancelled": 1, "cold_hit": 1, "no tpot_s": 1}
    assert (found.waves, found.requests, found.met) == (1, 2, 1)
    assert one(rows[:2]).verdict == "undecided" and one(rows[:2]).share is None


def test_the_highest_level_has_none_below_it_that_missed() -> None:
    good, bad = [0.5] * 40, [2.0] * 40

    def level(concurrency: int, ttfts: list[float]) -> list[Measurement]:
        size = concurrency
        return [
            row
            for number in range(len(ttfts) // size)
            for row in wave(number, ttfts[number * size : (number + 1) * size])
        ]

    found = goodput([*level(2, good), *level(4, good), *level(8, bad), *level(10, good)], PROMISE)
    assert [one.verdict for one in found] == ["kept", "kept", "missed", "kept"]
    best = highest(found)
    assert best is not None and best.concurrency == 4
    assert highest(found[2:]) is None


def test_requests_sent_alone_are_a_level_and_salted_ones_count_as_cold() -> None:
    rows = [trial("a", 0.5, 0.01, number=1), trial("a", 0.5, 0.01, number=2, condition="salted")]
    found = one(rows)
    assert (found.concurrency, found.condition, found.waves, found.met) == (1, "cold", 2, 2)
    # total: 0.5 + 100 x 0.01 = 1.5 s each: one request within the limits in 1.5 s
    assert found.requests_s == pytest.approx(1 / 1.5)


def test_a_request_alone_that_failed_has_no_end_and_so_no_rate() -> None:
    failure = Failure(kind="status", message="503")
    failed = structs.replace(trial("a", None, None, number=2), failure=failure)
    found = one([trial("a", 0.5, 0.01, number=1), failed])
    assert (found.requests, found.met, found.requests_s) == (2, 1, None)


def test_a_first_replay_that_missed_is_no_replay() -> None:
    hit = trial("a", 0.5, 0.01, condition="replay", number=1)
    verdict = structs.replace(hit.verdict, reuse="missed")
    miss = trial("a", 5.0, 0.01, condition="replay", number=2, verdict=verdict)
    assert (one([hit, miss]).requests, one([hit, miss]).met) == (1, 1)
