"""`ctxbench demo`: a whole study on this machine, with servers of our own."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path

import click

from bench.cli.command import command
from bench.cli.run import no_report_option, quiet_option, results_folder


@command
@click.option("--simulated", is_flag=True, help="The published 564k study on a simulated server.")
@results_folder
@no_report_option
@quiet_option
def demo(simulated: bool, results: Path, no_report: bool, quiet: bool) -> None:
    """Measure three routes of a real engine on this machine: two lengths, three conditions.

    Starts target-only, 4-token and 8-token n-gram drafting on llama.cpp with a small model, which
    is fetched once. One route works at a time. With --simulated the exit code is 1 where a figure
    is further from its truth than it may be. Example:

        ctxbench demo
    """
    if simulated:
        from bench.cli.demo_simulated import demo_simulated

        demo_simulated(results=results, no_report=no_report, quiet=quiet)
        return
    from bench.cli.run import execute
    from bench.plan.suite import parse_suite
    from bench.run.study import Order, start

    with contextlib.ExitStack() as stack:
        text = _started(stack, quiet)
        order = Order(suite=parse_suite(text, name="demo.toml"), suite_text=text, results=results)
        execute(lambda progress: start(order, progress), report=not no_report, quiet=quiet)


def _started(stack: contextlib.ExitStack, quiet: bool) -> str:
    """Starts a server per route of the demo suite; gives the suite's text with their addresses."""
    from bench.plan.suite import parse_suite
    from bench.resources import shipped
    from bench.servers.child import serving
    from bench.servers.llama import default_model

    text = shipped("prompts", "suites", "demo.toml").read_text(encoding="utf-8")
    if not quiet:
        print("starting three llama.cpp servers (the model is fetched once, 90 MB)", file=sys.stderr)
    default_model()  # once, before three children would fetch it at the same time
    for route in parse_suite(text).routes:
        k = route.speculation.num_speculative_tokens if route.speculation else None
        setting = f"ngram:{k}" if k else "none"
        child = stack.enter_context(serving(["llama", "--speculation", setting]))
        text = text.replace(route.base_url, child.base_url)
    return text
