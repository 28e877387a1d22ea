"""Arrival curves: how many tokens of a stream had arrived by when."""

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
