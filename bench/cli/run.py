"""`ctxbench run`: from a suite file to a run directory."""

from __future__ import annotations

import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bench.cli.collector import frozen
from bench.cli.command import PATH, argument, command
from bench.cli.finish import Finishing
from bench.cli.interrupt import INTERRUPTED, ended_in_order
from bench.errors import BenchError

if TYPE_CHECKING:
    from bench.plan.hooks import Command
    from bench.records import Suite
    from bench.run.order import Order
    from bench.run.progress import Progress


results_folder = click.option(
    "--results", type=PATH, default="results", help="Folder in which the run directory is made."
)
quiet_option = click.option("--quiet", "-q", is_flag=True, help="No progress on stderr.")
no_report_option = click.option(
    "--no-report", is_flag=True, help="Measure only; ctxbench report does the rest."
)


@command
@argument("suite", type=PATH, required=False, help="The suite file (TOML).")
@click.option(
    "--resume",
    type=PATH,
    metavar="RUN",
    help="Go on with an interrupted run directory. A suite file is only needed with it "
    "for values written in [route.server] env.",
)
@results_folder
@click.option(
    "--route", multiple=True, metavar="ROUTE", help="Measure only this route (may be given several times)."
)
@click.option(
    "--force",
    is_flag=True,
    help="Go on although a check failed, or servers or texts are no longer what the run recorded.",
)
@click.option(
    "--allow-absent",
    is_flag=True,
    help="Begin although a server is not there: the other routes are measured, and it is looked for again "
    "later. If it does not come, the run ends with exit code 3 and names what is left. A resumed run always "
    "begins so.",
)
@click.option("--dry-run", is_flag=True, help="Print all that would happen, commands too, and do nothing.")
@click.option(
    "--verify-crossover",
    is_flag=True,
    help="Afterwards measure extrapolated crossovers: one long trial on each of their routes.",
)
@click.option(
    "--verify-budget",
    metavar="DURATION",
    help="Longest time for that, e.g. 90min. Default: what the suite's budget leaves, or as long "
    "as its trials took.",
)
@click.option(
    "--on-finish",
    metavar="COMMAND",
    help="Run this once when the run has ended, however it ended: CTXBENCH_RUN and "
    "CTXBENCH_STATUS (finished, trouble, interrupted) are set. Instead of the suite's on_finish.",
)
@no_report_option
@quiet_option
def run(
    suite: Path | None,
    resume: Path | None,
    results: Path,
    route: tuple[str, ...],
    force: bool,
    allow_absent: bool,
    dry_run: bool,
    verify_crossover: bool,
    verify_budget: str | None,
    on_finish: str | None,
    no_report: bool,
    quiet: bool,
) -> None:
    """Measure a suite, starting and stopping servers where it says so. Ctrl-C keeps all that was measured.

    Exit code 0: every planned trial has a valid measurement; 1: some have none. Example:

        ctxbench run prompts/suites/laptop.toml
    """
    from bench.cli.threads import numpy_alone
    from bench.errors import SuiteError

    numpy_alone()
    follow = _follow_up(verify_crossover, verify_budget, force=force)
    if resume is not None:
        if route or dry_run:
            raise SuiteError("--route and --dry-run belong to a new run; a resumed one has its plan already")
        _resume(resume, suite, follow, force=force, on_finish=on_finish, report=not no_report, quiet=quiet)
    elif suite is None:
        raise SuiteError("give either a suite file or --resume RUN")
    else:
        order = _order(suite, results, route, force=force, allow_absent=allow_absent, on_finish=on_finish)
        if dry_run:
            _outline(order)
            if verify_crossover:
                print(
                    "crossovers beyond what the trials measure would be verified: planned once they are known"
                )
        else:
            _begin(order, follow, report=not no_report, quiet=quiet)


FollowUp = Callable[["Path", "Progress", "Path", "Suite | None"], Coroutine[Any, Any, Path]]
"""Run, progress, folder and suite -> the run, once its crossovers have been verified, if they are to be."""


def _follow_up(wanted: bool, budget: str | None, *, force: bool) -> FollowUp:
    from bench.errors import SuiteError
    from bench.plan.durations import parse_duration

    if budget is not None and not wanted:
        raise SuiteError("--verify-budget goes with --verify-crossover")
    try:
        budget_s = parse_duration(budget) if budget is not None else None
    except SuiteError as error:
        raise SuiteError(f"--verify-budget: {error}") from error

    async def follow(run: Path, progress: Progress, folder: Path, suite: Suite | None) -> Path:
        from bench.journal import has_follow_up

        if wanted or has_follow_up(run):
            from bench.run.verify import verify

            await verify(run, progress, folder=folder, suite=suite, budget_s=budget_s, force=force)
        return run

    return follow


def _lacking(progress: Progress) -> str | None:
    """How many trials ended without a valid measurement, asked before a follow-up has trials of its own."""
    if not progress.unmeasured:
        return None
    return f"{progress.unmeasured} of {progress.total} planned trials have no valid measurement"


def _end(run: Path, lacking: list[str | None]) -> None:
    """What was verified, and the error of a run that lacks something. Raises `CheckFailed`."""
    from bench.errors import CheckFailed
    from bench.journal import has_follow_up

    if has_follow_up(run):
        _print_verified(run)
    for text in filter(None, lacking):
        raise CheckFailed(f"{text}; ctxbench status {run} says why: mend that, then run the suite anew")


def _print_verified(run: Path) -> None:
    from bench.analysis.decisions.verified import sentence
    from bench.api import load
    from bench.cli.decide_layout import filled

    for one in load(run).verified():
        print(filled(f"verified: {sentence(one)}"))


def _order(
    suite: Path,
    results: Path,
    routes: tuple[str, ...],
    *,
    force: bool,
    allow_absent: bool,
    on_finish: str | None,
) -> Order:
    from bench.run.order import Order, read_usable

    checked, text = read_usable(suite)
    return Order(
        suite=_with_finish(checked, on_finish),
        suite_text=text,
        results=results,
        folder=suite.parent,
        routes=routes,
        force=force,
        allow_absent=allow_absent,
    )


def _outline(order: Order) -> None:
    from bench.run.forecast.outline import outline

    print("\n".join(outline(order)))


def _begin(order: Order, follow: FollowUp, *, report: bool, quiet: bool) -> None:
    from bench.run.study import start

    announce(order.suite, order.routes)
    lacking: list[str | None] = []
    with Finishing(order.suite, order.folder) as end:

        async def work(progress: Progress) -> Path:
            end.progress = progress
            end.run = await start(order, progress)
            lacking.append(_lacking(progress))
            return await follow(end.run, progress, order.folder, order.suite)

        _end(execute(work, report=report, quiet=quiet), lacking)


def _resume(
    run: Path,
    suite: Path | None,
    follow: FollowUp,
    *,
    force: bool,
    on_finish: str | None,
    report: bool,
    quiet: bool,
) -> None:
    from bench.plan.suite import read_suite
    from bench.run.study import resume, run_info, suite_folder

    given = read_suite(suite)[0] if suite else None
    info = run_info(run)
    folder = suite.parent if suite else suite_folder(info)
    kept = _with_finish(info.suite, on_finish or (given.on_finish if given else None))
    announce(kept)
    lacking: list[str | None] = []
    with Finishing(kept, folder, run) as end:

        async def work(progress: Progress) -> Path:
            end.progress = progress
            done = await resume(run, progress, folder=folder, suite=given, force=force)
            lacking.append(_lacking(progress))
            return await follow(done, progress, folder, given)

        _end(execute(work, report=report, quiet=quiet), lacking)


def _with_finish(suite: Suite, command: Command | None) -> Suite:
    """The suite with another command at its end, where one is given. Raises `SuiteError` for what is none."""
    import msgspec

    from bench.errors import SuiteError
    from bench.plan.hooks import command_problems

    for problem in command_problems("--on-finish", command):
        raise SuiteError(problem)
    return suite if command is None else msgspec.structs.replace(suite, on_finish=command)


def announce(suite: Suite, routes: tuple[str, ...] = ()) -> None:
    """Shows the commands of a suite before any of them runs, also to those who want no progress."""
    from bench.plan.hooks import announcement
    from bench.run.order import only_routes

    for line in announcement(only_routes(suite, routes)):
        print(line, file=sys.stderr)


def execute(
    work: Callable[[Progress], Coroutine[Any, Any, Path]], *, report: bool = True, quiet: bool = False
) -> Path:
    """Runs a study while showing its progress, then prints its report, however it ended.

    Leaves with exit code 130 after Ctrl-C, once the report of what there is has been written.
    """
    from bench.cli.show import shown
    from bench.run.progress import Progress
    from bench.wire.loop import run as run_loop

    progress = Progress()
    with ended_in_order():
        try:
            with shown(progress, quiet=quiet), frozen():
                path = run_loop(work(progress))
        except KeyboardInterrupt:
            _interrupted(progress.path, report)
            raise click.exceptions.Exit(INTERRUPTED) from None
        except Exception:
            if progress.path is not None and progress.trial_since_ns:  # else nothing is new: the error alone
                _conclude_as_far_as_it_goes(progress.path, report)
            raise
        _conclude(path, report)
    return path


def _interrupted(path: Path | None, report: bool) -> None:
    """The report of what there is, and how to go on."""
    if path is None:
        print("interrupted before anything was measured; nothing was written", file=sys.stderr)
        return
    if report:
        print("writing the report; Ctrl-C again leaves it out", file=sys.stderr)
    try:
        _conclude_as_far_as_it_goes(path, report)
    finally:  # a second Ctrl-C costs the report, not the line that says how to go on
        print(f"interrupted; go on with: ctxbench run --resume {path}", file=sys.stderr)


def _conclude_as_far_as_it_goes(path: Path, report: bool) -> None:
    """After a run that ended badly: what ended it is the error, not what its report then met."""
    try:
        _conclude(path, report)
    except BenchError as error:
        print(f"the report is not whole: {error}", file=sys.stderr)


def _conclude(path: Path, report: bool) -> None:
    """The table, the files and where they are."""
    if not report:
        print(path)
        return
    from bench.cli.report import print_run

    try:
        print_run(path)
    except KeyboardInterrupt:
        print(f"the report is not whole; make it with: ctxbench report {path}", file=sys.stderr)
        raise
