"""A server's own log, exchange by exchange: counted as a whole, kept as an excerpt."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import msgspec

from bench.errors import BenchError
from bench.records import Exchange, LogExcerpt, Suite
from bench.wire.logs import EXCERPT_BYTES, Excerpt, LogTail, parse_source

if TYPE_CHECKING:  # its patterns take a while to compile, and most suites name no log
    from bench.analysis.logs.analyser import LogReport

COUNTED_BYTES = 64 * 1024 * 1024
"""Most of the log that is counted for one exchange; a flood of 18,000 warnings has about 4 MB."""
_FLUSH_S = 0.2  # a server writes its last lines after its last chunk
_FOLDER = "logs"
_REPLACED = "the log was replaced meanwhile"


def server_logs(suite: Suite, run: Path, folder: Path) -> dict[str, ServerLog]:
    """The logs that the suite names, by route; `folder`: where relative paths start.

    Raises `SuiteError` for a source that is none (the checks have said so before).
    """
    return {
        route.name: ServerLog(LogTail(parse_source(log_source(route.log, folder))), run)
        for route in suite.routes
        if route.log is not None
    }


def log_source(log: str, folder: Path) -> str:
    """A route's log source, with a file's path starting at the suite's folder."""
    return log if log.startswith(("docker:", "journal:")) else str(folder / log)


class Tail(Protocol):
    """A log that can say what came since a mark: a `LogTail`, or the output of a server of ours."""

    def mark(self) -> None: ...
    def excerpt(self, limit: int) -> Excerpt: ...


class ServerLog:
    """One server's log: `mark()` before an exchange, `excerpt_for()` after it."""

    def __init__(self, tail: Tail, run: Path) -> None:
        self._tail, self._run = tail, run
        self._problem: str | None = None

    async def mark(self) -> None:
        """Remembers where the log ends now. What goes wrong is told with the excerpt."""
        try:
            await asyncio.to_thread(self._tail.mark)
            self._problem = None
        except BenchError as error:
            self._problem = str(error)

    async def excerpt_for(self, exchange: Exchange, *, counts_only: bool = False) -> Exchange:
        """The exchange with what the log said meanwhile. A log that cannot be read stops no run.

        `counts_only`: none of the log's own words are kept, since servers log what they are asked.
        """
        await asyncio.sleep(_FLUSH_S)
        try:
            found = await asyncio.to_thread(self._read, exchange, counts_only)
        except BenchError as error:
            found = LogExcerpt(problem=self._problem or str(error))
        return msgspec.structs.replace(exchange, log=found)

    def _read(self, exchange: Exchange, counts_only: bool) -> LogExcerpt:
        from bench.analysis.logs.analyser import LogAnalyser

        excerpt = self._tail.excerpt(COUNTED_BYTES)
        tokens = exchange.usage.completion_tokens if exchange.usage else None
        analyser = LogAnalyser(output_tokens=tokens, requests=1, running=True)
        analyser.feed(excerpt.data)
        report = analyser.report()
        trial = exchange.trial.id.replace("/", "-")
        name = f"{_FOLDER}/{trial}-{exchange.purpose}{exchange.attempt}.txt"
        unkept = None if counts_only else self._store(name, excerpt)
        return LogExcerpt(
            file=None if counts_only or unkept else name,
            lines=report.lines,
            omitted=excerpt.omitted,
            levels=report.levels,
            known=_known(report),
            floods=tuple(
                f"{'a line' if counts_only else group.template[:160]}: {group.why}"
                for group in report.kind("flood")[:8]
            ),
            problem=self._problem or unkept or (_REPLACED if excerpt.rotated else None),
        )

    def _store(self, name: str, excerpt: Excerpt) -> str | None:
        """Text for people: keys masked, its middle left out when it is too long. Says why it is not kept."""
        from bench.analysis.logs.lines import without_secrets

        data, half = excerpt.data, EXCERPT_BYTES // 2
        left_out = excerpt.omitted + max(0, len(data) - 2 * half)
        if left_out:
            data = data[:half] + f"\n[... {left_out:,} bytes left out ...]\n".encode() + data[-half:]
        path = self._run / name
        try:
            path.parent.mkdir(exist_ok=True)
            path.write_text(without_secrets(data.decode("utf-8", "replace")), encoding="utf-8")
        except OSError as error:  # the exchange is worth more than the text of its log
            return f"the log's text is not kept, {name} cannot be written: {error.strerror}"
        return None


def _known(report: LogReport) -> dict[str, int]:
    counts: dict[str, int] = {}
    for group in report.groups:
        if group.known is not None:
            counts[group.known] = counts.get(group.known, 0) + group.count
    return counts
