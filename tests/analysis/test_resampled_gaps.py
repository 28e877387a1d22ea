"""Crossings of resampled curves are those of drawing every column, at a fraction of the medians."""

from __future__ import annotations

import numpy as np
import pytest

from bench.analysis.decisions.meeting import of_gaps
from bench.analysis.statistics import bootstrap
from bench.analysis.statistics.bootstrap import Floats

GRID = np.linspace(1, 512, 256)


def curves(trials: int, noise: float, start: float, step: float, seed: int) -> Floats:
    """Arrival times of trials whose start and speed vary by `noise`, read at every place of the grid."""
    rng = np.random.default_rng(seed)
    starts, steps = (1 + noise * rng.standard_normal((2, trials, 1))).clip(0.1)
    return np.asarray(start * starts + step * steps * GRID)


def in_full(left: Floats, right: Floats, streams: tuple[int, int]) -> Floats:
    columns = [
        np.stack([bootstrap.resampled_medians(column, stream) for column in side.T], axis=1)
        for side, stream in zip((left, right), streams, strict=True)
    ]
    return columns[0] - columns[1]


@pytest.mark.parametrize("noise", [0.001, 0.02, 0.2])
@pytest.mark.parametrize(("trials", "streams"), [(5, (0, 1)), (40, (0, 1)), (40, (0, 0))])
def test_crossings_are_those_of_every_column_drawn(
    noise: float, trials: int, streams: tuple[int, int]
) -> None:
    left, right = curves(trials, noise, 10, 0.01, seed=1), curves(trials, noise, 8, 0.02, seed=2)
    expected = of_gaps(GRID, in_full(left, right, streams), ahead=-1).at
    assert np.isfinite(expected).any()
    gaps = bootstrap.resampled_gaps(left, right, streams)
    assert np.array_equal(of_gaps(GRID, gaps, ahead=-1).at, expected)


def test_medians_are_drawn_only_where_the_sign_is_open(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[int] = []
    plain = bootstrap.resampled_medians

    def counted(values: Floats, stream: int) -> Floats:
        drawn.append(stream)
        return plain(values, stream)

    monkeypatch.setattr(bootstrap, "resampled_medians", counted)
    # lines that meet at 200 tokens and never differ by more than 0.1%: nothing is open far from there
    left, right = curves(20, 0.0005, 10, 0.01, seed=1), curves(20, 0.0005, 8, 0.02, seed=2)
    bootstrap.resampled_gaps(left, right, (0, 1))
    assert 2 <= len(drawn) <= 2 * 16  # of 2 x 256


def test_curves_that_never_meet_draw_nothing_that_could_cross() -> None:
    left, right = curves(6, 0.01, 100, 0.01, seed=1), curves(6, 0.01, 1, 0.01, seed=2)
    gaps = bootstrap.resampled_gaps(left, right, (0, 1))
    assert (gaps == 1).all() and np.isinf(of_gaps(GRID, gaps, ahead=-1).at).all()
