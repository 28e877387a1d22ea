"""The example in every command's help can be pasted as it stands, and the command line takes it."""

from __future__ import annotations

import shlex
from typing import Any

import pytest
from click.testing import CliRunner

from bench.cli.layout import pasteable
from bench.cli.main import app


def commands(command: Any, *names: str) -> list[tuple[str, ...]]:
    """The names of every command that does something."""
    inner = getattr(command, "commands", None)
    if inner is None:
        return [names]
    return [found for name in inner for found in commands(inner[name], *names, name)]


def examples(text: str) -> list[str]:
    """The examples of a help text, as a shell would read them."""
    found: list[str] = []
    open_ = False
    for line in text.splitlines():
        words = line.strip()
        if open_:
            found[-1] += words.removesuffix("\\")
        elif words.startswith("ctxbench "):
            found.append(words.removesuffix("\\"))
        else:
            continue
        open_ = words.endswith("\\")
    return found


def parse(command: Any, words: list[str], parent: Any = None) -> str:
    """Reads the words as the command line would, without doing anything; the name of the command."""
    context = command.make_context(words[0], words[1:], parent=parent)
    if getattr(command, "commands", None) is None:
        return words[0]
    name, inner, rest = command.resolve_command(context, context._protected_args + context.args)
    assert name is not None and inner is not None
    return f"{words[0]} {parse(inner, [name, *rest], context)}"


@pytest.mark.parametrize("names", commands(app), ids=" ".join)
def test_an_example_fits_eighty_columns_and_is_understood(
    names: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    said = CliRunner().invoke(app, [*names, "--help"]).stdout
    assert max(map(len, said.splitlines())) <= 80
    (example,) = examples(said)
    assert parse(app, shlex.split(example)) == " ".join(("ctxbench", *names))


def test_an_example_is_broken_between_words_and_never_within_quotes() -> None:
    rule = '"' + "word " * 20 + '"'
    text = pasteable(f"Does it.\n\nctxbench gate {'a' * 60} --rule {rule} --json")
    rows = ["\b", f"    ctxbench gate {'a' * 60} \\", f"        --rule {rule} \\", "        --json"]
    assert text == "Does it.\n\n" + "\n".join(rows)
