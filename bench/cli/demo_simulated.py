"""`ctxbench demo --simulated`: the published study on servers whose every number is known."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from bench.cli.demo_truth import Judged
    from bench.records import Suite

SPEED = 32


def demo_simulated(*, results: Path, no_report: bool, quiet: bool) -> None:
    """Runs the study on sped-up servers and prints measured beside true beside published.

    Leaves with exit code 1 where a figure is further from its truth than it may be.
    """
    from bench.cli.run import execute
    from bench.plan.suite import parse_suite
    from bench.run.study import Order, start

    with contextlib.ExitStack() as stack:
        text = _started(stack, quiet)
        suite = parse_suite(text, name="demo-simulated.toml")
        order = Order(suite=suite, suite_text=text, results=results)
        path = execute(lambda progress: start(order, progress), report=not no_report, quiet=quiet)
        judged = _against_truth(path, suite)
    print("\n".join(judged.lines))
    if not judged.holds:
        raise click.exceptions.Exit(1)


def _started(stack: contextlib.ExitStack, quiet: bool) -> str:
    from bench.plan.suite import parse_suite
    from bench.resources import shipped
    from bench.servers import simulator
    from bench.servers.child import serving

    tokenizer = Path(simulator.__file__).with_name("tokenizer.json")
    text = shipped("prompts", "suites", "demo-simulated.toml").read_text(encoding="utf-8")
    text = text.replace('"tokenizer.json"', f"'{tokenizer}'")
    if not quiet:
        print(
            f"starting three simulated servers, {SPEED} times faster than the published ones", file=sys.stderr
        )
    for route in parse_suite(text).routes:
        profile = f"qwen3.8-27b-v100-{route.name}"
        child = stack.enter_context(serving(["simulator", "--profile", profile, "--speed", str(SPEED)]))
        text = text.replace(route.base_url, child.base_url)
    return text


def _against_truth(path: Path, suite: Suite) -> Judged:
    from bench.analysis.verdicts.measure import measure_all
    from bench.cli.demo_truth import judge
    from bench.journal import read_run
    from bench.records import Exchange
    from bench.run.truth import TruthPage, compare, fetch
    from bench.wire.loop import run as run_loop

    async def pages() -> dict[str, TruthPage]:
        return {route.name: await fetch(route) for route in suite.routes}

    info, entries = read_run(path)
    exchanges = [entry for entry in entries if isinstance(entry, Exchange)]
    measured = list(measure_all(info, exchanges))
    return judge(compare(exchanges, measured, run_loop(pages())), speed=SPEED)
