"""Plots drawn by a second process: the same bytes, and never a process left behind."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import report_runs
from click.testing import CliRunner
from msgspec import structs

from bench.cli.report import report
from bench.report import painter, plots
from bench.report.content import Content, collect
from bench.report.painter import Draw, Plot, Say, draw_here, painting

STUB = Plot(name="ttft", title="A stub", caption="Drawn here.", png=b"png", svg="<svg/>")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return report_runs.make_run(tmp_path_factory.mktemp("runs") / "tiny", tiers=(256,), repeats=1)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[subprocess.Popen[bytes]]:
    """Every journal is long and there are two cores; the processes that are started then."""
    found: list[subprocess.Popen[bytes]] = []

    class Noted(subprocess.Popen[bytes]):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            found.append(self)

    monkeypatch.setattr(subprocess, "Popen", Noted)
    monkeypatch.setattr(painter, "LONG", 0)
    monkeypatch.setattr(painter, "_cores", lambda: 2)
    return found


def script(folder: Path, line: str) -> str:
    """A program that stands in for the interpreter."""
    path = folder / "python"
    path.write_text(f"#!/bin/sh\n{line}\n", encoding="utf-8")
    path.chmod(0o700)
    return str(path)


def test_a_second_process_draws_the_same_bytes(run: Path, started: list[subprocess.Popen[bytes]]) -> None:
    said: list[str] = []
    with painting([run], said.append) as draw:
        content = collect([run])
        drawn = draw(content)
        names = [plot.name for plot in drawn]
        assert {"ttft", "timeline", "gaps"} <= set(names)
        assert list(drawn) == draw_here(content)
    assert [process.returncode for process in started] == [0]
    assert said == []


@pytest.mark.parametrize(
    ("line", "code", "why"),
    [
        ("exit 1", 1, "ended with exit code 1"),
        ("cat > /dev/null; exit 3", 3, "ended with exit code 3"),
        (
            "cat > /dev/null; echo 'Traceback:\n  a.py\nKeyError: 7\n' >&2; exit 1",
            1,
            "exit code 1: KeyError: 7",
        ),
        ("cat > /dev/null; kill -9 $$", -signal.SIGKILL, "ended by SIGKILL"),
        ("cat > /dev/null; echo no plots", 0, "gave no plots ("),
        ("cat > /dev/null", 0, "gave no plots ("),
    ],
    ids=["at once", "while it draws", "by an exception", "killed", "speaks otherwise", "says nothing"],
)
def test_a_process_that_fails_is_made_up_for_here_and_why_is_said(
    line: str,
    code: int,
    why: str,
    run: Path,
    started: list[subprocess.Popen[bytes]],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    said: list[str] = []
    monkeypatch.setattr(plots, "draw", lambda content: [STUB])
    monkeypatch.setattr(sys, "executable", script(tmp_path, line))
    with painting([run], said.append) as draw:
        drawn = draw(collect([run]))
        assert list(drawn) == list(drawn) == [STUB]
    assert [process.returncode for process in started] == [code]
    (told,) = said
    assert why in told and told.endswith("; drawn by this one, later but the same")


def test_what_is_said_of_a_process_is_short_and_harmless(
    run: Path, started: list[subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    said: list[str] = []
    monkeypatch.setenv("SOME_KEY", "sk-0123456789")
    monkeypatch.setattr(plots, "draw", lambda content: [STUB])
    noise = "cat > /dev/null; head -c 300000 /dev/zero | tr '\\0' x >&2; echo >&2"
    line = "printf 'Refused: sk-0123456789 \\033[31m%3000s' end >&2; exit 1"
    monkeypatch.setattr(sys, "executable", script(tmp_path, f"{noise}; {line}"))
    with painting([run], said.append) as draw:
        assert list(draw(collect([run]))) == [STUB]
    (told,) = said
    assert "Refused: *** \\x1b[31m" in told and "xxx" not in told
    assert len(told) < 500 and told.isprintable()


def test_a_name_that_is_no_text_is_drawn_here(
    run: Path, started: list[subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    said: list[str] = []
    monkeypatch.setattr(plots, "draw", lambda content: [STUB])
    monkeypatch.setattr(sys, "executable", script(tmp_path, "cat > /dev/null"))
    content = collect([run])
    odd = structs.replace(content, runs=(structs.replace(content.runs[0], path="run-\udcff"),))
    with painting([run], said.append) as draw:
        assert list(draw(odd)) == [STUB]
    assert len(started) == 1 and "cannot be sent a name that is no text" in said[0]


def test_without_an_interpreter_of_its_own_there_is_no_process(
    run: Path, started: list[subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    said: list[str] = []
    monkeypatch.setattr(sys, "executable", str(tmp_path / "nothing"))
    with painting([run], said.append) as draw:
        assert draw is draw_here
    assert not started
    assert "could not be started: No such file or directory" in said[0]


def test_the_command_says_on_standard_error_why_plots_came_late(
    run: Path, started: list[subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(plots, "draw", lambda content: [STUB])
    monkeypatch.setattr(sys, "executable", script(tmp_path, "exit 7"))
    done = CliRunner().invoke(report, [str(run), "--into", str(tmp_path / "out")], catch_exceptions=False)
    assert done.exit_code == 0 and len(started) == 1
    assert "plots: the second process, which was to draw them, ended with exit code 7;" in " ".join(
        done.stderr.split()
    )


def test_an_interrupt_leaves_no_process_behind(
    run: Path, started: list[subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "executable", script(tmp_path, "exec sleep 60"))
    with pytest.raises(KeyboardInterrupt), painting([run], print):
        raise KeyboardInterrupt
    (process,) = started
    assert process.returncode == -signal.SIGKILL
    assert process.stdin is not None and process.stdin.closed
    assert process.stdout is not None and process.stdout.closed


@pytest.mark.parametrize(("cores", "least"), [(1, 0), (2, painter.LONG)], ids=["one core", "a short journal"])
def test_one_core_and_short_journals_need_no_second_process(
    cores: int,
    least: int,
    run: Path,
    started: list[subprocess.Popen[bytes]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(painter, "LONG", least)
    monkeypatch.setattr(painter, "_cores", lambda: cores)
    said: list[str] = []
    with painting([run, run / "missing"], said.append) as draw:
        assert draw is draw_here
    assert not started and not said


def test_the_command_draws_as_the_painter_says_and_asks_for_none_without_plots(
    run: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[Sequence[Path]] = []

    @contextmanager
    def stubs(runs: Sequence[Path], say: Say) -> Iterator[Draw]:
        asked.append(list(runs))

        def draw(content: Content) -> Iterable[Plot]:
            return [STUB]

        yield draw

    monkeypatch.setattr(painter, "painting", stubs)
    for options in ([], ["--no-plots"]):
        words = [str(run), "--into", str(tmp_path / f"out{len(options)}"), *options]
        assert CliRunner().invoke(report, words, catch_exceptions=False).exit_code == 0
    assert asked == [[run], []]
    assert (tmp_path / "out0" / "plots" / "ttft.png").read_bytes() == b"png"
    assert not (tmp_path / "out1" / "plots").exists()


def test_pages_without_plots_load_no_matplotlib() -> None:
    code = "import sys, bench.report.html, bench.report.painter; assert 'matplotlib' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
