"""Pages of exporters that tell of the machine under a server: what its GPUs and its host do.

Known are the names of NVIDIA's DCGM exporter, of nvidia_gpu_exporter and of node_exporter. A page is
foreign text: only these families are read, devices are bounded, and a value that no machine can have
(DCGM writes 9.2e18 for "not known") is absent.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import islice

from msgspec import Struct

MAX_CHARS = 4_000_000
_MAX_LINE = 4_096
MOST_DEVICES = 64
"""Devices read of one page; the rest is left out."""

GAUGES: dict[str, str] = {
    "gpu_utilisation": "fraction of the time in which a kernel ran, 0 to 1",
    "gpu_memory_used": "bytes of GPU memory in use",
    "gpu_power": "watts",
    "gpu_dram_active": "fraction of the time in which GPU memory was read or written, 0 to 1",
    "host_load": "load of the last minute, in processes",
    "host_memory_used": "bytes of host memory in use",
}
"""Everything known of a machine. GPU gauges carry their device behind a dot: `gpu_power.0`."""

_LARGEST = {
    "gpu_utilisation": 1.0,
    "gpu_memory_used": 1e14,
    "gpu_power": 1e5,
    "gpu_dram_active": 1.0,
    "host_load": 1e6,
    "host_memory_used": 1e16,
}
_MIB = 1024.0 * 1024.0
_DEVICE = re.compile(r"[^\w.:-]")


class _Source(Struct, frozen=True, kw_only=True):
    """One family of an exporter, and what it takes to have our unit."""

    gauge: str
    family: str
    factor: float = 1.0
    device: str | None = "gpu"
    """Label that tells devices apart."""


_SOURCES = (
    _Source(gauge="gpu_utilisation", family="DCGM_FI_DEV_GPU_UTIL", factor=0.01),
    _Source(gauge="gpu_memory_used", family="DCGM_FI_DEV_FB_USED", factor=_MIB),
    _Source(gauge="gpu_power", family="DCGM_FI_DEV_POWER_USAGE"),
    _Source(gauge="gpu_dram_active", family="DCGM_FI_PROF_DRAM_ACTIVE"),
    _Source(gauge="gpu_utilisation", family="nvidia_smi_utilization_gpu_ratio", device="uuid"),
    _Source(gauge="gpu_memory_used", family="nvidia_smi_memory_used_bytes", device="uuid"),
    _Source(gauge="gpu_power", family="nvidia_smi_power_draw_watts", device="uuid"),
    _Source(gauge="host_load", family="node_load1", device=None),
)
_HOST_TOTAL, _HOST_FREE = "node_memory_MemTotal_bytes", "node_memory_MemAvailable_bytes"
_DEVICE_LABELS = {
    **{source.family: source.device for source in _SOURCES},
    _HOST_TOTAL: None,
    _HOST_FREE: None,
}
"""Every family that is read -> the label that tells its devices apart."""

_Values = dict[str, dict[str, float]]
"""Family -> device (empty without one) -> value."""


def read_machine(text: str) -> tuple[dict[str, float], str | None]:
    """Gauge (and device) -> value in our units, and why there is none. Never raises.

    Read without the parser of whole pages: this happens while a stream is being timed.
    """
    if len(text) > MAX_CHARS:
        return {}, f"the page has {len(text):,} characters, more than {MAX_CHARS:,}"
    if text.lstrip()[:1] in ("{", "[", "<"):
        return {}, "the answer is no metrics page (JSON or HTML)"
    values = _known_values(text)
    found: dict[str, float] = {}
    for gauge in GAUGES:
        # The first family that is there: further names are another exporter's for the same.
        sources = (source for source in _SOURCES if source.gauge == gauge and source.family in values)
        for source in islice(sources, 1):
            for device, value in values[source.family].items():
                _keep(found, gauge, device if source.device else None, value * source.factor)
    total, free = values.get(_HOST_TOTAL), values.get(_HOST_FREE)
    if total and free:
        _keep(found, "host_memory_used", None, total[""] - free[""])
    return found, None if found else "the page holds no gauge of a GPU or host that is known here"


def _known_values(text: str) -> _Values:
    """The values of known families, of each as many as there may be devices."""
    values: _Values = {}
    for line in text.split("\n"):
        name, labels, rest = _parts(line)
        if name not in _DEVICE_LABELS or len(line) > _MAX_LINE:
            continue
        label = _DEVICE_LABELS[name]
        named = re.search(rf'(?:^|,)\s*{label}="([^"]*)"', labels) if label else None
        try:
            value = float(rest.split(None, 1)[0])
        except (ValueError, IndexError):
            continue  # this line alone is lost
        family = values.setdefault(name, {})
        if len(family) < MOST_DEVICES:
            family[named[1] if named else ""] = value
    return values


def _parts(line: str) -> tuple[str, str, str]:
    """Name, labels and what follows. No regular expression: a hostile line would take it minutes."""
    name, brace, rest = line.partition("{")
    if brace:
        labels, _, rest = rest.rpartition("}")
        return name.strip(), labels, rest
    name, _, rest = line.strip().partition(" ")
    return name, "", rest


def _keep(found: dict[str, float], gauge: str, device: str | None, value: float) -> None:
    """Takes a value in, if a machine can have it."""
    if not 0 <= value <= _LARGEST[gauge]:
        return
    if device is None:
        found[gauge] = value
        return
    found[f"{gauge}.{_DEVICE.sub('_', device)[:40] or '0'}"] = value


def gauges_of(names: Iterable[str]) -> dict[str, int]:
    """Gauge -> number of devices, in the order of `GAUGES`; for people."""
    counts = dict.fromkeys(GAUGES, 0)
    for name in names:
        gauge = name.partition(".")[0]
        if gauge in counts:
            counts[gauge] += 1
    return {gauge: count for gauge, count in counts.items() if count}
