from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bench.prompting.salts import SaltBook, salt_words
from bench.prompting.tokens import Tokenizer

Make = Callable[[str], tuple[Tokenizer, Any]]


@pytest.mark.parametrize("kind", ["own", "large", "unigram", "llama2", "wordpiece", "characters"])
def test_all_salts_of_a_tokenizer_have_the_same_length_and_are_plain_words(make: Make, kind: str) -> None:
    tokenizer, _ = make(kind)
    book = SaltBook(tokenizer, "nonce")
    salts = [book.draw(f"k{n}") for n in range(300)]
    assert len(set(salts)) == 300
    assert {tokenizer.count(salt) for salt in salts} == {book.tokens}
    assert all(word.isascii() and word.islower() for salt in salts for word in salt.split(" "))
    assert all(len(salt.split(" ")) == 7 for salt in salts)


@pytest.mark.parametrize(("kind", "tokens"), [("own", 7), ("large", 7)])
def test_with_a_vocabulary_of_words_a_salt_is_seven_tokens_and_eight_with_its_line_end(
    make: Make, kind: str, tokens: int
) -> None:
    tokenizer, _ = make(kind)
    book = SaltBook(tokenizer, "nonce")
    assert book.tokens == tokens
    assert tokenizer.count(book.draw("a") + "\n") == tokens + 1


def test_first_tokens_differ_as_long_as_there_are_any(make: Make) -> None:
    tokenizer, _ = make("own")
    book = SaltBook(tokenizer, "nonce")
    firsts = [int(tokenizer.encode(book.draw(str(n)))[0]) for n in range(300)]
    assert len(set(firsts)) == 300


def test_the_same_key_has_the_same_salt_and_taken_ones_are_not_used(make: Make) -> None:
    tokenizer, _ = make("own")
    first = SaltBook(tokenizer, "n")
    salt = first.draw("k")
    assert first.draw("k") == salt == SaltBook(tokenizer, "n").draw("k")
    assert SaltBook(tokenizer, "m").draw("k") != salt
    assert SaltBook(tokenizer, "n", taken=[salt]).draw("k") != salt


def test_words_are_searched_once_and_kept(make: Make, tmp_path: Path) -> None:
    tokenizer, _ = make("own")
    found = salt_words(tokenizer, tmp_path)

    class Silent:
        identity = tokenizer.identity

    silent: Any = Silent()
    assert salt_words(silent, tmp_path) == found


def test_salts_are_of_one_length_where_first_words_cost_differently(make: Make) -> None:
    class Uneven:
        """Words cost a token each, and the first one one or two more."""

        identity = make("own")[0].identity

        def count(self, text: str) -> int:
            return len(text.split()) + 1 + (text[0] < "n")

        def encode(self, text: str) -> list[int]:
            return [hash(text.split()[0])]

    uneven: Any = Uneven()
    book = SaltBook(uneven, "nonce")
    salts = [book.draw(str(n)) for n in range(50)]
    assert {uneven.count(salt) for salt in salts} == {book.tokens}
