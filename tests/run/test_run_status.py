"""How a run stands, from its directory alone."""

from __future__ import annotations

import os
import re
from datetime import datetime
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner
from run_helpers import ctxbench_here, only_run, suite_text

from bench.cli.watch import status as status_command
from bench.errors import JournalError
from bench.journal import Journal, read_entries, read_info
from bench.records import Event, Exchange
from bench.records.events import SERVER_AWAY, SERVER_BACK, WATCHED
from bench.run.status import Status, holder, status
from bench.servers.simulator import start as simulate


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two tiers of cold, replay and salted, once: a run without an invalid attempt.

    A busy machine may cost an attempt; then another run is made.
    """
    with simulate("toy-target-only") as server:
        text = suite_text({"a": server.base_url}).replace("repeats = 2", "repeats = 1")
        for number in range(6):
            folder = tmp_path_factory.mktemp(f"status{number}")
            (folder / "s.toml").write_text(text)
            done = ctxbench_here(["run", "s.toml", "--no-report", "--quiet"], folder)
            assert done.returncode == 0, done.stderr
            run = only_run(folder / "results")
            if status(run).invalid == 0:
                return run
    raise AssertionError("six runs, and each had an invalid attempt")


def rewritten(run: Path, folder: Path, keep: int, *more: Event) -> Path:
    """The run as it was after `keep` exchanges of trials, with more events behind them."""
    path = folder / "cut"
    entries, trials = [], 0
    for entry in read_entries(run):
        trials += isinstance(entry, Exchange) and entry.purpose == "trial"
        entries.append(entry)
        if trials == keep:
            break
    with Journal.create(path, read_info(run)) as journal:
        for entry in (*entries, *more):
            journal.append(entry)
    return path


def started(run: Path, number: int, second: int) -> Event:
    trial = read_info(run).plan[number].id
    data: dict[str, object] = {"trial": trial, "attempt": 1, "purpose": "trial"}
    return Event(name="started", at=f"2026-11-01T10:00:{second:02}.000Z", data=data)


def moment(second: int) -> float:
    return datetime.fromisoformat(f"2026-11-01T10:00:{second:02}+00:00").timestamp()


def test_a_finished_run_has_nothing_left_and_nobody_works_on_it(finished: Path) -> None:
    found = status(finished)
    plan = read_info(finished).plan
    assert (found.state, found.process) == ("finished", None)
    assert (found.total, found.done, found.left, found.left_s) == (len(plan), len(plan), 0, 0.0)
    assert (found.valid, found.invalid, found.failed) == (len(plan), 0, 0)
    assert found.in_flight == () and found.sessions == 1
    assert found.last == "event finished"


def test_a_run_in_progress_shows_what_is_in_flight_and_the_time_left(finished: Path, tmp_path: Path) -> None:
    path = rewritten(finished, tmp_path, 2, started(finished, 2, 5))
    with Journal.resume(path):  # the writer
        os.utime(path / "journal.jsonl", (moment(5), moment(5)))
        found = status(path, now=lambda: moment(12))
    assert (found.state, found.process) == ("running", os.getpid())
    assert (found.done, found.left, found.valid) == (2, found.total - 2, 2)
    (flight,) = found.in_flight
    assert (flight.trial, flight.attempt, flight.since_s) == (read_info(path).plan[2].id, 1, 7.0)
    assert flight.expected_ttft_s is not None and flight.expected_ttft_s > 0
    assert found.last == "event started" and found.last_age_s == 7.0
    later = status(path, now=lambda: moment(13))
    assert (later.state, later.process) == ("interrupted", None)
    # In flight for much longer than expected: its own time is used up, that of the others is not.
    assert found.left_s is not None and later.left_s is not None
    assert 0 < found.left_s < later.left_s


def test_time_left_shrinks_while_a_request_is_in_flight(finished: Path, tmp_path: Path) -> None:
    path = rewritten(finished, tmp_path, 2, started(finished, 2, 5))
    with Journal.resume(path):
        left = [status(path, now=lambda s=s: moment(5) + s / 100).left_s for s in (0, 1)]
    assert left[0] is not None and left[1] == pytest.approx(left[0] - 0.01)


def test_a_new_session_forgets_what_was_cut_off(finished: Path, tmp_path: Path) -> None:
    session = Event(name="session", at="2026-11-01T10:01:00.000Z")
    found = status(rewritten(finished, tmp_path, 1, started(finished, 1, 5), session))
    assert found.in_flight == () and found.sessions == 2


def test_asking_never_takes_the_lock_from_a_writer(finished: Path, tmp_path: Path) -> None:
    path = rewritten(finished, tmp_path, 1)
    assert holder(path) is None
    with Journal.resume(path) as journal:
        assert holder(path) == os.getpid()
        journal.append(Event(name="note", at="2026-11-01T10:01:00.000Z"))
    before = (path / ".lock").read_bytes()
    assert holder(path) is None
    assert (path / ".lock").read_bytes() == before
    with Journal.resume(path):  # and a writer may come afterwards
        pass


def test_a_directory_that_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match="not a run directory"):
        status(tmp_path)


def test_a_run_killed_before_its_first_line_has_everything_left(finished: Path, tmp_path: Path) -> None:
    with Journal.create(tmp_path / "r", read_info(finished)):
        pass
    (tmp_path / "r" / "journal.jsonl").unlink()
    found = status(tmp_path / "r")
    assert (found.state, found.done, found.last, found.last_age_s) == ("interrupted", 0, "", None)
    assert found.left == found.total and found.left_s is None
    (tmp_path / "r" / "journal.jsonl").touch()
    said = ctxbench_here(["status", "r"], tmp_path).stdout
    assert "last line" not in said and f"{found.total} left" in said


def test_the_command_says_it_in_lines_and_as_json(finished: Path, tmp_path: Path) -> None:
    path = rewritten(finished, tmp_path, 2, started(finished, 2, 5))
    with Journal.resume(path):
        said = CliRunner().invoke(status_command, [str(path)]).stdout
    assert f"running (process {os.getpid()})" in said
    assert "trials: 2 of" in said and "exchanges: 2 valid, 0 invalid" in said
    assert f"in flight: {read_info(path).plan[2].id}, attempt 1, trial for" in said
    assert "cut off: " in CliRunner().invoke(status_command, [str(path)]).stdout
    found = msgspec.json.decode(CliRunner().invoke(status_command, [str(path), "--json"]).stdout)
    assert (found["state"], found["valid"]) == ("interrupted", 2)


def test_a_server_that_is_waited_for_is_told_with_what_is_in_its_way(finished: Path, tmp_path: Path) -> None:
    def said(path: Path) -> str:
        return CliRunner().invoke(status_command, [str(path)]).stdout

    at = "2026-11-01T10:00:00.000Z"
    data: dict[str, object] = {"route": "a", "problem": "nobody listens"}
    away = Event(name=SERVER_AWAY, at=at, message="HTTP 503", data=data)
    path = rewritten(finished, tmp_path, 1, away)
    with Journal.resume(path) as journal:
        began = datetime.fromisoformat(at).timestamp()
        (one,) = status(path, now=lambda: began + 125).away
        assert (one.route, one.problem, one.since_s) == ("a", "nobody listens", 125)
        assert "route a: waiting for its server for " in said(path)
        assert "from when its server is back" in said(path)
        journal.append(Event(name=SERVER_BACK, at=at, data={"route": "b"}))
        assert status(path).away
        journal.append(Event(name=SERVER_BACK, at=at, data={"route": "a"}))
        assert not status(path).away
    left = said(rewritten(finished, tmp_path / "again", 1, away))  # nobody waits any more
    assert "waiting" not in left and "is back" not in left


def test_restarts_of_a_watched_server_are_counted_for_themselves(finished: Path, tmp_path: Path) -> None:
    kinds = ["request", "restart", "window"]
    seen = [Event(name=WATCHED, at="", data={"watched": {"kind": kind}}) for kind in kinds]
    found = status(rewritten(finished, tmp_path, 1, *seen))
    assert (found.watched, found.restarts) == (2, 1)


def test_the_page_about_runs_explains_every_field_of_the_status() -> None:
    page = (Path(__file__).parents[2] / "docs" / "runs.md").read_text(encoding="utf-8")
    section = page.split("## While it runs", 1)[1].split("\n### ", 1)[0]
    rows = re.findall(r"^\| (`.*?`) \|", section, re.MULTILINE)
    told = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    assert sorted(told) == sorted(Status.__struct_fields__)


def test_a_wave_that_was_cut_off_is_counted_with_its_answered_requests(tmp_path: Path) -> None:
    """As `kill -9` between two lines leaves it: of four answers one is in the journal."""
    with simulate("toy-target-only") as server:
        keys = 'concurrency = [4]\nwarmup = "none"\nconditions = ["cold"]'
        text = suite_text({"a": server.base_url}, suite=keys)
        (tmp_path / "s.toml").write_text(
            text.replace("[256, 512]", "[512]").replace("repeats = 2", "repeats = 1")
        )
        ctxbench_here(["run", "s.toml", "--no-report", "--quiet"], tmp_path)
    found = status(rewritten(only_run(tmp_path / "results"), tmp_path, 1))
    assert (found.valid, found.invalid, found.failed, found.cut_off) == (0, 0, 0, 1)
    assert (found.reasons, found.left) == ({"wave_incomplete": 1}, 4)
