"""What a machine did per phase, by hand."""

from __future__ import annotations

import msgspec
import pytest

from bench.analysis.statistics.machine import PhaseUse, phase_uses, pooled, uses_within
from bench.records import Chunks, Exchange, MachineSamples, PromptRecipe, Trial

S = 1_000_000_000


def exchange(*machine: MachineSamples, texts: tuple[int, ...] = (10, 12, 20)) -> Exchange:
    """First text after 10 s, last after 20 s; the role-only chunk after 1 s is none."""
    chunks = Chunks(at_ns=(1 * S, *(at * S for at in texts)), chars=(0, *(3 for _ in texts)), kinds="ecc")
    return Exchange(
        trial=Trial(id="a/1/cold/1", route="a", tier=1, condition="cold", repeat=1),
        prompt=PromptRecipe(
            sha256="0" * 64,
            tokens=1,
            endpoint="chat",
            corpus="c",
            corpus_sha256="1" * 64,
            task="continue",
            start=0,
        ),
        url="http://h",
        sent_ns=0,
        ended_ns=21 * S,
        chunks=chunks,
        machine=machine,
    )


def looks(
    source: str = "x", at: tuple[float, ...] = (-1, 2, 4, 11, 13, 30), **columns: object
) -> MachineSamples:
    values = {name.replace("_at_", "."): column for name, column in columns.items()}
    return MachineSamples(source=source, at_ns=tuple(round(t * S) for t in at), values=values)  # type: ignore[arg-type]


def by_key(*machine: MachineSamples) -> dict[tuple[str, str], tuple[float, float, int]]:
    return {(u.phase, u.gauge): (u.mean, u.peak, u.looks) for u in phase_uses(exchange(*machine))}


def test_looks_belong_to_the_phase_in_which_they_came() -> None:
    found = by_key(looks(gpu_power_at_0=(900.0, 100.0, 300.0, 50.0, 70.0, 900.0)))
    # Before `sent` (-1 s) and after the last text (30 s) nothing counts.
    assert found == {("prefill", "gpu_power"): (200.0, 300.0, 2), ("decode", "gpu_power"): (60.0, 70.0, 2)}


def test_a_watched_span_is_one_phase_and_exporters_come_before_local_gpus() -> None:
    node = looks(gpu_power_at_0=(900.0, 100.0, 300.0, 50.0, 70.0, 900.0))
    local = looks("nvml", gpu_power_at_0=(1.0,) * 6, gpu_utilisation_at_0=(0.2, 0.4, 0.6, 0.8, 1.0, 0.0))
    found = uses_within((node, local), 2 * S, 11 * S)
    assert [(u.phase, u.gauge, u.mean, u.peak, u.looks) for u in found] == [
        ("whole", "gpu_utilisation", pytest.approx(0.6), 0.8, 3),
        ("whole", "gpu_power", 150.0, 300.0, 3),
    ]
    assert uses_within((node,), 5 * S, 10 * S) == ()


def test_power_is_added_up_and_utilisation_averaged_over_devices() -> None:
    found = phase_uses(
        exchange(
            looks(
                at=(1, 2),
                gpu_power_at_0=(100.0, 200.0),
                gpu_power_at_1=(50.0, 250.0),
                gpu_utilisation_at_0=(1.0, 0.5),
                gpu_utilisation_at_1=(0.5, 0.5),
            )
        )
    )
    assert {(u.gauge, u.devices, u.mean, u.peak) for u in found} == {
        ("gpu_power", 2, 300.0, 450.0),  # 150 and 450
        ("gpu_utilisation", 2, 0.625, 0.75),  # 0.75 and 0.5
    }


def test_a_look_at_which_a_device_was_silent_is_left_out() -> None:
    found = by_key(looks(at=(1, 2), gpu_power_at_0=(100.0, 200.0), gpu_power_at_1=(None, 250.0)))
    assert found == {("prefill", "gpu_power"): (450.0, 450.0, 1)}


def test_several_exporters_are_several_hosts() -> None:
    one = looks("one", at=(1, 2), gpu_power_at_0=(100.0, 200.0), gpu_utilisation_at_0=(1.0, 1.0))
    two = looks("two", at=(3,), gpu_power_at_0=(40.0,), gpu_power_at_1=(60.0,),
                gpu_utilisation_at_0=(0.4,), gpu_utilisation_at_1=(0.4,))  # fmt: skip
    found = by_key(one, two)
    assert found["prefill", "gpu_power"] == (250.0, 300.0, 1)
    assert found["prefill", "gpu_utilisation"] == pytest.approx((0.6, 0.6, 1))  # (1 + .4 + .4) / 3
    # One host without a look in a phase would make the sum too small: then there is none.
    late = looks("late", at=(11,), gpu_power_at_0=(1.0,))
    assert by_key(one, late) == {("prefill", "gpu_utilisation"): (1.0, 1.0, 2)}


def test_local_gpus_are_not_counted_beside_an_exporter_of_the_same() -> None:
    exporter, local = (
        looks("x", at=(1,), gpu_power_at_0=(100.0,)),
        looks("nvml", at=(1,), gpu_power_at_0=(101.0,)),
    )
    assert by_key(exporter, local) == {("prefill", "gpu_power"): (100.0, 100.0, 1)}
    assert by_key(looks("x", at=(1,), host_load=(2.0,)), local)["prefill", "gpu_power"] == (101.0, 101.0, 1)


def test_without_text_there_is_no_phase_and_without_a_machine_no_use() -> None:
    cut_off = msgspec.structs.replace(exchange(looks(at=(1,), host_load=(1.0,))), chunks=Chunks())
    assert phase_uses(cut_off) == ()
    assert phase_uses(exchange()) == ()


def test_pooled_exchanges_weigh_every_look_the_same() -> None:
    def use(mean: float, peak: float, count: int) -> PhaseUse:
        return PhaseUse(phase="decode", gauge="host_load", devices=1, mean=mean, peak=peak, looks=count)

    (found,) = pooled([use(1.0, 5.0, 3), use(3.0, 4.0, 1)]).values()
    assert (found.mean, found.peak, found.looks) == (1.5, 5.0, 4)
