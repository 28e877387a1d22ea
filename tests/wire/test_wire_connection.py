"""The connection without a socket: fed by hand, cut anywhere, ended exactly where the answer ends."""

from __future__ import annotations

import asyncio
import gc
import itertools
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.wire.connection import Connection
from bench.wire.recorder import Recorder


class Wire(asyncio.Transport):
    """Takes what is written; never full."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []
        self.aborted = False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        assert high == 0

    def write(self, data: Any) -> None:
        self.written.append(bytes(data))

    def is_closing(self) -> bool:
        return self.aborted

    def abort(self) -> None:
        self.aborted = True


CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
LENGTH = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n"


def feed(pieces: list[bytes], body: bytes = b"{}") -> tuple[list[bool], bytes, Connection, Wire]:
    """Whether the answer was over after each piece, its body, and what is left of the connection."""

    async def main() -> tuple[list[bool], bytes, Connection, Wire]:
        wire, recorder = Wire(), Recorder(10**9)
        connection = Connection(memoryview(bytearray(65536)))
        connection.connection_made(wire)
        task = asyncio.create_task(connection.request(b"POST / HTTP/1.1\r\n\r\n", body, recorder))
        await asyncio.sleep(0)
        over = []
        for piece in pieces:
            connection.get_buffer(-1)[: len(piece)] = piece
            connection.buffer_updated(len(piece))
            over.append(recorder.over.done())
        await asyncio.wait({task}, timeout=0.01)
        task.cancel()
        if recorder.over.done():
            recorder.over.exception()
        return over, b"".join(data for _, data in recorder.take()), connection, wire

    return asyncio.run(main())


# Chunks whose contents look like the end of a body, or like chunk headers.
CONTENTS = st.lists(
    st.sampled_from(
        [
            b"data: 10\r\n\r\n",
            b"0\r\n\r\n",
            b"\r\n\r\n",
            b"\r\n",
            b"5\r\nhello\r\n",
            b"x",
            b"data: {}\n\n",
            b"data: [DONE]\n\n",
        ]
    ),
    max_size=5,
)


@given(
    CONTENTS, st.booleans(), st.sampled_from([b"", b"x: y\r\n"]), st.lists(st.integers(0, 200), max_size=8)
)
def test_a_body_ends_with_its_last_byte_and_not_before(
    contents: list[bytes], chunked: bool, trailer: bytes, cuts: list[int]
) -> None:
    if chunked:
        answer = (
            CHUNKED + b"".join(b"%x\r\n%s\r\n" % (len(c), c) for c in contents) + b"0\r\n" + trailer + b"\r\n"
        )
    else:
        answer = LENGTH % sum(map(len, contents)) + b"".join(contents)
    places = sorted({min(cut, len(answer)) for cut in cuts} | {0, len(answer)})
    for pieces in (
        [answer[a:b] for a, b in itertools.pairwise(places)],
        [answer[i : i + 1] for i in range(len(answer))],
    ):
        over, body, connection, wire = feed(pieces)
        assert body == b"".join(contents)
        assert over == [False] * (len(over) - 1) + [True]
        assert connection.idle
        assert not wire.aborted


def test_head_and_small_body_leave_in_one_write() -> None:
    assert feed([], body=b"{}")[3].written == [b"POST / HTTP/1.1\r\n\r\n{}"]


def test_a_large_body_leaves_in_pieces() -> None:
    written = feed([], body=b"x" * 600_000)[3].written
    assert [len(piece) for piece in written] == [19, 262_144, 262_144, 75_712]


@pytest.mark.parametrize("extra", [b"HTTP/1.1 200 OK\r\n", b"x"])
def test_a_connection_that_says_more_than_was_asked_is_not_used_again(extra: bytes) -> None:
    for pieces in (
        [LENGTH % 2 + b"ok" + extra],
        [LENGTH % 2 + b"ok", extra],
        [CHUNKED + b"0\r\n\r\n", extra],
    ):
        _, _, connection, _ = feed(pieces)
        assert not connection.idle


def test_a_connection_the_server_wants_closed_is_not_used_again() -> None:
    over, _, connection, _ = feed([b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"])
    assert over == [True]
    assert not connection.idle


LONG = [b"%x\r\n%s\r\n" % (1000, b"x" * 1000)] * 150


def ended(end: bytes) -> tuple[int, int]:
    """Turns of the loop until a long body that ends so is over, and its size."""

    async def main() -> tuple[int, int]:
        recorder = Recorder(10**9)
        connection = Connection(memoryview(bytearray(65536)))
        connection.connection_made(Wire())
        task = asyncio.create_task(connection.request(b"", b"", recorder))
        await asyncio.sleep(0)
        for piece in (CHUNKED, *LONG, end):
            connection.get_buffer(-1)[: len(piece)] = piece
            connection.buffer_updated(len(piece))
        last_ns = recorder.last_ns
        turns = 0
        while not recorder.over.done() and turns < 1000:
            turns += 1
            await asyncio.sleep(0)
        await task
        assert recorder.ended_ns == last_ns  # the stamp of the read, whenever its meaning was found
        assert connection.idle
        return turns, sum(len(data) for _, data in recorder.take())

    return asyncio.run(main())


def test_the_end_of_a_long_body_is_verified_in_slices_between_which_others_are_served() -> None:
    turns, size = ended(b"0\r\n\r\n")
    assert size == 150_000
    assert turns >= 4  # 151,500 framed bytes in slices of 32 KB


def test_a_stream_that_says_it_is_done_and_ends_is_over_at_once() -> None:
    assert ended(b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n") == (0, 150_014)


@pytest.mark.parametrize("whole", [True, False])
def test_a_connection_lost_right_after_the_last_read_has_lost_only_what_did_not_come(whole: bool) -> None:
    async def main() -> tuple[bool, str]:
        recorder = Recorder(10**9)
        connection = Connection(memoryview(bytearray(65536)))
        connection.connection_made(Wire())
        task = asyncio.create_task(connection.request(b"", b"", recorder))
        await asyncio.sleep(0)
        for piece in (CHUNKED, *LONG, b"0\r\n\r\n" if whole else b"0\r\n"):
            connection.get_buffer(-1)[: len(piece)] = piece
            connection.buffer_updated(len(piece))
        connection.connection_lost(None)
        await task
        error = recorder.over.exception()
        return connection.idle, str(error or "")

    assert asyncio.run(main()) == (False, "" if whole else "the server closed the connection")


def test_a_thousand_interim_answers_in_one_read_are_passed_over() -> None:
    over, body, connection, _ = feed([b"HTTP/1.1 100\r\n\r\n" * 2000 + LENGTH % 2 + b"ok"])
    assert (over, body) == ([True], b"ok")
    assert connection.idle


@pytest.mark.parametrize("header", [b"transfer-encoding: chunked", b"content-length: 7"])
@pytest.mark.parametrize("status", [b"204", b"304"])
def test_an_answer_that_has_no_body_ends_with_its_head(status: bytes, header: bytes) -> None:
    over, body, connection, _ = feed([b"HTTP/1.1 " + status + b" X\r\n" + header + b"\r\n\r\n"])
    assert (over, body) == ([True], b"")
    assert connection.idle


class Full(Wire):
    """Takes nothing any more after the first piece, and tells when it is lost."""

    def __init__(self, connection: Connection) -> None:
        super().__init__()
        self.connection = connection

    def write(self, data: Any) -> None:
        super().write(data)
        self.connection.pause_writing()

    def abort(self) -> None:
        if not self.aborted:
            super().abort()
            asyncio.get_running_loop().call_soon(self.connection.connection_lost, None)


def complaints(
    act: Callable[[Connection, asyncio.Task[Any], Recorder], None], body: bytes = b"{}"
) -> list[str]:
    """What the loop complains of when a request is cancelled just after `act`."""

    async def main() -> list[str]:
        said: list[str] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, told: said.append(told["message"]))
        connection, recorder = Connection(memoryview(bytearray(65536))), Recorder(10**9)
        connection.connection_made(Full(connection))
        task = asyncio.create_task(connection.request(b"", body, recorder))
        await asyncio.sleep(0)
        act(connection, task, recorder)
        task.cancel()
        await asyncio.wait({task})
        assert task.cancelled()
        connection.abort()
        for _ in range(3):
            await asyncio.sleep(0)
        del connection, task, recorder
        gc.collect()
        return said

    return asyncio.run(main())


def told(connection: Connection, *pieces: bytes) -> None:
    for piece in pieces:
        connection.get_buffer(-1)[: len(piece)] = piece
        connection.buffer_updated(len(piece))


@pytest.mark.parametrize("body", [b"{}", b"x" * 600_000])
def test_a_request_cancelled_while_it_is_uploaded_leaves_no_complaint(body: bytes) -> None:
    assert complaints(lambda connection, task, recorder: None, body) == []


def test_a_request_cancelled_in_the_moment_it_breaks_leaves_no_complaint() -> None:
    assert complaints(lambda connection, task, recorder: told(connection, b"nonsense\r\n\r\n")) == []
    assert complaints(lambda connection, task, recorder: connection.connection_lost(OSError("gone"))) == []
    begun = (CHUNKED, b"nonsense\r\n\r\n")
    assert complaints(lambda connection, task, recorder: told(connection, *begun)) == []
