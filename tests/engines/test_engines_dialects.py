"""Dialects: detection, facts, tokenisation, settling, and the rule of the prefix cache."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.engines import DIALECTS, detect, get
from bench.engines.base import Step, version_key
from bench.engines.metrics import read_page
from bench.errors import EngineError, SuiteError
from bench.records import RequestSettings, ServerFacts, Speculation, Usage

PAGES = Path(__file__).parent.parent / "recordings" / "pages"
MTP2 = Speculation(method="mtp", num_speculative_tokens=2)
MTP4 = Speculation(method="mtp", num_speculative_tokens=4)
NGRAM4 = Speculation(method="ngram", num_speculative_tokens=4)


def answers(folder: str) -> dict[str, object]:
    names = {
        "/version": "version",
        "/props": "props",
        "/v1/models": "models",
        "/server_info": "server_info",
    }
    return {
        path: json.loads((PAGES / folder / f"{name}.json").read_text(encoding="utf-8"))
        for path, name in names.items()
    }


def page_of(name: str) -> str:
    return (PAGES / name).read_text(encoding="utf-8")


# --- Detection ------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", sorted(PAGES.rglob("*.prom")), ids=lambda path: path.name)
def test_every_recorded_page_is_recognised_by_itself(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    known = ("vllm", "sglang", "llamacpp", "trtllm", "lmdeploy")
    engine = next(e for e in known if e in f"{path.parent.name}/{path.name}")
    loading = text.startswith("{")  # the 503 of a model that is still loading
    assert detect({}, text).name == ("generic" if loading else engine)


@pytest.mark.parametrize(
    ("folder", "name"),
    [("vllm-0.32-mtp4", "vllm"), ("vllm-0.32-ngram4", "vllm"), ("llamacpp-11549-ngram4", "llamacpp")],
)
def test_every_recorded_server_is_recognised_without_a_page(folder: str, name: str) -> None:
    assert detect(answers(folder), None).name == name


@pytest.mark.parametrize(
    ("probes", "name"),
    [
        ({"/version": {"version": "0.9.2"}}, "vllm"),
        ({"/version": {"detail": "Not Found"}}, "generic"),
        ({"/get_model_info": {"model_path": "m", "is_generation": True}}, "sglang"),
        ({"/server_info": {"internal_states": [], "version": "0.5.23"}}, "sglang"),
        ({"/props": {"error": {"code": 404}}}, "generic"),
        ({"/v1/models": {"data": [{"id": "m", "owned_by": "sglang"}]}}, "sglang"),
        ({"/v1/models": {"data": [{"id": "m", "owned_by": "me"}]}}, "generic"),
        ({"/v1/models": [1, 2], "/version": "text", "/props": None}, "generic"),
        ({}, "generic"),
    ],
)
def test_single_answers_are_enough_and_odd_ones_mislead_nobody(probes: dict[str, object], name: str) -> None:
    assert detect(probes, None).name == name


def test_an_unknown_engine_is_refused_with_the_known_ones() -> None:
    with pytest.raises(SuiteError, match=r"'vlm'.*llamacpp, sglang, trtllm, lmdeploy, vllm, generic"):
        get("vlm")


def test_the_registry_names_its_dialects_rightly_and_probes_all_they_read() -> None:
    assert all(name == dialect.name for name, dialect in DIALECTS.items())
    probed = {path for dialect in DIALECTS.values() for path in dialect.probes}
    assert probed >= {"/version", "/props", "/server_info", "/v1/models", "/get_model_info"}


# --- Facts ----------------------------------------------------------------------------------------


def test_facts_of_a_real_vllm_server_with_mtp() -> None:
    page = read_page(page_of("vllm-0.32-mtp4/metrics_0_before.prom"), get("vllm"))
    facts = get("vllm").facts(answers("vllm-0.32-mtp4"), page.values, page.info)
    assert facts.version == "0.32.0"
    assert facts.model == "tiny"
    assert facts.max_model_len == 16_384
    assert facts.block_size == 128
    assert facts.kv_capacity_tokens == 1_398_016  # mtp_lab: less than the 2,097,152 without a drafter
    assert facts.num_speculative_tokens == 4
    assert facts.prefix_caching is True
    assert facts.flags["speculative_method"] == "mtp"
    assert facts.sources["kv_capacity_tokens"] == "cache_config_info kv_cache_size_tokens"
    assert facts.drafter_limit is None and "drafter_limit" not in facts.sources


def test_facts_of_an_old_vllm_server_multiply_blocks() -> None:
    page = read_page(page_of("others/vllm_v1_0.8.5_mtp2_after.prom"), get("vllm"))
    facts = get("vllm").facts({}, page.values, page.info)
    assert (facts.block_size, facts.kv_capacity_tokens) == (16, 65_536 * 16)
    assert facts.num_speculative_tokens == 2
    assert facts.version is None and facts.model is None


def test_facts_of_a_real_llamacpp_server() -> None:
    page = read_page(page_of("llamacpp-11549-ngram4/metrics_0_before.prom"), get("llamacpp"))
    facts = get("llamacpp").facts(answers("llamacpp-11549-ngram4"), page.values, page.info)
    assert facts.max_model_len == 8192  # n_ctx is per slot
    assert facts.kv_capacity_tokens == 16_384
    assert facts.block_size == 1
    assert facts.version == "b0-unknown"
    assert facts.flags == {
        "slots": "2",
        "model_path": "SmolLM2-135M-Instruct.Q4_1.gguf",
        "model_ftype": "Q4_1",
    }


def test_facts_of_an_sglang_page_count_drafts_without_their_root() -> None:
    page = read_page(page_of("others/sglang_0.5.23_mtp_after_cold.prom"), get("sglang"))
    server = {"version": "0.5.23", "speculative_algorithm": "EAGLE", "enable_cache_report": True}
    facts = get("sglang").facts({"/server_info": server}, page.values, page.info)
    assert (facts.block_size, facts.kv_capacity_tokens, facts.max_model_len) == (1, 1_048_576, 1_048_576)
    assert facts.num_speculative_tokens == 3
    assert facts.version == "0.5.23"
    assert facts.flags["speculative_method"] == "eagle"
    assert facts.reports_cached_tokens is True


def test_facts_of_a_strange_server_are_empty_and_nothing_fails() -> None:
    odd = {
        "/v1/models": {"data": [{"id": 7, "max_model_len": "many"}]},
        "/props": {"total_slots": "x", "default_generation_settings": 3},
        "/server_info": {"vllm_config": {"speculative_config": "no"}, "version": 5},
        "/version": {"version": None},
    }
    for dialect in DIALECTS.values():
        facts = dialect.facts(odd, {}, {"block_size": "None"})
        assert (facts.version, facts.model, facts.max_model_len) == (None, None, None)


def test_a_json_configuration_of_vllm_tells_method_and_k() -> None:
    config = {"vllm_config": {"speculative_config": {"method": "eagle3", "num_speculative_tokens": 5}}}
    facts = get("vllm").facts({"/server_info": config}, {}, {})
    assert (facts.flags["speculative_method"], facts.num_speculative_tokens) == ("eagle3", 5)


def test_versions_compare_by_their_numbers() -> None:
    assert version_key("0.32.0+cpu") == (0, 32, 0)
    assert version_key("v0.8.5.post1") == (0, 8, 5)
    assert version_key("b11434-abc") == (11434,)
    assert version_key("1." + "9" * 5000) == (1,) and version_key("9" * 5000) is None
    assert version_key("nightly") is None and version_key(None) is None


# --- Tokens ---------------------------------------------------------------------------------------


def test_the_recorded_tokenize_answers_are_read() -> None:
    for folder, tokens in (
        ("vllm-0.32-mtp4", [2861, 334, 14, 1969, 698, 16]),
        ("llamacpp-11549-ngram4", [19556, 28, 986, 2468, 30]),
    ):
        answer = json.loads(page_of(f"{folder}/tokenize.json"))
        assert DIALECTS[folder.split("-")[0]].read_tokens(answer) == tokens


@pytest.mark.parametrize("answer", [None, [], {}, {"tokens": 3}, {"tokens": ["a"]}, {"tokens": [True]}])
def test_an_answer_without_tokens_is_an_engine_error(answer: object) -> None:
    with pytest.raises(EngineError, match="/tokenize"):
        get("vllm").read_tokens(answer)


def test_tokenize_requests_count_as_the_completions_endpoint_does() -> None:
    assert get("vllm").tokenize_request("a", "m") == (
        "/tokenize",
        {"model": "m", "prompt": "a", "add_special_tokens": True},
    )
    assert get("llamacpp").tokenize_request("a", "m") == (
        "/tokenize",
        {"content": "a", "add_special": True, "parse_special": True},
    )
    assert get("generic").tokenize_request("a", "m") is None


def test_a_chat_is_tokenised_in_one_step_by_vllm_and_in_two_by_llamacpp() -> None:
    chat = [{"role": "user", "content": "hi"}]
    (only,) = get("vllm").tokenize_messages_request(chat, "m", {"enable_thinking": False})
    assert only.path == "/tokenize"
    assert only.body["messages"] == chat and only.body["add_generation_prompt"] is True
    assert only.body["chat_template_kwargs"] == {"enable_thinking": False}
    first, second = get("llamacpp").tokenize_messages_request(chat, "m")
    assert (first.path, second.path) == ("/apply-template", "/tokenize")
    assert second.body_after({"prompt": "<s>hi"}) == {
        "add_special": True,
        "parse_special": True,
        "content": "<s>hi",
    }
    assert "content" not in second.body  # the step itself is never changed
    assert get("sglang").tokenize_messages_request(chat, "m") is None


def test_a_step_without_its_answer_is_an_engine_error() -> None:
    step = Step(path="/tokenize", body={}, fill={"content": "prompt"})
    for answer in ({"error": "no"}, None, "text"):
        with pytest.raises(EngineError, match="'prompt'"):
            step.body_after(answer)


def test_pieces_are_bytes_whatever_way_an_engine_writes_them() -> None:
    llama = {"tokens": [{"id": 1, "piece": "Hel"}, {"id": 2, "piece": [195]}, {"id": 3, "piece": [169]}]}
    assert get("llamacpp").read_pieces(llama) == [b"Hel", b"\xc3", b"\xa9"]
    byte_level = {"token_strs": ["Hel", "lo", "Ġworld", "Ċ", "Ã", "©"]}
    pieces = get("vllm").read_pieces(byte_level)
    assert pieces is not None and b"".join(pieces).decode() == "Hello world\né"
    sentencepiece = {"token_strs": ["▁Hello", "▁world", "<0x0A>"]}
    assert get("vllm").read_pieces(sentencepiece) == [b" Hello", b" world", b"\n"]


@pytest.mark.parametrize(
    "answer", [None, {}, {"token_strs": None}, {"token_strs": [1]}, {"token_strs": ["語"]}]
)
def test_pieces_that_are_not_there_are_none(answer: object) -> None:
    assert get("vllm").read_pieces(answer) is None
    assert get("llamacpp").read_pieces(answer) is None
    assert get("generic").read_pieces(answer) is None


# --- Request body ---------------------------------------------------------------------------------


def test_every_field_of_a_request_is_sent_explicitly() -> None:
    settings = RequestSettings(seed=7, chat_template_kwargs={"a": 1}, extra_body={"top_k": 1})
    body = get("vllm").body_fields(settings)
    assert body == {
        "stream": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
        "temperature": 0.0,
        "seed": 7,
        "ignore_eos": True,
        "chat_template_kwargs": {"a": 1},
        "top_k": 1,
    }


def test_fields_that_an_engine_or_endpoint_does_not_know_are_left_out() -> None:
    settings = RequestSettings(endpoint="completions", ignore_eos=False, chat_template_kwargs={"a": 1})
    for name in DIALECTS:
        body = get(name).body_fields(settings)
        assert "chat_template_kwargs" not in body and "ignore_eos" not in body and "seed" not in body
        assert "return_token_ids" not in body  # the server would send a long prompt back
    assert get("llamacpp").body_fields(settings)["cache_prompt"] is True
    assert "continuous_usage_stats" not in get("llamacpp").body_fields(settings)["stream_options"]


def test_the_users_own_fields_win() -> None:
    settings = RequestSettings(extra_body={"temperature": 1.0, "stream_options": {"include_usage": False}})
    assert get("generic").body_fields(settings)["temperature"] == 1.0


# --- Idle and settled -----------------------------------------------------------------------------


def test_idle_means_nothing_runs_and_nothing_waits() -> None:
    idle = get("vllm").is_idle
    assert idle({"running": 0, "waiting": 0}) is True
    assert idle({"running": 0, "waiting": 1}) is False
    assert idle({"running": 1}) is False
    assert idle({}) is None


def test_vllm_is_settled_when_the_request_is_finished_and_its_tokens_are_there() -> None:
    settled = get("vllm").settled
    before = {"requests_finished": 3.0, "generation_tokens": 100.0, "prompt_tokens": 1000.0}
    usage = Usage(prompt_tokens=500, completion_tokens=64)
    whole = {"requests_finished": 4.0, "generation_tokens": 164.0, "prompt_tokens": 1500.0}
    assert settled(before, whole, usage)
    assert not settled(before, whole | {"requests_finished": 3.0}, usage)
    assert not settled(before, whole | {"generation_tokens": 160.0}, usage)
    assert not settled(before, whole | {"prompt_tokens": 1499.0}, usage)
    assert settled(before, whole | {"generation_tokens": 900.0}, usage)  # foreign tokens: not ours to await
    assert settled(before, whole, None)
    assert settled({}, {}, usage)  # no page, nothing to wait for


def test_sglang_is_not_settled_before_its_first_series_appear() -> None:
    usage = Usage(prompt_tokens=6000, completion_tokens=66)
    before = read_page(page_of("others/sglang_0.4.9_mtp_before.prom"), get("sglang")).values
    after = read_page(page_of("others/sglang_0.4.9_mtp_after_cold.prom"), get("sglang")).values
    assert not get("sglang").settled(before, before, usage)
    assert get("sglang").settled(before, after, usage)


def test_llamacpp_is_settled_with_computed_and_cached_tokens_together() -> None:
    settled = get("llamacpp").settled
    pages = [
        read_page(page_of(f"llamacpp-11549-ngram4/metrics_{name}.prom"), get("llamacpp")).values
        for name in ("2_after_salted", "3_after_replay")
    ]
    usage = Usage(prompt_tokens=4813, completion_tokens=96, cached_tokens=4812)
    assert settled(*pages, usage)
    assert not settled(pages[0], pages[0], usage)
    assert not settled(pages[0], pages[1] | {"prompt_tokens_cached": 0, "cached_tokens": 4000.0}, usage)


def test_llamacpp_counters_above_a_million_are_trusted_to_six_digits() -> None:
    before = {"prompt_tokens": 1_048_580.0, "cached_tokens": 0.0, "generation_tokens": 10.0}
    after = {"prompt_tokens": 1_049_080.0, "cached_tokens": 0.0, "generation_tokens": 74.0}
    settled = get("llamacpp").settled
    assert settled(before, after, Usage(prompt_tokens=508, completion_tokens=64))
    assert not settled(before, after, Usage(prompt_tokens=540, completion_tokens=64))


# --- Prefix cache ---------------------------------------------------------------------------------


def vllm(block: int | None, version: str | None = "0.32.0", **more: object) -> ServerFacts:
    return ServerFacts(engine="vllm", version=version, block_size=block, **more)  # type: ignore[arg-type]


def test_the_published_replay_hit_is_the_rule() -> None:
    # (floor(564,576 / 1,616) - 1) * 1,616
    assert get("vllm").expected_cached(564_577, 564_577, vllm(1616), MTP4) == (562_368, 562_368)


@pytest.mark.parametrize(
    ("prompt", "plain", "mtp"),
    [
        (128, 0, 0),
        (129, 128, 0),
        (256, 128, 0),
        (257, 256, 128),
        (300, 256, 128),
        (1000, 896, 768),
        (4000, 3968, 3840),
        (4793, 4736, 4608),  # recorded: vllm-0.32-mtp4
        (8000, 7936, 7808),
    ],
)
def test_a_replay_reuses_whole_blocks_and_mtp_loses_one(prompt: int, plain: int, mtp: int) -> None:
    rule = get("vllm").expected_cached
    assert rule(prompt, prompt, vllm(128), None) == (plain, plain)
    assert rule(prompt, prompt, vllm(128), NGRAM4) == (plain, plain)
    assert rule(prompt, prompt, vllm(128), MTP2) == (mtp, mtp)


def test_a_shared_prefix_counts_as_far_as_it_goes() -> None:
    # 600 tokens of which 300 are known: two whole blocks; a separate draft model drops none.
    draft = Speculation(method="draft_model", num_speculative_tokens=4)
    assert get("vllm").expected_cached(300, 600, vllm(128), draft) == (256, 256)


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("0.8.5", (128, 128)),
        ("0.32.0", (128, 128)),
        ("0.33.0", (128, 256)),
        ("0.8.4", (128, 256)),
        (None, (128, 256)),
    ],
)
def test_the_dropped_block_depends_on_the_version(version: str | None, expected: tuple[int, int]) -> None:
    assert get("vllm").expected_cached(300, 300, vllm(128, version), MTP2) == expected


def test_knobs_and_unknowns_widen_or_close_the_expectation() -> None:
    rule = get("vllm").expected_cached
    kept = vllm(128, "0.31.0", flags={"disable_eagle_block_drop": "True"})
    assert rule(300, 300, kept, MTP2) == (128, 256)
    assert rule(300, 300, vllm(128, prefix_caching=False), None) == (0, 0)
    assert rule(300, 300, vllm(None), None) is None
    assert rule(300, 300, vllm(128, num_speculative_tokens=2), None) == (128, 256)  # method unknown
    finer = vllm(128, "0.26.0", flags={"hash_block_size": "16"})
    assert rule(300, 300, finer, MTP2) == (128, 272)  # floor(299 / 16) - 1 units of 16


def test_token_level_caches_reuse_all_but_the_last_token() -> None:
    assert get("llamacpp").expected_cached(422, 422, ServerFacts(), None) == (421, 421)
    assert get("llamacpp").expected_cached(100, 422, ServerFacts(), None) == (100, 100)
    assert get("sglang").expected_cached(6000, 6000, ServerFacts(block_size=1), None) == (5999, 5999)
    assert get("sglang").expected_cached(6000, 6000, ServerFacts(block_size=1), MTP4) == (5998, 5999)
    assert get("sglang").expected_cached(6000, 6000, ServerFacts(block_size=64), None) == (5952, 5952)
    assert get("generic").expected_cached(10, 10, ServerFacts(), None) is None


# --- Figures in the reply -------------------------------------------------------------------------


def test_timings_of_llamacpp_are_exact_counts() -> None:
    timings = {
        "timings.cache_n": 421.0,
        "timings.prompt_n": 1.0,
        "timings.prompt_ms": 34.5,
        "timings.predicted_n": 40.0,
        "timings.predicted_ms": 18.5,
        "timings.draft_n": 31.0,
        "timings.draft_n_accepted": 30.0,
    }
    assert get("llamacpp").reported(timings) == {
        "cached_tokens": 421,
        "prompt_tokens": 422,
        "output_tokens": 40,
        "draft_tokens": 31,
        "accepted_tokens": 30,
        "prefill_s": 0.0345,
        "decode_s": 0.0185,
    }
    without = {k: v for k, v in timings.items() if "draft" not in k and "cache" not in k}
    old = get("llamacpp").reported(without)
    assert old["draft_tokens"] == 0  # left out of the reply when nothing was drafted
    assert "cached_tokens" not in old and "prompt_tokens" not in old  # builds of 2025 do not say
    assert get("llamacpp").reported({}) == {}


def test_opt_in_metrics_of_vllm_replies_are_taken() -> None:
    figures = {
        "metrics.speculative_decoding.num_spec_steps": 29.0,
        "metrics.speculative_decoding.num_draft_tokens": 116.0,
        "metrics.speculative_decoding.num_accepted_draft_tokens": 66.0,
        "metrics.queue_time_ms": 12.0,
    }
    assert get("vllm").reported(figures) == {
        "drafts": 29,
        "draft_tokens": 116,
        "accepted_tokens": 66,
        "queue_s": 0.012,
    }
