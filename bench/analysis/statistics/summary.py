"""Statistics of each cell: medians with their spread, and what its reader must know.

Nothing is removed silently: invalid measurements are counted with their reasons, values that stand
out are named and stay in the median, and an order effect over the run is flagged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from bench.analysis.statistics import bootstrap
from bench.analysis.statistics.bootstrap import Floats
from bench.analysis.statistics.cells import column, labelled, pooled, usable
from bench.analysis.statistics.texts import Texts
from bench.analysis.verdicts.firstreplay import is_first_miss
from bench.records import Condition, Estimate, Measurement, Summary

FIELDS = (
    "prompt_tokens", "output_tokens", "ttft_s", "first_response_s", "total_s", "decode_tok_s", "tpot_s",
    "icl_p50_s", "icl_p99_s", "icl_max_s", "uploaded_s", "connect_s",
    "drafts", "draft_tokens", "accepted_tokens", "acceptance", "acceptance_length",
    "cached_tokens", "prefix_reuse", "kv_usage_peak", "kv_usage_mean", "running_peak",
    "waiting_peak", "preemptions", "server_ttft_s", "queue_s", "prefill_s", "server_decode_s",
)  # fmt: skip
"""Measurement fields that get a median."""

_WATCHED = {"ttft_s": ("TTFT", " s"), "decode_tok_s": ("decode rate", " tok/s")}
"""Field -> name and unit."""
OUTLIER = 5.0
"""Distance from the median, in robust standard deviations (1.4826 x MAD), from which a value is
named; and it must be more than 2% away."""
_ORDER: dict[Condition, int] = {"cold": 0, "salted": 1, "replay": 2}

_Key = tuple[str, int, Condition, str, bool | None]


def summarise(measurements: Iterable[Measurement]) -> list[Summary]:
    """One summary per route, tier, condition and task, in this order; replays apart by first or later.

    The cold row counts valid salted samples too, since they must be as cold as cold; the salted row
    shows them once more by themselves, as the proof of it. Routes of equal name from several
    sources are told apart, tiers that differ by less than 0.1% are one.
    """
    rows = labelled(measurements)
    cells: dict[_Key, list[Measurement]] = {}
    for row in rows:
        first = None if row.condition != "replay" or row.replay == 0 else row.replay == 1
        cells.setdefault((row.route, row.tier, row.condition, row.task, first), []).append(row)
        if row.condition == "salted" and usable(row):
            cells.setdefault((row.route, row.tier, "cold", row.task, None), []).append(row)
    places = {route: place for place, route in enumerate(dict.fromkeys(row.route for row in rows))}
    ordered = sorted(cells, key=lambda k: (places[k[0]], k[1], _ORDER[k[2]], k[3], k[4] is False))
    return [_summary(key, cells[key]) for key in ordered]


def _counts(row: Measurement) -> bool:
    return usable(row) or is_first_miss(row)


def _summary(key: _Key, rows: Sequence[Measurement]) -> Summary:
    route, tier, condition, task, first = key
    valid = [row for row in rows if _counts(row)]
    excluded = Counter(reason for row in rows if not _counts(row) for reason in _reasons(row))
    estimates: dict[str, Estimate] = {}
    texts = Texts(valid)
    for field in FIELDS:
        found = texts.median(field)
        if found is not None:
            estimates[field] = found
    return Summary(
        route=route,
        tier=tier,
        condition=condition,
        task=task,
        first_replay=first,
        valid=len(valid),
        invalid=len(rows) - len(valid),
        excluded=dict(sorted(excluded.items())),
        estimates=estimates,
        warnings=tuple(_warnings(valid, condition)),
    )


def _reasons(row: Measurement) -> list[str]:
    found = [reason.id for reason in row.verdict.reasons]
    return found or [row.failure.kind if row.failure else "unstated"]


def _warnings(valid: Sequence[Measurement], condition: Condition) -> list[str]:
    rows = sorted(valid, key=lambda row: row.order)
    found: list[str] = []
    lengths = {row.output_tokens for row in rows if row.output_tokens is not None}
    if len(lengths) > 1:
        found.append(f"output length varies from {min(lengths):,} to {max(lengths):,} tokens")
    salted = sum(row.condition == "salted" for row in rows)
    if salted and pooled(condition) == "cold" and salted < len(rows):
        found.append(f"counts {salted} salted samples as cold")
    for field, (name, unit) in _WATCHED.items():
        kept = [row for row in rows if getattr(row, field) is not None]
        values = column(kept, field)
        found += [
            text
            for text in (
                first_effect(values, name, unit),
                drift(values, name),
                _outliers(kept, values, name, unit),
            )
            if text
        ]
    return found


def first_effect(values: Floats, name: str, unit: str = "") -> str | None:
    """Whether the first value, in run order, lies outside what the others (three or more) span."""
    if values.size < 4:
        return None
    rest = values[1:]
    centre = float(np.median(rest))
    room = max(0.1 * centre, float(np.ptp(rest)))
    if abs(values[0] - centre) <= room or centre == 0:
        return None
    return (
        f"the first request stands out: {name} {_digits(values[0])}{unit} against a median of "
        f"{_digits(centre)}{unit} after it"
    )


def drift(values: Floats, name: str) -> str | None:
    """Whether values rise or fall over the run: Spearman's rank correlation with the order.

    Needs eight trials; flagged at two-sided p < 0.01 (normal approximation) when the fitted change
    over the run is above 1%.
    """
    n = values.size
    if n < 8 or float(np.ptp(values)) == 0:
        return None
    order = np.arange(n, dtype=float)
    rho = float(np.corrcoef(order, _ranks(values))[0, 1])
    if abs(rho) * np.sqrt(n - 1) < 2.576:
        return None
    change = float(np.polyfit(order, values, 1)[0]) * (n - 1) / float(np.median(values))
    if abs(change) < 0.01:
        return None
    return f"{name} drifts by {change:+.1%} over the run (rank correlation with the order {rho:+.2f})"


def _ranks(values: Floats) -> Floats:
    """Ranks with ties averaged."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    ranks: Floats = (ends - (counts - 1) / 2)[inverse]
    return ranks


def _outliers(rows: Sequence[Measurement], values: Floats, name: str, unit: str) -> str | None:
    if values.size < bootstrap.MINIMUM:
        return None
    centre = float(np.median(values))
    scale = 1.4826 * float(np.median(np.abs(values - centre)))
    far = np.flatnonzero(np.abs(values - centre) > max(OUTLIER * scale, 0.02 * abs(centre)))
    if not far.size:
        return None
    shown = ", ".join(f"{rows[i].trial_id} ({_digits(values[i])}{unit})" for i in far[:3])
    more = f" and {far.size - 3} more" if far.size > 3 else ""
    return f"{name} stands out in {shown}{more}; kept (median {_digits(centre)}{unit})"


def _digits(value: float) -> str:
    """Four significant digits; thousands separated, never as a power of ten: `0.05359`, `1,943,000`."""
    rounded = float(f"{value:.4g}")
    return f"{rounded:,.0f}" if abs(rounded) >= 1000 else f"{rounded:.4g}"
