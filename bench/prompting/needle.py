"""Needles: facts at stated depths with answers that can be checked, and the comparison of greedy answers."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from bench.errors import SuiteError
from bench.prompting import synthetic
from bench.prompting.tasks import Piece
from bench.prompting.tokens import Tokenizer
from bench.records import Trial

DEPTHS = (0.1, 0.3, 0.5, 0.7, 0.9)


class Fact(Struct, frozen=True, kw_only=True):
    """One vault and its code, hidden at a depth."""

    vault: str
    code: str
    """Six digits: no reader guesses them."""
    depth: float

    @property
    def piece(self) -> Piece:
        """The line that stands in the prompt."""
        text = f"Note for the reader: the code of vault {self.vault} is {self.code}."
        return Piece(text=text, depth=self.depth)


class Grade(Struct, frozen=True, kw_only=True):
    """Which facts an answer gave back."""

    found: tuple[bool, ...]
    """In the order of the facts."""
    score: float
    """Share found, 0 to 1."""


def facts(seed: int | str, depths: Sequence[float] = DEPTHS) -> tuple[Fact, ...]:
    """One fact a depth, seeded; names and codes all differ. Raises `SuiteError` for depths outside 0 to 1."""
    if not depths or not all(0 <= depth <= 1 for depth in depths) or len(depths) > 100:
        raise SuiteError(f"needle depths must be 1 to 100 numbers from 0 to 1, not {list(depths)[:5]}.")
    names = [word.capitalize() for word in synthetic.plain_words() if len(word) > 4]
    result: list[Fact] = []
    used: set[str] = set()
    for place, depth in enumerate(depths):
        number = 0
        while True:
            digest = hashlib.sha256(f"{seed}/{place}/{number}".encode()).digest()
            name = names[int.from_bytes(digest[:4], "big") % len(names)]
            code = str(100_000 + int.from_bytes(digest[4:8], "big") % 900_000)
            if name not in used and code not in used:
                break
            number += 1
        used |= {name, code}
        result.append(Fact(vault=name, code=code, depth=depth))
    return tuple(result)


def trial_facts(trial: Trial, seed: int) -> tuple[Fact, ...]:
    """The facts hidden in the prompt of a trial with task `needle`: needed again to grade its answer."""
    return facts(f"{seed}/{trial.tier}/{trial.repeat}")


def grade(answer: str, hidden: Sequence[Fact]) -> Grade:
    """A fact is found when its vault's name and, behind it on the same line, exactly its code stand.

    Marks of lists and emphasis around them are overlooked; a line that names another code is wrong.
    """
    plain = re.sub(r"[*_`]", "", answer)
    found = []
    for fact in hidden:
        codes = re.findall(rf"\b{re.escape(fact.vault)}\b[^\n\d]{{0,40}}(\d+)", plain)
        found.append(bool(codes) and all(code == fact.code for code in codes))
    return Grade(found=tuple(found), score=sum(found) / len(found) if found else 0.0)


class Divergence(Struct, frozen=True, kw_only=True):
    """Where two greedy answers to one prompt part."""

    tokens: int
    """Tokens compared: the shorter answer."""
    first: int | None
    """Tokens before the first difference; `None`: none within `tokens`."""
    share: float
    """Part of the compared tokens that comes before it: 1 when nothing differs."""


def divergence(tokenizer: Tokenizer, one: str, other: str) -> Divergence:
    """First difference of two answers, token by token.

    Exact arithmetic would give speculative and target-only decoding the same greedy text; batch
    shapes change rounding, so judge this beside the divergence of target-only from itself.
    """
    a, b = tokenizer.encode(one), tokenizer.encode(other)
    tokens = min(len(a), len(b))
    differing = np.flatnonzero(a[:tokens] != b[:tokens])
    first = int(differing[0]) if len(differing) else None
    share = 1.0 if first is None else first / tokens
    return Divergence(tokens=tokens, first=first, share=share)
