"""Counts of the gaps between chunks, in fixed logarithmic bins: any number of gaps in one kilobyte."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Self

import numpy as np

from bench.records import Chunks

EDGES_S = np.logspace(-5, 3, 161)
"""Bin borders in seconds: twenty to a decade, from 10 microseconds to 1,000 s."""


class GapCounts:
    """How many gaps fell into each bin of `EDGES_S` (the outer bins take what lies outside)."""

    def __init__(self) -> None:
        self.counts = np.zeros(len(EDGES_S) - 1, dtype=np.int64)

    @property
    def total(self) -> int:
        """Gaps counted."""
        return int(self.counts.sum())

    def add(self, chunks: Chunks) -> None:
        """Counts the gaps between the text chunks of one stream."""
        at_ns = chunks.text.at_ns
        gaps = (at_ns[1:] - at_ns[:-1]) / 1e9
        places = np.searchsorted(EDGES_S[1:-1], gaps, side="right")
        self.counts += np.bincount(places, minlength=len(self.counts))

    @classmethod
    def merge(cls, parts: Iterable[dict[str, Self]]) -> dict[str, Self]:
        """The sums by route."""
        merged: dict[str, Self] = {}
        for part in parts:
            for route, counts in part.items():
                merged.setdefault(route, cls()).counts += counts.counts
        return merged
