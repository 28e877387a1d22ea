"""Counts of the gaps between chunks, in fixed logarithmic bins: any number of gaps in one kilobyte."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Self

import numpy as np
from numpy.typing import NDArray

from bench.records import Chunks

EDGES_S = np.logspace(-5, 3, 161)
"""Bin borders in seconds: twenty to a decade, from 10 microseconds to 1,000 s."""
_INNER_NS = np.ceil(EDGES_S[1:-1] * 1e9).astype(np.int64)
"""The inner borders; a whole number of nanoseconds is below one of them when it is below the next whole."""


class GapCounts:
    """How many gaps fell into each bin of `EDGES_S` (the outer bins take what lies outside)."""

    def __init__(self, total: int = 0, below: NDArray[np.int64] | None = None) -> None:
        self.total = total
        """Gaps counted."""
        self.below = np.zeros(len(_INNER_NS), dtype=np.int64) if below is None else below
        """Those below each of the inner borders."""

    @property
    def counts(self) -> NDArray[np.int64]:
        """Gaps in each bin."""
        return np.diff(self.below, prepend=0, append=self.total)

    def join(self, other: Self) -> None:
        """Counts those of another, too."""
        self.below += other.below
        self.total += other.total

    def add(self, chunks: Chunks) -> None:
        """Counts the gaps between the text chunks of one stream."""
        # Some hundred borders among gaps in order are found faster than each gap among the borders.
        self.below += chunks.gaps_ns.searchsorted(_INNER_NS)
        self.total += len(chunks.gaps_ns)

    @classmethod
    def merge(cls, parts: Iterable[dict[str, Self]]) -> dict[str, Self]:
        """The sums by route."""
        merged: dict[str, Self] = {}
        for part in parts:
            for route, counts in part.items():
                merged.setdefault(route, cls()).join(counts)
        return merged
