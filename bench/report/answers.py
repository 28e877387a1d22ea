"""What was asked and what was answered: tasks, needles found again, greedy answers side by side."""

from __future__ import annotations

from statistics import median

from bench.analysis.statistics.answers import KEPT_CHARACTERS, Equivalence, NeedleScore
from bench.report import sources
from bench.report.content import Content
from bench.report.escape import visible
from bench.report.told import Table, Told

TASKS_POOLED = (
    "Tables, crossovers and the plots of latency, fastest route, decode and acceptance keep tasks apart "
    "(plots: the first three); the other plots show all of them together."
)
NEEDLE_HEAD = ("route", "tier", "condition", "answers", "score", "found at depth")
NEEDLE_NOTE = (
    "A needle counts as found when its name and exactly its code stand on one line of the answer. Cold rows "
    "count valid salted samples too. An answer that was cut off before the last code cannot find it."
)
GREEDY_HEAD = ("route", "against", "tier", "pairs", "identical", "same before a difference", "earliest")
GREEDY_NOTE = (
    "Answers at temperature 0 to byte-identical prompts; medians over the pairs, and the pair that parts "
    "first. No verdict: rounding differs with the shapes of batches, so greedy text may change without a "
    "fault. Judge a route by what target-only differs from itself by, cold against replay."
)


def task_lines(content: Content) -> list[str]:
    """The tasks of a report with more than one, and how easily a drafter follows their answers."""
    if len(content.tasks) < 2:
        return []
    lines: list[str] = [
        Told(f"{visible(task, 60)}: {kind} acceptance expected", sources.SUITE)
        for task, kind in content.tasks.items()
    ]
    return [*lines, TASKS_POOLED]


def needle_table(content: Content) -> Table | None:
    """How many needles were found again; `None` where none were hidden."""
    rows = tuple(needle_rows(content))
    return (
        Table(title="Needles", head=NEEDLE_HEAD, rows=rows, note=NEEDLE_NOTE, right=(1, 3)) if rows else None
    )


def greedy_table(content: Content) -> Table | None:
    """Greedy answers side by side; `None` where no two can be compared."""
    rows, note = tuple(greedy_rows(content)), greedy_notes(content)
    return (
        Table(title="Greedy answers", head=GREEDY_HEAD, rows=rows, note=note, right=(2, 3, 4))
        if rows
        else None
    )


def needle_rows(content: Content) -> list[tuple[str, ...]]:
    """One row a route, tier and condition, under `NEEDLE_HEAD`."""
    return [
        (
            visible(one.route, 60),
            Told(f"{one.tier:,}", sources.PLANNED),
            one.condition,
            *(Told(text, NEEDLE_NOTE) for text in (str(one.answers), f"{one.score:.0%}", _by_depth(one))),
        )
        for one in content.needle_scores
    ]


def _by_depth(one: NeedleScore) -> str:
    places = sorted(zip(one.depths, one.found, strict=True))
    return ", ".join(f"{depth:.0%}: {found}/{one.answers}" for depth, found in places)


def greedy_rows(content: Content) -> list[tuple[str, ...]]:
    """One row a pair of routes and tier, or a route against itself, under `GREEDY_HEAD`."""
    several = len({one.task for one in content.equivalences}) > 1
    note = greedy_notes(content)
    rows: list[tuple[str, ...]] = []
    for one in content.equivalences:
        tier = f"{one.tier:,}" + (f" {visible(one.task, 60)}" if several else "")
        itself = one.route == one.base
        rows.append(
            (
                visible(one.route, 60),
                "itself (replay, cold)" if itself else visible(one.base, 60),
                Told(tier, sources.PLANNED),
                *(
                    Told(text, note)
                    for text in (str(len(one.divergences)), str(one.identical), _share(one), _earliest(one))
                ),
            )
        )
    return rows


def _share(one: Equivalence) -> str:
    """`62% (41 words, 58 tokens)`: the median over all pairs, and where the differing ones part."""
    parted = [pair for pair in one.divergences if pair.first is not None]
    if not parted:
        return "100%"
    words = median(pair.words or 0 for pair in parted)
    tokens = [pair.tokens for pair in parted if pair.tokens is not None]
    counted = f", {median(tokens):,g} tokens" if tokens else ""
    return f"{one.share:.0%} ({words:,g} words{counted})"


def _earliest(one: Equivalence) -> str:
    first = one.earliest()
    if first is None:
        return "none"
    counted = "" if first.tokens is None else f", {first.tokens:,} tokens"
    return f"{first.share:.0%} ({first.words or 0:,} words{counted})"


def greedy_notes(content: Content) -> str:
    """What the table of greedy answers means, and what is not in it."""
    note = GREEDY_NOTE
    if any(pair.characters >= KEPT_CHARACTERS for one in content.equivalences for pair in one.divergences):
        note += f" Compared are the first {KEPT_CHARACTERS:,} characters."
    if content.answers_left_out:
        note += f" {content.answers_left_out:,} answers were too many to be compared."
    if content.equivalences and all(one.route == one.base for one in content.equivalences):
        note += " No two routes answered the same prompts here."
    return note
