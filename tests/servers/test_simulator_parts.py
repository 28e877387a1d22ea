"""Small parts: profiles, tokenizer, metrics text, framing, lengths."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.utils import floatToGoString
from tokenizers import Tokenizer as HuggingFace

from bench.errors import SuiteError
from bench.servers.simulator.dialect import Rejected, output_tokens
from bench.servers.simulator.framing import frame
from bench.servers.simulator.metrics import Family, number, render, two_engines
from bench.servers.simulator.profiles import FOLDER, load_profile
from bench.servers.simulator.stats import Histogram
from bench.servers.simulator.tokens import SHIPPED, Message, render_chat, shipped_tokenizer

REFERENCE = HuggingFace.from_file(str(SHIPPED))
TOY = (FOLDER / "toy.toml").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("block_size = 16", "block_size = 0", "block_size must be at least 1"),
        ("kv_capacity_tokens = 131072", "kv_capacity_tokens = 20000", "must hold one sequence"),
        ("tokenize_tok_s = 500000.0", "tokenize_tok_s = 0.0", "tokenize_tok_s must be above 0"),
        ("start_s = 0.002", "start_s = -1.0", "start_s must be a finite number"),
        ("start_s = 0.002", "start_s = nan", "start_s must be a finite number"),
        ("per_position = [0.8, 0.55]", "per_position = [0.8]", "one rate per drafted token"),
        ("per_position = [0.8, 0.55]", "per_position = [0.5, 0.8]", "must fall"),
        ("answer_tokens = [40, 400]", "answer_tokens = [40, 4]", "rising lengths"),
        ('model = "toy"', 'modell = "toy"', "modell"),
        ("max_num_seqs = 4", 'max_num_seqs = "4"', "max_num_seqs"),
    ],
)
def test_a_wrong_profile_is_refused_by_key(tmp_path: Path, old: str, new: str, message: str) -> None:
    path = tmp_path / "mine.toml"
    assert old in TOY
    path.write_text(TOY.replace(old, new), encoding="utf-8")
    with pytest.raises(SuiteError, match=message) as refused:
        load_profile(path)
    assert str(path) in str(refused.value)


def test_ones_own_profile_is_read_by_path(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(TOY.replace('name = "toy"', 'name = "mine"'), encoding="utf-8")
    assert load_profile(str(path)).name == "mine"


@given(st.text(max_size=300))
def test_ids_are_those_of_the_reference_tokenizer(text: str) -> None:
    assert shipped_tokenizer().encode(text).tolist() == REFERENCE.encode(text).ids


def test_special_tokens_and_code_are_those_of_the_reference_tokenizer() -> None:
    text = render_chat([Message(role="user", content="def f(x):\n\treturn  x**2  # 漢字 é\r\n\r\n" * 50)])
    ids = shipped_tokenizer().encode(text).tolist()
    assert ids == REFERENCE.encode(text).ids
    assert shipped_tokenizer().decode(ids) == text


def test_content_parts_of_a_message_are_joined() -> None:
    parts: list[dict[str, object]] = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    whole = render_chat([Message(role="user", content=parts)], generation_prompt=False)
    assert whole == "<|im_start|>user\nab<|im_end|>\n"


@given(st.integers(0, 2000), st.integers(0, 2**32))
def test_an_answer_has_no_word_twice_in_a_row(length: int, seed: int) -> None:
    ids = shipped_tokenizer().answer(length, np.random.default_rng(seed))
    assert len(ids) == length
    assert not (ids[1:] == ids[:-1]).any()


@given(st.floats(min_value=0, allow_nan=False, allow_infinity=False))
def test_numbers_are_written_as_prometheus_client_writes_them(value: float) -> None:
    assert float(number(value)) == value
    if 0 < value < 1e15:
        assert number(value) == floatToGoString(value)


def test_histogram_bounds_are_inclusive() -> None:
    histogram = Histogram((1, 2))
    for value in (1.0, 1.5, 2.0, 3.0):
        histogram.observe(value)
    assert (histogram.counts, histogram.count, histogram.sum) == ([1, 2, 1], 4, 7.5)


def test_a_page_can_be_parsed_by_prometheus_client() -> None:
    labels = {"engine": "0", "model_name": "m"}
    page = [Family("vllm:things", "counter", "Things.", (("_total", labels, 5.0),))]
    parsed = {family.name: family for family in text_string_to_metric_families(render(page, 1.5e9))}
    assert [sample.value for sample in parsed["vllm:things"].samples if sample.name.endswith("_total")] == [
        5.0
    ]


def test_two_engines_share_a_counter_and_leave_gauges_to_the_first() -> None:
    labels = {"engine": "0"}
    counter = Family("vllm:c", "counter", "", (("_total", labels, 5.0),))
    gauge = Family("vllm:g", "gauge", "", (("", labels, 0.5),))
    values = [[sample[2] for sample in family.samples] for family in two_engines([counter, gauge])]
    assert values == [[2.0, 3.0], [0.5, 0.0]]


def test_an_ordinary_event_is_one_write() -> None:
    assert frame(b'{"a":1}', frozenset(), 3) == [b'data: {"a":1}\n\n']


@pytest.mark.parametrize(
    ("asked", "prompt", "chat", "produced"),
    [
        (100, 500, True, 100),
        (None, 500, True, 500),
        (None, 500, False, 16),
        (600, 500, True, 500),
        (5, 999, False, 1),
    ],
)
def test_output_is_what_was_asked_or_what_fits(
    asked: int | None, prompt: int, chat: bool, produced: int
) -> None:
    assert output_tokens(asked, prompt, 1000, chat=chat) == produced


@pytest.mark.parametrize(("asked", "prompt"), [(10, 1001), (1001, 5), (10, 1000), (0, 5), (-3, 5)])
def test_impossible_lengths_are_rejected(asked: int, prompt: int) -> None:
    with pytest.raises(Rejected) as rejected:
        output_tokens(asked, prompt, 1000, chat=True)
    assert rejected.value.status == 400
    assert math.isfinite(rejected.value.body["error"]["code"])
