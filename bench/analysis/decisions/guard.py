"""Texts in the cells of a CSV table that a spreadsheet would take for formulas.

An apostrophe before them keeps them texts. It is taken away again when a table is read.
"""

from __future__ import annotations

import re

_FORMULA = re.compile(r"'*[=+\-@\t\r|%]")


def guarded(text: str) -> str:
    """`text` with an apostrophe before what could start a formula; `unguarded` gives it back.

    >>> guarded('=HYPERLINK("http://x")'), guarded("mtp4")
    ('\\'=HYPERLINK("http://x")', 'mtp4')
    """
    return "'" + text if _FORMULA.match(text) else text


def unguarded(text: str) -> str:
    """The text that `guarded` was given."""
    return text[1:] if text[:1] == "'" and _FORMULA.match(text) else text
