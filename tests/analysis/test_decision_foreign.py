from __future__ import annotations

import json

import pytest

from bench.analysis.decisions.foreign import detect, read_llama_benchy, read_vllm_bench
from bench.errors import SuiteError

BENCH = {
    "backend": "openai-chat",
    "model_id": "m",
    "max_concurrency": 1,
    "ttfts": [2.0, 0.0],
    "itls": [[0.1, 0.3], []],
    "input_lens": [1000, 1000],
    "output_lens": [5, 0],
    "errors": ["", "boom"],
}
BENCHY = {
    "version": "1",
    "latency_mode": "none",
    "model": "m",
    "prefix_caching_enabled": True,
    "benchmarks": [
        {
            "concurrency": 1, "context_size": 0, "prompt_size": 2048, "response_size": 33,
            "is_context_prefill_phase": False,
            "ttfr": {"mean": 900, "std": 0, "values": [900.0, 901.0]},
            "e2e_ttft": {"mean": 1000, "std": 0, "values": [1000.0, 1100.0]},
            "tg_req_throughput": {"mean": 32, "std": 0, "values": [32.0, 16.0]},
        },
        {
            "concurrency": 1, "context_size": 4096, "prompt_size": 2048, "response_size": 33,
            "is_context_prefill_phase": False, "e2e_ttft": {"mean": 1, "std": 0, "values": [1.0]},
        },
    ],
}  # fmt: skip


def test_the_tool_is_known_by_its_keys() -> None:
    assert detect(json.dumps(BENCH)) == "vllm-bench"
    assert detect(json.dumps(BENCHY)) == "llama-benchy"
    assert detect("[]") is detect("{") is detect('{"requests": []}') is None


def test_a_bench_serve_request_becomes_a_measurement_and_a_failed_one_stays_invalid() -> None:
    found = read_vllm_bench(json.dumps(BENCH), source="r.json", route="mtp4", condition="replay")
    good, bad = found.measurements
    assert (good.route, good.condition, good.tier, good.source) == ("mtp4", "replay", 1000, "r.json")
    assert (good.ttft_s, good.total_s, good.tpot_s) == pytest.approx((2.0, 2.4, 0.1))
    assert good.verdict.valid and not good.verdict.warnings
    assert not bad.verdict.valid and bad.ttft_s is None and bad.absent["ttft_s"] == "boom"
    assert any("role-only chunk counts" in note for note in found.notes)
    assert any("taken as replay, because you said so" in note for note in found.notes)


def test_overlapping_requests_carry_a_warning() -> None:
    found = read_vllm_bench(json.dumps(BENCH | {"max_concurrency": None}), source="r")
    assert found.measurements[0].verdict.warnings[0].detail == "requests may have overlapped"
    assert found.measurements[0].route == "m"


def test_llama_benchy_runs_become_measurements_and_prompts_behind_a_cached_context_are_left_out() -> None:
    found = read_llama_benchy(json.dumps(BENCHY), source="b.json")
    first, second = found.measurements
    assert (first.prompt_tokens, first.output_tokens, first.condition) == (2048, 33, "cold")
    assert (first.ttft_s, first.first_response_s) == (1.0, 0.9)
    assert (first.total_s, second.total_s) == pytest.approx((2.0, 1.1 + 2.0))
    assert any(note.startswith("1 entries left out") for note in found.notes)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"ttfts": None}, "the list ttfts is missing or empty; run the benchmark with --save-detailed"),
        ({"output_lens": [5]}, "differ in length"),
        ({"ttfts": ["x", 1]}, "request 1, ttfts: 'x' is not a time"),
        ({"itls": [3, []]}, "request 1, itls: not a list"),
        ({"input_lens": [1.5, 2]}, "request 1, input_lens: '1.5' is not a count"),
        ({"ttfts": [float("nan"), 1]}, "request 1, ttfts: 'nan'"),
    ],
)
def test_a_damaged_result_is_refused_with_its_place(change: dict[str, object], message: str) -> None:
    with pytest.raises(SuiteError, match=message):
        read_vllm_bench(json.dumps(BENCH | change), source="r")


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"benchmarks": [3]}', '{"benchmarks": []}'])
def test_what_is_no_report_is_refused(text: str) -> None:
    for read in (read_vllm_bench, read_llama_benchy):
        with pytest.raises(SuiteError, match=r"^r\b"):
            read(text, source="r")


@pytest.mark.parametrize("label", ["=HYPERLINK(1)", "\x1b[31mred", "@sum", " \t"])
def test_a_label_that_could_do_harm_in_a_table_is_no_name_for_a_route(label: str) -> None:
    labelled = ((read_vllm_bench, BENCH | {"label": label}), (read_llama_benchy, BENCHY | {"model": label}))
    for read, data in labelled:
        with pytest.raises(SuiteError, match="give one with --route") as caught:
            read(json.dumps(data), source="r.json")
        assert "\x1b" not in str(caught.value)
        assert read(json.dumps(data), source="r.json", route="mtp4").measurements[0].route == "mtp4"
