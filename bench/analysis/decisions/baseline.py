"""Tables of figures measured earlier, as measurements: published studies, our own measurements.csv.

A table is CSV with a header line, a JSON list of rows, or a JSON object whose `requests` is such a
list. Needed columns: `route, condition, prompt_tokens, output_tokens, ttft_s, total_s`; a time may
be blank where it was not observed. Everything else is optional: see `COLUMNS`. Lines of a CSV that
start with `#` are comments. What can be computed from the raw columns is computed from them by the
definitions of DESIGN section 2, whatever else a table may print.
"""

from __future__ import annotations

import csv
import difflib
import json
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple, NoReturn

from bench.errors import SuiteError
from bench.records import Measurement, Reason, Speculation, Verdict

MAX_CHARS = 64 * 1024 * 1024
MAX_ROWS = 200_000
NEEDED = ("route", "condition", "prompt_tokens", "output_tokens", "ttft_s", "total_s")
CONDITIONS = ("cold", "salted", "replay")

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
    "condition": "one of cold, salted, replay",
    "speculation": _TEXT,
    "num_speculative_tokens": _COUNT,
    "k": _COUNT,
    "tier": _POSITIVE,
    "task": _TEXT,
    "repeat": _POSITIVE,
    "replay": _COUNT,
    "attempt": _POSITIVE,
    "concurrency": _POSITIVE,
    "order": _COUNT,
    "pair": _TEXT,
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

_SEEN = ("none", "as declared", "off", "fallback", "crosses", "unknown")
_CARRIED = (
    "first_response_s", "icl_p50_s", "icl_p99_s", "icl_max_s", "uploaded_s", "connect_s",
    "text_chunks", "cached_usage", "cached_counter", "expected_cached", "kv_usage_peak",
    "kv_usage_mean", "queue_s",
    "prefill_s", "server_ttft_s", "server_decode_s", "pair",
)  # fmt: skip

Row = dict[str, Any]
_Speculation = Literal["none", "as declared", "off", "fallback", "crosses", "unknown"]


class _Where(NamedTuple):
    source: str
    line: str

    def refuse(self, column: str, value: object, allowed: str) -> NoReturn:
        shown = repr(value) if len(repr(value)) <= 60 else repr(value)[:57] + "..."
        raise SuiteError(f"{self.source}, {self.line}, column {column}: {shown} is not {allowed}")


def read_table(text: str, *, kind: Literal["csv", "json"], source: str) -> list[Measurement]:
    """The rows of a table as measurements, in their order.

    `source` names the table in errors and becomes `Measurement.source`. Raises `SuiteError` with
    table, line, column, value and what is allowed.
    """
    if len(text) > MAX_CHARS:
        raise SuiteError(f"{source}: a table of more than {MAX_CHARS // 2**20} MiB is not read")
    rows = _csv_rows(text, source) if kind == "csv" else _json_rows(text, source)
    if not rows:
        raise SuiteError(f"{source}: there is no row in this table")
    if len(rows) > MAX_ROWS:
        raise SuiteError(f"{source}: {len(rows):,} rows are more than {MAX_ROWS:,}")
    names = Counter[str]()
    return [_measurement(row, where, order, names) for order, (row, where) in enumerate(rows)]


def speculations(text: str, *, kind: Literal["csv", "json"], source: str) -> dict[str, Speculation]:
    """What a table declares of its routes' speculation; routes that declare none are left out."""
    rows = _csv_rows(text, source) if kind == "csv" else _json_rows(text, source)
    found: dict[str, Speculation] = {}
    for row, where in rows:
        values = _checked(row, where)
        k = values.get("num_speculative_tokens") or values.get("k")
        if k:
            method = values.get("speculation") or "speculation"
            found.setdefault(values["route"], Speculation(method=method, num_speculative_tokens=k))
    return found


def read_observations(text: str, *, source: str) -> list[Measurement]:
    """Rates seen in production that a JSON table carries beside its rows (`production_observation`).

    An object, or a list of objects, with `route, prompt_tokens, output_tokens, decode_tok_s` (one
    rate or a list of them) and optionally `prefix_reused_tokens`. No TTFT belongs to them, so they
    are kept apart from the table's rows; `advise` uses their rates.
    """
    data = _json(text, source)
    found = data.get("production_observation", []) if isinstance(data, dict) else []
    observations: list[Measurement] = []
    for number, item in enumerate(found if isinstance(found, list) else [found], 1):
        where = _Where(source, f"observation {number}")
        if not isinstance(item, dict):
            where.refuse("(all)", item, "an object")
        rates = item.get("decode_tok_s")
        for rate in rates if isinstance(rates, list) else [rates]:
            row = {
                "route": item.get("route"),
                "condition": "replay" if item.get("prefix_reused_tokens") else "cold",
                "prompt_tokens": item.get("prompt_tokens"),
                "output_tokens": item.get("output_tokens"),
                "ttft_s": None,
                "total_s": None,
                "decode_tok_s": rate,
                "cached_tokens": item.get("prefix_reused_tokens"),
            }
            observations.append(_measurement(row, where, len(observations), Counter()))
    return observations


def write_table(measurements: Iterable[Measurement]) -> str:
    """The measurements as a CSV table that `read_table` reads back; absent values are blank."""
    fields = (
        "id", *NEEDED, "num_speculative_tokens", "drafts", "draft_tokens", "accepted_tokens",
        "prefix_queries", "prefix_hits",
    )  # fmt: skip
    more = (
        "tier", "task", "repeat", "replay", "concurrency", "pair", "first_chunk_tokens", "first_response_s",
        "tpot_s", "decode_tok_s", "valid", "reasons", "missing",
    )  # fmt: skip
    lines = [",".join((*fields, *more))]
    for row in measurements:
        values = {name: getattr(row, name, None) for name in (*fields, *more)}
        values |= {"id": row.trial_id, "prefix_hits": row.cached_tokens, "valid": row.verdict.valid}
        if row.drafts and row.draft_tokens is not None and row.draft_tokens % row.drafts == 0:
            values["num_speculative_tokens"] = row.draft_tokens // row.drafts
        values["prefix_queries"] = None if row.cached_tokens is None else row.prompt_tokens
        values["reasons"] = "; ".join(reason.id for reason in row.verdict.reasons)
        values["missing"] = "; ".join(f"{name}: {why}" for name, why in row.absent.items())
        lines.append(",".join(_cell(value) for value in values.values()))
    return "\n".join(lines) + "\n"


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    text = repr(value) if isinstance(value, float) else str(value)
    return '"' + text.replace('"', '""') + '"' if any(c in text for c in ',"\n\r#') else text


def _csv_rows(text: str, source: str) -> list[tuple[Row, _Where]]:
    lines = [line + "\n" for line in text.removeprefix("\ufeff").replace("\r\n", "\n").split("\n")]
    reader = csv.reader(["\n" if line.startswith("#") else line for line in lines], strict=True)
    header: list[str] | None = None
    rows: list[tuple[Row, _Where]] = []
    try:
        for cells in reader:
            where = _Where(source, f"line {reader.line_num}")
            if not any(cell.strip() for cell in cells):
                continue
            if header is None:
                header = [cell.strip() for cell in cells]
                _check_header(header, where)
            elif len(cells) != len(header):
                where.refuse("(all)", f"{len(cells)} cells", f"the {len(header)} cells of the header")
            else:
                pairs = zip(header, cells, strict=True)
                rows.append(({k: v.strip() or None for k, v in pairs}, where))
    except csv.Error as error:
        raise SuiteError(f"{source}, line {reader.line_num}: not CSV: {error}") from None
    if header is None:
        raise SuiteError(f"{source}: the table is empty: a header line with {', '.join(NEEDED)} is needed")
    return rows


def _json(text: str, source: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SuiteError(f"{source}: not JSON: {error}") from None


def _json_rows(text: str, source: str) -> list[tuple[Row, _Where]]:
    data = _json(text, source)
    if isinstance(data, dict):
        data = data.get("requests")
    if not isinstance(data, list):
        raise SuiteError(f"{source}: a JSON table is a list of rows, or an object with a list `requests`")
    rows: list[tuple[Row, _Where]] = []
    for number, item in enumerate(data, 1):
        where = _Where(source, f"row {number}")
        if not isinstance(item, dict):
            where.refuse("(all)", item, "an object")
        _check_header(list(item), where)
        rows.append((item, where))
    return rows


def _check_header(names: Sequence[str], where: _Where) -> None:
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


def _checked(row: Row, where: _Where) -> Row:
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


def _value(name: str, value: Any, allowed: str, where: _Where) -> Any:
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


def _measurement(row: Row, where: _Where, order: int, names: Counter[str]) -> Measurement:
    values = _checked(row, where)
    ttft, total = values.get("ttft_s"), values.get("total_s")
    tier: int = values["tier"] if "tier" in values else values["prompt_tokens"]
    if ttft is not None and total is not None and total < ttft:
        where.refuse("total_s", total, f"at least ttft_s ({ttft})")
    hits = values.get("prefix_hits", values.get("cached_tokens"))
    if hits is not None and hits > values.get("prompt_tokens", math.inf):
        where.refuse("prefix_hits", hits, f"at most prompt_tokens ({values['prompt_tokens']})")
    absent = {name: "not in the table" for name in ("ttft_s", "total_s") if name not in values}
    # a run leaves out a rate that its times do not carry: it is not made up from them here
    withheld = "tpot_s" not in values and "tpot_s" in values.get("missing", "")
    if withheld:
        absent |= dict.fromkeys(("decode_tok_s", "tpot_s"), "not in the table")
    tpot = None if withheld else _tpot(values, absent)
    drafts, drafted = values.get("drafts"), values.get("draft_tokens")
    accepted = values.get("accepted_tokens")
    if accepted is not None and drafted is not None and accepted > drafted:
        where.refuse("accepted_tokens", accepted, f"at most draft_tokens ({drafted})")
    acceptance = accepted / drafted if accepted is not None and drafted else None
    if acceptance is None and drafts is None and drafted is None:
        acceptance = values.get("acceptance")
    if acceptance is None:
        absent["acceptance"] = "no drafts"
    stem = values.get("id") or values.get("trial_id") or f"{values['route']}/{tier}/{values['condition']}"
    names[stem] += 1
    return Measurement(
        trial_id=stem if names[stem] == 1 else f"{stem}#{names[stem]}",
        source=where.source,
        route=values["route"],
        tier=tier,
        condition=values["condition"],
        repeat=values.get("repeat", 1),
        replay=values.get("replay", 0),
        task=values.get("task", "continue"),
        attempt=values.get("attempt", 1),
        concurrency=values.get("concurrency", 1),
        order=values.get("order", order),
        prompt_tokens=values.get("prompt_tokens"),
        output_tokens=values.get("output_tokens"),
        ttft_s=ttft,
        total_s=total,
        first_chunk_tokens=values.get("first_chunk_tokens", 1),
        decode_tok_s=1 / tpot if tpot else None,
        tpot_s=tpot,
        drafts=drafts,
        draft_tokens=drafted,
        accepted_tokens=accepted,
        acceptance=acceptance,
        acceptance_length=1 + accepted / drafts
        if accepted is not None and drafts
        else values.get("acceptance_length"),
        cached_tokens=hits,
        prefix_reuse=_reuse(values, hits),
        sources={"": f"table {where.source}, {where.line}"},
        absent=absent,
        verdict=_verdict(values, drafts, accepted),
        **{name: values[name] for name in _CARRIED if name in values},
    )


def _tpot(values: Row, absent: dict[str, str]) -> float | None:
    """Seconds a token; says in `absent` why there is none.

    `tpot_s` stands only in our own tables, whose clock ended at the last text chunk.
    """
    if values.get("tpot_s"):
        return float(values["tpot_s"])
    steps = values.get("output_tokens", 0) - values.get("first_chunk_tokens", 1)
    ttft, total = values.get("ttft_s"), values.get("total_s")
    if ttft is not None and total is not None and steps > 0 and total > ttft:
        return float((total - ttft) / steps)
    if values.get("decode_tok_s"):
        return 1 / float(values["decode_tok_s"])
    reason = "no time between first and last token" if steps > 0 else "one chunk has no rate"
    absent |= {"decode_tok_s": reason, "tpot_s": reason}
    return None


def _reuse(values: Row, hits: int | None) -> float | None:
    queries = values.get("prefix_queries") or values.get("prompt_tokens")
    return values.get("prefix_reuse") if hits is None or not queries else min(1.0, hits / queries)


def _verdict(values: Row, drafts: int | None, accepted: int | None) -> Verdict:
    """A table is taken at its word; what it does not show stays unknown."""
    speculation: _Speculation = values.get("speculation_seen") or _speculation(values, drafts, accepted)
    texts = [part.strip() for part in str(values.get("reasons", "")).split(";") if part.strip()]
    valid = values.get("valid", True)
    reasons = tuple(Reason(id=text.split(" ")[0], detail="from the table") for text in texts)
    if not valid and not reasons:
        reasons = (Reason(id="imported", detail="the table calls it invalid"),)
    return Verdict(valid=valid, reasons=() if valid else reasons, speculation=speculation)


def _speculation(values: Row, drafts: int | None, accepted: int | None) -> _Speculation:
    k = values.get("num_speculative_tokens", values.get("k"))
    if k:
        return "as declared" if drafts and accepted else "unknown"
    declared = k is None and values.get("speculation") is not None
    return "unknown" if drafts or declared else "none"
