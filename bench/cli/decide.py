"""From measurements to decisions: `crossover`, `compare`, `gate`, `advise`, `goodput`."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from bench.cli.command import PATH, Integer, Number, argument, command

if TYPE_CHECKING:
    from bench.analysis.decisions.advise import Limits
    from bench.analysis.decisions.verified import Verified
    from bench.analysis.statistics.curves import Arrival
    from bench.records import Crossover, Measurement, RunInfo

_sources = argument(
    "sources",
    type=PATH,
    nargs=-1,
    required=True,
    metavar="RUN|TABLE...",
    help="Run directories, CSV or JSON tables.",
)
_json = click.option("--json", "as_json", is_flag=True, help="For machines.")


class _Loaded(NamedTuple):
    measurements: list[Measurement]
    observed: list[Measurement]
    info: RunInfo | None
    curves: dict[tuple[str, str, int], Arrival]
    verified: list[Verified]
    limits: dict[str, Limits]
    blocks: dict[str, int]
    """Route, and `source:route` -> tokens of a cache block."""


@command
@_sources
@click.option("--base", help="Route to compare against. Default: every pair.")
@click.option("--reused", metavar="TOKENS|SHARE%", help="For prompts with this part cached, by the TTFT law.")
@_json
def crossover(sources: tuple[Path, ...], base: str | None, reused: str | None, as_json: bool) -> None:
    """From which output length on does one route beat another, and how sure is that.

    Example:

        ctxbench crossover results/published/qwen3.8-27b-v100.csv --base target-only
    """
    from bench.analysis.decisions import crossover as analysis
    from bench.analysis.decisions.reused import parse_reuse, reuse_crossovers

    reuse = parse_reuse(reused) if reused is not None else None
    loaded = _load_all(sources, curves=reuse is None)
    if reuse is None:
        found = analysis.crossovers(loaded.measurements, base, curves=loaded.curves)
    else:
        found = reuse_crossovers(loaded.measurements, reuse, base, blocks=loaded.blocks)
    shown = found if base else analysis.one_way(found)
    if as_json:
        print(json.dumps(_with_verified(analysis.as_json(shown), loaded), allow_nan=False))
        return
    if not shown:
        print(
            "No cell has a TTFT and a decode rate on two routes: there is nothing to cross.", file=sys.stderr
        )
        return
    _print_crossovers(loaded, shown, base if reuse is None else None)


def _with_verified(found: list[dict[str, object]], loaded: _Loaded) -> list[dict[str, object]]:
    """Adds what follow-up trials say of each crossover; `None` where there are none."""

    def key(route: object, base: object, *cell: object) -> tuple[object, ...]:
        return (frozenset((route, base)), *cell)

    known = {
        key(one.crossover.route, one.crossover.base, *(getattr(one.crossover, name) for name in _CELL)): {
            "status": one.status,
            "output_tokens": one.output_tokens,
            "until": one.until,
            "reached": one.reached,
        }
        for one in loaded.verified
    }
    return [
        {**one, "verified": known.get(key(one["route"], one["base"], *(one[name] for name in _CELL)))}
        for one in found
    ]


_CELL = ("tier", "condition", "task", "reused_tokens")


def _print_crossovers(loaded: _Loaded, shown: Sequence[Crossover], base: str | None) -> None:
    from bench.analysis.decisions.lines import report_lines
    from bench.analysis.decisions.verified import sentence
    from bench.analysis.statistics.compare import compare as compare_routes

    from .decide_layout import filled
    from .decide_tables import crossover_table

    compared = compare_routes(loaded.measurements, base) if base else []
    for line in report_lines(loaded.measurements, compared, shown, limits=_configured(loaded)):
        print(filled(line))
    for one in loaded.verified:
        print(filled(f"verified: {sentence(one)}"))
    print()
    print(crossover_table(shown))


def _configured(loaded: _Loaded) -> dict[str, int]:
    return {name: limits.served for name, limits in loaded.limits.items() if limits.served}


@command
@argument("base", type=PATH, help="Run or table from before.")
@argument("new", type=PATH, help="Run or table from now.")
@_json
@click.option("--strict/--no-strict", help="Refuse when the settings differ.")
def compare(base: Path, new: Path, as_json: bool, strict: bool) -> None:
    """Compare each route with the route of the same name in another run or table.

    Differences in model, engine version, flags, tiers, task and hardware are listed. Example:

        ctxbench compare results/before results/after
    """
    import msgspec

    from bench.analysis.decisions.lacking import lacking, two_sides
    from bench.analysis.statistics.compare import across, changed_settings
    from bench.errors import SuiteError

    from .decide_layout import filled
    from .decide_tables import comparison_table

    old, now = _load(base, base.name), _load(new, new.name)
    differing: list[str] = []
    if old.info is not None and now.info is not None:
        differing = changed_settings(old.info, now.info)
    else:
        print("a table does not say how it was measured: settings are not compared", file=sys.stderr)
    for lack in lacking(two_sides(now.measurements, old.measurements)):
        line = f"{lack.route}, {lack.cell.tier:,} {lack.cell.condition} {lack.told()}"
        if lack.status is not None and not lack.neither:  # it is served in another way than it was
            differing.append(line)
        elif lack.status is not None or not lack.neither:  # else the names of what is compared say it
            print(filled(line), file=sys.stderr)
    for line in differing:
        print(filled(f"differs: {line}"), file=sys.stderr)
    if differing and strict:
        raise SuiteError(f"{len(differing)} settings differ between {base} and {new}: see above")
    found = across(old.measurements, now.measurements)
    if as_json:
        print(msgspec.json.encode(found).decode())
    elif not found:
        print("No route has the same prompt length, condition and task in both.", file=sys.stderr)
    else:
        print(comparison_table(found))


@command
@argument("run", type=PATH, help="The run or table to judge.")
@click.option("--baseline", type=PATH, required=True, help="Run or table to judge it against.")
@click.option(
    "--rule",
    multiple=True,
    metavar="RULE",
    help="'QUANTITY CONDITION TIER [ROUTE] <= RATIO'; repeatable.",
)
@click.option("--rules", type=PATH, help="TOML file with rules = [...].")
@_json
def gate(run: Path, baseline: Path, rule: tuple[str, ...], rules: Path | None, as_json: bool) -> None:
    """Check a run against a baseline, for CI.

    Exit code 0: every rule holds; 1: one fails; 4: it cannot be told yet. A rule fails only when the
    whole 95% interval of new / baseline lies beyond it, or the route ran without its speculation. Example:

        ctxbench gate results/new --baseline results/old --rule "ttft cold 564577 <= 1.05"
    """
    import msgspec

    from bench.analysis.decisions import gate as analysis
    from bench.errors import CannotTell, CheckFailed

    from .decide_tables import gate_table
    from .import_table import read_text

    wanted = [analysis.parse_rule(text) for text in rule]
    if rules is not None:
        wanted += analysis.read_rules(read_text(rules), source=rules.name)
    new, old = _load(run, run.name), _load(baseline, baseline.name)
    outcomes = analysis.gate(new.measurements, old.measurements, wanted)
    print(msgspec.json.encode(outcomes).decode() if as_json else gate_table(outcomes))
    verdict = analysis.verdict(outcomes)
    count = sum(one.status == verdict for one in outcomes)
    if verdict == "fail":
        raise CheckFailed(f"the gate fails: {count} of {len(outcomes)} checks fail, each with its reason")
    if verdict == "cannot tell":
        raise CannotTell(
            f"the gate cannot tell: {count} of {len(outcomes)} checks open, each with its reason"
        )


@command
@_sources
@click.option("--prompt", type=Integer(1, 16_000_000), help="Prompt tokens.")
@click.option(
    "--reused",
    metavar="TOKENS|SHARE%",
    default="0",
    help="Part of the prompt that is cached already.",
)
@click.option("--output", type=Integer(min=1), help="Output tokens.")
@click.option(
    "--workload",
    type=PATH,
    help="CSV (prompt_tokens, output_tokens, reused_tokens, count), JSON lines with usage, or a log.",
)
@_json
def advise(
    sources: tuple[Path, ...],
    prompt: int | None,
    reused: str,
    output: int | None,
    workload: Path | None,
    as_json: bool,
) -> None:
    """Which route should serve a request, or a workload: expected latency per route.

    Example:

        ctxbench advise results/run --prompt 200000 --reused 150000 --output 4000
    """
    import msgspec

    from bench.analysis.decisions.advise import advise as advise_request
    from bench.analysis.decisions.advise import advise_workload
    from bench.analysis.decisions.reused import parse_reuse
    from bench.analysis.decisions.workload import Request, read_workload
    from bench.errors import SuiteError

    from .decide_layout import filled
    from .decide_tables import advice_table, workload_table
    from .import_table import read_text

    if (workload is None) == (prompt is None or output is None):
        raise SuiteError("advise needs --prompt and --output, or --workload FILE (not both)")
    loaded = _load_all(sources)
    if workload is not None:
        asked = read_workload(read_text(workload), source=workload.name)
        for note in asked.notes:
            print(filled(note), file=sys.stderr)
        rows, requests = loaded.measurements, asked.requests
        totals = advise_workload(rows, requests, loaded.observed, limits=loaded.limits)
        print(msgspec.json.encode(totals).decode() if as_json else workload_table(totals, len(requests)))
        return
    cached = parse_reuse(reused).of(prompt or 1)
    request = Request(prompt_tokens=prompt or 1, output_tokens=output or 1, reused_tokens=cached)
    found = advise_request(
        loaded.measurements, request, loaded.observed, limits=loaded.limits, blocks=loaded.blocks
    )
    print(msgspec.json.encode(found).decode() if as_json else advice_table(found))


@command
@_sources
@click.option("--ttft", type=float, metavar="SECONDS", help="Limit of the TTFT.")
@click.option("--tpot", type=float, metavar="SECONDS", help="Limit of the time per output token.")
@click.option("--total", type=float, metavar="SECONDS", help="Limit of the total time.")
@click.option(
    "--share",
    type=Number(1, 99.9),
    default=90,
    metavar="PERCENT",
    help="Of the requests, within every limit.",
)
@_json
def goodput(
    sources: tuple[Path, ...],
    ttft: float | None,
    tpot: float | None,
    total: float | None,
    share: float,
    as_json: bool,
) -> None:
    """How many requests a second are served within latency limits, and how many at once keep them.

    A level that keeps them so far was seen to do so in too few waves to show it. Example:

        ctxbench goodput results/run --ttft 20 --tpot 0.05
    """
    import msgspec

    from bench.analysis.decisions import goodput as analysis
    from bench.errors import SuiteError

    from .goodput_table import goodput_table

    promise = analysis.Promise(ttft_s=ttft, tpot_s=tpot, total_s=total)
    limits = [limit for limit in (ttft, tpot, total) if limit is not None]
    if not limits or not all(0 < limit < math.inf for limit in limits):
        raise SuiteError("goodput needs at least one of --ttft, --tpot and --total, in seconds above 0")
    found = analysis.goodput(_load_all(sources).measurements, promise, share=share / 100)
    if as_json:
        print(msgspec.json.encode(found).decode())
    elif found:
        print(goodput_table(found, share / 100))
    else:
        print("There is no request to judge.", file=sys.stderr)


# --- Reading --------------------------------------------------------------------------------------


def _load_all(paths: Sequence[Path], *, curves: bool = False) -> _Loaded:
    """Everything of several sources; a source is known by its name, by its whole path where names clash.

    `curves`: with arrival curves and what was verified by them, which hold every chunk of a run at once.
    """
    unique = list({path.resolve(): path for path in paths}.values())
    names = [path.name for path in unique]
    parts = [_load(path, str(path) if names.count(path.name) > 1 else path.name, curves) for path in unique]
    return _Loaded(
        measurements=[row for part in parts for row in part.measurements],
        observed=[row for part in parts for row in part.observed],
        info=parts[0].info if len(parts) == 1 else None,
        curves={key: curve for part in parts for key, curve in part.curves.items()},
        verified=[one for part in parts for one in part.verified],
        limits={name: limits for part in parts for name, limits in part.limits.items()},
        blocks={name: block for part in parts for name, block in part.blocks.items()},
    )


def _load(path: Path, source: str, curves: bool = False) -> _Loaded:
    return _load_run(path, source, curves) if path.is_dir() else _load_table(path, source)


def _load_table(path: Path, source: str) -> _Loaded:
    from bench.analysis.decisions.baseline import read_observations

    from .import_table import is_json, measurements_of, read_text

    text = read_text(path)
    rows = measurements_of(path, text, source)
    observed = read_observations(text, source=source) if is_json(path, text) else []
    return _Loaded(rows, observed, None, {}, [], {}, {})


def _load_run(path: Path, source: str, curved: bool) -> _Loaded:
    from msgspec import structs

    from bench.api import load
    from bench.errors import SuiteError

    run = load(path)
    found = run.curves() if curved else {}  # measures, too: one pass over the journal for both
    if not run.measurements:
        raise SuiteError(f"{path}: its journal holds no trial, so there is nothing to decide by")
    rows = [structs.replace(row, source=source) for row in run.measurements]
    curves = {(source, trial, attempt): curve for (_, trial, attempt), curve in found.items()}
    verified = run.verified() if curved else []
    return _Loaded(rows, [], run.info, curves, verified, _limits(run.info, source), _blocks(run.info, source))


def _limits(info: RunInfo, source: str) -> dict[str, Limits]:
    """What the servers of a run said of their limits, by route and by `source:route`."""
    from bench.analysis.decisions.advise import Limits

    found: dict[str, Limits] = {}
    for name, facts in info.facts.items():
        limits = Limits(served=facts.max_model_len, drafter=facts.drafter_limit)
        found |= {name: limits, f"{source}:{name}": limits}
    return found


def _blocks(info: RunInfo, source: str) -> dict[str, int]:
    blocks = {name: facts.block_size for name, facts in info.facts.items() if facts.block_size}
    return blocks | {f"{source}:{name}": block for name, block in blocks.items()}
