"""Tables of figures measured earlier, as measurements: published studies, our own measurements.csv.

A table is CSV with a header line, a JSON list of rows, or a JSON object whose `requests` is such a
list. Needed columns: `route, condition, prompt_tokens, output_tokens, ttft_s, total_s`; a time may
be blank where it was not observed. Everything else is optional: see `columns.COLUMNS`. Lines of a CSV that
start with `#` are comments. What can be computed from the raw columns is computed from them by the
definitions of DESIGN section 2, whatever else a table may print.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable
from typing import Literal

from bench.analysis.decisions.columns import (
    COLUMNS,
    NEEDED,
    Row,
    Where,
    checked,
    csv_rows,
    json_of,
    json_rows,
)
from bench.analysis.decisions.guard import guarded
from bench.errors import SuiteError
from bench.records import Measurement, Reason, Speculated, Verdict

MAX_CHARS = 64 * 1024 * 1024
MAX_ROWS = 200_000
_FIRST = (
    "id", *NEEDED, "num_speculative_tokens", "drafts", "draft_tokens", "accepted_tokens",
    "prefix_queries", "prefix_hits", "tier", "task", "repeat", "replay", "concurrency", "pair",
    "text_key", "first_chunk_tokens", "first_response_s", "tpot_s", "decode_tok_s", "valid", "reasons",
    "missing",
)  # fmt: skip
_UNSAID = {"trial_id", "k", "speculation"}  # other words for `id` and K; the method, which no measurement has
_WRITTEN = (*_FIRST, *(name for name in COLUMNS if name not in {*_FIRST, *_UNSAID}))
_FIELDS = Measurement.__struct_fields__
_MISSING = re.compile(rf"; (?=(?:{'|'.join(_FIELDS)}): )")


def read_table(text: str, *, kind: Literal["csv", "json"], source: str) -> list[Measurement]:
    """The rows of a table as measurements, in their order.

    `source` names the table in errors and becomes `Measurement.source`. Raises `SuiteError` with
    table, line, column, value and what is allowed.
    """
    names = Counter[str]()
    rows = _rows(text, kind, source)
    return [_measurement(row, where, order, names) for order, (row, where) in enumerate(rows)]


def columns_left_out(text: str, *, kind: Literal["csv", "json"], source: str) -> list[str]:
    """The columns with a value in some row that `write_table` will not write of this table, in their order.

    Raises as `read_table` does where there are no rows to be had.
    """
    rows = _rows(text, kind, source)
    filled = dict.fromkeys(name for row, _ in rows for name, value in row.items() if value not in (None, ""))
    return [name for name in filled if name not in COLUMNS or name == "speculation"]


def _rows(text: str, kind: Literal["csv", "json"], source: str) -> list[tuple[Row, Where]]:
    if len(text) > MAX_CHARS:
        raise SuiteError(f"{source}: a table of more than {MAX_CHARS // 2**20} MiB is not read")
    rows = csv_rows(text, source) if kind == "csv" else json_rows(text, source)
    if not rows:
        raise SuiteError(f"{source}: there is no row in this table")
    if len(rows) > MAX_ROWS:
        raise SuiteError(f"{source}: {len(rows):,} rows are more than {MAX_ROWS:,}")
    return rows


def read_observations(text: str, *, source: str) -> list[Measurement]:
    """Rates seen in production that a JSON table carries beside its rows (`production_observation`).

    An object, or a list of objects, with `route, prompt_tokens, output_tokens, decode_tok_s` (one
    rate or a list of them) and optionally `prefix_reused_tokens`. No TTFT belongs to them, so they
    are kept apart from the table's rows; `advise` uses their rates.
    """
    data = json_of(text, source)
    found = data.get("production_observation", []) if isinstance(data, dict) else []
    observations: list[Measurement] = []
    for number, item in enumerate(found if isinstance(found, list) else [found], 1):
        where = Where(source, f"observation {number}")
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
    lines = [",".join(_WRITTEN)]
    for row in measurements:
        values = {name: getattr(row, name, None) for name in _WRITTEN}
        values |= {"id": row.trial_id, "prefix_hits": row.cached_tokens, "valid": row.verdict.valid}
        if row.drafts and row.draft_tokens is not None and row.draft_tokens % row.drafts == 0:
            values["num_speculative_tokens"] = row.draft_tokens // row.drafts
        values["prefix_queries"] = _queries(row)
        values["reasons"] = "; ".join(reason.id for reason in row.verdict.reasons)
        values["missing"] = "; ".join(f"{name}: {why}" for name, why in row.absent.items())
        values["speculation_seen"] = row.verdict.speculation
        lines.append(",".join(_cell(value) for value in values.values()))
    return "\n".join(lines) + "\n"


def _queries(row: Measurement) -> int | None:
    """The prompt, or the count of another table that gave `prefix_reuse` with the hits."""
    hits, prompt = row.cached_tokens, row.prompt_tokens
    if not hits or not prompt or not row.prefix_reuse or min(1.0, hits / prompt) == row.prefix_reuse:
        return None if hits is None else prompt
    return round(hits / row.prefix_reuse)


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    text = repr(value) if isinstance(value, float) else guarded(str(value))
    text = "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)
    return '"' + text.replace('"', '""') + '"' if any(c in text for c in ',"\n\r#') else text


def _measurement(row: Row, where: Where, order: int, names: Counter[str]) -> Measurement:
    values = checked(row, where)
    _refuse_contradictions(values, where)
    hits = _hits(values)
    absent = {name: "not in the table" for name in ("ttft_s", "total_s") if name not in values}
    tpot = _tpot(values, absent)
    stem = values.get("id") or values.get("trial_id") or _stem(values)
    names[stem] += 1
    fields: Row = {"order": order} | {name: value for name, value in values.items() if name in _FIELDS}
    fields |= _drafted(values, absent) | {
        "trial_id": stem if names[stem] == 1 else f"{stem}#{names[stem]}",
        "source": where.source,
        "tier": _tier(values),
        "decode_tok_s": 1 / tpot if tpot else None,
        "tpot_s": tpot,
        "cached_tokens": hits,
        "prefix_reuse": _reuse(values, hits),
        "sources": {"": f"table {where.source}, {where.line}"},
        "verdict": _verdict(values),
    }
    told = {name: why for name, why in _missing(values).items() if fields.get(name) is None}
    return Measurement(**fields, absent=absent | told)


def _missing(values: Row) -> dict[str, str]:
    """What the table says of fields without a value: name -> why."""
    parts = (part.partition(": ") for part in _MISSING.split(values.get("missing", "")))
    return {name: why for name, _, why in parts if name in _FIELDS and why}


def _tier(values: Row) -> int:
    tier: int = values["tier"] if "tier" in values else values["prompt_tokens"]
    return tier


def _stem(values: Row) -> str:
    return f"{values['route']}/{_tier(values)}/{values['condition']}"


def _hits(values: Row) -> int | None:
    hits: int | None = values.get("prefix_hits", values.get("cached_tokens"))
    return hits


def _refuse_contradictions(values: Row, where: Where) -> None:
    """Figures of one row that cannot all be true."""
    ttft, total, hits = values.get("ttft_s"), values.get("total_s"), _hits(values)
    if ttft is not None and total is not None and total < ttft:
        where.refuse("total_s", total, f"at least ttft_s ({ttft})")
    if hits is not None and hits > values.get("prompt_tokens", math.inf):
        where.refuse("prefix_hits", hits, f"at most prompt_tokens ({values['prompt_tokens']})")
    accepted, drafted = values.get("accepted_tokens"), values.get("draft_tokens")
    if accepted is not None and drafted is not None and accepted > drafted:
        where.refuse("accepted_tokens", accepted, f"at most draft_tokens ({drafted})")


def _drafted(values: Row, absent: dict[str, str]) -> Row:
    """The fields of a measurement that tell of drafts; says in `absent` why there is no acceptance.

    What the counts give comes before what the table says of it.
    """
    drafts, drafted = values.get("drafts"), values.get("draft_tokens")
    accepted = values.get("accepted_tokens")
    acceptance = accepted / drafted if accepted is not None and drafted else None
    if acceptance is None and drafts != 0 and drafted != 0:
        acceptance = values.get("acceptance")
    if acceptance is None:
        absent["acceptance"] = "no drafts"
    counted = 1 + accepted / drafts if accepted is not None and drafts else None
    return {
        "drafts": drafts,
        "draft_tokens": drafted,
        "accepted_tokens": accepted,
        "acceptance": acceptance,
        "acceptance_length": values.get("acceptance_length") if counted is None else counted,
    }


def _tpot(values: Row, absent: dict[str, str]) -> float | None:
    """Seconds a token; says in `absent` why there is none.

    `tpot_s` stands only in our own tables, whose clock ended at the last text chunk.
    """
    if values.get("tpot_s"):
        return float(values["tpot_s"])
    if "tpot_s" not in values and "tpot_s" in values.get("missing", ""):
        # a run leaves out a rate that its times do not carry: it is not made up from them here
        absent |= dict.fromkeys(("decode_tok_s", "tpot_s"), "not in the table")
        return None
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


def _verdict(values: Row) -> Verdict:
    """A table is taken at its word; what it does not show stays unknown."""
    speculation: Speculated = values.get("speculation_seen") or _speculation(values)
    texts = [part.strip() for part in str(values.get("reasons", "")).split(";") if part.strip()]
    valid = values.get("valid", True)
    reasons = tuple(Reason(id=text.split(" ")[0], detail="from the table") for text in texts)
    if not valid and not reasons:
        reasons = (Reason(id="imported", detail="the table calls it invalid"),)
    return Verdict(valid=valid, reasons=() if valid else reasons, speculation=speculation)


def _speculation(values: Row) -> Speculated:
    k = values.get("num_speculative_tokens", values.get("k"))
    if k:
        return "as declared" if values.get("drafts") and values.get("accepted_tokens") else "unknown"
    declared = k is None and values.get("speculation") is not None
    return "unknown" if values.get("drafts") or declared else "none"
