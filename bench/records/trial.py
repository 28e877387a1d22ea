"""One planned request."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from bench.records.suite import Condition, Endpoint


class Trial(Struct, frozen=True, kw_only=True):
    """One planned request: route x tier x condition x repeat."""

    id: str
    """`route/tier/condition/repeat` (`.n` behind the repeat for the n-th replay, `@4.2` for the second
    stream of a wave of four), and `~task` behind it in a suite of several tasks; of a turn of a chat
    `route/chat-2/turn-3/repeat`. Unique in a run."""
    route: str
    tier: int
    """Prompt tokens as planned. Of a turn an estimate: what it has is counted when it is sent."""
    condition: Condition
    repeat: int
    """From 1."""
    replay: int = 0
    """1 for the first replay of its cold prompt, 2 for the second ...; 0 for cold and salted."""
    task: str = "continue"
    output_tokens: int = 0
    """Requested output length (max_tokens)."""
    side: Literal["under", "over"] | None = None
    """Condition `over-limit`: the side of the drafter limit this prompt lies on; the tier follows from it."""
    concurrency: int = 1
    """Requests that are released together with this one, itself included: the level. 1: it is sent alone."""
    stream: int = 0
    """Place in its wave, from 1; 0 for a request that is sent alone."""
    chat: str = ""
    """Condition `turn`: file and place of the recorded chat, never a word of it."""
    turn: int = 0
    """Condition `turn`: which one of the chat, from 1."""
    shared: int = 0
    """Condition `turn`: tokens that the turn before should leave in the cache, as planned."""
    pause_s: float = 0.0
    """Condition `turn`: how long is waited before it, as the user did then."""

    @property
    def follows(self) -> bool:
        """Whether its prompt begins with what an earlier one has put into the cache: a replay does, and
        every turn of a chat but the first."""
        return self.condition == "replay" or self.turn > 1


class Needle(Struct, frozen=True, kw_only=True):
    """A fact hidden in a prompt, and how an answer that gives it back can be told."""

    vault: str
    code: str
    """Six digits: no reader guesses them."""
    depth: float
    """Where in the body it stands: 0 for the front, 1 for the end."""


class PromptRecipe(Struct, frozen=True, kw_only=True):
    """How a prompt was made: enough to make it again, and to prove that it is the same one."""

    sha256: str
    """Of the request body's prompt part (messages, prompt text or token ids) as UTF-8 JSON."""
    tokens: int
    """Local count, template included; equals the tier."""
    endpoint: Endpoint
    corpus: str
    corpus_sha256: str
    task: str
    acceptance_class: str = "unknown"
    """How easily a drafter follows the answers to this task: `high`, `middle`, `low`."""
    needles: tuple[Needle, ...] = ()
    """The facts hidden in the body: what its answer is graded by."""
    start: int
    """Token offset of the body in the corpus."""
    filler: int = 0
    """One-token words appended to reach the exact length."""
    salt: str = ""
    """The salt line, without its newline; differs for every prompt of every run."""
    cache_salt: str | None = None
    """Value of the request field `cache_salt`, where that method is used."""
    overhead: int = 0
    """Tokens the chat template adds around our text, measured."""
    fixed_prefix: int = 0
    """Tokens before the salt that every prompt of this route shares (template opening)."""
    text: str | None = None
    """The prompt itself, only with `keep_text`."""
    follows: str | None = None
    """Of a turn of a chat: `sha256` of the turn before, which was sent right before it."""
    shared: tuple[int, int] | None = None
    """Of such a turn: tokens it has in common with what the server has computed by then. At least those
    with the prompt of the turn before; at most its answer's, too."""
