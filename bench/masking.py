"""Values that are in no file and no message: keys, and what comes out of environment variables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

LEAST = 6
"""Characters: shorter values are settings, and would be found in every text."""
_MASK = "***"

_Text = TypeVar("_Text", str, bytes)


def worth_hiding(values: Iterable[str | None]) -> tuple[str, ...]:
    """The values to be hidden, each once; the longest first, since a shorter one may be part of it."""
    found = {value for value in values if value is not None and len(value) >= LEAST}
    return tuple(sorted(found, key=lambda value: (-len(value), value)))


def hide(text: _Text, secrets: Sequence[str]) -> _Text:
    """`text` with a mask in place of every secret. `secrets` come from `worth_hiding`."""
    for secret in secrets:
        if isinstance(text, bytes):
            text = text.replace(secret.encode(), _MASK.encode())
        else:
            text = text.replace(secret, _MASK)
    return text
