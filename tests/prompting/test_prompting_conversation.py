from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bench.errors import SuiteError
from bench.prompting.conversation import (
    MOST_THINK_S,
    Conversation,
    first_turns,
    load_chats,
    load_conversations,
    messages_at,
    parse_conversations,
    replay,
    turn_prompt,
)
from bench.prompting.tokens import Tokenizer
from bench.records import ChatSettings

Make = Callable[[str], tuple[Tokenizer, Any]]


def ten_turns() -> Conversation:
    messages: list[dict[str, Any]] = [{"role": "system", "content": "Be short."}]
    for turn in range(10):
        messages.append(
            {"role": "user", "content": f"Question {turn} about the river.", "timestamp": 100 * turn}
        )
        messages.append(
            {"role": "assistant", "content": f"Answer {turn}. " * 9, "timestamp": 100 * turn + 30}
        )
    (chat,) = parse_conversations(json.dumps({"messages": messages}).encode(), "chats.jsonl")
    return chat


def chatml(messages: list[dict[str, str]]) -> str:
    turns = "".join(f"<|im_start|>{m['role']}\n{m['content']}<|im_end|>\n" for m in messages)
    return turns + "<|im_start|>assistant\n"


def test_each_turn_holds_the_turn_before_its_answer_and_the_next_message(make: Make) -> None:
    _, library = make("own")
    chat = ten_turns()
    turns = replay(chat, salt="seven words", count_chat=lambda m: library.encode(chatml(m)).ids)
    assert [t.number for t in turns] == list(range(1, 11))
    for before, now in itertools.pairwise(turns):
        old, new = (library.encode(chatml(list(t.prompt.messages or ()))).ids for t in (before, now))
        assert now.prompt.recipe.tokens == len(new)
        assert now.shared == len(old) == before.prompt.recipe.tokens
        assert new[: now.shared] == old
    assert turns[0].shared == 0 and turns[0].think_s is None and turns[1].think_s == 70


def test_the_salt_stands_first_with_or_without_a_system_message() -> None:
    chat = ten_turns()
    assert messages_at(chat, 1, salt="s")[0] == {"role": "system", "content": "s\nBe short."}
    (bare,) = parse_conversations(b'{"messages": [{"role": "user", "content": "hi"}]}', "x")
    assert messages_at(bare, 1, salt="s") == [
        {"role": "system", "content": "s"},
        {"role": "user", "content": "hi"},
    ]


def test_the_servers_own_answers_can_take_the_place_of_recorded_ones() -> None:
    chat = ten_turns()
    messages = messages_at(chat, 3, answers=["one", "two"])
    assert [m["content"] for m in messages if m["role"] == "assistant"] == ["one", "two"]
    with pytest.raises(SuiteError, match="needs 2 answers, 1 are given"):
        messages_at(chat, 3, answers=["one"])
    with pytest.raises(SuiteError, match="no turn 11"):
        messages_at(chat, 11)


def test_think_times_are_scaled_or_dropped() -> None:
    chat = ten_turns()
    for scale, expected in ((0.5, 35.0), (0.0, None)):
        turn = turn_prompt(chat, 2, salt="s", count_chat=lambda m: 5, think=scale)
        assert turn.think_s == expected


def test_a_recipe_holds_no_text_of_the_chat_unless_asked() -> None:
    chat = ten_turns()
    turn = turn_prompt(chat, 2, salt="s", count_chat=lambda m: 5)
    assert "Question" not in repr(turn.prompt.recipe)
    kept = turn_prompt(chat, 2, salt="s", count_chat=lambda m: 5, keep_text=True)
    assert "Question 1" in (kept.prompt.recipe.text or "")
    assert turn.prompt.fields()["messages"] == messages_at(chat, 2, salt="s")


def webui(messages: dict[str, Any], current: str) -> bytes:
    return json.dumps(
        [{"title": "Private", "chat": {"history": {"messages": messages, "currentId": current}}}]
    ).encode()


def test_an_openwebui_export_gives_the_branch_that_it_shows(tmp_path: Path) -> None:
    table = {
        "a": {"id": "a", "parentId": None, "role": "user", "content": "hi", "timestamp": 1},
        "b": {"id": "b", "parentId": "a", "role": "assistant", "content": "rejected"},
        "c": {"id": "c", "parentId": "a", "role": "assistant", "content": "kept", "timestamp": 2},
        "d": {
            "id": "d",
            "parentId": "c",
            "role": "user",
            "content": [{"type": "text", "text": "more"}],
            "timestamp": 5,
        },
    }
    path = tmp_path / "export.json"
    path.write_bytes(webui(table, "d"))
    (chat,) = load_conversations(path)
    assert [m.content for m in chat.messages] == ["hi", "kept", "more"]
    assert "Private" not in chat.name and chat.turns == 2


def test_a_last_answer_that_nothing_follows_is_left_out() -> None:
    assert ten_turns().messages[-1].role == "user"


_USER = {"role": "user", "content": "x"}


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"", "holds no chat"),
        (b"{", "line 1 is no valid JSON"),
        (b'{"messages": [{"role": "user", "content": "ok"}]}\n{"messages": 3}', "line 2: no list `messages`"),
        (b"[1]", "chat 1: no JSON object"),
        (b'[{"chat": {}}]', "neither `history` nor a list"),
        (b'{"messages": []}', "no message of a user"),
        (b'{"messages": [{"role": "tool", "content": "x"}]}', "role 'tool' is none of"),
        (b'{"messages": [{"role": "user", "content": {"a": 1}}]}', "no text"),
        (b'{"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}', "parts other than text"),
        (json.dumps({"messages": [_USER, _USER]}).encode(), "do not take turns"),
        (json.dumps({"messages": [_USER] * 10_001}).encode(), "more than 10000 messages"),
        (b"[" * 100_000, "is no valid JSON"),
        (
            b'{"messages": [{"role": "user", "content": "a\\ud800b"}]}',
            r"line 1 holds half a character \(U\+D800",
        ),
        (b'[{"title": "\\udc00"}]', r"chats holds half a character \(U\+DC00"),
        (b'{"messages": "\\ud83d\\ude00"', "line 1 is no valid JSON"),  # a whole pair, in what is cut off
        (webui({"a": {"parentId": "b"}, "b": {"parentId": "a"}}, "a"), "in a circle"),
        (webui({"a": {"parentId": "gone"}}, "a"), "a parent that is not there"),
        (webui({"a": 3}, "a"), "a message is no object"),
    ],
)
def test_malformed_and_hostile_exports_are_refused_with_their_place(raw: bytes, message: str) -> None:
    with pytest.raises(SuiteError, match=message):
        parse_conversations(raw, "chats")


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SuiteError, match="cannot be read: No such file"):
        load_conversations(tmp_path / "none.jsonl")


def without_answers(messages: list[dict[str, str]]) -> list[int]:
    """A template that leaves earlier answers out, as some do with reasoning; a token a character."""
    kept = [m["content"] for m in messages if m["role"] != "assistant"]
    return [ord(character) for character in "|".join(kept) + "?"]


def test_what_a_template_rewrites_is_not_counted_as_shared() -> None:
    chat = ten_turns()
    first = turn_prompt(chat, 1, salt="s", count_chat=without_answers)
    second = turn_prompt(chat, 2, salt="s", count_chat=without_answers, previous=first)
    # All of the first turn but the mark that asks for its answer.
    assert second.shared == first.prompt.recipe.tokens - 1
    assert second.prompt.recipe.shared == (second.shared, second.shared)
    assert second.prompt.recipe.follows == first.prompt.recipe.sha256
    assert (first.prompt.recipe.follows, first.prompt.recipe.shared) == (None, None)


def test_a_pause_is_waited_for_no_longer_than_ten_minutes() -> None:
    turn = turn_prompt(ten_turns(), 2, salt="s", count_chat=lambda m: 5, think=1000.0)
    assert turn.think_s == MOST_THINK_S == 600


def test_only_as_many_turns_and_chats_are_taken_as_are_wanted(tmp_path: Path) -> None:
    chat = ten_turns()
    short = first_turns(chat, 3)
    assert (short.turns, short.sha256) == (3, chat.sha256)
    assert short.messages == chat.messages[: 1 + 2 + 2 + 1]  # system, two turns with answers, a third
    assert first_turns(chat, None) == first_turns(chat, 10) == chat
    lines = [json.dumps({"messages": [{"role": "user", "content": f"number {n}"}]}) for n in range(3)]
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    (tmp_path / "b.jsonl").write_text(lines[0])
    asked = ChatSettings(files=("a.jsonl", "b.jsonl"))
    assert [c.name for c in load_chats(asked, tmp_path)] == [
        "a.jsonl line 1",
        "a.jsonl line 2",
        "a.jsonl line 3",
        "b.jsonl line 1",
    ]
    two = load_chats(ChatSettings(files=asked.files, most_chats=2, most_turns=1), tmp_path)
    assert [c.name for c in two] == ["a.jsonl line 1", "a.jsonl line 2"]
    assert load_chats(None, tmp_path) == []
