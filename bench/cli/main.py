"""The `ctxbench` command: which commands there are, and how errors become exit codes.

Exit codes: 0 ok, 1 a check or gate failed, a run left trials without a valid measurement (or the output
could not be written), 2 usage or suite error, 3 engine error, 4 a gate cannot tell, 130 interrupted, 141
nobody read the output on.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import os
import sys

import click

from bench.cli.collector import seldom
from bench.cli.command import Group
from bench.cli.interrupt import INTERRUPTED
from bench.errors import BenchError

servers = Group(
    "serve",
    "Start a server of our own on loopback.",
    {"llama": "bench.cli.serve:llama", "simulator": "bench.cli.serve_simulator:simulator"},
)
suites = Group(
    "routes",
    "Print a suite to begin with.",
    {"vllm": "bench.cli.routes:vllm", "llama": "bench.cli.routes:llama"},
)
app = Group(
    "ctxbench",
    "Measures LLM servers at long context: cold, salted and replayed prompts, speculation that pays or "
    "not, and the output length from which one route beats another.",
    {
        "demo": "bench.cli.demo:demo",
        "plan": "bench.cli.plan:plan",
        "check": "bench.cli.plan:check",
        "prompts": "bench.cli.prompts:prompts",
        "run": "bench.cli.run:run",
        "status": "bench.cli.watch:status",
        "report": "bench.cli.report:report",
        "crossover": "bench.cli.decide:crossover",
        "compare": "bench.cli.decide:compare",
        "gate": "bench.cli.decide:gate",
        "advise": "bench.cli.decide:advise",
        "goodput": "bench.cli.decide:goodput",
        "import": "bench.cli.import_table:import_table",
        "watch": "bench.cli.watch:watch",
        "context": "bench.cli.context:context",
        "logs": "bench.cli.context:logs",
        "serve": "bench.cli.main:servers",
        "routes": "bench.cli.main:suites",
    },
)
click.version_option(package_name="ctxbench", message="%(prog)s %(version)s", help="Print the version.")(app)


PIPE_CLOSED = 141
"""What a shell calls a command that ended because nobody read on (128 + SIGPIPE), as with `| head`."""
OUTPUT_LOST = 1


def main() -> None:
    """Runs the command line; every expected error is one line on stderr and its exit code."""
    # The interpreter's last deed is to look for garbage among all that numpy and the others have made: half
    # of the time that it takes to end after a run, and more. What is frozen it leaves alone. Neither what
    # stands in `atexit`, finalizers of temporary folders too, nor the flush of open files needs that search.
    atexit.register(gc.freeze)
    with seldom():
        code = _exit_code()
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError as error:
        code = _lost(error)
        _drop_output()
    sys.exit(code)


def _exit_code() -> int:
    """Runs the command line; what it would exit with.

    It does so without click's own `main`, which makes a 1 of Ctrl-C and of a closed pipe.
    """
    try:
        with app.make_context("ctxbench", sys.argv[1:]) as context:
            app.invoke(context)
    except click.exceptions.Exit as ended:
        return ended.exit_code
    except click.ClickException as error:
        with contextlib.suppress(OSError):
            error.show()
        return error.exit_code
    except BenchError as error:
        _say(str(error))
        return error.exit_code
    except KeyboardInterrupt:
        return INTERRUPTED
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
