"""Gaps between chunks, counted in bins."""

from __future__ import annotations

import numpy as np

from bench.records import Chunks
from bench.report.gaps import EDGES_S, GapCounts


def stream(*gaps_ns: int) -> Chunks:
    """Events with text that far apart."""
    at_ns = (0, *np.cumsum(gaps_ns).tolist())
    return Chunks(at_ns=at_ns, chars=(1,) * len(at_ns), kinds="c" * len(at_ns))


def test_every_gap_is_counted_in_its_bin_and_the_outer_bins_take_the_rest() -> None:
    counts = GapCounts()
    # below the first border, above the last one, and at 1 s: a border, so in the bin above it
    for gaps_ns in ((0, 5_000), (2_000_000_000_000, 1_000_000_000, 999_000_000), ()):
        counts.add(stream(*gaps_ns))
    at_border = int(np.argmin(abs(EDGES_S - 1)))
    assert {place: count for place, count in enumerate(counts.counts.tolist()) if count} == {
        0: 2,
        at_border - 1: 1,
        at_border: 1,
        len(EDGES_S) - 2: 1,
    }
    assert counts.total == 5


def test_counts_of_several_runs_are_added_by_route() -> None:
    one, other = GapCounts(), GapCounts()
    one.add(stream(10_000_000, 20_000_000))
    other.add(stream(20_000_000))
    merged = GapCounts.merge([{"a": one, "b": other}, {"a": other}])
    assert merged["a"].total == 3 and merged["b"].total == 1
    assert merged["a"].counts.tolist() == (one.counts + other.counts).tolist()
    assert (one.total, other.total) == (2, 1)
