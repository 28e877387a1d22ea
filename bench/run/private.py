"""What is kept of an exchange whose words are personal: everything but the words."""

from __future__ import annotations

import msgspec

from bench.analysis.verdicts.blame import status_in
from bench.records import Exchange, Failure

_SAYS = frozenset({"status", "error_event", "malformed"})
"""Failures whose message holds what the server said, which may be what it was asked."""


def without_words(exchange: Exchange) -> Exchange:
    """The exchange without its answer, and without what a server said of the request it refused.

    Stamps, counts and the kind of a failure stay, so it is measured and judged like any other.
    """
    failure = None if exchange.failure is None else wordless(exchange.failure)
    return msgspec.structs.replace(exchange, text="", reasoning="", tool_text="", failure=failure)


def wordless(failure: Failure) -> Failure:
    """The failure without what the server said; whose fault it was can still be told."""
    code = failure.status if failure.kind == "status" else status_in(failure.body or "")
    message = failure.message
    if failure.kind in _SAYS:
        message = (
            f"{'no code' if code is None else f'code {code}'}; its words may be the chat's, and are not kept"
        )
    # The code alone decides whose fault it was.
    body = None if code is None else msgspec.json.encode({"code": code}).decode()
    return msgspec.structs.replace(failure, message=message, body=body)
