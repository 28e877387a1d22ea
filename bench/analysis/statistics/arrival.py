"""The measured arrival curve of one exchange: tokens so far over time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from bench.analysis.statistics.curves import Arrival, Curves, curve_key
from bench.analysis.verdicts.measure import measure_all
from bench.records import Exchange, Measurement, RunInfo


def arrival(exchange: Exchange, output_tokens: int | None) -> Arrival | None:
    """(tokens so far, seconds since `sent`) at every chunk with text; `None` where tokens are unknown.

    They are known when the server counted them in every event, or when each token came in a chunk
    of its own. A chunk of several tokens is several tokens at one time.
    """
    text = exchange.chunks.text
    if exchange.failure is not None or not len(text.places):
        return None
    seconds = text.at_ns / 1e9
    if text.tokens is not None:
        tokens = text.tokens.astype(float)
    elif output_tokens is not None and seconds.size == output_tokens:
        tokens = np.arange(1, seconds.size + 1, dtype=float)
    else:
        return None
    steps = tokens[1:] - tokens[:-1]
    if (steps < 0).any() or (seconds[1:] < seconds[:-1]).any():
        return None
    # the curve is read as time over tokens: of equal counts the first arrival stays
    kept = np.concatenate([[True], steps > 0])
    return tokens[kept], seconds[kept]


def measured_with_curves(info: RunInfo, exchanges: Iterable[Exchange]) -> tuple[list[Measurement], Curves]:
    """Measurements of all trials of a run, and the arrival curves of those that were sent alone and whose
    stream carries one."""
    last: list[Exchange] = []

    def watched() -> Iterator[Exchange]:
        for exchange in exchanges:
            last[:] = [exchange]
            yield exchange

    rows: list[Measurement] = []
    curves: dict[tuple[str, str, int], Arrival] = {}
    for row in measure_all(info, watched()):
        rows.append(row)
        exchange = last[0]
        if (exchange.trial.id, exchange.attempt) == (row.trial_id, row.attempt):  # else of a wave
            curve = arrival(exchange, row.output_tokens)
            if curve is not None:
                curves[curve_key(row)] = curve
    return rows, curves
