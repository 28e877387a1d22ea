"""Sends recorded chats: turn after turn, each built on the one before it.

All turns of a chat go out behind one salt, so the first is cold and every other should find the turn before
it in the cache. What is repeated is a chat from its beginning, behind a fresh salt: turns that are valid
already are sent again for their place, unmeasured.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence

import msgspec
from msgspec import Struct

from bench.errors import EngineError
from bench.prompting.conversation import Conversation, TurnPrompt, messages_at, turn_prompt
from bench.records import Exchange, Purpose, RunInfo, Trial
from bench.run.forecast.chats import uses_own_answers
from bench.run.lifecycle.stage import Stage
from bench.run.preflight.chats import chat_ids
from bench.run.progress import Progress
from bench.run.sender import Sender


class _Said(Struct, frozen=True, kw_only=True):
    """A chat as far as it has come."""

    chat: Conversation
    salt: str
    cache_salt: str | None
    before: TurnPrompt | None = None
    """The turn before."""
    answered: int = 0
    """Tokens of its answer."""
    answers: tuple[str, ...] | None = None
    """The server's own, where these go into the prompts."""

    def and_then(self, turn: TurnPrompt, exchange: Exchange) -> _Said:
        """With one more turn and its answer."""
        told = exchange.usage.completion_tokens if exchange.usage else None
        return msgspec.structs.replace(
            self,
            before=turn,
            answered=exchange.trial.output_tokens if told is None else told,
            answers=None if self.answers is None else (*self.answers, exchange.text),
        )


class ChatSender:
    """Sends the chats of one run."""

    def __init__(
        self,
        info: RunInfo,
        stage: Stage,
        progress: Progress,
        sender: Sender,
        chats: Mapping[str, Conversation],
    ) -> None:
        self._suite = info.suite
        self._stage = stage
        self._progress = progress
        self._sender = sender
        self._chats = chats
        self.paused_s = 0.0
        """Time spent in the pauses between turns."""

    async def send(self, group: Sequence[Trial], wanted: Sequence[Trial]) -> None:
        """One chat on one route, up to the last of the `wanted` turns. With a turn that fails it ends: the
        rest is left for the retry."""
        asked = {trial.id for trial in wanted}
        last = max(place for place, trial in enumerate(group) if trial.id in asked)
        care, route = self._sender.care, group[0].route
        await self._sender.reset_cache(route)
        attempt = self._sender.next_attempt(tuple(group))
        said = await asyncio.to_thread(self._begin, group[0], attempt)  # salts may need the server's count
        for trial in group[: last + 1]:
            if route in care.lost or trial.id in care.left:
                return
            turn = await self._compose(trial, said)
            await self._pause(turn)
            purpose: Purpose = "trial" if trial.id in asked else "prime"
            exchange = await self._sender.send(trial, turn.prompt, attempt, purpose)
            if exchange.failure is not None:
                return
            said = said.and_then(turn, exchange)

    def _begin(self, trial: Trial, attempt: int) -> _Said:
        """The chat before its first turn, with a salt that no other attempt has."""
        pair = self._sender.pair(trial)
        key = f"{pair}/chat/{trial.chat}/{trial.repeat}/{attempt}"
        salt, cache_salt = self._stage.composers[trial.route].salt(key)
        answers = () if uses_own_answers(self._suite) else None
        return _Said(chat=self._chats[trial.chat], salt=salt, cache_salt=cache_salt, answers=answers)

    async def _compose(self, trial: Trial, said: _Said) -> TurnPrompt:
        """The next turn, counted by the server's own tokenizer."""
        self._progress.enter("composing", time.monotonic_ns())
        started = time.monotonic()
        messages = messages_at(said.chat, trial.turn, salt=said.salt, answers=said.answers)
        ids = await chat_ids(self._stage.open_routes[trial.route], messages)
        self._sender.exchanger.server_s += time.monotonic() - started
        if ids is None:  # refused before the run began, but for a server that is another one now
            raise EngineError(f"route {trial.route}: the server does not count chats any more")
        settings = self._suite.chats
        turn = turn_prompt(
            said.chat,
            trial.turn,
            salt=said.salt,
            count_chat=lambda _: ids,
            previous=said.before,
            answers=said.answers,
            keep_text=self._suite.prompt.keep_text,
            think=settings.think if settings else 0.0,
        )
        recipe = msgspec.structs.replace(
            turn.prompt.recipe,
            cache_salt=said.cache_salt,
            fixed_prefix=self._stage.composers[trial.route].template.fixed_prefix,
            shared=None if said.before is None else (turn.shared, turn.shared + said.answered),
        )
        prompt = msgspec.structs.replace(turn.prompt, recipe=recipe, pair=self._sender.pair(trial))
        return msgspec.structs.replace(turn, prompt=prompt)

    async def _pause(self, turn: TurnPrompt) -> None:
        """As long as the user took then, if the suite wants that."""
        if not turn.think_s:
            return
        self._progress.enter("pausing between turns", time.monotonic_ns())
        await asyncio.sleep(turn.think_s)
        self.paused_s += turn.think_s
