"""Finds the files that ship beside the code: tasks, ready suites, published figures.

In a checkout they lie in `prompts/` and `results/` at the top; in a wheel inside the package.
"""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


def shipped(*parts: str) -> Path:
    """Path of a shipped file or folder, e.g. `shipped("prompts", "tasks", "continue.md")`.

    Raises `FileNotFoundError` when neither a checkout nor a wheel has it.
    """
    for root in (_PACKAGE / "_shipped", _PACKAGE.parent):
        path = root.joinpath(*parts)
        if path.exists():
            return path
    raise FileNotFoundError("/".join(parts))
