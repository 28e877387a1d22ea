"""Tables for machines: measurements.csv, summary.json and, where pyarrow is installed, Parquet."""

from __future__ import annotations

import re
from importlib.util import find_spec
from typing import Any

import msgspec
from msgspec import Struct

from bench.analysis.statistics.answers import Divergence, Equivalence, NeedleScore
from bench.records import Chat, Comparison, Condition, Crossover, Level, Summary
from bench.report.content import Content
from bench.report.escape import csv_text
from bench.report.load import ClientLine, MachineLine, client_lines, machine_lines
from bench.report.rows import Table, measurement_table

SUMMARY_SCHEMA = 1
"""Version of summary.json; docs/schema/summary-1.json describes it."""

_TRUTH = {True: "true", False: "false"}
_QUOTED = re.compile(r'[",\r\n]')


class RunLine(Struct, frozen=True, kw_only=True):
    """A run in summary.json."""

    id: str
    created_at: str
    suite: str
    planned: int
    exchanges: int
    environment: dict[str, str]
    notes: tuple[str, ...]


class NeedleLine(Struct, frozen=True, kw_only=True):
    """Needles found by one route at one tier, in summary.json: valid answers only."""

    route: str
    tier: int
    condition: Condition
    """Cold ones count valid salted answers, too."""
    answers: int
    score: float
    """Share of all needles that was found, 0 to 1."""
    depths: tuple[float, ...]
    """Where the needles stood: 0 for the front of the body, 1 for its end."""
    found: tuple[int, ...]
    """Answers that gave back the needle at each depth."""


class GreedyLine(Struct, frozen=True, kw_only=True):
    """Greedy answers of a route beside those of another to the same prompts, in summary.json."""

    route: str
    base: str
    """A target-only route; `route` itself where replays are put beside their cold prompt."""
    tier: int
    task: str
    pairs: int
    identical: int
    """Pairs without a difference."""
    share: float
    """Median part of an answer before its first difference, 0 to 1."""
    earliest: Divergence | None
    """The pair that parts first; `None`: no pair does."""


class SummaryFile(Struct, frozen=True, kw_only=True):
    """summary.json: the statistics of a report and what they are over."""

    schema: int
    base: str | None
    """The route that comparisons and crossovers are against."""
    runs: tuple[RunLine, ...]
    valid: int
    excluded: dict[str, int]
    """Reason id -> measurements it excluded."""
    summaries: tuple[Summary, ...]
    comparisons: tuple[Comparison, ...]
    crossovers: tuple[Crossover, ...]
    reused_crossovers: tuple[Crossover, ...] = ()
    """For the cached part of the prompt that was asked about (`report --reused`), by the laws."""
    levels: tuple[Level, ...] = ()
    """Levels of concurrency; empty where requests came one at a time."""
    chats: tuple[Chat, ...] = ()
    """Recorded chats, turn by turn and as a whole; empty where none was sent."""
    needles: tuple[NeedleLine, ...] = ()
    """Empty where no facts were hidden in prompts."""
    greedy: tuple[GreedyLine, ...] = ()
    """Empty where no two answers at temperature 0 can be compared. Information, never a verdict."""
    greedy_left_out: int = 0
    """Greedy answers that were too many to be compared."""
    machine: tuple[MachineLine, ...] = ()
    """What GPUs and hosts under the servers did; empty where no machine was looked at."""
    client: tuple[ClientLine, ...] = ()
    """How this client kept up; empty where no exchange tells of it."""


def table(content: Content) -> Table:
    """All measurements of a report as flat columns, in run order."""
    return measurement_table(content.everything, [run.info for run in content.runs])


def measurements_csv(content: Content, made: Table | None = None) -> str:
    """measurements.csv: one line per measurement, invalid ones too; empty where missing.

    Full precision; texts cannot be taken for formulas. `ctxbench import` reads it back. `made`: its
    `table`, where that is there already.
    """
    made = table(content) if made is None else made
    lines = zip(*([name, *_csv_cells(values)] for name, values in made.items()), strict=True)
    return "".join(f"{','.join(line)}\n" for line in lines)


def summary_file(content: Content) -> SummaryFile:
    """The statistics as a record."""
    excluded: dict[str, int] = {}
    for one in content.everything:
        for reason in one.verdict.reasons:
            excluded[reason.id] = excluded.get(reason.id, 0) + 1
    return SummaryFile(
        schema=SUMMARY_SCHEMA,
        base=content.base,
        runs=tuple(
            RunLine(
                id=run.info.id,
                created_at=run.info.created_at,
                suite=run.info.suite.name,
                planned=len(run.info.plan),
                exchanges=run.exchanges,
                environment=run.info.environment,
                notes=run.info.notes,
            )
            for run in content.runs
        ),
        valid=sum(one.verdict.valid for one in content.everything),
        excluded=dict(sorted(excluded.items())),
        summaries=content.summaries,
        comparisons=content.comparisons,
        crossovers=content.crossovers,
        reused_crossovers=content.reused,
        levels=content.levels,
        chats=content.chats,
        needles=tuple(_needles(one) for one in content.needle_scores),
        greedy=tuple(_greedy(one) for one in content.equivalences),
        greedy_left_out=content.answers_left_out,
        machine=machine_lines(content),
        client=client_lines(content),
    )


def summary_json(content: Content) -> bytes:
    """summary.json; missing values are null, never NaN."""
    return pretty(summary_file(content))


def summary_schema() -> bytes:
    """The JSON schema of summary.json, as published in docs/schema."""
    return published(SummaryFile, f"ctxbench summary.json, schema {SUMMARY_SCHEMA}")


def pretty(value: object) -> bytes:
    """JSON for a file that people look into, too."""
    return msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n"


def published(kind: type[Struct], title: str) -> bytes:
    """The JSON schema of a record."""
    schema = msgspec.json.schema(kind)
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["title"] = title
    return pretty(schema)


def measurements_parquet(content: Content, made: Table | None = None) -> bytes | None:
    """measurements.parquet, or `None` where pyarrow is not installed. `made` as for `measurements_csv`."""
    if find_spec("pyarrow") is None:
        return None
    from bench.report.parquet import parquet

    return parquet(table(content) if made is None else made)


def _needles(one: NeedleScore) -> NeedleLine:
    return NeedleLine(
        route=one.route,
        tier=one.tier,
        condition=one.condition,
        answers=one.answers,
        score=one.score,
        depths=one.depths,
        found=one.found,
    )


def _greedy(one: Equivalence) -> GreedyLine:
    return GreedyLine(
        route=one.route,
        base=one.base,
        tier=one.tier,
        task=one.task,
        pairs=len(one.divergences),
        identical=one.identical,
        share=one.share,
        earliest=one.earliest(),
    )


def _csv_cells(values: list[Any]) -> list[str]:
    """A column as CSV has it, of one kind but for what is missing. Each distinct value is looked at once:
    most columns repeat a few. Fractions are left alone: whole ones among them equal others."""
    if float in set(map(type, values)):
        return ["" if value is None else repr(value) for value in values]
    cells = {value: _csv_cell(value) for value in set(values)}
    return [cells[value] for value in values]


def _csv_cell(value: str | bool | int | None) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return _TRUTH[value]
    if isinstance(value, int):
        return str(value)
    text = csv_text(value)
    return '"' + text.replace('"', '""') + '"' if _QUOTED.search(text) else text
