"""`headers` of a route: fields that a gateway or a server's scheduler wants in every request."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from bench.records import FromEnv

MOST = 32
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}")
"""A token of RFC 9110, section 5.6.2."""
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OURS = {
    "accept", "accept-encoding", "connection", "content-length", "content-type", "expect", "host",
    "transfer-encoding", "user-agent",
}  # fmt: skip
_SECRET = re.compile(r"authorization|cookie|key|token|secret|password", re.IGNORECASE)

Headers = Mapping[str, str | FromEnv]


def header_problems(where: str, headers: Headers, *, with_key: bool) -> Iterator[str]:
    """What is wrong with a route's headers; `with_key`: it has an `api_key_env` too. A value that is most
    likely a key is not repeated."""
    if len(headers) > MOST:
        yield f"{where}: headers: at most {MOST}"
    if len({name.lower() for name in headers}) < len(headers):
        yield f"{where}: headers: a name stands there twice"
    for name, value in headers.items():
        here = f"{where}: headers: {name!r}"
        if not _NAME.fullmatch(name):
            yield f"{here} is no name of an HTTP header"
        elif name.lower() in _OURS:
            yield f"{here} is set by this program, and every measurement rests on it"
        elif with_key and name.lower() == "authorization":
            yield f"{here} and api_key_env both say it: leave one out"
        elif isinstance(value, FromEnv):
            if not _VARIABLE.fullmatch(value.from_env):
                yield f"{here}: from_env is the name of an environment variable"
        elif _SECRET.search(name):
            yield f"{here} holds a key, and the suite is kept: {{ from_env = 'NAME OF A VARIABLE' }}"
        elif problem := value_problem(value):
            yield f"{here} {problem}"


def value_problem(value: str) -> str | None:
    """Why a value can be in no header; the value itself is not repeated."""
    if not value.strip() or value != value.strip() or len(value) > 4096:
        return "is blank, begins or ends with a space, or has more than 4,096 characters"
    return None if value.isascii() and value.isprintable() else "holds characters that no header can carry"
