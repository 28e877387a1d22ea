"""Total latency of n output tokens: L(n) = ttft + (n - c0) x tpot (DESIGN section 2), told here alone."""

from __future__ import annotations

import numpy as np

from bench.analysis.statistics.bootstrap import Floats


def steps_to(output: float | Floats, c0: float | Floats) -> Floats:
    """n - c0: the output tokens behind those of the first chunk, which come with the TTFT; never below 0."""
    return np.maximum(np.subtract(output, c0), 0.0)


def total_s(
    output: float | Floats, ttft_s: float | Floats, tpot_s: float | Floats, c0: float | Floats
) -> Floats:
    """L(n) in seconds; arguments broadcast."""
    total: Floats = np.add(ttft_s, steps_to(output, c0) * tpot_s)
    return total
