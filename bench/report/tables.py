"""The table for a terminal: what happened, and what to look at, as wide as it may be."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from msgspec import Struct

from bench.report import compared, reused, winner_told, words
from bench.report.aligned import aligned, shortened
from bench.report.chats import chat_lines
from bench.report.content import Content
from bench.report.grid import Grid, Row, Value
from bench.report.levels import terminal_levels
from bench.report.quantities import QUANTITIES, TABLE

WIDTH = 100
"""Columns of a line of prose at most, and of a table where nobody says how wide it may be."""
TABLE_WIDTH = 50
"""A table is not made for fewer columns than these."""
NARROWEST = 40
"""Prose is not wrapped narrower."""
LONGEST_NAME = 60
SHORTEST_NAME = 6
SHORT_NAME = 12
"""Names are not cut below this while something else can go."""
CROSSOVERS_SHOWN = 6
EXCLUDED_SHOWN = 8
"""Excluded trials listed in a terminal; the rest is counted."""

_DROPPED = ("acceptance_length", "prompt_tokens", "acceptance", "prefix_reuse")
"""Columns that a narrow table does without, in this order, before it does without spreads: the length follows
from the acceptance, and the prompt is the tier but for a thousandth."""
_LAST = "total_s"
"""Goes when spreads have gone: it follows from TTFT, rate and output length."""
_NAMES_WHOLE = 2
"""So many of them go before names are cut."""

_SUPERSCRIPT = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


def terminal(content: Content, width: int = WIDTH, *, show_all: bool = False) -> str:
    """Everything a person needs after a run, for a terminal of `width` columns; ends with a newline.

    Medians of the valid trials of each cell, spreads, reasons for what is missing, excluded trials,
    comparisons and crossovers in words. Tables use all the width, and no less than `TABLE_WIDTH`; prose is
    wrapped at it, and at `WIDTH` in any case. `show_all` lists every excluded trial.
    """
    table, room, width = content.grid, max(width, TABLE_WIDTH), max(NARROWEST, min(width, WIDTH))
    fitted = performance(table, room)
    blocks = [fitted.text] if table.rows or not (content.levels or content.chats) else []
    blocks.append(terminal_levels(content, room, width))
    blocks.append(_block("chats", chat_lines(content), width))
    blocks.append(_notes(table, fitted, width))
    blocks.append(_block("excluded", _excluded(content, show_all), width))
    blocks.append(comparison(content, room, width))
    blocks.append(_block("crossover", [*_crossovers(content), *words.verified_lines(content)], width))
    blocks.append(_reused(content, width))
    blocks.append(_block("look at", look_at(content), width))
    return "\n\n".join(block for block in blocks if block) + "\n"


class Fitted(Struct, frozen=True, kw_only=True):
    """The performance table in the form that fits."""

    text: str
    dropped: tuple[str, ...] = ()
    """Quantities without a column for want of room."""
    spreads: bool = True
    """Whether spreads are shown."""


def performance(table: Grid, width: int = WIDTH) -> Fitted:
    """The performance table alone; narrower variants are tried until one fits.

    Columns that others imply go first, then names are cut, then other columns go, spreads, and total last.
    """
    if not table.rows:
        return Fitted(text="nothing measured yet")
    for gone in range(_NAMES_WHOLE + 1):
        for gap in (2, 1):
            text = _render(table, _DROPPED[:gone], True, gap, LONGEST_NAME)
            if _widest(text) <= width:
                return Fitted(text=text, dropped=_DROPPED[:gone])
    longest = max(min(len(row.route), LONGEST_NAME) for row in table.rows)
    for dropped, spreads in _narrow():
        text = _render(table, dropped, spreads, 1, LONGEST_NAME)
        cut = longest - (_widest(text) - width)
        if cut >= min(SHORT_NAME, longest):
            break
    text = _render(table, dropped, spreads, 1, max(SHORTEST_NAME, cut))
    return Fitted(text=text, dropped=dropped, spreads=spreads)


def _narrow() -> Iterator[tuple[tuple[str, ...], bool]]:
    """Columns to do without, and whether spreads are shown, from wide to narrow."""
    for spreads in (True, False):
        for gone in range(_NAMES_WHOLE, len(_DROPPED) + 1):
            yield _DROPPED[:gone], spreads
    yield (*_DROPPED, _LAST), False


def comparison(content: Content, width: int = WIDTH, prose: int = WIDTH) -> str:
    """Routes side by side in `width` columns, with a note in `prose` columns; empty without a comparison."""
    rows = compared.rows_of(content)
    if not rows:
        return ""
    several = len({row[1] for row in rows}) > 1
    kept = [i for i in compared.filled(rows) if i != 1 or several]
    text: list[str] = []
    for gap, name, spreads in ((2, 40, True), (2, 20, True), (2, 12, True), *_LEAN):
        shown = [i for i in kept if gap > 1 or i != compared.LATER]
        lines = [[_fitted(row[i], i, name, spreads) for i in shown] for row in [compared.HEAD, *rows]]
        text = aligned(lines, {place for place, i in enumerate(shown) if i in compared.RIGHT}, gap)
        if max(map(len, text)) + 2 <= width:
            break
    note = compared.note_of(content)
    if not spreads:
        note = note.replace("with their spread", "(no room for their spread: see report.md)")
    if shown != kept and compared.LATER in kept:
        note += "; no room for the difference of TTFT: see report.md"
    against = "" if several else f" with {rows[0][1]}"
    shown_text = "\n  ".join([f"compared{against}:", *text])
    return f"{shown_text}\n{_wrap('  ' + note, prose, '  ')}"


_LEAN = ((2, 40, False), (2, 20, False), (2, 12, False), (1, 12, False), (1, SHORTEST_NAME, False))
"""Gap, longest name, spreads: the comparison where there is no room for spreads; with a gap of one blank it
does without the difference of TTFT, too."""


def _fitted(cell: str, column: int, name: int, spreads: bool) -> str:
    """A cell of the comparison table: names cut to `name`, ratios with or without their spread."""
    if column in (0, 1, 3):
        return shortened(cell, name)
    return cell if spreads or column == 2 else cell.partition(" (")[0]


def look_at(content: Content) -> list[str]:
    """What a reader should look at first: trust before speed."""
    lines = [f"{text} ({count} x)" for text, count in words.warnings(content)[:6]]
    lines += words.cell_warnings(content)[:6] + winner_told.parted_lines(content)[:2]
    for run in content.runs:
        lines.append(words.state_line(run, content.everything))
        harness = words.harness_line(run)
        if harness is not None:
            lines.append(harness)
    tested = [one.crossover for one in content.verified if one.status != "not tested"]
    far = [one for one in content.crossovers if (one.extrapolation or 0) > 2 and one not in tested]
    if far:
        lines.append(
            f"{len(far)} crossover{'s lie' if len(far) > 1 else ' lies'} more than twice beyond the "
            "measured output length: verify before relying on it (run --verify-crossover)"
        )
    return lines + words.boundary_lines(content)[:1]


def _render(table: Grid, dropped: Sequence[str], spread: bool, gap: int, route: int) -> str:
    columns = [key for key in TABLE if key not in dropped]
    heads = ["route", "tier", "condition", *(QUANTITIES[key].label for key in columns), "verdict"]
    units = ["", "tok", "", *(QUANTITIES[key].unit for key in columns), ""]
    several = len({row.task for row in table.rows}) > 1
    spreads = {
        key: spread and any(row.values[key].spread for row in table.rows) for key in columns
    }  # a column without any spread keeps no room for one
    lines = [_texts(row, spreads, route) for row in table.rows]
    widths = [max(len(line[i]) for line in [heads, units, *lines]) for i in range(len(heads))]

    def put(texts: list[str]) -> str:
        cells = [
            text.ljust(size) if i in {0, 2, len(heads) - 1} else text.rjust(size)
            for i, (text, size) in enumerate(zip(texts, widths, strict=True))
        ]
        return (" " * gap).join(cells).rstrip()

    out = [put(heads), put(units), "-" * (sum(widths) + gap * (len(widths) - 1))]
    last = None
    for row, line in zip(table.rows, lines, strict=True):
        if last is not None and (row.tier, row.task) != (last.tier, last.task):
            out.append("")
        if several and (last is None or row.task != last.task):
            out.append(f"task {shortened(row.task, TABLE_WIDTH - 6)}:")
        out.append(put(line))
        last = row
    return "\n".join(out)


def _texts(row: Row, spreads: dict[str, bool], route: int) -> list[str]:
    name = shortened(row.route, route)
    values = [_cell(row.values[key], spread) for key, spread in spreads.items()]
    return [name, f"{row.tier:,}", row.condition, *values, _cell(row.verdict, False)]


def _cell(value: Value, spread: bool) -> str:
    mark = str(value.note).translate(_SUPERSCRIPT) if value.note is not None else ""
    return value.text + mark + (f" {value.spread:>4}" if spread else "")


def _notes(table: Grid, fitted: Fitted, width: int) -> str:
    lines = []
    if any(value.spread for row in table.rows for value in row.values.values()):
        told = (
            "± is the larger half of the spread" if fitted.spreads else "no room for spreads: see report.md"
        )
        lines.append(f"medians of valid trials; {told}")
    if fitted.dropped:
        names = ", ".join(QUANTITIES[key].label for key in fitted.dropped)
        lines.append(f"no room for {names}: see report.md")
    if any(row.condition == "salted" for row in table.rows):
        lines.append("cold rows count valid salted samples too; salted rows show these by themselves")
    marks = [str(number).translate(_SUPERSCRIPT) for number in range(1, len(table.notes) + 1)]
    # a note may belong to a column that was dropped
    lines += [f"{mark} {note}" for mark, note in zip(marks, table.notes, strict=True) if mark in fitted.text]
    return "\n".join(_wrap(line, width, "  ") for line in lines)


def _excluded(content: Content, show_all: bool) -> list[str]:
    found = words.excluded(content)
    shown = found if show_all else found[:EXCLUDED_SHOWN]
    lines = [words.excluded_line(one) for one in shown]
    if len(found) > len(shown):
        lines.append(f"and {len(found) - len(shown)} more: ctxbench report --all lists them")
    return lines


def _crossovers(content: Content) -> list[str]:
    """All of them where they are few, else those against the base."""
    found, lines = content.crossovers, words.crossover_lines(content)
    if len(lines) <= CROSSOVERS_SHOWN:
        return lines
    kept = [
        line for one, line in zip(found, lines, strict=True) if content.base in {one.route, one.base}
    ] or lines
    left = len(lines) - len(kept)
    return kept + ([f"{left} between other routes: see report.md"] if left else [])


def _reused(content: Content, width: int) -> str:
    """What the laws say for a chosen cached part of the prompt."""
    if content.reuse is None:
        return ""
    return _block(reused.title(content.reuse), [*reused.reused_lines(content), reused.NOTE], width)


def _block(title: str, lines: list[str], width: int) -> str:
    if not lines:
        return ""
    return "\n".join([f"{title}:", *(_wrap("  " + line, width, "    ") for line in lines)])


def _wrap(line: str, width: int, indent: str) -> str:
    return "\n".join(
        textwrap.wrap(line, width, subsequent_indent=indent, break_long_words=True, break_on_hyphens=False)
        or [""]
    )


def _widest(text: str) -> int:
    return max(len(line) for line in text.splitlines())
