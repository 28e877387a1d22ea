"""The command at the end of a run: once, with the outcome, shown before, and never changing how it ended."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from run_helpers import ctxbench_here, only_run, suite_text

from bench.errors import SuiteError
from bench.plan.suite import parse_suite
from bench.run.finish import check_finish, run_finish, secrets_of
from bench.servers.simulator import start as simulate

TELL = "echo $CTXBENCH_STATUS $CTXBENCH_RUN >> told.txt"


def small(base_url: str, finish: str = TELL) -> str:
    text = suite_text({"a": base_url}, suite=f"on_finish = {finish!r}\nconditions = ['cold']")
    return text.replace("repeats = 2", "repeats = 1").replace("[256, 512]", "[256]")


def told(folder: Path) -> list[list[str]]:
    path = folder / "told.txt"
    return [line.split() for line in path.read_text().splitlines()] if path.exists() else []


def test_a_run_that_is_done_says_finished_once_and_where_it_is(tmp_path: Path) -> None:
    with simulate("toy-target-only") as server:
        (tmp_path / "s.toml").write_text(small(server.base_url))
        done = ctxbench_here(["run", "s.toml", "--quiet", "--no-report"], tmp_path)
    run = only_run(tmp_path / "results")
    assert done.returncode == 0, done.stderr
    assert told(tmp_path) == [["finished", str(run.resolve())]]
    # Shown before anything runs, and again when it is run.
    assert done.stderr.index(f"on finish, or trouble: {TELL}") < done.stderr.index(
        f"on finish (finished): {TELL}"
    )


def test_trouble_before_there_is_a_run_is_told_too_and_keeps_its_exit_code(tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text(small("http://127.0.0.1:1/v1"))
    done = ctxbench_here(["run", "s.toml", "--quiet"], tmp_path)
    assert done.returncode == 3
    assert told(tmp_path) == [["trouble"]]


def test_trials_without_a_valid_measurement_are_trouble_and_said_at_the_end(tmp_path: Path) -> None:
    with simulate("toy-target-only", faults=["foreign-traffic@2-"]) as server:
        text = small(server.base_url).replace("retry_invalid = 3", "retry_invalid = 0")
        (tmp_path / "s.toml").write_text(text)
        done = ctxbench_here(["run", "s.toml", "--no-report"], tmp_path)
        run = only_run(tmp_path / "results")
        assert told(tmp_path) == [["trouble", str(run.resolve())]]
        again = ctxbench_here(["run", "--resume", str(run), "--no-report", "--quiet"], tmp_path)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        "ctxbench: 1 of 1 planned trials have no valid measurement; ctxbench status "
        f"{run.relative_to(tmp_path)} says why: mend that, then run the suite anew"
    )
    said = ctxbench_here(["status", str(run)], tmp_path).stdout
    assert "without: 1 of 1 trials have no valid measurement" in said
    assert again.returncode == 1 and "no valid measurement" in again.stderr


def test_a_resume_that_fails_before_anything_was_sent_says_its_error_alone(tmp_path: Path) -> None:
    with simulate("toy-target-only") as server:
        (tmp_path / "s.toml").write_text(small(server.base_url))
        assert ctxbench_here(["run", "s.toml", "--quiet"], tmp_path).returncode == 0
    run = only_run(tmp_path / "results")
    gone = ctxbench_here(["run", "--resume", str(run), "--quiet"], tmp_path)
    assert gone.returncode == 3 and gone.stdout == "" and "report" not in gone.stderr
    journal = run / "journal.jsonl"
    journal.write_bytes(b"nonsense\n" + journal.read_bytes())
    damaged = ctxbench_here(["run", "--resume", str(run), "--quiet"], tmp_path)
    assert damaged.returncode == 2 and damaged.stderr.count("journal.jsonl") == 1


def test_the_option_takes_the_place_of_the_suites_command_and_its_failure_is_a_warning(
    tmp_path: Path,
) -> None:
    with simulate("toy-target-only") as server:
        (tmp_path / "s.toml").write_text(small(server.base_url))
        finish = "echo no mail today; exit 7"
        done = ctxbench_here(["run", "s.toml", "--quiet", "--no-report", "--on-finish", finish], tmp_path)
        assert done.returncode == 0
        assert f"warning: on_finish: {finish}: exit code 7: no mail today" in done.stderr
        assert told(tmp_path) == []
        # The run was made with the option, so a resume that names none has it too.
        run = only_run(tmp_path / "results")
        again = ctxbench_here(["run", "--resume", str(run), "--quiet", "--no-report"], tmp_path)
    assert "exit code 7" in again.stderr and again.returncode == 0


def is_measuring(results: Path) -> bool:
    """Whether a trial is in flight."""
    return any('"purpose":"trial"' in path.read_text() for path in results.glob("*/journal.jsonl"))


def test_ctrl_c_says_interrupted(tmp_path: Path) -> None:
    with simulate("toy-target-only") as server:
        text = small(server.base_url).replace("output_tokens = 16", "output_tokens = 20_000")
        (tmp_path / "s.toml").write_text(text)
        process = subprocess.Popen(
            [sys.executable, "-m", "bench", "run", "s.toml", "--quiet"],
            cwd=tmp_path,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            deadline = time.monotonic() + 60
            while not is_measuring(tmp_path / "results"):
                assert time.monotonic() < deadline and process.poll() is None
                time.sleep(0.02)
            process.send_signal(signal.SIGINT)
            _, said = process.communicate(timeout=300)
        finally:
            process.kill()
            process.communicate()
    assert process.returncode == 130, said
    assert "writing the report; Ctrl-C again leaves it out" in said
    assert told(tmp_path) == [["interrupted", str(only_run(tmp_path / "results").resolve())]]


def test_a_command_that_does_not_end_is_stopped_with_all_it_has_started(tmp_path: Path) -> None:
    command = "echo $$ > pid; sleep 1000 & sleep 1000"
    problem = asyncio.run(run_finish(command, tmp_path, None, "finished", limit_s=2))
    assert problem is not None and "stopped after 2 s" in problem
    group = (tmp_path / "pid").read_text().strip()
    listed = subprocess.run(["ps", "-A", "-o", "pgid=,stat="], capture_output=True, text=True, check=True)
    rows = [line.split() for line in listed.stdout.splitlines()]
    assert not [state for number, state in rows if number == group and state[0] != "Z"]


def test_a_list_of_arguments_needs_no_shell_and_its_program_must_be_there(tmp_path: Path) -> None:
    quiet = (sys.executable, "-c", "import os; assert os.environ['CTXBENCH_STATUS'] == 'trouble'")
    assert asyncio.run(run_finish(quiet, tmp_path, tmp_path, "trouble")) is None
    check_finish(quiet, tmp_path)
    check_finish(None, tmp_path)
    with pytest.raises(SuiteError, match="there is no program 'no-such-mailer'"):
        check_finish(("no-such-mailer",), tmp_path)
    gone = asyncio.run(run_finish(("no-such-mailer",), tmp_path, None, "finished"))
    assert gone is not None and "cannot be started" in gone


@pytest.mark.parametrize(
    ("finish", "problem"),
    [
        ("", "a command for the shell"),
        ("[]", "a command for the shell"),
        ("mail --api-key=sk-1234567", "holds a key"),
    ],
)
def test_what_is_no_command_or_holds_a_key_is_refused(finish: str, problem: str) -> None:
    value = finish if finish == "[]" else repr(finish)
    with pytest.raises(SuiteError, match=problem) as refused:
        parse_suite(suite_text({"a": "http://h/v1"}, suite=f"on_finish = {value}"))
    assert "sk-1234567" not in str(refused.value)


def test_plan_and_dry_run_show_it_and_run_nothing(tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text(small("http://127.0.0.1:1/v1"))
    planned = ctxbench_here(["plan", "s.toml"], tmp_path)
    dry = ctxbench_here(["run", "s.toml", "--dry-run"], tmp_path)
    assert planned.returncode == dry.returncode == 0
    assert f"on finish, or trouble: {TELL}" in planned.stderr
    assert f"on finish, or trouble: {TELL}" in dry.stdout
    assert told(tmp_path) == []


def test_the_longest_of_the_secrets_is_masked_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHORT", "abcdef")
    monkeypatch.setenv("LONG", "abcdef123456")
    headers = "headers = { X-A = { from_env = 'SHORT' }, X-B = { from_env = 'LONG' } }"
    assert secrets_of(parse_suite(suite_text({"a": "http://h/v1"}, route=headers))) == (
        "abcdef123456",
        "abcdef",
    )


def test_no_key_is_in_any_file_or_told_of_the_commands_output(tmp_path: Path) -> None:
    with simulate("toy-target-only") as server:
        text = small(server.base_url, 'echo "$ROUTE_KEY and more"; exit 1')
        text = text.replace('name = "a"', 'name = "a"\napi_key_env = "ROUTE_KEY"')
        (tmp_path / "s.toml").write_text(text)
        done = ctxbench_here(["run", "s.toml", "--quiet", "--no-report"], tmp_path, ROUTE_KEY="sk-only-mine")
    assert done.returncode == 0
    assert "exit code 1: *** and more" in done.stderr
    kept = [path.read_bytes() for path in (tmp_path / "results").rglob("*") if path.is_file()]
    assert kept and not any(b"sk-only-mine" in data for data in kept)
    assert "sk-only-mine" not in done.stdout + done.stderr
