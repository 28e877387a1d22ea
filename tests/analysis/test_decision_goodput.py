from __future__ import annotations

import math

import pytest
from decision_samples import invalid, trial
from msgspec import structs

from bench.analysis.decisions.goodput import Goodput, Promise, goodput, highest
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


def test_requests_of_one_wave_are_one_trial_and_show_nothing() -> None:
    found = one(wave(1, [0.5] * 64))
    assert (found.share, found.waves, found.waves_kept, found.texts) == (1.0, 1, 1, 1)
    assert (found.low, found.high) == pytest.approx((0.025, 1.0))  # 1 of 1, Clopper and Pearson
    assert (found.verdict, found.shown_from) == ("kept so far", 36)
    none = one(wave(1, [2.0] * 64))
    assert (none.verdict, none.high, none.shown_from) == ("missed so far", pytest.approx(0.975), 2)


def test_a_share_is_kept_or_missed_where_its_waves_show_it() -> None:
    def waves(count: int, *ttfts: float) -> list[Measurement]:
        return [row for number in range(count) for row in wave(number, list(ttfts))]

    assert one(waves(36, 0.5, 0.5)).verdict == "kept"  # 0.025 ** (1 / 36) = 0.9026
    assert one(waves(35, 0.5, 0.5)).verdict == "kept so far"  # 0.8999
    assert one(waves(2, 2.0, 2.0)).verdict == "missed"  # at most 1 - 0.025 ** (1 / 2) = 0.842
    assert one(waves(6, 0.5, 2.0)).verdict == "missed"  # 3 of 6: 0.118 to 0.882 by the tables
    assert one(waves(5, 0.5, 2.0)).verdict == "missed so far"
    assert one(waves(1, 0.5, 0.5), share=0.02).verdict == "kept"


def test_a_level_says_how_many_of_its_waves_kept_it_and_what_the_worst_gave() -> None:
    found = one(
        [*wave(1, [0.5] * 4), *wave(2, [0.5, 0.5, 0.5, 2.0]), *wave(3, [0.5, 2.0, 2.0, 2.0])], share=0.75
    )
    assert (found.waves_kept, found.waves, found.lowest_share) == (2, 3, 0.25)
    assert found.share == pytest.approx(8 / 12)


def test_waves_that_sent_the_same_texts_are_one_trial_together() -> None:
    rows = [structs.replace(row, text_key=f"t{n % 2}") for n in range(6) for row in wave(n, [0.5, 0.5])]
    found = one(rows)
    assert (found.waves, found.texts, found.low) == (6, 2, pytest.approx(math.sqrt(0.025)))
    # 2, 2 and 4 requests weigh as much as 8 ** 2 / (4 + 4 + 16) = 2 2/3 texts of equal size
    uneven = one(
        [structs.replace(row, text_key=key) for n, key in enumerate("aabc") for row in wave(n, [0.5] * 2)]
    )
    assert (uneven.texts, uneven.low) == (3, pytest.approx(0.025 ** (3 / 8)))


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
    assert found.left_out == {"cold_hit": 1, "cut_off": 1, "no tpot_s": 1}
    assert (found.waves, found.requests, found.met) == (1, 2, 1)
    interrupted = [rows[2], invalid(rows[3], "wave_incomplete")]  # one wave, one reason
    assert one(interrupted).left_out == {"cut_off": 1}
    spoilt = one(rows[:2])
    assert (spoilt.verdict, spoilt.share, spoilt.low, spoilt.requests_s) == (None, None, None, None)


def test_the_highest_level_has_none_below_it_that_missed_if_only_so_far() -> None:
    def level(concurrency: int, waves: int, ttft: float) -> list[Measurement]:
        return [row for number in range(waves) for row in wave(number, [ttft] * concurrency)]

    found = goodput(
        [*level(2, 40, 0.5), *level(4, 3, 0.5), *level(6, 1, 2.0), *level(8, 40, 0.5), *level(10, 40, 2.0)],
        PROMISE,
    )
    assert [one.verdict for one in found] == ["kept", "kept so far", "missed so far", "kept", "missed"]
    shown, seen = highest(found), highest(found, ("kept", "kept so far"))
    assert shown is not None and shown.concurrency == 2
    assert seen is not None and seen.concurrency == 4
    assert highest(found[2:]) is None and highest(found[4:], ("kept", "kept so far")) is None


def test_requests_sent_alone_are_a_level_and_salted_ones_count_as_cold() -> None:
    rows = [trial("a", 0.5, 0.01, number=1), trial("a", 0.5, 0.01, number=2, condition="salted")]
    found = one(rows)
    assert (found.concurrency, found.condition, found.waves, found.met) == (1, "cold", 2, 2)
    # total: 0.5 + 100 x 0.01 = 1.5 s each: one request within the limits in 1.5 s
    assert found.requests_s == pytest.approx(1 / 1.5)


def test_a_refused_request_keeps_the_rate_of_its_level() -> None:
    sent = trial("a", 0.5, 0.01, number=1)  # 1.5 s
    alone = [
        structs.replace(trial("a", None, None, number=2), failure=Failure(kind=kind, message="no"))
        for kind in ("refused", "status", "first_token_timeout")
    ]
    assert [one([sent, row]).requests_s for row in alone] == [pytest.approx(1 / 1.5)] * 2 + [None]
    refused, *others = wave(1, [0.5, 0.5, 0.5])
    refused = structs.replace(
        invalid(refused, "failed"), ttft_s=None, total_s=None, failure=Failure(kind="status", message="503")
    )
    together = one([refused, *others])
    assert (together.requests, together.met, together.requests_s) == (3, 2, 1.0)


def test_a_first_replay_that_missed_is_no_replay() -> None:
    hit = trial("a", 0.5, 0.01, condition="replay", number=1)
    verdict = structs.replace(hit.verdict, reuse="missed")
    miss = trial("a", 5.0, 0.01, condition="replay", number=2, verdict=verdict)
    assert (one([hit, miss]).requests, one([hit, miss]).met) == (1, 1)
