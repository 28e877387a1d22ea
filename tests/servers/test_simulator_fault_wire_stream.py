"""Faults of the stream, byte for byte."""

from __future__ import annotations

import json

import pytest
from simulator_client import OUTPUT, Client, chunks, events, simulator, text, usage


def reply(fault: str, **more: object) -> tuple[Client, bytes]:
    with simulator(faults=(fault,)) as client:
        return client, client.ask(**more)


def times_of(client: Client) -> tuple[list[int], list[int]]:
    told = client.truth()
    return told.chunk_due_ns, told.chunk_sent_ns


def test_role_early__the_role_comes_before_the_first_token_is_due() -> None:
    with simulator(speed=0.01, faults=("role-early",)) as client:  # half a second until the first token
        reads = client.reads(max_tokens=3)
        assert b'"role":"assistant"' in next(reads)
        assert client.truth().chunk_sent_ns == [], "no text has been sent yet"
        assert b'"role"' not in b"".join(reads)


def test_wide_chunks__many_tokens_in_the_first_one_too() -> None:
    client, raw = reply("wide-chunks")
    assert client.truth().chunk_tokens[0] >= 8
    assert sum(client.truth().chunk_tokens) == OUTPUT == usage(raw)["completion_tokens"]


def test_buffered__all_chunks_leave_at_the_end() -> None:
    client, raw = reply("buffered")
    due, sent = times_of(client)
    assert len(set(sent)) == 1
    assert sent[0] >= due[-1]
    assert raw.endswith(b"data: [DONE]\n\n")


def test_comments__come_before_the_first_event() -> None:
    _, raw = reply("comments")
    assert raw.startswith(b": ping\n\n")
    assert len(text(raw).split()) == OUTPUT


def test_crlf__ends_every_line() -> None:
    _, raw = reply("crlf")
    assert raw.count(b"\n") == raw.count(b"\r\n") > 10


def test_multi_line_data__is_one_document_over_three_lines() -> None:
    _, raw = reply("multi-line-data")
    first = raw.split(b"\n\n")[0].split(b"\n")
    assert len(first) == 3
    assert json.loads(b"\n".join(line.removeprefix(b"data: ") for line in first))["choices"]


def test_utf8_split__writes_single_bytes_of_longer_characters() -> None:
    with simulator(faults=("utf8-split",)) as client:
        pieces = list(client.reads(max_tokens=3))
    assert "é漢😀" in text(b"".join(pieces))
    assert {len(piece) for piece in pieces} == {1}


def test_line_separator__is_in_the_text_unescaped() -> None:
    _, raw = reply("line-separator")
    assert "one\u2028two".encode() in raw
    assert "one\u2028two" in text(raw)


def test_huge_line__is_ten_megabytes() -> None:
    _, raw = reply("huge-line", max_tokens=3)
    assert max(len(line) for line in raw.split(b"\n")) > 10_000_000
    assert len(text(raw).split()) == 3


def test_malformed_json__cuts_off_the_third_event() -> None:
    _, raw = reply("malformed-json")
    third = raw.split(b"\n\n")[2].removeprefix(b"data: ")
    with pytest.raises(json.JSONDecodeError):
        json.loads(third)


def test_no_done__ends_with_the_usage() -> None:
    _, raw = reply("no-done")
    assert b"[DONE]" not in raw
    assert usage(raw)["completion_tokens"] == OUTPUT


def test_error_event__comes_in_the_middle_and_done_after_it() -> None:
    client, raw = reply("error-event")
    assert events(raw)[-1]["error"]["code"] == 500
    assert raw.endswith(b"data: [DONE]\n\n")
    assert 20 <= sum(client.truth().chunk_tokens) <= 22


def test_empty_answer__is_done_alone() -> None:
    client, raw = reply("empty-answer")
    assert raw == b"data: [DONE]\n\n"
    assert client.truth().chunk_tokens == []


def test_usage_missing__though_asked_for() -> None:
    _, raw = reply("usage-missing", stream_options={"include_usage": True, "continuous_usage_stats": True})
    assert b"usage" not in raw
    assert raw.endswith(b"data: [DONE]\n\n")


def test_usage_null__in_every_event() -> None:
    _, raw = reply("usage-null")
    assert [event["usage"] for event in events(raw)] == [None] * len(events(raw))


def test_usage_impossible__is_negative_and_contradicts_itself() -> None:
    _, raw = reply("usage-impossible")
    assert usage(raw)["prompt_tokens"] < 0
    assert usage(raw)["total_tokens"] < usage(raw)["completion_tokens"]


def reasoned(raw: bytes, field: str) -> int:
    """Words in the reasoning field; nothing may be in the content."""
    assert text(raw) == ""
    return len("".join(c["choices"][0]["delta"].get(field, "") for c in chunks(raw)).split())


def test_reasoning__is_the_field_of_newer_versions() -> None:
    assert reasoned(reply("reasoning")[1], "reasoning") == OUTPUT


def test_reasoning_content__is_the_field_of_older_versions() -> None:
    assert reasoned(reply("reasoning-content")[1], "reasoning_content") == OUTPUT


def test_tool_calls__arguments_come_in_pieces_of_one_document() -> None:
    _, raw = reply("tool-calls")
    calls = [c["choices"][0]["delta"]["tool_calls"][0] for c in chunks(raw)[1:]]
    assert calls[0]["function"]["name"] and "id" in calls[0]
    document = json.loads("".join(call["function"]["arguments"] for call in calls))
    assert len(document["text"].split()) == OUTPUT
    assert text(raw) == ""


def test_early_stop__despite_ignore_eos() -> None:
    _, raw = reply("early-stop")
    assert chunks(raw)[-1]["choices"][0]["finish_reason"] == "stop"
    assert usage(raw)["completion_tokens"] == OUTPUT // 2


def test_clamped_output__ends_with_length() -> None:
    client, raw = reply("clamped-output")
    assert chunks(raw)[-1]["choices"][0]["finish_reason"] == "length"
    assert usage(raw)["completion_tokens"] == OUTPUT // 2
    assert client.truth().max_tokens == OUTPUT


def test_truncated_prompt__half_is_missing() -> None:
    with simulator(faults=("truncated-prompt@2",)) as client:
        whole, half = usage(client.ask()), usage(client.ask())
    assert half["prompt_tokens"] == whole["prompt_tokens"] // 2


def test_count_off__usage_says_three_more() -> None:
    with simulator(faults=("count-off",)) as client:
        counted = client.post("/tokenize", {"messages": client.body()["messages"]}).json()["count"]
        assert usage(client.ask())["prompt_tokens"] == counted + 3
        assert client.truth().prompt_tokens == counted
