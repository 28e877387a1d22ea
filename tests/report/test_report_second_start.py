"""Read and drawn by a second process: the same report, and never a process left behind."""

from __future__ import annotations

import shutil
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
from bench.errors import JournalError
from bench.journal import Journal, read_info
from bench.records import Event
from bench.report import entries, html, plots, write
from bench.report.content import Content, collect
from bench.report.plot import Plot, draw_here
from bench.report.second import start
from bench.report.second.start import ALONE, Hands, Say, second_process

READ = "head -c 8 /dev/zero"
"""Says that the run was read and that nothing stands in it."""
STUB = Plot(name="ttft", title="A stub", caption="Drawn here.", png=b"png", svg="<svg/>")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = report_runs.make_run(tmp_path_factory.mktemp("runs") / "tiny", tiers=(256,), repeats=1)
    anything = {"word": "b", "pair": [1, 2], "nested": {"c": None, "d": [0.5, {"e": True}]}}
    info = read_info(path)
    routes = [
        structs.replace(route, request=structs.replace(route.request, extra_body=anything))
        for route in info.suite.routes
    ]
    with Journal.resume(path) as journal:
        journal.update_info(structs.replace(info, suite=structs.replace(info.suite, routes=tuple(routes))))
        journal.append(Event(name="noted", at="2026-11-30T00:00:00Z", data=anything))
    return path


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[subprocess.Popen[bytes]]:
    """Every journal is long and there are two cores; the processes that are started then."""
    found: list[subprocess.Popen[bytes]] = []

    class Noted(subprocess.Popen[bytes]):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            found.append(self)

    monkeypatch.setattr(subprocess, "Popen", Noted)
    monkeypatch.setattr(start, "LONG", 0)
    monkeypatch.setattr(start, "LONG_TO_READ", 0)
    monkeypatch.setattr(start, "_cores", lambda: 2)
    return found


def nothing(path: Path) -> Iterator[entries.Seen]:
    """Stands in for the reading of this process, where there is to be none."""
    raise AssertionError(path)


def script(folder: Path, line: str) -> str:
    """A program that stands in for the interpreter."""
    path = folder / "python"
    path.write_text(f"#!/bin/sh\n{line}\n", encoding="utf-8")
    path.chmod(0o700)
    return str(path)


def test_a_second_process_reads_and_draws_the_same(
    run: Path, started: list[subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    alone = collect([run])
    with second_process([run], said.append) as hands:
        monkeypatch.setattr(start, "read_here", nothing)
        content = collect([run], read=hands.read)
        assert content.details and content == structs.replace(alone, gaps=content.gaps)
        assert {name: list(one.counts) for name, one in content.gaps.items()} == {
            name: list(one.counts) for name, one in alone.gaps.items()
        }
        drawn = hands.draw(content)
        names = [plot.name for plot in drawn]
        assert {"ttft", "timeline", "gaps"} <= set(names)
        assert list(drawn) == draw_here(content)
    assert [process.returncode for process in started] == [0]
    assert said == []


@pytest.mark.parametrize(
    ("line", "code", "why"),
    [
        ("exit 1", 1, "ended with exit code 1"),
        (f"{READ}; cat > /dev/null; exit 3", 3, "ended with exit code 3"),
        (
            f"{READ}; cat > /dev/null; echo 'Traceback:\n  a.py\nKeyError: 7\n' >&2; exit 1",
            1,
            "exit code 1: KeyError: 7",
        ),
        (f"{READ}; cat > /dev/null; kill -9 $$", -signal.SIGKILL, "ended by SIGKILL"),
        (f"{READ}; cat > /dev/null; echo no plots", 0, "handed over no plots: "),
        (f"{READ}; cat > /dev/null", 0, "handed over no plots: "),
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
    with second_process([run], said.append) as hands:
        drawn = hands.draw(collect([run], read=hands.read))
        assert list(drawn) == list(drawn) == [STUB]
    assert [process.returncode for process in started] == [code]
    (told,) = said
    assert why in told and told.endswith("; done by this one, later but the same")


def test_what_is_said_of_a_process_is_short_and_harmless(
    run: Path, started: list[subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    said: list[str] = []
    monkeypatch.setenv("SOME_KEY", "sk-0123456789")
    monkeypatch.setattr(plots, "draw", lambda content: [STUB])
    noise = f"{READ}; cat > /dev/null; head -c 300000 /dev/zero | tr '\\0' x >&2; echo >&2"
    line = "printf 'Refused: sk-0123456789 \\033[31m%3000s' end >&2; exit 1"
    monkeypatch.setattr(sys, "executable", script(tmp_path, f"{noise}; {line}"))
    with second_process([run], said.append) as hands:
        assert list(hands.draw(collect([run], read=hands.read))) == [STUB]
    (told,) = said
    assert "Refused: *** \\x1b[31m" in told and "xxx" not in told
    assert len(told) < 500 and told.isprintable()


def test_a_name_that_is_no_text_is_drawn_here(
    run: Path, started: list[subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    said: list[str] = []
    monkeypatch.setattr(plots, "draw", lambda content: [STUB])
    monkeypatch.setattr(sys, "executable", script(tmp_path, f"{READ}; cat > /dev/null"))
    content = collect([run])
    odd = structs.replace(content, runs=(structs.replace(content.runs[0], path="run-\udcff"),))
    with second_process([run], said.append) as hands:
        assert list(hands.read(run)) == []
        assert list(hands.draw(odd)) == [STUB]
    assert len(started) == 1 and "cannot be sent a name that is no text" in said[0]


def test_without_an_interpreter_of_its_own_there_is_no_process(
    run: Path, started: list[subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    said: list[str] = []
    monkeypatch.setattr(sys, "executable", str(tmp_path / "nothing"))
    with second_process([run], said.append) as hands:
        assert hands is ALONE
    assert not started
    assert "could not be started: No such file or directory" in said[0]


def test_the_command_says_on_standard_error_why_it_was_not_helped(
    run: Path, started: list[subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(plots, "draw", lambda content: [STUB])
    monkeypatch.setattr(sys, "executable", script(tmp_path, "exit 7"))
    done = CliRunner().invoke(report, [str(run), "--into", str(tmp_path / "out")], catch_exceptions=False)
    assert done.exit_code == 0 and len(started) == 1
    assert "report: the second process, which was to help, ended with exit code 7;" in " ".join(
        done.stderr.split()
    )


def test_an_interrupt_leaves_no_process_behind(
    run: Path, started: list[subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "executable", script(tmp_path, "exec sleep 60"))
    with pytest.raises(KeyboardInterrupt), second_process([run], print):
        raise KeyboardInterrupt
    (process,) = started
    assert process.returncode == -signal.SIGKILL
    assert process.stdin is not None and process.stdin.closed
    assert process.stdout is not None and process.stdout.closed


@pytest.mark.parametrize(("cores", "least"), [(1, 0), (2, start.LONG)], ids=["one core", "a short journal"])
def test_one_core_and_short_journals_need_no_second_process(
    cores: int,
    least: int,
    run: Path,
    started: list[subprocess.Popen[bytes]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(start, "LONG", least)
    monkeypatch.setattr(start, "_cores", lambda: cores)
    said: list[str] = []
    with second_process([run, run / "missing"], said.append) as hands:
        assert hands is ALONE
    assert not started and not said


def test_the_command_reads_and_draws_as_it_is_helped(
    run: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[tuple[list[Path], bool]] = []
    read: list[Path] = []

    @contextmanager
    def stubs(runs: Sequence[Path], say: Say, *, plots: bool) -> Iterator[Hands]:
        asked.append((list(runs), plots))

        def noted(path: Path) -> Iterator[entries.Seen]:
            read.append(path)
            return entries.read_here(path)

        def draw(content: Content) -> Iterable[Plot]:
            return [STUB]

        yield Hands(noted, draw)

    monkeypatch.setattr(start, "second_process", stubs)
    for options in ([], ["--no-plots"]):
        words = [str(run), "--into", str(tmp_path / f"out{len(options)}"), *options]
        assert CliRunner().invoke(report, words, catch_exceptions=False).exit_code == 0
    assert asked == [([run], True), ([run], False)] and read == [run, run]
    assert (tmp_path / "out0" / "plots" / "ttft.png").read_bytes() == b"png"
    assert not (tmp_path / "out1" / "plots").exists()


def test_without_plots_the_second_process_ends_when_it_has_read(
    run: Path, started: list[subprocess.Popen[bytes]]
) -> None:
    with second_process([run], print, plots=False) as hands:
        assert collect([run], read=hands.read).measurements
        assert started[0].wait(60) == 0


def test_several_runs_are_handed_over_one_after_the_other(
    run: Path, started: list[subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    other = report_runs.make_run(tmp_path / "other", tiers=(512,), repeats=1)
    alone = collect([run, other])
    with second_process([run, other], print) as hands:
        monkeypatch.setattr(start, "read_here", nothing)
        assert collect([run, other], read=hands.read).measurements == alone.measurements


def test_a_run_that_was_not_announced_is_read_here(
    run: Path, started: list[subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(plots, "draw", lambda content: [STUB])
    other = report_runs.make_run(tmp_path / "other", tiers=(512,), repeats=1)
    with second_process([run], print) as hands:
        content = collect([other], read=hands.read)
        assert content.measurements == collect([other]).measurements
        assert hands.draw(content) == [STUB]  # drawn here: the second process still has to be listened to


def test_what_a_killed_process_did_not_hand_over_is_read_here_and_nothing_twice(
    run: Path, started: list[subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    said: list[str] = []
    monkeypatch.setattr(plots, "draw", lambda content: [STUB])
    whole = tmp_path / "whole"
    in_small = "from bench.report.second import __main__ as m; m._BLOCK = 1; m.main()"
    command = [sys.executable, "-c", in_small, "", str(run)]
    whole.write_bytes(subprocess.run(command, check=True, capture_output=True, timeout=60).stdout)
    alone = collect([run])
    size = whole.stat().st_size
    first = 8 + int.from_bytes(whole.read_bytes()[:8], sys.byteorder)
    for part in (0, 3, 8, 8 + 8 + 5, first, first + 8, size // 2, size - 8, size - 1):
        said.clear()
        line = f"head -c {part} {whole}; kill -9 $$"
        monkeypatch.setattr(sys, "executable", script(tmp_path, line))
        with second_process([run], said.append) as hands:
            content = collect([run], read=hands.read)
            assert content.measurements == alone.measurements and content.details == alone.details
            assert list(hands.draw(content)) == [STUB]
        assert len(said) == 1 and "ended by SIGKILL" in said[0]


def test_a_damaged_journal_is_told_once_by_the_process_that_reports(
    run: Path, started: list[subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    said: list[str] = []
    damaged = tmp_path / "damaged"
    shutil.copytree(run, damaged)
    journal = damaged / "journal.jsonl"
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join([*lines[:2], b"{]\n", *lines[2:]]))
    with (
        second_process([damaged], said.append) as hands,
        pytest.raises(JournalError, match="line 3: damaged"),
    ):
        collect([damaged], read=hands.read)
    assert said == []


def test_what_cannot_be_handed_over_is_read_here_and_all_else_is_not(
    run: Path, started: list[subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    said: list[str] = []
    odd = tmp_path / "odd"
    shutil.copytree(run, odd)
    with Journal.resume(odd) as journal:
        journal.append(Event(name="odd", at="2026-11-30T00:00:00Z", data={"seed": 2**80}))
    alone = collect([odd, run])
    read: list[Path] = []

    def noted(path: Path) -> Iterator[entries.Seen]:
        read.append(path)
        return entries.read_here(path)

    monkeypatch.setattr(start, "read_here", noted)
    with second_process([odd, run], said.append) as hands:
        content = collect([odd, run], read=hands.read)
        monkeypatch.setattr(plots, "draw", lambda content: [])
        assert [plot.name for plot in hands.draw(content)]  # drawn by the second process
    assert content.runs[0].events[-1].data == {"seed": 2**80}
    assert content.measurements == alone.measurements
    assert read == [odd] and said == []


@pytest.mark.parametrize("garbage", ["-2", "hello, this is no block", "16"])
def test_what_speaks_otherwise_is_ended_and_nothing_is_lost(
    garbage: str,
    run: Path,
    started: list[subprocess.Popen[bytes]],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    said: list[str] = []
    spoken = tmp_path / "spoken"
    number = garbage.lstrip("-").isdecimal()
    head = int(garbage).to_bytes(8, sys.byteorder, signed=True) if number else garbage.encode()
    spoken.write_bytes(head + b"sixteen bytes ...")
    monkeypatch.setattr(sys, "executable", script(tmp_path, f"cat {spoken}; exec sleep 60"))
    with second_process([run], said.append, plots=False) as hands:
        assert collect([run], read=hands.read).measurements == collect([run]).measurements
        assert started[0].wait(60) == -signal.SIGKILL
    (told,) = said
    assert "handed over" in told and "no " in told


def test_a_process_that_says_no_more_and_does_not_end_is_ended(
    run: Path, started: list[subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    said: list[str] = []
    monkeypatch.setattr(start, "_PATIENCE_S", 0.01)
    monkeypatch.setattr(sys, "executable", script(tmp_path, "exec sleep 60 > /dev/null"))
    with second_process([run], said.append, plots=False) as hands:
        assert collect([run], read=hands.read).measurements
    assert said and "ended by SIGKILL" in said[0]


def test_the_second_process_runs_the_code_of_the_first(
    run: Path, started: list[subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    other = tmp_path / "bench"
    other.mkdir()
    (other / "__init__.py").write_text("raise SystemExit('another release')\n", encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    said: list[str] = []
    with second_process([run], said.append, plots=False) as hands:
        assert collect([run], read=hands.read).measurements
    assert said == []


def test_pages_are_made_before_plots_are_waited_for(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []

    class Late:
        def __iter__(self) -> Iterator[Plot]:
            done.append("plots")
            return iter([STUB])

    def texts(content: Content) -> dict[str, Any]:
        done.append("texts")
        return made(content)

    made = html.texts
    monkeypatch.setattr(html, "texts", texts)
    written = dict(write.files(collect([run]), draw=lambda content: Late()))
    assert done[:2] == ["texts", "plots"] and written["plots/ttft.png"] == b"png"


def test_pages_without_plots_load_no_matplotlib() -> None:
    code = "import sys, bench.report.html, bench.report.second.start; assert 'matplotlib' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
