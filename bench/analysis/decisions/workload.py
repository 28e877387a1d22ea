"""Requests of a workload: CSV, JSON lines with usage, or a server's or gateway's text log.

A text log is read for lines that name both counts of one request (`prompt_tokens=812
completion_tokens: 90`, a printed `usage`), and for vLLM's request log, whose "Received request" and
"Generated response" lines of one id list the token ids themselves. All other lines are passed over.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from bench.errors import SuiteError

MAX_REQUESTS = 1_000_000
_MAX_OPEN = 100_000  # requests of a log that have begun and not ended


class Request(Struct, frozen=True, kw_only=True, order=True):
    """A request to be served."""

    prompt_tokens: int
    output_tokens: int
    reused_tokens: int = 0
    """Prompt tokens that are in the prefix cache already."""


class Workload(Struct, frozen=True, kw_only=True):
    """Requests in their order, and what a reader of a text log must know."""

    requests: tuple[Request, ...]
    notes: tuple[str, ...] = ()


_Row = tuple[str, Mapping[str, Any]]
"""Place in the file, and counts by name."""


def read_workload(text: str, *, source: str) -> Workload:
    """Requests of a workload file.

    CSV with columns `prompt_tokens, output_tokens` and optionally `reused_tokens`, `count`; JSON lines,
    each an object with these names, or a logged OpenAI-style reply with its `usage`; or a text log as
    the module says. Raises `SuiteError` with line, value and what is allowed.
    """
    lines = text.removeprefix("\ufeff").split("\n")
    start = next((line.strip() for line in lines if line.strip() and not line.startswith("#")), "")
    notes: list[str] = []
    if start.startswith("{"):
        rows: Iterable[_Row] = _json_lines(lines, source)
    elif _is_header(start) or not (logged := _logged(lines, source, notes)):
        rows = _csv_lines(lines, source)
    else:
        rows = logged
    found: list[Request] = []
    for where, row in rows:
        prompt, output = _count(where, row, "prompt_tokens", 1), _count(where, row, "output_tokens", 1)
        reused, count = _count(where, row, "reused_tokens", 0), _count(where, row, "count", 1, default=1)
        if reused >= prompt:
            raise SuiteError(f"{where}: reused_tokens {reused} is not less than prompt_tokens {prompt}")
        if len(found) + count > MAX_REQUESTS:
            raise SuiteError(f"{where}: more than {MAX_REQUESTS:,} requests: take a sample of the workload")
        request = Request(prompt_tokens=prompt, output_tokens=output, reused_tokens=reused)
        found += [request] * count
    if not found:
        raise SuiteError(f"{source}: there is no request in this workload")
    return Workload(requests=tuple(found), notes=tuple(notes))


def _is_header(line: str) -> bool:
    return "prompt_tokens" in (cell.strip().strip('"') for cell in line.split(","))


def _count(where: str, row: Mapping[str, Any], name: str, least: int, default: int = 0) -> int:
    value = row.get(name)
    if value in (None, "") and name not in ("prompt_tokens", "output_tokens"):
        return default
    try:
        number = float(value)  # type: ignore[arg-type]
        whole = int(number)
    except (TypeError, ValueError, OverflowError):
        number, whole = 0.5, 0
    if number != whole or not least <= whole <= 10**12 or isinstance(value, bool):
        raise SuiteError(f"{where}, column {name}: {str(value)[:60]!r} is not a whole number from {least} on")
    return whole


def _csv_lines(lines: Sequence[str], source: str) -> list[tuple[str, dict[str, Any]]]:
    reader = csv.reader([line + "\n" for line in lines if not line.startswith("#")], strict=True)
    try:
        rows = [(reader.line_num, cells) for cells in reader if any(cell.strip() for cell in cells)]
    except csv.Error as error:
        raise SuiteError(f"{source}, line {reader.line_num}: not CSV: {error}") from None
    header = [cell.strip() for cell in rows[0][1]] if rows else []
    for name in ("prompt_tokens", "output_tokens"):
        if name not in header:
            raise SuiteError(
                f"{source}: a workload needs the columns prompt_tokens and output_tokens; or JSON lines with "
                "usage, or a log whose lines name prompt_tokens and completion_tokens"
            )
    return [
        (f"{source}, line {n}", dict(zip(header, (cell.strip() for cell in cells), strict=False)))
        for n, cells in rows[1:]
    ]


def _json_lines(lines: Sequence[str], source: str) -> list[tuple[str, dict[str, Any]]]:
    found: list[tuple[str, dict[str, Any]]] = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        where = f"{source}, line {number}"
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise SuiteError(f"{where}: not JSON: {error}") from None
        if not isinstance(row, dict):
            raise SuiteError(f"{where}: not an object")
        found.append((where, _from_usage(row)))
    return found


def _from_usage(row: dict[str, Any]) -> dict[str, Any]:
    """The counts of a logged reply, wherever its `usage` stands."""
    inner = row.get("response")
    body = inner.get("body", inner) if isinstance(inner, dict) else row
    usage = body.get("usage") if isinstance(body, dict) else None
    if not isinstance(usage, dict):
        return row
    details = usage.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, dict) else None
    return {
        "prompt_tokens": usage.get("prompt_tokens"),
        "output_tokens": usage.get("completion_tokens"),
        "reused_tokens": cached,
    }


# --- Text logs ------------------------------------------------------------------------------------

_NAMED = re.compile(
    r"(?<![\w])(prompt|input|completion|output|cached|reused)[_ ]tokens[\"']?\s*[=:]\s*(\d{1,13})(?![\w.])",
    re.I,
)
_MEANING = {"input": "prompt", "completion": "output", "cached": "reused"}
_IDS = re.compile(r"(?:Received request|Generated response|Request) ([\w.-]{1,200})")
_LISTED = re.compile(r"(prompt|output)_token_ids: [\[(]([\d, ]*)[\])]")


def _logged(lines: Sequence[str], source: str, notes: list[str]) -> list[_Row]:
    """The requests of a text log; `notes` takes in how many could not be counted."""
    found: list[_Row] = []
    open_: dict[str, int] = {}
    uncounted = 0
    for number, line in enumerate(lines, 1):
        where = f"{source}, line {number}"
        counts = _named_counts(line)
        if {"prompt_tokens", "output_tokens"} <= counts.keys():
            # a log may count the last block as cached although it is computed anew
            reused = min(counts.get("reused_tokens", 0), max(0, counts["prompt_tokens"] - 1))
            found.append((where, {**counts, "reused_tokens": reused}))
        elif "_token_ids: " in line and (request := _IDS.search(line)):
            listed = _LISTED.search(line)
            tokens = listed[2].count(",") + 1 if listed and listed[2].strip() else 0
            if "output_token_ids: " not in line:
                if len(open_) < _MAX_OPEN:
                    open_[request[1]] = tokens
            elif (prompt := open_.pop(request[1], 0)) and tokens:
                found.append((where, {"prompt_tokens": prompt, "output_tokens": tokens}))
            else:
                uncounted += 1
    whole = [(where, row) for where, row in found if row["prompt_tokens"] and row["output_tokens"]]
    left_out = uncounted + len(open_) + len(found) - len(whole)
    if whole and left_out:
        what = "1 request" if left_out == 1 else f"{left_out:,} requests"
        notes.append(f"{source}: left out {what} without both counts")
    return whole


def _named_counts(line: str) -> dict[str, int]:
    counts: dict[str, int] = {}
    if "tokens" in line:
        for name, digits in _NAMED.findall(line):
            word = name.lower()
            counts.setdefault(f"{_MEANING.get(word, word)}_tokens", int(digits))
    return counts
