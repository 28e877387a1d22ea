"""Two routes may meet twice: the crossover is where one becomes faster, `until` where it ceases to be."""

from __future__ import annotations

import numpy as np
import pytest
from decision_samples import trial

from bench.analysis.decisions.crossover import crossovers
from bench.analysis.decisions.lines import report_lines
from bench.analysis.decisions.reused import Reuse, reuse_crossovers
from bench.analysis.statistics.curves import Curves, curve_key
from bench.cli.decide_tables import crossover_table
from bench.records import Crossover, Measurement

BEND = 1e-7
"""Half of the difference of two slopes, seconds per token squared."""


def parted(
    start: float, first: float, bend: float, tiers: tuple[int, ...] = (1_000, 100_000), trials: int = 2
) -> list[Measurement]:
    """Routes a and b, 100 tokens measured behind each tier, whose latencies behind 1,000 tokens part by
    start + first x + bend x^2, x being the tokens after the first."""
    base = 2 * max(0.0, -bend)
    rows = []
    for tier in tiers:
        # the mean step of 100 tokens is that at a context of tier + 50; the first one's is at tier + 1/2
        more = 2 * bend * (tier - 1_000)
        rows += [
            trial(name, ttft, tpot, tier=tier, output=100, number=number + 1)
            for number in range(trials)
            for name, ttft, tpot in (
                ("a", 5.0 + start, 0.020 + first + 99 * bend + more + base * (tier + 50)),
                ("b", 5.0, 0.020 + base * (tier + 50)),
            )
        ]
    return rows


def shortest(rows: list[Measurement], route: str = "a") -> Crossover:
    (one,) = [c for c in crossovers(rows) if (c.tier, c.route) == (1_000, route)]
    return one


def test_a_lead_that_is_lost_again_names_both_places() -> None:
    # 1e-7 (x - 1,000) (x - 9,000) = 0.9 - 1e-3 x + 1e-7 x^2
    one = shortest(parted(0.9, -1e-3, BEND))
    assert (one.status, one.wins, one.basis) == ("crosses", "above", "slowing")
    assert one.output_tokens == pytest.approx(1_001, rel=1e-6)
    assert one.until == pytest.approx(9_001, rel=1e-6)
    other = shortest(parted(0.9, -1e-3, BEND), "b")
    assert (other.wins, other.until) == ("below", one.until)


def test_an_end_beyond_the_measured_contexts_is_no_fact() -> None:
    one = shortest(parted(0.9, -1e-3, BEND, (1_000, 5_000)))
    assert one.output_tokens == pytest.approx(1_001, rel=1e-6)
    assert one.until is None
    said = (
        "by the laws b would be faster again from about 9,001 output tokens on, behind more context than any"
    )
    assert any(text.startswith(said) for text in one.warnings)


def test_a_lead_kept_for_good_has_no_end() -> None:
    # both bend towards a: 0.9 - 1e-3 x - 1e-7 x^2 is 0 at 831.0 and at a negative length
    one = shortest(parted(0.9, -1e-3, -BEND))
    assert one.output_tokens == pytest.approx(1 + 830.952, abs=0.01) and one.until is None


def test_steps_that_are_slower_at_first_only_still_win_by_growing_less() -> None:
    # 1 + 4.9e-4 x - 1e-5 x^2: the first steps of a are slower, the mean of the measured ones is faster
    one = shortest(parted(1.0, 4.9e-4, -1e-5, (1_000, 5_000)))
    assert one.basis == "slowing"
    assert one.output_tokens == pytest.approx(1 + 341.675, abs=0.01)


def test_a_crossover_by_straight_lines_ends_where_they_bend_back() -> None:
    # 1e-7 (x - 150) (x - 9,000): met within twice the 100 measured tokens, where lines are straight
    one = shortest(parted(1e-7 * 150 * 9_000, -1e-7 * 9_150, BEND))
    assert one.basis == "line" and 140 < (one.output_tokens or 0) < 160
    assert one.until == pytest.approx(9_001, rel=1e-6)


def test_lines_that_meet_beyond_the_measured_length_are_no_crossover_where_bent_ones_never_do() -> None:
    # straight lines of 100 tokens meet at 1 + 1 / 0.0067 = 150; 1 - 0.0166 x + 1e-4 x^2 stays above 0.3
    rows = parted(1.0, -0.0166, 1e-4)
    for route in ("a", "b"):
        one = shortest(rows, route)
        assert (one.status, one.output_tokens, one.ahead) == ("undecided", None, "b")
        assert one.ahead_to == pytest.approx(1 + 1 / 0.0067)


def test_faster_at_every_length_ends_where_the_other_slows_less() -> None:
    # a is ahead from the start on: -0.9 - 8e-4 x + 1e-7 x^2 = 1e-7 (x + 1,000) (x - 9,000)
    one = shortest(parted(-0.9, -8e-4, BEND))
    assert one.status == "always"
    assert one.until == pytest.approx(1 + 9_000, rel=1e-6)
    other = shortest(parted(-0.9, -8e-4, BEND), "b")
    assert (other.status, other.until) == ("never", one.until)


def test_an_end_that_not_the_whole_spread_says_is_not_named() -> None:
    # by the medians a's lead ends at 9,000; by one of its two trials at the far tier it never does
    rows = parted(0.9, -1e-3, BEND, trials=1)
    less = parted(0.9, -1e-3, -1e-10, trials=1)
    rows += [
        trial(row.route, row.ttft_s, row.tpot_s, tier=row.tier, output=100, number=2)
        for row in [r for r in parted(0.9, -1e-3, BEND, trials=1) if r.tier == 1_000]
        + [r for r in less if r.tier == 100_000]
    ]
    one = shortest(rows)
    assert one.status == "crosses" and one.until is None


def test_curves_that_cross_twice_tell_the_rise_and_the_fall() -> None:
    tokens = np.arange(1.0, 201.0)
    gap = np.interp(tokens, [1, 50, 150, 200], [0.4, -0.2, -0.2, 0.1])  # a minus b, seconds
    a, b = trial("a", 1.4, 0.0100, output=200), trial("b", 1.0, 0.0130, output=200)
    flat = 1.0 + 0.013 * (tokens - 1)
    curves: Curves = {curve_key(a): (tokens, flat + gap), curve_key(b): (tokens, flat)}
    for one in crossovers([a, b], curves=curves):
        assert one.basis == "curve"
        # 1 + 49 x 0.4 / 0.6 and 150 + 50 x 0.2 / 0.3
        assert one.output_tokens == pytest.approx(1 + 49 * 2 / 3, abs=0.5)
        assert one.until == pytest.approx(150 + 100 / 3, abs=0.5)


def test_by_the_laws_of_a_cached_part_the_lead_ends_too() -> None:
    # three tiers make a law with a spread; what is cached is free on both, so TTFTs part by 0.9 s still
    rows = [
        trial(row.route, (row.ttft_s or 0) + 1e-4 * row.tier, row.tpot_s, tier=row.tier, output=100, number=n)
        for n in (1, 2)
        for row in parted(0.9, -1e-3, BEND, (1_000, 20_000, 100_000), trials=1)
    ]
    n = np.arange(1.0, 30_000.0)
    gap = 0.9 + (n - 1) * (-1e-3 + 99 * BEND + 2 * BEND * (n / 2 - 50))
    signs = np.flatnonzero(np.diff(np.sign(gap)))
    found = [one for one in reuse_crossovers(rows, Reuse(share=0.0)) if one.tier == 1_000]
    assert len(signs) == 2 and len(found) == 2
    for one in found:
        assert one.output_tokens == pytest.approx(n[signs[0]], abs=1.5)
        assert one.until == pytest.approx(n[signs[1]], abs=2.5)


def test_by_the_laws_of_a_cached_part_faster_at_every_length_ends_too() -> None:
    rows = [
        trial(row.route, (row.ttft_s or 0) + 1e-4 * row.tier, row.tpot_s, tier=row.tier, output=100, number=n)
        for n in (1, 2)
        for row in parted(-0.9, -8e-4, BEND, (1_000, 20_000, 100_000), trials=1)
    ]
    found = {(c.tier, c.route): c for c in reuse_crossovers(rows, Reuse(share=0.0))}
    one, other = found[1_000, "a"], found[1_000, "b"]
    assert (one.status, other.status) == ("always", "never")
    assert one.until == pytest.approx(9_001, abs=2.5) and other.until == one.until


def test_equal_starts_leave_a_lead_that_ends_all_the_same() -> None:
    # starts of 4.98 and 5.02 s a side; x (-8e-4 + 1e-7 x) is 0 at x = 8,000
    rows = [
        trial(
            row.route,
            (row.ttft_s or 0) + (0.02 if row.repeat == 1 else -0.02),
            row.tpot_s,
            tier=row.tier,
            output=100,
            number=row.repeat,
        )
        for row in parted(0.0, -8e-4, BEND)
    ]
    one, other = shortest(rows), shortest(rows, "b")
    assert (one.status, one.ahead) == ("undecided", "a") and 50 < (one.ahead_from or 0) < 60
    assert one.until == pytest.approx(8_001, rel=1e-6)
    assert (other.ahead, other.ahead_from, other.until) == ("a", one.ahead_from, one.until)
    (line,) = report_lines([], crossovers=[one])
    assert line.startswith("a beats b from at most ") and " to 8,000 output tokens at 1,000, in the" in line
    assert "the lead of a ends at 8,001" in " ".join(crossover_table([one]).split())
