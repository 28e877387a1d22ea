"""Recorded chats as prompts: each turn holds the turn before, its answer and the next message.

Read are JSONL files of OpenAI-style messages (one chat a line) and OpenWebUI chat exports. Chats are
personal: what is kept of a prompt is its hash and recipe, the text only when asked for.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from bench import resources
from bench.errors import SuiteError
from bench.prompting.compose import Prompt
from bench.prompting.template import CountChat, Message
from bench.records import ChatSettings, PromptRecipe

MOST_THINK_S = 600.0
"""Longest pause between two turns that is waited for."""
_LARGEST_FILE = 512 * 1024 * 1024
_MOST_MESSAGES = 10_000
_ROLES = ("system", "user", "assistant")


class ChatMessage(Struct, frozen=True, kw_only=True):
    """One message of a recorded chat."""

    role: str
    content: str
    at_s: float | None = None
    """When it was sent, in seconds on any clock; `None`: not recorded."""


class Conversation(Struct, frozen=True, kw_only=True):
    """A recorded chat whose messages alternate between user and assistant, after a system message or none."""

    name: str
    """File and place in it; never a title, which is personal."""
    sha256: str
    """Of all roles and contents."""
    messages: tuple[ChatMessage, ...]

    @property
    def turns(self) -> int:
        """User messages: prompts this chat gives."""
        return sum(message.role == "user" for message in self.messages)


class TurnPrompt(Struct, frozen=True, kw_only=True):
    """One turn of a chat, ready to be sent."""

    number: int
    """From 1."""
    prompt: Prompt
    shared: int
    """Tokens in common with the prompt of the turn before: all of that one, unless the template rewrites
    earlier turns. What the server has computed beyond (its answer, where that is what follows) it alone
    can count."""
    ids: Sequence[int] = ()
    """Token ids; empty where only their number is known."""
    think_s: float | None
    """How long the user took after the last answer, scaled and capped; `None`: not recorded, or dropped."""


def load_chats(settings: ChatSettings | None, folder: Path) -> list[Conversation]:
    """The chats of a suite, as many and as long as it wants them. `folder`: where relative paths start.

    Raises `SuiteError` naming file and place.
    """
    if settings is None:
        return []
    found = [chat for file in settings.files for chat in load_conversations(folder / file)]
    return [first_turns(chat, settings.most_turns) for chat in found[: settings.most_chats]]


def first_turns(conversation: Conversation, most: int | None) -> Conversation:
    """The chat up to its `most`-th message of a user; all of it where it has no more, or with `None`."""
    if most is None or conversation.turns <= most:
        return conversation
    places = [place for place, message in enumerate(conversation.messages) if message.role == "user"]
    kept = conversation.messages[: places[most - 1] + 1]
    return msgspec.structs.replace(conversation, messages=kept)


def load_conversations(path: Path | str) -> list[Conversation]:
    """The chats of a file. Raises `SuiteError` naming file and place for what is no chat."""
    path = Path(path)
    return parse_conversations(resources.read_bounded(path, _LARGEST_FILE), path.name)


def parse_conversations(raw: bytes, name: str) -> list[Conversation]:
    """The same from bytes: an OpenWebUI export (one JSON list) or one JSON object a line."""
    raw = raw.removeprefix(b"\xef\xbb\xbf").strip()
    if raw.startswith(b"["):
        chats = _decode(raw, name)
        found = [_openwebui(chat, f"{name} chat {number}") for number, chat in enumerate(chats, 1)]
    else:
        lines = raw.split(b"\n")
        found = [
            _openai(_decode(line, f"{name} line {number}"), f"{name} line {number}")
            for number, line in enumerate(lines, 1)
            if line.strip()
        ]
    if not found:
        raise SuiteError(f"{name} holds no chat; give JSONL with `messages`, or an OpenWebUI export.")
    return found


def _decode(raw: bytes, where: str) -> Any:
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        if half := _half_character(raw):
            raise SuiteError(
                f"{where} holds half a character ({half}: half of a pair of surrogates), which no request "
                "can carry; mend that text or leave the chat out."
            ) from error
        raise SuiteError(f"{where} is no valid JSON ({str(error)[:120]}).") from error


def _half_character(raw: bytes) -> str | None:
    """The first lone surrogate in what would be JSON but for it, as `U+D800`."""
    try:
        json.dumps(json.loads(raw), ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        return f"U+{ord(error.object[error.start]):04X}"
    except (ValueError, RecursionError):
        return None
    return None


def _expect(condition: bool, where: str, what: str) -> None:
    if not condition:
        raise SuiteError(f"{where}: {what}.")


def _openai(chat: Any, where: str) -> Conversation:
    _expect(isinstance(chat, dict) and isinstance(chat.get("messages"), list), where, "no list `messages`")
    return _conversation(chat["messages"], where)


def _openwebui(chat: Any, where: str) -> Conversation:
    """The branch that the chat shows; other answers, kept beside it in the export, are left out."""
    _expect(isinstance(chat, dict), where, "no JSON object")
    inner = chat.get("chat", chat)
    _expect(isinstance(inner, dict), where, "`chat` is no object")
    history = inner.get("history")
    if isinstance(history, dict) and isinstance(history.get("messages"), dict) and history["messages"]:
        return _conversation(_branch(history, where), where)
    _expect(isinstance(inner.get("messages"), list), where, "neither `history` nor a list `messages`")
    return _conversation(inner["messages"], where)


def _branch(history: Mapping[str, Any], where: str) -> list[Any]:
    """Messages from the current one up to the first, in order of time."""
    table, place = history["messages"], history.get("currentId")
    branch: list[Any] = []
    seen: set[str] = set()
    while place is not None:
        _expect(
            isinstance(place, str) and place in table, where, "a message names a parent that is not there"
        )
        _expect(place not in seen, where, "its messages name each other as parents in a circle")
        seen.add(place)
        message = table[place]
        _expect(isinstance(message, dict), where, "a message is no object")
        branch.append(message)
        place = message.get("parentId")
    return branch[::-1]


def _conversation(raw: Sequence[Any], where: str) -> Conversation:
    _expect(len(raw) <= _MOST_MESSAGES, where, f"more than {_MOST_MESSAGES} messages")
    messages = [_message(entry, f"{where}, message {number}") for number, entry in enumerate(raw, 1)]
    while messages and messages[-1].role == "assistant":  # an answer that nothing follows is no prompt
        messages.pop()
    body = messages[1:] if messages and messages[0].role == "system" else messages
    expected = ["user", "assistant"] * (len(body) // 2 + 1)
    _expect(bool(body), where, "no message of a user")
    _expect([m.role for m in body] == expected[: len(body)], where, "user and assistant do not take turns")
    digest = hashlib.sha256(msgspec.json.encode([(m.role, m.content) for m in messages])).hexdigest()
    return Conversation(name=where, sha256=digest, messages=tuple(messages))


def _message(entry: Any, where: str) -> ChatMessage:
    _expect(isinstance(entry, dict), where, "no JSON object")
    role, content = entry.get("role"), entry.get("content")
    _expect(role in _ROLES, where, f"role {str(role)[:40]!r} is none of {', '.join(_ROLES)}")
    if isinstance(content, list):
        parts = [part for part in content if isinstance(part, dict) and part.get("type") == "text"]
        texts = [part["text"] for part in parts if isinstance(part.get("text"), str)]
        _expect(len(texts) == len(content), where, "parts other than text")
        content = "\n".join(texts)
    _expect(isinstance(content, str) and bool(content.strip()), where, "no text")
    at = entry.get("timestamp")
    number = isinstance(at, (int, float)) and not isinstance(at, bool) and 0 <= at < 1e14
    return ChatMessage(role=role, content=content, at_s=float(at) if number else None)


def messages_at(
    conversation: Conversation, number: int, *, salt: str = "", answers: Sequence[str] | None = None
) -> list[Message]:
    """The messages of turn `number` (from 1).

    `salt` is the first line of the system message, which is made where the chat has none.
    `answers`: what the server itself answered in the turns before; `None`: as recorded.
    """
    if not 1 <= number <= conversation.turns:
        raise SuiteError(f"{conversation.name} has {conversation.turns} turns, no turn {number}.")
    if answers is not None and len(answers) < number - 1:
        raise SuiteError(f"turn {number} needs {number - 1} answers, {len(answers)} are given.")
    result: list[Message] = []
    users = replies = 0
    for message in conversation.messages:
        content = message.content
        if message.role == "assistant":
            content = answers[replies] if answers is not None else content
            replies += 1
        users += message.role == "user"
        result.append({"role": message.role, "content": content})
        if users == number:
            break
    if salt and result[0]["role"] == "system":
        result[0] = {"role": "system", "content": f"{salt}\n{result[0]['content']}"}
    elif salt:
        result.insert(0, {"role": "system", "content": salt})
    return result


def think_time(conversation: Conversation, number: int, scale: float = 1.0) -> float | None:
    """Seconds between the answer before turn `number` and its message, times `scale`, at most
    `MOST_THINK_S`; `None`: unknown, or no pause is wanted."""
    users = [place for place, m in enumerate(conversation.messages) if m.role == "user"]
    place = users[number - 1]
    if number == 1 or scale <= 0:
        return None
    before, now = conversation.messages[place - 1].at_s, conversation.messages[place].at_s
    if before is None or now is None:
        return None
    return min(MOST_THINK_S, max(0.0, now - before) * scale)


def turn_prompt(
    conversation: Conversation,
    number: int,
    *,
    salt: str,
    count_chat: CountChat,
    previous: TurnPrompt | None = None,
    answers: Sequence[str] | None = None,
    keep_text: bool = False,
    think: float = 1.0,
) -> TurnPrompt:
    """Turn `number` as a prompt with its expected reuse; `previous` is the turn before it.

    `count_chat` counts with the served template. The prompt counts what it counts: a chat has no tier.
    Where it gives token ids, what both turns share is seen in them; else a template is taken to repeat the
    turn before as it was.
    """
    messages = messages_at(conversation, number, salt=salt, answers=answers)
    counted = count_chat(messages)
    ids: Sequence[int] = () if isinstance(counted, int) else counted
    tokens = counted if isinstance(counted, int) else len(counted)
    shared = _shared(previous, tokens, ids)
    body = msgspec.json.encode(messages)
    recipe = PromptRecipe(
        sha256=hashlib.sha256(body).hexdigest(),
        tokens=tokens,
        endpoint="chat",
        corpus=conversation.name,
        corpus_sha256=conversation.sha256,
        task="conversation",
        start=number,
        salt=salt,
        text=body.decode() if keep_text else None,
        follows=previous.prompt.recipe.sha256 if previous else None,
        shared=(shared, shared) if previous else None,
    )
    return TurnPrompt(
        number=number,
        prompt=Prompt(recipe=recipe, rest="", messages=tuple(messages)),
        shared=shared,
        ids=ids,
        think_s=think_time(conversation, number, think),
    )


def _shared(previous: TurnPrompt | None, tokens: int, ids: Sequence[int]) -> int:
    """Tokens at the front of a turn that are those of the turn before."""
    if previous is None:
        return 0
    most = min(previous.prompt.recipe.tokens, tokens)
    pairs = enumerate(zip(previous.ids, ids, strict=False))
    return next((place for place, (before, now) in pairs if before != now), most)


def replay(
    conversation: Conversation,
    *,
    salt: str,
    count_chat: CountChat,
    keep_text: bool = False,
    think: float = 1.0,
) -> list[TurnPrompt]:
    """Every turn with the recorded answers. `think` scales the pauses: 1 as recorded, 0 none."""
    turns: list[TurnPrompt] = []
    for number in range(1, conversation.turns + 1):
        turns.append(
            turn_prompt(
                conversation,
                number,
                salt=salt,
                count_chat=count_chat,
                previous=turns[-1] if turns else None,
                keep_text=keep_text,
                think=think,
            )
        )
    return turns
