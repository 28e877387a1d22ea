"""Everything a judge may look at: one exchange, its numbers, and what came before it."""

from __future__ import annotations

from msgspec import Struct

from bench.analysis.verdicts.counters import CachedCount, Deltas, SpeculationCount
from bench.analysis.verdicts.timing import Times
from bench.engines.base import Dialect
from bench.records import Exchange, Measurement, ServerFacts, Speculation


class History(Struct, frozen=True, kw_only=True):
    """What earlier exchanges of the same route say about this one."""

    cold_seen: bool = False
    """An earlier exchange of this run carried the same prompt."""
    cold_failed: bool = False
    """It did, and none of them succeeded."""
    cold_ttft_s: float | None = None
    cold_text: str | None = None
    before_tokens: int | None = None
    """Prompt tokens of the turn before; it is the "cold" one of a turn of a chat."""
    restarted_since_cold: bool = False
    tier_ttft_s: float | None = None
    """Median TTFT of earlier cold and salted exchanges of the tier that reused nothing."""
    tier_colds: int = 0
    """How many those are."""
    change: str | None = None
    """What happened to the server within this exchange: `restart`, `replicas`, or nothing."""
    change_detail: str = ""


class Case(Struct, frozen=True, kw_only=True):
    """One exchange before its judges."""

    exchange: Exchange
    numbers: Measurement
    """All figures; its verdict is a placeholder."""
    dialect: Dialect
    facts: ServerFacts
    declared: Speculation | None
    deltas: Deltas
    cached: CachedCount
    counted: SpeculationCount
    times: Times
    expected: tuple[int, int] | None
    """Least and most tokens a replay of this prompt reuses."""
    history: History
    requests: int = 1
    """Requests whose counts these are: more than 1 where the case is a whole wave."""
    longest: tuple[int, int] | None = None
    """Prompt and output tokens of a wave's longest sequence: a drafter's limit is the batch's."""

    @property
    def prompt_tokens(self) -> int:
        """Prompt length by the best witness: the server's, else the plan's."""
        return self.numbers.prompt_tokens or self.exchange.prompt.tokens or self.exchange.trial.tier

    @property
    def k(self) -> int:
        """Tokens per draft: declared, else seen, else 0."""
        if self.declared is not None:
            return self.declared.num_speculative_tokens
        return self.facts.num_speculative_tokens or len(self.counted.per_position or ())
