"""What was read comes out again, read by read, however it lay in memory; and the memory is used again."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.wire.recorder import BLOCK, Blocks, Recorder, TooLarge

T = TypeVar("T")


def in_loop(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(work)


def read_into(recorder: Recorder, now_ns: int, data: bytes) -> list[bytes]:
    """As a socket does it: as much as there is room for; what is left comes with the next read."""
    pieces = []
    while data:
        room = recorder.room()
        piece, data = data[: len(room)], data[len(room) :]
        room[: len(piece)] = piece
        recorder.stamp(now_ns, len(piece))
        pieces.append(piece)
    return pieces


SIZES = st.lists(
    st.one_of(st.integers(1, 300), st.sampled_from([BLOCK - 1, BLOCK, BLOCK + 1, 100_000])), max_size=12
)


@settings(max_examples=60)
@given(SIZES, st.lists(st.integers(0, 12), max_size=3), st.integers(1, 2 * BLOCK), st.booleans())
def test_every_read_comes_out_as_it_went_in(
    sizes: list[int], looks: list[int], most: int, directly: bool
) -> None:
    async def main() -> None:
        recorder = Recorder(10**9)
        recorder.start(1)
        recorder.begin(2, 200)
        went_in: list[tuple[int, bytes]] = []
        came_out: list[tuple[int, bytes]] = []
        for number, size in enumerate(sizes):
            now_ns, data = 10 + number, bytes([number + 1]) * size
            if directly:
                went_in += [(now_ns, piece) for piece in read_into(recorder, now_ns, data)]
            else:
                recorder.add(now_ns, data)
                went_in.append((now_ns, data))
            assert recorder.last_ns == now_ns
            assert went_in[-1][1][-64:].endswith(recorder.tail[-len(went_in[-1][1]) :])
            if number in looks:
                came_out += recorder.take(most)
            taken = sum(len(piece) for _, piece in came_out)
            assert recorder.pending == sum(sizes[: number + 1]) - taken
        recorder.over.set_result(None)
        while not recorder.is_empty:
            came_out += recorder.take(most)
        assert came_out == went_in
        assert list(recorder.read_ns) == [now_ns for now_ns, _ in went_in]
        assert list(recorder.read_bytes) == [len(piece) for _, piece in went_in]
        assert (recorder.size, recorder.pending) == (sum(sizes), 0)

    in_loop(main())


def test_memory_is_used_again_and_only_when_nothing_in_it_is_wanted() -> None:
    async def main() -> None:
        blocks = Blocks()
        first = Recorder(10**9, blocks)
        read_into(first, 1, b"a" * BLOCK)
        read_into(first, 2, b"b" * BLOCK)
        read_into(first, 3, b"c")
        assert len(first.take(1)) == 1  # the block of the `a` is read to its end
        second = Recorder(10**9, blocks)
        read_into(second, 4, b"d" * BLOCK)  # which overwrites the `a` and nothing else
        assert first.take() == [(2, b"b" * BLOCK), (3, b"c")]
        assert second.take() == [(4, b"d" * BLOCK)]
        for recorder in (first, second):
            recorder.over.set_result(None)
            recorder.take()
        assert [any(blocks.take()) for _ in range(4)] == [True, True, True, False]  # new memory is empty

    in_loop(main())


def test_an_answer_that_is_not_over_keeps_its_open_block() -> None:
    async def main() -> None:
        blocks = Blocks()
        running = Recorder(10**9, blocks)
        read_into(running, 1, b"a")
        assert running.take() == [(1, b"a")]
        other = Recorder(10**9, blocks)
        read_into(other, 2, b"x" * 100)
        read_into(running, 3, b"b")
        assert (running.take(), other.take()) == ([(3, b"b")], [(2, b"x" * 100)])

    in_loop(main())


def test_the_framing_of_chunks_comes_off_in_portions() -> None:
    async def main() -> None:
        recorder = Recorder(10**9)
        recorder.begin(1, 200, chunked=True)
        for number, piece in enumerate((b"3\r\nab", b"c\r\n", b"2\r\nde\r\n0\r\n", b"\r\n")):
            recorder.add(number, piece)
        recorder.unframe(1)
        assert (recorder.reads, recorder.is_complete, recorder.is_unframed) == ([(0, b"ab")], False, False)
        assert recorder.pending == 2 + 3 + 10 + 2
        recorder.unframe()
        assert (recorder.is_complete, recorder.is_unframed) == (True, True)
        assert recorder.take() == [(0, b"ab"), (1, b"c"), (2, b"de")]
        assert list(recorder.read_bytes) == [2, 1, 2]

    in_loop(main())


@pytest.mark.parametrize(
    ("pieces", "may_be"),
    [
        ((b"data: 1\n\n\r\n",), False),
        ((b"0\r\n\r\n",), True),
        ((b"x" * 20 + b"0\r\n\r", b"\n"), True),
        ((b"x" * 20 + b"0\r", b"\n", b"\r\n"), True),
        ((b"x" * (BLOCK - 2), b"\n"), True),  # too few bytes in this block to tell
    ],
)
def test_a_body_may_end_only_with_an_empty_line_however_it_is_cut(
    pieces: tuple[bytes, ...], may_be: bool
) -> None:
    async def main() -> bool:
        recorder = Recorder(10**9)
        recorder.begin(1, 200, chunked=True)
        for piece in pieces:
            read_into(recorder, 2, piece)
        return recorder.may_be_over

    assert in_loop(main()) is may_be


def test_more_than_the_limit_is_refused() -> None:
    async def main() -> None:
        recorder = Recorder(10)
        recorder.add(1, b"x" * 10)
        with pytest.raises(TooLarge, match="larger than 10 bytes"):
            recorder.add(2, b"x")

    in_loop(main())
