"""A run is resumed from any folder: where its suite's relative paths start is recorded."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec
import pytest
from run_helpers import TOKENIZER, ctxbench_here, events, only_run, suite_text

from bench.analysis.verdicts.measure import measure_all
from bench.journal import Journal, read_entries, read_info
from bench.plan.suite import parse_suite
from bench.records import Exchange
from bench.run.order import with_ca_files
from bench.run.study import suite_folder
from bench.servers.simulator import start as simulate

RELATIVE = """
corpus = "texts"
tokenizer = "tokenizer.json"
task = "ask.md"
"""


@pytest.fixture
def suites(tmp_path: Path) -> Path:
    """A folder with all that a suite may name by relative paths."""
    folder = tmp_path / "suites"
    (folder / "texts").mkdir(parents=True)
    lines = (f"Line {number} has a word or two of its own, and ends here.\n" for number in range(3000))
    (folder / "texts" / "one.txt").write_text("".join(lines))
    shutil.copy(TOKENIZER, folder / "tokenizer.json")
    (folder / "ask.md").write_text("Go on with this text.\n")
    (folder / "server.log").write_text("a line\n")
    return folder


def test_a_run_is_resumed_from_another_folder_than_it_was_begun_in(suites: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    with simulate("toy-target-only") as server:
        text = suite_text(
            {"a": server.base_url},
            suite='on_finish = "cat server.log > finished.txt"\nwarmup = "none"',
            route='log = "server.log"',
        )
        text = text.replace("[256, 512]", "[256]").replace("repeats = 2", "repeats = 1")
        plain = f"""corpus = "synthetic"\ntokenizer = '{TOKENIZER}'\n"""
        assert plain in text
        (suites / "s.toml").write_text(text.replace(plain, RELATIVE))
        begun = ctxbench_here(["run", "s.toml", "--results", str(tmp_path / "r"), "--no-report"], suites)
        assert begun.returncode == 0, begun.stderr
        run = only_run(tmp_path / "r")
        assert read_info(run).folder == str(suites)
        cut_after_the_first_exchange(run)
        (suites / "finished.txt").unlink()
        done = ctxbench_here(["run", "--resume", str(run), "--no-report"], elsewhere)
    assert done.returncode == 0, done.stderr
    assert len(events(run, "session")) == 2
    sent = [one for one in read_entries(run) if isinstance(one, Exchange)]
    assert all(one.log is not None and one.log.problem is None for one in sent)
    valid = {one.trial_id for one in measure_all(read_info(run), sent) if one.verdict.valid}
    assert valid == {trial.id for trial in read_info(run).plan}
    assert (suites / "finished.txt").read_text() == "a line\n"


def cut_after_the_first_exchange(run: Path) -> None:
    lines = (run / "journal.jsonl").read_bytes().splitlines(keepends=True)
    first = next(n for n, line in enumerate(lines) if b'"kind":"exchange"' in line)
    (run / "journal.jsonl").write_bytes(b"".join(lines[: first + 1]))


def test_a_certificate_authority_is_found_beside_the_suite_or_where_it_stands_and_kept_as_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "suites").mkdir()
    (tmp_path / "suites" / "ca.pem").touch()
    (tmp_path / "here.pem").touch()
    monkeypatch.chdir(tmp_path)

    def found(ca_file: str) -> str | None:
        suite = parse_suite(suite_text({"a": "https://host/v1"}, route=f'ca_file = "{ca_file}"'))
        return with_ca_files(suite, Path("suites")).routes[0].ca_file

    assert found("ca.pem") == str(tmp_path / "suites" / "ca.pem")
    assert found("here.pem") == str(tmp_path / "here.pem")
    assert found("/etc/ca.pem") == "/etc/ca.pem"


def test_a_run_that_recorded_no_folder_or_one_that_is_gone_starts_from_the_current_one(
    tmp_path: Path,
) -> None:
    info = read_info(Path(__file__).parents[1] / "data" / "run-small")
    assert info.folder is None and suite_folder(info) == Path()
    assert suite_folder(msgspec.structs.replace(info, folder=str(tmp_path))) == tmp_path
    gone = msgspec.structs.replace(info, folder=str(tmp_path / "gone"))
    with Journal.create(tmp_path / "run", gone):
        assert suite_folder(read_info(tmp_path / "run")) == Path()
