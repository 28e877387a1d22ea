from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from bench.errors import EngineError
from bench.prompting.template import measure_template, measure_text
from bench.prompting.tokens import Tokenizer

Make = Callable[[str], tuple[Tokenizer, Any]]


def chatml(messages: list[dict[str, str]]) -> str:
    turns = "".join(f"<|im_start|>{m['role']}\n{m['content']}<|im_end|>\n" for m in messages)
    return turns + "<|im_start|>assistant\n"


def test_overhead_and_opening_are_measured_where_the_server_gives_ids(make: Make) -> None:
    tokenizer, library = make("own")
    template = measure_template(lambda messages: library.encode(chatml(messages)).ids, tokenizer)
    empty = [{"role": "system", "content": ""}, {"role": "user", "content": ""}]
    assert template.overhead == len(library.encode(chatml(empty)).ids)
    assert template.fixed_prefix == len(library.encode("<|im_start|>system\n").ids)


def test_with_counts_alone_the_opening_is_bounded_by_the_overhead(make: Make) -> None:
    tokenizer, library = make("own")
    template = measure_template(lambda messages: len(library.encode(chatml(messages)).ids), tokenizer)
    assert template.fixed_prefix == template.overhead > 0


def test_a_template_that_rewrites_contents_is_refused_with_the_range(make: Make) -> None:
    tokenizer, library = make("own")

    def count(messages: list[dict[str, str]]) -> int:
        return len(library.encode(chatml(messages).replace("a", "")).ids)

    with pytest.raises(EngineError, match=r"adds -?\d+ to -?\d+ tokens depending on the text"):
        measure_template(count, tokenizer)


def test_an_opening_token_of_completions_is_measured(make: Make) -> None:
    tokenizer, _ = make("own")
    template = measure_text(lambda text: tokenizer.count(text) + 1, tokenizer)
    assert (template.endpoint, template.overhead, template.fixed_prefix) == ("completions", 1, 1)


def test_prompts_composed_with_the_measured_template_count_the_tier_as_the_server_does(make: Make) -> None:
    from test_prompting_compose import composer, trial

    tokenizer, library = make("own")
    template = measure_template(lambda messages: library.encode(chatml(messages)).ids, tokenizer)
    chosen = composer(make, "own", "mixed", template)
    for tier in range(200, 260):
        messages: Any = chosen.compose(trial(tier, repeat=tier)).fields()["messages"]
        assert len(library.encode(chatml(messages)).ids) == tier
