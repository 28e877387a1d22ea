"""The program that reads for another process: how it hands over what it reads."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import report_runs

from bench.report.entries import Seen, read_here
from bench.report.second import __main__ as program
from bench.report.second.wire import HEAD, READ_ON, WHOLE, entries_of, length_of


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return report_runs.make_run(tmp_path_factory.mktemp("runs") / "tiny", tiers=(256,), repeats=1)


def handed(blocks: list[bytes]) -> tuple[list[Seen], int]:
    """The entries of all blocks, and how the reading ended."""
    *full, end = blocks
    for block in full:
        assert length_of(block[:HEAD]) == len(block) - HEAD > 0
    return [seen for block in full for seen in entries_of(block[HEAD:])], length_of(end)


@pytest.mark.parametrize("size", [1, 1 << 30])
def test_entries_are_handed_over_in_their_order_in_blocks_of_any_size(
    size: int, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program, "_BLOCK", size)
    blocks: list[bytes] = []
    program.hand_over(run, blocks.append)
    found, ended = handed(blocks)
    entries = list(read_here(run))
    assert len(blocks) == (len(entries) + 1 if size == 1 else 2)
    assert ended == WHOLE
    assert [one.detail for one in found] == [one.detail for one in entries]


@pytest.mark.parametrize("lines", [0, 2])
def test_what_stands_before_damage_is_handed_over_and_the_rest_left(
    lines: int, run: Path, tmp_path: Path
) -> None:
    (tmp_path / "run.json").write_bytes((run / "run.json").read_bytes())
    kept = (run / "journal.jsonl").read_bytes().splitlines(keepends=True)[:lines]
    (tmp_path / "journal.jsonl").write_bytes(b"".join([*kept, b"{]\n", b"{]\n"]))
    blocks: list[bytes] = []
    program.hand_over(tmp_path, blocks.append)
    # what is decoded together is lost together: it is read again by whoever reads on
    found, ended = handed(blocks)
    assert ended == READ_ON and len(found) <= lines


def test_a_folder_that_is_no_run_is_left_to_whoever_reports(tmp_path: Path) -> None:
    blocks: list[bytes] = []
    program.hand_over(tmp_path / "nothing", blocks.append)
    assert handed(blocks) == ([], READ_ON)


def test_it_ends_when_nobody_listens_any_more(run: Path) -> None:
    # what is read does not fit into what may be read ahead
    code = "from bench.report.second import __main__ as m; m._AHEAD = m._BLOCK = 1; m.main()"
    process = subprocess.Popen(
        [sys.executable, "-c", code, "", *[str(run)] * 200],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None and process.stderr is not None
    with process.stderr:
        process.stdout.read(1)
        process.stdout.close()
        assert process.wait(60) != 0
        assert b"BrokenPipeError" in process.stderr.read()


def test_what_is_printed_by_mistake_does_not_get_between_the_blocks(run: Path) -> None:
    loud = "from bench.report.second import __main__ as m; h = m.hand_over\n"
    loud += "m.hand_over = lambda run, put: (print('in between', flush=True), h(run, put))\nm.main()"
    command = [sys.executable, "-c", loud, "", str(run)]
    done = subprocess.run(command, check=True, capture_output=True, timeout=60)
    assert done.stderr == b"in between\n" and b"in between" not in done.stdout


def test_an_error_while_it_reads_ends_it(run: Path) -> None:
    code = "from bench.report.second import __main__ as m; m.hand_over = lambda run, put: 1 / 0; m.main()"
    done = subprocess.run([sys.executable, "-c", code, "", str(run)], capture_output=True, timeout=60)
    assert done.returncode == 1 and b"ZeroDivisionError" in done.stderr and done.stdout == b""
