"""Recorded chats before they are sent: how long each becomes, and whether a server can take it.

A chat is personal and long: it is counted by the server's own tokenizer, which keeps nothing, and never by
a request to the model.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Literal

from bench.errors import EngineError, SuiteError
from bench.plan.chats import ChatPlan
from bench.prompting.conversation import messages_at
from bench.prompting.template import Message
from bench.records import Suite
from bench.run.forecast.chats import chats_of, planned_chat, uses_own_answers
from bench.run.openroute import OpenRoute
from bench.run.preflight.probe import server_ids
from bench.wire.failures import StatusError

Finding = tuple[Literal["ok", "warn", "fail"], Literal["suite", "engine"], str]
"""State, whose fault it is, and what was found."""

_SALT = "river lantern harbour archive engine valley market"
"""As long as a salt, for counting alone."""


async def counted_chats(suite: Suite, opened: OpenRoute, folder: Path) -> tuple[ChatPlan, ...]:
    """How long the turns of a suite's chats become, once a server has counted the last turn of each.

    Raises `SuiteError` where it counts no chats, `EngineError` when it does not answer.
    """
    found = []
    for chat in await asyncio.to_thread(chats_of, suite, folder):
        answers = ["." for _ in range(chat.turns)] if uses_own_answers(suite) else None
        ids = await chat_ids(opened, messages_at(chat, chat.turns, salt=_SALT, answers=answers))
        if ids is None:
            raise SuiteError(
                f"route {opened.route.name}: this server cannot tell how many tokens a chat has (vLLM and "
                "llama.cpp can), so no turn's reuse could be proven: leave [chats] out"
            )
        found.append(planned_chat(suite, chat, len(ids)))
    return tuple(found)


async def chat_ids(opened: OpenRoute, messages: list[Message]) -> list[int] | None:
    """Token ids of a chat by the server's own tokenizer; `None`: it has none for chats.

    Raises `EngineError` when it does not answer. What a server says of a request it refuses may be the chat
    itself, so that is left out.
    """
    try:
        return await server_ids(opened, messages)
    except StatusError as error:
        message = f"route {opened.route.name}: its tokenizer answers a chat with HTTP {error.status}"
        raise StatusError(message, error.status) from None


async def chat_findings(suite: Suite, opened: OpenRoute, folder: Path) -> list[Finding]:
    """What a check says of the suite's chats on one route; nothing where there are none."""
    if suite.chats is None:
        return []
    name, facts = opened.route.name, opened.facts
    if facts.prefix_caching is False:
        text = (
            "prefix caching is off, so no turn will reuse the one before: switch it on, or leave out [chats]"
        )
        return [("fail", "suite", text)]
    try:
        chats = await counted_chats(suite, opened, folder)
    except SuiteError as error:
        return [("fail", "suite", str(error).removeprefix(f"route {name}: "))]
    except EngineError as error:
        return [("fail", "engine", f"the chats cannot be counted: {error}")]
    found = [problem for chat in chats if (problem := _too_long(suite, opened, chat))]
    if found:
        return found
    turns = sum(len(chat.tokens) for chat in chats)
    longest = max(chat.tokens[-1] for chat in chats)
    text = f"{len(chats)} with {turns} turns; the longest becomes a prompt of {longest:,} tokens"
    return [("ok", "suite", text), *_unprovable(opened, chats)]


def _too_long(suite: Suite, opened: OpenRoute, chat: ChatPlan) -> Finding | None:
    facts, longest = opened.facts, chat.tokens[-1] + suite.output_tokens
    whole = f"{chat.name}: its last turn has {chat.tokens[-1]:,} + {suite.output_tokens:,} output tokens"
    if facts.max_model_len is not None and longest > facts.max_model_len:
        return "fail", "suite", f"{whole}, more than the served {facts.max_model_len:,}: lower most_turns"
    if facts.kv_capacity_tokens is not None and longest > facts.kv_capacity_tokens:
        return (
            "fail",
            "suite",
            f"{whole}, more than the KV cache's {facts.kv_capacity_tokens:,}: it cannot be reused; "
            "lower most_turns",
        )
    return None


def _unprovable(opened: OpenRoute, chats: tuple[ChatPlan, ...]) -> list[Finding]:
    """Turns that begin with less than the cache's block."""
    pairs = [pair for chat in chats for pair in zip(chat.tokens, chat.tokens[1:], strict=False)]
    expected = [
        opened.dialect.expected_cached(before, now, opened.facts, opened.route.speculation)
        for before, now in pairs
    ]
    short = sum(one is not None and one[0] == 0 for one in expected)
    if not short:
        return []
    block = f"block of {opened.facts.block_size or 'unknown'} tokens"
    return [("warn", "suite", f"{short} of {len(pairs)} turns are too short to prove their reuse ({block})")]
