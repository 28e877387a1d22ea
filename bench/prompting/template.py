"""What a chat template, or a server's own opening token, adds around our text: measured, never guessed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct

from bench.errors import EngineError
from bench.prompting.tokens import Tokenizer
from bench.records import Endpoint

Message = dict[str, str]
CountChat = Callable[[list[Message]], int | Sequence[int]]
"""Counts a chat with its template, generation prompt included; better: returns the token ids."""

# Openings and endings that bodies and tasks have; templates trim blanks and merge line ends, so no
# prompt of ours begins or ends with one, and neither do these.
_CONTENTS = (
    ("river lantern", "One short line."),
    ("harbour archive engine", "def measure(values):\n    return sum(values)"),
    ("valley", "# A heading\n\nText with 12 numbers, and (brackets)"),
    ("market letter bridge", '"Quoted," she said.\r\nAnother line; then an end'),
    ("ledger winter island", "Word after word, " * 40 + "and an end."),
)


class Template(Struct, frozen=True, kw_only=True):
    """Tokens that the server adds to a prompt."""

    endpoint: Endpoint
    overhead: int
    """All tokens that are no content of ours: roles, separators, opening tokens."""
    fixed_prefix: int
    """Those before the salt, which every prompt of a route shares; at most `overhead` where the
    server tells counts only."""


TOKEN_IDS = Template(endpoint="tokens", overhead=0, fixed_prefix=0)
"""Token ids are taken as they are."""


def chat(salt: str, user: str) -> list[Message]:
    """The messages of a prompt: the salt, if any, in a system message of ours, before any default one."""
    opening: list[Message] = [{"role": "system", "content": salt}] if salt else []
    return [*opening, {"role": "user", "content": user}]


def measure_template(count_chat: CountChat, tokenizer: Tokenizer) -> Template:
    """Measures the chat template on contents of several shapes, which must all agree.

    Raises `EngineError` when they do not: then no length could be promised.
    """
    found: list[int] = []
    openings: list[Sequence[int]] = []
    for system, user in _CONTENTS:
        answer = count_chat(chat(system, user))
        if not isinstance(answer, int):
            openings.append(answer)
            answer = len(answer)
        found.append(answer - tokenizer.count(system) - tokenizer.count(user))
    overhead = _constant(found, "the chat template", 'set endpoint = "completions" in [request]')
    prefix = min(overhead, _shared(openings)) if openings else overhead
    return Template(endpoint="chat", overhead=overhead, fixed_prefix=prefix)


def measure_text(count_text: Callable[[str], int], tokenizer: Tokenizer) -> Template:
    """Measures what the server puts before a completion's prompt (an opening token, or nothing)."""
    found = [count_text(f"{salt}\n{user}") - tokenizer.count(f"{salt}\n{user}") for salt, user in _CONTENTS]
    overhead = _constant(found, "the server", "give the served model's tokenizer.json")
    return Template(endpoint="completions", overhead=overhead, fixed_prefix=overhead)


def _constant(found: Sequence[int], who: str, what: str) -> int:
    low, high = min(found), max(found)
    if low != high or low < 0:
        raise EngineError(
            f"{who} adds {low} to {high} tokens depending on the text, so no exact length can be promised: "
            f"the tokenizer is not the server's, or the template rewrites contents; {what}."
        )
    return low


def _shared(sequences: Sequence[Sequence[int]]) -> int:
    """Length of the prefix that all sequences share."""
    for place, column in enumerate(zip(*sequences, strict=False)):
        if len(set(column)) > 1:
            return place
    return min(len(sequence) for sequence in sequences)
