"""`ctxbench demo --simulated`: the published study on servers whose every number is known."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bench.records import Crossover, Suite
    from bench.run.truth import Compared

SPEED = 32
PUBLISHED = "qwen3.8-27b-v100.csv"


def demo_simulated(*, results: Path, no_report: bool, quiet: bool) -> None:
    """Runs the study on sped-up servers and prints measured beside true beside published."""
    from bench.cli.run import execute
    from bench.plan.suite import parse_suite
    from bench.run.study import Order, start

    with contextlib.ExitStack() as stack:
        text = _started(stack, quiet)
        suite = parse_suite(text, name="demo-simulated.toml")
        order = Order(suite=suite, suite_text=text, results=results)
        path = execute(lambda progress: start(order, progress), report=not no_report, quiet=quiet)
        print(_against_truth(path, suite))


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


def _against_truth(path: Path, suite: Suite) -> str:
    from bench.analysis.measure import measure_all
    from bench.journal import read_run
    from bench.records import Exchange
    from bench.run.truth import compare, fetch
    from bench.wire.loop import run as run_loop

    async def pages() -> dict[str, object]:
        return {route.name: await fetch(route) for route in suite.routes}

    info, entries = read_run(path)
    exchanges = [entry for entry in entries if isinstance(entry, Exchange)]
    measured = list(measure_all(info, exchanges))
    compared = compare(exchanges, measured, run_loop(pages()))  # type: ignore[arg-type]
    return "\n".join([*_errors(compared), "", *_crossovers(compared)])


def _errors(compared: list[Compared]) -> list[str]:
    """How far the client was off, in words."""
    lines = [f"Against the simulator's own record (all times are 1/{SPEED} of the published server's):"]
    for field, name in (("ttft_s", "first token"), ("total_s", "total")):
        worst = max(compared, key=lambda one: abs(one.errors().get(field, 0.0)))
        error, true = worst.errors()[field], getattr(worst.true, field)
        lines.append(
            f"  {name}: largest error {error * 1000:+.2f} ms of {true:.3f} s ({error / true:+.3%}), "
            f"{worst.measured.trial_id}"
        )
    wrong = [(one.measured.trial_id, one.wrong_counts()) for one in compared if one.wrong_counts()]
    lines.append("  counts: all exact" if not wrong else f"  counts that differ: {wrong}")
    late = max(one.overrun_s for one in compared)
    lines.append(f"  the simulator itself was at most {late * 1000:.1f} ms late with a chunk")
    return lines


def _crossovers(compared: list[Compared]) -> list[str]:
    """Measured, true and published crossovers, in output tokens."""
    from bench.analysis.baseline import read_table
    from bench.analysis.crossover import crossovers, one_way
    from bench.resources import shipped

    text = shipped("results", "published", PUBLISHED).read_text(encoding="utf-8")
    sources = (
        one_way(crossovers([one.measured for one in compared if one.measured.verdict.valid])),
        crossovers([one.true for one in compared if one.measured.verdict.valid]),
        crossovers(read_table(text, kind="csv", source="published")),
    )
    lines = [f"{'crossover (output tokens)':44} {'measured':>18} {'true':>18} {'published':>18}"]
    for one in sources[0]:
        name = f"{one.route} against {one.base}, {one.tier:,} {one.condition}"
        cells = [_words(_same(found, one)) for found in sources]
        lines.append(f"{name:44} " + " ".join(f"{cell:>18}" for cell in cells))
    return lines


def _same(found: list[Crossover], like: Crossover) -> Crossover | None:
    for one in found:
        close = abs(one.tier - like.tier) <= like.tier / 1000
        if (one.route, one.base, one.condition) == (like.route, like.base, like.condition) and close:
            return one
    return None


def _words(one: Crossover | None) -> str:
    if one is None:
        return "-"
    if one.output_tokens is None:
        return one.status
    if one.low is None or one.high is None:
        return f"{one.output_tokens:,.0f}"
    return f"{one.low:,.0f} to {one.high:,.0f}"
