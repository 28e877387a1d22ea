"""What a server's log says of its setup, asked once when a route is opened."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import msgspec

from bench.errors import BenchError
from bench.records import ServerFacts
from bench.run.lifecycle.serverlog import Tail, log_source
from bench.run.openroute import OpenRoute
from bench.wire.logs import LogTail, parse_source

READ_BYTES = 16 * 1024 * 1024
"""Most of a log that is read for its facts: half from its start, half from its end."""
_SLACK_S = 60.0
_UNIX_TIMES = (1_000_000_000.0, 100_000_000_000.0)


def route_tail(log: str, folder: Path, facts: ServerFacts) -> Tail:
    """The whole log of a server that somebody else has started; containers and units since that start.

    `folder`: where relative paths start. Raises `SuiteError` for a source that is none.
    """
    source = parse_source(log_source(log, folder))
    started = facts.started_at
    if source.kind == "file" or started is None or not _UNIX_TIMES[0] < started < _UNIX_TIMES[1]:
        return LogTail(source)
    tail = LogTail(source, now=lambda: started - _SLACK_S)
    tail.mark()
    return tail


async def with_log_facts(opened: OpenRoute, tail: Callable[[], Tail]) -> OpenRoute:
    """The route with the facts that only its server's log states.

    A log that cannot be read, or that tells of another server, gives none, and `log_problem` says why.
    """
    from bench.analysis.logs.facts import merge_log_facts

    try:
        logged = await asyncio.to_thread(_facts, tail)
    except BenchError as error:
        return msgspec.structs.replace(opened, log_problem=str(error))
    merged = merge_log_facts(opened.facts, logged)
    return msgspec.structs.replace(opened, facts=merged.facts, log_problem=merged.problem)


def _facts(tail: Callable[[], Tail]) -> ServerFacts:
    from bench.analysis.logs.analyser import LogAnalyser

    excerpt = tail().excerpt(READ_BYTES)
    analyser = LogAnalyser(running=True)
    analyser.feed(excerpt.data)
    return analyser.report().facts.server_facts()
