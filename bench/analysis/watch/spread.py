"""How the numbers of watched requests that ran alone spread."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from msgspec import structs

from bench.analysis.statistics.bootstrap import percentiles
from bench.analysis.watch.described import Watched
from bench.records import Percentiles

SPREAD = (
    "prompt_tokens",
    "prefix_reuse",
    "output_tokens",
    "server_ttft_s",
    "queue_s",
    "prefill_s",
    "decode_tok_s",
    "acceptance",
    "acceptance_length",
    "kv_usage_peak",
)
"""Fields whose percentiles over requests mean something."""
RATE = "decode_tok_s"
"""Counted from the fast end, as in every report: nine in ten requests decode at least as fast as p90 says."""


def spreads(watched: Iterable[Watched]) -> dict[str, Percentiles]:
    """Percentiles over the requests that ran alone, by field; fields that none of them has are left out."""
    rows = [one for one in watched if one.kind == "request"]
    found = {}
    for name in SPREAD:
        values = np.array([getattr(one, name) for one in rows if getattr(one, name) is not None], dtype=float)
        if (points := percentiles(-values if name == RATE else values)) is not None:
            found[name] = points if name != RATE else _turned(points)
    return found


def _turned(points: Percentiles) -> Percentiles:
    return structs.replace(points, p50=-points.p50, p90=-points.p90, p99=-points.p99)
