"""Sentences that write themselves, each only where the measurements carry it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from bench.analysis.decisions.claims import hedge
from bench.analysis.statistics.cells import labelled, usable
from bench.records import Comparison, Crossover, Estimate, Measurement

FIRST = 2.0
"""Output tokens below which a crossover is told of the first token: no answer is that short. The whole spread
has to lie below."""


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
    tasks = len({one.task for one in comparisons} | {one.task for one in crossovers}) > 1
    lines = [line for one in comparisons if (line := _compared(one, tasks))]
    lines += [line for one in crossovers if (line := _crossed(one, tasks))]
    lines += _reused(rows)
    return lines + _tested(rows, limits or {})


def _where(one: Comparison | Crossover, tasks: bool) -> str:
    where = f"{one.tier:,}"
    if isinstance(one, Crossover) and one.reused_tokens is not None:
        where += f" tokens, {one.reused_tokens:,} of them cached"
    elif one.condition == "replay":
        where += " replayed"
    return f"{where} ({one.task})" if tasks else where


def _compared(one: Comparison, tasks: bool) -> str | None:
    where = _where(one, tasks)
    if one.verdict == "~":
        names = {"decode_tok_s": "decode", "ttft_s": "TTFT", "total_s": "total latency"}
        if one.quantity not in names:
            return None
        return f"{names[one.quantity]} of {one.route} and {one.base}: no difference seen (~) at {where}"
    if one.quantity == "decode_tok_s" and one.ratio is not None and _clear(one.ratio, 1.0):
        return f"{one.route} decode is {_ratio(one.ratio)} {one.base} at {where}{_seen(one.ratio)}"
    if one.quantity == "ttft_s" and one.difference is not None and _clear(one.difference, 0.0):
        word = "slower" if one.difference.value > 0 else "faster"
        span = _seconds(_absolute(one.difference))
        return f"TTFT of {one.route} is {span} {word} than {one.base}'s at {where}{_seen(one.difference)}"
    return None


def _seen(estimate: Estimate) -> str:
    """What a figure of few trials must carry; see `hedge`."""
    if estimate.spread is None:
        trials = None if estimate.trials is None else (estimate.trials,)
        return f", {hedge(1, 1, trials=trials)}"
    return ", in the range seen" if estimate.spread == "range" else ""


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


def _ratio(estimate: Estimate) -> str:
    """`3.56x-3.66x`; as many digits as it takes to differ from 1."""
    known = [end for end in (estimate.value, estimate.low, estimate.high) if end is not None]
    places = next((p for p in (2, 3, 4) if all(round(end, p) != 1 for end in known)), 5)
    return _span(estimate, places, "x")


def _seconds(estimate: Estimate) -> str:
    """`139-146 s`, `4.2-4.9 ms`: three digits or so, never 0."""
    factor, unit = next((f, u) for f, u in ((1.0, "s"), (1e-3, "ms"), (0.0, "us")) if estimate.value >= f)
    factor = factor or 1e-6
    scaled = Estimate(
        value=estimate.value / factor,
        low=None if estimate.low is None else estimate.low / factor,
        high=None if estimate.high is None else estimate.high / factor,
    )
    places = 0 if scaled.value >= 100 else 1 if scaled.value >= 10 else 2
    return f"{_span(scaled, places, '')} {unit}"


def _span(estimate: Estimate, places: int, unit: str) -> str:
    """`3.56x-3.66x`, or the value alone where both ends print the same or are unknown."""
    ends = [f"{end:,.{places}f}{unit}" for end in (estimate.low, estimate.high) if end is not None]
    if len(ends) < 2 or ends[0] == ends[1]:
        return f"{estimate.value:,.{places}f}{unit}"
    return "-".join(ends)


def _crossed(one: Crossover, tasks: bool) -> str | None:
    where = f"at {_where(one, tasks)}"
    if one.status == "always" or (one.status == "never" and one.until is not None):
        return _throughout(one, where)
    if one.status == "undecided" and one.ahead is not None:
        return _partly(one, where)
    if one.status != "crosses" or one.output_tokens is None:
        return None
    text = f"{one.route} beats {one.base} {_lengths(one, one.output_tokens)} {where}{_spread(one)}"
    return text if _at_once(one) else text + _reach(one)


def _throughout(one: Crossover, where: str) -> str:
    """An order that holds for every output length, or up to where it ends."""
    lengths = "at every output length"
    if (until := _until(one, "about ")) is not None:
        lengths = f"{'up to' if one.status == 'always' else 'beyond'} {until} output tokens"
    seen = hedge(*one.samples, trials=one.trials)
    return f"{one.route} beats {one.base} {lengths} {where}" + (f", {seen}" if seen else "")


def _lengths(one: Crossover, met: float) -> str:
    """The output lengths for which a route wins."""
    until = _until(one)
    at_once = _at_once(one)
    if one.wins == "above" and at_once:
        return "from the second output token " + ("on" if until is None else f"up to {_until(one, 'about ')}")
    if one.wins == "above" and until is not None:
        return f"from about {_rounded(met)} to {until} output tokens"
    if one.wins == "above":
        return f"beyond about {_rounded(met)} output tokens"
    again = "" if until is None else f" and again beyond {until}"
    if at_once:
        return f"{'for' if again else 'only for'} a single output token{again}"
    return f"below about {_rounded(met)} output tokens{again}"


def _until(one: Crossover, about: str = "") -> str | None:
    """Where a lead ends, or may end; `None`: nowhere."""
    if one.until is not None:
        return about + _rounded(one.until)
    return None if one.may_end is None else f"perhaps {_rounded(one.may_end)}"


def _at_once(one: Crossover) -> bool:
    """Whether the routes meet before the second output token, by all that the spread leaves open."""
    if one.output_tokens is None or one.output_tokens >= FIRST:
        return False
    return one.low is None if one.high is None else one.high < FIRST


def _spread(one: Crossover) -> str:
    kind = "95%" if one.spread == "interval" else "range"
    found = []
    if one.low is not None and one.high is not None and _tokens(one.low) != _tokens(one.high):
        found.append(f"{_tokens(one.low)} to {_tokens(one.high)}, {kind}")
    elif one.low is not None and one.high is None:
        found.append(f"at least {_tokens(one.low)}, {kind}")
    elif one.low is None and one.high is not None:
        found.append(f"at most {_tokens(one.high)}, {kind}")
    elif one.low is None:
        point = max(one.samples) < 2
        found.append(hedge(*one.samples, trials=one.trials) if point else "a point: no spread is known")
    if one.until_low is not None and one.until_high is not None:
        found.append(f"the end {_tokens(one.until_low)} to {_tokens(one.until_high)}, {kind}")
    return f" ({'; '.join(found)})" if found else ""


def _partly(one: Crossover, where: str) -> str:
    """Where an undecided pair is decided all the same."""
    other = one.base if one.ahead == one.route else one.route
    if one.ahead_from is not None:
        until = _until(one)
        end = "output tokens on" if until is None else f"to {until} output tokens"
        part = f"from at most {_rounded(one.ahead_from)} {end}"
    else:
        part = f"up to {_rounded(one.ahead_to or 0.0)} output tokens at least"
    seen = hedge(*one.samples, trials=one.trials)
    return f"{one.ahead} beats {other} {part} {where}" + (f", {seen}" if seen else "")


def _reach(one: Crossover) -> str:
    """How far beyond what was measured, and what straight lines say where they are not what counts."""
    text = ""
    if one.extrapolation is not None and one.measured is not None:
        text = f"; within the {one.measured:,} measured ({one.extrapolation:.2f}x)"
        if one.extrapolation > 1:
            text = f"; extrapolated {one.extrapolation:.1f}-fold from {one.measured:,} measured"
    if one.basis in ("slowing", "law") and one.line_tokens is not None:
        straight = _rounded(one.line_tokens)
        if straight != _rounded(one.output_tokens or 0.0):
            text += f" (straight lines: {straight})"
    return text


def _tokens(value: float) -> str:
    return f"{value:,.1f}" if value < 10 else f"{value:,.0f}"


def _rounded(tokens: float) -> str:
    """Three significant digits, two below ten: more would promise what no measurement holds."""
    return _tokens(float(f"{tokens:.3g}"))


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
    return [f"tested up to {most:,} tokens, {most / limit:.0%} of the served limit; nothing measured above"]
