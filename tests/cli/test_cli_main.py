"""How a command ends: exit codes, one line on stderr, and output that nobody reads or that finds no room."""

from __future__ import annotations

import errno
import io
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import click
import pytest

from bench.cli.main import main
from bench.cli.run import execute
from bench.errors import EngineError, JournalError
from bench.resources import shipped
from bench.run.progress import Progress

SUITE = str(shipped("prompts", "suites", "laptop.toml"))
RUN = str(Path(__file__).parent.parent / "data" / "run-small")


def into_a_closed_pipe(arguments: Sequence[str]) -> tuple[int, str]:
    """Exit code and stderr of a command whose reader has gone, as behind `| head`."""
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "bench", *arguments], stdout=writing, stderr=subprocess.PIPE, check=False
        )
    finally:
        os.close(writing)
    return done.returncode, done.stderr.decode()


@pytest.mark.parametrize(
    "arguments",
    [["--help"], ["plan", SUITE, "--json"], ["status", RUN]],
    ids=lambda arguments: arguments[0],
)
def test_a_command_whose_reader_has_gone_ends_quietly(arguments: list[str]) -> None:
    assert into_a_closed_pipe(arguments) == (141, "")


@pytest.mark.parametrize("again", [False, True])
def test_a_second_ctrl_c_costs_the_report_and_not_the_line_that_says_how_to_go_on(
    again: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def work(progress: Progress) -> Path:
        progress.path = Path("results/r")
        raise KeyboardInterrupt

    def report(path: Path) -> None:
        if again:
            raise KeyboardInterrupt

    monkeypatch.setattr("bench.cli.report.print_run", report)
    ended: type[BaseException] = KeyboardInterrupt if again else click.exceptions.Exit
    with pytest.raises(ended):
        execute(work, quiet=True)
    said = capsys.readouterr().err.splitlines()
    assert said[-1] == "interrupted; go on with: ctxbench run --resume results/r"
    assert said[0] == "writing the report; Ctrl-C again leaves it out"
    assert said[1:-1] == ["the report is not whole; make it with: ctxbench report results/r"] * again


@pytest.mark.parametrize("end", [KeyboardInterrupt(), EngineError("the server went away")])
def test_a_report_that_fails_does_not_hide_what_ended_the_run(
    end: BaseException, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def work(progress: Progress) -> Path:
        progress.path, progress.trial_since_ns = Path("results/r"), 1
        raise end

    def report(path: Path) -> None:
        raise JournalError("report.md: cannot be written: No space left on device")

    monkeypatch.setattr("bench.cli.report.print_run", report)
    with pytest.raises((click.exceptions.Exit, EngineError)) as ended:
        execute(work, quiet=True)
    assert getattr(ended.value, "exit_code", None) == (130 if isinstance(end, KeyboardInterrupt) else 3)
    said = capsys.readouterr().err
    assert "the report is not whole: report.md: cannot be written: No space left on device\n" in said


def test_an_interruption_before_there_is_a_run_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    async def work(progress: Progress) -> Path:
        raise KeyboardInterrupt

    with pytest.raises(click.exceptions.Exit):
        execute(work, quiet=True)
    assert capsys.readouterr().err == "interrupted before anything was measured; nothing was written\n"


def test_a_kill_while_the_report_is_made_ends_in_order(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def work(progress: Progress) -> Path:
        return Path("results/r")

    def report(path: Path) -> None:
        assert callable(signal.getsignal(signal.SIGTERM))  # else the next line would end these tests
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr("bench.cli.report.print_run", report)
    with pytest.raises(KeyboardInterrupt):
        execute(work, quiet=True)
    assert capsys.readouterr().err == "the report is not whole; make it with: ctxbench report results/r\n"


class Full(io.StringIO):
    """A file on a full disk."""

    def write(self, text: str) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class FullLater(io.StringIO):
    """A file whose buffer takes everything, and whose disk is full."""

    def flush(self) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("output", [Full, FullLater])
def test_output_that_finds_no_room_is_one_line_and_exit_code_one(
    output: type[io.StringIO], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdout", output())
    monkeypatch.setattr(sys, "argv", ["ctxbench", "routes", "llama"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 1
    assert capsys.readouterr().err == "ctxbench: the output cannot be written: No space left on device\n"


def test_ctrl_c_ends_a_command_with_130_and_says_nothing_more(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def status(path: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("bench.run.status.status", status)
    monkeypatch.setattr(sys, "argv", ["ctxbench", "status", RUN])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 130
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--version"], 0, ""),
        ([], 2, "Usage: "),
        (["serve"], 2, "Usage: "),
        (["routes", "llama"], 0, ""),
        (["status", "nothing-here"], 2, "ctxbench: nothing-here: not a run directory"),
        (["plan"], 2, "Usage: "),
        (["nonsense"], 2, "Usage: "),
    ],
)
def test_exit_codes_are_those_that_are_documented(
    arguments: list[str],
    code: int,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", ["ctxbench", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    assert (ended.value.code or 0) == code
    assert capsys.readouterr().err.startswith(said)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["watch", "http://h", "--every", "abc"], "'--every': 'abc' is not a valid number."),
        (["watch", "http://h", "--every", "0"], "'--every': 0.0 is not in the range 0.02<=x<=3600."),
        (["context", "c.json", "--max-model-len", "abc"], "'--max-model-len': 'abc' is not a valid integer."),
    ],
)
def test_a_value_of_the_wrong_kind_is_named_with_its_option(
    arguments: list[str], said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["ctxbench", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert capsys.readouterr().err.splitlines()[-1] == f"Error: Invalid value for {said}"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["plan", "empty.toml"], "empty.toml: the table [suite] is missing; `ctxbench routes llama` prints"),
        (["plan", "alone.toml"], "alone.toml: a table [[route]] is missing; `ctxbench routes llama` prints"),
        (["status", "empty.toml"], "empty.toml: not a run directory"),
        (["watch", "empty.toml"], "'empty.toml' is neither like http://host:port nor the directory of a"),
        (["routes", "vllm", "--model", " "], "--model: give the model's name or folder"),
        (["serve", "llama", "--model", "none.gguf"], "none.gguf: no such model file; give a GGUF file"),
        (["context", "."], "config '.': no config.json is in this folder; give"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_wrong_input_is_one_line_that_says_what_is_right(
    arguments: list[str],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "empty.toml").write_text("")
    (tmp_path / "alone.toml").write_text('[suite]\nname = "x"\ntiers = [256]\n')
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["ctxbench", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    shown = capsys.readouterr()
    assert (ended.value.code, shown.out) == (2, "")
    assert shown.err.startswith(f"ctxbench: {said}") and shown.err.count("\n") == 1


def test_what_is_to_be_done_at_the_end_is_done_though_no_garbage_is_looked_for(tmp_path: Path) -> None:
    code = f"""
import atexit, gc, tempfile
from bench.cli.main import main
folder = tempfile.TemporaryDirectory(dir={str(tmp_path)!r})
written = open({str(tmp_path / "text")!r}, "w")
written.write("kept")
atexit.register(lambda: print("frozen:", gc.get_freeze_count() > 1000))
main()
"""
    done = subprocess.run(
        [sys.executable, "-c", code, "routes", "llama"], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("# Routes") and done.stdout.endswith("\nfrozen: True\n")
    assert [path.name for path in tmp_path.iterdir()] == ["text"]
    assert (tmp_path / "text").read_text() == "kept"
