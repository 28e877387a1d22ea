"""Arrival curves: how many tokens of a stream had arrived by when."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

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


@lru_cache(maxsize=64)  # answers of a run are mostly of one length
def picks(length: int, most: int) -> list[int]:
    """At most `most` evenly spread places of a column, the first and the last among them. To be read
    only: the same list is given again."""
    if length <= most:
        return list(range(length))
    return [round(i * (length - 1) / (most - 1)) for i in range(most)]


def read_curve(curve: Arrival, grid: Floats) -> Floats:
    """Seconds at which each number of tokens had arrived, linear between chunks."""
    return np.interp(grid, curve[0], curve[1])
