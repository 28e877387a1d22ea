from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from bench.errors import SuiteError
from bench.prompting.needle import divergence, facts, grade
from bench.prompting.tokens import Tokenizer

Make = Callable[[str], tuple[Tokenizer, Any]]


def test_facts_are_seeded_and_all_different() -> None:
    one = facts("s", [n / 50 for n in range(51)])
    assert one == facts("s", [n / 50 for n in range(51)]) != facts("t", [n / 50 for n in range(51)])
    assert len({f.vault for f in one}) == len({f.code for f in one}) == 51
    assert all(len(f.code) == 6 for f in one)


@pytest.mark.parametrize("depths", [[], [1.5], [-0.1], [0.5] * 101])
def test_depths_outside_the_text_are_refused(depths: list[float]) -> None:
    with pytest.raises(SuiteError, match="depths must be"):
        facts(1, depths)


def test_an_answer_is_graded_fact_by_fact_and_to_the_digit() -> None:
    hidden = facts("s", [0.1, 0.5, 0.9])
    a, b, c = hidden
    assert (
        grade(f"1. **{a.vault}**: {a.code}\n- {b.vault} = {b.code}.\n{c.vault}: `{c.code}`", hidden).score
        == 1
    )
    assert grade(f"{a.vault}: {a.code}0\n{b.vault}: {b.code[:5]}\n", hidden).found == (False, False, False)
    assert grade(f"{a.vault}: {b.code}\n{b.vault}: {b.code}", hidden).found == (False, True, False)
    assert grade(f"{a.vault}: {a.code}\n{a.vault}: 111111", hidden).found[0] is False
    assert grade(f"{a.vault}:\n{a.code}", hidden).found[0] is False
    assert grade("", hidden).score == 0


def test_greedy_answers_are_compared_token_by_token(make: Make) -> None:
    tokenizer, _ = make("own")
    same, other = "the river and the market", "the river and the harbour"
    ids = tokenizer.encode(same).tolist()
    found = divergence(tokenizer, same, other)
    assert ids[: found.first] == tokenizer.encode(other).tolist()[: found.first]
    assert found.first == len(tokenizer.encode("the river and the"))
    assert found.share == found.first / found.tokens
    assert divergence(tokenizer, same, same).first is None
    assert divergence(tokenizer, "", same).share == 1.0
