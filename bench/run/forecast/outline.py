"""What a run would do, in lines for people: nothing is started, sent or written for it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench.plan.hooks import announcement, finish_lines, hook_lines
from bench.plan.trials import wave_name
from bench.records import FromEnv, Route, Suite, Trial
from bench.run.forecast.expect import planned
from bench.run.order import Order, only_routes
from bench.run.preflight.probe import PROBE_TOKENS

_FILES = (
    ("run.json", "the suite (no values of environment variables), routes, facts of the servers, the plan"),
    ("journal.jsonl", "a line for every exchange and event"),
    ("scrapes/*.prom.gz", "metrics pages"),
    ("logs/*.txt", "what the servers' logs say, trial by trial"),
    ("servers.json", "servers of this run that are up at the moment; gone afterwards"),
    ("report.md, report.html, measurements.csv, summary.json, plots/", "what comes of it"),
    ("measurements.parquet", "the same rows as in measurements.csv, where pyarrow is installed"),
)


def outline(order: Order) -> list[str]:
    """Routes with their commands in the order of their turns, trials, and files.

    Raises `SuiteError` for a route that the suite does not have.
    """
    suite = only_routes(order.suite, order.routes)
    plan = planned(suite, results=order.results, named=order.earlier, folder=order.folder)
    order_text = "routes take turns" if suite.interleave else "one route after another"
    lines = [f"suite {suite.name}: {len(plan.trials)} trials, {order_text}", *plan.notes, plan.text]
    for number, route in enumerate(suite.routes, 1):
        lines += ["", f"route {number}, {route.name}: {route.base_url}"]
        lines += [f"  {line}" for line in _route_lines(suite, route, order.folder)]
        lines += [f"  {line}" for line in _trial_lines(suite, route, plan.trials)]
    if suite.on_finish is not None:
        lines += ["", *finish_lines(suite)]
    lines += ["", f"files, in {order.results}/<utc>-{suite.name}/"]
    lines += [f"  {name}: {what}" for name, what in _FILES if _is_written(suite, name)]
    return [*lines, "", "nothing was started, sent or written"]


def beside_the_trials(suite: Suite) -> list[str]:
    """What a run does besides sending requests: commands, and looks at machines; a line each."""
    looks = [f"route {r.name}: looks at the machine: {url}" for r in suite.routes for url in r.exporters]
    return [*announcement(suite), *looks]


def _is_written(suite: Suite, name: str) -> bool:
    """Whether a run of this suite writes that file."""
    ours = any(route.server for route in suite.routes)
    if name.startswith("logs"):
        return ours or any(route.log for route in suite.routes)
    return ours or name != "servers.json"


def _route_lines(suite: Suite, route: Route, folder: Path) -> Iterator[str]:
    declared = route.speculation
    yield (
        f"speculation: {declared.method}, k = {declared.num_speculative_tokens}"
        if declared
        else "target only"
    )
    if route.api_key_env:
        yield f"key: from {_variable(route.api_key_env)}"
    yield from (f"header {name}: {value}" for name, value in route.headers.items())
    for exporter in route.exporters:
        yield f"looks at the machine: {exporter}"
    server = route.server
    if server is None:
        yield "its server is up already, or somebody else sees to it"
        return
    yield from hook_lines(route)
    yield f"in folder: {(folder / (server.cwd or '.')).resolve()}"
    for value in server.env.values():
        if isinstance(value, FromEnv) and value.from_env not in os.environ:
            yield f"missing: {_variable(value.from_env)}"
    yield f"waits for its model at {route.base_url}/models, at most {server.ready_timeout_s:g} s"
    yield f"log: {server.log or route.log or 'what the commands write'}"
    yield f"started again, should it fall: {server.restart} time{'' if server.restart == 1 else 's'}"


def _variable(name: str) -> str:
    return f"the environment variable {name}" + ("" if name in os.environ else ", which is not set")


def _trial_lines(suite: Suite, route: Route, plan: Sequence[Trial]) -> Iterator[str]:
    yield f"check: a request of {PROBE_TOKENS} tokens"
    if suite.warmup != "none":
        yield f"warm-up: one prompt of other text ({suite.warmup})"
    mine = [trial for trial in plan if trial.route == route.name]
    waved = " (those of a wave in one line)" if any(trial.stream > 1 for trial in mine) else ""
    yield f"trials: {len(mine)}{waved}, each repeated up to {suite.retry_invalid} times if invalid"
    for trial in mine:
        if trial.stream > 1:
            continue  # told with the first of its wave
        together = f"{trial.concurrency} at once, each " if trial.stream else ""
        about = "about " if trial.turn else ""
        lengths = f"{about}{trial.tier:,} prompt tokens, {trial.output_tokens:,} output tokens"
        yield f"  {wave_name(trial)}: {together}{lengths}"
