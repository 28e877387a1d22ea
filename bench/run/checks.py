"""Refuses a wrong setup before the first expensive request."""

from __future__ import annotations

from bench.errors import SuiteError
from bench.records import Suite
from bench.run.session import Session


def check_limits(suite: Suite, session: Session) -> None:
    """Raises `SuiteError` for a tier that the server cannot serve with its output.

    Newer servers clamp the output silently instead of refusing, so we refuse before sending.
    """
    limit = session.facts.max_model_len
    if limit is None:
        return
    source = session.facts.sources.get("max_model_len", "the server")
    for tier in suite.tiers:
        if tier + suite.output_tokens > limit:
            raise SuiteError(
                f"route {session.route.name}: tier {tier:,} + {suite.output_tokens:,} output tokens exceed "
                f"the served limit of {limit:,} tokens ({source}): lower the tier or raise that limit"
            )
