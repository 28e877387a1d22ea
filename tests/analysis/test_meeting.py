"""The one rule of crossovers, against roots worked out by hand and signs read off the gap itself."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from bench.analysis.decisions.meeting import Met, of_gaps, of_lines, of_parabola

INF = float("inf")


def parabola(start: float, linear: float, bend: float, ahead: int = -1) -> tuple[float, float]:
    met = of_parabola(np.array(start), np.array(linear), bend, ahead=ahead)
    return float(met.at), float(met.until)


@pytest.mark.parametrize(
    ("start", "linear", "bend", "at", "until"),
    [
        (10.0, -2.0, 0.0, 5.0, INF),
        (8.0, -6.0, 1.0, 2.0, 4.0),  # (x - 2) (x - 4)
        (8.0, 2.0, -1.0, 4.0, INF),  # -(x - 4) (x + 2): the first steps are slower, the later ones faster
        (8.0, -2.0, -1.0, 2.0, INF),  # -(x - 2) (x + 4)
        (-8.0, -2.0, 1.0, 0.0, 4.0),  # (x - 4) (x + 2): ahead from the start
        (-8.0, 6.0, -1.0, 4.0, INF),  # -(x - 2) (x - 4): ahead, behind, and ahead for good
        (-8.0, 2.0, 0.0, 0.0, 4.0),
        (-8.0, -2.0, 0.0, 0.0, INF),
        (9.0, -6.0, 1.0, INF, INF),  # (x - 3)^2 touches
        (10.0, -6.0, 1.0, INF, INF),
        (8.0, 6.0, 1.0, INF, INF),  # both roots are negative
        (1.0, 2.0, 0.0, INF, INF),
        (0.0, -2.0, 1.0, 0.0, 2.0),
        (0.0, 0.0, -1.0, 0.0, INF),
        (0.0, 0.0, 1.0, INF, INF),
        (-9.0, 6.0, -1.0, 0.0, INF),  # -(x - 3)^2 touches from the other side
        (3.0, 0.0, 0.0, INF, INF),
        (-3.0, 0.0, 0.0, 0.0, INF),
    ],
)
def test_parabolas_take_the_sign_at_one_root_and_lose_it_at_the_other(
    start: float, linear: float, bend: float, at: float, until: float
) -> None:
    assert parabola(start, linear, bend) == (at, until)
    assert parabola(-start, -linear, -bend, ahead=1) == (at, until)


def test_a_bend_that_vanishes_loses_no_digits() -> None:
    at, until = parabola(145.0, -0.0829, 1e-20)
    assert at == pytest.approx(145.0 / 0.0829, rel=1e-12) and until == pytest.approx(8.29e18)


_terms = st.floats(-10, 10).filter(lambda x: x == 0 or abs(x) > 1e-3)


@settings(max_examples=300, deadline=None)
@given(_terms, _terms, _terms, st.sampled_from((-1, 1)))
def test_on_each_side_of_the_roots_the_gap_has_the_sign_that_is_told(
    start: float, linear: float, bend: float, ahead: int
) -> None:
    at, until = parabola(start, linear, bend, ahead)
    x = np.concatenate([np.linspace(0, 5, 300), np.geomspace(5, 1e5, 300)])
    leads = (start + linear * x + bend * x * x) * ahead > 0
    near = [np.abs(x - root) < 1e-6 * (1 + root) for root in (at, until) if root < INF]
    clear = ~np.any(near, axis=0) if near else np.full(x.shape, True)
    clear &= np.abs(start + linear * x + bend * x * x) > 1e-9 * (1 + x * x)
    between = (x > at) & (x < until)
    # before the lead that counts there may have been another one, but only from the start on
    earlier = x < at if start * ahead > 0 else np.full(x.shape, False)
    assert (leads == between)[clear & ~earlier].all()


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(-3, 3), min_size=2, max_size=12), st.sampled_from((-1, 1)), st.integers(0, 12))
def test_on_a_grid_the_last_lead_up_to_the_known_length_counts(
    gap: list[int], ahead: int, known: int
) -> None:
    grid = np.arange(len(gap), dtype=float)
    at, until = (
        float(each[0]) for each in of_gaps(grid, np.array([gap], dtype=float), ahead=ahead, known=known)
    )
    leads, lead = [], False
    for value in gap:  # 0 keeps the sign before it
        lead = value * ahead > 0 if value else lead
        leads.append(lead)
    taken = [i for i in range(1, len(gap)) if leads[i] and not leads[i - 1]]
    place = max((i for i in taken if i - 1 <= known), default=min(taken, default=0))
    lost = [i for i in range(place + 1, len(gap)) if leads[i - 1] and not leads[i]]
    if taken:
        assert place - 1 <= at <= place
        assert np.interp(at, grid, gap) == pytest.approx(0, abs=1e-9)
    else:
        assert at == (-INF if leads[0] else INF)
    if lost:
        assert lost[0] - 1 <= until <= lost[0]
        assert np.interp(until, grid, gap) == pytest.approx(0, abs=1e-9)
    else:
        assert until == INF


def test_lines_with_first_chunks_of_their_own_meet_where_both_latencies_are_equal() -> None:
    # 2 + (n - 4) 0.01 and 1 + (n - 1) 0.02 are 2.94 at 98
    met = of_lines(*map(np.array, (2.0, 0.01, 4.0, 1.0, 0.02, 1.0)), ahead=-1)
    assert float(met.at) == pytest.approx(98.0) and float(met.until) == INF


@settings(max_examples=100, deadline=None)
@given(st.floats(1, 500), st.floats(0.01, 1), st.floats(1e-9, 1e-6))
def test_a_grid_and_the_formula_find_the_same_roots(start: float, gain: float, bend: float) -> None:
    at, until = parabola(start, -gain, bend)
    assume(gain**2 > 4.2 * bend * start and until < 5e7)
    x = np.geomspace(0.1, 1e8, 50_000)
    met: Met = of_gaps(x, (start - gain * x + bend * x * x)[None, :], ahead=-1)
    assert float(met.at[0]) == pytest.approx(at, rel=1e-4)
    assert float(met.until[0]) == pytest.approx(until, rel=1e-4)
