"""The SSE parser against the standard: every rule of it, and every way of cutting the bytes."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.wire.sse import SseEvent, SseParser


def parse(*pieces: bytes) -> list[SseEvent]:
    parser = SseParser()
    events = [event for piece in pieces for event in parser.feed(piece)]
    return events + parser.close()


def data(*pieces: bytes) -> list[str]:
    return [event.data for event in parse(*pieces)]


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_a_line_ends_with_any_of_three_marks(end: bytes) -> None:
    stream = b"data: a" + end + b"data: b" + end + end + b"data: c" + end + end
    assert data(stream) == ["a\nb", "c"]


def test_line_ends_may_be_mixed_in_one_stream() -> None:
    assert data(b"data: a\r\n\ndata: b\r\rdata: c\n\r\n") == ["a", "b", "c"]


def test_a_line_end_cut_between_its_two_bytes_is_one_line_end() -> None:
    assert data(b"data: a\r", b"\ndata: b\r", b"\n\r", b"\n") == ["a\nb"]


def test_an_event_is_given_out_as_soon_as_its_blank_line_begins() -> None:
    parser = SseParser()
    assert [e.data for e in parser.feed(b"data: a\r\n\r")] == ["a"]
    assert parser.feed(b"\n") == []


def test_one_space_after_the_colon_is_not_part_of_the_value() -> None:
    assert data(b"data:a\n\ndata: a\n\ndata:  a\n\n") == ["a", "a", " a"]


def test_a_field_without_a_colon_has_an_empty_value() -> None:
    assert data(b"data\n\ndata\ndata\n\n") == ["", "\n"]


def test_comments_are_counted_and_are_no_events() -> None:
    parser = SseParser()
    assert parser.feed(b": ping\n\n:\n\n: keep-alive 3/9\n\n") == []
    assert parser.comments == 3


def test_a_comment_inside_an_event_does_not_break_it() -> None:
    assert data(b"data: a\n: ping\ndata: b\n\n") == ["a\nb"]


def test_the_event_type_holds_for_one_event() -> None:
    events = parse(b"event: error\ndata: a\n\ndata: b\n\n")
    assert [(e.event, e.data) for e in events] == [("error", "a"), ("", "b")]


def test_an_event_without_data_is_none_and_its_type_is_forgotten() -> None:
    assert [(e.event, e.data) for e in parse(b"event: error\n\ndata: b\n\n")] == [("", "b")]


def test_identifiers_retries_and_unknown_fields_are_ignored() -> None:
    assert data(b"id: 1\nretry: 5\nfoo: bar\n data: no\ndata: a\n\n") == ["a"]


def test_a_byte_order_mark_at_the_start_is_dropped_and_elsewhere_is_text() -> None:
    bom = b"\xef\xbb\xbf"
    assert data(bom + b"data: a\n\ndata: " + bom + b"b\n\n") == ["a", "\ufeffb"]
    assert data(b"\xef", b"\xbb", b"\xbfdata: a\n\n") == ["a"]


def test_unicode_line_separators_are_text() -> None:
    text = "a\u2028b\u2029c\x85d\x0be\x0cf"
    assert data(f"data: {text}\n\n".encode()) == [text]


def test_a_character_cut_in_the_middle_is_whole_again() -> None:
    whole = "data: 猫🐈\n\n".encode()
    assert data(*(whole[i : i + 1] for i in range(len(whole)))) == ["猫🐈"]


def test_bytes_that_are_no_text_become_replacement_characters() -> None:
    assert data(b"data: a\xffb\n\n") == ["a\ufffdb"]


def test_what_no_blank_line_closed_is_marked_incomplete() -> None:
    assert parse(b"data: a\n\ndata: b") == [SseEvent("", "a"), SseEvent("", "b", complete=False)]
    assert parse(b"data: b\n") == [SseEvent("", "b", complete=False)]


def test_a_line_of_ten_megabytes_passes_whole_however_it_is_cut() -> None:
    long = b"x" * 10_000_000
    [text] = data(
        *[b"data: " + long[:1]], *(long[i : i + 65536] for i in range(1, len(long), 65536)), b"\n\n"
    )
    assert len(text) == 10_000_000


def test_byte_by_byte_is_linear() -> None:
    class Counting(bytearray):
        copied = 0

        def __iadd__(self, other: bytes) -> Counting:  # type: ignore[override,misc]
            Counting.copied += len(other)
            self.extend(other)
            return self

    parser = SseParser()
    parser._tail = Counting()
    for byte in b"data: " + b"x" * 50_000:
        parser.feed(bytes([byte]))
    assert Counting.copied == 50_006
    assert [len(e.data) for e in parser.feed(b"\n\n")] == [50_000]


LINES = st.sampled_from(
    [
        b"data: a",
        b"data:",
        b"data",
        b"data:  \xe2\x80\xa8x",
        b": ping",
        b":",
        b"event: error",
        b"event:",
        b"id: 3",
        b"",
        b"",
        'data: {"猫": "🐈\u2028"}'.encode(),
        b"\xef\xbb\xbfdata: bom",
        b"data: \xff\xfe",
    ]
)
STREAMS = st.lists(st.tuples(LINES, st.sampled_from([b"\n", b"\r\n", b"\r"])), max_size=12).map(
    lambda lines: b"".join(line + end for line, end in lines)
)


@given(st.one_of(STREAMS, st.binary(max_size=60)), st.lists(st.integers(0, 400), max_size=12))
def test_the_events_do_not_depend_on_where_the_bytes_are_cut(stream: bytes, cuts: list[int]) -> None:
    places = sorted({min(cut, len(stream)) for cut in cuts} | {0, len(stream)})
    pieces = [stream[a:b] for a, b in itertools.pairwise(places)]
    whole = parse(stream)
    assert parse(*pieces) == whole
    assert parse(*(stream[i : i + 1] for i in range(len(stream)))) == whole


@given(STREAMS)
def test_the_events_are_those_of_the_standard_read_line_by_line(stream: bytes) -> None:
    """An independent reading of the standard's algorithm, on text instead of bytes."""
    text = stream.decode("utf-8", "replace").removeprefix("\ufeff")
    lines, line = [], ""
    position = 0
    while position < len(text):
        if text[position] in "\r\n":
            if text[position : position + 2] == "\r\n":
                position += 1
            lines.append(line)
            line = ""
        else:
            line += text[position]
        position += 1
    expected, buffer, kind = [], "", ""
    for line in lines:
        name, _, value = line.partition(":")
        value = value[1:] if value.startswith(" ") else value
        if not line:
            if buffer:
                expected.append((kind, buffer[:-1]))
            buffer, kind = "", ""
        elif name == "data":
            buffer += value + "\n"
        elif name == "event":
            kind = value
    assert [(e.event, e.data) for e in parse(stream) if e.complete] == expected


@given(
    st.lists(st.sampled_from([b"data: ", b"data:", b"x", b"\n", b"\n\n", b"\r", b"\xef\xbb\xbf", b"\xff"]))
)
def test_an_event_that_is_seen_whole_is_the_one_that_feeding_it_would_give(pieces: list[bytes]) -> None:
    read = b"".join(pieces)
    parser = SseParser()
    payload = parser.whole_event(read)
    fed = SseParser().feed(read)
    if payload is not None:
        assert fed == [SseEvent("", payload.decode("utf-8", "replace"))]
        behind = b"\xef\xbb\xbfdata: y\n\n"  # a byte order mark counts at the very beginning alone
        assert parser.feed(behind) == []


def test_most_reads_of_a_paced_stream_are_seen_whole_and_others_never() -> None:
    assert SseParser().whole_event(b'data: {"a": 1}\n\n') == b'{"a": 1}'
    two_lines = (b"data: a\ndata: b\n\n", b"data: a\rdata: b\n\n", b"data: a\r\n\n")
    for other in (b"", b"data: a\n", b"data: a\n\ndata: b\n\n", b"data: a\r\n\r\n", *two_lines):
        assert SseParser().whole_event(other) is None
    inside = SseParser()
    inside.feed(b"data: a\n")
    assert inside.whole_event(b"data: b\n\n") is None
