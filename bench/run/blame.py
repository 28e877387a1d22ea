"""Whose fault is a failed request? The one rule, for what is happening and for what a journal recalls.

It is the *server's fault* where the same request, sent later, may well be answered: nobody listens, the
connection breaks, a time limit passes, or the server (or a gateway before it) answers 5xx, 408, 425 or 429.
Such a failure is no attempt of its trial: the trial stays left. Everything else (400, 401, a prompt that is
too long, an answer that is none) is an answer to this very request.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from bench.records import Failure

_NO_ANSWER = frozenset(
    {
        "refused",
        "connect_timeout",
        "upload_timeout",
        "first_token_timeout",
        "idle_timeout",
        "reset",
        "truncated",
    }
)
_NOT_NOW = frozenset({408, 425, 429})
_NEVER = frozenset({501, 505})


def is_servers_fault(failure: Failure) -> bool:
    """Whether the same request may well be answered later: the rule at the top of this module."""
    if failure.kind == "status":
        return failure.status is not None and means_later(failure.status)
    if failure.kind == "error_event":
        code = status_in(failure.body or "")
        return code is None or means_later(code)
    return failure.kind in _NO_ANSWER


def means_later(status: int) -> bool:
    """Whether an HTTP status speaks of the server's state, not of the request."""
    return status in _NOT_NOW or (500 <= status < 600 and status not in _NEVER)


def status_in(event: str) -> int | None:
    """The status that an error inside a stream names: vLLM and SGLang put it beside the message."""
    try:
        found = msgspec.json.decode(event)
    except (msgspec.DecodeError, RecursionError):
        return None
    inner = found.get("error", found) if isinstance(found, Mapping) else None
    code = inner.get("code") if isinstance(inner, Mapping) else None
    return code if isinstance(code, int) and 400 <= code < 600 else None
