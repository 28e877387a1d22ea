"""What every command is made of: its help, its arguments and numbers, and groups that import it late."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from bench.cli.layout import pasteable

PATH = click.Path(path_type=Path)
_SETTINGS = {"help_option_names": ["-h", "--help"], "show_default": True}


class _Argument(click.Argument):
    """An argument that says in the help what it is, which click itself has only from 8.5 on."""

    def __init__(self, param_decls: Sequence[str], help: str, **attributes: Any) -> None:
        super().__init__(param_decls, **attributes)
        self.help = help

    def get_help_record(self, ctx: click.Context) -> tuple[str, str]:
        """As in the usage line, where brackets say that it may be left out."""
        return self.make_metavar(ctx), self.help or ""


class _Command(click.Command):
    """A command whose help has its arguments above its options."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Both, each below its title."""
        for title, kind in (("Arguments", click.Argument), ("Options", click.Option)):
            of_kind = [one for one in self.get_params(ctx) if isinstance(one, kind)]
            if rows := [row for one in of_kind if (row := one.get_help_record(ctx))]:
                with formatter.section(title):
                    formatter.write_dl(rows)

    def format_arguments(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Nothing more: what click from 8.5 on would write here stands above the options."""


argument = partial(click.argument, cls=_Argument)


def command(function: Callable[..., None]) -> click.Command:
    """Makes a command whose help is the function's docstring, the example as it can be pasted."""
    text = pasteable(inspect.getdoc(function) or "")
    return click.command(cls=_Command, help=text, context_settings=_SETTINGS)(function)


class Integer(click.IntRange):
    """A whole number between two limits; click would call it an `integer range`."""

    name = "integer"


class Number(click.FloatRange):
    """A number between two limits. What is no number (`nan`) is beyond any limit, not within all."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """As any range does."""
        number = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{value!r} is not a valid {self.name}.", param, ctx)
        return number


class Group(click.Group):
    """Commands by name, each in the place (`module:attribute`) from which it is imported when asked for."""

    def __init__(self, name: str, help: str, places: Mapping[str, str], **attributes: Any) -> None:
        super().__init__(name, help=help, context_settings=_SETTINGS, no_args_is_help=True, **attributes)
        self.commands = _Late(places)  # type: ignore[assignment]  # nothing is ever added to it

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order of their places: what comes first in a study comes first in the help."""
        return list(self.commands)


class _Late(Mapping[str, click.Command]):
    def __init__(self, places: Mapping[str, str]) -> None:
        self._places = places

    def __getitem__(self, name: str) -> click.Command:
        module, _, attribute = self._places[name].partition(":")
        found: click.Command = getattr(import_module(module), attribute)
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)
