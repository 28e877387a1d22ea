"""Arrival curves: how many tokens of a stream had arrived by when, and where two of them cross."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from bench.analysis.statistics.bootstrap import Floats
from bench.records import Measurement

Arrival = tuple[Floats, Floats]
"""Tokens so far and seconds since `sent`, one entry a chunk; both ascending."""
Curves = Mapping[tuple[str, str, int], Arrival]
"""Arrival curves by (source, trial_id, attempt): see `curve_key`."""


def curve_key(row: Measurement) -> tuple[str, str, int]:
    """The key of a measurement's arrival curve."""
    return (row.source, row.trial_id, row.attempt)


def read_curve(curve: Arrival, grid: Floats) -> Floats:
    """Seconds at which each number of tokens had arrived, linear between chunks."""
    return np.interp(grid, curve[0], curve[1])


def crossing(grid: Floats, gaps: Floats) -> Floats:
    """Last sign change of each row of `gaps` (rows, grid), linear between points; `inf` without one."""
    signs = np.sign(gaps)
    change = signs[:, :-1] * signs[:, 1:] <= 0
    change &= signs[:, :-1] != signs[:, 1:]
    place = change.shape[1] - 1 - np.argmax(change[:, ::-1], axis=1)
    rows = np.arange(gaps.shape[0])
    before, after = gaps[rows, place], gaps[rows, place + 1]
    with np.errstate(divide="ignore", invalid="ignore"):
        share = before / (before - after)
    met: Floats = np.where(change.any(axis=1), grid[place] + share * (grid[place + 1] - grid[place]), np.inf)
    return met
