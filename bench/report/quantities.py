"""What every number in a report is called, how it is written, and what it means.

One table for all outputs, so that a column, a hover text and a footnote can never disagree. The
definitions are those of `bench.records.Measurement`, in words.
"""

from __future__ import annotations

import math
from typing import Literal

from msgspec import Struct

MISSING = "-"

Style = Literal["seconds", "rate", "share", "length", "count"]


class Quantity(Struct, frozen=True, kw_only=True):
    """One measured quantity: its field in `Measurement`, and how people read it."""

    key: str
    label: str
    """Column head, short."""
    unit: str
    """Empty where the number has none."""
    style: Style
    definition: str

    @property
    def head(self) -> str:
        """Label with unit, e.g. `TTFT (s)`."""
        return f"{self.label} ({self.unit})" if self.unit else self.label


def _q(key: str, label: str, unit: str, style: Style, definition: str) -> Quantity:
    return Quantity(key=key, label=label, unit=unit, style=style, definition=definition)


QUANTITIES: dict[str, Quantity] = {
    quantity.key: quantity
    for quantity in (
        _q("prompt_tokens", "prompt", "tok", "count", "Prompt tokens as the server counted them."),
        _q(
            "output_tokens",
            "output",
            "tok",
            "count",
            "Tokens generated: the server's own count, never the number of chunks.",
        ),
        _q(
            "ttft_s",
            "TTFT",
            "s",
            "seconds",
            "Time to first token: first chunk with text (content, reasoning or tool call) minus the "
            "first request byte. Role-only and empty chunks do not count; connecting is not in it.",
        ),
        _q(
            "total_s",
            "total",
            "s",
            "seconds",
            "Last chunk with text, or the finish reason, minus the first request byte.",
        ),
        _q(
            "decode_tok_s",
            "decode",
            "tok/s",
            "rate",
            "(output tokens - tokens in the first text chunk) / (last - first text chunk).",
        ),
        _q("tpot_s", "TPOT", "s", "seconds", "Time per output token: 1 / decode rate."),
        _q(
            "acceptance",
            "accept",
            "",
            "share",
            "Accepted draft tokens / draft tokens of this exchange; missing without drafts, never 0.",
        ),
        _q(
            "acceptance_length",
            "length",
            "",
            "length",
            "Tokens per verification step: 1 + accepted tokens / drafts.",
        ),
        _q(
            "prefix_reuse",
            "reuse",
            "",
            "share",
            "Cached prompt tokens / prompt tokens.",
        ),
        _q("icl_p50_s", "ICL p50", "s", "seconds", "Median gap between chunks with text."),
        _q("icl_p99_s", "ICL p99", "s", "seconds", "99th percentile of the gaps between chunks."),
        _q("icl_max_s", "ICL max", "s", "seconds", "Longest gap between chunks with text."),
        _q(
            "kv_usage_peak",
            "KV peak",
            "",
            "share",
            "Highest sampled share of the KV cache in use during the exchange.",
        ),
        _q("kv_usage_mean", "KV mean", "", "share", "Mean of the KV samples during the exchange."),
        _q("queue_s", "queue", "s", "seconds", "Time in the server's queue, as it tells."),
        _q("prefill_s", "prefill", "s", "seconds", "The server's own prefill time."),
    )
}

TABLE = (
    "prompt_tokens",
    "ttft_s",
    "decode_tok_s",
    "acceptance",
    "acceptance_length",
    "prefix_reuse",
    "total_s",
)
"""Columns of the performance table, in order."""


def write(value: float | int | None, style: Style) -> str:
    """A number as the tables show it: four significant digits for times, three for rates.

    `None` is `-`. A value that is not finite is a bug upstream and is shown as `-` too.

    >>> write(690.966, "seconds"), write(87.0357, "rate"), write(0.7973, "share"), write(None, "rate")
    ('691.0', '87.0', '79.7%', '-')
    """
    if value is None or not math.isfinite(value):
        return MISSING
    if style == "count":
        return f"{round(value):,}"
    if style == "share":
        return f"{value * 100:.1f}%"
    if style == "length":
        return f"{value:.2f}"
    return significant(value, 4 if style == "seconds" else 3)


def significant(value: float, digits: int) -> str:
    """`value` with so many significant digits, thousands separated, no exponent above 1e-6."""
    if value == 0:
        return "0"
    exponent = math.floor(math.log10(abs(value)))
    decimals = max(0, digits - 1 - exponent)
    if decimals > 9:
        return f"{value:.{digits - 1}e}"
    return f"{value:,.{decimals}f}"


def spread_percent(value: float, low: float | None, high: float | None) -> str:
    """The larger half of a spread, as a share of its value: `±3%`; empty without one.

    >>> spread_percent(10.0, 9.0, 10.5)
    '±10%'
    """
    if low is None or high is None or value == 0:
        return ""
    share = max(value - low, high - value, 0.0) / abs(value) * 100
    return "±<1%" if 0 < share < 0.5 else f"±{share:.0f}%"
