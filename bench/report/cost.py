"""What measuring one exchange cost, reduced: how long its scrapes took, and how the client kept up."""

from __future__ import annotations

from statistics import median

from msgspec import Struct

from bench.records import ClientHealth, Exchange


class Cost(Struct, frozen=True, kw_only=True):
    """Scrapes while an exchange was under way, and the health of the client meanwhile."""

    scrapes: int = 0
    scrape_ms: float | None = None
    """Median of the scrapes; `None` without one."""
    longest_ms: float | None = None
    share: float | None = None
    """Their sum / duration of the exchange."""
    client: ClientHealth | None = None


def cost_of(exchange: Exchange) -> Cost:
    """The cost of measuring one exchange; scrapes before and after it are not in it."""
    took = exchange.samples.took_ns
    if not took:
        return Cost(client=exchange.client)
    return Cost(
        scrapes=len(took),
        scrape_ms=median(took) / 1e6,
        longest_ms=max(took) / 1e6,
        share=sum(took) / exchange.ended_ns if exchange.ended_ns > 0 else None,
        client=exchange.client,
    )
