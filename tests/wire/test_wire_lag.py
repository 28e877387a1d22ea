"""The client's own lateness, its event loop, and the facts of its machine."""

from __future__ import annotations

import asyncio
import gc
import sys
import time

import pytest

from bench.records import ClientHealth
from bench.wire import host, loop
from bench.wire.lag import LagMeter, health


def test_quantiles_are_lags_that_were_measured() -> None:
    lags = [i * 1_000_000 for i in range(100, 0, -1)]
    assert health(lags, cpu_ns=250, wall_ns=1000) == ClientHealth(
        loop_lag_p50_ms=50.0,
        loop_lag_p99_ms=99.0,
        loop_lag_max_ms=100.0,
        cpu_share=0.25,
        gc_pauses=0,
        gc_pause_max_ms=0.0,
        gc_pause_total_ms=0.0,
    )


def test_one_lag_is_every_quantile_and_none_is_nothing() -> None:
    assert health([3_000_000], cpu_ns=0, wall_ns=1, pauses_ns=[1_000_000, 2_500_000]) == ClientHealth(
        loop_lag_p50_ms=3.0,
        loop_lag_p99_ms=3.0,
        loop_lag_max_ms=3.0,
        cpu_share=0.0,
        gc_pauses=2,
        gc_pause_max_ms=2.5,
        gc_pause_total_ms=3.5,
    )
    assert health([], cpu_ns=1, wall_ns=1) is None


def test_a_knock_is_noted_by_every_open_window_and_by_no_closed_one() -> None:
    meter = LagMeter()
    early, late = meter.window(), meter.window()
    meter.note(time.monotonic_ns() - 5_000_000)
    assert early.close() is not None
    meter.note(time.monotonic_ns() - 7_000_000)
    assert (len(early.lags_ns), len(late.lags_ns)) == (1, 2)
    assert early.lags_ns[0] >= 5_000_000
    assert late.lags_ns[1] >= 7_000_000


def test_a_loop_that_is_stuck_is_seen_as_often_as_it_was_late() -> None:
    async def main() -> list[int]:
        async with LagMeter(period_s=0.005) as meter:
            window = meter.window()
            while not window.lags_ns:
                await asyncio.sleep(0)
            window.lags_ns = window.lags_ns[:0]
            until = time.monotonic_ns() + 100_000_000
            while time.monotonic_ns() < until:
                pass
            while not window.lags_ns:
                await asyncio.sleep(0)
            return list(window.lags_ns)

    lags = asyncio.run(main())
    assert len(lags) >= 2
    assert max(lags) > min(lags)


def test_a_meter_leaves_no_thread_behind() -> None:
    async def main() -> None:
        async with LagMeter(period_s=0.001) as meter:
            thread = meter._thread
        assert thread is not None
        assert not thread.is_alive()

    asyncio.run(main())


def test_collections_of_garbage_are_timed_while_the_meter_watches_and_only_then() -> None:
    async def main() -> tuple[ClientHealth | None, int]:
        async with LagMeter(period_s=0.005) as meter:
            window = meter.window()
            gc.collect()
            gc.collect()
            while not window.lags_ns:
                await asyncio.sleep(0)
            found = window.close()
        late = meter.window()
        gc.collect()
        return found, len(late.pauses_ns)

    callbacks = list(gc.callbacks)
    found, late = asyncio.run(main())
    assert found is not None
    assert found.gc_pauses is not None and found.gc_pauses >= 2
    assert found.gc_pause_max_ms is not None and found.gc_pause_total_ms is not None
    assert 0 < found.gc_pause_max_ms < found.gc_pause_total_ms
    assert late == 0
    assert gc.callbacks == callbacks


def test_the_loop_is_uvloop_where_there_is_one_and_the_standard_one_elsewhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def name() -> str:
        return type(asyncio.get_running_loop()).__module__

    before = sys.getswitchinterval()
    assert loop.run(name()).startswith("uvloop")
    assert sys.getswitchinterval() == before
    monkeypatch.setitem(sys.modules, "uvloop", None)
    assert loop.run(name()).startswith("asyncio")


def test_the_environment_names_versions_and_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret")
    facts = host.environment()
    assert facts["python"].startswith("CPython 3.")
    assert facts["version.aiohttp"]
    assert all(isinstance(value, str) and value for value in facts.values())
    assert "sk-very-secret" not in repr(facts)


def test_facts_that_cannot_be_had_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object, **__: object) -> None:
        raise OSError("no such thing")

    monkeypatch.setattr(host, "_CPUINFO", host.Path("no/such/file"))
    monkeypatch.setattr(host.subprocess, "run", missing)
    monkeypatch.setattr(host.os, "sysconf", missing)
    monkeypatch.setattr(host.platform, "processor", lambda: "")
    monkeypatch.delattr(host.os, "sched_getaffinity", raising=False)  # not on macOS anyway
    facts = host.environment()
    assert {"cpu_model", "memory_gb", "revision", "cpus_usable"}.isdisjoint(facts)
    assert facts["cpus"]
