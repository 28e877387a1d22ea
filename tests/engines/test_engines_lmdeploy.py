"""LMDeploy: its page, its facts, and how much of a prompt it gives back.

The pages and answers were constructed after the sources of 0.18.0, not recorded.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.analysis.verdicts.counters import cached_prompt_tokens, difference, speculation
from bench.engines import detect, get
from bench.engines.metrics import Page, read_page
from bench.errors import EngineError
from bench.records import RequestSettings, Scrape, ServerFacts, Speculation, Usage

PAGES = Path(__file__).parent.parent / "recordings" / "pages" / "others"
LMDEPLOY = get("lmdeploy")
MTP4 = Speculation(method="mtp", num_speculative_tokens=4)
ENGINE = {"tp_size": 4, "dp_size": 1, "ep_size": 1, "dp_rank": 0, "block_size": 64, "num_gpu_blocks": 0}
ANSWERS: dict[str, object] = {
    "/v1/models": {"object": "list", "data": [{"id": "qwen", "object": "model", "owned_by": "lmdeploy"}]},
    "/distserve/engine_info": json.dumps(ENGINE),
}


def page(name: str) -> Page:
    text = (PAGES / f"lmdeploy_0.18.0_constructed_{name}.prom").read_text(encoding="utf-8")
    return read_page(text, LMDEPLOY)


def scrape(name: str) -> Scrape:
    return Scrape(at_ns=0, took_ns=0, status=200, values=page(name).values)


def test_it_is_recognised_by_its_page_and_by_the_owner_of_its_model() -> None:
    assert detect(ANSWERS, None) is LMDEPLOY
    assert detect({}, "# TYPE lmdeploy:prompt_tokens counter\n") is LMDEPLOY


def test_a_page_is_read_under_its_own_units() -> None:
    read = page("mtp4_before")
    assert read.problem is None
    assert read.values == {
        "prompt_tokens": 10_000,
        "generation_tokens": 128,
        "cached_tokens": 0,
        "requests_finished": 1,
        "drafts": 40,
        "draft_tokens": 160,
        "accepted_tokens": 87,
        "accepted_tokens_per_pos.0": 36,
        "accepted_tokens_per_pos.1": 25,
        "accepted_tokens_per_pos.2": 16,
        "accepted_tokens_per_pos.3": 10,
        "running": 1,
        "waiting": 0,
        "kv_usage": 0.25,
        "ttft_sum": 2.5,
        "ttft_count": 1,
        "queue_sum": 0.5,
        "queue_count": 1,
        "prefill_sum": 1.5,
        "prefill_count": 1,
        "decode_sum": 2,
        "decode_count": 1,
        "e2e_sum": 4.5,
        "e2e_count": 1,
        "process_start": 1.79e9,
    }


def test_a_replay_moves_its_drafts_and_its_cached_tokens() -> None:
    moved = difference(scrape("mtp4_before"), scrape("mtp4_after_replay"), LMDEPLOY)
    assert (moved.fell, moved.vanished) == ((), ())
    assert (moved.count("requests_finished"), moved.count("prompt_tokens")) == (1, 10_000)
    assert cached_prompt_tokens(moved, ServerFacts(block_size=64), 10_000).tokens == 9920
    counted = speculation(moved, {}, ServerFacts(), 128)
    assert (counted.drafts, counted.draft_tokens, counted.accepted_tokens) == (38, 152, 89)
    assert counted.per_position == (35, 26, 17, 11)
    assert moved.count("generation_tokens") == 1 + 38 + 89


def test_facts_are_the_model_the_block_and_k() -> None:
    read = page("mtp4_before")
    facts = LMDEPLOY.facts(ANSWERS, read.values, read.info)
    assert (facts.engine, facts.model, facts.block_size) == ("lmdeploy", "qwen", 64)
    assert (facts.num_speculative_tokens, facts.started_at) == (4, 1.79e9)
    assert (facts.version, facts.max_model_len, facts.prefix_caching) == (None, None, None)
    assert facts.sources["block_size"] == "/distserve/engine_info (as it was started)"


@pytest.mark.parametrize(
    "answer",
    [
        None,
        {"block_size": 64},
        "no JSON",
        "[64]",
        '{"block_size": "big"}',
        "[" * 60_000,
        json.dumps({**ENGINE, "x": "x" * 99_999}),
    ],
)
def test_an_engine_that_does_not_tell_its_block_has_none(answer: object) -> None:
    facts = LMDEPLOY.facts({**ANSWERS, "/distserve/engine_info": answer}, {}, {})
    assert facts.block_size is None and facts.num_speculative_tokens is None
    assert LMDEPLOY.expected_cached(10_000, 10_000, facts, MTP4) is None


def test_it_is_settled_with_the_finished_request_whatever_its_gauges_say() -> None:
    before, after = page("mtp4_before").values, page("mtp4_after_replay").values
    usage = Usage(prompt_tokens=10_000, completion_tokens=128)
    assert not LMDEPLOY.settled(before, after | {"requests_finished": 1.0}, usage)
    assert LMDEPLOY.settled(before, after, usage)
    assert after["running"] == 1 and LMDEPLOY.lagging_gauges  # renewed every ten seconds: not believed


def test_texts_are_tokenised_by_its_own_endpoint() -> None:
    body = {"input": "a", "do_preprocess": False, "add_bos": True}
    assert LMDEPLOY.tokenize_request("a", "qwen") == ("/v1/encode", body)
    assert LMDEPLOY.pieces_request("a", "qwen") == ("/v1/encode", {**body, "add_bos": False})
    answer = {"input_ids": [5, 6, 7], "length": 3}
    assert LMDEPLOY.read_tokens(answer) == [5, 6, 7]
    assert LMDEPLOY.read_pieces(answer) is None
    with pytest.raises(EngineError, match="no list"):
        LMDEPLOY.read_tokens({"detail": "Not Found"})


def test_usage_in_every_chunk_is_not_asked_for_since_it_has_none() -> None:
    body = LMDEPLOY.body_fields(RequestSettings(seed=1))
    assert body["stream_options"] == {"include_usage": True}
    assert body["ignore_eos"] is True and body["seed"] == 1


@pytest.mark.parametrize(
    ("shared", "prompt", "plain", "drafted"),
    [
        (10_000, 10_000, 9984, 9920),  # 156 whole blocks of 64 lie before the last token
        (128, 128, 64, 0),
        (129, 129, 128, 64),
        (64, 64, 0, 0),
        (300, 10_000, 256, 256),  # far from the end a drafter loses nothing
        (9984, 10_000, 9984, 9920),
    ],
)
def test_a_replay_reuses_whole_blocks_and_a_drafter_computes_the_last_one_again(
    shared: int, prompt: int, plain: int, drafted: int
) -> None:
    facts = ServerFacts(engine="lmdeploy", block_size=64)
    assert LMDEPLOY.expected_cached(shared, prompt, facts, None) == (plain, plain)
    assert LMDEPLOY.expected_cached(shared, prompt, facts, MTP4) == (drafted, drafted)
    shown = ServerFacts(engine="lmdeploy", block_size=64, num_speculative_tokens=4)
    assert LMDEPLOY.expected_cached(shared, prompt, shown, None) == (drafted, drafted)
