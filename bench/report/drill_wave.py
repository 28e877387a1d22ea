"""Waves in the drill-down: requests that were released together, and what is told of all of them at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct

from bench.records import Measurement, Window
from bench.report.detail import Detail
from bench.report.escape import visible
from bench.report.quantities import significant, write

DetailKey = tuple[str, str, int]
"""Source, trial and attempt."""


class Together(Struct, frozen=True, kw_only=True):
    """One wave of a page."""

    number: int
    """Its place among the waves of the page, from 0."""
    facts: tuple[tuple[str, str], ...]
    """Name and text of what was counted for the wave as a whole."""
    shared: Detail | None
    """The detail that holds the samples and waits of the wave: its first request's."""


def waves_of(
    measurements: Iterable[Measurement], details: Mapping[DetailKey, Detail]
) -> dict[tuple[str, str], Together]:
    """Every wave, by source and id."""
    found: dict[tuple[str, str], Together] = {}
    for one in measurements:
        if one.window is None:
            continue
        key = (one.source, one.window.id)
        detail = details.get((one.source, one.trial_id, one.attempt))
        before = found.get(key)
        if before is None:
            found[key] = Together(number=len(found), facts=facts_of(one.window), shared=detail)
        elif detail is not None and detail.sample_s:
            found[key] = Together(number=before.number, facts=before.facts, shared=detail)
    return found


def facts_of(window: Window) -> tuple[tuple[str, str], ...]:
    """What a wave did as a whole, as far as it is known."""
    rate = window.output_tokens / window.span_s if window.output_tokens and window.span_s else None
    per_s = "" if rate is None else f" ({significant(rate, 3)} tok/s)"
    texts = {
        "span": _seconds(window.span_s),
        "prompt": _count(window.prompt_tokens, " tokens"),
        "output": _count(window.output_tokens, f" tokens{per_s}"),
        "reused": _reused(window),
        "accepted": _accepted(window),
        "mean queue": _seconds(window.queue_s),
        "KV peak": None if window.kv_usage_peak is None else write(window.kv_usage_peak, "share"),
        "running, most": _count(window.running_peak),
        "waiting, most": _count(window.waiting_peak),
        "preemptions": _count(window.preemptions),
    }
    return tuple((name, text) for name, text in texts.items() if text)


def _reused(window: Window) -> str | None:
    if window.cached_tokens is None:
        return None
    text = f"{window.cached_tokens:,} tokens"
    if window.expected_cached is not None:
        text += f" of {window.expected_cached:,} expected"
    return text + (f" ({visible(window.cached_source, 60)})" if window.cached_source else "")


def _accepted(window: Window) -> str | None:
    if window.accepted_tokens is None or not window.draft_tokens:
        return None
    share = write(window.accepted_tokens / window.draft_tokens, "share")
    return f"{window.accepted_tokens:,} of {window.draft_tokens:,} drafted ({share})"


def _count(value: float | None, unit: str = "") -> str | None:
    return None if value is None else write(value, "count") + unit


def _seconds(value: float | None) -> str | None:
    return None if value is None else f"{write(value, 'seconds')} s"
