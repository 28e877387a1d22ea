"""Server logs, understood: lines grouped by template, named by meaning, sorted into kinds.

Bytes in, report out; the size of the log does not matter. A line is looked at closely only when
its shape is new: otherwise one dictionary look-up counts it. The number of templates is bounded:
when it is reached, the rarer half of the unknown ones is folded into a count.
"""

from __future__ import annotations

import re

from msgspec import Struct, structs

from bench.analysis.logs.facts import FactBook, LogFacts
from bench.analysis.logs.kinds import Figures, LineKind, Totals, kind_of
from bench.analysis.logs.known import KNOWN, recognise
from bench.analysis.logs.lines import Line, clean, is_before, read_line, template, without_secrets

TEMPLATES_MAX = 2_000
LINE_BYTES_MAX = 64 * 1024
"""A longer line is counted, and cut here."""
_SHAPES_MAX = 8_192
_SHAPE_BYTES = 1_024
_KEPT_BYTES = 1_024
_BINARY = Line(level=None, stamp=None, message="<binary line>")
_TRACEBACK_LINE = "Traceback (most recent call last)"
_TRACEBACK = re.compile(r"Traceback \(most recent|\s+File \"|\s{4,}[^\s█▀▄]|\s*\^+$")
"""The lines of a Python traceback, which are one thing and not twenty."""
_FACT_LINES = 64
_FACT_BYTES = 16_384
_NEAR_LINES = 3
_HEX = re.compile(rb"(?=[a-f]*0)[0-9a-f]{4,}")
_DIGITS = bytes(ord("0") if chr(code).isdigit() and code < 128 else code for code in range(256))


class LineGroup(Struct, frozen=True, kw_only=True):
    """All lines of one template."""

    template: str
    level: str | None
    kind: LineKind
    why: str
    """Why it is of that kind, with the figures."""
    count: int
    first_line: int
    """From 1."""
    last_line: int
    first_at: str | None
    last_at: str | None
    known: str | None = None
    """Key of `log_known.KNOWN`."""
    engine: str | None = None
    meaning: str | None = None
    role: str | None = None
    example: str
    """The first such line, cleaned and cut."""
    last_example: str


class LogReport(Struct, frozen=True, kw_only=True):
    """What a log says."""

    lines: int
    bytes: int
    groups: tuple[LineGroup, ...]
    """Floods first, then failures, troubles and warnings, then by count."""
    levels: dict[str, int]
    facts: LogFacts
    starts: int
    """Starts of the server seen in the log."""
    requests: int | None
    output_tokens: int | None
    output_tokens_source: str | None = None
    skipped_before: int = 0
    """Lines before `since`."""
    cut_lines: int = 0
    folded_lines: int = 0
    """Lines of rare templates that were folded away to stay within memory."""
    notes: tuple[str, ...] = ()

    def kind(self, kind: LineKind) -> tuple[LineGroup, ...]:
        return tuple(group for group in self.groups if group.kind == kind)

    def known(self, name: str) -> LineGroup | None:
        """The group of a known line; the first when several templates carry it."""
        return next((group for group in self.groups if group.known == name), None)


class _Group:
    """Running figures of one template."""

    __slots__ = (
        "count", "dense", "early", "first", "first_line", "in_segment", "known", "last", "last_line", "level",
        "most", "segment", "segments", "stamp", "template", "watched",
    )  # fmt: skip

    def __init__(self, text: str, level: str | None, known: str | None, line: bytes, number: int) -> None:
        self.template, self.level, self.known = text, level, known
        # Facts are read from the first lines of a kind; what is summed up is read from every one.
        role = KNOWN[known].role if known else None
        has_facts = known is not None and (KNOWN[known].pattern is not None or role in ("start", "ready"))
        always = role in ("start", "ready", "request", "fact") or known == "vllm_stats"
        self.watched = 0 if not has_facts else 1 << 62 if always else _FACT_LINES
        self.first = self.last = line
        self.first_line = self.last_line = number
        self.count = self.dense = self.early = 0
        self.stamp: bytes | None = None
        self.segment, self.segments, self.in_segment, self.most = -1, 0, 0, 0


class LogAnalyser:
    """Feed it bytes in any portions, then ask for the report.

    `since` drops lines stamped earlier (`YYYY-MM-DD HH:MM:SS`, compared as the log writes its times).
    `output_tokens` and `requests` are what the client knows of the time the log covers; without them
    the analyser uses what it finds in the log. `running`: the server was up before the first line, so
    that none of them belongs to its start. Shapes, templates and line lengths are bounded.
    """

    def __init__(
        self,
        *,
        since: str | None = None,
        output_tokens: int | None = None,
        requests: int | None = None,
        running: bool = False,
        templates_max: int = TEMPLATES_MAX,
    ) -> None:
        self._since = since
        self._tokens_given, self._requests_given = output_tokens, requests
        self._templates_max = max(16, templates_max)
        self._rest = b""
        self._cutting = False
        self._number = self._bytes = self._skipped = self._cut = self._folded = 0
        self._dated = False
        self._stamps: dict[bytes, slice | None] = {}
        self._segment = 0
        self._starting, self._ready = not running, running
        self._binary = False
        self._groups: dict[tuple[str | None, str], _Group] = {}
        self._shapes: dict[bytes, tuple[_Group, slice | None]] = {}
        self._book = FactBook()

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the log."""
        if not self._bytes and b"\x00" in data[:4096]:
            self._binary = True
        self._bytes += len(data)
        if self._cutting:
            end = data.find(b"\n")
            if end < 0:
                return
            data = data[end:]
            self._cutting = False
        lines = (self._rest + data).split(b"\n")
        self._rest = lines.pop()
        if len(self._rest) > LINE_BYTES_MAX:
            self._rest = self._rest[:LINE_BYTES_MAX]
            self._cutting = True
            self._cut += 1
        self._count(lines)

    def report(self) -> LogReport:
        """The report on everything fed so far, a last line without its end included."""
        if self._rest:
            self._count([self._rest])
            self._rest = b""
        totals = self._totals()
        groups = sorted((_finished(group, totals) for group in self._groups.values()), key=_importance)
        levels: dict[str, int] = {}
        for group in groups:
            levels[group.level or "none"] = levels.get(group.level or "none", 0) + group.count
        tokens = totals.output_tokens
        return LogReport(
            lines=self._number,
            bytes=self._bytes,
            groups=tuple(groups),
            levels=levels,
            facts=self._book.facts(),
            starts=self._book.starts,
            requests=totals.requests,
            output_tokens=tokens,
            output_tokens_source=totals.source,
            skipped_before=self._skipped,
            cut_lines=self._cut,
            folded_lines=self._folded,
            notes=tuple(self._notes()),
        )

    def _count(self, lines: list[bytes]) -> None:
        """The hot loop: kept flat, since a gigabyte has several million lines."""
        shapes, number = self._shapes, self._number
        for line in lines:
            number += 1
            if len(line) > LINE_BYTES_MAX:
                line = line[:LINE_BYTES_MAX]
                self._cut += 1
            if not line or line == b"\r":
                continue
            if self._since is not None and self._is_early(line):
                continue
            shape = line[:_SHAPE_BYTES].translate(_DIGITS)
            found = shapes.get(shape)
            if found is None:
                self._number = number
                found = self._learn(_HEX.sub(_zeros, shape), line)
            group, where = found
            group.count += 1
            if self._starting:
                group.early += 1
            if where is not None:
                stamp = line[where]
                if stamp == group.stamp:
                    group.dense += 1
                else:
                    group.stamp = stamp
            elif number - group.last_line <= _NEAR_LINES and group.count > 1:
                group.dense += 1
            if group.segment != self._segment:
                group.segment = self._segment
                group.segments += 1
                group.in_segment = 1
            else:
                group.in_segment += 1
            if group.in_segment > group.most:
                group.most = group.in_segment
            group.last_line = number
            group.last = line if len(line) <= _KEPT_BYTES else line[:_KEPT_BYTES]
            if group.count <= group.watched:
                self._watch(group, line, number)
        self._number = number

    def _learn(self, shape: bytes, line: bytes) -> tuple[_Group, slice | None]:
        """Look closely at a line of a new shape; ids of one length share a shape."""
        if shape in self._shapes:
            return self._shapes[shape]
        parts = _BINARY if b"\x00" in line else read_line(line)
        if _TRACEBACK.match(parts.message) and parts.level in (None, "ERROR"):
            parts = structs.replace(parts, message=_TRACEBACK_LINE)
        key = (parts.level, template(parts.message))
        group = self._groups.get(key)
        if group is None:
            if len(self._groups) >= self._templates_max:
                self._fold()
            kept = line if len(line) <= _KEPT_BYTES else line[:_KEPT_BYTES]
            group = _Group(key[1], parts.level, recognise(parts.message), kept, self._number)
            self._groups[key] = group
        where = _place(line, parts.stamp)
        if len(self._shapes) >= _SHAPES_MAX:
            self._shapes.clear()
        self._shapes[shape] = (group, where)
        return group, where

    def _fold(self) -> None:
        """Drop the rarer half of the templates, those without a known meaning first; count their lines."""
        by_worth = sorted(
            self._groups.items(), key=lambda g: (g[1].known is not None, g[1].count, g[1].last_line)
        )
        for key, group in by_worth[: len(by_worth) // 2]:
            self._folded += group.count
            del self._groups[key]
        self._shapes.clear()

    def _watch(self, group: _Group, line: bytes, number: int) -> None:
        assert group.known is not None  # noqa: S101 - only known groups are watched
        role = KNOWN[group.known].role
        if role == "request":
            self._segment += 1
            self._starting = False
            return
        if role == "ready":
            self._starting, self._ready = False, True
            return
        starts = self._book.starts
        self._book.take(group.known, line[:_FACT_BYTES].decode("utf-8", errors="replace"), number)
        if self._book.starts > starts and not self._starting:
            self._starting = True
            group.early += 1  # the line that tells of a start is part of it

    def _is_early(self, line: bytes) -> bool:
        """Lines without a comparable time go with the lines before them; from `since` on all count."""
        assert self._since is not None  # noqa: S101 - asked only then
        shape = line[:_SHAPE_BYTES].translate(_DIGITS)
        if shape not in self._stamps:
            if len(self._stamps) >= _SHAPES_MAX:
                self._stamps.clear()
            self._stamps[shape] = _place(line, read_line(line).stamp)
        where = self._stamps[shape]
        before = is_before(line[where].decode("ascii", "replace"), self._since) if where else None
        if before is not None:
            self._dated = True
        if before is False:
            self._since = None
            return False
        self._skipped += 1
        return True

    def _totals(self) -> Totals:
        markers = [g.count for g in self._groups.values() if g.known and KNOWN[g.known].role == "request"]
        requests = self._requests_given if self._requests_given is not None else (sum(markers) or None)
        tokens, source = self._tokens_given, "given"
        if tokens is None and self._book.output_tokens >= 1:
            tokens = round(self._book.output_tokens)
            source = (
                "counted in the log" if self._book.output_tokens_exact else "estimated from throughput lines"
            )
        return Totals(
            requests=requests,
            output_tokens=tokens,
            source=source if tokens is not None else None,
            ready=self._ready,
            marked=bool(markers),
        )

    def _notes(self) -> list[str]:
        notes = []
        if self._binary:
            notes.append("the start of the input holds NUL bytes: is this a text log?")
        if self._cut:
            notes.append(f"{self._cut:,} lines were longer than {LINE_BYTES_MAX // 1024} KiB and cut")
        if self._folded:
            notes.append(f"{self._folded:,} lines of rare templates were folded away to bound memory")
        if self._since is not None and self._skipped:
            why = "no line at or after it" if self._dated else "this log has no calendar times"
            notes.append(f"since {self._since}: all {self._skipped:,} lines were skipped, {why}")
        return notes


def _zeros(match: re.Match[bytes]) -> bytes:
    return b"0" * len(match[0])


def _place(line: bytes, stamp: str | None) -> slice | None:
    """Where the stamp stands in the raw line; the same for all lines of one shape."""
    start = line.find(stamp.encode()) if stamp else -1
    return slice(start, start + len(stamp)) if stamp and start >= 0 else None


def _finished(group: _Group, totals: Totals) -> LineGroup:
    known = KNOWN[group.known] if group.known else None
    figures = Figures(
        count=group.count,
        near=group.dense,
        seconds=group.count - group.dense if group.stamp is not None else None,
        early=group.early,
        segments=group.segments,
        most=group.most,
        role=known.role if known else None,
    )
    kind, why = kind_of(figures, totals)
    return LineGroup(
        template=group.template,
        level=group.level,
        kind=kind,
        why=why,
        count=group.count,
        first_line=group.first_line,
        last_line=group.last_line,
        first_at=read_line(group.first).stamp,
        last_at=read_line(group.last).stamp,
        known=group.known,
        engine=known.engine if known else None,
        meaning=known.meaning if known else None,
        role=known.role if known else None,
        example=_example(group.first),
        last_example=_example(group.last),
    )


def _example(line: bytes) -> str:
    return without_secrets(clean(line.decode("utf-8", errors="replace")))[:400]


_LEVEL_ORDER = {"CRITICAL": 0, "ERROR": 1, "WARNING": 2}
_ROLE_ORDER = {"failure": 0, "trouble": 1, "advice": 2}


def _importance(group: LineGroup) -> tuple[bool, int, int, int, int]:
    return (
        group.kind != "flood",
        _ROLE_ORDER.get(group.role or "", 3),
        _LEVEL_ORDER.get(group.level or "", 3),
        -group.count,
        group.first_line,
    )
