"""Which route is fastest from which output length on: what the crossovers of a cell say together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf

from msgspec import Struct, structs

from bench.analysis.decisions.claims import hedge, unit_of
from bench.analysis.statistics.bootstrap import spread_of
from bench.analysis.statistics.cells import pooled, usable
from bench.analysis.verdicts.ledger import was_cut_off
from bench.records import Crossover
from bench.report import sources
from bench.report.content import Content
from bench.report.escape import visible
from bench.report.quantities import significant
from bench.report.told import Table, Told
from bench.report.words import ending, tokens

HEAD = ("prompt (tok)", "condition", "fastest by output length (tok)", "borders", "excluded")
NOTE = (
    "Which route answers first in full, by the number of output tokens; a border is the output length "
    "where two total latencies meet, with its spread (client clock). Routes without a shown difference "
    "stand together. Excluded measurements are in no figure."
)


class Span(Struct, frozen=True, kw_only=True):
    """A stretch of output lengths with the same fastest route."""

    start: float
    """Output tokens; 1 for the first."""
    end: float
    """Infinite for the last."""
    routes: tuple[str, ...]
    """One, or those that were not told apart."""
    border: Crossover | None
    """The crossover that begins it, or the undecided pair that is decided from here on; `None` for the
    first."""
    hedge: str = ""
    """What the claim of the cell's last stretch must carry, where trials are few."""


def spans(found: Sequence[Crossover], routes: Sequence[str]) -> list[Span]:
    """The fastest routes of one cell over the output length, from the crossovers of its pairs."""
    present = [name for name in routes if any(name in {one.route, one.base} for one in found)]
    borders: dict[float, Crossover | None] = {1.0: None}
    borders |= {one.output_tokens: one for one in found if one.output_tokens is not None and _meets(one)}
    ends = [(end, one) for one in found for end in (one.until, one.may_end)]
    borders |= {end: one for end, one in ends if end is not None}
    partly = [(end, one) for one in found if one.ahead for end in (one.ahead_from, one.ahead_to)]
    borders |= {end: one for end, one in partly if end is not None and end > 1}
    starts = sorted(borders)
    merged: list[Span] = []
    for start, end in zip(starts, [*starts[1:], inf], strict=True):
        middle = (start + end) / 2 if end < inf else 2 * start
        best = tuple(name for name in present if not _beaten(name, found, middle))
        # three routes that meet almost at once may beat each other in a ring for a few tokens
        if merged and (merged[-1].routes == best or not best):
            merged[-1] = structs.replace(merged[-1], end=end)
        else:
            merged.append(Span(start=start, end=end, routes=best, border=borders[start]))
    return [one for one in merged if one.routes]


def _meets(one: Crossover) -> bool:
    return one.status == "crosses" and one.output_tokens is not None and one.output_tokens > 1


def _beaten(name: str, found: Iterable[Crossover], output: float) -> bool:
    return any(_winner(one, output) not in {None, name} for one in found if name in {one.route, one.base})


def _winner(one: Crossover, output: float) -> str | None:
    """The faster of a pair at an output length; `None` where that is undecided."""
    if one.may_end is not None and output > one.may_end:
        return None
    lead_is_lost = one.until is not None and output > one.until
    if one.status in ("always", "never"):
        return one.route if (one.status == "always") != lead_is_lost else one.base
    if one.status == "undecided":
        if lead_is_lost:
            return one.base if one.ahead == one.route else one.route
        late = one.ahead_from is not None and output >= one.ahead_from
        early = one.ahead_to is not None and output <= one.ahead_to
        return one.ahead if late or early else None
    if one.output_tokens is None:
        return None
    is_above = output > one.output_tokens and not lead_is_lost
    return one.route if is_above == (one.wins == "above") else one.base


class Choice(Struct, frozen=True, kw_only=True):
    """The answer for one cell."""

    tier: int
    condition: str
    """With the task, where a report has several."""
    spans: tuple[Span, ...]
    borders: str
    excluded: str


def choices(content: Content) -> list[Choice]:
    """One a cell with two routes or more, the shortest prompts first, as in every table."""
    cells: dict[tuple[int, str, str], list[Crossover]] = {}
    for one in content.crossovers:
        cells.setdefault((one.tier, one.condition, one.task), []).append(one)
    several = len({task for _, _, task in cells}) > 1
    found = []
    for (tier, condition, task), own in sorted(cells.items()):
        stretches = _hedged(spans(own, content.routes), own)
        if stretches:
            found.append(
                Choice(
                    tier=tier,
                    condition=condition + (f" {visible(task, 60)}" if several else ""),
                    spans=tuple(stretches),
                    borders=_borders(spans(own, content.routes), own),
                    excluded=_excluded(content, tier, condition, task),
                )
            )
    return found


def _hedged(stretches: list[Span], found: Sequence[Crossover]) -> list[Span]:
    """The stretches as far as their trials carry them: a pair of points tells no routes apart."""
    if not stretches:
        return []
    if _is_point(found):
        names = tuple(dict.fromkeys(name for one in stretches for name in one.routes))
        names += tuple(
            dict.fromkeys(name for one in found for name in (one.route, one.base) if name not in names)
        )
        return [Span(start=1.0, end=inf, routes=names, border=None)]
    texts, trials = _counts(found)
    told = hedge(*texts, trials=trials)
    if any(len(one.routes) == 1 for one in stretches):
        stretches[-1] = structs.replace(stretches[-1], hedge=told)
    return stretches


def _is_point(found: Sequence[Crossover]) -> bool:
    return any(spread_of(*one.samples) is None for one in found)


def _counts(found: Sequence[Crossover]) -> tuple[tuple[int, ...], tuple[int, ...] | None]:
    """Texts of each route, and their trials where these are more."""
    texts: dict[str, int] = {}
    trials: dict[str, int] = {}
    for one in found:
        texts |= zip((one.route, one.base), one.samples, strict=True)
        trials |= zip((one.route, one.base), one.trials or one.samples, strict=True)
    return tuple(texts.values()), None if texts == trials else tuple(trials.values())


def said(one: Span) -> str:
    """A span in words: `mtp2 from 97 to 11,747`."""
    return _place(one) + (f", {one.hedge}" if one.hedge else "")


def _place(one: Span) -> str:
    names = " or ".join(visible(name, 60) for name in one.routes)
    names += " (not told apart)" if len(one.routes) > 1 else ""
    if one.border is None and one.end == inf and len(one.routes) > 1:
        return names  # an open question is no claim about every length
    if one.border is None:
        return names + (" at every output length" if one.end == inf else f" up to {tokens(one.end)}")
    sooner = "at most " if one.border.ahead_from == one.start else ""
    return f"{names} from {sooner}{tokens(one.start)}" + ("" if one.end == inf else f" to {tokens(one.end)}")


def choice_table(content: Content) -> Table | None:
    """The choices as a table; `None` where there is nothing to choose from."""
    rows = tuple(
        (
            Told(f"{one.tier:,}", sources.PLANNED),
            one.condition,
            Told("; ".join(map(said, one.spans)), sources.derived("fastest")),
            Told(one.borders, why(one)),
            Told(one.excluded, sources.EXCLUDED),
        )
        for one in choices(content)
    )
    return Table(title="Fastest route", head=HEAD, rows=rows, note=NOTE, right=(0,)) if rows else None


def why(one: Choice) -> str:
    """Where the borders of a choice come from."""
    found = [span.border for span in one.spans if span.border is not None]
    if not found:
        return sources.derived("fastest")
    return " ".join([sources.DERIVED["crossover"][1], *map(sources.crossover_sample, found)])


def _borders(stretches: Sequence[Span], found: Sequence[Crossover]) -> str:
    """`97 (93 to 100), 11,747 (11,054 to 11,888; 23x the longest measured); range, 2 trials`."""
    texts = [_border(one) for one in stretches if one.border is not None]
    counts, trials = _counts(found)
    unit = unit_of(trials)
    if _is_point(found):
        points = "; ".join(map(_place, stretches))
        return f"by the points alone: {points}; 1 {unit} a side: no spread"
    count = f"{_from_to(counts)} {unit}s a side" + (f" ({_from_to(trials)} trials)" if trials else "")
    kind = "95% interval" if spread_of(*counts) == "interval" else "range"
    return "; ".join([", ".join(texts), f"{kind}, {count}"] if texts else [f"{kind}, {count}"])


def _from_to(counts: Sequence[int]) -> str:
    fewest, most = min(counts), max(counts)
    return str(fewest) if fewest == most else f"{fewest} to {most}"


def _border(span: Span) -> str:
    one = span.border
    if one is None:
        return ""
    if span.start == one.until:
        return tokens(span.start) + ending(one)
    if span.start == one.may_end:
        return f"perhaps {tokens(span.start)}"
    if one.status == "undecided":
        return ("at most " if one.ahead_from == span.start else "at least ") + tokens(span.start)
    text, inside = tokens(one.output_tokens or 0), []
    if one.low is not None or one.high is not None:
        ends = ["?" if end is None else tokens(end) for end in (one.low, one.high)]
        inside.append(f"{ends[0]} to {ends[1]}")
    if one.extrapolation is not None and one.extrapolation > 1:
        inside.append(f"{significant(one.extrapolation, 2)}x the longest measured")
    return text + (f" ({'; '.join(inside)})" if inside else "")


def _excluded(content: Content, tier: int, condition: str, task: str) -> str:
    own = [
        m for m in content.measurements if (m.tier, pooled(m.condition), m.task) == (tier, condition, task)
    ]
    whole = [m for m in own if not was_cut_off(m)]
    text = f"{sum(not m.verdict.valid for m in whole)} of {len(whole)}"
    for name in dict.fromkeys(m.route for m in own):
        mine = [m for m in own if m.route == name and m.concurrency == 1]
        if mine and not any(map(usable, mine)):
            lost = sum(not was_cut_off(m) for m in mine)
            why = f"{lost} of {lost} excluded" if lost else "cut off"
            text += f"; {visible(name, 60)} not measured ({why})"
    return text
