"""`ctxbench plan`, `ctxbench check`: what a suite would cost, and whether its servers are fit for it."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bench.cli.command import PATH, argument, command
from bench.cli.interrupt import ended_in_order
from bench.cli.layout import hanging, table
from bench.cli.run import announce, results_folder

if TYPE_CHECKING:
    from bench.records import Trial
    from bench.run.forecast.expect import Planned

_suite_file = argument("suite", type=PATH, help="The suite file (TOML).")
_json = click.option("--json", is_flag=True, help="Print for machines.")
_earlier = click.option(
    "--from",
    "earlier",
    type=PATH,
    multiple=True,
    metavar="RUN",
    help="Estimate from this run (may be given several times).",
)

_SHORT = 20
"""What an expected time rests on stands behind it up to so many characters, and below the table beyond."""


@command
@_suite_file
@_earlier
@click.option(
    "--results",
    type=PATH,
    default="results",
    help="Folder whose runs tell how long trials take, without --from.",
)
@_json
def plan(suite: Path, earlier: tuple[Path, ...], results: Path, json: bool) -> None:
    """Print the trials of a suite in sending order and how long they will take; sends nothing. Example:

    ctxbench plan prompts/suites/laptop.toml
    """
    from bench.run.forecast.expect import planned
    from bench.run.forecast.outline import beside_the_trials
    from bench.run.order import read_usable

    checked, _ = read_usable(suite)
    found = planned(checked, results=results, named=earlier, folder=suite.parent)
    if json:
        import msgspec

        print(msgspec.json.format(msgspec.json.encode(found), indent=1).decode())
        return
    print("\n".join(_trial_lines(found)))
    prompt_tokens = sum(trial.tier for trial in found.trials)
    output_tokens = sum(trial.output_tokens for trial in found.trials)
    order = "routes take turns" if checked.interleave else "one route after another"
    asked = f"{prompt_tokens:,} prompt tokens and {output_tokens:,} output tokens at most"
    for line in (f"{len(found.trials)} trials, {order}: {asked}", *found.notes, found.text):
        print(hanging("", line), file=sys.stderr)
    for line in beside_the_trials(checked):
        print(line, file=sys.stderr)  # commands stay as they can be copied


def _trial_lines(found: Planned) -> list[str]:
    """A line a trial, or a wave, with its time; while nothing is known of any, how many there are of what."""
    from bench.cli.decide_layout import filled
    from bench.cli.decide_layout import table as aligned
    from bench.plan.trials import wave_name

    expected = found.estimate.trials
    if all(one.total_s is None for one in expected):
        return _counted(found.trials)
    long = list(dict.fromkeys(one.basis for one in expected if len(one.basis) > _SHORT))
    shown = {basis: f"({number})" for number, basis in enumerate(long, 1)}
    rows, last = [], 0
    for name, wave in groupby(zip(found.trials, expected, strict=True), lambda pair: wave_name(pair[0])):
        times = [one for _, one in wave]
        first, last = last + 1, last + len(times)
        total = (
            None if any(one.total_s is None for one in times) else sum(one.total_s or 0.0 for one in times)
        )
        basis = ", ".join(dict.fromkeys(shown.get(one.basis, one.basis) for one in times))
        rows.append([f"{first}" if first == last else f"{first}-{last}", name, _seconds(total), basis])
    keys = [f"{mark} {basis}" for basis, mark in shown.items()]
    keys += [text for word, text in _BASES.items() if any(one.basis.startswith(word) for one in expected)]
    if any(trial.concurrency > 1 for trial in found.trials):
        keys.append("@N: a wave, N requests sent at once; its time is that of all together")
    return [aligned(["", "trial", "time", "known from"], rows), "", *map(filled, keys)]


_BASES = {
    "measured": "measured: earlier runs had this route, prompt length and condition",
    "law": "law: no earlier run had this prompt length; reckoned by the law of those they had",
}
"""What an expected time rests on, by its first word."""


def _counted(trials: Sequence[Trial]) -> list[str]:
    """How many trials of what; those of a level of concurrency by themselves, where there are levels."""
    counts = Counter((trial.route, trial.tier, trial.condition, trial.concurrency) for trial in trials)
    levels = any(trial.concurrency > 1 for trial in trials)
    head = ("trials", "tokens", *(["at once"] if levels else []), "condition", "route")
    rows = [
        (f"{count:,}", f"{tier:,}", *([f"{level:,}"] if levels else []), condition, route)
        for (route, tier, condition, level), count in counts.items()
    ]
    return table(head, rows, right=len(head) - 2)


def _seconds(seconds: float | None) -> str:
    from bench.plan.durations import words

    if seconds is None:
        return "-"
    if seconds < 0.1:
        return f"{max(1, round(seconds * 1000))} ms"
    return f"{seconds:.1f} s" if seconds < 10 else words(seconds)


@command
@_suite_file
@click.option(
    "--route", multiple=True, metavar="ROUTE", help="Check only this route (may be given several times)."
)
@click.option(
    "--calibrate", is_flag=True, help="Send one or two smaller cold prompts a route to tell the time."
)
@_earlier
@results_folder
@_json
def check(
    suite: Path, route: tuple[str, ...], calibrate: bool, earlier: tuple[Path, ...], results: Path, json: bool
) -> None:
    """Check a suite against its live servers before anything expensive is sent; exit code 0 or 1.

    Sends one request of sixteen tokens per route. Example:

        ctxbench check prompts/suites/laptop.toml
    """
    from bench.errors import CheckFailed
    from bench.run.order import Order, read_usable
    from bench.run.preflight.whole import preflight
    from bench.wire.loop import run as run_loop

    checked, text = read_usable(suite)
    order = Order(
        suite=checked,
        suite_text=text,
        results=results,
        folder=suite.parent,
        routes=route,
        earlier=earlier,
        calibrate=calibrate,
    )
    from bench.report.escape import visible

    announce(checked, order.routes)
    with ended_in_order():
        found = run_loop(preflight(order))
    if json:
        import msgspec

        print(msgspec.json.format(msgspec.json.encode(found), indent=1).decode())
    else:
        for one in found:
            print(hanging(f"{one.state:4}  {one.route:16} {one.name:14} ", visible(one.text, 2_000)))
    failed = sum(one.state == "fail" for one in found)
    if failed:
        raise CheckFailed(f"{failed} of {len(found)} checks failed")
