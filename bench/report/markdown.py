"""report.md: ready to be pasted into a pull request; every platform's Markdown, no foreign markup."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable, Sequence

from bench.records import Measurement
from bench.report import answers, compared, reused, sources, winner_told, words
from bench.report.chats import chat_table
from bench.report.choice import choice_table
from bench.report.conditions import client_table
from bench.report.content import Content
from bench.report.differences import difference_lines
from bench.report.drafts import acceptance_table
from bench.report.escape import markdown as safe
from bench.report.escape import visible
from bench.report.grid import Grid, Value
from bench.report.law_table import law_table
from bench.report.levels import level_table
from bench.report.machine import machine_table
from bench.report.plot import kind_of
from bench.report.quantities import MISSING, QUANTITIES, TABLE
from bench.report.setting import setting_rows
from bench.report.told import Table
from bench.report.witness import witnesses

EXCLUDED_SHOWN = 50
SUITE_LINES = 2_000
READING = (
    "Medians over the valid trials of a cell; ± is the larger half of the spread. Cold rows count valid "
    "salted samples too."
)
PICTURES = (
    ("total_latency", "Total latency over output tokens"),
    ("ttft", "TTFT over prompt length"),
    ("decode", "Decode rate over prompt length"),
    ("winner_map", winner_told.TITLE),
)


def render(content: Content, pictures: Iterable[str] = ()) -> str:
    """The whole report; `pictures` are names of plots that lie in `plots/` beside it, looked at last."""
    titles = ", ".join(safe(run.info.suite.name) for run in content.runs) or "nothing"
    figures = [
        f"# Long-context benchmark: {titles}",
        "\n".join(_opening(content)),
        sections_of(choice_table(content)),
        section("Performance", _performance(content.grid) if _has_singles(content) else ""),
        sections_of(level_table(content), chat_table(content)),
        section(
            "Crossover",
            _listed([*words.crossover_lines(content), *words.verified_lines(content)], "crossover"),
        ),
        _reused(content),
        sections_of(
            compared.table_of(content),
            acceptance_table(content),
            answers.needle_table(content),
            answers.greedy_table(content),
        ),
        section("Prefix reuse of replays", words.join(_safe(words.reuse_lines(content)))),
        sections_of(law_table(content)),
    ]
    circumstances = [
        section("Setting", setting_table(content)),
        words.join(_safe(difference_lines(content))),
        section("Tasks", words.join(_safe(answers.task_lines(content)))),
        section("Tokenisation", words.join(_safe(words.tokenisation_lines(content)))),
        sections_of(client_table(content), machine_table(content)),
        section("Warnings and fallback", words.join(_warnings(content))),
        section("Excluded trials", words.join(_excluded(content))),
        section("Boundary of what was tested", words.join(_safe(words.boundary_lines(content)))),
        section("Where the numbers come from", _definitions(content)),
        section("How to reproduce", _reproduce(content)),
    ]
    parts = [*figures, _pictures(content, list(pictures)), *circumstances]
    return "\n\n".join(part for part in parts if part) + "\n"


def setting_table(content: Content) -> str:
    """The setting table in Markdown."""
    head, rows = setting_rows(content)
    return table_of(head, rows) if len(head) > 1 else ""


def table_of(head: Sequence[str], rows: Iterable[Sequence[str]], right: Collection[int] = ()) -> str:
    """A Markdown table of untrusted texts; columns in `right` are aligned right."""
    rule = ["--:" if i in right else "---" for i in range(len(head))]
    lines = [head, *rows]
    cells = [_line(safe(text, in_cell=True) for text in line) for line in lines]
    return "\n".join([cells[0], _line(rule), *cells[1:]])


def _line(texts: Iterable[str]) -> str:
    return "| " + " | ".join(texts) + " |"


def section(title: str, body: str) -> str:
    """A section with its heading; nothing where it would be empty."""
    return f"## {title}\n\n{body}" if body else ""


def _safe(lines: Iterable[str]) -> list[str]:
    return [safe(line, 1000) for line in lines]


def _opening(content: Content) -> list[str]:
    lines = []
    for run in content.runs:
        lines.append(f"Run {safe(run.path)} of {safe(run.info.created_at)}.")
        lines.append(words.state_line(run, content.everything))
        harness = words.harness_line(run)
        if harness:
            lines.append(harness)
    return lines


def _has_singles(content: Content) -> bool:
    """Whether there are requests that were sent alone, or nothing at all, which has to be said."""
    return bool(content.measurements) or not (content.levels or content.chats)


def _performance(table: Grid) -> str:
    if not table.rows:
        return "Nothing was measured."
    several = len({row.task for row in table.rows}) > 1
    names = ["route", "tier", "condition", *(["task"] if several else [])]
    heads = [*names, *(QUANTITIES[key].head for key in TABLE), "verdict"]
    rule = ["---", "--:", *["---"] * (len(names) - 2), *["--:"] * len(TABLE), "---"]
    lines = [_line(heads), _line(rule)]
    for row in table.rows:
        own = [safe(row.route), f"{row.tier:,}", row.condition, *([safe(row.task)] if several else [])]
        lines.append(_line([*own, *(_cell(row.values[key]) for key in TABLE), _cell(row.verdict)]))
    notes = [f"<sup>{number}</sup> {safe(note, 1000)}" for number, note in enumerate(table.notes, 1)]
    lines += ["", f"{READING} Definitions and witnesses stand at the end.", *([""] if notes else [])]
    return "\n".join(lines) + ("\n" + "  \n".join(notes) if notes else "")


def sections_of(*tables: Table | None) -> str:
    """A section for each table, with its footnote; nothing for one that is not there."""
    return "\n\n".join(
        section(one.title, f"{table_of(one.head, one.rows, one.right)}\n\n{safe(one.note, 1000)}")
        for one in tables
        if one is not None
    )


def _listed(lines: Sequence[str], key: str) -> str:
    """A list with the definition and the witness of its figures below it."""
    if not lines:
        return ""
    _, definition, witness = sources.DERIVED[key]
    return words.join(_safe(lines)) + f"\n\n{safe(f'{definition} Witness: {witness}.', 1000)}"


def _reused(content: Content) -> str:
    """Crossovers for a chosen cached part of the prompt."""
    if content.reuse is None:
        return ""
    lines = words.join(_safe(reused.reused_lines(content)))
    return section(reused.title(content.reuse), f"{lines}\n\n{safe(reused.NOTE, 1000)}")


def _cell(value: Value) -> str:
    mark = f"<sup>{value.note}</sup>" if value.note is not None else ""
    return value.text + mark + (f" {value.spread.replace('<', '&lt;')}" if value.spread else "")


def _pictures(content: Content, names: Sequence[str]) -> str:
    """The plots that answer the questions; below the winner map, how it is to be read."""
    shown = [
        (picture, f"![{title}](plots/{name}.png)")
        for picture, title in PICTURES
        for name in names
        if kind_of(name) == picture
    ]
    mapped = any(picture == "winner_map" for picture, _ in shown)
    texts = [line for _, line in shown] + ([safe(winner_told.caption(content), 2000)] if mapped else [])
    return "\n\n".join(texts)


def _warnings(content: Content) -> list[str]:
    notes = [note for run in content.runs for note in run.info.notes]
    return _safe(
        [
            *notes,
            *words.warning_lines(content),
            *words.cell_warnings(content),
            *winner_told.parted_lines(content),
        ]
    ) or ["None."]


def _excluded(content: Content) -> list[str]:
    found = words.excluded(content)
    if not found:
        return ["None: every measurement entered the statistics."]
    lines = _safe([*words.remedies(found), *(words.excluded_line(one) for one in found[:EXCLUDED_SHOWN])])
    if len(found) > EXCLUDED_SHOWN:
        lines.append(f"{len(found) - EXCLUDED_SHOWN} more in measurements.csv (column `reasons`).")
    return lines


def definition_rows(content: Content) -> list[tuple[str, str, str]]:
    """Number, definition and witness: the measured ones first, then what is computed from them."""
    found: tuple[Measurement, ...] = content.measurements
    measured = [
        (QUANTITIES[key].label, QUANTITIES[key].definition, witnesses(found, key) or MISSING) for key in TABLE
    ]
    return measured + list(sources.DERIVED.values())


def _definitions(content: Content) -> str:
    rows = definition_rows(content)
    body = "\n".join(
        [_line(["number", "definition", "witness"]), _line(["---"] * 3)]
        + [_line([label, definition, safe(witness)]) for label, definition, witness in rows]
    )
    return f"<details><summary>Definitions and witnesses</summary>\n\n{body}\n\n</details>"


def _reproduce(content: Content) -> str:
    blocks = []
    for run in content.runs:
        name = shlex.quote(visible(run.path, 300).replace("`", "'"))
        lines = [f"ctxbench report {name}   # this report from what was kept", "ctxbench run suite.toml"]
        blocks.append("```sh\n" + "\n".join(lines) + "\n```")
        fence = "`" * max(3, _longest_ticks(run.info.suite_text[:100_000]) + 1)
        suite = "\n".join(_code(line) for line in run.info.suite_text.splitlines()[:SUITE_LINES])
        blocks.append(
            f"<details><summary>suite.toml</summary>\n\n{fence}toml\n{suite}\n{fence}\n\n</details>"
        )
        rows = [[name, value] for name, value in sorted(run.info.environment.items())]
        if rows:
            blocks.append(table_of(["environment", ""], rows))
    return "\n\n".join(blocks)


def _longest_ticks(text: str) -> int:
    longest = current = 0
    for character in text:
        current = current + 1 if character == "`" else 0
        longest = max(longest, current)
    return longest


def _code(line: str) -> str:
    indent = len(line) - len(line.lstrip(" "))
    return " " * indent + visible(line, 1000)
