"""`ctxbench import`: figures measured earlier or by other tools, as a baseline."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from bench.cli.command import PATH, argument, command

if TYPE_CHECKING:
    from bench.analysis.decisions.foreign import Import
    from bench.records import Measurement

_AUTO = "auto"
_MOST_NAMES = 40


@command
@argument("file", type=PATH, help="CSV or JSON table, or a result of another tool.")
@click.option(
    "--format",
    "kind",
    type=click.Choice([_AUTO, "table", "vllm-bench", "llama-benchy"]),
    default=_AUTO,
    help="What the file is.",
)
@click.option("--route", help="Name of the route, for results that have none.")
@click.option(
    "--condition",
    type=click.Choice(["cold", "replay"]),
    default="cold",
    help="For vllm-bench, whose results do not tell.",
)
@click.option("--out", type=PATH, help="Write the table here instead of to stdout.")
def import_table(
    file: Path, kind: str, route: str | None, condition: Literal["cold", "replay"], out: Path | None
) -> None:
    """Turn published figures or another tool's result into a table that compare, gate and crossover read.

    What each foreign number means in our words is printed beside it. Example:

        ctxbench import bench-serve.json --route mtp4 --out baseline.csv
    """
    from bench.analysis.decisions.baseline import write_table
    from bench.errors import SuiteError

    text = read_text(file)
    found = _read(file, text, kind, route, condition)
    for note in found.notes:
        print(f"{file.name}: {note}", file=sys.stderr)
    if found.tool == "table":
        _say_left_out(file, text)
    invalid = sum(not row.verdict.valid for row in found.measurements)
    print(f"{file.name}: {len(found.measurements)} measurements, {invalid} of them invalid", file=sys.stderr)
    table = write_table(found.measurements)
    if out is None:
        print(table, end="")
        return
    if out.exists():
        raise SuiteError(f"{out} exists already: give another name with --out, or remove it first")
    try:
        out.write_text(table, encoding="utf-8")
    except OSError as error:
        raise SuiteError(f"{out} cannot be written: {error.strerror}") from None


def _say_left_out(file: Path, text: str) -> None:
    from bench.analysis.decisions.baseline import columns_left_out
    from bench.report.escape import visible

    names = columns_left_out(text, kind="json" if is_json(file, text) else "csv", source=file.name)
    if names:
        more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
        shown = ", ".join(visible(name, 60) for name in names[:_MOST_NAMES])
        print(f"{file.name}: columns not taken over: {shown}{more}", file=sys.stderr)


def read_text(path: Path) -> str:
    """The text of a file, bounded. Raises `SuiteError` when there is none to be had."""
    from bench import resources

    return resources.read_text(path, resources.LARGEST_TABLE)


def is_json(path: Path, text: str) -> bool:
    """By its name, else by its first character."""
    suffix = path.suffix.lower()
    return suffix == ".json" or (suffix != ".csv" and text.lstrip("\ufeff \t\r\n")[:1] in ("{", "["))


def measurements_of(path: Path, text: str, source: str) -> list[Measurement]:
    """Rows of a table or of a foreign result, whatever the file is."""
    from msgspec import structs

    found = _read(path, text, _AUTO, None, "cold")
    for note in found.notes:
        print(f"{path.name}: {note}", file=sys.stderr)
    return [structs.replace(row, source=source) for row in found.measurements]


def _read(
    path: Path, text: str, kind: str, route: str | None, condition: Literal["cold", "replay"]
) -> Import:
    from bench.analysis.decisions import baseline, foreign

    json_like = is_json(path, text)
    tool = kind
    if kind == _AUTO:
        tool = (foreign.detect(text) if json_like else None) or "table"
    if tool == "vllm-bench":
        return foreign.read_vllm_bench(text, source=path.name, route=route, condition=condition)
    if tool == "llama-benchy":
        return foreign.read_llama_benchy(text, source=path.name, route=route)
    rows = baseline.read_table(text, kind="json" if json_like else "csv", source=path.name)
    return foreign.Import(tool="table", measurements=tuple(rows), notes=())
