"""Whose fault is a failed request? The one rule, for what is happening and for what a journal recalls.

It is the *server's fault* where the same request, sent later, may well be answered: nobody listens, the
connection breaks, a time limit passes, or the server (or a gateway before it) answers 5xx, 408, 425 or 429.
Such a failure is no attempt of its trial: the trial stays left. Everything else (400, 401, a prompt that is
too long, an answer that is none) is an answer to this very request.

Where requests were sent together, one that is turned away because they are too many (a gateway's limit, a
full queue) is neither: the server is there, and has told how much it takes. That is the level's result. The
table of docs/runs.md says the same status by status.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import NamedTuple

import msgspec

from bench.records import Exchange, Failure

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
_TOO_MANY, _UNAVAILABLE, _GATEWAY_TIMEOUT = 429, 503, 504
_FULL = re.compile(
    r"queue|(?<!time.)limit|overload|overflow|capacity|too many|\bbusy\b|\bfull\b(?! restart)|concurren",
    re.IGNORECASE,
)
"""Words of a 503 that tells of a load; one of a server that starts, or is gone, has none of them. `overflow`
is what Envoy calls its own limit."""


def is_servers_fault(failure: Failure) -> bool:
    """Whether the same request may well be answered later: the rule at the top of this module."""
    if failure.kind == "status":
        return failure.status is not None and means_later(failure.status)
    if failure.kind == "error_event":
        code = status_in(failure.body or "")
        return code is None or means_later(code)
    return failure.kind in _NO_ANSWER


class End(NamedTuple):
    """How a request of a wave ended, and when."""

    failure: Failure | None
    at_ns: int | None = None
    """Monotonic; `None`: not known."""

    @classmethod
    def of(cls, exchange: Exchange) -> End:
        return cls(exchange.failure, exchange.sent_ns + exchange.ended_ns)


def turned_away(wave: Sequence[End]) -> frozenset[int]:
    """Places of the requests of one wave that were refused because they were too many.

    429 says so, and so does a 503 whose words tell of a queue or a limit. Any other 503 may come from a
    server that starts, or from a gateway whose server is gone, and a 504 from one whose server hangs: they
    count where the server was at work then, since it answered another request of the wave after that.
    """
    if len(wave) < 2:
        return frozenset()
    worked_until = max(
        (end.at_ns for end in wave if end.failure is None and end.at_ns is not None), default=None
    )

    def outlived(end: End) -> bool:
        return worked_until is not None and end.at_ns is not None and end.at_ns < worked_until

    return frozenset(
        place
        for place, end in enumerate(wave)
        if end.failure is not None and _is_refusal(end.failure, outlived=outlived(end))
    )


def _is_refusal(failure: Failure, *, outlived: bool) -> bool:
    body = failure.body or ""
    code = failure.status if failure.kind == "status" else None
    if failure.kind == "error_event":
        code = status_in(body)  # SGLang: headers with 200 have gone out by then
    if code == _UNAVAILABLE and _FULL.search(body):
        return True
    return code == _TOO_MANY or (code in (_UNAVAILABLE, _GATEWAY_TIMEOUT) and outlived)


def asked_to_wait_s(exchange: Exchange) -> float:
    """Seconds for which a failed request's answer asks to be left alone (`Retry-After`, as a number or as a
    date beside the answer's own); 0: it does not ask, or in no known form."""
    headers = exchange.headers
    text = headers.get("retry-after", "").strip()
    if exchange.failure is None or not text:
        return 0.0
    if text.isascii() and text.isdigit():
        return float(text[:9])
    until, now = _moment(text), _moment(headers.get("date", ""))
    return max(0.0, (until - now).total_seconds()) if until and now else 0.0


def _moment(text: str) -> datetime | None:
    """An HTTP date; `None`: it is none."""
    try:
        found = parsedate_to_datetime(text)
    except (ValueError, OverflowError):  # the second: a zone of endless digits
        return None
    return found if found.tzinfo else None  # without a zone ("-0000") it cannot be set against another


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
    if isinstance(code, str) and len(code) == 3 and code.isascii() and code.isdigit():
        code = int(code)
    return code if isinstance(code, int) and 400 <= code < 600 else None
