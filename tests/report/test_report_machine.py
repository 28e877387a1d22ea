"""The machine table: a row for route, tier, condition and phase, figures by hand."""

from __future__ import annotations

from typing import Any

from report_samples import detail

from bench.analysis.statistics.machine import PhaseUse
from bench.records import Measurement, Verdict
from bench.report.content import Content, assemble
from bench.report.machine import NOTE, machine_table
from bench.report.markdown import render
from bench.report.told import source_of


def use(phase: Any, gauge: str, mean: float, peak: float, looks: int = 10, devices: int = 4) -> PhaseUse:
    return PhaseUse(phase=phase, gauge=gauge, devices=devices, mean=mean, peak=peak, looks=looks)


def content(*trials: tuple[str, str, bool, tuple[PhaseUse, ...]]) -> Content:
    """Trials of route `a`: id, condition, validity, what the machine did."""
    return assemble(
        runs=(),
        measurements=tuple(
            Measurement(
                trial_id=name,
                source="run",
                route="a",
                tier=1_000,
                condition=condition,  # type: ignore[arg-type]
                verdict=Verdict(valid=valid),
            )
            for name, condition, valid, _ in trials
        ),
        details=tuple(detail(name, *uses) for name, _, _, uses in trials),
    )


COLD = (
    use("prefill", "gpu_utilisation", 0.90, 1.0),
    use("prefill", "gpu_power", 1_000.0, 1_200.0),
    use("prefill", "gpu_memory_used", 64e9, 65e9),
    use("decode", "gpu_power", 600.0, 700.0, looks=2),
)


def test_valid_trials_are_put_together_with_salted_ones_and_invalid_ones_left_out() -> None:
    salted = (use("prefill", "gpu_power", 1_300.0, 1_400.0, looks=20),)
    wrong = (use("prefill", "gpu_power", 9_000.0, 9_000.0),)
    table = machine_table(
        content(("c", "cold", True, COLD), ("s", "salted", True, salted), ("x", "cold", False, wrong))
    )
    assert table is not None
    assert table.head == (
        "route",
        "tier",
        "condition",
        "phase",
        "GPUs",
        "looks",
        "GPU busy (%), mean / peak",
        "GPU memory (GB), mean / peak",
        "GPU power (W), mean / peak",
    )
    # (1,000 W x 10 + 1,300 W x 20) / 30 looks = 1,200 W.
    assert table.rows == (
        ("a", "1,000", "cold", "prefill", "4", "30", "90 / 100", "64.0 / 65.0", "1,200 / 1,400"),
        ("a", "1,000", "cold", "decode", "4", "2", "-", "-", "600 / 700"),
    )
    assert "30 looks in prefill, 4 devices" in source_of(table.rows[0][-1])


def test_conditions_have_rows_of_their_own() -> None:
    table = machine_table(content(("r", "replay", True, COLD[-1:]), ("c", "cold", True, COLD[-1:])))
    assert table is not None
    assert [row[2] for row in table.rows] == ["cold", "replay"]


def test_without_looks_there_is_no_table_and_with_them_it_is_in_the_report() -> None:
    nothing = content(("c", "cold", True, ()))
    assert machine_table(nothing) is None
    assert "## Machine" not in render(nothing)
    assert "## Machine" in render(content(("c", "cold", True, COLD)))
    assert "also what is not ours" in NOTE
