"""From measurements to decisions: `crossover`, `compare`, `gate`, `advise`."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

if TYPE_CHECKING:
    from bench.analysis.advise import Advice, WorkloadAdvice
    from bench.analysis.crossover import Arrival
    from bench.analysis.gate import Outcome
    from bench.records import Comparison, Crossover, Estimate, Measurement, RunInfo

Sources = Annotated[
    list[Path], typer.Argument(metavar="RUN|TABLE...", help="Run directories, CSV or JSON tables.")
]
AsJson = Annotated[bool, typer.Option("--json", help="For machines.")]


class _Loaded(NamedTuple):
    measurements: list[Measurement]
    observed: list[Measurement]
    info: RunInfo | None
    curves: dict[tuple[str, str, int], Arrival]


def crossover(
    sources: Sources,
    base: Annotated[str | None, typer.Option(help="Route to compare against. Default: every pair.")] = None,
    as_json: AsJson = False,
) -> None:
    """From which output length on does one route beat another, and how sure is that.

    Example:

        ctxbench crossover results/published/qwen3.8-27b-v100.csv --base target-only
    """
    from bench.analysis import crossover as analysis
    from bench.analysis.compare import compare as compare_routes
    from bench.analysis.lines import report_lines

    loaded = _load_all(sources)
    found = analysis.crossovers(loaded.measurements, base, curves=loaded.curves)
    if as_json:
        print(json.dumps(analysis.as_json(found), allow_nan=False))
        return
    shown = found if base else analysis.one_way(found)
    if not shown:
        print(
            "No cell has a TTFT and a decode rate on two routes: there is nothing to cross.", file=sys.stderr
        )
        return
    compared = compare_routes(loaded.measurements, base) if base else []
    for line in report_lines(loaded.measurements, compared, shown):
        print(line)
    print()
    print(_crossover_table(shown))


def compare(
    base: Annotated[Path, typer.Argument(help="Run or table from before.")],
    new: Annotated[Path, typer.Argument(help="Run or table from now.")],
    as_json: AsJson = False,
    strict: Annotated[bool, typer.Option(help="Refuse when the settings differ.")] = False,
) -> None:
    """Compare each route with the route of the same name in another run or table.

    Differences in model, engine version, flags, tiers, task and hardware are listed. Example:

        ctxbench compare results/before results/after
    """
    import msgspec

    from bench.analysis.compare import across, differences
    from bench.errors import SuiteError

    old, now = _load(base, base.name), _load(new, new.name)
    if old.info is not None and now.info is not None:
        differing = differences(old.info, now.info)
        for line in differing:
            print(f"differs: {line}", file=sys.stderr)
        if differing and strict:
            raise SuiteError(f"{len(differing)} settings differ between {base} and {new}: see above")
    else:
        print("a table does not say how it was measured: settings are not compared", file=sys.stderr)
    found = across(old.measurements, now.measurements)
    if as_json:
        print(msgspec.json.encode(found).decode())
    elif not found:
        print("No route has the same prompt length, condition and task in both.", file=sys.stderr)
    else:
        print(_comparison_table(found))


def gate(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The run or table to judge.")],
    baseline: Annotated[Path, typer.Option(help="Run or table to judge it against.")],
    rule: Annotated[
        list[str] | None, typer.Option(help="'QUANTITY CONDITION TIER [ROUTE] <= RATIO'; repeatable.")
    ] = None,
    rules: Annotated[Path | None, typer.Option(help="TOML file with rules = [...].")] = None,
    as_json: AsJson = False,
) -> None:
    """Check a run against a baseline, for CI.

    Exit code 0: every rule holds; 1: one fails; 4: it cannot be told yet. A rule fails only when the
    whole 95% interval of new / baseline lies beyond it. Example:

        ctxbench gate results/new --baseline results/old --rule "ttft cold 564577 <= 1.05"
    """
    import msgspec

    from bench.analysis import gate as analysis
    from bench.errors import CannotTell, CheckFailed

    from .import_table import read_text

    wanted = [analysis.parse_rule(text) for text in rule or ()]
    if rules is not None:
        wanted += analysis.read_rules(read_text(rules), source=rules.name)
    new, old = _load(run, run.name), _load(baseline, baseline.name)
    outcomes = analysis.gate(new.measurements, old.measurements, wanted)
    print(msgspec.json.encode(outcomes).decode() if as_json else _gate_table(outcomes))
    verdict = analysis.verdict(outcomes)
    count = sum(one.status == verdict for one in outcomes)
    if verdict == "fail":
        raise CheckFailed(f"the gate fails: {count} of {len(outcomes)} checks are beyond their tolerance")
    if verdict == "cannot tell":
        raise CannotTell(f"the gate cannot tell: {count} of {len(outcomes)} checks need more trials or data")


def advise(
    sources: Sources,
    prompt: Annotated[int | None, typer.Option(min=1, help="Prompt tokens.")] = None,
    reused: Annotated[int, typer.Option(min=0, help="Prompt tokens that are cached already.")] = 0,
    output: Annotated[int | None, typer.Option(min=1, help="Output tokens.")] = None,
    workload: Annotated[
        Path | None,
        typer.Option(
            help="CSV (prompt_tokens, output_tokens, reused_tokens, count) or JSON lines with usage."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Which route should serve a request, or a workload: expected latency per route.

    Example:

        ctxbench advise results/run --prompt 200000 --reused 150000 --output 4000
    """
    import msgspec

    from bench.analysis.advise import Request, advise_workload, read_workload
    from bench.analysis.advise import advise as advise_request
    from bench.errors import SuiteError

    from .import_table import read_text

    if (workload is None) == (prompt is None or output is None):
        raise SuiteError("advise needs --prompt and --output, or --workload FILE (not both)")
    loaded = _load_all(sources)
    if workload is not None:
        requests = read_workload(read_text(workload), source=workload.name)
        totals = advise_workload(loaded.measurements, requests, loaded.observed)
        print(msgspec.json.encode(totals).decode() if as_json else _workload_table(totals, len(requests)))
        return
    request = Request(prompt_tokens=prompt or 1, output_tokens=output or 1, reused_tokens=reused)
    found = advise_request(loaded.measurements, request, loaded.observed)
    print(msgspec.json.encode(found).decode() if as_json else _advice_table(found))


# --- Reading --------------------------------------------------------------------------------------


def _load_all(paths: Sequence[Path]) -> _Loaded:
    """Everything of several sources; a source is known by its name, by its whole path where names clash."""
    unique = list({path.resolve(): path for path in paths}.values())
    names = [path.name for path in unique]
    parts = [_load(path, str(path) if names.count(path.name) > 1 else path.name) for path in unique]
    return _Loaded(
        measurements=[row for part in parts for row in part.measurements],
        observed=[row for part in parts for row in part.observed],
        info=parts[0].info if len(parts) == 1 else None,
        curves={key: curve for part in parts for key, curve in part.curves.items()},
    )


def _load(path: Path, source: str) -> _Loaded:
    return _load_run(path, source) if path.is_dir() else _load_table(path, source)


def _load_table(path: Path, source: str) -> _Loaded:
    from bench.analysis.baseline import read_observations

    from .import_table import is_json, measurements_of, read_text

    text = read_text(path)
    rows = measurements_of(path, text, source)
    observed = read_observations(text, source=source) if is_json(path, text) else []
    return _Loaded(rows, observed, None, {})


def _load_run(path: Path, source: str) -> _Loaded:
    from msgspec import structs

    from bench.api import load

    run = load(path)
    rows = [structs.replace(row, source=source) for row in run.measurements]
    curves = {(source, trial, attempt): curve for (_, trial, attempt), curve in run.curves().items()}
    return _Loaded(rows, [], run.info, curves)


# --- Tables for people ----------------------------------------------------------------------------


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns two spaces apart, numbers to the right."""
    widths = [max(len(row[i]) for row in (head, *rows)) for i in range(len(head))]
    right = [all(row[i][:1] in "-0123456789~" or not row[i] for row in rows) for i in range(len(head))]
    lines = []
    for row in (head, *rows):
        cells = [c.rjust(w) if r else c.ljust(w) for c, w, r in zip(row, widths, right, strict=True)]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def _notes(texts: Sequence[tuple[str, str]], rows: int) -> str:
    """What (where, text) pairs say, equal texts once; of more than two places among `rows` their number."""
    places: dict[str, list[str]] = {}
    for where, text in texts:
        if where not in places.setdefault(text, []):
            places[text].append(where)
    lines = []
    for text, found in places.items():
        several = "all" if len(found) == rows else f"{len(found)} of {rows}"
        lines.append(f"- {several if 2 < len(found) <= rows else '; '.join(found)}: {text}")
    return "\n\n" + "\n".join(lines) if lines else ""


def _seconds(estimate: Estimate | None) -> str:
    """Four digits or so: milliseconds below 10 s, tenths from 100 s on."""
    value = estimate.value if estimate is not None else 0.0
    return _estimate(estimate, 1 if value >= 100 else 2 if value >= 10 else 3)


def _estimate(estimate: Estimate | None, places: int = 2) -> str:
    if estimate is None:
        return "-"
    text = f"{estimate.value:,.{places}f}"
    if estimate.low is None or estimate.high is None:
        return text
    return f"{text} ({estimate.low:,.{places}f} to {estimate.high:,.{places}f})"


def _crossover_table(found: Sequence[Crossover]) -> str:
    rows = []
    for one in found:
        spread = "-"
        if one.low is not None and one.high is not None:
            spread = (
                f"{one.low:,.0f} to {one.high:,.0f} ({'95%' if one.spread == 'interval' else one.spread})"
            )
        wins = {"above": "longer outputs", "below": "shorter outputs"}.get(one.wins or "", "-")
        rows.append(
            (
                one.route,
                one.base,
                f"{one.tier:,}",
                one.condition,
                one.status,
                wins,
                "-" if one.output_tokens is None else f"{one.output_tokens:,.0f}",
                spread,
                "-" if one.extrapolation is None else f"{one.extrapolation:.2f}x measured",
                f"{one.samples[0]} + {one.samples[1]}",
            )
        )
    head = (
        "route",
        "base",
        "tier",
        "condition",
        "status",
        "wins at",
        "output tokens",
        "spread",
        "reach",
        "trials",
    )
    texts = [(f"{o.route} against {o.base}, {o.tier:,} {o.condition}", w) for o in found for w in o.warnings]
    return _table(head, rows) + _notes(texts, len(rows))


def _comparison_table(found: Sequence[Comparison]) -> str:
    rows = []
    for one in found:
        p = "-" if one.p_value is None else f"{one.p_value:.3f}"
        names = one.route if one.route == one.base else f"{one.route} / {one.base}"
        ratio = "~" if one.verdict == "~" else _estimate(one.ratio, 3)
        rows.append(
            (
                names,
                f"{one.tier:,}",
                one.condition,
                one.quantity,
                ratio,
                _estimate(one.difference, 4),
                p,
                one.verdict,
            )
        )
    head = ("route", "tier", "condition", "quantity", "new / base", "new - base", "p", "verdict")
    texts = [(f"{one.route}, {one.tier:,} {one.condition}", text) for one in found for text in one.warnings]
    cells = len({(one.route, one.tier, one.condition) for one in found})
    return _table(head, rows) + _notes(texts, cells)


def _gate_table(outcomes: Sequence[Outcome]) -> str:
    rows = [
        (
            str(one.rule),
            one.route,
            "-" if one.tier is None else f"{one.tier:,}",
            _estimate(one.ratio, 3),
            one.status.upper() if one.status == "fail" else one.status,
            one.why,
        )
        for one in outcomes
    ]
    return _table(("rule", "route", "tier", "new / baseline", "outcome", "why"), rows)


def _advice_table(found: Sequence[Advice]) -> str:
    rows = []
    ranked = [one for one in found if one.total_s is not None]
    for one in found:
        mark = "" if not one.best else "best" if one.certain else "likely best"
        if one.best and len(ranked) < 2:
            mark = "alone"
        reach = " ".join(
            f"{name} {factor:.2f}x"
            for name, factor in (("prompt", one.prompt_factor), ("output", one.output_factor))
            if factor is not None
        )
        times = (_seconds(e) for e in (one.ttft_s, one.decode_s, one.total_s))
        rows.append((one.route, *times, reach, mark))
    texts = [
        (f"{one.route}, {name}", f"absent, {why}")
        for one in found
        for name, why in one.absent.items()
        if name != "total_s"
    ]
    texts += [(f"{one.route}, {name}", text) for one in found for name, text in one.basis.items()]
    texts += [(one.route, text) for one in found for text in one.warnings]
    head = ("route", "TTFT (s)", "decode (s)", "total (s)", "of what was measured", "")
    return _table(head, rows) + _notes(texts, 0)


def _workload_table(found: Sequence[WorkloadAdvice], requests: int) -> str:
    rows = []
    for one in found:
        total = "-" if one.total_s is None else f"{one.total_s:,.0f}"
        if one.low is not None and one.high is not None:
            total += f" ({one.low:,.0f} to {one.high:,.0f})"
        rows.append((one.route, total, f"{one.best_for:,}", f"{one.beyond:,}", f"{one.without:,}"))
    texts = [(one.route, one.absent) for one in found if one.absent]
    head = ("route", f"{requests:,} requests in a row (s)", "best for", "beyond measured", "no answer")
    return _table(head, rows) + _notes(texts, len(rows))
