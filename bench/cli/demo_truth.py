"""What `ctxbench demo --simulated` says of its figures: each beside its truth, and whether it holds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from bench.records import Crossover
    from bench.run.truth import Compared, Figure

PUBLISHED = "qwen3.8-27b-v100.csv"
CROSSOVER_LIMIT = 0.05
"""How far a measured crossover may be from the published one, as a share of it."""


class Judged(Struct, frozen=True, kw_only=True):
    """Lines for the reader, and whether all that they say is as it should be."""

    lines: tuple[str, ...]
    holds: bool


def judge(compared: Sequence[Compared], *, speed: float) -> Judged:
    """Times within the larger of 1% and 1 ms of their scaled truth, counts exact, crossovers within 5%."""
    head = f"Against the simulator's own plan (all times are 1/{speed:g} of the published server's):"
    parts = (_times(compared), _counts(compared), _lateness(compared), _crossovers(compared))
    return Judged(
        lines=(head, *(line for part in parts for line in part.lines)),
        holds=all(part.holds for part in parts),
    )


def _times(compared: Sequence[Compared]) -> Judged:
    figures = [figure for one in compared for figure in one.figures]
    missing = [one.measured.trial_id for one in compared if not one.figures]
    lines = [f"  worst {_told(worst)}" for worst in _worst(figures)]
    beyond = sorted((one for one in figures if one.share > 1), key=lambda one: -one.share)
    limit = "the larger of 1% and 1 ms"
    if beyond:
        lines.append(f"  {len(beyond)} of {len(figures)} times are off by more than {limit}:")
        lines += [f"    {_told(one)}" for one in beyond]
    else:
        lines.append(f"  times: all {len(figures)} within {limit}")
    if missing:
        lines.append(f"  not measured: {', '.join(missing)}")
    return Judged(lines=tuple(lines), holds=bool(figures) and not beyond and not missing)


def _worst(figures: Sequence[Figure]) -> Iterator[Figure]:
    """Of each kind the one nearest to its tolerance, or furthest beyond it."""
    for name in dict.fromkeys(figure.name for figure in figures):
        yield max((one for one in figures if one.name == name), key=lambda one: one.share)


def _told(one: Figure) -> str:
    """`first token: +0.45 ms of 92.31 ms, 45% of what is allowed (simulator +0.05, client +0.40), TRIAL`."""
    return (
        f"{one.name}: {one.error_s * 1e3:+.2f} ms of {one.planned_s * 1e3:,.2f} ms, "
        f"{one.share:.0%} of what is allowed "
        f"(simulator {one.plan_s * 1e3:+.2f}, client {one.ruler_s * 1e3:+.2f}), {one.trial_id}"
    )


def _counts(compared: Sequence[Compared]) -> Judged:
    wrong = [
        f"    {one.measured.trial_id}: {field} {measured}, truly {true}"
        for one in compared
        for field, (measured, true) in one.wrong_counts().items()
    ]
    lines = ("  counts that differ:", *wrong) if wrong else ("  counts: all exact",)
    return Judged(lines=lines, holds=not wrong)


def _lateness(compared: Sequence[Compared]) -> Judged:
    late_s = max((one.overrun_s for one in compared), default=0.0)
    line = f"  the simulator itself was at most {late_s * 1000:.1f} ms late with a chunk"
    return Judged(lines=(line,), holds=True)


def _crossovers(compared: Sequence[Compared]) -> Judged:
    """Measured, true and published crossovers, in output tokens."""
    from bench.analysis.decisions.baseline import read_table
    from bench.analysis.decisions.crossover import crossovers, one_way
    from bench.resources import shipped

    text = shipped("results", "published", PUBLISHED).read_text(encoding="utf-8")
    valid = [one for one in compared if one.measured.verdict.valid]
    measured = one_way(crossovers([one.measured for one in valid]))
    true = crossovers([one.true for one in valid])
    published = crossovers(read_table(text, kind="csv", source="published"))
    told = "Crossovers by straight lines, as the published ones are; the report above reads measured curves:"
    lines = ["", told, f"{'crossover (output tokens)':44} {'measured':>18} {'true':>18} {'published':>18}"]
    off = []
    for one in measured:
        name = f"{one.route} against {one.base}, {one.tier:,} {one.condition}"
        known = _same(published, one)
        cells = [_words(found) for found in (one, _same(true, one), known)]
        lines.append(f"{name:44} " + " ".join(f"{cell:>18}" for cell in cells))
        if known is not None and _apart(one, known) > CROSSOVER_LIMIT:
            off.append(name)
    lines += [f"more than {CROSSOVER_LIMIT:.0%} off the published one: {name}" for name in off]
    return Judged(lines=tuple(lines), holds=not off)


def _apart(one: Crossover, known: Crossover) -> float:
    """Distance from `known` as a share of it; infinite where one crosses and the other does not."""
    if one.output_tokens is None or known.output_tokens is None:
        return 0.0 if one.status == known.status else float("inf")
    return abs(one.output_tokens / known.output_tokens - 1)


def _same(found: Sequence[Crossover], like: Crossover) -> Crossover | None:
    for one in found:
        close = abs(one.tier - like.tier) <= like.tier / 1000
        if (one.route, one.base, one.condition) == (like.route, like.base, like.condition) and close:
            return one
    return None


def _words(one: Crossover | None) -> str:
    if one is None:
        return "-"
    if one.output_tokens is None:
        return one.status
    if one.low is None or one.high is None:
        return f"{one.output_tokens:,.0f}"
    return f"{one.low:,.0f} to {one.high:,.0f}"
