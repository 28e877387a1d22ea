"""GPUs of this machine, where NVIDIA's library and its Python binding `pynvml` are there.

Both are optional: without them there is nothing to be read, and that is no error.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator
from typing import Any

from bench.engines.machine import MOST_DEVICES


class Nvml:
    """The GPUs of this machine while `open_nvml()` lasts."""

    def __init__(self, library: Any) -> None:
        self._library = library
        count = min(int(library.nvmlDeviceGetCount()), MOST_DEVICES)
        self._handles = [library.nvmlDeviceGetHandleByIndex(number) for number in range(count)]

    def read(self) -> tuple[dict[str, float], str | None]:
        """Gauge and device -> value, as `engines.machine.read_machine` gives them, and why there is none.

        What a device does not tell is left out.
        """
        found: dict[str, float] = {}
        for number, handle in enumerate(self._handles):
            for gauge, ask in (
                ("gpu_utilisation", self._utilisation),
                ("gpu_memory_used", self._memory),
                ("gpu_power", self._power),
            ):
                with contextlib.suppress(self._library.NVMLError):  # this device does not tell
                    found[f"{gauge}.{number}"] = ask(handle)
        return found, None if found else "NVML tells nothing of these GPUs"

    def facts(self) -> dict[str, str]:
        """Driver and names, for run.json."""
        facts: dict[str, str] = {}
        with contextlib.suppress(self._library.NVMLError):
            facts["nvidia_driver"] = _text(self._library.nvmlSystemGetDriverVersion())
        for number, handle in enumerate(self._handles):
            with contextlib.suppress(self._library.NVMLError):
                facts[f"gpu.{number}"] = _text(self._library.nvmlDeviceGetName(handle))
        return facts

    def _utilisation(self, handle: Any) -> float:
        return float(self._library.nvmlDeviceGetUtilizationRates(handle).gpu) / 100.0

    def _memory(self, handle: Any) -> float:
        return float(self._library.nvmlDeviceGetMemoryInfo(handle).used)

    def _power(self, handle: Any) -> float:
        return float(self._library.nvmlDeviceGetPowerUsage(handle)) / 1000.0  # milliwatts


@contextlib.contextmanager
def open_nvml() -> Iterator[Nvml | None]:
    """The GPUs of this machine; `None` where there is no GPU, no driver or no binding."""
    try:
        library = importlib.import_module("pynvml")
    except ImportError:
        yield None
        return
    try:
        library.nvmlInit()
        found = Nvml(library)
    except library.NVMLError:
        yield None
        return
    try:
        yield found if found.facts() else None
    finally:
        with contextlib.suppress(library.NVMLError):
            library.nvmlShutdown()


def _text(value: str | bytes) -> str:
    """Older bindings give bytes."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
