"""What `ctxbench goodput` prints for people."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby

from bench.analysis.decisions.goodput import Goodput, fewest, highest

from .decide_tables import filled, notes, table


def goodput_table(found: Sequence[Goodput], share: float) -> str:
    """One row a level, what is left out, and for each route how many at once keep the promise."""
    rows = [
        [
            one.route,
            _cell(one, found),
            str(one.concurrency),
            f"{one.met} of {one.requests}",
            _interval(one),
            "-" if one.requests_s is None else f"{one.requests_s:.3g}",
            one.verdict,
        ]
        for one in found
    ]
    head = ["route", "prompt", "at once", "within", "95% interval", "within, /s", f"{share * 100:g}% of them"]
    texts = [
        (f"{one.route}, {_cell(one, found)}, {one.concurrency} at once", text)
        for one in found
        for text in _texts(one)
    ]
    lines = [filled(line) for line in _conclusions(found, share)]
    return table(head, rows) + notes(texts, 0) + "\n\n" + "\n".join(lines)


def _cell(one: Goodput, found: Sequence[Goodput]) -> str:
    tasks = {other.task for other in found}
    return f"{one.tier:,} {one.condition}" + (f" {one.task}" if len(tasks) > 1 else "")


def _interval(one: Goodput) -> str:
    """Whole percents, outwards."""
    if one.low is None or one.high is None:
        return "-"
    return f"{math.floor(one.low * 100)} to {math.ceil(one.high * 100)}%"


def _texts(one: Goodput) -> list[str]:
    left_out = sum(one.left_out.values())
    told = []
    if left_out:
        reasons = ", ".join(f"{name} {count}" for name, count in one.left_out.items())
        told.append(f"waves that say nothing about the server are left out: {reasons}")
    if one.failed:
        failed = (
            "a request failed: it counts" if one.failed == 1 else f"{one.failed} requests failed: they count"
        )
        told.append(f"{failed} as beyond every limit")
    return told


def _conclusions(found: Sequence[Goodput], share: float) -> list[str]:
    lines = []
    for (route, cell), levels in groupby(found, key=lambda one: (one.route, _cell(one, found))):
        each = list(levels)
        best = highest(each)
        if best is not None:
            lines.append(f"{route}, {cell}: kept with up to {best.concurrency} at once")
        elif each[0].verdict == "missed":
            lines.append(f"{route}, {cell}: missed already with {each[0].concurrency} at once")
        else:
            lines.append(f"{route}, {cell}: undecided: {fewest(share)} requests or more at a level can tell")
    return lines
