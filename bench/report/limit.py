"""What the condition `over-limit` showed: a line for each side of a route's drafter limit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bench.records import Measurement

if TYPE_CHECKING:
    from bench.report.content import Content

_TELLING = ("speculation_fallback", "fallback_unlike_version", "drafts_past_limit", "log_flood")


def limit_lines(content: Content) -> list[str]:
    """Drafts, acceptance, and what was made of them, under and over each drafter limit."""
    cells: dict[tuple[str, int, str], list[Measurement]] = {}
    for run in content.runs:
        sides = {trial.id: trial.side for trial in run.info.plan if trial.side is not None}
        for one in content.measurements:
            side = sides.get(one.trial_id)
            if side is not None and one.source == run.info.id and one.verdict.valid:
                cells.setdefault((one.route, one.tier, side), []).append(one)
    return [
        f"{route}, {tier:,} tokens, {side} the drafter limit: {_counts(found)}{_details(found)}"
        for (route, tier, side), found in cells.items()
    ]


def _counts(found: Sequence[Measurement]) -> str:
    drafts = [one.drafts for one in found if one.drafts is not None]
    shares = [one.acceptance for one in found if one.acceptance is not None]
    if not drafts:
        return "drafts not counted"
    least, most = min(drafts), max(drafts)
    text = f"{least:,} drafts" if least == most else f"{least:,} to {most:,} drafts"
    if shares:
        low, high = f"{min(shares):.1%}", f"{max(shares):.1%}"
        text += f", {low if low == high else f'{low} to {high}'} accepted"
    return text


def _details(found: Sequence[Measurement]) -> str:
    """The figures of the first trial that has some of each kind; the others are in the drill-down."""
    reasons: dict[str, str] = {}
    for one in found:
        for reason in one.verdict.warnings:
            if reason.id in _TELLING:
                reasons.setdefault(reason.id, reason.detail)
    return "".join(f"; {reasons[name]}" for name in _TELLING if name in reasons)
