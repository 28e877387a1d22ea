"""The columns of a stream as arrays: the events with text only, beside the record and no part of it."""

from __future__ import annotations

import msgspec

from bench.records import Chunks

MIXED = Chunks(at_ns=(10, 20, 20, 35), chars=(0, 5, 300, 0), kinds="ecce", tokens=(0, 1, 3, 3))


def test_events_without_text_are_left_out() -> None:
    text = MIXED.text
    assert text.places.tolist() == [1, 2]
    assert text.at_ns.tolist() == [20, 20]
    assert text.chars.tolist() == [5, 300]
    assert text.tokens is not None and text.tokens.tolist() == [1, 3]


def test_tokens_that_the_server_did_not_say_are_absent() -> None:
    assert Chunks(at_ns=(10,), chars=(5,), kinds="c").text.tokens is None


def test_a_stream_without_events_has_no_text() -> None:
    assert len(Chunks().text.places) == len(Chunks().text.at_ns) == 0


def test_gaps_between_events_with_text_stand_in_order_of_size() -> None:
    stream = Chunks(at_ns=(1, 10, 40, 40, 45, 99), chars=(0, 2, 2, 2, 2, 0), kinds="ecccce")
    assert stream.gaps_ns.tolist() == [0, 5, 30]
    assert Chunks(at_ns=(10,), chars=(5,), kinds="c").gaps_ns.tolist() == []
    assert Chunks().gaps_ns.tolist() == []


def test_arrays_are_made_once_and_are_no_part_of_the_record() -> None:
    plain = msgspec.json.encode(MIXED)
    twin = msgspec.json.decode(plain, type=Chunks)
    assert twin.text is twin.text
    assert msgspec.json.encode(twin) == plain and twin == Chunks(
        at_ns=MIXED.at_ns, chars=MIXED.chars, kinds=MIXED.kinds, tokens=MIXED.tokens
    )
    later = msgspec.structs.replace(twin, at_ns=(11, 21, 21, 36))
    assert later.text.at_ns.tolist() == [21, 21]
