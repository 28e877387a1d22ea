"""The laws of time, checked against arithmetic done by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.servers.simulator.timing import (
    Timing,
    admission_s,
    cold_ttft_s,
    decode_step_s,
    prefill_s,
    tokenize_time_s,
)

LAWS = Timing(
    tokenize_tok_s=1000.0,
    start_s=0.5,
    token_s=0.01,
    token2_s=1e-4,
    cached_token_s=0.002,
    step_s=0.1,
    draft_s=0.02,
    context_s=1e-3,
    draft_context_s=1e-4,
    sequence_s=0.3,
)


def test_tokenising_takes_tokens_over_rate() -> None:
    assert tokenize_time_s(LAWS, 250) == 0.25


def test_a_cold_prompt_costs_the_constant_the_linear_and_the_quadratic_part() -> None:
    # 100 tokens: tokenise 0.1, start 0.5, 100 * 0.01 = 1, 100^2 * 1e-4 = 1
    assert cold_ttft_s(LAWS, 100) == pytest.approx(2.6)


def test_a_cached_prefix_costs_its_overhead_and_saves_its_prefill() -> None:
    # [60, 100): 40 * 0.01 + (10,000 - 3,600) * 1e-4 = 0.4 + 0.64; overhead 0.5 + 60 * 0.002
    assert prefill_s(LAWS, 60, 100) == pytest.approx(1.04)
    assert admission_s(LAWS, 60) == pytest.approx(0.62)


@given(st.integers(0, 10**6), st.integers(0, 10**5), st.integers(0, 10**5))
def test_prefill_in_chunks_costs_what_one_piece_costs(begin: int, first: int, second: int) -> None:
    middle, end = begin + first, begin + first + second
    pieces = prefill_s(LAWS, begin, middle) + prefill_s(LAWS, middle, end)
    assert pieces == pytest.approx(prefill_s(LAWS, begin, end), rel=1e-9, abs=1e-9)


def test_a_decode_step_grows_with_context_drafts_and_sequences() -> None:
    assert decode_step_s(LAWS, [100], 0) == pytest.approx(0.1 + 0.1)
    # k = 2: 0.1 + 0.04 + (0.001 + 0.0002) * 100
    assert decode_step_s(LAWS, [100], 2) == pytest.approx(0.26)
    # two sequences: 0.1 + 0.001 * 150 + 0.3
    assert decode_step_s(LAWS, [100, 50], 0) == pytest.approx(0.55)
