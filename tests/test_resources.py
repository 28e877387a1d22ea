"""Files that users name: bounded whatever they are, and no pipe is waited for without end."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from bench import resources
from bench.api import load_table
from bench.cli.import_table import read_text as read_table_text
from bench.errors import SuiteError
from bench.plan.suite import read_suite
from bench.prompting.conversation import load_conversations
from bench.prompting.tasks import load_task
from bench.prompting.tokens import load_tokenizer
from bench.resources import read_bounded, read_text

ENDLESS = Path("/dev/zero")


def test_a_file_of_just_the_bound_is_read_and_one_byte_more_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"x" * 3 * 2**20)
    assert read_bounded(path, 3 * 2**20) == b"x" * 3 * 2**20
    with pytest.raises(SuiteError, match=r"x: larger than 3 MiB"):
        path.write_bytes(b"x" * (3 * 2**20 + 1))
        read_bounded(path, 3 * 2**20)


@pytest.mark.parametrize(
    "read",
    [
        lambda path: load_task(str(path)),
        load_tokenizer,
        load_conversations,
        read_suite,
        read_table_text,
        load_table,
    ],
    ids=["task", "tokenizer", "chats", "suite", "table", "api"],
)
def test_a_device_without_an_end_is_refused(
    read: Callable[[Path], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resources, "LARGEST_TABLE", 2**20)
    monkeypatch.setattr("bench.api.LARGEST_TABLE", 2**20)
    monkeypatch.setattr("bench.prompting.tokens._LARGEST", 2**20)
    monkeypatch.setattr("bench.prompting.conversation._LARGEST_FILE", 2**20)
    with pytest.raises(SuiteError, match=r"larger than 1 MiB|longer than 64 KiB"):
        read(ENDLESS)


def test_a_pipe_is_read_to_its_end(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    text = "a\r\n" * 100_000  # more than a pipe holds
    threading.Thread(target=pipe.write_text, args=(text,), daemon=True).start()
    assert read_text(pipe, 2**20) == "a\n" * 100_000


def test_a_pipe_that_nobody_writes_to_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resources, "PATIENCE_S", 0.01)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(SuiteError, match="pipe: nothing came out of it"):
        read_bounded(pipe, 10)


def test_a_text_is_utf_8_with_or_without_a_mark_and_its_lines_end_alike(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"\xef\xbb\xbfa\r\nb\rc\n")
    assert read_text(path, 100) == "a\nb\nc\n"
    path.write_bytes(b"a\xff")
    with pytest.raises(SuiteError, match=r"x: not UTF-8 text \(byte 1\)"):
        read_text(path, 100)


def test_what_cannot_be_read_is_named_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(SuiteError, match="none: cannot be read: No such file"):
        read_bounded(tmp_path / "none", 1)
    with pytest.raises(SuiteError, match="cannot be read: Is a directory"):
        read_bounded(tmp_path, 1)
