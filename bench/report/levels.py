"""Concurrency in a report: one row a level, in every output; nothing where requests came one at a time."""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Callable

from bench.analysis.decisions.claims import many
from bench.records import Estimate, Level
from bench.report import sources
from bench.report.aligned import aligned, shortened
from bench.report.content import Content
from bench.report.escape import visible
from bench.report.quantities import MISSING, significant
from bench.report.told import Table, Told

TITLE = "Concurrency"
HEAD = (
    "route", "tier", "condition", "level", "waves", "output tok/s", "requests/s", "TTFT p50/p90/p99 (s)",
    "decode p50/p90 (tok/s)", "accept", "reuse", "queue (s)", "waiting",
)  # fmt: skip
NOTE = (
    "Level: requests released together; the next wave begins when all of them have ended. Output tok/s and "
    "requests/s count from the release to the end of the last answer: median over valid waves. TTFT and "
    "decode: percentiles over the requests of these waves, each by the client's clock; nine in ten decode "
    "at least as fast as p90 says. Accept, reuse and queue (mean time in the server's queue) are of waves as "
    "a whole; waiting: most requests seen in the queue. Cold rows count valid salted waves too."
)
_SHORT = (
    ("route", "", ""), ("tier", "", "tok"), ("condition", "", ""), ("at", "once", ""), ("waves", "", ""),
    ("out", "", "tok/s"), ("requests", "", "/s"), ("TTFT", "p50/90/99", "s"), ("decode", "p50/90", "tok/s"),
    ("accept", "", ""), ("reuse", "", ""), ("queue", "", "s"), ("waiting", "", ""),
)  # fmt: skip
"""Heads of three lines, so that no figure is narrower than its head."""
_NAMES = {0, 2}
_GOES = ("waiting", "requests", "queue", "reuse", "waves", "accept")
"""What a narrow terminal does without, in this order. Percentiles are spreads: they go last, medians stay."""
_CHOICES = (
    *itertools.product((False,), (40, 20, 12, 8), range(len(_GOES) + 1)),
    *itertools.product((True,), (40, 20, 12, 8, 6), (len(_GOES),)),
)
"""Medians alone, longest name, columns gone: from wide to narrow."""


def level_table(content: Content) -> Table | None:
    """One row a level; `None` where nothing ran together."""
    rows = tuple(_row(level, content) for level in _in_order(content))
    right = tuple(place for place in range(1, len(HEAD)) if place != 2)
    return Table(title=TITLE, head=HEAD, rows=rows, note=NOTE, right=right) if rows else None


def terminal_levels(content: Content, width: int, prose: int) -> str:
    """The same table for a terminal, at most `width` columns wide where that can be, with a note in `prose`
    columns; empty where nothing ran together."""
    table = level_table(content)
    if table is None:
        return ""
    for medians, longest, gone in _CHOICES:
        kept = [place for place, head in enumerate(_SHORT) if head[0] not in _GOES[:gone]]
        heads = [[head[line] for head in (_SHORT[place] for place in kept)] for line in range(3)]
        heads[1] = [_point(head, medians) for head in heads[1]]
        rows = [
            [shortened(row[i], longest) if i in _NAMES else _point(row[i], medians) for i in kept]
            for row in table.rows
        ]
        text = aligned([*heads, *rows], {place for place, i in enumerate(kept) if i not in _NAMES}, gap=1)
        if max(map(len, text)) <= width:
            break
    rule = "-" * max(map(len, text))
    reading = "decode p90: nine in ten requests decode at least as fast; all else: see report.md"
    if medians:
        reading = "p50: the median; no room for the other percentiles, and more: see report.md"
    note = textwrap.wrap(reading, prose, subsequent_indent="  ")
    return "\n".join(["at several levels of concurrency, in waves:", *text[:3], rule, *text[3:], *note])


def _point(text: str, medians: bool) -> str:
    """`0.0133` of `0.0133/0.0386/0.0489` where there is room for medians alone; other texts as they are."""
    return text.partition("/")[0] or text if medians else text


def concurrency_line(content: Content) -> str:
    """What the measurements say about load, for the boundary of what was tested."""
    most = max((level.concurrency for level in content.levels if level.waves), default=1)
    if most == 1:
        return "One request at a time: nothing is said about concurrent load."
    return (
        f"Up to {most} requests at once, in waves of prompts of one length; nothing is said about more, or "
        "about requests that come at other times."
    )


def _in_order(content: Content) -> list[Level]:
    """By task, tier and condition; routes as in the suite, the lowest level first."""
    places = {route: place for place, route in enumerate(content.routes)}

    def place(level: Level) -> tuple[str, int, str, int, int]:
        route = places.get(level.route, len(places))
        return level.task, level.tier, level.condition, route, level.concurrency

    return sorted(content.levels, key=place)


def _row(level: Level, content: Content) -> tuple[str, ...]:
    several = len({one.task for one in content.levels}) > 1
    waves = f"{level.waves} of {level.waves + level.invalid}" if level.invalid else f"{level.waves}"
    why = ", ".join(f"{count} x {reason}" for reason, count in level.excluded.items())
    sample = f"{many(level.waves, 'valid wave')} with {many(level.requests, 'request')}."
    return (
        visible(level.route, 60),
        Told(f"{level.tier:,}", sources.PLANNED),
        Told(level.condition + (f" {visible(level.task, 60)}" if several else ""), sources.CONDITION),
        Told(f"{level.concurrency}", "Requests released together; 1: sent alone."),
        Told(waves, f"Valid waves. Excluded: {why or 'none'}."),
        _estimate(level.output_tok_s, _rate, f"Output tokens / time from release to last end. {sample}"),
        _estimate(level.requests_s, _rate, f"Requests / time from release to last end. {sample}"),
        _ttft(level, sample),
        _decode(level, sample),
        _estimate(level.acceptance, _share, f"Accepted / drafted tokens of a wave. {sample}"),
        _estimate(level.prefix_reuse, _share, f"Cached / prompt tokens of a wave. {sample}"),
        _estimate(level.queue_s, _rate, f"The server's own queue histogram. {sample}"),
        Told(
            MISSING if level.waiting_peak is None else f"{level.waiting_peak:.0f}",
            "Highest sample of the gauge of waiting requests.",
        ),
    )


def _ttft(level: Level, sample: str) -> str:
    found = level.ttft_s
    if found is None:
        return MISSING
    text = "/".join(_rate(point) for point in (found.p50, found.p90, found.p99))
    return Told(text, f"First text - sent, percentiles over requests. {sample} Witness: client clock.")


def _decode(level: Level, sample: str) -> str:
    found = level.tpot_s
    if found is None or not found.p50 or not found.p90:
        return MISSING
    text = f"{_rate(1 / found.p50)}/{_rate(1 / found.p90)}"
    return Told(text, f"1 / percentiles of the time per output token. {sample} Witness: client clock.")


def _estimate(one: Estimate | None, write: Callable[[float], str], meaning: str) -> str:
    if one is None:
        return MISSING
    return Told(write(one.value), f"{meaning} Median over waves. {sources.spread(one)}".rstrip())


def _rate(value: float) -> str:
    return significant(value, 3)


def _share(value: float) -> str:
    return f"{value * 100:.1f}%"
