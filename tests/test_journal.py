"""The run directory survives whatever kills its writer."""

from __future__ import annotations

import gzip
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from bench.errors import JournalError
from bench.journal import SCHEMA, Journal, read_entries, read_info
from bench.records import Chunks, Event, Exchange, PromptRecipe, PromptSettings, Route, RunInfo, Suite, Trial
from bench.records.events import REPEATED


def info(schema: int = SCHEMA) -> RunInfo:
    suite = Suite(
        name="s",
        tiers=(512,),
        conditions=("cold",),
        output_tokens=8,
        repeats=1,
        replays=1,
        seed=1,
        warmup="none",
        retry_invalid=0,
        interleave=True,
        prompt=PromptSettings(),
        routes=(Route(name="a", base_url="http://127.0.0.1:1/v1"),),
    )
    return RunInfo(schema=schema, id="r", created_at="t", nonce="n", suite=suite, suite_text="", plan=())


def event(name: str) -> Event:
    return Event(name=name, at="2026-01-01T00:00:00Z", message="a\nb\u2028c")


def exchange() -> Exchange:
    trial = Trial(id="a/512/cold/1", route="a", tier=512, condition="cold", repeat=1)
    recipe = PromptRecipe(
        sha256="0", tokens=512, endpoint="chat", corpus="c", corpus_sha256="0", task="t", start=0
    )
    return Exchange(trial=trial, prompt=recipe, url="u", sent_ns=10, ended_ns=5, text='<\u0085"\n')


def test_entries_come_back_as_they_were_written(tmp_path: Path) -> None:
    with Journal.create(tmp_path / "r", info()) as journal:
        journal.append(event("start"))
        journal.append(exchange())
    assert read_info(tmp_path / "r") == info()
    assert list(read_entries(tmp_path / "r")) == [event("start"), exchange()]


def test_an_exchange_that_stands_twice_in_the_journal_is_counted_once_and_said(tmp_path: Path) -> None:
    with Journal.create(tmp_path / "r", info()) as journal:
        for entry in (event("start"), exchange(), event("start"), exchange()):
            journal.append(entry)
    *entries, last = read_entries(tmp_path / "r")
    assert entries == [event("start"), exchange(), event("start")]
    assert isinstance(last, Event) and last.name == REPEATED
    assert last.message == "line 4 of the journal repeats a/512/cold/1, attempt 1: counted once"


@contextmanager
def no_file_longer_than(size: int) -> Iterator[None]:
    """As on a disk that is full at that point: a write stops there, and the next one fails."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_costs_the_line_that_finds_no_room_and_none_before_or_after_it(tmp_path: Path) -> None:
    run = tmp_path / "r"
    with Journal.create(run, info()) as journal:
        journal.append(event("one"))
        size = (run / "journal.jsonl").stat().st_size
        with no_file_longer_than(size + 20):
            for _ in range(2):
                with pytest.raises(JournalError, match=r"journal\.jsonl: cannot be written: .*--resume"):
                    journal.append(event("two"))
            with pytest.raises(JournalError, match=r"p\.prom\.gz: cannot be written: .*--resume"):
                journal.store_scrape("p", str(list(range(1000))))
        assert (run / "journal.jsonl").stat().st_size == size
        journal.append(event("three"))
    assert list(read_entries(run)) == [event("one"), event("three")]


def test_only_where_room_is_lacking_it_is_asked_for(tmp_path: Path) -> None:
    run = tmp_path / "r"
    with Journal.create(run, info()) as journal:
        (run / "scrapes").rmdir()
        with pytest.raises(
            JournalError, match=r"No such file or directory; see to it, then go on with --resume"
        ):
            journal.store_scrape("p", "page")
    with Journal.resume(run) as journal:  # the folder is made anew
        assert journal.store_scrape("p", "page") == "scrapes/p.prom.gz"


@pytest.mark.parametrize("name", ["journal.jsonl", "scrapes"])
def test_what_is_no_journal_is_no_run_to_be_resumed(name: str, tmp_path: Path) -> None:
    run = tmp_path / "r"
    Journal.create(run, info()).close()
    if name == "scrapes":
        (run / name).rmdir()
        (run / name).touch()
    else:
        (run / name).unlink()
        (run / name).mkdir()
    with pytest.raises(JournalError, match=rf"{name}: cannot be written: "):
        Journal.resume(run)
    with pytest.raises(JournalError, match="cannot be written"):
        Journal.resume(run)  # the lock was given back


def test_what_a_full_disk_leaves_of_a_new_run_directory_is_taken_as_new(tmp_path: Path) -> None:
    run = tmp_path / "r"
    for room, what in ((0, r"\.lock"), (100, r"run\.json")):
        with no_file_longer_than(room), pytest.raises(JournalError, match=rf"{what}: cannot be written"):
            Journal.create(run, info())
    (run / ".run.json.123.tmp").write_text("{")  # as a power cut leaves it
    with Journal.create(run, info()) as journal:
        journal.append(event("one"))
    assert list(read_entries(run)) == [event("one")]


@pytest.mark.parametrize("name", ["run.json", "journal.jsonl", "notes.txt", "scrapes/p.prom.gz"])
def test_a_folder_that_holds_anything_else_is_no_new_run_directory(name: str, tmp_path: Path) -> None:
    (tmp_path / "r" / "scrapes").mkdir(parents=True)
    (tmp_path / "r" / name).write_text("x")
    with pytest.raises(JournalError, match="this run directory exists"):
        Journal.create(tmp_path / "r", info())
    assert not (tmp_path / "r" / ".lock").exists()


def test_a_torn_last_line_is_ignored_by_readers_and_cut_on_resume(tmp_path: Path) -> None:
    run = tmp_path / "r"
    with Journal.create(run, info()) as journal:
        journal.append(event("one"))
    whole = (run / "journal.jsonl").read_bytes()
    with (run / "journal.jsonl").open("ab") as file:
        file.write(b'{"kind":"event","name":"tw')
    assert [e.name for e in read_entries(run) if isinstance(e, Event)] == ["one"]
    with Journal.resume(run) as journal:
        assert (run / "journal.jsonl").read_bytes() == whole
        journal.append(event("two"))
    assert [e.name for e in read_entries(run) if isinstance(e, Event)] == ["one", "two"]


def test_a_journal_that_is_one_torn_line_becomes_empty(tmp_path: Path) -> None:
    run = tmp_path / "r"
    Journal.create(run, info()).close()
    (run / "journal.jsonl").write_bytes(b"x" * 200_000)
    with Journal.resume(run):
        assert (run / "journal.jsonl").read_bytes() == b""


def test_a_damaged_line_in_the_middle_is_named(tmp_path: Path) -> None:
    run = tmp_path / "r"
    with Journal.create(run, info()) as journal:
        journal.append(event("one"))
    with (run / "journal.jsonl").open("ab") as file:
        file.write(b"{broken}\n")
    with pytest.raises(JournalError, match=r"journal.jsonl, line 2: damaged"):
        list(read_entries(run))


@pytest.mark.parametrize("number", [2**63, -(2**63) - 1])
@pytest.mark.parametrize("column", ["at_ns", "chars", "tokens"])
def test_a_number_that_no_array_holds_is_damage(column: str, number: int, tmp_path: Path) -> None:
    with Journal.create(tmp_path / "run", info()) as journal:
        journal.append(event("one"), exchange(), event("three"))
    file = tmp_path / "run" / "journal.jsonl"
    lines = file.read_bytes().splitlines(keepends=True)
    entry = msgspec.json.decode(lines[1])
    entry["chunks"][column] = [number]
    file.write_bytes(b"".join([lines[0], msgspec.json.encode(entry) + b"\n", lines[2]]))
    with pytest.raises(JournalError, match=rf"line 2: damaged: .*chunks\.{column}\[0\]"):
        list(read_entries(tmp_path / "run"))


def test_lines_are_counted_over_blocks_of_any_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = tmp_path / "r"
    with Journal.create(run, info()) as journal:
        journal.append(*(event(str(number)) for number in range(50)))
    with (run / "journal.jsonl").open("ab") as file:
        file.write(b"{broken}\n")
    for size in (2, 100, 1 << 20):
        monkeypatch.setattr("bench.journal._BLOCK", size)
        with pytest.raises(JournalError, match=r"journal.jsonl, line 51: damaged"):
            list(read_entries(run))


def test_a_line_that_is_finished_while_it_is_read_is_left_for_the_next_look(tmp_path: Path) -> None:
    run = tmp_path / "r"
    with Journal.create(run, info()) as journal:
        journal.append(event("one"))
    with (run / "journal.jsonl").open("ab") as file:
        file.write(b'{"kind":"event","name":"tw')
        file.flush()
        entries = read_entries(run)
        assert next(entries) == event("one")
        file.write(b'o","at":""}\n')
        file.flush()
        assert list(entries) == []
    assert [e.name for e in read_entries(run) if isinstance(e, Event)] == ["one", "two"]


def test_reads_are_left_out_where_there_are_events_and_nobody_asks_for_them(tmp_path: Path) -> None:
    streamed = replace(exchange(), chunks=Chunks(at_ns=(7, 9), chars=(1, 1), kinds="cc"), read_ns=(7, 9))
    mute = replace(exchange(), attempt=2, read_ns=(8,), read_bytes=(3,))
    with Journal.create(tmp_path / "r", info()) as journal:
        journal.append(event("one"), streamed, mute)
    assert list(read_entries(tmp_path / "r")) == [event("one"), streamed, mute]
    first, light, same = read_entries(tmp_path / "r", reads=False)
    assert isinstance(light, Exchange) and (light.read_ns, light.chunks) == ((), streamed.chunks)
    assert (first, same) == (event("one"), mute)


def test_a_directory_in_use_is_refused_even_to_another_process(tmp_path: Path) -> None:
    run = tmp_path / "r"
    code = f"from pathlib import Path; from bench.journal import Journal; Journal.resume(Path({str(run)!r}))"
    with Journal.create(run, info()):
        result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "in use by another ctxbench (process " in result.stderr
    Journal.resume(run).close()  # free again


def test_an_existing_directory_is_never_overwritten(tmp_path: Path) -> None:
    Journal.create(tmp_path / "r", info()).close()
    with pytest.raises(JournalError, match="exists; resume it"):
        Journal.create(tmp_path / "r", info())


def test_a_later_schema_and_a_foreign_folder_are_refused(tmp_path: Path) -> None:
    Journal.create(tmp_path / "r", info(schema=SCHEMA + 1)).close()
    with pytest.raises(JournalError, match="later ctxbench"):
        read_info(tmp_path / "r")
    with pytest.raises(JournalError, match="not a run directory"):
        read_info(tmp_path)
    (tmp_path / "run.json").write_text("{}")
    with pytest.raises(JournalError, match="damaged"):
        read_info(tmp_path)


def test_scrapes_are_kept_as_they_came_with_reproducible_bytes(tmp_path: Path) -> None:
    page = "vllm:num_requests_running 1\n\udc80"
    with Journal.create(tmp_path / "r", info()) as journal:
        path = tmp_path / "r" / journal.store_scrape("0001-before", page)
        first = path.read_bytes()
        journal.store_scrape("0001-before", page)
    assert path.read_bytes() == first
    assert gzip.decompress(first).decode("utf-8", "surrogatepass") == page


def test_no_record_can_put_nan_or_infinity_into_a_line() -> None:
    line = msgspec.json.encode(Event(name="x", at="", data={"a": float("nan"), "b": float("inf")}))
    assert b"null" in line and b"NaN" not in line and b"Inf" not in line
