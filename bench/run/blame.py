"""Whose fault is a failed request? The one rule, for what is happening and for what a journal recalls.

It is the *server's fault* where the same request, sent later, may well be answered: nobody listens, the
connection breaks, a time limit passes, or the server (or a gateway before it) answers 5xx, 408, 425 or 429.
Such a failure is no attempt of its trial: the trial stays left. Everything else (400, 401, a prompt that is
too long, an answer that is none) is an answer to this very request.

Where requests were sent together, one that is turned away because they are too many (a gateway's limit, a
full queue) is neither: the server is there, and has told how much it takes. That is the level's result.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

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
_TOO_MANY, _UNAVAILABLE = 429, 503
_FULL = re.compile(
    r"queue|limit|overload|overflow|capacity|too many|\bbusy\b|\bfull\b|concurren", re.IGNORECASE
)
"""Words of a 503 that tells of a load; one of a server that starts, or is gone, has none of them."""


def is_servers_fault(failure: Failure) -> bool:
    """Whether the same request may well be answered later: the rule at the top of this module."""
    if failure.kind == "status":
        return failure.status is not None and means_later(failure.status)
    if failure.kind == "error_event":
        code = status_in(failure.body or "")
        return code is None or means_later(code)
    return failure.kind in _NO_ANSWER


def turned_away(failures: Sequence[Failure | None]) -> frozenset[int]:
    """Places of the requests of one wave that were refused because they were too many; `None`: answered.

    429 says so. 503 may also come from a server that starts, or for one that is gone: it counts where its
    words tell of a queue or a limit, or where other requests of the very wave were answered.
    """
    if len(failures) < 2:
        return frozenset()
    answered = None in failures
    return frozenset(
        place
        for place, failure in enumerate(failures)
        if failure is not None and _is_refusal(failure, answered=answered)
    )


def _is_refusal(failure: Failure, *, answered: bool) -> bool:
    body = failure.body or ""
    code = failure.status if failure.kind == "status" else None
    if failure.kind == "error_event":
        code = status_in(body)  # SGLang: headers with 200 have gone out by then
    return code == _TOO_MANY or (code == _UNAVAILABLE and (answered or bool(_FULL.search(body))))


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
