"""From two metrics pages to what one exchange moved.

A counter that is on neither page is absent, not zero; one that is new on a readable second page
started at zero; one that fell or vanished says nothing about the exchange and much about the server;
one that either page has in lines that cannot be read is unknown, and neither fell nor vanished.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from msgspec import Struct

from bench.engines.base import Dialect, rounding
from bench.engines.metrics import without
from bench.records import Scrape, ServerFacts

PLACES = "accepted_tokens_per_pos"
"""Family of the counters by place in the draft: `.0`, `.1`, ... follow."""
ROUGH = 0.02
"""A rise that rounding can change by more than this share is no number."""
_LEVELS = {
    "running",
    "waiting",
    "kv_usage",
    "kv_capacity_tokens",
    "kv_capacity_blocks",
    "kv_used_tokens",
    "block_size",
    "context_len",
    "process_start",
    "spec_draft_tokens",
    "window_acceptance_length",
}
"""Canonical names that are levels, not counters: never differenced."""


class Deltas(Struct, frozen=True, kw_only=True):
    """What one exchange moved, by canonical name."""

    values: dict[str, float] = {}
    """Rise of every counter that is on the later page."""
    fell: tuple[str, ...] = ()
    """Counters that are lower on the later page."""
    vanished: tuple[str, ...] = ()
    """Counters that only the earlier page has."""
    why: str | None = None
    """Why there are no values at all."""
    slack: dict[str, float] = {}
    """How far a rise may be off because the engine prints few digits."""
    unknown: tuple[str, ...] = ()
    """Names, without suffix, that one of the pages has in lines that cannot be read."""

    def get(self, name: str) -> float | None:
        """Rise of a counter, or None."""
        return self.values.get(name)

    def count(self, name: str) -> int | None:
        """The same as a whole number."""
        rise = self.values.get(name)
        return None if rise is None else round(rise)

    def absence(self, name: str, otherwise: str) -> str:
        """Why a counter has no rise."""
        if self.why is None and name in self.unknown:
            return "a line of it on the metrics page cannot be read"
        return self.why or otherwise

    def rough(self, name: str, of: float | None = None) -> str | None:
        """Why a rise is too uncertain to be a number: its slack against `of`, else against itself."""
        rise, off = self.values.get(name), self.slack.get(name, 0.0)
        if rise is None or off <= ROUGH * (rise if of is None else of):
            return None
        return f"the server prints few digits of its counters: {rise:,.0f} is known to ±{off:,.0f} only"


def difference(before: Scrape | None, after: Scrape | None, dialect: Dialect) -> Deltas:
    """Rises between two pages of one server."""
    why = _unreadable(before, "before") or _unreadable(after, "after")
    if before is None or after is None or why:
        return Deltas(why=why or "no metrics page")
    unknown = tuple(sorted({*before.unknown, *after.unknown}))
    first, last = without(before.values, unknown), without(after.values, unknown)
    values: dict[str, float] = {}
    slack: dict[str, float] = {}
    fell: list[str] = []
    for name, later in last.items():
        if name in _LEVELS:
            continue
        earlier = first.get(name, 0.0)
        off = rounding(earlier, dialect.digits) + rounding(later, dialect.digits)
        if later < earlier:
            fell.append(name)
            continue
        values[name] = later - earlier
        if off:
            slack[name] = off
    vanished = tuple(n for n in first if n not in last and n not in _LEVELS)
    if not values and not fell and not vanished:
        legible = "legible " if unknown else ""
        return Deltas(why=f"the metrics page has no {legible}counter of {dialect.name}", unknown=unknown)
    return Deltas(values=values, fell=tuple(fell), vanished=vanished, slack=slack, unknown=unknown)


def _unreadable(scrape: Scrape | None, which: str) -> str | None:
    if scrape is None:
        return f"no metrics page {which} the exchange"
    if not scrape.values:
        return f"no metrics {which} the exchange: {scrape.problem or f'status {scrape.status}'}"
    return None


# --- Derived counts -------------------------------------------------------------------------------


class CachedCount(Struct, frozen=True, kw_only=True):
    """Cached prompt tokens by counters."""

    tokens: int | None = None
    external: int | None = None
    """Part of `tokens` that came from a cache outside the device."""
    source: str = ""
    slack: float = 0.0


def cached_prompt_tokens(
    deltas: Deltas, facts: ServerFacts, prompt_tokens: int | None, requests: int = 1
) -> CachedCount:
    """Prompt tokens found in a cache, local and external ones together, by the best counter there is.

    In this order: counters by source; prefix-cache hits; the old hits, in blocks or tokens; prompt
    tokens less those really computed (one request's histogram sum).
    """
    local, external = deltas.count("cached_tokens"), deltas.count("external_cached_tokens")
    if local is not None or external is not None:
        off = deltas.slack.get("cached_tokens", 0.0)
        total = (local or 0) + (external or 0)
        return CachedCount(tokens=total, external=external, source="counter cached_tokens", slack=off)
    hits, beyond = deltas.count("prefix_hits"), deltas.count("external_prefix_hits")
    if hits is not None:
        total = hits + (beyond or 0)
        return CachedCount(tokens=total, external=beyond, source="counter prefix_hits")
    old = _old_hits(deltas, facts, prompt_tokens)
    if old is not None:
        return old
    computed = deltas.get("computed_prompt_tokens_sum")
    if computed is not None and prompt_tokens and deltas.count("computed_prompt_tokens_count") == requests:
        return CachedCount(tokens=prompt_tokens - round(computed), source="histogram computed_prompt_tokens")
    return CachedCount()


def _old_hits(deltas: Deltas, facts: ServerFacts, prompt_tokens: int | None) -> CachedCount | None:
    """`gpu_prefix_cache_*`: blocks up to vLLM 0.8.5 and tokens from 0.9.0, under the same name.

    The exchange itself tells which: every lookup of a prompt counts all of it, in whole blocks or
    in tokens.
    """
    hits, queries = deltas.count("prefix_hits_gpu"), deltas.get("prefix_queries_gpu")
    if hits is None or not queries or not prompt_tokens:
        return None
    block = facts.block_size
    if queries >= prompt_tokens:
        return CachedCount(tokens=hits, source="counter gpu_prefix_cache_hits (tokens)")
    if block and math.isclose(queries, prompt_tokens / block, rel_tol=0.01, abs_tol=1.0):
        return CachedCount(tokens=hits * block, source=f"counter gpu_prefix_cache_hits (blocks of {block})")
    return None


class SpeculationCount(Struct, frozen=True, kw_only=True):
    """Drafts and what became of them; None where the engine does not say."""

    drafts: int | None = None
    draft_tokens: int | None = None
    accepted_tokens: int | None = None
    per_position: tuple[int, ...] | None = None
    source: str = ""
    drafts_source: str = ""


def speculation(
    deltas: Deltas, reported: Mapping[str, float], facts: ServerFacts, output_tokens: int | None
) -> SpeculationCount:
    """Counter rises, with the reply's own figures in their place where it has any.

    Where only verify steps are counted (SGLang): every step yields one token and what it accepted,
    and prefill yields the first, so accepted = output - 1 - steps, and drafted = steps * k.
    """
    drafts = deltas.count("drafts")
    counted = SpeculationCount(
        drafts=drafts,
        draft_tokens=deltas.count("draft_tokens"),
        accepted_tokens=deltas.count("accepted_tokens"),
        per_position=_per_position(deltas),
        source="counters",
        drafts_source="counters",
    )
    if "draft_tokens" in reported and "accepted_tokens" in reported:
        own = {name: round(reported[name]) for name in ("draft_tokens", "accepted_tokens")}
        told = "drafts" in reported or own["draft_tokens"] == 0
        return SpeculationCount(
            drafts=round(reported.get("drafts", 0.0)) if told else drafts,
            per_position=counted.per_position,
            source="reply",
            drafts_source="reply" if told else "counters",
            **own,
        )
    steps, k = deltas.count("verify_calls"), facts.num_speculative_tokens
    if drafts is None and steps is not None and output_tokens is not None:
        return SpeculationCount(
            drafts=steps,
            draft_tokens=steps * k if k else None,
            accepted_tokens=max(0, output_tokens - 1 - steps) if steps else 0,
            source="verify steps",
            drafts_source="verify steps",
        )
    return counted


def _per_position(deltas: Deltas) -> tuple[int, ...] | None:
    """By place; what a server calls by anything but a number of up to four digits is no place."""
    prefix = f"{PLACES}."
    named = ((name[len(prefix) :], rise) for name, rise in deltas.values.items() if name.startswith(prefix))
    found = {int(place): round(rise) for place, rise in named if re.fullmatch(r"[0-9]{1,4}", place)}
    if not found or max(found) > 1024:
        return None
    return tuple(found.get(place, 0) for place in range(max(found) + 1))


def conditional_acceptance(per_position: tuple[float, ...]) -> tuple[float | None, ...]:
    """Acceptance at each place, given that the place before was accepted.

    From the unconditional one (`Measurement.acceptance_per_position`): c[0] = p[0], c[i] = p[i] / p[i-1];
    None behind a place where nothing was ever accepted.
    """
    earlier = (1.0, *per_position)
    return tuple(
        here / before if before else None for here, before in zip(per_position, earlier, strict=False)
    )


def mean_of_one(deltas: Deltas, name: str) -> float | None:
    """A histogram's value for this exchange: its sum, if exactly one observation was added."""
    return deltas.get(f"{name}_sum") if deltas.count(f"{name}_count") == 1 else None
