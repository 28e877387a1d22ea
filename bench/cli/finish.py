"""Runs a suite's `on_finish` however a run ends, and never changes how it ended."""

from __future__ import annotations

import sys
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

import click

from bench.cli.interrupt import INTERRUPTED, ended_in_order

if TYPE_CHECKING:
    from bench.records import Suite
    from bench.run.finish import Outcome
    from bench.run.progress import Progress


class Finishing:
    """`with Finishing(suite, folder) as end:` around everything a run does, its report included.

    `folder`: where the suite's relative paths start. Set `run`, or `progress` until it is known.
    """

    def __init__(self, suite: Suite, folder: Path, run: Path | None = None) -> None:
        self._suite, self._folder = suite, folder
        self.run = run
        self.progress: Progress | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        command = self._suite.on_finish
        if command is None:
            return
        import asyncio

        from bench.plan.hooks import shown
        from bench.run.finish import run_finish, secrets_of

        outcome = _outcome(error)
        print(f"on finish ({outcome}): {shown(command)}", file=sys.stderr)
        run = self.run or (self.progress.path if self.progress else None)
        try:
            with ended_in_order():
                problem = asyncio.run(
                    run_finish(command, self._folder, run, outcome, secrets=secrets_of(self._suite))
                )
        except KeyboardInterrupt:
            problem = f"{shown(command)}: interrupted"
        if problem:
            print(f"warning: on_finish: {problem}", file=sys.stderr)


def _outcome(error: BaseException | None) -> Outcome:
    if error is None:
        return "finished"
    ours = isinstance(error, click.exceptions.Exit) and error.exit_code == INTERRUPTED
    return "interrupted" if ours or isinstance(error, KeyboardInterrupt) else "trouble"
