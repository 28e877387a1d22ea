"""What an engine works on: jobs, their state, and the tokens that come out."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from msgspec import Struct

Finish = Literal["length", "stop", "abort"]


class Behaviour(Struct, frozen=True, kw_only=True):
    """How an engine departs from its profile: the faults that live in here."""

    salt_ignored: bool = False
    evicts: bool = False
    """Nothing stays in the prefix cache once its request is done."""
    first_replay_misses: bool = False
    block_extra: int = 0
    """Tokens by which real blocks are larger than the page says."""
    never_drafts: bool = False
    drafter_limit: int | None = None
    past_limit: str | None = None
    warns_every_step: bool = False


class Job(Struct, frozen=True, kw_only=True):
    """A request as the engine sees it."""

    id: str
    prompt: np.ndarray
    """Token ids, uint32."""
    answer: np.ndarray
    """Token ids it will produce, as many as will be sent."""
    finish: Finish = "length"
    """Why it ends after them."""
    max_tokens: int = 0
    """What the request asked for; only for the metrics."""
    salt: str = ""
    """`cache_salt`."""
    arrived_s: float
    seed: int = 0
    chain: tuple[bytes, ...] | None = None
    """The prompt's block hashes if they are known already (see `Engine.hashes`)."""


class Emission(Struct, frozen=True, kw_only=True):
    """Tokens of one request at the end of one engine step."""

    job: str
    at_s: float
    """When the step ended."""
    start: int
    """Place of the first of them in the answer."""
    count: int
    first: bool = False
    finish: Finish | None = None


@dataclass
class Sequence:
    """A job's state in the engine, and in the end the truth about it."""

    job: Job
    arrived_s: float
    ready_s: float
    hashes: list[bytes]
    scheduled_s: float | None = None
    first_s: float | None = None
    last_s: float | None = None
    ended_s: float | None = None
    finish: Finish | None = None
    cached: int = 0
    computed: int = 0
    """Tokens whose KV is there: of the prompt, then of the answer."""
    emitted: int = 0
    held: list[bytes] = field(default_factory=list)
    unnamed: int = 0
    drafts: int = 0
    draft_tokens: int = 0
    accepted: int = 0
    preemptions: int = 0
    over_limit_steps: int = 0
    stream: deque[int] = field(default_factory=deque)
    admission_due: bool = False
    """The next prefill chunk carries the cost of admission."""
    prefill_pace: float = 1.0
    decode_pace: float = 1.0
    published: str | None = None

    @property
    def length(self) -> int:
        """Prompt tokens."""
        return len(self.job.prompt)

    @property
    def context(self) -> int:
        """Tokens of the sequence so far."""
        return self.length + self.emitted

    @property
    def goal(self) -> int:
        """Tokens to compute before it can decode: its prompt, and after a preemption its answer
        so far (but the last token, which the next step computes)."""
        return self.context - 1 if self.emitted else self.length

    @property
    def decoding(self) -> bool:
        return self.emitted > 0 and self.computed >= self.goal
