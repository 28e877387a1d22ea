"""The program that reads for another process: how it hands over what it reads."""

from __future__ import annotations

from pathlib import Path

import pytest
import report_runs

from bench.report import second
from bench.report.handed import HEAD, READ_ON, WHOLE, entries_of, length_of
from bench.report.reading import Seen, read_here


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return report_runs.make_run(tmp_path_factory.mktemp("runs") / "tiny", tiers=(256,), repeats=1)


def handed(blocks: list[bytes]) -> tuple[list[Seen], int]:
    """The entries of all blocks, and how the reading ended."""
    *full, end = blocks
    for block in full:
        assert length_of(block[:HEAD]) == len(block) - HEAD > 0
    return [seen for block in full for seen in entries_of(memoryview(block)[HEAD:])], length_of(end)


@pytest.mark.parametrize("size", [1, 1 << 30])
def test_entries_are_handed_over_in_their_order_in_blocks_of_any_size(
    size: int, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(second, "_BLOCK", size)
    blocks: list[bytes] = []
    second._hand_over(run, blocks.append)
    found, ended = handed(blocks)
    entries = list(read_here(run, "tiny"))
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
    second._hand_over(tmp_path, blocks.append)
    # what is decoded together is lost together: it is read again by whoever reads on
    found, ended = handed(blocks)
    assert ended == READ_ON and len(found) <= lines


def test_a_folder_that_is_no_run_is_left_to_whoever_reports(tmp_path: Path) -> None:
    blocks: list[bytes] = []
    second._hand_over(tmp_path / "nothing", blocks.append)
    assert handed(blocks) == ([], READ_ON)
