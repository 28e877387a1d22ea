"""Any OpenAI-compatible server: the client's own numbers, and nothing of the engine's."""

from __future__ import annotations

from bench.engines.base import Dialect, Probes


def recognises(probes: Probes, page: str | None) -> bool:
    """Everything that speaks HTTP is at least this."""
    return True


DIALECT = Dialect(name="generic", title="any OpenAI-compatible server (no metrics)", recognises=recognises)
