"""Log sources: files, gzip, standard input, log tools, and the part that belongs to one exchange."""

from __future__ import annotations

import gzip
import io
import os
import stat
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from bench.analysis.logs.analyser import LINE_BYTES_MAX, LogAnalyser
from bench.errors import EngineError, SuiteError
from bench.wire import logs
from bench.wire.logs import BLOCK_BYTES, LogSource, LogTail, blocks, command, parse_source


def read(source: LogSource) -> bytes:
    return b"".join(blocks(source))


# --- sources ----------------------------------------------------------------------------------------


def test_sources_are_told_apart(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    path.write_text("x")
    assert parse_source("-").kind == "stdin"
    assert parse_source("docker:vllm-1") == LogSource(kind="docker", name="vllm-1")
    assert parse_source("journal:vllm@0.service") == LogSource(kind="journal", name="vllm@0.service")
    assert parse_source(str(path)) == LogSource(kind="file", name=str(path))


@pytest.mark.parametrize(
    "text", ["docker:", "docker:--help", "docker:a b", "journal:-u", "journal:a;b", "nowhere.log"]
)
def test_names_that_could_be_options_and_missing_files_are_refused(text: str) -> None:
    with pytest.raises(SuiteError, match="log source"):
        parse_source(text)


def test_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SuiteError, match="is a folder"):
        parse_source(str(tmp_path))


def test_commands_carry_the_time_and_no_shell() -> None:
    since = datetime(2026, 11, 29, 14, 55, 33, tzinfo=UTC)
    assert command(LogSource(kind="docker", name="v"), since) == [
        "docker", "logs", "--since", "2026-11-29T14:55:33.000000Z", "v"]  # fmt: skip
    assert command(LogSource(kind="journal", name="v"), since)[-2:] == [
        "--since=@1795964133.000000",
        "--unit=v",
    ]
    assert "--since" not in " ".join(command(LogSource(kind="docker", name="v"), None))


# --- reading ----------------------------------------------------------------------------------------


def test_a_file_comes_in_bounded_blocks(tmp_path: Path) -> None:
    path = tmp_path / "big.log"
    path.write_bytes(b"z" * (2 * BLOCK_BYTES + 5))
    sizes = [len(block) for block in blocks(parse_source(str(path)))]
    assert sum(sizes) == 2 * BLOCK_BYTES + 5
    assert max(sizes) <= BLOCK_BYTES and len(sizes) <= 5


def test_gzip_is_unpacked_as_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "server.log.1.gz"
    path.write_bytes(gzip.compress(b"line\n" * 1000))
    assert read(parse_source(str(path))) == b"line\n" * 1000


def test_a_torn_gzip_file_is_a_clear_error(tmp_path: Path) -> None:
    path = tmp_path / "server.log.1.gz"
    path.write_bytes(gzip.compress(os.urandom(5000))[:2000])
    with pytest.raises(SuiteError, match="cannot be read"):
        read(parse_source(str(path)))


def test_standard_input_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a\nb\n")))
    assert read(parse_source("-")) == b"a\nb\n"


def test_a_line_of_fifty_megabytes_in_a_file_is_read_within_bounds(tmp_path: Path) -> None:
    path = tmp_path / "long.log"
    with path.open("wb") as file:
        for _ in range(50):
            file.write(b"x" * 1_000_000)
        file.write(b"\nshort\n")
    analyser = LogAnalyser()
    for block in blocks(parse_source(str(path))):
        assert len(block) <= BLOCK_BYTES
        analyser.feed(block)
    report = analyser.report()
    assert (report.lines, report.cut_lines) == (2, 1)
    assert max(len(group.example) for group in report.groups) <= LINE_BYTES_MAX


# --- log tools --------------------------------------------------------------------------------------


def tool(folder: Path, name: str, body: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = folder / name
    path.write_text(f"#!{sys.executable}\nimport sys, time\n{body}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(folder))


def test_a_container_log_is_both_of_its_streams(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    body = "print('out', *sys.argv[1:], flush=True); print('err', file=sys.stderr)"
    tool(tmp_path, "docker", body, monkeypatch)
    assert read(parse_source("docker:vllm")) == b"out logs vllm\nerr\n"


def test_a_failing_tool_gives_its_last_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pieces = ["first\n", "Error: No such ", "container: vllm", "\n"]  # writes need not end with a line
    body = f"for text in {pieces!r}: print(text, end='', flush=True)\nsys.exit(1)"
    tool(tmp_path, "docker", body, monkeypatch)
    with pytest.raises(EngineError, match=r"exit code 1: Error: No such container: vllm$"):
        read(parse_source("docker:vllm"))


def test_a_missing_tool_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EngineError, match="journalctl is not installed here: give the log as a file"):
        read(parse_source("journal:vllm"))


def test_a_silent_tool_is_given_up_and_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool(tmp_path, "docker", "time.sleep(600)", monkeypatch)
    with pytest.raises(EngineError, match="said nothing"):
        list(logs._child_blocks(["docker", "logs", "vllm"], silent_s=0.05))


def test_leaving_early_ends_the_tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool(tmp_path, "docker", "print('x', flush=True); time.sleep(600)", monkeypatch)
    reading = blocks(parse_source("docker:vllm"))
    assert next(reading).startswith(b"x")
    reading.close()  # type: ignore[attr-defined]


# --- the part of one exchange ------------------------------------------------------------------------


def test_an_excerpt_is_what_came_since_the_mark(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    path.write_bytes(b"before\n")
    tail = LogTail(parse_source(str(path)))
    tail.mark()
    with path.open("ab") as file:
        file.write(b"during\n")
    first = tail.excerpt()
    assert (first.data, first.omitted, first.rotated) == (b"during\n", 0, False)
    tail.mark()
    assert tail.excerpt().data == b""


def test_taking_moves_the_mark_to_where_it_ended(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    path.write_bytes(b"before\n")
    tail = LogTail(parse_source(str(path)))
    tail.mark()
    for line in (b"first\n", b"second\n", b""):
        with path.open("ab") as file:
            file.write(line)
        assert tail.take().data == line


def test_taking_from_a_container_goes_on_from_before_it_was_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool(tmp_path, "docker", "print(sys.argv[3])", monkeypatch)
    times = iter((1_795_964_133.5, 1_795_964_134.0, 1_795_964_135.0))
    tail = LogTail(parse_source("docker:vllm"), now=lambda: next(times))
    tail.mark()
    assert tail.take().data == b"2026-11-29T14:55:33.500000Z\n"
    assert tail.take().data == b"2026-11-29T14:55:34.000000Z\n"


def test_a_rotated_file_is_read_from_its_start_and_said_so(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    path.write_bytes(b"a long line before\n")
    tail = LogTail(parse_source(str(path)))
    tail.mark()
    path.write_bytes(b"new\n")
    excerpt = tail.excerpt()
    assert (excerpt.data, excerpt.rotated) == (b"new\n", True)


@pytest.mark.parametrize("size", [0, 5, 10, 11, 25, 1000])
def test_a_long_excerpt_keeps_its_start_and_its_end(tmp_path: Path, size: int) -> None:
    path = tmp_path / "server.log"
    content = bytes(n % 251 for n in range(size))
    path.write_bytes(content)
    excerpt = LogTail(parse_source(str(path))).excerpt(limit=10)
    if size <= 10:
        assert (excerpt.data, excerpt.omitted) == (content, 0)
    else:
        assert excerpt.data == content[:5] + content[-5:]
        assert excerpt.omitted == size - 10


def test_excerpts_of_many_small_blocks_are_bounded_alike() -> None:
    pieces = [bytes([n]) for n in range(100)]
    excerpt = logs._bounded(iter(pieces), 10)
    assert excerpt.data == bytes([0, 1, 2, 3, 4, 95, 96, 97, 98, 99])
    assert excerpt.omitted == 90


def test_a_container_is_marked_by_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool(tmp_path, "docker", "print(sys.argv[3])", monkeypatch)
    tail = LogTail(parse_source("docker:vllm"), now=lambda: 1_795_964_133.5)
    tail.mark()
    assert tail.excerpt().data == b"2026-11-29T14:55:33.500000Z\n"


def test_standard_input_cannot_be_marked() -> None:
    with pytest.raises(SuiteError, match="cannot be split"):
        LogTail(LogSource(kind="stdin"))
