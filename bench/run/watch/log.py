"""What a watched server's log complained of between two quiet moments."""

from __future__ import annotations

from bench.analysis.logs.analyser import LineGroup, LogAnalyser
from bench.analysis.logs.lines import without_secrets
from bench.analysis.watch.journal import LogLine
from bench.wire.logs import LogTail, parse_source

_MOST = 5
_CUT = 300
_BAD_LEVELS = {"WARN", "WARNING", "ERROR", "CRITICAL", "FATAL"}


class LogWatch:
    """Reads a log from where it ended the last time. Raises `SuiteError` for standard input."""

    def __init__(self, source: str) -> None:
        self._tail = LogTail(parse_source(source))
        self._tail.mark()

    def since_last(self, output_tokens: int | None, requests: int | None) -> tuple[LogLine, ...]:
        """The warnings, errors and floods since the last call, the worst first, at most five kinds.

        Raises `EngineError` when the log's tool fails.
        """
        excerpt = self._tail.excerpt()
        self._tail.mark()
        analyser = LogAnalyser(output_tokens=output_tokens, requests=requests)
        analyser.feed(excerpt.data)
        bad = [group for group in analyser.report().groups if _is_bad(group)]
        return tuple(_line(group) for group in bad[:_MOST])


def _is_bad(group: LineGroup) -> bool:
    return (
        group.kind == "flood"
        or (group.level or "").upper() in _BAD_LEVELS
        or group.role in ("failure", "trouble", "warning")
    )


def _line(group: LineGroup) -> LogLine:
    text = group.meaning or group.example
    return LogLine(
        count=group.count, level=group.level, text=without_secrets(text)[:_CUT], why=group.why[:_CUT]
    )
