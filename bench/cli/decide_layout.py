"""Texts of the deciding commands: tables as wide as the terminal, notes, figures with units and sense."""

from __future__ import annotations

import itertools
import math
import re
import textwrap
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from bench.cli.layout import columns as terminal

if TYPE_CHECKING:
    from bench.records import Estimate

_COMFORTABLE, _NARROWEST = 14, 6  # a column of names is not folded below the second
_WORD = re.compile(r"[^ -]+-?|-")
_WHOLE = 20  # words up to here are broken only where nothing else makes room

_SCALES = {"s": ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")), "share": ((0.01, "pp"),)}


def table(
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    spare: Sequence[str] = (),
    groups: Sequence[str] = (),
) -> str:
    """Columns two spaces apart, numbers to the right; the widest text is folded until all fits.

    `spare`: heads of columns that go, in this order, before a number is folded or a word broken; a line below
    says which. `groups`: what each row belongs to, in a line of its own above the first row of it.
    """
    columns = list(zip(head, *rows, strict=True))
    indent = "  " if groups else ""
    for gone, gap, folds in _choices(len(spare)):
        kept = [column for column in columns if column[0] not in spare[:gone]]
        right = [_is_right(column) for column in kept]
        room = terminal() - len(indent) - len(gap) * (len(kept) - 1)
        widths = _widths(kept, right, room)
        least = [
            min(_word(c), _WHOLE) if folds or not r else _snug(c) for c, r in zip(kept, right, strict=True)
        ]
        if sum(widths) <= room and all(width >= one for width, one in zip(widths, least, strict=True)):
            break
    lines, last = [], ""
    for place, cells in enumerate(zip(*kept, strict=True)):
        if place and groups and groups[place - 1] != last:
            last = groups[place - 1]
            lines.append(filled(last))
        lines += [indent + line for line in _row(cells, widths, right, gap)]
    return "\n".join(lines) + no_room(spare[:gone])


def _choices(spare: int) -> Iterator[tuple[int, str, bool]]:
    """How many columns go, what stands between the others, and whether numbers are folded: best first."""
    gaps = ("  ", " ")
    yield from itertools.product(range(spare + 1), gaps, (False,))
    yield from itertools.product((spare,), gaps, (True,))


def _is_right(column: Sequence[str]) -> bool:
    """Whether these are numbers, below their head."""
    return all(cell[:1] in "-0123456789~?<" or not cell for cell in column[1:])


def _snug(column: Sequence[str]) -> int:
    """Width of a column none of whose cells is folded, but its head."""
    return max(_word(column[:1]), *map(len, column[1:]), 0)


def fits(head: Sequence[str], rows: Sequence[Sequence[str]], indent: int = 0) -> bool:
    """Whether a table needs no folding."""
    columns = list(zip(head, *rows, strict=True))
    return sum(max(map(len, column)) for column in columns) + 2 * (len(columns) - 1) + indent <= terminal()


def no_room(names: Sequence[str]) -> str:
    """What a narrow table does without, behind it."""
    return "\n\n" + filled(f"no room for {', '.join(names)}: see --json") if names else ""


def _row(cells: Sequence[str], widths: Sequence[int], right: Sequence[bool], gap: str) -> list[str]:
    """The lines of one row: as many as its most folded cell has."""
    folded = [_folded(cell, width) for cell, width in zip(cells, widths, strict=True)]
    lines = []
    for parts in itertools.zip_longest(*folded, fillvalue=""):
        sides = zip(parts, right, widths, strict=True)
        lines.append(gap.join(c.rjust(w) if r else c.ljust(w) for c, r, w in sides).rstrip())
    return lines


def _widths(columns: Sequence[Sequence[str]], right: Sequence[bool], room: int) -> list[int]:
    """Width of each column, `room` together: heads are folded first, names then a little, spreads go under
    their values, names again, then numbers between their words, and at last names anywhere."""
    widths = [max(map(len, column)) for column in columns]
    snug = [_snug(column) for column in columns]
    apart = [max(len(part) for cell in column for part in cell.split(" (")) + 1 for column in columns]
    words = [_word(column) for column in columns]
    whole = [min(word, _WHOLE) for word in words]
    for least in (
        snug,
        [s if r else max(_COMFORTABLE, o) for s, r, o in zip(snug, right, whole, strict=True)],
        [a if r else max(_COMFORTABLE, o) for a, r, o in zip(apart, right, whole, strict=True)],
        [a if r else max(_NARROWEST, o) for a, r, o in zip(apart, right, whole, strict=True)],
        [w if r else max(_NARROWEST, o) for w, r, o in zip(words, right, whole, strict=True)],
        [w if r else _NARROWEST for w, r in zip(words, right, strict=True)],
    ):
        while sum(widths) > room:
            wide = [i for i, width in enumerate(widths) if width > least[i]]
            if not wide:
                break
            widths[max(wide, key=lambda i: widths[i])] -= 1
    return widths


def _word(cells: Sequence[str]) -> int:
    """Length of the longest word."""
    return max(map(len, _WORD.findall(" ".join(cells))), default=0)


def _folded(cell: str, width: int) -> list[str]:
    return textwrap.wrap(cell, width) if len(cell) > width else [cell]


def filled(line: str) -> str:
    """A sentence over as many lines as it needs."""
    return textwrap.fill(
        line, terminal(), subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    )


def notes(texts: Sequence[tuple[str, str]], rows: int) -> str:
    """What (where, text) pairs say, equal texts once; of more than two places among `rows` their number.

    An empty place is left out: the text then says itself what it speaks of.
    """
    places: dict[str, list[str]] = {}
    for where, text in texts:
        if where not in places.setdefault(text, []):
            places[text].append(where)
    lines = []
    for text, found in places.items():
        many = "all" if len(found) == rows else f"{len(found)} of {rows}"
        where = many if 2 < len(found) <= rows else "; ".join(found)
        lines.append(filled(f"- {where}: {text}" if where else f"- {text}"))
    return "\n\n" + "\n".join(lines) if lines else ""


def span(estimate: Estimate | None, places: int = 2) -> str:
    """`3.61 (3.56 to 3.66)`, or the value alone; `-` where there is none."""
    if estimate is None:
        return "-"
    text = f"{estimate.value:,.{places}f}"
    if estimate.low is None or estimate.high is None:
        return text
    return f"{text} ({estimate.low:,.{places}f} to {estimate.high:,.{places}f})"


def seconds(estimate: Estimate | None) -> str:
    """Four digits or so: milliseconds below 10 s, tenths from 100 s on."""
    value = estimate.value if estimate is not None else 0.0
    return span(estimate, 1 if value >= 100 else 2 if value >= 10 else 3)


def quantity(estimate: Estimate | None, unit: str, *, spread: bool = True) -> str:
    """Value (and spread) in a unit that fits, three digits of the largest of them; `0` where all are."""
    if estimate is None:
        return "-"
    ends = [abs(end) for end in (estimate.value, estimate.low, estimate.high) if end is not None]
    most = max(ends)
    if most == 0 or (estimate.value == 0 and not spread):
        return "0"
    scales = _SCALES.get(unit, ((1.0, unit),))
    factor, name = next((one for one in scales if most >= one[0]), scales[-1])
    places = max(0, 2 - math.floor(math.log10(most / factor)))
    scaled = [end if end is None else end / factor for end in (estimate.value, estimate.low, estimate.high)]
    value, low, high = (None if end is None else f"{end + 0.0:,.{places}f}" for end in scaled)
    # -0.00 is no figure
    value, low, high = (
        end and (end.removeprefix("-") if _is_zero(end) else end) for end in (value, low, high)
    )
    text = f"{value} ({low} to {high})" if spread and low is not None and high is not None else value
    return f"{text} {name}".rstrip()


def _is_zero(text: str) -> bool:
    return not text.strip("-0.,")


def tokens(value: float | None) -> str:
    """Output tokens: whole ones, with a tenth below ten."""
    if value is None:
        return "-"
    return f"{value:,.1f}" if value < 10 else f"{value:,.0f}"


def several(values: Sequence[str]) -> bool:
    """Whether a column for these is worth its room."""
    return len(set(values)) > 1
