"""Recorded chats in a report: a row a turn, and one for the whole chat; nothing where none was sent."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from bench.analysis.decisions.claims import many
from bench.analysis.statistics.cells import plain_route, sound
from bench.records import Chat, ChatTurn, Measurement
from bench.report.content import Content
from bench.report.escape import visible
from bench.report.quantities import MISSING, significant, spread_percent
from bench.report.sources import measured, written
from bench.report.told import Table, Told
from bench.report.witness import CLOCK

TITLE = "Chats"
HEAD = (
    "route", "chat", "turn", "repeats", "prompt (tok)", "reused", "due", "TTFT (s)", "decode (tok/s)",
    "total (s)", "verdict",
)  # fmt: skip
NOTE = (
    "Recorded chats, turn after turn behind one salt. Reused: cached / prompt tokens, by usage or counters; "
    "due: what the turn before must at least have left, by the engine's rule. Medians over valid repeats and "
    "the larger half of their range: repeats hold the same text, so there is no interval. Times by the "
    "client's clock. Row all: sums over all turns of one repeat, pauses left out, where every turn is valid."
)
MOST_NAMED = 6
"""Measurements of a turn that are named."""
MOST_ROWS = 300
"""Rows of turns; of a report with more only whole chats are shown."""
_Measured = dict[tuple[str, str, int], list[Measurement]]
"""Chat, route and turn -> its measurements."""
_DUE = "Tokens shared with the prompt of the turn before, in whole cache blocks, / prompt tokens."


def chat_table(content: Content) -> Table | None:
    """One row a turn and one a chat, on every route; `None` where no chat was sent."""
    if not content.chats:
        return None
    every = sum(len(one.turns) for one in content.chats)
    turns = _by_turn(content.turns)
    rows = tuple(row for one in content.chats for row in _rows(one, turns, every <= MOST_ROWS))
    note = NOTE if every <= MOST_ROWS else f"{NOTE} {every:,} turns stand in summary.json alone."
    return Table(title=TITLE, head=HEAD, rows=rows, note=note, right=tuple(range(2, 10)))


def _by_turn(turns: Iterable[Measurement]) -> _Measured:
    found: _Measured = {}
    for one in turns:
        found.setdefault((one.chat, plain_route(one.route), one.turn), []).append(one)
    return found


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
    spread = "" if one.whole < 2 else f" (median of {one.whole} repeats{_between(one)})"
    return f"{head} in {significant(one.total_s, 3)} s{spread}{told}"


def _rows(one: Chat, turns: _Measured, with_turns: bool) -> Iterator[tuple[str, ...]]:
    for turn in one.turns if with_turns else ():
        rows = turns.get((one.chat, one.route, turn.turn), [])
        yield (*_names(one), str(turn.turn), *_figures(turn, rows), _verdict(turn))
    sums = f"Sum over all turns; median of {many(one.whole, 'whole repeat')}"
    yield (
        *_names(one),
        "all",
        Told(_of(one.whole, one.repeats), "Repeats of which every turn is valid, of all."),
        _count(one.prompt_tokens, f"{sums}."),
        Told(_share(one.cached_tokens, one.prompt_tokens), f"Cached / prompt tokens. {sums}."),
        MISSING,
        MISSING,
        MISSING,
        _number(one.total_s, _range(one), f"{sums}{_between(one)}, pauses left out. Witness: {CLOCK}."),
        "ok" if one.whole else "never whole",
    )


def _names(one: Chat) -> tuple[str, str]:
    return visible(one.route, 60), visible(one.chat, 60)


def _figures(turn: ChatTurn, rows: Sequence[Measurement]) -> tuple[str, ...]:
    valid = tuple(row for row in rows if sound(row))

    def source(key: str) -> str:
        low, high = turn.ranges.get(key, (None, None))
        spread = "" if low is None or high is None else f", range {written(low, key)} to {written(high, key)}"
        return measured(valid, key, f"Median of {many(turn.valid, 'valid repeat')}{spread}.")

    def timed(key: str) -> str:
        return _number(getattr(turn, key), turn.ranges.get(key), source(key))

    due = _share(turn.expected_cached, turn.prompt_tokens)
    return (
        Told(_of(turn.valid, turn.valid + turn.invalid), _named(valid)),
        _count(turn.prompt_tokens, source("prompt_tokens")),
        Told(_share(turn.cached_tokens, turn.prompt_tokens), source("prefix_reuse")),
        MISSING if turn.turn == 1 else Told(due, _DUE),
        timed("ttft_s"),
        timed("decode_tok_s"),
        timed("total_s"),
    )


def _named(valid: Sequence[Measurement]) -> str:
    """Under which names the measurements of a turn are found."""
    names = ", ".join(f"{visible(row.trial_id, 100)}" for row in valid[:MOST_NAMED])
    more = f" and {len(valid) - MOST_NAMED} more" if len(valid) > MOST_NAMED else ""
    return (
        f"Valid measurements, of all. Valid in measurements.csv and journal.jsonl: {names or 'none'}{more}."
    )


def _of(part: int, whole: int) -> str:
    return f"{part}" if part == whole else f"{part} of {whole}"


def _verdict(turn: ChatTurn) -> str:
    why = ", ".join(f"{count} x {reason}" for reason, count in turn.excluded.items())
    if not turn.valid and not turn.invalid:
        return "not measured"
    text = "ok" if turn.valid else "invalid"
    if turn.invalid and turn.valid:
        text += f", {turn.invalid} excluded"
    return Told(text if turn.valid or not why else f"{text}: {why}", f"Excluded: {why or 'none'}.")


def _range(one: Chat) -> tuple[float, float] | None:
    if one.whole < 2 or one.fastest_s is None or one.slowest_s is None:
        return None
    return one.fastest_s, one.slowest_s


def _between(one: Chat) -> str:
    low, high = _range(one) or (0.0, 0.0)
    return f", {significant(low, 3)} to {significant(high, 3)} s" if low < high else ""


def _count(value: int | None, source: str) -> str:
    return MISSING if value is None else Told(f"{value:,}", source)


def _number(value: float | None, within: tuple[float, float] | None, source: str) -> str:
    if value is None:
        return MISSING
    spread = "" if within is None else spread_percent(value, *within)
    return Told(" ".join(filter(None, (significant(value, 3), spread))), source)


def _share(part: int | None, whole: int | None) -> str:
    return MISSING if part is None or not whole else f"{part / whole:.1%}"
