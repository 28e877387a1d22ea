"""In what the routes of a run differ besides the speculation that they declare.

A comparison of routes is one of speculation only if nothing else differs. Compared are what servers say
of themselves, the flags and commands they were started with, the requests they get, and what the suite
says of their setting. What one side does not tell is no difference.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping

import msgspec
from msgspec import Struct

from bench.analysis.statistics.compare import NO_SETTINGS
from bench.records import Route, ServerFacts, Suite

_SHOWN_CHARACTERS = 80
_MOST_OPTIONS = 500
_OPTION = "option "
_FACTS = {
    "engine": "engine",
    "version": "version",
    "model": "model",
    "max_model_len": "served limit",
    "prefix_caching": "prefix caching",
    "kv_capacity_tokens": "KV capacity",
    "block_size": "prefix block",
}
_FOLLOWING = ("KV capacity", "prefix block", "flag speculative_method")
"""What follows from speculation: a drafter takes memory, and k makes the blocks of hybrid models larger."""
_SPECULATES = re.compile(
    r"--?(spec|draft|mtp|enable-mtp|model-draft|md$|cd$|ngld$|hf-repo-draft|hfd$|num-spec|lookup)"
)
_PLACE = ("--port", "--host", "--served-model-name", "--alias", "-a", "--api-key-file", "--log-file")
"""Options that change where and under which name a server is found, and nothing that is measured."""


class Difference(Struct, frozen=True, kw_only=True):
    """One thing in which routes differ."""

    what: str
    values: dict[str, str]
    """Route -> what it has; only routes that tell."""
    follows: bool = False
    """It follows from the declared speculation (the KV capacity beside a drafter)."""

    @property
    def text(self) -> str:
        """`version: 0.32.0 (mtp4, mtp2), 0.31.0 (target-only)`."""
        groups: dict[str, list[str]] = {}
        for route, value in self.values.items():
            groups.setdefault(value, []).append(route)
        return f"{self.what}: " + ", ".join(
            f"{value} ({', '.join(names)})" for value, names in groups.items()
        )


def differences(suite: Suite, facts: Mapping[str, ServerFacts]) -> list[Difference]:
    """All differences between the routes besides speculation, those that follow from it marked.

    `facts`: by route, of those whose servers are known. A fact follows from speculation only between
    routes that declare another one: two routes of equal speculation should have equal KV caches.
    """
    tables = {route.name: _told(route, facts.get(route.name, ServerFacts())) for route in suite.routes}
    started = {route.name: route.server for route in suite.routes if route.server is not None}
    declared = {
        route.name: (route.speculation.method, route.speculation.num_speculative_tokens)
        if route.speculation
        else None
        for route in suite.routes
    }
    found = []
    for what in dict.fromkeys(name for table in tables.values() for name in table):
        values = {route: table[what] for route, table in tables.items() if what in table}
        if what.startswith(_OPTION):  # a command that is known tells by its silence too
            values |= dict.fromkeys(started.keys() - values.keys(), "not set")
            values = {route: values[route] for route in tables if route in values}
        if len(set(values.values())) > 1:
            follows = what in _FOLLOWING and _is_by_speculation(values, declared)
            found.append(Difference(what=what, values=values, follows=follows))
    return found


def unexplained(suite: Suite, facts: Mapping[str, ServerFacts]) -> list[Difference]:
    """The differences that speculation does not explain: each makes the comparison one of two things."""
    return [one for one in differences(suite, facts) if not one.follows]


def _is_by_speculation(values: Mapping[str, str], declared: Mapping[str, object]) -> bool:
    """Whether routes of equal speculation have equal values."""
    seen: dict[object, str] = {}
    return all(seen.setdefault(declared[route], value) == value for route, value in values.items())


def _told(route: Route, facts: ServerFacts) -> dict[str, str]:
    """Everything about a route that ought to be equal: words for people -> value."""
    told = {}
    for field, words in _FACTS.items():
        value = getattr(facts, field)
        if value is not None and not (field == "engine" and value == "generic"):
            told[words] = (
                f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
            )
    told |= {f"flag {_short(name)}": value for name, value in facts.flags.items() if name not in NO_SETTINGS}
    if route.server is not None:
        told |= dict(_options(route.server.up))
        told["variables of the server's commands"] = ", ".join(sorted(route.server.env)) or "none"
    request = msgspec.to_builtins(route.request)
    told |= {f"[request] {key}": str(value) for key, value in request.items() if key != "timeouts"}
    told |= {f"setting {name}": text for name, text in route.setting.items()}
    return {name: _short(text) for name, text in told.items()}


def _options(command: str | tuple[str, ...]) -> Iterable[tuple[str, str]]:
    """The options of a command by name, `set` for one without a value, and its other words together."""
    words = _words(command)
    others = []
    at = 0
    while at < len(words):
        word, at = words[at], at + 1
        if not re.match(r"--?[A-Za-z]", word):
            others.append(word)
            continue
        name, equals, value = word.partition("=")
        if not equals and at < len(words) and not re.match(r"--?[A-Za-z]", words[at]):
            value, at = words[at], at + 1
        if not _SPECULATES.match(name) and name not in _PLACE:
            yield f"{_OPTION}{_short(name)}", value or "set"
    yield "command", " ".join(others)


def _words(command: str | tuple[str, ...]) -> list[str]:
    if not isinstance(command, str):
        return list(command[:_MOST_OPTIONS])
    try:
        return shlex.split(command)[:_MOST_OPTIONS]
    except ValueError:  # an open quote: the shell will say so; here it is one word
        return [command]


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."
