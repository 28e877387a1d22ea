"""What answers say: needles found again, and where greedy answers to one prompt part.

In exact arithmetic speculation does not change greedy text, and a broken long-context setup changes
it early and everywhere. In practice batch shapes change rounding, so a first difference is no fault:
it is reported with its place, beside what a route differs from itself by, and never as a verdict.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from statistics import median

import numpy as np
from msgspec import Struct

from bench.analysis.statistics.cells import pooled, usable
from bench.records import Condition, Exchange, Measurement, Needle

KEPT_CHARACTERS = 1 << 15
"""Of each greedy answer; beyond, answers are not compared."""

Key = tuple[str, str, int]
"""Source, trial and attempt of a measurement."""
Answers = Mapping[Key, "Answer"]


# --- needles --------------------------------------------------------------------------------------


class Grade(Struct, frozen=True, kw_only=True):
    """Which needles an answer gave back."""

    found: tuple[bool, ...]
    """In the order of the needles."""
    score: float
    """Share found, 0 to 1."""


class NeedleScore(Struct, frozen=True, kw_only=True):
    """Needles found by one route at one tier: valid answers only, salted ones with the cold ones."""

    route: str
    tier: int
    condition: Condition
    answers: int
    depths: tuple[float, ...]
    found: tuple[int, ...]
    """Answers that gave back the needle at each depth."""

    @property
    def score(self) -> float:
        """Share of all needles that was found, 0 to 1."""
        return sum(self.found) / (self.answers * len(self.depths))


def grade(answer: str, needles: Sequence[Needle]) -> Grade:
    """A needle is found when its vault and, behind it on the same line, exactly its code stand.

    Marks of lists and emphasis around them are overlooked; an answer that also names another code
    for a vault is wrong.
    """
    plain = re.sub(r"[*_`]", "", answer)
    found = []
    for needle in needles:
        codes = re.findall(rf"\b{re.escape(needle.vault)}\b[^\n\d]{{0,40}}(\d+)", plain)
        found.append(bool(codes) and all(code == needle.code for code in codes))
    return Grade(found=tuple(found), score=sum(found) / len(found) if found else 0.0)


def needle_scores(measurements: Iterable[Measurement], answers: Answers) -> list[NeedleScore]:
    """Needles found by route, tier, condition and depth; routes in their order of appearance."""
    groups: dict[tuple[int, Condition, str, tuple[float, ...]], list[Grade]] = defaultdict(list)
    for row in measurements:
        answer = answers.get(answer_key(row))
        if usable(row) and answer is not None and answer.grade is not None:
            groups[row.tier, pooled(row.condition), row.route, answer.depths].append(answer.grade)
    scores = [
        NeedleScore(
            route=route,
            tier=tier,
            condition=condition,
            answers=len(grades),
            depths=depths,
            found=tuple(sum(column) for column in zip(*(one.found for one in grades), strict=True)),
        )
        for (tier, condition, route, depths), grades in groups.items()
    ]
    return sorted(scores, key=lambda one: (one.tier, one.condition))


# --- greedy answers -------------------------------------------------------------------------------


class Said(Struct, frozen=True, kw_only=True):
    """The beginning of an answer, and where its tokens lie."""

    text: str
    """At most `KEPT_CHARACTERS`: reasoning first, then content."""
    ended: bool = False
    """The model ended it by itself, and all of it is here."""
    ends: tuple[int, ...] = ()
    """Characters that had arrived after each chunk with text ..."""
    tokens: tuple[int, ...] = ()
    """... and tokens by then; empty where the server does not tell."""


class Answer(Struct, frozen=True, kw_only=True):
    """What is kept of one answer until those it is put beside are known."""

    grade: Grade | None = None
    """`None`: its prompt hid nothing."""
    depths: tuple[float, ...] = ()
    """Of the needles, in the order of `grade.found`."""
    said: Said | None = None
    """`None`: not greedy."""


class Divergence(Struct, frozen=True, kw_only=True):
    """Where two answers to one prompt part."""

    characters: int
    """Compared: the shorter answer, or the longer one where the shorter ended by itself."""
    first: int | None
    """Characters before the first difference; `None`: none was found."""
    words: int | None = None
    """Whole words before it."""
    tokens: int | None = None
    """Tokens of the chunks that lie wholly before it: at least so many are the same. `None` where
    neither server counts tokens in its events."""
    share: float
    """Part of what was compared that comes before the first difference: 1 when nothing differs."""


class Equivalence(Struct, frozen=True, kw_only=True):
    """Greedy answers of a route beside those of another to the same prompts, or beside its own."""

    route: str
    base: str
    """A target-only route; `route` itself where replays are put beside their cold prompt."""
    tier: int
    task: str
    divergences: tuple[Divergence, ...]
    """One a pair of answers, in run order."""

    @property
    def identical(self) -> int:
        """Pairs without a difference."""
        return sum(one.first is None for one in self.divergences)

    @property
    def share(self) -> float:
        """Median part of an answer before its first difference."""
        return median(one.share for one in self.divergences)

    def earliest(self) -> Divergence | None:
        """The pair that parts first; `None`: no pair does."""
        parted = [one for one in self.divergences if one.first is not None]
        return min(parted, key=lambda one: one.first or 0, default=None)


def answer_key(row: Measurement) -> Key:
    """The key of a measurement's answer."""
    return (row.source, row.trial_id, row.attempt)


def answer_of(exchange: Exchange) -> Answer | None:
    """What an exchange's answer is kept for; `None`: for nothing.

    Graded is the content alone: what a model only thinks of is no answer.
    """
    if exchange.failure is not None:
        return None
    needles = exchange.prompt.needles
    temperature = exchange.request.get("temperature")
    greedy = isinstance(temperature, int | float) and temperature == 0
    if not needles and not greedy:
        return None
    return Answer(
        grade=grade(exchange.text, needles) if needles else None,
        depths=tuple(needle.depth for needle in needles),
        said=_said(exchange) if greedy else None,
    )


def _said(exchange: Exchange) -> Said:
    text = exchange.reasoning + exchange.text + exchange.tool_text
    kept = text[:KEPT_CHARACTERS]
    chunks, usage = exchange.chunks.text, exchange.usage
    ends = np.cumsum(chunks.chars)
    within = int(np.searchsorted(ends, len(kept), side="right"))
    tokens: tuple[int, ...] = ()
    if chunks.tokens is not None:
        tokens = tuple(chunks.tokens[:within].tolist())
    elif usage is not None and usage.completion_tokens == len(ends):
        tokens = _numbers(within)  # a token a chunk
    return Said(
        text=kept,
        ended=exchange.finish_reason == "stop" and len(kept) == len(text),
        ends=tuple(ends[: len(tokens)].tolist()),
        tokens=tokens,
    )


@lru_cache(maxsize=64)
def _numbers(count: int) -> tuple[int, ...]:
    """1 to `count`; the same tuple for all answers of that length."""
    return tuple(range(1, count + 1))


def divergence(one: Said, other: Said) -> Divergence:
    """First difference of two answers.

    An answer that goes on where the other was cut off does not differ; where the other ended by
    itself, it does.
    """
    short, long = sorted((one, other), key=lambda said: len(said.text))
    same = _same_characters(short.text, long.text)
    compared = len(short.text)
    if same == len(short.text):
        if not short.ended or len(short.text) == len(long.text):
            return Divergence(characters=compared, first=None, share=1.0)
        compared = len(long.text)
    return Divergence(
        characters=compared,
        first=same,
        words=len(re.findall(r"\S+\s", short.text[:same])),
        tokens=max((_tokens_before(said, same) for said in (one, other) if said.tokens), default=None),
        share=same / compared,
    )


def _same_characters(one: str, other: str) -> int:
    """Characters that two texts begin with in common."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _tokens_before(said: Said, characters: int) -> int:
    return max(
        (count for end, count in zip(said.ends, said.tokens, strict=True) if end <= characters), default=0
    )


def equivalences(measurements: Iterable[Measurement], answers: Answers) -> list[Equivalence]:
    """Greedy answers to equal prompts: each route beside the target-only one, replays beside their cold.

    Compared are valid measurements of one source with the same prompt hash. Across routes condition
    and replay are the same too. Rows come by task and tier, target-only against itself last.
    """
    rows = [row for row in measurements if usable(row) and row.pair and _text(row, answers)]
    plain = list(dict.fromkeys(row.route for row in rows if row.verdict.speculation == "none"))
    prompts: dict[tuple[str, str | None], list[Measurement]] = defaultdict(list)
    for row in rows:
        prompts[row.source, row.pair].append(row)
    found: dict[tuple[str, int, str, str], list[Divergence]] = defaultdict(list)
    for group in prompts.values():
        for row, base in (*_across(group, plain), *_replayed(group)):
            a, b = _text(row, answers), _text(base, answers)
            if a is not None and b is not None:
                found[row.task, row.tier, row.route, base.route].append(divergence(a, b))
    result = [
        Equivalence(route=route, base=base, tier=tier, task=task, divergences=tuple(pairs))
        for (task, tier, route, base), pairs in found.items()
    ]
    return sorted(
        result, key=lambda one: (one.task, one.tier, one.route == one.base, one.route in plain, one.route)
    )


def _text(row: Measurement, answers: Answers) -> Said | None:
    answer = answers.get(answer_key(row))
    return answer.said if answer is not None else None


def _across(group: Sequence[Measurement], plain: Sequence[str]) -> Iterator[tuple[Measurement, Measurement]]:
    """Answers of other routes, each beside that of the first target-only route among them."""
    base = next((name for name in plain if any(row.route == name for row in group)), None)
    bases = {(row.condition, row.replay): row for row in group if row.route == base}
    for row in group:
        if row.route != base and (row.condition, row.replay) in bases:
            yield row, bases[row.condition, row.replay]


def _replayed(group: Sequence[Measurement]) -> Iterator[tuple[Measurement, Measurement]]:
    """Replays, each beside the cold answer of its own route."""
    colds = {row.route: row for row in group if row.condition == "cold"}
    for row in group:
        if row.condition == "replay" and row.route in colds:
            yield row, colds[row.route]
