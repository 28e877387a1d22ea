"""Empties a server's prefix cache on request, and proves that it is empty: never trusted.

Servers answer 200 and have done nothing (blocks still held, an offload tier that survives), so the
answer is read, and the same probe prompt is sent before and after: what is cached of it then tells.
"""

from __future__ import annotations

from collections.abc import Mapping

from bench.engines.base import Dialect
from bench.errors import EngineError
from bench.records import Exchange, ServerFacts
from bench.run.openroute import OpenRoute

PATHS = {"vllm": "/reset_prefix_cache", "sglang": "/flush_cache"}
_TIMEOUT_S = 60.0
_PROBE_BLOCKS = 3  # a drafter drops one block, and the last one is never full
_LEAST_PROBE = 256


def probe_tokens(facts: ServerFacts, longest: int) -> int:
    """Length of a probe prompt whose repetition must hit: a few blocks, no longer than a trial."""
    return min(longest, max(_LEAST_PROBE, _PROBE_BLOCKS * (facts.block_size or 0) + 1))


async def reset_cache(opened: OpenRoute) -> str | None:
    """Asks the server to empty its cache; `None` when it says that it has, else why not."""
    assert opened.route.reset is not None  # noqa: S101 - callers ask before
    path = PATHS[opened.route.reset]
    try:
        answer = await opened.client.post_text(opened.root + path, {}, timeout_s=_TIMEOUT_S)
    except EngineError as error:
        return str(error)
    return refusal(answer)


def refusal(answer: str) -> str | None:
    """What a reset's answer admits: newer vLLM says `{"success": false}` with status 200."""
    text = answer.strip()
    if '"success"' in text and "false" in text.lower():
        return f"the server answered {text[:80]}: blocks are still held"
    return None


def proof(again: Exchange, dialect: Dialect) -> tuple[bool | None, str]:
    """Whether the probe, sent again after the reset, was computed anew; `None`: nothing tells.

    Cached tokens beyond the template, local or external, disprove it.
    """
    if again.failure is not None:
        return None, f"the probe failed: {again.failure.message}"
    reported: Mapping[str, float] = dialect.reported(again.reported)
    counts = [again.usage.cached_tokens if again.usage else None, reported.get("cached_tokens")]
    if again.before and again.after:
        for name in ("cached_tokens", "prefix_hits", "external_cached_tokens", "external_prefix_hits"):
            if name in again.after.values:
                counts.append(again.after.values[name] - again.before.values.get(name, 0.0))
    known = [count for count in counts if count is not None]
    if not known:
        return None, "neither usage nor counters tell cached tokens"
    most = max(known)
    allowed = again.prompt.fixed_prefix
    return (
        most <= allowed,
        f"{most:,.0f} of {again.prompt.tokens:,} tokens of the probe were cached afterwards",
    )
