"""Recorded chats in a suite and its plan: one trial a turn, in order. Pure; what a chat says is not here."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from msgspec import Struct

from bench.records import ChatSettings, Route, Suite, Trial

MOST_TURNS = 1_000
"""Turns of all chats on one route in one repeat."""
_FASTEST = 10.0
"""Largest factor for the recorded pauses."""


class ChatPlan(Struct, frozen=True, kw_only=True):
    """What a plan needs to know of a chat."""

    name: str
    """File and place."""
    sha256: str = ""
    """Of the chat."""
    tokens: tuple[int, ...]
    """Prompt tokens of each turn, as far as they are known before they are sent."""
    pauses_s: tuple[float, ...] = ()
    """Before each turn; empty: none."""


def turns(suite: Suite, route: Route, number: int, chat: ChatPlan, repeat: int) -> Iterator[Trial]:
    """The trials of the `number`-th chat on one route; each is built on the one before."""
    for turn, (before, tokens) in enumerate(pairwise((0, *chat.tokens)), 1):
        yield Trial(
            id=f"{route.name}/chat-{number}/turn-{turn}/{repeat}",
            route=route.name,
            tier=tokens,
            condition="turn",
            repeat=repeat,
            task="conversation",
            output_tokens=suite.output_tokens,
            chat=chat.name,
            turn=turn,
            shared=min(before, tokens),
            pause_s=chat.pauses_s[turn - 1] if chat.pauses_s else 0.0,
        )


def chat_problems(suite: Suite) -> Iterator[str]:
    """What is wrong with `[chats]`, as far as the suite alone tells."""
    chats = suite.chats
    if chats is None:
        return
    yield from _number_problems(chats)
    for route in suite.routes:
        if route.request.endpoint != "chat":
            yield (
                f'[chats] needs endpoint = "chat": route {route.name} has {route.request.endpoint!r}; '
                "give it a suite of its own"
            )


def _number_problems(chats: ChatSettings) -> Iterator[str]:
    if not chats.files or not all(file.strip() for file in chats.files):
        yield "[chats] files: at least one file of recorded chats"
    names = [file.replace("\\", "/").rsplit("/", 1)[-1] for file in chats.files]
    for name in names:
        if names.count(name) > 1:
            yield f"[chats] files: two are called {name!r}: chats are known by file and place, so rename one"
    if not 0 <= chats.think <= _FASTEST:
        yield f"[chats] think = {chats.think}: allowed are 0 (no pauses) to {_FASTEST:g}"
    for key in ("most_turns", "most_chats"):
        value = getattr(chats, key)
        if value is not None and not 1 <= value <= MOST_TURNS:
            yield f"[chats] {key} = {value}: allowed are 1 to {MOST_TURNS:,}"
