"""TensorRT-LLM: its page, its facts, and how much of a prompt it gives back.

The pages and answers were constructed after its sources, not recorded.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.analysis.verdicts.counters import cached_prompt_tokens, difference, speculation
from bench.engines import detect, get
from bench.engines.metrics import Page, read_page
from bench.records import RequestSettings, Scrape, ServerFacts, Speculation, Usage

PAGES = Path(__file__).parent.parent / "recordings" / "pages" / "others"
TRTLLM = get("trtllm")
MTP3 = Speculation(method="mtp", num_speculative_tokens=3)
ANSWERS = {
    "/version": {"version": "1.3.0rc24"},
    "/v1/models": {"object": "list", "data": [{"id": "glm", "object": "model", "owned_by": "tensorrt_llm"}]},
}


def page(name: str) -> Page:
    return read_page((PAGES / f"trtllm_2026_constructed_{name}.prom").read_text(encoding="utf-8"), TRTLLM)


def scrape(name: str) -> Scrape:
    return Scrape(at_ns=0, took_ns=0, status=200, values=page(name).values)


def test_its_answers_are_not_taken_for_those_of_vllm() -> None:
    assert detect(ANSWERS, None) is TRTLLM
    assert detect(ANSWERS, "request_success_total 1\n") is TRTLLM
    assert detect({}, "# HELP trtllm_prompt_tokens_total Multiprocess metric\n") is TRTLLM
    assert detect({"/version": {"version": "0.32.0"}}, None).name == "vllm"


def test_a_page_gives_what_requests_published_and_no_level_of_the_past() -> None:
    assert page("mtp3_before").values == {
        "requests_finished": 1,
        "prompt_tokens": 6000,
        "generation_tokens": 64,
        "cached_tokens": 0,
        "drafts": 20,
        "draft_tokens": 60,
        "accepted_tokens": 43,
        "accepted_tokens_per_pos.0": 18,
        "accepted_tokens_per_pos.1": 15,
        "accepted_tokens_per_pos.2": 10,
        "block_size": 32,
        "kv_capacity_blocks": 8192,
        "ttft_sum": 1.5,
        "ttft_count": 1,
        "queue_sum": 0.01,
        "queue_count": 1,
        "prefill_sum": 1.49,
        "prefill_count": 1,
        "decode_sum": 1.25,
        "decode_count": 1,
        "e2e_sum": 2.75,
        "e2e_count": 1,
    }
    assert page("mtp3_before").problem is None
    assert TRTLLM.is_idle(page("mtp3_before").values) is None  # nothing tells what runs just now


def test_a_replay_moves_whole_drafts_and_tokens_not_those_of_the_last_iteration_or_blocks() -> None:
    moved = difference(scrape("mtp3_before"), scrape("mtp3_after_replay"), TRTLLM)
    assert (moved.fell, moved.vanished) == ((), ())
    assert (moved.count("requests_finished"), moved.count("prompt_tokens")) == (1, 6000)
    assert moved.get("kv_capacity_blocks") is None  # a level
    cached = cached_prompt_tokens(moved, ServerFacts(block_size=32), 6000)
    assert (cached.tokens, cached.source) == (5999, "counter cached_tokens")  # not 187 blocks
    counted = speculation(moved, {}, ServerFacts(), 64)
    assert (counted.drafts, counted.draft_tokens, counted.accepted_tokens) == (20, 60, 43)  # not 3 and 2
    assert counted.per_position == (19, 14, 10)
    assert moved.count("generation_tokens") == 1 + 20 + 43


def test_facts_come_from_three_configuration_families_and_the_first_request() -> None:
    before = page("mtp3_before")
    facts = TRTLLM.facts(ANSWERS, before.values, before.info)
    assert (facts.engine, facts.version, facts.model) == ("trtllm", "1.3.0rc24", "glm")
    assert facts.max_model_len == 262_144
    assert (facts.block_size, facts.kv_capacity_tokens) == (32, 8192 * 32)
    assert (facts.num_speculative_tokens, facts.prefix_caching) == (3, True)
    assert facts.flags == {
        "enable_partial_reuse": "True",
        "cache_dtype": "fp8",
        "quantization": "FP8",
        "speculative_method": "mtp",
    }
    assert "started_at" not in facts.sources


def test_a_server_that_has_served_nothing_or_keeps_no_figures_tells_less() -> None:
    facts = TRTLLM.facts(ANSWERS, {}, {})
    assert (facts.model, facts.version) == ("glm", "1.3.0rc24")
    assert (facts.max_model_len, facts.block_size, facts.kv_capacity_tokens) == (None, None, None)
    assert facts.prefix_caching is None and facts.num_speculative_tokens is None
    assert TRTLLM.expected_cached(6000, 6000, facts, MTP3) is None


def test_the_bare_names_of_early_versions_are_read_and_nothing_is_wrong_with_such_a_page() -> None:
    labels = 'engine_type="undefined",model_name="undefined"'
    early = (
        f'request_success_total{{finished_reason="stop",{labels}}} 3.0\n'
        f'request_success_total{{finished_reason="cancelled",{labels}}} 2.0\n'
        f"time_to_first_token_seconds_sum{{{labels}}} 0.5\n"
        f"time_to_first_token_seconds_count{{{labels}}} 3.0\n"
    )
    read = read_page(early, TRTLLM)
    assert read.problem is None
    assert read.values == {"requests_finished": 3, "requests_aborted": 2, "ttft_sum": 0.5, "ttft_count": 3}


def test_a_gauge_of_several_processes_is_one_server_s() -> None:
    text = "".join(f'trtllm_kv_cache_max_blocks{{model_name="glm",pid="{pid}"}} 8192.0\n' for pid in (7, 8))
    assert read_page(text, TRTLLM).values == {"kv_capacity_blocks": 8192}


def test_it_is_settled_once_the_request_is_published() -> None:
    before, after = page("mtp3_before").values, page("mtp3_after_replay").values
    usage = Usage(prompt_tokens=6000, completion_tokens=64, cached_tokens=5999)
    assert not TRTLLM.settled(before, before, usage)
    assert TRTLLM.settled(before, after, usage)
    assert TRTLLM.settled({}, before, usage)  # its first request: the families appear with it


def test_fields_are_those_that_the_server_takes_and_ask_for_the_tokens_of_every_chunk() -> None:
    """It refuses unknown fields: these are in `ChatCompletionRequest` and `CompletionRequest`."""
    both = {"stream", "stream_options", "temperature", "seed", "ignore_eos"}
    chat = TRTLLM.body_fields(RequestSettings(seed=1, chat_template_kwargs={"a": 1}))
    assert set(chat) == both | {"chat_template_kwargs"}
    assert chat["stream_options"] == {"include_usage": True, "continuous_usage_stats": True}
    plain = RequestSettings(seed=1, endpoint="completions", chat_template_kwargs={"a": 1})
    assert set(TRTLLM.body_fields(plain)) == both
    assert TRTLLM.tokenize_request("a", "glm") is None


@pytest.mark.parametrize(
    ("shared", "prompt", "whole", "most"),
    [
        (6000, 6000, 5984, 5999),  # 187 blocks of 32
        (32, 32, 0, 31),  # without its last token no block is whole
        (33, 33, 32, 32),
        (300, 6000, 288, 300),
        (0, 6000, 0, 0),
    ],
)
def test_a_replay_reuses_whole_blocks_and_more_where_parts_may_be_copied(
    shared: int, prompt: int, whole: int, most: int
) -> None:
    for flags, end in (
        ({}, most),
        ({"enable_partial_reuse": "True"}, most),
        ({"enable_partial_reuse": "False"}, whole),
    ):
        facts = ServerFacts(engine="trtllm", block_size=32, flags=flags)
        assert TRTLLM.expected_cached(shared, prompt, facts, None) == (whole, end)
        assert TRTLLM.expected_cached(shared, prompt, facts, MTP3) == (whole, end)


def test_nothing_is_expected_where_reuse_is_off() -> None:
    off = ServerFacts(engine="trtllm", block_size=32, prefix_caching=False)
    assert TRTLLM.expected_cached(6000, 6000, off, None) == (0, 0)
