from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import pytest

from bench.errors import SuiteError
from bench.prompting.borders import IndexedCorpus, index_corpus
from bench.prompting.corpus import Corpus
from bench.prompting.cuts import closer_stop, known_stop, start_rows, with_pieces
from bench.prompting.tasks import Piece
from bench.prompting.tokens import Tokenizer

TEXT = "".join(f"line {number} of a text that goes on\n" for number in range(200))

Make = Callable[[str], tuple[Tokenizer, Any]]


@pytest.fixture
def tokenizer(make: Make) -> Tokenizer:
    return make("own")[0]


@pytest.fixture
def corpus(tokenizer: Tokenizer) -> IndexedCorpus:
    whole = Corpus(name="t", sha256=hashlib.sha256(TEXT.encode()).hexdigest(), text=TEXT)
    return index_corpus(whole, tokenizer, need_tokens=1_000_000)


def test_no_two_numbers_of_a_name_start_at_one_place(corpus: IndexedCorpus) -> None:
    first = [next(start_rows(corpus, ("name", number), 100)) for number in range(50)]
    assert len(set(first)) == 50
    assert first == [next(start_rows(corpus, ("name", number), 100)) for number in range(50)]
    assert all(corpus.starts[row, 0] + 100 <= corpus.tokens for row in first)


def test_a_start_without_text_enough_behind_it_is_refused(corpus: IndexedCorpus) -> None:
    with pytest.raises(SuiteError, match=r"corpus 't' has \d+ tokens, but no place to start from"):
        next(start_rows(corpus, ("name", 1), corpus.tokens + 1))


def test_a_stop_uses_up_what_is_needed_or_says_what_is_missing(
    corpus: IndexedCorpus, tokenizer: Tokenizer
) -> None:
    start, begin = (int(value) for value in corpus.starts[10])
    for need in (5, 40, 333):
        end, missing = known_stop(corpus, start, begin, need)
        assert tokenizer.count(corpus.text(begin, end)) == need - missing
        further, left = closer_stop(corpus, tokenizer, end, missing)
        assert tokenizer.count(corpus.text(begin, further)) == need - left
        assert further >= end and left <= missing
    assert known_stop(corpus, start, begin, 0) == (begin, 0)


def test_pieces_are_lines_of_their_own_in_order_of_depth(corpus: IndexedCorpus) -> None:
    body = with_pieces(corpus, 0, 900, (Piece(text="LATE", depth=0.9), Piece(text="EARLY", depth=0.1)))
    lines = body.splitlines()
    assert lines.index("EARLY") < lines.index("LATE") < len(lines) - 1
    assert body.replace("EARLY\n", "").replace("LATE\n", "") == TEXT[:900] == with_pieces(corpus, 0, 900, ())
