"""Sentences that write themselves, each only where the measurements carry it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from bench.analysis.cells import labelled, usable
from bench.records import Comparison, Crossover, Estimate, Measurement


def report_lines(
    measurements: Iterable[Measurement],
    comparisons: Sequence[Comparison] = (),
    crossovers: Sequence[Crossover] = (),
    limits: dict[str, int] | None = None,
) -> list[str]:
    """Decode ratios, TTFT differences, crossovers, reuse, and how far anything was tested.

    `limits` is the configured longest sequence by route, where known. A figure below five trials a
    side is given as the range that was measured; a difference without a decision is not called one.
    """
    rows = [row for row in labelled(measurements) if usable(row)]
    lines = [line for one in comparisons if (line := _compared(one))]
    lines += [line for one in crossovers if (line := _crossed(one))]
    lines += _reused(rows)
    return lines + _tested(rows, limits or {})


def tokens_short(tokens: float) -> str:
    """`564k`, `6.3k`, `1.05M`, `512`."""
    if tokens >= 1_000_000:
        return f"{tokens / 1_000_000:.3g}M"
    if tokens >= 10_000:
        return f"{int(tokens / 1000)}k"
    return f"{tokens / 1000:.3g}k" if tokens >= 1000 else f"{tokens:.0f}"


def _where(one: Comparison | Crossover) -> str:
    return f"{tokens_short(one.tier)}{' replayed' if one.condition == 'replay' else ''}"


def _compared(one: Comparison) -> str | None:
    if one.verdict == "~":
        names = {"decode_tok_s": "decode", "ttft_s": "TTFT", "total_s": "total latency"}
        if one.quantity not in names:
            return None
        return f"{names[one.quantity]} of {one.route} and {one.base} shows no difference at {_where(one)}"
    if one.quantity == "decode_tok_s" and one.ratio is not None and _clear(one.ratio, 1.0):
        return f"{one.route} decode is {_span(one.ratio, 2, 'x')} {one.base} at {_where(one)}"
    if one.quantity == "ttft_s" and one.difference is not None and _clear(one.difference, 0.0):
        word = "slower" if one.difference.value > 0 else "faster"
        span = _span(_absolute(one.difference), None, "")
        return f"TTFT of {one.route} is {span} s {word} than {one.base}'s at {_where(one)}"
    return None


def _clear(estimate: Estimate, middle: float) -> bool:
    """Whether the whole spread lies on one side of `middle`."""
    low = estimate.value if estimate.low is None else estimate.low
    high = estimate.value if estimate.high is None else estimate.high
    return low > middle or high < middle


def _absolute(estimate: Estimate) -> Estimate:
    if estimate.value >= 0:
        return estimate
    low, high = estimate.low, estimate.high
    return Estimate(
        value=-estimate.value,
        low=None if high is None else -high,
        high=None if low is None else -low,
        spread=estimate.spread,
        samples=estimate.samples,
    )


def _span(estimate: Estimate, digits: int | None, unit: str) -> str:
    """`3.56x-3.66x`, or the value alone where both ends print the same or are unknown."""
    places = (
        digits if digits is not None else 0 if estimate.value >= 100 else 1 if estimate.value >= 10 else 2
    )
    ends = [f"{end:,.{places}f}{unit}" for end in (estimate.low, estimate.high) if end is not None]
    if len(ends) < 2 or ends[0] == ends[1]:
        return f"{estimate.value:,.{places}f}{unit}"
    return "-".join(ends)


def _crossed(one: Crossover) -> str | None:
    where = f"at {_where(one)}"
    if one.status == "always":
        return f"{one.route} beats {one.base} at every output length {where}"
    if one.status != "crosses" or one.output_tokens is None:
        return None
    side = "beyond" if one.wins == "above" else "below"
    text = f"{one.route} beats {one.base} {side} about {_rounded(one.output_tokens)} output tokens {where}"
    if one.low is not None and one.high is not None:
        text += f" ({one.low:,.0f} to {one.high:,.0f}, {'95%' if one.spread == 'interval' else 'range'})"
    if one.extrapolation is not None and one.extrapolation > 1:
        text += f"; extrapolated {one.extrapolation:.1f}-fold from {one.measured:,} measured"
    return text


def _rounded(tokens: float) -> str:
    """Three significant digits: more would promise what no measurement holds."""
    return f"{float(f'{tokens:.3g}'):,.0f}"


def _reused(rows: Sequence[Measurement]) -> list[str]:
    shares = [r.prefix_reuse for r in rows if r.condition == "replay" and r.prefix_reuse is not None]
    if not shares:
        return []
    low, high = f"{min(shares):.1%}", f"{max(shares):.1%}"
    return [f"replays reuse {low if low == high else f'{low} to {high}'} of their prompts"]


def _tested(rows: Sequence[Measurement], limits: dict[str, int]) -> list[str]:
    longest: dict[str, int] = {}
    for row in rows:
        longest[row.route] = max(longest.get(row.route, 0), row.prompt_tokens or row.tier)
    if not longest:
        return []
    most = max(longest.values())
    known = {limits.get(name) for name in longest}
    limit = known.pop() if len(known) == 1 else None
    if limit is None:
        return [f"tested up to {most:,} tokens; nothing measured above"]
    return [
        f"tested up to {most:,} tokens, {most / limit:.0%} of the configured limit; nothing measured above"
    ]
