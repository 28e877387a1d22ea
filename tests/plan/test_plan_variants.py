"""Suites whose routes differ in one thing only."""

from __future__ import annotations

import pytest

from bench.errors import SuiteError
from bench.plan.suite import parse_suite
from bench.plan.variants import Sweep, llama_suite, numbers, vllm_suite


def test_vllm_routes_differ_in_their_speculation_and_in_nothing_else() -> None:
    sweep = Sweep(
        name="mtp-sweep", drafted=(0, 2, 4), serve="--tensor-parallel-size 4 --kv-cache-dtype 'fp8'"
    )
    suite = parse_suite(vllm_suite(sweep, "some/model", max_model_len=262_144))
    assert [route.name for route in suite.routes] == ["target-only", "mtp2", "mtp4"]
    assert not suite.interleave
    common = ["vllm", "serve", "some/model", "--port", "8000", "--enable-prompt-tokens-details"]
    common += ["--max-model-len", "262144", "--tensor-parallel-size", "4", "--kv-cache-dtype", "fp8"]
    for route, k in zip(suite.routes, (0, 2, 4), strict=True):
        assert route.server is not None and isinstance(route.server.up, tuple)
        up = list(route.server.up)
        if k:
            at = up.index("--speculative-config")
            assert up[at : at + 2] == [
                "--speculative-config",
                f'{{"method": "mtp", "num_speculative_tokens": {k}}}',
            ]
            del up[at : at + 2]
            assert route.speculation is not None and route.speculation.num_speculative_tokens == k
        assert up == common
    assert len({route.base_url for route in suite.routes}) == 1
    assert all(route.request == suite.routes[0].request for route in suite.routes)


def test_llama_routes_start_our_own_command() -> None:
    suite = parse_suite(llama_suite(Sweep(name="s", drafted=(0, 8), port=8090)))
    assert [route.server.up[-2:] for route in suite.routes if route.server] == [
        ("--speculation", "none"),
        ("--speculation", "ngram:8"),
    ]


@pytest.mark.parametrize("text", ["", "0,,2", "two", "0,2,2", "-1", "²", "9" * 5000])
def test_numbers_that_are_none(text: str) -> None:
    with pytest.raises(SuiteError, match="--mtp"):
        numbers(text, "--mtp")


def test_words_that_make_no_suite() -> None:
    with pytest.raises(SuiteError, match="--serve"):
        vllm_suite(Sweep(name="s", drafted=(0,), serve="'open"), "m")
    with pytest.raises(SuiteError, match="at most 64"):
        vllm_suite(Sweep(name="s", drafted=(65,)), "m")
    with pytest.raises(SuiteError, match="name"):
        vllm_suite(Sweep(name="no name", drafted=(0,)), "m")
    with pytest.raises(SuiteError, match="holds a key"):
        vllm_suite(Sweep(name="s", drafted=(0,), serve="--api-key sk-123"), "m")
