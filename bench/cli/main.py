"""The `ctxbench` command: one place where commands are registered and errors become exit codes.

Exit codes: 0 ok, 1 a check or gate failed, a run left trials without a valid measurement (or the output
could not be written), 2 usage or suite error, 3 engine error, 4 a gate cannot tell, 130 interrupted, 141
nobody read the output on.
"""

from __future__ import annotations

import contextlib
import inspect
import os
import sys
from collections.abc import Callable
from typing import Annotated, Any

import typer
import typer.core

from bench.cli import (
    context,
    decide,
    demo,
    import_table,
    plan,
    prompts,
    report,
    routes,
    run,
    serve,
    serve_simulator,
    watch,
)
from bench.cli.layout import pasteable
from bench.errors import BenchError


def _new() -> typer.Typer:
    return typer.Typer(
        name="ctxbench",
        help="Measures LLM servers at long context: cold, salted and replayed prompts, speculation that "
        "pays or not, and the output length from which one route beats another.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )


app = _new()


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"ctxbench {version('ctxbench')}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """Options that stand before a command."""


class _Command(typer.core.TyperCommand):
    """A command whose errors speak of the option, not of the library that reads it."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """As any command does."""
        try:
            return super().parse_args(ctx, args)
        except typer.BadParameter as error:
            said = error.message.partition(", unable to parse")[0]
            error.message = said.replace("Input should", "it should", 1)
            raise


def _command(where: typer.Typer, name: str, function: Callable[..., None]) -> None:
    """Registers a command whose help is its docstring, the example as it can be pasted."""
    where.command(name, cls=_Command, help=pasteable(inspect.getdoc(function) or ""))(function)


_command(app, "demo", demo.demo)
_command(app, "plan", plan.plan)
_command(app, "check", plan.check)
_command(app, "prompts", prompts.prompts)
_command(app, "run", run.run)
_command(app, "status", watch.status)
_command(app, "report", report.report)
_command(app, "crossover", decide.crossover)
_command(app, "compare", decide.compare)
_command(app, "gate", decide.gate)
_command(app, "advise", decide.advise)
_command(app, "goodput", decide.goodput)
_command(app, "import", import_table.import_table)
_command(app, "watch", watch.watch)
_command(app, "context", context.context)
_command(app, "logs", context.logs)

servers = typer.Typer(help="Start a server of our own on loopback.", no_args_is_help=True)
_command(servers, "llama", serve.llama)
_command(servers, "simulator", serve_simulator.simulator)
app.add_typer(servers, name="serve")


suites = typer.Typer(help="Print a suite to begin with.", no_args_is_help=True)
_command(suites, "vllm", routes.vllm)
_command(suites, "llama", routes.llama)
app.add_typer(suites, name="routes")


def outline() -> typer.Typer:
    """`app` for its own help alone: the same names and first lines, and no options behind them.

    Making sense of the options of twenty commands takes longer than everything else in `--help`.
    """
    names = _new()
    names.callback()(root)
    for command in app.registered_commands:
        names.command(command.name, help=inspect.getdoc(command.callback))(_nothing)
    for group in app.registered_groups:
        inner = typer.Typer(help=str(group.typer_instance.info.help) if group.typer_instance else None)
        inner.command()(_nothing)
        names.add_typer(inner, name=group.name)
    return names


def _nothing() -> None:
    """Stands for a command whose options are not wanted."""


PIPE_CLOSED = 141
"""What a shell calls a command that ended because nobody read on (128 + SIGPIPE), as with `| head`."""
OUTPUT_LOST = 1


def main() -> None:
    """Runs the command line; every expected error is one line on stderr and its exit code.

    Usage errors (exit 2) and Ctrl-C (exit 130) are typer's own.
    """
    code = _exit_code()
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError as error:
        code = _lost(error)
        _drop_output()
    sys.exit(code)


def _exit_code() -> int | str | None:
    """Runs the command line; what it would exit with."""
    try:
        (outline() if sys.argv[1:] in ([], ["-h"], ["--help"]) else app)()
    except BenchError as error:
        _say(str(error))
        return error.exit_code
    except SystemExit as ended:
        # typer makes a 1 of a closed pipe; a check that failed is a 1, too.
        return PIPE_CLOSED if isinstance(ended.__context__, BrokenPipeError) else ended.code
    except OSError as error:
        return _lost(error)
    return 0


def _lost(error: OSError) -> int:
    if isinstance(error, BrokenPipeError):
        return PIPE_CLOSED
    _say(f"{error.filename or 'the output cannot be written'}: {error.strerror or error}")
    return OUTPUT_LOST


def _say(text: str) -> None:
    with contextlib.suppress(OSError):  # nobody reads stderr any more either
        print(f"ctxbench: {text}", file=sys.stderr)


def _drop_output() -> None:
    """What is still buffered goes nowhere, so that the interpreter's own last flush cannot fail."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
