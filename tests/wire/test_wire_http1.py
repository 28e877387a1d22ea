"""Response heads and chunk framing, well-formed and not."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.wire.http1 import Dechunker, FramingError, parse_head


def test_a_head_gives_status_headers_and_framing() -> None:
    head = parse_head(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream \r\nTransfer-Encoding: chunked")
    assert (head.status, head.reason, head.framing, head.keep_alive) == (200, "OK", "chunked", True)
    assert head.headers == ((b"content-type", b"text/event-stream"), (b"transfer-encoding", b"chunked"))


@pytest.mark.parametrize(
    ("lines", "framing", "length", "keep"),
    [
        (b"HTTP/1.1 200 OK\r\ncontent-length: 12", "length", 12, True),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 12\r\nconnection: close", "length", 12, False),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 12\r\ntransfer-encoding: chunked", "chunked", 0, True),
        (b"HTTP/1.1 200 OK", "close", 0, False),
        (b"HTTP/1.0 200 OK\r\ncontent-length: 1", "length", 1, False),
        (b"HTTP/1.0 200 OK\r\ncontent-length: 1\r\nconnection: keep-alive", "length", 1, True),
        (b"HTTP/1.1 204 No Content", "length", 0, True),
        (b"HTTP/1.1 204 X\r\ntransfer-encoding: chunked", "length", 0, True),
        (b"HTTP/1.1 200 X\r\nconnection: close\r\nconnection: x\r\ncontent-length: 1", "length", 1, False),
        (b"HTTP/1.1 200", "close", 0, False),
    ],
)
def test_the_head_says_what_ends_the_body(lines: bytes, framing: str, length: int, keep: bool) -> None:
    head = parse_head(lines)
    assert (head.framing, head.length, head.keep_alive) == (framing, length, keep)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"SSH-2.0-OpenSSH",
        b"HTTP/2 200 OK",
        b"HTTP/1.1 20 OK",
        b"HTTP/1.1 abc OK",
        b"HTTP/1.1 200 OK\r\nno colon",
        b"HTTP/1.1 200 OK\r\n folded: x",
        b"HTTP/1.1 200 OK\r\n: x",
        b"HTTP/1.1 200 OK\r\ncontent-length: -1",
        b"HTTP/1.1 200 OK\r\ncontent-length: 1e3",
    ],
)
def test_what_is_no_head_is_refused(raw: bytes) -> None:
    with pytest.raises(FramingError):
        parse_head(raw)


def test_chunks_extensions_and_trailers() -> None:
    dechunker = Dechunker()
    assert (
        dechunker.feed(b"5;name=x\r\nhello\r\n1A\r\n" + b"x" * 26 + b"\r\n0\r\nTrailer: y\r\n")
        == b"hello" + b"x" * 26
    )
    assert not dechunker.ended
    assert dechunker.feed(b"\r\n") == b""
    assert dechunker.ended


@pytest.mark.parametrize(
    "raw",
    [
        b"\r\n",
        b"g\r\n",
        b"-1\r\n",
        b"0x5\r\n",
        b"3\r\nhello\r\n",
        b"f" * 16 + b"\r\n",
        b"5" * 9000,
        b"0\r\n\r\nx",
    ],
)
def test_broken_framing_is_refused(raw: bytes) -> None:
    with pytest.raises(FramingError):
        Dechunker().feed(raw)


@given(st.lists(st.binary(min_size=1, max_size=30), max_size=6), st.lists(st.integers(0, 300), max_size=10))
def test_the_body_does_not_depend_on_where_the_bytes_are_cut(chunks: list[bytes], cuts: list[int]) -> None:
    raw = b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\n\r\n"
    places = sorted({min(cut, len(raw)) for cut in cuts} | {0, len(raw)})
    dechunker = Dechunker()
    body = b"".join(dechunker.feed(raw[a:b]) for a, b in itertools.pairwise(places))
    assert body == b"".join(chunks)
    assert dechunker.ended


@given(st.lists(st.one_of(st.binary(min_size=1, max_size=30), st.just(b"x\r\n0\r\n\r\n")), max_size=6))
def test_a_read_that_is_one_chunk_gives_its_content_whatever_that_is(chunks: list[bytes]) -> None:
    dechunker = Dechunker()
    assert [dechunker.feed(b"%x\r\n%s\r\n" % (len(chunk), chunk)) for chunk in chunks] == chunks
    assert not dechunker.ended
    assert dechunker.feed(b"0\r\n\r\n") == b""
    assert dechunker.ended


@pytest.mark.parametrize("late", [b"1\r\nx\r\n", b"x"])
def test_a_chunk_behind_the_last_one_is_refused(late: bytes) -> None:
    dechunker = Dechunker()
    dechunker.feed(b"0\r\n\r\n")
    with pytest.raises(FramingError, match="after the last chunk"):
        dechunker.feed(late)
