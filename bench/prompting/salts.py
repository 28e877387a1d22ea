"""Salts: seven words at the very front of a prompt that no cache has seen.

Every salt has the same number of tokens for a tokenizer, and no two of a run begin with the same
token as long as first tokens last, so that caches by block and caches by token both miss. There is
no constant opening such as a bracket, which every prompt would share.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from bench.errors import SuiteError
from bench.prompting import synthetic
from bench.prompting.cache import read_json, write_json
from bench.prompting.tokens import Tokenizer

VERSION = 2
WORDS = 7
_ENOUGH = 64
_GROUP = 32
_TRIES = 400


def _digest(*parts: object) -> bytes:
    return hashlib.sha512("\0".join(map(str, parts)).encode()).digest()


def _cheap_words(tokenizer: Tokenizer, words: Sequence[str]) -> list[str]:
    """Words that cost one token each after another word; few requests where most of them do."""
    alone = tokenizer.count("a")
    kept: list[str] = []
    waiting = [list(words[at : at + _GROUP]) for at in range(0, len(words), _GROUP)]
    while waiting:
        group = waiting.pop()
        cost = tokenizer.count("a " + " ".join(group)) - alone
        if cost == len(group):
            kept.extend(group)
        elif len(group) > 1:
            middle = len(group) // 2
            waiting += [group[:middle], group[middle:]]
    return sorted(kept)


def _like_words(tokenizer: Tokenizer, words: Sequence[str]) -> list[str]:
    """The largest set of words of equal cost: for vocabularies that hold few whole words."""
    alone = tokenizer.count("a")
    costs = {word: tokenizer.count(f"a {word}") - alone for word in words[:500]}
    common = Counter(costs.values()).most_common(1)[0][0]
    return [word for word, cost in costs.items() if cost == common]


def salt_words(tokenizer: Tokenizer, cache: Path | None = None) -> tuple[list[str], list[str]]:
    """The words that salts begin with, and those that follow: the same ones for a tokenizer each time."""
    file = cache / "salts" / f"{tokenizer.identity.sha256[:32]}-v{VERSION}.json" if cache else None
    known = read_json(file) if file else None
    if known and {"first", "following"} <= known.keys():
        return [str(word) for word in known["first"]], [str(word) for word in known["following"]]
    # Our own words rather than the vocabulary's: those of published vocabularies are not all fit to print.
    candidates = synthetic.plain_words()
    following = _cheap_words(tokenizer, candidates)
    if len(following) < _ENOUGH:
        following = _like_words(tokenizer, candidates)
    first = [word for word in following if tokenizer.count(word) == 1]
    first = first if len(first) >= _ENOUGH else following
    if file:
        write_json(file, {"first": first, "following": following})
    return first, following


class SaltBook:
    """Hands out one salt a key, and the same one again for the same key.

    `nonce` is the run's random part. `taken` are salts of an interrupted run: they are not used again.
    """

    def __init__(
        self, tokenizer: Tokenizer, nonce: str, *, taken: Iterable[str] = (), cache: Path | None = None
    ) -> None:
        self._tokenizer = tokenizer
        self._nonce = nonce
        self._first_words, self._words = salt_words(tokenizer, cache)
        self._given: dict[str, str] = {}
        self._used = set(taken) - {""}
        self._firsts = {self._first(salt) for salt in self._used}
        self.tokens = tokenizer.count(self._words_of(_digest("length")))
        """Tokens of every salt, without the line end that may follow it."""

    def draw(self, key: str) -> str:
        """The salt of a key. Raises `SuiteError` when the tokenizer allows no more of equal length."""
        if key in self._given:
            return self._given[key]
        spare: str | None = None
        for attempt in range(_TRIES):
            salt = self._words_of(_digest(self._nonce, key, attempt))
            if salt in self._used or self._tokenizer.count(salt) != self.tokens:
                continue
            first = self._first(salt)
            if first not in self._firsts:
                self._firsts.add(first)
                return self._give(key, salt)
            spare = spare or salt
            if attempt >= _ENOUGH:
                break
        if spare is None:
            raise SuiteError(
                f"no further salt of {self.tokens} tokens was found for tokenizer "
                f'{self._tokenizer.identity.name}; set salt = "cache_salt" where the server knows it.'
            )
        return self._give(key, spare)

    def _give(self, key: str, salt: str) -> str:
        self._given[key] = salt
        self._used.add(salt)
        return salt

    def _first(self, salt: str) -> int:
        return int(self._tokenizer.encode(salt)[0])

    def _words_of(self, digest: bytes) -> str:
        pools = [self._first_words, *[self._words] * (WORDS - 1)]
        numbers = (int.from_bytes(digest[at : at + 8], "big") for at in range(0, 8 * WORDS, 8))
        return " ".join(pool[number % len(pool)] for pool, number in zip(pools, numbers, strict=True))
