"""`ctxbench report`: results on stdout, the rest on stderr, files where they belong."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from bench.cli.report import print_run, report
from bench.errors import JournalError, SuiteError
from bench.report import plots

SMALL = Path(__file__).parents[1] / "data" / "run-small"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return Path(shutil.copytree(SMALL, tmp_path / "run"))


def call(*words: str | Path) -> tuple[str, str]:
    result = CliRunner().invoke(report, [str(word) for word in words], catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout, result.stderr


def test_the_table_goes_to_stdout_and_the_files_are_named_on_stderr(run: Path) -> None:
    out, err = call(run, "--no-plots")
    assert out.startswith("route ") and "compared with target-only" in out
    assert f"{run}: report.md, measurements.csv, summary.json" in " ".join(err.split())
    assert (run / "report.html").exists()


def test_prose_is_as_wide_as_the_terminal(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "50")
    out, err = call(run, "--no-plots")
    prose = out[out.index("\nlook at:") :]
    assert 40 < max(map(len, prose.splitlines())) <= 50
    assert [line for line in err.splitlines() if len(line) > 50 and str(run) not in line] == []
    assert any(line.startswith("  ") and "measurements.csv" in line for line in err.splitlines())


def test_json_is_the_summary_and_nothing_else(run: Path) -> None:
    out, _ = call(run, "--json", "--no-plots")
    assert json.loads(out) == json.loads((run / "summary.json").read_text("utf-8"))


def test_several_runs_get_a_report_each_or_one_together(run: Path, tmp_path: Path) -> None:
    other = shutil.copytree(SMALL, tmp_path / "other")
    call(run, other, "--no-plots")
    assert (run / "report.md").exists() and (other / "report.md").exists()
    call(run, other, "--no-plots", "--into", tmp_path / "both")
    assert json.loads((tmp_path / "both" / "summary.json").read_text("utf-8"))["runs"].__len__() == 2


def test_another_base_can_be_chosen_and_a_wrong_one_is_refused(run: Path) -> None:
    out, _ = call(run, "--no-plots", "--base", "mtp2")
    assert "compared with mtp2" in out
    with pytest.raises(SuiteError, match="nobody"):
        call(run, "--no-plots", "--base", "nobody")


def test_what_is_no_run_is_an_error_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(JournalError):
        call(tmp_path, "--no-plots")
    assert not list(tmp_path.iterdir())


def test_a_run_ends_with_its_table_and_all_files(
    run: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plots, "PLOTS", {"ttft": plots.PLOTS["ttft"]})
    print_run(run)
    shown = capsys.readouterr()
    assert shown.out.startswith("route ") and "report.html, plots/ (1)" in shown.err
