"""The machine table: what GPUs and host did while prompts were prefilled and answers decoded."""

from __future__ import annotations

from collections.abc import Mapping

from bench.analysis.decisions.claims import many
from bench.analysis.statistics.machine import PHASES, Phase, PhaseUse, pooled
from bench.report.content import Content
from bench.report.detail import Detail
from bench.report.quantities import MISSING
from bench.report.told import Table, Told

NOTE = (
    "Mean and peak over the looks that fell into a phase of a valid trial: prefill is from sending to the "
    "first text, decode from there to the last. Utilisation and memory activity are the average of all GPUs, "
    "memory, power and load are their sum; of several exporters peaks are added up. An exporter's numbers "
    "are as old as its own interval: phases shorter than that are blurred. All that runs on these GPUs "
    "and this host is in them, also what is not ours. Cold rows count valid salted samples too."
)

_SHOWN: Mapping[str, tuple[str, float, str]] = {
    "gpu_utilisation": ("GPU busy (%)", 100.0, ".0f"),
    "gpu_dram_active": ("GPU memory active (%)", 100.0, ".0f"),
    "gpu_memory_used": ("GPU memory (GB)", 1e-9, ",.1f"),
    "gpu_power": ("GPU power (W)", 1.0, ",.0f"),
    "host_load": ("host load", 1.0, ",.1f"),
    "host_memory_used": ("host memory (GB)", 1e-9, ",.1f"),
}
"""Gauge -> its head, the factor to the unit shown, its format. Mean and peak stand in one cell."""

_Kind = tuple[str, int, int, str]


def machine_table(content: Content) -> Table | None:
    """A row for route, tier, condition and phase; `None` where no machine was looked at."""
    groups = sorted_uses(content)
    gauges = [gauge for gauge in _SHOWN if any(gauge == key[1] for _, found in groups for key in found)]
    if not gauges:
        return None
    several = len({level for (_, _, level, _), _ in groups}) > 1
    head = ("route", "tier", "condition", *(["at once"] if several else []), "phase", "GPUs", "looks")
    rows = []
    for (route, tier, level, condition), found in groups:
        for phase in PHASES:
            own = {gauge: found[phase, gauge] for gauge in gauges if (phase, gauge) in found}
            if own:
                first = (route, f"{tier:,}", condition, *([str(level)] if several else []), phase)
                rows.append((*first, *_counts(own), *(_cell(gauge, own.get(gauge)) for gauge in gauges)))
    titles = tuple(f"{_SHOWN[gauge][0]}, mean / peak" for gauge in gauges)
    right = tuple(range(len(head) - 2, len(head) + len(titles)))
    return Table(title="Machine", head=(*head, *titles), rows=tuple(rows), note=NOTE, right=(1, *right))


def sorted_uses(content: Content) -> list[tuple[_Kind, dict[tuple[Phase, str], PhaseUse]]]:
    """(route, tier, requests at once, condition) -> what each gauge did in each phase; by tier, route."""
    place = {name: number for number, name in enumerate(content.routes)}
    groups = {kind: pooled(uses) for kind, uses in _uses(content).items()}
    return sorted(groups.items(), key=lambda item: (*item[0][1:], place.get(item[0][0], len(place))))


def _uses(content: Content) -> dict[_Kind, list[PhaseUse]]:
    """The uses of all valid trials, by what a row stands for."""
    details: dict[tuple[str, str, int], Detail] = {
        (one.source, one.trial_id, one.attempt): one for one in content.details
    }
    groups: dict[_Kind, list[PhaseUse]] = {}
    for one in content.measurements:
        detail = details.get((one.source, one.trial_id, one.attempt))
        if detail is not None and detail.machine and one.verdict.valid:
            condition = "cold" if one.condition == "salted" else one.condition
            groups.setdefault((one.route, one.tier, one.concurrency, condition), []).extend(detail.machine)
    return groups


def _counts(own: Mapping[str, PhaseUse]) -> tuple[str, str]:
    gpus = [use.devices for gauge, use in own.items() if gauge.startswith("gpu_")]
    return str(max(gpus)) if gpus else MISSING, str(max(use.looks for use in own.values()))


def _cell(gauge: str, use: PhaseUse | None) -> str:
    if use is None:
        return MISSING
    head, factor, form = _SHOWN[gauge]
    text = f"{use.mean * factor:{form}} / {use.peak * factor:{form}}"
    seen = f"{many(use.looks, 'look')} in {use.phase}, {many(use.devices, 'device')}"
    source = f"{head}: {seen}; exporters of the route."
    return Told(text, source)
