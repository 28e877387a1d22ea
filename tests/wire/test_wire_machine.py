"""Looks at a machine: in columns, bounded, out of the way; and local GPUs where there is a library."""

from __future__ import annotations

import asyncio
import sys
import types
from collections.abc import Callable

import httpx
import pytest
from handled import Handled

from bench.records import MachineSamples
from bench.wire import machine
from bench.wire.client import Client
from bench.wire.host import environment
from bench.wire.machine import MachineSampler, look_at
from bench.wire.nvml import open_nvml

Answer = tuple[dict[str, float], str | None]


class Time:
    """A clock that only sleeping and looking move."""

    def __init__(self) -> None:
        self.now = 0.0
        self.pauses: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(round(seconds, 9))
        self.now += seconds
        await asyncio.sleep(0)


def sample(*answers: Answer, cost_s: float = 0.0) -> tuple[MachineSamples, list[float]]:
    """Samples of a source that gives these answers and no more; sent at 1 s, ended at 10,000 s."""
    time, left = Time(), list(answers)

    async def main() -> MachineSamples:
        ended = asyncio.Event()

        async def look() -> Answer:
            time.now += cost_s
            if left:
                return left.pop(0)
            ended.set()
            await asyncio.Event().wait()
            raise AssertionError

        sampler = MachineSampler({"x": look}, clock_ns=lambda: round(time.now * 1e9), sleep=time.sleep)
        async with sampler:
            await ended.wait()
        (found,) = sampler.samples(1_000_000_000, 10_000_000_000_000)
        return found

    return asyncio.run(main()), time.pauses


def test_looks_stand_in_columns_and_a_gauge_that_comes_later_was_absent_before() -> None:
    found, pauses = sample(
        ({"gpu_power.0": 100.1234567}, None),
        ({"gpu_power.0": 200.0, "host_load": 1.5}, None),
        ({}, "nobody listens"),
        ({"host_load": 2.0}, None),
    )
    assert pauses == [0.02, 2.0, 2.0, 2.0, 2.0]
    assert found == MachineSamples(
        source="x",
        at_ns=(-980_000_000, 1_020_000_000, 5_020_000_000),
        values={"gpu_power.0": (100.123, 200.0, None), "host_load": (None, 1.5, 2.0)},
        problem="nobody listens",
    )


def test_what_is_forgotten_is_not_told_any_more() -> None:
    async def main() -> list[MachineSamples]:
        time, number, ended = Time(), -1.0, asyncio.Event()

        async def look() -> Answer:
            nonlocal number
            number += 1
            if number == 5:
                ended.set()
                await asyncio.Event().wait()
            return {"host_load": number}, None

        def clock_ns() -> int:
            return round((time.now - 0.02) * 1e9)  # the first look is at 0

        found: list[MachineSamples] = []
        async with MachineSampler({"x": look}, period_s=1.0, clock_ns=clock_ns, sleep=time.sleep) as sampler:
            await ended.wait()
            for before_s in (0, 3, 9):
                sampler.forget(before_s * 1_000_000_000)
                found += sampler.samples(0, 9_000_000_000)
        return found

    whole, late, none = asyncio.run(main())
    assert whole.values == {"host_load": (0.0, 1.0, 2.0, 3.0, 4.0)}
    assert (late.at_ns, late.values) == ((3_000_000_000, 4_000_000_000), {"host_load": (3.0, 4.0)})
    assert (none.at_ns, none.values) == ((), {})


def test_a_slow_exporter_is_asked_less_often() -> None:
    assert sample(({"host_load": 1.0}, None), cost_s=0.5)[1] == [0.02, 10.0]


def test_a_long_exchange_keeps_its_whole_length_in_bounded_room() -> None:
    most = machine.MOST_SAMPLES
    found, pauses = sample(*[({"host_load": float(number)}, None) for number in range(most + 2)])
    # Every second of the first 600, then two more.
    assert len(found.at_ns) == most // 2 + 2
    assert found.values["host_load"][:3] == (0.0, 2.0, 4.0)
    assert found.values["host_load"][-2:] == (most, most + 1)
    assert (pauses[most], pauses[most + 1]) == (2.0, 4.0)


def test_ever_new_devices_do_not_fill_the_memory() -> None:
    found, _ = sample(*[({f"gpu_power.{look}-{n}": 1.0 for n in range(64)}, None) for look in range(20)])
    assert len(found.values) == 64 * 6


def test_samples_after_the_end_are_left_out_and_nothing_to_look_at_is_nothing() -> None:
    async def main() -> None:
        async with MachineSampler({}) as nothing:
            pass
        assert nothing.samples(0, 1) == ()

        async def look() -> Answer:
            return {"host_load": 1.0}, None

        time = Time()
        sampler = MachineSampler({"x": look}, clock_ns=lambda: round(time.now * 1e9), sleep=time.sleep)
        async with sampler:
            while time.now < 10:
                await asyncio.sleep(0)
        assert sampler.samples(0, 5_000_000_000)[0].at_ns == (20_000_000, 2_020_000_000, 4_020_000_000)

    asyncio.run(main())


def test_a_fault_of_a_look_is_not_swallowed() -> None:
    async def broken() -> Answer:
        raise RuntimeError("boom")

    async def main() -> None:
        async with MachineSampler({"x": broken}, sleep=Time().sleep):
            for _ in range(5):
                await asyncio.sleep(0)

    with pytest.raises(RuntimeError, match="boom"):
        asyncio.run(main())


def answered(handler: Callable[[httpx.Request], httpx.Response]) -> Answer:
    async def main() -> Answer:
        async with Client("http://gpu/metrics", transport=Handled(handler)) as client:
            return await look_at(client, "http://gpu/metrics")

    return asyncio.run(main())


@pytest.mark.parametrize("padding", [0, 50_000])
def test_a_page_is_read_and_a_refusal_is_told(padding: int) -> None:
    page = 'DCGM_FI_DEV_POWER_USAGE{gpu="3"} 100\n' + "# " + "x" * padding + "\n"
    assert answered(lambda request: httpx.Response(200, text=page)) == ({"gpu_power.3": 100.0}, None)
    values, problem = answered(lambda request: httpx.Response(403, text="no"))
    assert values == {} and problem is not None and "403" in problem


# --- GPUs of this machine -------------------------------------------------------------------------


def library(*, init_fails: bool = False) -> types.ModuleType:
    """As much of pynvml as is used, with two GPUs of which the second does not tell its power."""
    made = types.ModuleType("pynvml")

    class NVMLError(Exception):
        pass

    def init() -> None:
        if init_fails:
            raise NVMLError("no driver")

    def power(handle: int) -> int:
        if handle == 1:
            raise NVMLError("not supported")
        return 250_000

    made.NVMLError = NVMLError  # type: ignore[attr-defined]
    made.nvmlInit = init  # type: ignore[attr-defined]
    made.nvmlShutdown = lambda: setattr(made, "closed", True)  # type: ignore[attr-defined]
    made.nvmlDeviceGetCount = lambda: 2  # type: ignore[attr-defined]
    made.nvmlDeviceGetHandleByIndex = lambda number: number  # type: ignore[attr-defined]
    made.nvmlSystemGetDriverVersion = lambda: b"580.1"  # type: ignore[attr-defined]
    made.nvmlDeviceGetName = lambda handle: f"GPU of ours {handle}"  # type: ignore[attr-defined]
    made.nvmlDeviceGetUtilizationRates = lambda handle: types.SimpleNamespace(gpu=50)  # type: ignore[attr-defined]
    made.nvmlDeviceGetMemoryInfo = lambda handle: types.SimpleNamespace(used=1000)  # type: ignore[attr-defined]
    made.nvmlDeviceGetPowerUsage = power  # type: ignore[attr-defined]
    return made


def test_local_gpus_are_read_in_our_units_and_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = library()
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    with open_nvml() as gpus:
        assert gpus is not None
        assert gpus.read() == (
            {
                "gpu_utilisation.0": 0.5,
                "gpu_memory_used.0": 1000.0,
                "gpu_power.0": 250.0,
                "gpu_utilisation.1": 0.5,
                "gpu_memory_used.1": 1000.0,
            },
            None,
        )
    assert fake.closed
    facts = environment()
    assert (facts["nvidia_driver"], facts["gpu.1"]) == ("580.1", "GPU of ours 1")


@pytest.mark.parametrize("module", [None, library(init_fails=True)], ids=["no library", "no driver"])
def test_no_gpu_is_no_error(module: types.ModuleType | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", module)
    with open_nvml() as gpus:
        assert gpus is None
    assert not [name for name in environment() if name.startswith(("gpu", "nvidia"))]
