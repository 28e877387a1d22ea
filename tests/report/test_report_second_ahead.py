"""Blocks between two threads: in order, bounded by their bytes, and never waited for in vain."""

from __future__ import annotations

from threading import Event, Thread

from bench.report.second.ahead import Ahead


def test_blocks_come_out_in_the_order_they_went_in() -> None:
    ahead = Ahead(100)
    for block in (b"a", b"", b"bc"):
        ahead.put(block)
    ahead.close()
    assert list(ahead) == [b"a", b"", b"bc"]
    assert list(ahead) == []


def test_a_block_waits_until_there_is_room_for_it() -> None:
    ahead = Ahead(4)
    ahead.put(b"123")
    stored = Event()

    def store() -> None:
        ahead.put(b"45")
        stored.set()
        ahead.close()

    thread = Thread(target=store)
    thread.start()
    taken = iter(ahead)
    assert not stored.is_set()  # 3 + 2 bytes are more than 4
    assert next(taken) == b"123"
    assert stored.wait(60)
    assert list(taken) == [b"45"]
    thread.join(60)


def test_a_block_larger_than_the_bound_goes_alone() -> None:
    ahead = Ahead(4)
    ahead.put(b"123456")
    ahead.close()
    assert list(ahead) == [b"123456"]


def test_whoever_waits_for_a_block_hears_that_there_is_none() -> None:
    ahead = Ahead(4)
    thread = Thread(target=ahead.close)
    thread.start()
    assert list(ahead) == []
    thread.join(60)
