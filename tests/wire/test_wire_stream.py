"""What a stream says, by every dialect's habit and every fault: values worked out by hand."""

from __future__ import annotations

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.records import Failure, Usage
from bench.wire.said import BODY_LIMIT, error_text
from bench.wire.stream import Answer, StreamDecoder, decode


def sse(*objects: object) -> bytes:
    return b"".join(
        b"data: " + (o.encode() if isinstance(o, str) else json.dumps(o).encode()) + b"\n\n" for o in objects
    )


def delta(finish: str | None = None, **fields: object) -> dict[str, object]:
    return {"choices": [{"index": 0, "delta": fields, "finish_reason": finish}]}


def whole(*objects: object) -> Answer:
    return decode([(0, sse(*objects))], "chat")


ROLE = delta(role="assistant", content="")
STOP = delta("stop")
GOOD = (delta(content="a"), STOP, "[DONE]")


def test_each_event_carries_the_stamp_of_the_read_that_completed_it() -> None:
    first, second, third = (sse(delta(content=c)) for c in "abc")
    answer = decode([(10, first + second[:9]), (20, second[9:] + third), (30, sse(STOP, "[DONE]"))], "chat")
    assert answer.chunks.at_ns == (10, 20, 20, 30)
    assert answer.chunks.kinds == "ccce"
    assert answer.chunks.chars == (1, 1, 1, 0)
    assert answer.text == "abc"


def test_role_only_null_and_empty_chunks_are_no_text() -> None:
    null = delta(role="assistant", content=None)
    answer = whole(ROLE, null, delta(content=""), delta(content="hi"), delta("length"), "[DONE]")
    assert answer.chunks.kinds == "eeece"
    assert answer.finish_reason == "length"
    assert answer.failure is None


@pytest.mark.parametrize("field", ["reasoning", "reasoning_content"])
def test_reasoning_is_text_of_its_own_kind(field: str) -> None:
    answer = whole(ROLE, delta(**{field: "hmm"}), delta(content="so"), STOP, "[DONE]")
    assert (answer.reasoning, answer.text, answer.chunks.kinds) == ("hmm", "so", "erce")


def test_reasoning_under_both_names_counts_once() -> None:
    answer = whole(delta(reasoning="hmm", reasoning_content="hmm"), STOP, "[DONE]")
    assert answer.reasoning == "hmm"
    assert answer.chunks.chars == (3, 0)


def test_a_tool_call_is_text_from_its_first_argument_on() -> None:
    name = delta(tool_calls=[{"index": 0, "id": "x", "function": {"name": "f", "arguments": ""}}])
    more = [delta(tool_calls=[{"index": 0, "function": {"arguments": part}}]) for part in ('{"a"', ": 1}")]
    answer = whole(ROLE, name, *more, delta("tool_calls"), "[DONE]")
    assert answer.tool_text == '{"a": 1}'
    assert answer.chunks.kinds == "eette"
    assert answer.failure is None


def test_completions_carry_text_in_the_choice_itself() -> None:
    answer = decode(
        [
            (1, sse({"choices": [{"index": 0, "text": "ab", "finish_reason": None}]})),
            (
                2,
                sse(
                    {"choices": [{"index": 0, "text": "", "finish_reason": "length"}], "usage": None},
                    "[DONE]",
                ),
            ),
        ],
        "completions",
    )
    assert (answer.text, answer.chunks.at_ns, answer.chunks.kinds) == ("ab", (1, 2), "ce")


def test_a_usage_chunk_is_no_chunk_of_the_answer() -> None:
    usage = {
        "prompt_tokens": 9,
        "completion_tokens": 3,
        "prompt_tokens_details": {"cached_tokens": 8},
        "completion_tokens_details": {"reasoning_tokens": 2},
    }
    answer = whole(*GOOD[:2], {"choices": [], "usage": usage}, "[DONE]")
    assert len(answer.chunks.at_ns) == 2
    assert answer.usage == Usage(prompt_tokens=9, completion_tokens=3, cached_tokens=8, reasoning_tokens=2)


@pytest.mark.parametrize("value", [-1, True, "7", 1e300, None, [], 2**60])
def test_a_count_that_cannot_be_one_is_absent(value: object) -> None:
    answer = whole(
        *GOOD[:2], {"choices": [], "usage": {"prompt_tokens": value, "completion_tokens": 2}}, "[DONE]"
    )
    assert answer.usage == Usage(completion_tokens=2)


def test_continuous_usage_gives_the_tokens_of_every_chunk() -> None:
    chunks = [delta(role="assistant"), delta(content="abc"), delta(content="de"), delta("length")]
    for chunk, tokens in zip(chunks, (0, 2, 5, 5), strict=True):
        chunk["usage"] = {"completion_tokens": tokens}
    assert whole(*chunks, "[DONE]").chunks.tokens == (0, 2, 5, 5)
    del chunks[1]["usage"]
    assert whole(*chunks, "[DONE]").chunks.tokens == ()


def test_chunks_without_text_need_no_count_of_their_own() -> None:
    """SGLang counts in every chunk but the role's and the last one."""
    chunks = [ROLE, delta(content="abc"), delta(content=""), delta(content="de"), delta("length")]
    for place, tokens in ((1, 2), (3, 5)):
        chunks[place] = {**chunks[place], "usage": {"completion_tokens": tokens}}
    assert whole(*chunks, "[DONE]").chunks.tokens == (0, 2, 2, 5, 5)


def test_without_any_count_there_is_no_column_of_counts() -> None:
    null = {**ROLE, "usage": None}
    assert whole(null, delta("stop"), "[DONE]").chunks.tokens == ()
    assert whole(null, delta(content="a"), delta("stop"), "[DONE]").chunks.tokens == ()


def test_the_place_of_the_last_finish_reason_is_noted_whatever_comes_behind_it() -> None:
    last = {"choices": [{"index": 0, "delta": {}, "finish_reason": ""}], "usage": {"completion_tokens": 1}}
    answer = whole(ROLE, delta(content="a"), STOP, delta(), last, "[DONE]")
    assert (answer.chunks.kinds, answer.chunks.finish, answer.finish_reason) == ("eceee", 2, "stop")
    assert whole(delta(content="a"), "[DONE]").chunks.finish is None


def test_the_servers_own_figures_are_flattened_and_the_last_ones_count() -> None:
    timings = {"timings": {"prompt_n": 7, "prompt_ms": 1.5, "note": "x", "ok": True}}
    spec = {"num_spec_steps": 4, "acceptance_histogram": [0, 2, 2], "per_step_accepted": [1] * 65}
    last = {**delta("stop"), "timings": {"prompt_n": 8}, "metrics": {"speculative_decoding": spec}}
    answer = whole({**delta(content="a"), **timings}, last, "[DONE]")
    assert answer.reported == {
        "timings.prompt_n": 8.0,
        "metrics.speculative_decoding.num_spec_steps": 4.0,
        "metrics.speculative_decoding.acceptance_histogram.0": 0.0,
        "metrics.speculative_decoding.acceptance_histogram.1": 2.0,
        "metrics.speculative_decoding.acceptance_histogram.2": 2.0,
    }


def test_reported_numbers_are_bounded() -> None:
    answer = whole(*GOOD[:2], {"choices": [], "timings": {str(i): i for i in range(100_000)}}, "[DONE]")
    assert len(answer.reported) == 512


def kind_of(answer: Answer) -> str | None:
    return answer.failure.kind if answer.failure else None


@pytest.mark.parametrize(
    "stream",
    [
        sse(ROLE, {"error": {"message": "out of memory", "code": 500}}, "[DONE]"),
        sse(ROLE, {"error": "out of memory"}),
        b'event: error\ndata: {"message": "out of memory"}\n\n',
        b"event: error\ndata: out of memory\n\n",
        sse({"error": {"message": "out of memory"}}, "no json"),
        sse("no json", {"error": {"message": "out of memory"}}),
        b'{"error": {"message": "out of memory"}}',
    ],
)
def test_an_error_inside_the_stream_is_a_failure_even_before_done(stream: bytes) -> None:
    answer = decode([(0, stream)], "chat")
    assert kind_of(answer) == "error_event"
    assert "out of memory" in answer.failure.message  # type: ignore[union-attr]
    assert "out of memory" in (answer.failure.body or "")  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "event",
    ["{not json", "[1]", '"text"', "7", '{"object": "pong"}', '{"choices": 3}', '{"choices": [3]}', "null"],
)
def test_an_event_that_is_no_completion_is_malformed(event: str) -> None:
    answer = whole(delta(content="a"), event, STOP, "[DONE]")
    assert kind_of(answer) == "malformed"
    assert answer.failure is not None
    assert answer.failure.body == event
    assert answer.text == "a"


def test_events_of_another_type_are_passed_over_and_noted() -> None:
    answer = decode(
        [(0, b'event: ping\ndata: {"type": "ping"}\n\n: ping\n\n: ping\n\n' + sse(*GOOD))], "chat"
    )
    assert answer.failure is None
    assert answer.notes == ("events of type 'ping' were ignored", "comment lines (keep-alive): 2")


def test_a_stream_without_an_end_is_truncated() -> None:
    assert kind_of(whole(ROLE, delta(content="a"))) == "truncated"
    assert kind_of(decode([], "chat")) == "truncated"


def test_a_stream_cut_inside_an_event_is_truncated_and_not_malformed() -> None:
    answer = decode([(0, sse(delta(content="a"))), (1, b'data: {"choices": [{"del')], "chat")
    assert kind_of(answer) == "truncated"
    assert answer.notes == ("an event was cut off by the end of the stream",)


def test_a_finish_reason_or_done_is_end_enough() -> None:
    assert whole(delta(content="a"), STOP).failure is None
    assert whole(delta(content="a"), "[DONE]").failure is None


@pytest.mark.parametrize("end", [b"", b"\n"])
def test_a_last_event_without_its_blank_line_still_counts(end: bytes) -> None:
    answer = decode([(0, sse(delta(content="a"), STOP)), (5, b"data: [DONE]" + end)], "chat")
    assert answer.done
    assert answer.failure is None


def test_an_answer_without_text_or_tokens_has_failed() -> None:
    assert kind_of(whole(ROLE, STOP, "[DONE]")) == "no_tokens"
    counted = whole(ROLE, STOP, {"choices": [], "usage": {"completion_tokens": 4}}, "[DONE]")
    assert counted.failure == Failure(
        kind="no_tokens", message="the answer holds no text, though usage counts 4 tokens"
    )
    zero = whole(*GOOD[:2], {"choices": [], "usage": {"completion_tokens": 0}}, "[DONE]")
    assert kind_of(zero) == "no_tokens"


def test_a_server_that_does_not_stream_is_told_from_one_that_broke_off() -> None:
    answer = decode([(0, b'{"choices": [{"message": {"content": "hi"}}]}')], "chat")
    assert kind_of(answer) == "malformed"
    assert "did not answer with an event stream" in answer.failure.message  # type: ignore[union-attr]
    assert kind_of(decode([(0, b"<html>Bad gateway</html>")], "chat")) == "malformed"


def test_events_after_done_change_nothing() -> None:
    answer = whole(*GOOD, delta(content="more"))
    assert answer.text == "a"
    assert answer.notes == ("events after [DONE] were ignored",)


def test_unicode_separators_and_cut_characters_survive() -> None:
    text = "a\u2028b\u0085猫🐈"
    stream = b"data: " + json.dumps(delta("stop", content=text), ensure_ascii=False).encode() + b"\n\n"
    answer = decode([(i, stream[i : i + 1]) for i in range(len(stream))], "chat")
    assert answer.text == text
    assert answer.failure is None


def test_ten_megabytes_in_one_event_are_one_chunk() -> None:
    answer = whole(delta("stop", content="x" * 10_000_000))
    assert answer.chunks.chars == (10_000_000,)


def test_nesting_without_end_is_malformed_and_no_crash() -> None:
    assert kind_of(whole('{"choices": ' + "[" * 100_000)) == "malformed"
    assert kind_of(whole('{"usage": ' + "[" * 100_000 + "]" * 100_000 + "}")) == "malformed"


def test_what_is_kept_of_a_bad_event_is_bounded() -> None:
    answer = whole("x" * 1_000_000)
    assert answer.failure is not None
    assert len(answer.failure.body or "") == BODY_LIMIT
    assert len(answer.failure.message) < 500


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ('{"error": {"message": "too long", "type": "x"}}', "too long"),
        ('{"error": "Unauthorized"}', "Unauthorized"),
        ('{"object": "error", "message": "too long"}', "too long"),
        ('{"detail": "Not Found"}', "Not Found"),
        ("<html>\n\x1b[31m502", "<html> [31m502"),
        ("", ""),
    ],
)
def test_the_sentence_is_found_in_any_error_body(body: str, said: str) -> None:
    assert error_text(body) == said


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["choices", "delta", "content", "text", "usage", "error", "timings", "tool_calls", "function"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(st.lists(JSON, max_size=4), st.binary(max_size=40))
def test_no_answer_of_a_server_raises_and_none_without_text_passes(
    objects: list[object], noise: bytes
) -> None:
    answer = decode([(0, sse(*objects)), (1, noise)], "chat")
    assert answer.failure is not None or answer.chunks.at_ns


@given(st.lists(st.integers(0, 2000), max_size=8))
def test_decoding_in_portions_is_decoding_at_once(cuts: list[int]) -> None:
    stream = sse(ROLE, delta(content="a\u2028"), delta(reasoning="猫"), STOP, "[DONE]")
    places = sorted({min(cut, len(stream)) for cut in cuts} | {0, len(stream)})
    decoder = StreamDecoder("chat")
    for a, b in itertools.pairwise(places):
        decoder.feed(0, stream[a:b])
    assert decoder.finish() == decode([(0, stream)], "chat")


# What stands in the fields of an event: mostly what servers send, now and then anything.
ODD: st.SearchStrategy[object] = st.sampled_from(
    [None, "", "a", "\u732b", 0, 7, -1, 2.5, True, [], {}, [{}], {"x": 1}, 2**60]
)
WORD = st.sampled_from(["a", " b", "\u732b", "", None]) | ODD
NUMBER = st.integers(0, 9) | ODD
FIELDS = st.fixed_dictionaries(
    {},
    optional={
        "content": WORD,
        "reasoning": WORD,
        "reasoning_content": WORD,
        "tool_calls": st.sampled_from([None, [], [{"function": {"arguments": "{}"}}]]) | ODD,
        "role": ODD,
    },
)
CHOICE = st.fixed_dictionaries(
    {},
    optional={"delta": FIELDS | ODD, "text": WORD, "finish_reason": st.sampled_from([None, "stop"]) | ODD},
)
USAGE = st.fixed_dictionaries(
    {},
    optional={
        "prompt_tokens": NUMBER,
        "completion_tokens": NUMBER,
        "cached_tokens": NUMBER,
        "prompt_tokens_details": st.fixed_dictionaries({"cached_tokens": NUMBER}) | ODD,
        "completion_tokens_details": st.fixed_dictionaries({"reasoning_tokens": NUMBER}) | ODD,
    },
)
EVENT = st.fixed_dictionaries(
    {"choices": st.lists(CHOICE, min_size=1, max_size=2) | ODD},
    optional={"usage": USAGE | ODD, "error": ODD, "timings": ODD, "metrics": ODD, "sglext": ODD},
)
PIECE = st.builds(lambda text: delta(content=text), st.sampled_from(["a", " b"]))


class LongWay(StreamDecoder):
    """Looks at every field of every event."""

    def _piece(self, at_ns: int, data: bytes | str) -> bool:
        return False


@given(st.lists(EVENT | PIECE, max_size=5), st.sampled_from([[STOP, "[DONE]"], ["[DONE]"], []]))
def test_the_short_way_through_an_event_tells_the_same_as_the_long_one(
    events: list[object], end: list[object]
) -> None:
    for endpoint in ("chat", "completions"):
        for reads in ([sse(*events, *end)], [sse(one) for one in (*events, *end)]):
            short, long = StreamDecoder(endpoint), LongWay(endpoint)
            for number, read in enumerate(reads):
                short.feed(number, read)
                long.feed(number, read)
            assert short.finish() == long.finish()


def test_the_short_way_is_taken_for_plain_pieces_and_for_nothing_else() -> None:
    taken = StreamDecoder("chat")._piece
    usage = {"prompt_tokens": 5, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 4}}
    plain = [delta(content="a"), delta(reasoning="a"), {**delta(content="a", role=None), "usage": usage}]
    assert all(taken(0, json.dumps(one)) for one in plain)
    other = [ROLE, STOP, delta(content="a", reasoning="b"), {**delta(content="a"), "timings": {"x": 1}}]
    assert not any(taken(0, json.dumps(one)) for one in other)
