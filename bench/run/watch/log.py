"""What a watched server's log says of the time between two quiet moments."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from bench.analysis.logs.analyser import LineGroup, LogAnalyser
from bench.analysis.logs.lines import without_secrets
from bench.analysis.logs.llamacpp import logged
from bench.analysis.watch.described import Watched
from bench.analysis.watch.journal import LogLine
from bench.analysis.watch.logged import with_log
from bench.wire.logs import LogTail, parse_source

_MOST = 5
_CUT = 300
_BAD_LEVELS = {"WARN", "WARNING", "ERROR", "CRITICAL", "FATAL"}
_LOOK_AGAIN_S = 0.05
_LOOKS = 20
"""A server writes its log beside its work: its lines may be a little later than its counters."""


class LogWatch:
    """Reads a log from where it ended the last time. Raises `SuiteError` for standard input."""

    def __init__(self, source: str) -> None:
        self._tail = LogTail(parse_source(source))
        self._has_times = False
        self._held, self._omitted = b"", 0

    def begin(self, engine: str) -> None:
        """Leaves out what is there so far. Of llama.cpp the log tells the TTFT of a request, too."""
        self._tail.mark()
        self._has_times = engine == "llamacpp"

    async def settled(self, sleep: Callable[[float], Awaitable[None]]) -> None:
        """Waits, at most a second, until the log holds the end of every request that it began to tell of.

        Raises `EngineError` when the log's tool fails.
        """
        if not self._has_times:
            return
        for _ in range(_LOOKS):
            self._read()
            if not logged(self._held).unfinished:
                return
            await sleep(_LOOK_AGAIN_S)

    def told_of(self, watched: Watched) -> tuple[Watched, tuple[LogLine, ...]]:
        """What was watched, with what the log adds to it, and the log's complaints since the last call:
        warnings, errors and floods, the worst first, at most five kinds.

        Raises `EngineError` when the log's tool fails.
        """
        self._read()
        data, omitted, self._held, self._omitted = self._held, self._omitted, b"", 0
        analyser = LogAnalyser(output_tokens=watched.output_tokens, requests=watched.requests)
        analyser.feed(data)
        bad = [group for group in analyser.report().groups if _is_bad(group)]
        better = with_log(watched, data, omitted=omitted) if self._has_times else watched
        return better, tuple(_line(group) for group in bad[:_MOST])

    def _read(self) -> None:
        excerpt = self._tail.take()
        self._held += excerpt.data
        self._omitted += excerpt.omitted


def _is_bad(group: LineGroup) -> bool:
    return (
        group.kind == "flood"
        or (group.level or "").upper() in _BAD_LEVELS
        or group.role in ("failure", "trouble", "warning")
    )


def _line(group: LineGroup) -> LogLine:
    text = group.meaning or group.example
    why = group.why[:_CUT] if group.kind == "flood" else ""  # else it only counts
    return LogLine(count=group.count, level=group.level, text=without_secrets(text)[:_CUT], why=why)
