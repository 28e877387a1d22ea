"""What one segment of a watched server says: one request's numbers, or totals that cannot be split.

A request is told apart only where the counters prove that it was alone. Everything is the server's
own account, since no client of ours took part: its TTFT counts from arrival at the server.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct, field

from bench.analysis.statistics.machine import PhaseUse
from bench.analysis.verdicts.counters import (
    ROUGH,
    Deltas,
    SpeculationCount,
    cached_prompt_tokens,
    difference,
    speculation,
)
from bench.analysis.watch.windows import Segment
from bench.engines.base import Dialect
from bench.records import ServerFacts

COUNTS_OFF = "counts may be off"
"""How the note begins that an engine's counters print too few digits."""
_ROUNDING_S = 0.002
"""How far two clocks' readings of one span may differ without meaning anything."""
_TIMES = {
    "server_ttft_s": "ttft",
    "queue_s": "queue",
    "prefill_s": "prefill",
    "server_decode_s": "decode",
    "server_total_s": "e2e",
}
"""Field -> histogram."""
_SECONDS = {"prefill_s": "prefill_seconds", "server_decode_s": "decode_seconds"}
"""Field -> counter that stands in for a missing histogram (llama.cpp: computing alone, a lower bound)."""


class Watched(Struct, frozen=True, kw_only=True):
    """One request of somebody else's, or a window of several. Field names as in `Measurement`."""

    kind: Literal["request", "window", "restart"]
    """`request`: exactly one, alone. `window`: totals; times and rates are means over its requests.
    `restart`: the totals up to it."""
    why: str = ""
    """Why a window cannot be split, or what shows the restart."""
    proof: str = ""
    """What shows that a request was alone."""
    span_s: float
    """From the last quiet page before to the first quiet page after: no request took longer."""
    pages: int
    requests: int | None = None
    """Requests that finished; `None` where the engine does not count them."""
    failed: int | None = None
    """Those of them that ended with an error."""
    aborted: int | None = None
    """Requests that were cut off, as far as the engine counts them."""

    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    prefix_reuse: float | None = None
    """cached_tokens / prompt_tokens."""
    output_tokens: int | None = None
    slack_tokens: float = 0.0
    """How far token counts may be off, because the engine prints few digits; 0: exact."""
    server_ttft_s: float | None = None
    queue_s: float | None = None
    prefill_s: float | None = None
    server_decode_s: float | None = None
    server_total_s: float | None = None
    """From arrival at the server to the end."""
    decode_tok_s: float | None = None
    """(output_tokens - 1) / server_decode_s: the first token belongs to the prefill."""
    drafts: int | None = None
    draft_tokens: int | None = None
    accepted_tokens: int | None = None
    acceptance: float | None = None
    acceptance_length: float | None = None
    acceptance_per_position: tuple[float, ...] | None = None
    kv_usage_peak: float | None = None
    in_flight_peak: int | None = None
    """Most requests seen at once."""
    waiting_peak: int | None = None
    preemptions: int | None = None
    machine: tuple[PhaseUse, ...] = ()
    """What the machine under the server did from the quiet page before to the one after, gauge by gauge."""
    sources: dict[str, str] = {}
    absent: dict[str, str] = {}
    notes: tuple[str, ...] = ()


def describe(
    segment: Segment, dialect: Dialect, facts: ServerFacts, *, slot_lengths: Sequence[int] | None = None
) -> Watched:
    """The numbers of a segment.

    `slot_lengths` are the lengths that llama.cpp's idle slots show (`slot_lengths`), which prove a
    single request where the engine counts none.
    """
    deltas = difference(segment.before, segment.after, dialect)
    why, proof = _alone(segment, deltas, slot_lengths)
    if segment.ended == "restart":
        kind: Literal["request", "window", "restart"] = "restart"
        why = segment.clue
    else:
        kind = "window" if why else "request"
    alone = kind == "request"
    requests = deltas.count("requests_finished")
    parts = _Parts(segment=segment, deltas=deltas, dialect=dialect, facts=facts, alone=alone)
    fields = {**_token_fields(parts, requests or 1), **_time_fields(parts), **_peak_fields(parts)}
    fields |= _rate_fields(parts, fields, 1 if alone else requests)
    return Watched(
        kind=kind,
        why=why,
        proof="" if why else proof,
        span_s=segment.span_s,
        pages=segment.pages,
        requests=1 if alone else requests,
        failed=deltas.count("requests_failed"),
        aborted=deltas.count("requests_aborted"),
        sources=parts.sources,
        absent=parts.absent,
        notes=_notes(segment, deltas, dialect),
        **fields,
    )


def slot_lengths(answer: object) -> list[int] | None:
    """Tokens of the sequence that each slot served last, newest first, from llama.cpp's `/slots`.

    `None` when a slot is at work, or the answer does not say.
    """
    if not isinstance(answer, list):
        return None
    found: list[tuple[int, int]] = []
    for slot in answer:
        if not isinstance(slot, Mapping) or slot.get("is_processing") is not False:
            return None
        task, length = slot.get("id_task"), slot.get("n_prompt_tokens")
        if isinstance(task, int) and isinstance(length, int):
            found.append((task, length))
    return [length for _, length in sorted(found, reverse=True)]


# --- Was it one request, alone? -------------------------------------------------------------------


def _alone(segment: Segment, deltas: Deltas, slots: Sequence[int] | None) -> tuple[str, str]:
    """(why it cannot be split, what proves that it need not be)."""
    finished, peak = deltas.count("requests_finished"), round(segment.in_flight_peak or 0)
    if segment.ended == "open":
        return "still running when watching ended", ""
    if segment.ended == "busy" or segment.continued:
        return f"busy all the time, up to {max(peak, 1)} requests at once", ""
    if segment.began_before:
        return "it began before watching did", ""
    if finished is None:
        return _alone_uncounted(segment, deltas, slots)
    aborted = deltas.count("requests_aborted") or 0
    if finished + aborted == 0:
        return "cut off by its client: the engine counted no finished request", ""
    began = max(deltas.count("ttft_count") or 0, finished + aborted)
    if max(began, peak) > 1:
        return _several(segment, deltas, began, peak), ""
    if finished == 0:
        return "cut off: the engine counts it as aborted", ""
    if deltas.count("requests_failed") and not deltas.count("ttft_count"):
        return "it failed before its first token", ""
    if deltas.values.get("ttft_count") == 0 or _longer_than_seen(segment, deltas):
        return "it began before this window, beside another request or unseen", ""
    if _looked_up_more(deltas):
        return "another prompt was looked up in the prefix cache meanwhile, and cut off", ""
    if not segment.live_gauges:
        return "", "counters: one request had a first token and finished; another before its own may hide"
    return "", "counters: one request finished, and no other was counted or seen"


def _several(segment: Segment, deltas: Deltas, began: int, peak: int) -> str:
    e2e = deltas.get("e2e_sum")
    if peak >= began:
        return f"{peak} requests overlapped"
    if peak > 1:
        return f"{began} requests overlapped, up to {peak} at once"
    if began > (deltas.count("requests_finished") or 0) + (deltas.count("requests_aborted") or 0):
        return f"{began} requests overlapped, not all of them counted as finished"
    if e2e is not None and e2e > segment.span_s + _ROUNDING_S:
        return f"{began} requests overlapped: together they took longer than the window"
    return f"{began} requests without a quiet page between them: look more often"


def _longer_than_seen(segment: Segment, deltas: Deltas) -> bool:
    """It arrived before the segment before had ended. (Its own quiet page may be later than its
    arrival: an engine counts a request as waiting only once its prompt is tokenised.)"""
    e2e = deltas.get("e2e_sum")
    seen_s = (segment.after.at_ns - segment.previous_end_ns + segment.before.took_ns) / 1e9
    return e2e is not None and e2e > seen_s + _ROUNDING_S


def _looked_up_more(deltas: Deltas) -> bool:
    """More tokens were looked up than this prompt has. Whole multiples are one prompt's own: up to
    vLLM 0.26 it is looked up again whenever it is scheduled anew."""
    looked, prompt = deltas.count("prefix_queries"), deltas.count("prompt_tokens")
    return bool(looked and prompt and looked % prompt and not deltas.count("preemptions"))


def _alone_uncounted(segment: Segment, deltas: Deltas, slots: Sequence[int] | None) -> tuple[str, str]:
    """For an engine that does not count requests: by its slots, else by its gauges."""
    peak = round(segment.in_flight_peak or 0)
    if peak > 1:
        return f"{peak} requests overlapped", ""
    if not deltas.count("generation_tokens"):
        return "cut off by its client: no token was counted", ""
    if segment.prompt_steps > 1 or segment.output_steps > 1:
        return "requests followed each other without a quiet page between them: look more often", ""
    parts = [deltas.count(name) for name in ("prompt_tokens", "cached_tokens", "generation_tokens")]
    if slots and not deltas.slack and None not in parts:
        total = sum(part for part in parts if part is not None)
        if slots[0] == total - 1:  # the last token is never put into the sequence
            return "", "/slots: the last sequence is as long as all tokens counted"
    if segment.busy_pages == 0:
        return "the engine counts no requests, and no page fell into this window: look more often", ""
    return "", f"gauges: one request running on {_pages(segment.busy_pages)}, counters moved once"


# --- Numbers --------------------------------------------------------------------------------------


class _Parts(Struct, frozen=True, kw_only=True):
    """What the numbers of one segment are made of; `sources` and `absent` are filled on the way."""

    segment: Segment
    deltas: Deltas
    dialect: Dialect
    facts: ServerFacts
    alone: bool
    sources: dict[str, str] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)


def _token_fields(parts: _Parts, requests: int) -> dict[str, Any]:
    deltas, absent = parts.deltas, parts.absent
    counted = deltas.count("prompt_tokens")
    cached = cached_prompt_tokens(deltas, parts.facts, counted, requests)
    prompt = counted
    if not parts.dialect.prompt_includes_cached and counted is not None:
        prompt = None if cached.tokens is None else counted + cached.tokens
        if prompt is None:
            absent["prompt_tokens"] = f"the engine counts only the {counted:,} computed ones"
    output = deltas.count("generation_tokens")
    found = {"prompt_tokens": prompt, "cached_tokens": cached.tokens, "output_tokens": output}
    for name, value in found.items():
        if value is None:
            absent.setdefault(name, deltas.why or "the engine does not count them")
        else:
            parts.sources[name] = cached.source if name == "cached_tokens" else "counters"
    reuse = cached.tokens / prompt if cached.tokens is not None and prompt else None
    partly = parts.segment.ended in ("open", "restart", "busy") or parts.segment.continued
    if partly and not parts.dialect.prompt_includes_cached:
        # Reused tokens are counted when a prompt begins, computed ones when it is done (llama.cpp).
        reuse, absent["prefix_reuse"] = None, "requests in flight are not counted whole yet"
    if reuse is None:
        why = absent.get("cached_tokens") or absent.get("prompt_tokens") or "no prompt was counted"
        absent.setdefault("prefix_reuse", why)
    slack = sum(deltas.slack.get(n, 0.0) for n in ("prompt_tokens", "cached_tokens", "generation_tokens"))
    return {**found, "prefix_reuse": reuse, "slack_tokens": slack}


def _time_fields(parts: _Parts) -> dict[str, Any]:
    """Means of the engine's histograms (of one observation for a request alone), else its seconds."""
    deltas, sources, absent = parts.deltas, parts.sources, parts.absent
    found: dict[str, float | None] = {}
    for name, metric in _TIMES.items():
        count, total = deltas.count(f"{metric}_count"), deltas.get(f"{metric}_sum")
        usable = total is not None and count and (count == 1 or not parts.alone)
        found[name] = total / count if usable and total is not None and count else None
        if usable:
            sources[name] = f"histogram {metric}"
        elif count == 0:
            absent[name] = "the engine's histogram saw no request of this window"
        else:
            absent[name] = deltas.why or f"{parts.dialect.name} has no histogram of it"
    ttft, total_s = found["server_ttft_s"], found["server_total_s"]
    if found["server_decode_s"] is None and ttft is not None and total_s is not None:
        found["server_decode_s"] = total_s - ttft
        sources["server_decode_s"] = "histograms e2e - ttft"
    for name, metric in _SECONDS.items():
        if found[name] is None and metric in deltas.values:
            found[name] = _seconds_of_one(parts, name, metric)
    for name in found:
        if found[name] is not None:
            absent.pop(name, None)
    return found


def _seconds_of_one(parts: _Parts, name: str, metric: str) -> float | None:
    """A counter of seconds, as one request's time: slots that share batches cannot be told apart."""
    rise = parts.deltas.values[metric]
    pages = (parts.segment.before, parts.segment.after)
    off = sum(_last_digit(page.values.get(metric, 0.0), parts.dialect.digits) for page in pages)
    if not parts.alone:
        parts.absent[name] = "the engine's seconds are those of all its slots together"
    elif off > ROUGH * rise:
        parts.absent[name] = f"the engine's counter is too coarse: {rise:.3g} s, give or take {off:.1g} s"
    else:
        parts.sources[name] = f"counter {metric}"
        return rise
    return None


def _last_digit(value: float, digits: int | None) -> float:
    """Half of the last printed digit of a number with so many significant ones."""
    if digits is None or value <= 0:
        return 0.0
    return 0.5 * 10.0 ** (math.floor(math.log10(value)) + 1 - digits)


def _peak_fields(parts: _Parts) -> dict[str, Any]:
    segment = parts.segment
    peaks = {
        "kv_usage_peak": segment.kv_usage_peak,
        "in_flight_peak": None if segment.in_flight_peak is None else round(segment.in_flight_peak),
        "waiting_peak": None if segment.waiting_peak is None else round(segment.waiting_peak),
        "preemptions": parts.deltas.count("preemptions"),
    }
    for name, value in peaks.items():
        if value is None:
            parts.absent[name] = parts.deltas.why or "the engine does not show it"
    if peaks["kv_usage_peak"] is not None and not segment.busy_pages:
        peaks["kv_usage_peak"] = None  # what a quiet page shows is no peak
        parts.absent["kv_usage_peak"] = "no page fell into this window: look more often"
    return peaks


def _rate_fields(parts: _Parts, found: Mapping[str, Any], requests: int | None) -> dict[str, Any]:
    """Acceptance and decode rate, which follow from the other numbers."""
    output, decode_s = found["output_tokens"], found["server_decode_s"]
    # Verify steps tell acceptance through the tokens of one request: its prompt yields one of them.
    counted = speculation(parts.deltas, {}, parts.facts, output if parts.alone else None)
    rate: float | None = None
    if not output or not requests or output <= requests:
        parts.absent["decode_tok_s"] = "fewer than two output tokens, or requests that are not counted"
    elif not decode_s:
        parts.absent["decode_tok_s"] = parts.absent.get("server_decode_s", "decoding took no time")
    else:
        rate = (output - requests) / (decode_s * requests)
        parts.sources["decode_tok_s"] = parts.sources["server_decode_s"]
    return {"decode_tok_s": rate, **_acceptance(parts, counted)}


def _acceptance(parts: _Parts, counted: SpeculationCount) -> dict[str, Any]:
    """acceptance = accepted / drafted; length = 1 + accepted / drafts; None without drafts."""
    drafts, drafted, accepted = counted.drafts, counted.draft_tokens, counted.accepted_tokens
    places = counted.per_position
    fields: dict[str, Any] = {
        "drafts": drafts,
        "draft_tokens": drafted,
        "accepted_tokens": accepted,
        "acceptance": accepted / drafted if accepted is not None and drafted else None,
        "acceptance_length": 1 + accepted / drafts if accepted is not None and drafts else None,
        "acceptance_per_position": tuple(a / drafts for a in places) if places and drafts else None,
    }
    for name, value in fields.items():
        if value is None:
            parts.absent[name] = "nothing was drafted" if drafts == 0 else "the engine does not count it"
        else:
            parts.sources[name] = counted.source
    return fields


def _notes(segment: Segment, deltas: Deltas, dialect: Dialect) -> tuple[str, ...]:
    notes = []
    if segment.unread:
        notes.append(f"{_pages(segment.unread)} could not be had meanwhile: peaks may be higher")
    if any(not name.endswith("_seconds") for name in deltas.slack):
        notes.append(f"{COUNTS_OFF}: {dialect.name} prints {dialect.digits} digits")
    return tuple(notes)


def _pages(count: int) -> str:
    return f"{count} page" if count == 1 else f"{count} pages"
