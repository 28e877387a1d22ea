"""The recorded chats of a suite, and how long their prompts will be."""

from __future__ import annotations

from itertools import accumulate
from math import ceil
from pathlib import Path

from bench.errors import SuiteError
from bench.plan.chats import MOST_TURNS, ChatPlan
from bench.prompting.conversation import Conversation, load_chats, think_time
from bench.records import RunInfo, Suite

_CHARACTERS, _AROUND = 4.0, 8
"""Of a token, and tokens that a template puts around a message: until a server has counted."""


def chats_of(suite: Suite, folder: Path) -> list[Conversation]:
    """The chats of a suite. Raises `SuiteError` for files that hold none, and for more than can be meant."""
    chats = load_chats(suite.chats, folder)
    turns = sum(chat.turns for chat in chats)
    if turns > MOST_TURNS:
        raise SuiteError(
            f"files: they hold {len(chats):,} chats with {turns:,} turns, and {MOST_TURNS:,} are sent at "
            "most: lower most_chats or most_turns"
        )
    return chats


def expected_chats(suite: Suite, folder: Path) -> tuple[ChatPlan, ...]:
    """What is known of the chats' lengths before any server is asked: an estimate from their characters."""
    return tuple(planned_chat(suite, chat, None) for chat in chats_of(suite, folder))


def chats_as_planned(info: RunInfo, folder: Path) -> dict[str, Conversation]:
    """The chats of a run by file and place. Raises `SuiteError` when one is not there, or not what it was."""
    try:
        found = {chat.name: chat for chat in chats_of(info.suite, folder)}
    except SuiteError as error:
        where = "the run's chats start in the suite's folder: give the suite file beside --resume"
        raise SuiteError(f"{error}; {where}") from error
    for name, sha256 in info.chats.items():
        if name not in found or found[name].sha256 != sha256:
            raise SuiteError(f"{name}: this chat is not the one that the run was begun with: start a new run")
    return found


def uses_own_answers(suite: Suite) -> bool:
    """Whether the server's own answers, and not the recorded ones, stand in the prompts."""
    return suite.chats is not None and suite.chats.answers == "own"


def planned_chat(suite: Suite, chat: Conversation, counted: int | None) -> ChatPlan:
    """Tokens of every turn, in proportion to its characters; the server's own answers come on top, each as
    long as it may be. `counted`: tokens of the last turn without those."""
    own = uses_own_answers(suite)
    sizes = [
        _AROUND + (0.0 if own and message.role == "assistant" else len(message.content) / _CHARACTERS)
        for message in chat.messages
    ]
    opening = 2 * _AROUND  # salt, and what asks for an answer
    ends = [place for place, message in enumerate(chat.messages) if message.role == "user"]
    totals = list(accumulate(sizes, initial=float(opening)))
    lengths = [totals[place + 1] for place in ends]
    scale = 1.0 if counted is None else counted / lengths[-1]
    answer = suite.output_tokens if own else 0
    think = suite.chats.think if suite.chats else 0.0
    pauses = tuple(think_time(chat, turn, think) or 0.0 for turn in range(1, chat.turns + 1))
    return ChatPlan(
        name=chat.name,
        pauses_s=pauses,
        sha256=chat.sha256,
        tokens=tuple(ceil(length * scale - 1e-9) + turn * answer for turn, length in enumerate(lengths)),
    )
