"""What a table of figures may hold: its columns, and its rows as they are read and checked.

A row is refused with table, line, column, value and what is allowed there.
"""

from __future__ import annotations

import csv
import difflib
import json
import math
from collections.abc import Sequence
from typing import Any, NamedTuple, NoReturn, get_args

from bench.analysis.decisions.guard import unguarded
from bench.errors import SuiteError
from bench.records import Measurement, Speculated

NEEDED = ("route", "condition", "prompt_tokens", "output_tokens", "ttft_s", "total_s")
CONDITIONS = ("cold", "salted", "replay", "turn")

_COUNT = "a whole number, 0 or more"
_POSITIVE = "a whole number, 1 or more"
_NUMBER = "a finite number, 0 or more"
_SHARE = "a number from 0 to 1"
_TEXT = "a printable text of at most 500 characters"
_FLAG = "true or false"

COLUMNS: dict[str, str] = {
    "id": _TEXT,
    "trial_id": _TEXT,
    "route": _TEXT,
    "condition": "one of cold, salted, replay, turn",
    "speculation": _TEXT,
    "num_speculative_tokens": _COUNT,
    "k": _COUNT,
    "tier": _POSITIVE,
    "task": _TEXT,
    "repeat": _POSITIVE,
    "replay": _COUNT,
    "attempt": _POSITIVE,
    "concurrency": _POSITIVE,
    "chat": _TEXT,
    "turn": _COUNT,
    "order": _COUNT,
    "pair": _TEXT,
    "text_key": _TEXT,
    "prompt_tokens": _POSITIVE,
    "output_tokens": _POSITIVE,
    "first_chunk_tokens": _POSITIVE,
    "text_chunks": _COUNT,
    "ttft_s": _NUMBER,
    "total_s": _NUMBER,
    "first_response_s": _NUMBER,
    "decode_tok_s": _NUMBER,
    "tpot_s": _NUMBER,
    "icl_p50_s": _NUMBER,
    "icl_p99_s": _NUMBER,
    "icl_max_s": _NUMBER,
    "uploaded_s": _NUMBER,
    "connect_s": _NUMBER,
    "drafts": _COUNT,
    "draft_tokens": _COUNT,
    "accepted_tokens": _COUNT,
    "acceptance": _SHARE,
    "acceptance_length": _NUMBER,
    "cached_tokens": _COUNT,
    "cached_usage": _COUNT,
    "cached_counter": _COUNT,
    "expected_cached": _COUNT,
    "prefix_queries": _COUNT,
    "prefix_hits": _COUNT,
    "prefix_reuse": _SHARE,
    "kv_usage_peak": _SHARE,
    "kv_usage_mean": _SHARE,
    "queue_s": _NUMBER,
    "prefill_s": _NUMBER,
    "server_ttft_s": _NUMBER,
    "server_decode_s": _NUMBER,
    "valid": _FLAG,
    "reasons": "texts separated by ;",
    "missing": "texts separated by ;",
    "speculation_seen": "one of none, as declared, off, fallback, crosses, unknown",
}
"""Column -> what its values may be. `k` is short for `num_speculative_tokens`."""

_SEEN = get_args(Speculated)

Row = dict[str, Any]
"""Column -> value."""


class Where(NamedTuple):
    """Where in which table a row stands."""

    source: str
    line: str

    def refuse(self, column: str, value: object, allowed: str) -> NoReturn:
        """Raises the `SuiteError` of a value that is not allowed there."""
        shown = repr(value) if len(repr(value)) <= 60 else repr(value)[:57] + "..."
        raise SuiteError(f"{self.source}, {self.line}, column {column}: {shown} is not {allowed}")


def csv_rows(text: str, source: str) -> list[tuple[Row, Where]]:
    """The rows of a CSV table, cells as text and blanks as `None`, each with the line it stands on."""
    lines = [line + "\n" for line in text.removeprefix("\ufeff").replace("\r\n", "\n").split("\n")]
    reader = csv.reader(["\n" if line.startswith("#") else line for line in lines], strict=True)
    header: list[str] | None = None
    rows: list[tuple[Row, Where]] = []
    try:
        for cells in reader:
            where = Where(source, f"line {reader.line_num}")
            if not any(cell.strip() for cell in cells):
                continue
            if header is None:
                header = [cell.strip() for cell in cells]
                _check_header(header, where)
            elif len(cells) != len(header):
                where.refuse("(all)", f"{len(cells)} cells", f"the {len(header)} cells of the header")
            else:
                pairs = zip(header, cells, strict=True)
                rows.append(({k: unguarded(v.strip()) or None for k, v in pairs}, where))
    except csv.Error as error:
        raise SuiteError(f"{source}, line {reader.line_num}: not CSV: {error}") from None
    if header is None:
        raise SuiteError(f"{source}: the table is empty: a header line with {', '.join(NEEDED)} is needed")
    return rows


def json_of(text: str, source: str) -> Any:
    """What a JSON text holds."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        if source.lower().endswith(".toml"):
            raise SuiteError(
                f"{source}: a suite says what to measure, here its results are wanted: name the directory of "
                "its run (results/<utc>-<suite>), or a table"
            ) from None
        raise SuiteError(f"{source}: not JSON: {error}") from None


def json_rows(text: str, source: str) -> list[tuple[Row, Where]]:
    """The rows of a JSON table, each with its number."""
    data = json_of(text, source)
    if isinstance(data, dict):
        data = data.get("requests")
    if not isinstance(data, list):
        raise SuiteError(f"{source}: a JSON table is a list of rows, or an object with a list `requests`")
    rows: list[tuple[Row, Where]] = []
    for number, item in enumerate(data, 1):
        where = Where(source, f"row {number}")
        if not isinstance(item, dict):
            where.refuse("(all)", item, "an object")
        _check_header(list(item), where)
        rows.append((item, where))
    return rows


def _check_header(names: Sequence[str], where: Where) -> None:
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise SuiteError(f"{where.source}, {where.line}: the column {twice} stands there twice")
    known = set(COLUMNS) | set(Measurement.__struct_fields__)
    for name in NEEDED:
        if name not in names:
            near = difflib.get_close_matches(name, [n for n in names if n not in known], n=1)
            hint = f" (is it {near[0]!r}?)" if near else ""
            raise SuiteError(
                f"{where.source}, {where.line}: the column {name} is missing{hint}; "
                f"a table needs {', '.join(NEEDED)}"
            )
    for name in names:
        near = difflib.get_close_matches(name, COLUMNS, n=1, cutoff=0.85)
        if near and name not in known and near[0] not in names:
            raise SuiteError(
                f"{where.source}, {where.line}: column {name!r} is unknown: is it {near[0]!r}? "
                "Rename it to something else if it is a note"
            )


def checked(row: Row, where: Where) -> Row:
    """The known columns with their values as the types they stand for; blanks are left out."""
    values: Row = {}
    for name, allowed in COLUMNS.items():
        value = row.get(name)
        if value is None or value == "":
            continue
        values[name] = _value(name, value, allowed, where)
    # an invalid row may lack its counts: it is kept to be shown, not to be computed with
    counts = ("prompt_tokens", "output_tokens") if values.get("valid", True) or "tier" not in values else ()
    for name in ("route", "condition", *counts):
        if name not in values:
            where.refuse(name, row.get(name), COLUMNS[name])
    return values


def _value(name: str, value: Any, allowed: str, where: Where) -> Any:
    if name == "condition" and value not in CONDITIONS:
        where.refuse(name, value, allowed)
    if name == "speculation_seen" and value not in _SEEN:
        where.refuse(name, value, allowed)
    if allowed == _FLAG:
        flags = {"true": True, "false": False, "1": True, "0": False}
        flag = flags.get(str(value).lower())
        if flag is None:
            where.refuse(name, value, allowed)
        return flag
    if allowed not in (_COUNT, _POSITIVE, _NUMBER, _SHARE):
        # Names go to terminals and pages as they are: no control characters in them.
        short = allowed == _TEXT
        if not isinstance(value, str) or len(value) > (500 if short else 100_000):
            where.refuse(name, value, allowed)
        if short and not value.isprintable():
            where.refuse(name, value, allowed)
        return value
    try:
        number = float(value) if isinstance(value, str | int | float) and value is not True else math.nan
    except (ValueError, OverflowError):
        number = math.nan
    whole = allowed in (_COUNT, _POSITIVE)
    least = 1 if allowed == _POSITIVE else 0
    most = 1.0 if allowed == _SHARE else 1e15
    if not least <= number <= most or (whole and number != int(number)):
        where.refuse(name, value, allowed)
    return int(number) if whole else number
