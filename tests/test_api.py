"""The public API: light to import, complete, and documented by examples that run."""

from __future__ import annotations

import csv
import doctest
import io
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from msgspec import structs

import bench
import bench.api
from bench.errors import JournalError, SuiteError
from bench.journal import Journal
from bench.report import export
from bench.report.content import collect
from bench.report.rows import columns

ROOT = Path(__file__).parents[1]
SMALL = ROOT / "tests" / "data" / "run-small"


def test_importing_the_package_loads_nothing_heavy() -> None:
    code = (
        "import sys, bench; assert bench.BenchError; "
        "heavy = {'numpy', 'pandas', 'matplotlib', 'scipy', 'aiohttp', 'bench.api'} & set(sys.modules); "
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


def test_a_client_without_a_proxy_loads_no_other_client() -> None:
    code = (
        "import sys, bench.wire.client; "
        "others = {'aiohttp', 'httpx', 'httpcore', 'prometheus_client'} & set(sys.modules); "
        "assert not others, others"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


def test_every_public_name_exists_and_is_listed() -> None:
    for name in bench.__all__:
        assert getattr(bench, name) is not None
    assert set(bench.__all__) <= set(dir(bench))
    assert len(set(bench.__all__)) == len(bench.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = bench.nothing


def test_the_examples_in_the_docstrings_are_true(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    result = doctest.testmod(bench.api)
    assert result.attempted >= 7 and result.failed == 0


@pytest.mark.parametrize("module", ["quantities", "escape"])
def test_the_examples_of_the_report_are_true(module: str) -> None:
    from importlib import import_module

    result = doctest.testmod(import_module(f"bench.report.{module}"))
    assert result.attempted and not result.failed


def test_a_run_gives_typed_records() -> None:
    run = bench.load(SMALL)
    assert len(run.measurements) == 36 and all(isinstance(m, bench.Measurement) for m in run.measurements)
    assert all(m.verdict.valid for m in run.measurements)
    assert sum(1 for _ in run.exchanges()) == 36
    assert [event.name for event in run.events] == ["session", "finished"]
    assert sum(1 for _ in run.scrapes()) == 72
    assert {s.route for s in run.summary()} == {"mtp4", "mtp2", "target-only"}
    assert {c.base for c in run.comparisons("target-only")} == {"target-only"}
    assert {law.route for law in run.prefill_laws()} == {"mtp4", "mtp2", "target-only"}
    assert repr(run) == "<Run run-small: 36 trials planned>"


def test_a_run_compares_with_the_route_that_its_report_compares_with() -> None:
    run = bench.load(SMALL)  # its routes: mtp4, mtp2, target-only
    assert {c.base for c in run.comparisons()} == {"target-only"}


def test_a_watch_is_no_run(tmp_path: Path) -> None:
    info = bench.load(SMALL).info
    watch = structs.replace(info, id="w", plan=(), suite=structs.replace(info.suite, tiers=()))
    with Journal.create(tmp_path / "w", watch):
        pass
    with pytest.raises(bench.JournalError, match="this is a watch, not a run: ctxbench report"):
        bench.load(tmp_path / "w")


def test_a_figure_is_drawn_from_runs_or_from_where_they_are() -> None:
    drawn = [bench.figure("ttft", run) for run in (bench.load(SMALL), SMALL, str(SMALL))]
    titles = [[axes.get_title() for axes in one.axes] for one in drawn]
    assert titles[0] == titles[1] == titles[2]


def test_a_frame_has_a_row_per_record_and_na_where_missing() -> None:
    run = bench.load(SMALL)
    table = run.frame()
    assert len(table) == 36
    assert table.loc[table.route == "target-only", "acceptance"].isna().all()
    assert (table.loc[table.route == "mtp4", "acceptance"] == 0.75).all()
    assert table.valid.all() and (table.loc[table.condition == "cold", "cached_tokens"] == 0).all()
    summary = bench.frame(run.summary())
    assert {"ttft_s", "ttft_s_low", "ttft_s_high", "ttft_s_samples"} <= set(summary.columns)
    assert not bench.frame([]).size


def test_the_frame_of_a_run_is_its_csv_column_for_column() -> None:
    run = bench.load(SMALL)
    expected = export.table(collect([SMALL]))
    table = run.frame()
    assert list(table.columns) == next(csv.reader(io.StringIO(export.measurements_csv(collect([SMALL])))))
    for name, values in expected.items():
        assert [None if pd.isna(value) else value for value in table[name]] == values, name
    assert set(table.loc[table.route == "mtp4", "num_speculative_tokens"]) == {4}


def test_frames_of_measurements_have_one_list_of_columns() -> None:
    published = bench.load_table(ROOT / "results" / "published" / "qwen3.8-27b-v100.csv")
    frames = [bench.frame(published), bench.load(SMALL).frame(), bench.frame(bench.load(SMALL).measurements)]
    assert all(tuple(table.columns) == columns() for table in frames)


def test_the_frame_of_a_run_without_a_trial_has_its_columns(tmp_path: Path) -> None:
    with Journal.create(tmp_path / "run", bench.load(SMALL).info):
        pass
    table = bench.load(tmp_path / "run").frame()
    assert tuple(table.columns) == columns() and not len(table)


def test_frames_of_crossovers_carry_their_limits() -> None:
    table = bench.frame(bench.load(SMALL).crossovers("target-only"))
    assert {"status", "output_tokens", "low", "high", "extrapolation"} <= set(table.columns)


def test_what_is_no_run_or_table_is_an_error_of_ours(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match="not a run directory"):
        bench.load(tmp_path)
    with pytest.raises(SuiteError, match=r"none\.csv: cannot be read: No such file"):
        bench.load_table(tmp_path / "none.csv")


def test_a_report_can_be_written_from_python(tmp_path: Path) -> None:
    import shutil

    run = tmp_path / "run"
    shutil.copytree(SMALL, run)
    names = {path.name for path in bench.write_report(run, plots=False)}
    assert {"report.md", "report.html", "measurements.csv", "summary.json"} <= names


def test_a_figure_can_be_drawn_and_changed() -> None:
    drawn = bench.figure("decode", bench.load(SMALL))
    assert drawn.axes[0].get_ylabel() == "decode (tok/s)"
    with pytest.raises(SuiteError, match="no plot is called 'speed': there are total_latency"):
        bench.figure("speed", bench.load(SMALL))
