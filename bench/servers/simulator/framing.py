"""Events as bytes, well formed or deliberately odd. Pure: bytes in, writes out."""

from __future__ import annotations

DONE = b"[DONE]"
COMMENT = b": ping\n\n"
_HUGE = 10_000_000


def frame(data: bytes, faults: frozenset[str], number: int = 0) -> list[bytes]:
    """The writes that send one event; `number` counts the events of a reply from 1.

    `data` is one line of JSON (or `[DONE]`), as UTF-8.
    """
    if "malformed-json" in faults and number == 3:
        data = data[: len(data) // 2]
    if "huge-line" in faults and number == 2 and data.startswith(b"{"):
        data = data[:-1] + b',"padding":"' + b"x" * _HUGE + b'"}'
    lines = [data]
    if "multi-line-data" in faults and data.startswith(b"{"):
        lines = [b"{", data[1:-1], b"}"]  # white space may stand between JSON's tokens
    end = b"\r\n" if "crlf" in faults else b"\n"
    event = b"".join(b"data: " + line + end for line in lines) + end
    if "utf8-split" in faults:
        return [event[place : place + 1] for place in range(len(event))]
    return [event]


def odd_text(text: str, faults: frozenset[str]) -> str:
    """The same tokens' text with the characters that a fault wants in it."""
    if "utf8-split" in faults:
        text += " é漢😀"
    if "line-separator" in faults:
        text += " one\u2028two"
    return text
