"""What the machine did while a prompt was prefilled and while its answer was decoded.

Prefill is from `sent` to the first text, decode from there to the last text. A look counts for the
phase in which it came; exporters renew their numbers now and then (DCGM's every 30 s unless told
otherwise), so a phase shorter than that is blurred by its neighbour.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from msgspec import Struct

from bench.engines.machine import GAUGES
from bench.records import Exchange, MachineSamples

Phase = Literal["prefill", "decode", "whole"]
"""`whole`: of a watched request or window, whose phases no client has seen."""
PHASES: tuple[Phase, ...] = ("prefill", "decode")

_AVERAGED = ("gpu_utilisation", "gpu_dram_active")
"""Gauges whose devices are averaged; of all others they are added up."""
_LOCAL = "nvml"


class PhaseUse(Struct, frozen=True, kw_only=True):
    """One gauge during one phase: all devices of the machine together."""

    phase: Phase
    gauge: str
    """Key of `engines.machine.GAUGES`, whose unit it has."""
    devices: int
    mean: float
    """Over the looks of the phase. Fractions: the average of all devices; else their sum."""
    peak: float
    """The largest look; of several exporters the sum of their peaks (an upper bound)."""
    looks: int
    """Looks that fell into the phase (of the exporter with the fewest)."""


def phase_uses(exchange: Exchange) -> tuple[PhaseUse, ...]:
    """What each gauge did in each phase; a phase into which no look fell is left out.

    Several exporters are several hosts: they are put together. Local GPUs count only where no exporter
    tells the same, which would be the same GPUs again.
    """
    limits = _phases(exchange) if exchange.machine else {}
    found = (_use(exchange.machine, gauge, phase, span) for gauge in GAUGES for phase, span in limits.items())
    return tuple(use for use in found if use is not None)


def uses_within(machine: Sequence[MachineSamples], start_ns: int, end_ns: int) -> tuple[PhaseUse, ...]:
    """What each gauge did between two times of the samples' clock; one without a look is left out."""
    found = (_use(machine, gauge, "whole", (start_ns, end_ns)) for gauge in GAUGES)
    return tuple(use for use in found if use is not None)


def _use(
    machine: Sequence[MachineSamples], gauge: str, phase: Phase, span: tuple[int, int]
) -> PhaseUse | None:
    sources = [one for one in machine if _devices(one, gauge)]
    others = [one for one in sources if one.source != _LOCAL]
    parts = [_part(one, gauge, phase, *span) for one in others or sources]
    known = [part for part in parts if part is not None]
    return _together(known) if known and len(known) == len(parts) else None


def pooled(uses: Iterable[PhaseUse]) -> dict[tuple[Phase, str], PhaseUse]:
    """Several exchanges of one kind as one: every look weighs the same, the peak is the largest."""
    groups: dict[tuple[Phase, str], list[PhaseUse]] = {}
    for use in uses:
        groups.setdefault((use.phase, use.gauge), []).append(use)
    return {
        key: PhaseUse(
            phase=key[0],
            gauge=key[1],
            devices=max(use.devices for use in group),
            mean=_weighted([(use.mean, use.looks) for use in group]),
            peak=max(use.peak for use in group),
            looks=sum(use.looks for use in group),
        )
        for key, group in groups.items()
    }


def _phases(exchange: Exchange) -> Mapping[Phase, tuple[int, int]]:
    """Phase -> its first and last nanosecond after `sent`; none without text."""
    at_ns = exchange.chunks.text.at_ns
    if not len(at_ns):
        return {}
    first, last = int(at_ns[0]), int(at_ns[-1])
    return {"prefill": (0, first), "decode": (first, last)}


def _devices(samples: MachineSamples, gauge: str) -> list[str]:
    return [name for name in samples.values if name.partition(".")[0] == gauge]


def _part(samples: MachineSamples, gauge: str, phase: Phase, start: int, end: int) -> PhaseUse | None:
    """One exporter's share; looks at which a device said nothing are left out."""
    names = _devices(samples, gauge)
    columns = [samples.values[name] for name in names]
    looks = []
    for at, *values in zip(samples.at_ns, *columns, strict=False):
        told = [value for value in values if value is not None]
        if start <= at <= end and len(told) == len(columns):
            looks.append(sum(told) / len(told) if gauge in _AVERAGED else sum(told))
    if not looks:
        return None
    return PhaseUse(
        phase=phase,
        gauge=gauge,
        devices=len(names),
        mean=sum(looks) / len(looks),
        peak=max(looks),
        looks=len(looks),
    )


def _together(parts: Sequence[PhaseUse]) -> PhaseUse:
    """Several hosts as one machine."""
    first = parts[0]
    if first.gauge in _AVERAGED:
        mean = _weighted([(part.mean, part.devices) for part in parts])
        peak = _weighted([(part.peak, part.devices) for part in parts])
    else:
        mean, peak = sum(part.mean for part in parts), sum(part.peak for part in parts)
    return PhaseUse(
        phase=first.phase,
        gauge=first.gauge,
        devices=sum(part.devices for part in parts),
        mean=mean,
        peak=peak,
        looks=min(part.looks for part in parts),
    )


def _weighted(values: Sequence[tuple[float, int]]) -> float:
    return sum(value * weight for value, weight in values) / sum(weight for _, weight in values)
