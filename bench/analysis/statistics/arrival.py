"""The measured arrival curve of one exchange: tokens so far over time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain

import numpy as np

from bench.analysis.statistics.curves import Arrival, Curves, curve_key, picks
from bench.analysis.verdicts.measure import measure_each
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


def with_exchanges(
    info: RunInfo, exchanges: Iterable[Exchange]
) -> Iterator[list[tuple[Measurement, Exchange]]]:
    """Measurements of all trials of a run, each beside its exchange, as `measure_each` gives them.

    An exchange is kept until it is measured, and no longer: a first replay that missed until the next one,
    the requests of a wave until its last.
    """
    waiting: list[Exchange] = []

    def watched() -> Iterator[Exchange]:
        for exchange in exchanges:
            if exchange.purpose == "trial":
                waiting.append(exchange)
            yield exchange

    def of(row: Measurement) -> Exchange:
        key = (row.trial_id, row.attempt)
        return waiting.pop(next(i for i, one in enumerate(waiting) if (one.trial.id, one.attempt) == key))

    for found in measure_each(info, watched()):
        yield [(row, of(row)) for row in found]


def curve_of(row: Measurement, exchange: Exchange, *, most: int | None = None) -> Arrival | None:
    """The arrival curve of a measured exchange, thinned to `most` points where it has more."""
    curve = arrival(exchange, row.output_tokens)
    if curve is None or most is None or len(curve[0]) <= most:
        return curve
    kept = picks(len(curve[0]), most)
    return curve[0][kept], curve[1][kept]


def measured_with_curves(info: RunInfo, exchanges: Iterable[Exchange]) -> tuple[list[Measurement], Curves]:
    """Measurements of all trials of a run, and the arrival curves of those whose stream carries one."""
    rows: list[Measurement] = []
    curves: dict[tuple[str, str, int], Arrival] = {}
    for row, exchange in chain.from_iterable(with_exchanges(info, exchanges)):
        rows.append(row)
        curve = curve_of(row, exchange)
        if curve is not None:
            curves[curve_key(row)] = curve
    return rows, curves
