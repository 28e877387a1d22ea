"""What `ctxbench goodput` prints for people."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby

from bench.analysis.decisions.claims import many
from bench.analysis.decisions.goodput import Goodput, highest

from .decide_layout import filled, notes, several, table

_NOT_KNOWN = {
    "no ttft_s": "TTFT not known",
    "no tpot_s": "time per output token not known",
    "no total_s": "total time not known",
}
"""What is missing, as `Goodput.left_out` names it."""


_SPARE = ("worst", "waves", "95% interval")
"""Columns that a narrow terminal does without: the lines above the table and the verdict follow from them."""


def goodput_table(found: Sequence[Goodput], share: float) -> str:
    """One row a level, what is left out, and for each route how many at once keep the promise."""
    head = ["route", "prompt", "at once", "within", "95% interval", "within/s", f"{share * 100:g}% within"]
    rows = [
        [
            one.route,
            _cell(one, found),
            str(one.concurrency),
            f"{one.met} of {one.requests}",
            _interval(one),
            "-" if one.requests_s is None else f"{one.requests_s:.3g}",
            one.verdict or "-",
        ]
        for one in found
    ]
    if _together(found):
        for row, cells in zip((head, *rows), (["waves", "worst"], *map(_waves, found)), strict=True):
            row[4:4] = cells
    texts = [
        (f"{one.route}, {_cell(one, found)}, {one.concurrency} at once", text)
        for one in found
        for text in _texts(one)
    ]
    groups = groupby(found, key=lambda one: (one.route, _cell(one, found)))
    lines = [f"{route}, {cell}: {_conclusion(list(levels))}" for (route, cell), levels in groups]
    answer, key = ("\n".join(map(filled, told)) for told in (lines, _key(found)))
    return f"{answer}\n\n{table(head, rows, spare=_SPARE)}{notes(texts, 0)}\n\n{key}"


def _cell(one: Goodput, found: Sequence[Goodput]) -> str:
    tasks = several([other.task for other in found])
    return f"{one.tier:,} {one.condition}" + (f" {one.task}" if tasks else "")


def _together(found: Sequence[Goodput]) -> bool:
    return any(one.concurrency > 1 for one in found)


def _waves(one: Goodput) -> list[str]:
    """How many kept the promise, and the share of the worst."""
    worst = "-" if one.lowest_share is None else f"{math.floor(_percents(one.lowest_share))}%"
    return [f"{one.waves_kept} of {one.waves}", worst]


def _interval(one: Goodput) -> str:
    """Whole percents, outwards."""
    if one.low is None or one.high is None:
        return "-"
    return f"{math.floor(_percents(one.low))} to {math.ceil(_percents(one.high))}%"


def _percents(share: float) -> float:
    """Without the digits that a product of floats adds: 0.58 * 100 lies below 58."""
    return round(share * 100, 9)


def _texts(one: Goodput) -> list[str]:
    told = [
        f"{many(count, _unit(one))} {'is' if count == 1 else 'are'} left out: {_why(name)}"
        for name, count in one.left_out.items()
    ]
    if one.failed:
        failed = (
            "a request failed: it counts" if one.failed == 1 else f"{one.failed} requests failed: they count"
        )
        told.append(f"{failed} as beyond every limit")
    return told


def _why(name: str) -> str:
    """A reason of `Goodput.left_out` in words."""
    from bench.report.words import bare_reason

    return _NOT_KNOWN.get(name) or bare_reason(name)


def _unit(one: Goodput) -> str:
    return "request" if one.concurrency == 1 else "wave"


def _conclusion(levels: Sequence[Goodput]) -> str:
    """How many at once keep the promise, and of how many nothing is known."""
    untold = [str(one.concurrency) for one in levels if one.verdict is None]
    if len(untold) == len(levels):
        return "no request can be judged"
    known = _judged(levels)
    if not untold:
        return known
    *others, last = untold
    which = f"{', '.join(others)} and {last}" if others else last
    return f"{known}; {which} at once: cannot be told"


def _judged(levels: Sequence[Goodput]) -> str:
    """What is shown, and what was only seen, of levels of which one at least was judged."""
    shown, seen = highest(levels), highest(levels, ("kept", "kept so far"))
    if seen is None:
        first = next(one for one in levels if one.verdict is not None)
        return f"{first.verdict} already with {first.concurrency} at once{_so_far(first)}"
    parts = [seen] if shown is None or shown is seen else [shown, seen]
    return "; ".join(f"{one.verdict} with up to {one.concurrency} at once{_so_far(one)}" for one in parts)


def _so_far(one: Goodput) -> str:
    """In how many waves it was seen, and what would show it: ` (in all 4 waves), shown from 36 waves on`."""
    if one.verdict in ("kept", "missed"):
        return ""
    waves = one.waves_kept if one.verdict == "kept so far" else one.waves - one.waves_kept
    unit = _unit(one)
    told = f"all {waves} {unit}s" if waves == one.waves > 1 else f"{waves} of {many(one.waves, unit)}"
    if one.texts < one.waves:
        unit = "text"
        told += f" of {many(one.texts, unit)}"
    if one.shown_from is None:
        return f" (in {told}), too near to be shown"
    return f" (in {told}), shown from {many(one.shown_from, unit)} on"


def _key(found: Sequence[Goodput]) -> list[str]:
    """What the columns and words mean that stand in this table."""
    keys = ["within: requests within every limit"]
    if _together(found):
        keys[0] += "; waves: those that kept it; worst: the least share of a wave"
        keys.append("95% interval: a wave counts once in it, since its requests share a queue")
    if any(one.texts < one.waves for one in found):
        keys.append("texts: what was sent one and the same text counts once")
    if any(one.verdict is not None and one.verdict.endswith("so far") for one in found):
        keys.append("so far: seen and not shown yet; shown from so many on if the share stays as it was seen")
    return keys
