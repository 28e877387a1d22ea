"""Recorded chats: what each turn costs when the one before it is in the cache, and a chat as a whole.

The only analysis of turns. A repeat of a chat holds the same text again, so several say how steady a
server is and nothing of other chats: medians and ranges, but no intervals.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from statistics import median

from bench.analysis.statistics.bootstrap import Floats
from bench.analysis.statistics.cells import column, is_turn, plain_route, renamed, sound
from bench.records import Chat, ChatTurn, Measurement, Trial

_RANGED = ("ttft_s", "decode_tok_s", "total_s", "cached_tokens")


def chats(measurements: Iterable[Measurement], planned: Mapping[str, int] | None = None) -> list[Chat]:
    """Every chat on every route, in the order they come. Empty where no turns were sent.

    `planned`: turns of each chat as planned; without it as many as were measured anywhere.
    """
    rows = [row for row in renamed(measurements) if is_turn(row)]
    longest: dict[str, int] = {}
    groups: dict[tuple[str, str], list[Measurement]] = {}
    for row in rows:
        longest[row.chat] = max(longest.get(row.chat, 0), row.turn)
        # One that passed a drafter limit in its later turns is one chat all the same.
        groups.setdefault((row.chat, plain_route(row.route)), []).append(row)
    lengths = {**longest, **(planned or {})}
    return [_chat(name, route, own, lengths[name]) for (name, route), own in groups.items()]


def planned_turns(plan: Iterable[Trial]) -> dict[str, int]:
    """Turns of each chat in a plan, whether they were measured or not."""
    found: dict[str, int] = {}
    for trial in plan:
        if trial.chat:
            found[trial.chat] = max(found.get(trial.chat, 0), trial.turn)
    return found


def _chat(name: str, route: str, rows: Sequence[Measurement], turns: int) -> Chat:
    repeats: dict[tuple[str, int], dict[int, Measurement]] = {}
    for row in rows:
        if sound(row):
            repeats.setdefault((row.source, row.repeat), {})[row.turn] = row
    whole = [list(found.values()) for found in repeats.values() if len(found) == turns]
    totals = [total for found in whole if (total := _sum([row.total_s for row in found])) is not None]
    return Chat(
        route=route,
        chat=name,
        turns=tuple(_turn(turn, [row for row in rows if row.turn == turn]) for turn in range(1, turns + 1)),
        whole=len(whole),
        total_s=_median(totals),
        fastest_s=min(totals, default=None),
        slowest_s=max(totals, default=None),
        prompt_tokens=_count([_sum([row.prompt_tokens for row in found]) for found in whole]),
        cached_tokens=_count([_sum([row.cached_tokens for row in found]) for found in whole]),
        repeats=len({(row.source, row.repeat) for row in rows}),
    )


def _turn(turn: int, rows: Sequence[Measurement]) -> ChatTurn:
    valid = [row for row in rows if sound(row)]
    excluded = Counter(reason.id for row in rows if not sound(row) for reason in row.verdict.reasons)
    return ChatTurn(
        turn=turn,
        valid=len(valid),
        invalid=len(rows) - len(valid),
        excluded=dict(sorted(excluded.items())),
        prompt_tokens=_count([row.prompt_tokens for row in valid]),
        cached_tokens=_count([row.cached_tokens for row in valid]),
        expected_cached=_count([row.expected_cached for row in valid]),
        ttft_s=_median([row.ttft_s for row in valid]),
        decode_tok_s=_median([row.decode_tok_s for row in valid]),
        total_s=_median([row.total_s for row in valid]),
        ranges={name: found for name in _RANGED if (found := _range(column(valid, name))) is not None},
    )


def _range(values: Floats) -> tuple[float, float] | None:
    return (float(values.min()), float(values.max())) if values.size > 1 else None


def _sum(values: Sequence[float | None]) -> float | None:
    """The sum, or `None` where a value is missing."""
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


def _count(values: Sequence[float | None]) -> int | None:
    middle = _median(values)
    return None if middle is None else round(middle)
