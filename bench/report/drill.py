"""The trials of report.html as compact data: thousands of them in a few megabytes."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from bench.analysis.statistics.curves import picks
from bench.records import Measurement
from bench.report.content import Content
from bench.report.detail import Detail
from bench.report.drill_wave import Together, waves_of
from bench.report.escape import visible
from bench.report.grid import verdict_key
from bench.report.witness import witnesses
from bench.report.words import reason_text, verdict_text

BUDGET = 2_500_000
"""Bytes that all trials of a page may take."""

LEVELS = ((120, 280), (48, 140), (20, 60), (8, 0))
"""Points of a curve and characters of an answer, richest first; the first that fits is taken."""


class Drill(Struct, frozen=True, kw_only=True):
    """What the page's script reads."""

    json: str
    """An array of trials, each an array in the order of `FIELDS`; no `<` in it."""
    shown: int
    total: int
    note: str
    """What was left out, in a sentence; empty when nothing was."""


FIELDS = (
    "trial", "route", "tier", "condition", "replay", "attempt", "prompt", "output", "ttft", "decode",
    "acceptance", "length", "reuse", "total", "valid", "verdict", "notes", "detail", "wave",
)  # fmt: skip
"""Order of a trial's values; report.js uses the same places."""


def drill(content: Content, budget: int = BUDGET) -> Drill:
    """All trials with as much detail as fits into `budget` bytes.

    Excluded trials are kept before valid ones when even the smallest form of all is too large.
    """
    trials = list(content.everything)
    sample = trials[:: max(1, len(trials) // 50)]
    encode = _Encoder(content).encode
    size = 0.0
    for points, characters in LEVELS:
        size = len(encode(sample, points, characters)) * len(trials) / max(1, len(sample))
        if size > 1.1 * budget:
            continue  # do not write out what is clearly too much
        data = encode(trials, points, characters)
        size = len(data)
        if size <= budget:
            note = ""
            if (points, characters) != LEVELS[0]:
                note = f"Curves are reduced to {points} points and answers to {characters} characters."
            return Drill(json=data, shown=len(trials), total=len(trials), note=note)
    keep = max(1, int(len(trials) * budget / size * 0.8))
    kept = sorted(sorted(trials, key=lambda one: one.verdict.valid)[:keep], key=lambda one: one.order)
    data = encode(kept, *LEVELS[-1])
    note = f"Only {len(kept):,} of {len(trials):,} trials are listed; all are in measurements.csv."
    return Drill(json=data, shown=len(kept), total=len(trials), note=note)


class _Encoder:
    """Writes trials of one content, in any detail."""

    def __init__(self, content: Content) -> None:
        self._place = {name: index for index, name in enumerate(content.routes)}
        self._details = {(one.source, one.trial_id, one.attempt): one for one in content.details}
        self._waves = waves_of(content.waves, self._details)

    def encode(self, trials: list[Measurement], points: int, characters: int) -> str:
        rows = []
        for one in trials:
            detail = self._details.get((one.source, one.trial_id, one.attempt))
            wave = self._waves[one.source, one.window.id] if one.window is not None else None
            values, curve = _row(one, self._place), _detail(detail, one, wave, points, characters)
            rows.append([*values, curve, _wave(one, detail, wave)])
        # `<` could end the script element or open a comment in it; JSON can say it otherwise.
        return msgspec.json.encode(rows).decode().replace("<", "\\u003c")


def _row(one: Measurement, place: dict[str, int]) -> list[Any]:
    notes = [reason_text(reason) for reason in one.verdict.warnings]
    return [
        visible(one.trial_id, 120),
        place[one.route],
        one.tier,
        one.condition,
        one.replay,
        one.attempt,
        one.prompt_tokens,
        one.output_tokens,
        _round(one.ttft_s),
        _round(one.decode_tok_s),
        _round(one.acceptance),
        _round(one.acceptance_length),
        _round(one.prefix_reuse),
        _round(one.total_s),
        int(one.verdict.valid),
        "ok" if one.verdict.valid else visible(verdict_key(one), 60),
        [visible(text, 200) for text in ([] if one.verdict.valid else [verdict_text(one)]) + notes][:6],
    ]


def _wave(one: Measurement, detail: Detail | None, wave: Together | None) -> list[Any] | None:
    """Number of the wave, its size, place in it, release to first byte, and what it did as a whole."""
    if wave is None:
        return None
    late = None if detail is None else _round(detail.released_s)
    return [wave.number, one.concurrency, one.stream, late, wave.facts]


def _detail(
    detail: Detail | None, one: Measurement, wave: Together | None, points: int, characters: int
) -> list[Any] | None:
    if detail is None:
        return None
    shared = wave.shared if wave is not None and wave.shared is not None else detail
    # Samples of a wave count from the first byte of the request that holds them.
    shift = (shared.released_s or 0.0) - (detail.released_s or 0.0)
    curve = picks(len(detail.curve_s), points)
    samples = picks(len(shared.sample_s), points)
    seen = any(use is not None for use in shared.kv_usage)
    return [
        [_round(detail.curve_s[i]) for i in curve],
        [detail.curve_count[i] for i in curve],
        detail.curve_unit,
        [_round(shared.sample_s[i] + shift) for i in samples] if seen else [],
        [_round(shared.kv_usage[i]) for i in samples] if seen else [],
        _round(detail.ended_s),
        [_round(t) for t in (detail.connect_s, detail.uploaded_s, detail.headers_s, detail.first_text_s)],
        [_round(t) for t in (shared.idle_wait_s, shared.settle_s)],
        detail.started_at[:32],
        visible(detail.said, characters) if characters else "",
        visible(one.absent.get("prefix_reuse", ""), 100),
        _witnesses(one) if characters else "",
        detail.prompt if characters else "",
    ]


def _witnesses(one: Measurement) -> str:
    """Those of the numbers that readers doubt first."""
    named = {"output_tokens": "output", "acceptance": "acceptance", "prefix_reuse": "reuse"}
    found = {label: witnesses((one,), key) for key, label in named.items()}
    return "; ".join(f"{label} from {source}" for label, source in found.items() if source)


def _round(value: float | None) -> float | None:
    """Six significant digits: enough for a curve, half the bytes."""
    return None if value is None else float(f"{value:.6g}")
