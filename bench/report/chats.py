"""Recorded chats in a report: a row a turn, and one for the whole chat; nothing where none was sent."""

from __future__ import annotations

from collections.abc import Iterator

from bench.analysis.decisions.claims import many
from bench.records import Chat, ChatTurn
from bench.report.content import Content
from bench.report.escape import visible
from bench.report.quantities import MISSING, QUANTITIES, significant
from bench.report.told import Table, Told

TITLE = "Chats"
HEAD = (
    "route", "chat", "turn", "prompt (tok)", "reused", "due", "TTFT (s)", "decode (tok/s)", "total (s)",
    "verdict",
)  # fmt: skip
NOTE = (
    "Recorded chats, turn after turn behind one salt. Reused: cached / prompt tokens, by usage or counters; "
    "due: what the turn before must at least have left, by the engine's rule. Medians over valid repeats. "
    "Row all: the sums over all turns of one repeat, pauses left out, where every turn is valid."
)
MOST_ROWS = 300
"""Rows of turns; of a report with more only whole chats are shown."""
_DUE = "Tokens shared with the prompt of the turn before, in whole cache blocks, / prompt tokens."


def chat_table(content: Content) -> Table | None:
    """One row a turn and one a chat, on every route; `None` where no chat was sent."""
    if not content.chats:
        return None
    every = sum(len(one.turns) for one in content.chats)
    rows = tuple(row for one in content.chats for row in _rows(one, every <= MOST_ROWS))
    note = NOTE if every <= MOST_ROWS else f"{NOTE} {every:,} turns stand in summary.json alone."
    return Table(title=TITLE, head=HEAD, rows=rows, note=note, right=tuple(range(2, 9)))


def chat_lines(content: Content) -> list[str]:
    """Each chat on each route in a line, for a terminal."""
    return [_line(one) for one in content.chats]


def _line(one: Chat) -> str:
    head = f"{visible(one.route, 60)}, {visible(one.chat, 60)}: {many(len(one.turns), 'turn')}"
    if not one.whole or one.total_s is None:
        valid = sum(turn.valid > 0 for turn in one.turns)
        return f"{head}, {valid} of them valid: no sum"
    reused = _share(one.cached_tokens, one.prompt_tokens)
    told = "" if reused == MISSING else f", {reused} of their prompt tokens reused"
    return f"{head} in {significant(one.total_s, 3)} s{told}"


def _rows(one: Chat, with_turns: bool) -> Iterator[tuple[str, ...]]:
    for turn in one.turns if with_turns else ():
        yield (*_names(one), str(turn.turn), *_figures(turn), _verdict(turn))
    repeats = many(one.whole, "whole repeat")
    spread = "" if one.fastest_s is None or one.slowest_s is None else _between(one.fastest_s, one.slowest_s)
    yield (
        *_names(one),
        "all",
        _count(one.prompt_tokens, f"Sum over all turns. {repeats}."),
        Told(_share(one.cached_tokens, one.prompt_tokens), f"Of the sum over all turns. {repeats}."),
        MISSING,
        MISSING,
        MISSING,
        _number(one.total_s, f"Sum over all turns, pauses left out; median of {repeats}{spread}."),
        repeats,
    )


def _names(one: Chat) -> tuple[str, str]:
    return visible(one.route, 60), visible(one.chat, 60)


def _figures(turn: ChatTurn) -> tuple[str, ...]:
    sample = f"{many(turn.valid, 'valid measurement')}."
    first = turn.turn == 1
    reuse = QUANTITIES["prefix_reuse"].definition
    return (
        _count(turn.prompt_tokens, f"{QUANTITIES['prompt_tokens'].definition} {sample}"),
        Told(_share(turn.cached_tokens, turn.prompt_tokens), f"{reuse} {sample}"),
        MISSING if first else Told(_share(turn.expected_cached, turn.prompt_tokens), f"{_DUE} {sample}"),
        _number(turn.ttft_s, f"{QUANTITIES['ttft_s'].definition} {sample}"),
        _number(turn.decode_tok_s, f"{QUANTITIES['decode_tok_s'].definition} {sample}"),
        _number(turn.total_s, f"{QUANTITIES['total_s'].definition} {sample}"),
    )


def _verdict(turn: ChatTurn) -> str:
    why = ", ".join(f"{count} x {reason}" for reason, count in turn.excluded.items())
    if not turn.valid and not turn.invalid:
        return "not measured"
    text = "ok" if turn.valid else "invalid"
    if turn.invalid and turn.valid:
        text += f", {turn.invalid} excluded"
    return Told(text if turn.valid or not why else f"{text}: {why}", f"Excluded: {why or 'none'}.")


def _between(low: float, high: float) -> str:
    return f", {significant(low, 3)} to {significant(high, 3)} s" if low < high else ""


def _count(value: int | None, source: str) -> str:
    return MISSING if value is None else Told(f"{value:,}", source)


def _number(value: float | None, source: str) -> str:
    return MISSING if value is None else Told(significant(value, 3), source)


def _share(part: int | None, whole: int | None) -> str:
    return MISSING if part is None or not whole else f"{part / whole:.1%}"
