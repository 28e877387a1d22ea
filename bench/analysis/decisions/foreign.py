"""Results of other tools as measurements, with what each of their numbers means here.

A number that means the same is taken over; one that means nearly the same is taken over with a note;
the rest stays absent. `Import.notes` is for the reader and must be shown.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import Struct

from bench.errors import SuiteError
from bench.records import Condition, Measurement, Reason, Verdict

MAX_CHARS = 256 * 1024 * 1024
_OVERLAP = "{}: the times hold under that load, not for a request alone"
_BENCHY_NOTES = (
    "TTFT is their e2e_ttft: the first chunk with text, as ours; ttfr is our first response",
    "prompt and output lengths are the ones asked for, not the ones the server counted",
    "decode is (tokens - 1) / (end - first token); where chunks were counted as tokens it is too low "
    "under speculation",
    "total is computed from TTFT and decode rate",
    "cold prompts are taken as such: nothing proves that they missed the cache",
)


class Import(Struct, frozen=True, kw_only=True):
    """What a foreign result holds."""

    tool: str
    measurements: tuple[Measurement, ...]
    notes: tuple[str, ...]
    """What the tool's numbers mean in our words, and what it does not say."""


def detect(text: str) -> str | None:
    """`vllm-bench`, `llama-benchy`, or `None`, from the keys of a JSON object."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if isinstance(data, dict):
        if isinstance(data.get("benchmarks"), list) and "latency_mode" in data:
            return "llama-benchy"
        if "ttfts" in data or "mean_ttft_ms" in data:
            return "vllm-bench"
    return None


def read_vllm_bench(
    text: str, *, source: str, route: str | None = None, condition: Condition = "cold"
) -> Import:
    """A result file of `vllm bench serve --save-result --save-detailed`, one measurement a request.

    Without `--save-detailed` a file holds means only, which are no trials: refused. `condition` is
    what the user says of the prompts, since the file does not tell.
    """
    data = _object(text, source)
    columns = [_list(data, name, source) for name in ("ttfts", "itls", "input_lens", "output_lens")]
    if len({len(column) for column in columns}) != 1:
        raise SuiteError(f"{source}: ttfts, itls, input_lens and output_lens differ in length")
    errors = data.get("errors") or [""] * len(columns[0])
    name = _route(source, route, data.get("label") or data.get("model_id") or "vllm-bench")
    chat = "chat" in str(data.get("backend") or data.get("endpoint_type") or "")
    rows = []
    for order, (ttft, gaps, prompt, output) in enumerate(zip(*columns, strict=True)):
        where = f"{source}, request {order + 1}"
        error = str(errors[order])[:500] if order < len(errors) else ""
        rows.append(_vllm_row(where, (ttft, gaps, prompt, output), (name, condition, order), error))
    overlap = data.get("max_concurrency") != 1
    notes = [
        "TTFT is their first chunk with a choice"
        + (": on a chat endpoint a role-only chunk counts, so ours may be later" if chat else ""),
        "decode counts from that chunk to the last one; tokens are what their output_lens says",
        "total is TTFT plus all gaps; connecting may be in it",
        f"they do not say what was cached: taken as {condition}, because you said so",
        "acceptance, reuse and the server's state are unknown",
    ]
    if overlap:
        notes.append(_OVERLAP.format("requests may have overlapped"))
    return Import(tool="vllm bench serve", measurements=_finish(rows, source, overlap), notes=tuple(notes))


def _route(source: str, given: str | None, told: object) -> str:
    """The route's name: as the user says, else as the file tells, which may hold anything."""
    name = given or str(told)[:200]
    if not name.isprintable() or name.lstrip()[:1] in ("", *"=+-@"):
        what = "the given name" if given else "its label or model"
        raise SuiteError(f"{source}: {what}, {name[:60]!r}, is no name for a route: give one with --route")
    return name


def _vllm_row(
    where: str, values: tuple[Any, Any, Any, Any], about: tuple[str, Condition, int], error: str
) -> dict[str, Any]:
    ttft, gaps, prompt, output = values
    name, condition, order = about
    if not isinstance(gaps, list):
        raise SuiteError(f"{where}, itls: not a list")
    first = _number(f"{where}, ttfts", ttft)
    rest = math.fsum(_number(f"{where}, itls", gap) for gap in gaps)
    count, length = _whole(f"{where}, output_lens", output), _whole(f"{where}, input_lens", prompt)
    failed = bool(error) or count == 0 or first == 0
    return {
        "route": name,
        "condition": condition,
        "order": order,
        "prompt_tokens": length,
        "output_tokens": None if failed else count,
        "ttft_s": None if failed else first,
        "total_s": None if failed else first + rest,
        "tpot_s": rest / (count - 1) if not failed and count > 1 and rest > 0 else None,
        "failed": (error or "no token") if failed else None,
    }


def read_llama_benchy(text: str, *, source: str, route: str | None = None) -> Import:
    """A JSON report of llama-benchy, one measurement a run; milliseconds become seconds."""
    data = _object(text, source)
    name = _route(source, route, data.get("model") or "llama-benchy")
    rows: list[dict[str, Any]] = []
    skipped = 0
    overlap = False
    for number, item in enumerate(_list(data, "benchmarks", source), 1):
        where = f"{source}, benchmark {number}"
        if not isinstance(item, dict):
            raise SuiteError(f"{where}: not an object")
        depth = _whole(f"{where}, context_size", item.get("context_size"))
        if item.get("is_context_prefill_phase") or (depth and data.get("prefix_caching_enabled")):
            skipped += 1  # a context being filled, or a prompt behind a cached one: neither cold nor replay
            continue
        overlap |= item.get("concurrency") != 1
        for row in _benchy_rows(where, item, depth):
            rows.append({"route": name, "condition": "cold", "order": len(rows), **row})
    if not rows:
        raise SuiteError(f"{source}: no run in this report has a time to first token of a cold prompt")
    notes: tuple[str, ...] = _BENCHY_NOTES
    if skipped:
        left_out = "entries left out: prompts behind a cached context are neither cold nor replay"
        notes = (*notes, f"{skipped} {left_out}")
    if overlap:
        notes = (*notes, _OVERLAP.format("several requests ran at once"))
    return Import(tool="llama-benchy", measurements=_finish(rows, source, overlap), notes=notes)


def _benchy_rows(where: str, item: dict[str, Any], depth: int) -> Iterator[dict[str, Any]]:
    """The runs of one entry."""
    prompt, output = (_whole(f"{where}, {key}", item.get(key)) for key in ("prompt_size", "response_size"))
    first, rate, response = (_values(item, key, where) for key in ("e2e_ttft", "tg_req_throughput", "ttfr"))
    rate = rate or _values(item, "tg_throughput", where)
    for i, ttft in enumerate(first):
        tpot = 1 / rate[i] if i < len(rate) and rate[i] > 0 and output > 1 else None
        yield {
            "prompt_tokens": depth + prompt,
            "output_tokens": output,
            "ttft_s": ttft / 1000,
            "first_response_s": response[i] / 1000 if i < len(response) else None,
            "total_s": None if tpot is None else ttft / 1000 + (output - 1) * tpot,
            "tpot_s": tpot,
            "failed": None,
        }


def _finish(rows: Sequence[dict[str, Any]], source: str, overlap: bool) -> tuple[Measurement, ...]:
    shared = (Reason(id="imported", detail="requests may have overlapped"),) if overlap else ()
    found = []
    for row in rows:
        failed = row.pop("failed")
        tpot = row["tpot_s"]
        reasons = (Reason(id="failed", detail=failed),) if failed else ()
        absent = {k: failed or "not in the result" for k in ("ttft_s", "total_s", "tpot_s") if row[k] is None}
        found.append(
            Measurement(
                trial_id=f"{row['route']}/{row['prompt_tokens']}/{row['condition']}#{row['order'] + 1}",
                source=source,
                tier=row["prompt_tokens"],
                decode_tok_s=1 / tpot if tpot else None,
                absent=absent,
                sources={"": source},
                verdict=Verdict(valid=not failed, reasons=reasons, warnings=shared),
                **row,
            )
        )
    return tuple(found)


def _object(text: str, source: str) -> dict[str, Any]:
    if len(text) > MAX_CHARS:
        raise SuiteError(f"{source}: a result of more than {MAX_CHARS // 2**20} MiB is not read")
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SuiteError(f"{source}: not JSON: {error}") from None
    if not isinstance(data, dict):
        raise SuiteError(f"{source}: a result of this tool is a JSON object")
    return data


def _list(data: dict[str, Any], name: str, source: str) -> list[Any]:
    value = data.get(name)
    if not isinstance(value, list) or not value:
        hint = "; run the benchmark with --save-detailed" if name != "benchmarks" else ""
        raise SuiteError(f"{source}: the list {name} is missing or empty{hint}")
    return value


def _values(item: dict[str, Any], name: str, where: str) -> list[float]:
    metric = item.get(name)
    if metric is None:
        return []
    values = metric.get("values") if isinstance(metric, dict) else None
    if not isinstance(values, list):
        raise SuiteError(f"{where}, {name}: a metric is an object with a list `values`")
    return [_number(f"{where}, {name}", value) for value in values]


def _number(where: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e9:
        raise SuiteError(f"{where}: {str(value)[:60]!r} is not a time or rate, 0 or more")
    return float(value)


def _whole(where: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 10**12:
        raise SuiteError(f"{where}: {str(value)[:60]!r} is not a count, 0 or more")
    return value
