"""Text from servers, corpora and suites is untrusted: made harmless and short before it is shown."""

from __future__ import annotations

import re
import unicodedata

from bench.analysis.decisions.guard import guarded

LIMIT = 400
"""Characters of one foreign text in a report, unless the caller says otherwise."""

_ENTITY = re.compile(r"[&<>|*_\[\]()`~#!\\@:^$/]")
# Prose that may stand in Markdown as it is, but for the characters of _BACKSLASH.
_PROSE = re.compile(r"[\w .,:;/+=%?\"'()*~\u00b1-]*")
_BACKSLASH = re.compile(r"[*_~]")
_MARKUP_START = re.compile(r"[-+=]|\d+[.)]\s")
# Two combining marks are writing; a tower of them climbs over other lines.
_MARKS = "[\u0300-\u036f\u0483-\u0489\u1ab0-\u1aff\u20d0-\u20ff]"
_STACKED = re.compile(f"({_MARKS}{{2}}){_MARKS}+")


def visible(text: str, limit: int = LIMIT) -> str:
    r"""One line of `text` without power over a terminal or the reader's eye.

    Control characters (ANSI escapes), right-to-left marks, other invisible format characters and
    lone surrogates become visible escapes; white space runs become one space; what is over the
    limit is cut, and says so.

    >>> visible("a\x1b[31m\u202eb\nc")
    'a\\x1b[31m\\u202eb c'
    """
    # Cut before looking at every character: the text may have ten million of them.
    start, head = text[:limit], text[: limit * 4]
    if "  " not in start and start[:1] != " " != start[-1:] and start.isascii() and start.isprintable():
        if len(text) <= limit:
            return text  # nearly every text of a large table
        if not head[limit:].isspace():
            return f"{start}... ({len(text):,} characters)"
    line = " ".join(head.split())
    if not line.isprintable():
        line = "".join(_visible(character) for character in line)
    if not line.isascii():
        line = _STACKED.sub(r"\1", line)
    if len(line) > limit or len(head) < len(text):
        line = f"{line[:limit]}... ({len(text):,} characters)"
    return line


def markdown(text: str, limit: int = LIMIT, *, in_cell: bool = False) -> str:
    """`text` for a Markdown paragraph, or a table cell (which never begins a line), shown literally.

    Prose stands as it is, with a backslash before what would be emphasis. Anything with pipes, HTML,
    links, mentions and the like becomes entities in `<code>`, where no platform looks for them.
    """
    line = visible(text, limit)
    if (
        _PROSE.fullmatch(line)
        and "://" not in line
        and "www." not in line.lower()
        and (in_cell or not _MARKUP_START.match(line))
    ):
        return _BACKSLASH.sub(r"\\\g<0>", line)
    return "<code>" + _ENTITY.sub(lambda match: f"&#{ord(match[0])};", line) + "</code>"


def csv_text(text: str, limit: int = 400) -> str:
    """`text` for a CSV cell that a spreadsheet will not take for a formula."""
    return guarded(visible(text, limit))


def _visible(character: str) -> str:
    if character.isascii() and character.isprintable():
        return character
    if unicodedata.category(character) in {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}:
        code = ord(character)
        return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
    return character
