"""Tasks: the instruction at the end of a prompt, and what its answers are like.

A task is a Markdown file: an optional head between `---` lines with `key: value` pairs, then the
instruction. Keys: `acceptance` (high, middle, low: how easily a drafter follows the answer; recorded,
since acceptance depends on it) and `completions: none` where a bare completion needs no instruction.
"""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct

from bench.errors import SuiteError
from bench.resources import shipped

_LARGEST = 64 * 1024
_KEYS = {"acceptance": {"high", "middle", "low", "unknown"}, "completions": {"none", "instruction"}}


class Task(Struct, frozen=True, kw_only=True):
    """What the model is asked to do with the text before it."""

    name: str
    instruction: str
    acceptance: str = "unknown"
    bare_completion: bool = False
    """In completions the text itself is the task: nothing is appended."""


class Piece(Struct, frozen=True, kw_only=True):
    """A line put into the body at a depth: a needle."""

    text: str
    depth: float
    """0 for the front of the body, 1 for its end."""


def load_task(name: str, base: Path = Path()) -> Task:
    """A task by its name in prompts/tasks, or by the path of a Markdown file below `base`.

    Raises `SuiteError` when there is none, or it says nothing.
    """
    try:
        path = (
            Path(name) if "/" in name or name.endswith(".md") else shipped("prompts", "tasks", f"{name}.md")
        )
        path = path if path.is_absolute() else base / path
        with path.open("rb") as file:
            raw = file.read(_LARGEST + 1)
        text = raw.decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        known = ", ".join(sorted(file.stem for file in shipped("prompts", "tasks").glob("*.md")))
        raise SuiteError(
            f"no task {name!r} ({error}); give one of {known}, or a UTF-8 Markdown file."
        ) from error
    if len(raw) > _LARGEST:
        raise SuiteError(
            f"task {name!r} is longer than {_LARGEST // 1024} KiB; put long text into the corpus."
        )
    return parse_task(name, text)


def parse_task(name: str, text: str) -> Task:
    """A task from the text of its file."""
    head: dict[str, str] = {}
    if text.startswith("---\n"):
        block, found, text = text[4:].partition("\n---\n")
        if not found:
            raise SuiteError(f"task {name!r}: its head has no closing --- line.")
        head = {
            key.strip(): value.strip()
            for key, _, value in (line.partition(":") for line in block.splitlines())
        }
    for key, value in head.items():
        if value not in _KEYS.get(key, set()):
            allowed = "; ".join(f"{k}: {', '.join(sorted(v))}" for k, v in _KEYS.items())
            raise SuiteError(f"task {name!r}: {key}: {value} is not known; allowed are {allowed}.")
    instruction = text.strip()
    if not instruction:
        raise SuiteError(f"task {name!r} has no instruction; write one below its head.")
    return Task(
        name=name,
        instruction=instruction,
        acceptance=head.get("acceptance", "unknown"),
        bare_completion=head.get("completions") == "none",
    )
