"""Lines for people: no wider than their terminal, broken at words, continued below their text's beginning."""

from __future__ import annotations

import re
import shutil
import textwrap
from collections.abc import Sequence

WIDEST = 100
"""Columns of a line where the terminal is wider, or there is none."""
_NARROWEST = 40
_INDENT = 4
_EXAMPLE_WIDTH = 70
_SHELL_WORD = re.compile(r"""(?:[^\s"']|"[^"]*"|'[^']*')+""")


def columns() -> int:
    """How wide a line may be here and now."""
    return max(_NARROWEST, min(WIDEST, shutil.get_terminal_size((WIDEST, 24)).columns))


def hanging(head: str, text: str) -> str:
    """`text` behind `head`, in as many lines as it needs; what follows the first stands below the text.

    Where the head leaves the text too little room, the text begins on a line of its own.
    """
    width = columns()
    room = width - len(head)
    if room < min(30, width // 2):
        lines = [*_broken(head.rstrip(), width), *_broken(text, width - _INDENT, " " * _INDENT)]
    else:
        lines = _broken(text, room, " " * len(head))
        lines[:1] = [head + lines[0].lstrip()] if lines else [head.rstrip()]
    return "\n".join(lines)


def table(head: Sequence[str], rows: Sequence[Sequence[str]], *, right: int) -> list[str]:
    """Columns side by side, the first `right` ones right-aligned; the last one is wrapped in its column."""
    widths = [max(len(row[i]) for row in (head, *rows)) for i in range(len(head) - 1)]
    lines = []
    for row in (head, *rows):
        cells = [
            cell.rjust(width) if i < right else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=False))
        ]
        lines.append(hanging("".join(f"{cell}  " for cell in cells), row[-1]))
    return lines


def pasteable(help_text: str) -> str:
    """A command's help in which no example is wrapped: what does not fit is continued with a backslash."""
    paragraphs = help_text.split("\n\n")
    return "\n\n".join(_example(one) if one.strip().startswith("ctxbench ") else one for one in paragraphs)


def _example(text: str) -> str:
    """An example for the help formatter, which leaves a paragraph behind a line of one backspace alone.
    It is broken before an option, never between an option and its value."""
    units: list[str] = []
    for word in _SHELL_WORD.findall(text):
        if units and not word.startswith("-"):
            units[-1] += f" {word}"
        else:
            units.append(word)
    rows = units[:1]
    for unit in units[1:]:
        if len(rows[-1]) + len(unit) > _EXAMPLE_WIDTH:
            rows.append(f"    {unit}")
        else:
            rows[-1] += f" {unit}"
    return "\b\n    " + " \\\n    ".join(rows)


def _broken(text: str, width: int, indent: str = "") -> list[str]:
    """`text` in lines of at most `width` columns, each behind `indent`, which is not counted."""
    lines = textwrap.wrap(text, width, break_on_hyphens=False)
    return [indent + line for line in lines]
