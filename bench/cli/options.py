"""docs/options.md: every argument and option of every command, as its `--help` tells it.

    python -m bench.cli.options > docs/options.md

A test keeps the page and the help equal.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

_HEAD = """# Options

What `--help` of each command tells, on one page, as `python -m bench.cli.options` prints it. What the
commands are for, with an example each, is in [commands.md](commands.md).
"""


def commands() -> dict[str, Any]:
    """Every command by its full name, e.g. `serve llama`."""
    from bench.cli.main import app

    def below(group: Any, prefix: str) -> Iterator[tuple[str, Any]]:
        for name, command in group.commands.items():
            if hasattr(command, "commands"):
                yield from below(command, f"{prefix}{name} ")
            else:
                yield prefix + name, command

    return dict(below(app, ""))


def as_markdown() -> str:
    """The text of docs/options.md."""
    parts = [_HEAD]
    for name, command in commands().items():
        context = command.make_context(name, [], resilient_parsing=True)
        told = filter(None, (one.get_help_record(context) for one in command.params))
        rows = [f"| `{_cell(given)}` | {_cell(meaning)} |" for given, meaning in told]
        parts.append("\n".join([f"## {name}", "", "| option | meaning |", "|---|---|", *rows]) + "\n")
    return "\n".join(parts)


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())


if __name__ == "__main__":
    print(as_markdown(), end="")
