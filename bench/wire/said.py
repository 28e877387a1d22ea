"""A server's own words, whatever they are, as one short printable line."""

from __future__ import annotations

import msgspec

BODY_LIMIT = 64 * 1024
"""Characters of a server's words that are kept with a failure."""


def error_text(body: str) -> str:
    """The sentence inside an error body of any server, or the start of the body itself."""
    try:
        found = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return short(body)
    if isinstance(found, dict):
        inner = found.get("error", found)
        for value in (inner.get("message") if isinstance(inner, dict) else inner, found.get("message")):
            if isinstance(value, str) and value.strip():
                return short(value)
        detail = found.get("detail")
        if isinstance(detail, str):
            return short(detail)
    return short(body)


def short(text: str, limit: int = 300) -> str:
    """One printable line, however long or binary `text` is."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text[: 4 * limit]).split())
    return line if len(line) <= limit else line[:limit] + " ..."
