"""Every page pair of the recordings gives the numbers worked out by hand from its two pages."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import pytest
from analysis_cases import PAGES, answers, exchange, ids, measure, run, scrape

from bench.engines import get
from bench.records import Measurement, ServerFacts, Speculation, Usage

MTP2 = Speculation(method="mtp", num_speculative_tokens=2)
MTP4 = Speculation(method="mtp", num_speculative_tokens=4)
NGRAM2 = Speculation(method="ngram", num_speculative_tokens=2)
NGRAM4 = Speculation(method="ngram", num_speculative_tokens=4)
DRAFT4 = Speculation(method="draft_model", num_speculative_tokens=4)
VLLM_032 = ServerFacts(engine="vllm", version="0.32.0")


def between(
    engine: str,
    before: str,
    after: str,
    *,
    prompt: int,
    output: int,
    cached: int | None,
    condition: str = "cold",
    speculation: Speculation | None = None,
    facts: ServerFacts | None = None,
    **more: object,
) -> Measurement:
    one = exchange(
        condition,
        engine=engine,
        prompt=prompt,
        output=output,
        cached=cached,
        before=scrape(engine, before),
        after=scrape(engine, after),
        **more,
    )
    return measure(one, info=run(speculation, facts))


# --- vLLM 0.32, native MTP, k = 4, blocks of 128 -----------------------------------------------------


@pytest.mark.parametrize(
    ("condition", "step", "prompt", "cached", "drafts", "drafted", "accepted", "places"),
    [
        ("cold", ("0_before", "1_after_cold"), 4793, 0, 29, 116, 66, (24, 22, 13, 7)),
        ("salted", ("1_after_cold", "2_after_salted"), 4794, 0, 28, 112, 67, (24, 23, 13, 7)),
        ("replay", ("2_after_salted", "3_after_replay"), 4793, 4608, 29, 116, 66, (24, 22, 13, 7)),
    ],
)
def test_vllm_mtp4(
    condition: str,
    step: tuple[str, str],
    prompt: int,
    cached: int,
    drafts: int,
    drafted: int,
    accepted: int,
    places: tuple[int, ...],
) -> None:
    m = between(
        "vllm",
        *(f"vllm-0.32-mtp4/metrics_{name}.prom" for name in step),
        prompt=prompt,
        output=96,
        cached=cached,
        condition=condition,
        speculation=MTP4,
        facts=VLLM_032,
    )
    assert (m.drafts, m.draft_tokens, m.accepted_tokens) == (drafts, drafted, accepted)
    assert m.acceptance == accepted / drafted
    assert m.acceptance_length == 1 + accepted / drafts
    assert m.acceptance_per_position == tuple(place / drafts for place in places)
    assert (m.cached_tokens, m.cached_usage, m.cached_counter) == (cached, cached, cached)
    assert m.prefix_reuse == cached / prompt
    assert m.expected_cached == (4608 if condition == "replay" else None)  # (37 - 1) * 128
    assert m.preemptions == 0
    assert m.verdict.valid and m.verdict.reuse == "held" and m.verdict.speculation == "as declared"


def test_vllm_server_times_of_one_request_are_differences_of_histogram_sums() -> None:
    m = between(
        "vllm",
        "vllm-0.32-mtp2-over-limit/p3900_cold_before.prom",
        "vllm-0.32-mtp2-over-limit/p3900_cold_after.prom",
        prompt=3900,
        output=128,
        cached=0,
        speculation=MTP2,
        ttft_ms=2570,
    )
    assert m.server_ttft_s == 2.564668893814087
    assert m.queue_s == 4.457300019566901e-05
    assert m.prefill_s == 2.552012852000189
    assert m.server_decode_s == 0.9911526359992422
    assert m.sources["server_ttft_s"] == "histogram ttft"
    assert "server_time_differs" not in ids(m)[1]


def test_two_requests_between_two_pages_are_foreign_traffic_and_give_no_single_time() -> None:
    m = between(
        "vllm",
        "vllm-0.32-mtp4/metrics_3_after_replay.prom",
        "vllm-0.32-mtp4/metrics_4_end.prom",  # completions_cold (4,784 + 96) and another of 11 + 8
        prompt=4784,
        output=96,
        cached=0,
        speculation=MTP4,
    )
    assert m.server_ttft_s is None
    assert m.absent["server_ttft_s"] == "the engine does not report it for one request alone"
    assert ids(m)[0] == ["foreign_traffic"]
    detail = m.verdict.reasons[0].detail
    assert "2 requests finished, 1 ours" in detail
    assert "104 generation tokens, 96 ours" in detail and "4,795 prompt tokens, 4,784 ours" in detail


# --- vLLM 0.32, n-gram drafter, k = 4: no block is dropped -------------------------------------------


@pytest.mark.parametrize(
    ("condition", "step", "prompt", "cached"),
    [
        ("cold", ("0_before", "1_after_cold"), 3373, 0),
        ("salted", ("1_after_cold", "2_after_salted"), 3374, 0),
        ("replay", ("2_after_salted", "3_after_replay"), 3373, 3328),  # 26 * 128
    ],
)
def test_vllm_ngram4(condition: str, step: tuple[str, str], prompt: int, cached: int) -> None:
    m = between(
        "vllm",
        *(f"vllm-0.32-ngram4/metrics_{name}.prom" for name in step),
        prompt=prompt,
        output=96,
        cached=cached,
        condition=condition,
        speculation=NGRAM4,
        facts=VLLM_032,
    )
    assert (m.drafts, m.draft_tokens, m.accepted_tokens) == (22, 81, 77)
    assert m.acceptance == 77 / 81 and m.acceptance_length == 4.5
    assert m.acceptance_per_position == (21 / 22, 19 / 22, 19 / 22, 18 / 22)
    assert m.cached_counter == cached
    assert m.verdict.valid and m.verdict.reuse == "held"


def test_the_rule_for_a_block_more_would_have_called_the_ngram_replay_short() -> None:
    """The same replay on a route with MTP: one block less is expected, and more came."""
    m = between(
        "vllm",
        "vllm-0.32-ngram4/metrics_2_after_salted.prom",
        "vllm-0.32-ngram4/metrics_3_after_replay.prom",
        prompt=3373,
        output=96,
        cached=3328,
        condition="replay",
        speculation=MTP4,
        facts=VLLM_032,
    )
    assert m.expected_cached == 3200
    assert "reuse_above_rule" in ids(m)[1]


# --- vLLM 0.32, MTP k = 2 whose drafter ends at 4,096 -------------------------------------------------

OVER_LIMIT = [
    # prompt, drafts, drafted, accepted, per position, state with the limit known
    (3900, 59, 118, 68, (42, 26), "as declared"),
    (4000, 70, 140, 57, (32, 25), "crosses"),
    (4090, 125, 250, 2, (1, 1), "fallback"),
    (12000, 127, 254, 0, (0, 0), "fallback"),
]


@pytest.mark.parametrize(("prompt", "drafts", "drafted", "accepted", "places", "state"), OVER_LIMIT)
@pytest.mark.parametrize("limit", [4096, None])
def test_vllm_past_the_drafter_limit(
    prompt: int,
    drafts: int,
    drafted: int,
    accepted: int,
    places: tuple[int, int],
    state: str,
    limit: int | None,
) -> None:
    folder = "vllm-0.32-mtp2-over-limit"
    m = between(
        "vllm",
        f"{folder}/p{prompt}_cold_before.prom",
        f"{folder}/p{prompt}_cold_after.prom",
        prompt=prompt,
        output=128,
        cached=0,
        speculation=MTP2,
        facts=ServerFacts(engine="vllm", version="0.32.0", drafter_limit=limit),
        ttft_ms={3900: 2565, 4000: 3035, 4090: 2880, 12000: 8646}[prompt],
    )
    assert (m.drafts, m.draft_tokens, m.accepted_tokens) == (drafts, drafted, accepted)
    assert m.acceptance_per_position == (places[0] / drafts, places[1] / drafts)
    # Totals alone cannot tell an answer that crossed from one with modest acceptance.
    expected = "as declared" if limit is None and state == "crosses" else state
    assert m.verdict.speculation == expected
    assert m.verdict.valid
    warnings = ids(m)[1]
    said = "speculation_fallback" if limit else "drafts_rejected"
    assert (said in warnings) == (expected == "fallback")
    assert ("speculation_crosses" in warnings) == (expected == "crosses")


# --- vLLM 0.32 with a draft model limited to 512 positions --------------------------------------------


@pytest.mark.parametrize(
    ("names", "prompt", "output", "cached", "drafts", "drafted", "accepted", "condition"),
    [
        (("before", "after_cold"), 300, 64, 0, 62, 248, 1, "cold"),
        (("after_cold", "after_replay"), 300, 64, 256, 63, 252, 0, "replay"),
        (("after_replay", "after_overlimit"), 600, 40, 256, 39, 156, 0, "cold"),
    ],
)
def test_vllm_draft_model(
    names: tuple[str, str],
    prompt: int,
    output: int,
    cached: int,
    drafts: int,
    drafted: int,
    accepted: int,
    condition: str,
) -> None:
    m = between(
        "vllm",
        *(f"others/vllm_0.32.0_real_draft4_{name}.prom" for name in names),
        prompt=prompt,
        output=output,
        cached=cached,
        condition=condition,
        speculation=DRAFT4,
        facts=ServerFacts(engine="vllm", version="0.32.0", drafter_limit=512),
    )
    assert (m.drafts, m.draft_tokens, m.accepted_tokens) == (drafts, drafted, accepted)
    assert m.cached_counter == cached
    against, _ = ids(m)
    if prompt == 600:  # over the limit, and it shares 300 tokens with an earlier prompt
        assert m.verdict.speculation == "fallback"
        assert against == ["cold_hit"]
    elif condition == "replay":  # toy weights: nothing accepted although 300 + 64 + 4 < 512
        assert m.expected_cached == 256 and m.verdict.reuse == "held"
        assert m.verdict.speculation == "off" and against == ["speculation_off"]
    else:
        assert m.verdict.speculation == "as declared" and against == []


def test_the_totals_of_a_limited_drafter_read_as_one_route_past_its_limit() -> None:
    """`before` alone: 100 inside (16/64/64), 450 crossing (31/124/48), 700 over (79/316/0)."""
    totals = scrape("vllm", "others/vllm_0.32.0_real_draft4_before.prom").values
    assert totals["drafts"] == 16 + 31 + 79
    assert totals["draft_tokens"] == 64 + 124 + 316
    assert totals["accepted_tokens"] == 64 + 48 + 0


def test_vllm_ngram2() -> None:
    m = between(
        "vllm",
        "others/vllm_0.32.0_real_ngram2_before.prom",
        "others/vllm_0.32.0_real_ngram2_after.prom",
        prompt=920,
        output=12,
        cached=0,
        speculation=NGRAM2,
        ttft_ms=2193,
    )
    assert (m.drafts, m.draft_tokens, m.accepted_tokens) == (4, 6, 6)
    assert m.acceptance == 1.0 and m.acceptance_length == 2.5
    assert m.acceptance_per_position == (1.0, 0.5)
    assert m.server_ttft_s == 2.1928012371063232 and m.server_decode_s == 0.03822727100009615
    assert m.verdict.valid


def test_a_page_from_the_middle_of_other_requests_is_recognised() -> None:
    m = between(
        "vllm",
        "others/vllm_0.32.0_real_ngram2_after.prom",
        "others/vllm_0.32.0_real_ngram2_midrun.prom",
        prompt=1000,
        output=12,
        cached=0,
        speculation=NGRAM2,
    )
    assert "foreign_traffic" in ids(m)[0]
    assert m.kv_usage_peak is None and m.absent["kv_usage_peak"] == "no sample during the exchange"


# --- Older vLLM ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["0.8.5", "0.11.0"])
def test_vllm_v1_before_sources_of_prompt_tokens(version: str) -> None:
    m = between(
        "vllm",
        f"others/vllm_v1_{version}_mtp2_before.prom",
        f"others/vllm_v1_{version}_mtp2_after.prom",
        prompt=6000,
        output=66,
        cached=None,
        speculation=MTP2,
        facts=ServerFacts(engine="vllm", version=version),
    )
    assert (m.drafts, m.draft_tokens, m.accepted_tokens) == (28, 56, 37)
    assert m.acceptance == 37 / 56 and m.acceptance_length == 1 + 37 / 28
    assert m.acceptance_per_position == (23 / 28, 14 / 28)
    assert m.cached_usage is None
    assert m.cached_counter == m.cached_tokens == 0 and m.prefix_reuse == 0.0
    blocks = "counter gpu_prefix_cache_hits (blocks of 16)"
    assert m.sources["cached_tokens"] == (blocks if version == "0.8.5" else "counter prefix_hits")
    assert (m.server_ttft_s, m.queue_s, m.prefill_s, m.server_decode_s) == (1.912, 0.0004, 1.905, 0.705)
    assert m.verdict.speculation == "as declared"


def test_vllm_v0_gives_what_it_has_and_no_zeros_for_the_rest() -> None:
    m = between(
        "vllm",
        "others/vllm_v0_0.6.6_before.prom",
        "others/vllm_v0_0.6.6_after.prom",
        prompt=6000,
        output=66,
        cached=None,
        speculation=MTP2,
        facts=ServerFacts(engine="vllm", version="0.6.6"),
        ttft_ms=1910,
    )
    assert (m.drafts, m.draft_tokens, m.accepted_tokens) == (None, 52, 37)
    assert m.acceptance == pytest.approx(0.7115, abs=1e-4)  # the page's own gauge
    assert m.acceptance_length is None and m.acceptance_per_position is None
    assert m.absent["acceptance_length"] == "the engine does not count it"
    assert m.cached_tokens is None and m.prefix_reuse is None
    assert (m.server_ttft_s, m.queue_s, m.prefill_s, m.server_decode_s) == (1.91, 0.002, 1.91, 0.55)
    assert m.preemptions == 0
    assert m.verdict.reuse == "unknown"


# --- SGLang -------------------------------------------------------------------------------------------


def cold_and_replay_on_sglang(version: str) -> Iterator[Measurement]:
    """With three drafted tokens a step."""
    for before, after, condition in (
        ("before", "after_cold", "cold"),
        ("after_cold", "after_replay", "replay"),
    ):
        yield between(
            "sglang",
            f"others/sglang_{version}_mtp_{before}.prom",
            f"others/sglang_{version}_mtp_{after}.prom",
            prompt=6000,
            output=66,
            cached=None,
            condition=condition,
            speculation=Speculation(method="eagle", num_speculative_tokens=3),
        )


def test_sglang_of_2025_counts_no_speculation() -> None:
    cold, replay = cold_and_replay_on_sglang("0.4.9")
    assert cold.drafts is None and cold.accepted_tokens is None and cold.acceptance is None
    assert "speculation_unseen" in ids(cold)[1] and cold.verdict.speculation == "unknown"
    assert cold.cached_tokens is None  # the series appears with the first hit: absent on both pages
    assert cold.server_ttft_s == 1.874
    assert replay.cached_counter == 5999 and replay.expected_cached == 5998
    assert replay.verdict.reuse == "held"
    assert replay.server_ttft_s == pytest.approx(0.061)


def test_sglang_of_2026_counts_verify_steps() -> None:
    cold, replay = cold_and_replay_on_sglang("0.5.23")
    for m in (cold, replay):
        # 24 steps of k = 3; 66 tokens = 1 from prefill + 24 + 41 accepted
        assert (m.drafts, m.draft_tokens, m.accepted_tokens) == (24, 72, 41)
        assert m.acceptance_length == pytest.approx(2.71, abs=0.005)  # the page's own gauge
        assert m.acceptance == pytest.approx(0.57, abs=0.005)  # likewise
        assert m.verdict.valid and m.verdict.speculation == "as declared"
    assert cold.cached_counter == 0  # 6,000 of 6,000 computed, by the histogram of uncached tokens
    assert cold.sources["cached_tokens"] == "histogram computed_prompt_tokens"
    assert replay.cached_counter == 5999 and replay.verdict.reuse == "held"


# --- llama.cpp ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("condition", "step", "cached"),
    [
        ("cold", ("0_before", "1_after_cold"), 0),
        ("salted", ("1_after_cold", "2_after_salted"), 0),
        ("replay", ("2_after_salted", "3_after_replay"), 4812),
    ],
)
def test_llamacpp_ngram4(condition: str, step: tuple[str, str], cached: int) -> None:
    m = between(
        "llamacpp",
        *(f"llamacpp-11549-ngram4/metrics_{name}.prom" for name in step),
        prompt=4813,
        output=96,
        cached=cached,
        condition=condition,
        speculation=NGRAM4,
    )
    assert (m.drafts, m.draft_tokens, m.accepted_tokens) == (39, 146, 41)
    assert m.acceptance == 41 / 146 and m.acceptance_length == 1 + 41 / 39
    assert m.acceptance_per_position == (15 / 39, 12 / 39, 9 / 39, 5 / 39)
    assert m.cached_counter == cached
    assert m.expected_cached == (4812 if condition == "replay" else None)
    assert m.server_ttft_s is None and m.preemptions is None
    assert m.verdict.reuse == "held"
    assert ids(m) == ([], [])  # 1 computed and 4,812 cached prompt tokens are all of ours


def test_the_loading_llamacpp_server_was_never_cold_so_its_replay_missed() -> None:
    folder = "llamacpp-11549-target-only"
    replay = between(
        "llamacpp",
        f"{folder}/metrics_2_after_salted.prom",
        f"{folder}/metrics_3_after_replay.prom",
        prompt=4813,
        output=96,
        cached=0,
        condition="replay",
    )
    assert replay.cached_counter == 0 and replay.expected_cached == 4812
    assert ids(replay)[0] == ["replay_missed"]
    salted = between(
        "llamacpp",
        f"{folder}/metrics_1_after_cold.prom",
        f"{folder}/metrics_2_after_salted.prom",
        prompt=4813,
        output=96,
        cached=0,
        condition="salted",
    )
    assert salted.verdict.valid and salted.verdict.speculation == "none"
    assert (salted.drafts, salted.acceptance) == (0, None)
    assert salted.absent["acceptance"] == "no speculation on this route"
    loading = exchange(engine="llamacpp", before=scrape("llamacpp", f"{folder}/metrics_0_before.prom"))
    assert "no metrics before the exchange" in measure(loading).absent["preemptions"]


@pytest.mark.parametrize(
    ("name", "pages", "drafts", "drafted", "places", "speculation"),
    [
        ("draft4", ("before", "after_cold"), 8, 31, (8, 8, 8, 7), DRAFT4),
        ("draft2", ("before", "after_cold"), 13, 26, (13, 13), None),
        ("targetonly", ("before", "after_cold"), 0, 0, None, None),
    ],
)
def test_llamacpp_b11434(
    name: str,
    pages: tuple[str, str],
    drafts: int,
    drafted: int,
    places: tuple[int, ...] | None,
    speculation: Speculation | None,
) -> None:
    m = between(
        "llamacpp",
        *(f"others/llamacpp_b11434_real_{name}_{one}.prom" for one in pages),
        prompt=422,
        output=40,
        cached=0,
        speculation=speculation,
    )
    assert (m.drafts, m.draft_tokens, m.accepted_tokens) == (drafts, drafted, drafted)
    assert m.acceptance == (1.0 if drafted else None)
    assert m.acceptance_per_position == (tuple(p / drafts for p in places) if places else None)
    assert ids(m)[0] == (["speculation_undeclared"] if name == "draft2" else [])


def test_llamacpp_replay_with_the_replys_own_timings() -> None:
    m = between(
        "llamacpp",
        "others/llamacpp_b11434_real_draft4_second_scrape.prom",
        "others/llamacpp_b11434_real_draft4_after_replay.prom",
        prompt=422,
        output=40,
        cached=421,
        condition="replay",
        speculation=DRAFT4,
        reported={
            "timings.cache_n": 421.0,
            "timings.prompt_n": 1.0,
            "timings.prompt_ms": 0.774,
            "timings.predicted_n": 40.0,
            "timings.predicted_ms": 15.893,
            "timings.draft_n": 31.0,
            "timings.draft_n_accepted": 31.0,
        },
    )
    assert (m.cached_tokens, m.cached_usage, m.cached_counter) == (421, 421, 421)
    assert m.sources["cached_tokens"] == "reply" and m.sources["draft_tokens"] == "reply"
    assert (m.draft_tokens, m.accepted_tokens) == (31, 31)
    assert m.prefill_s == 0.774 / 1000 and m.server_decode_s == 15.893 / 1000
    assert m.verdict.valid and m.verdict.reuse == "held"


def test_an_exchange_that_moved_nothing_is_not_settled() -> None:
    m = between(
        "llamacpp",
        "others/llamacpp_b11434_real_draft4_after_cold.prom",
        "others/llamacpp_b11434_real_draft4_second_scrape.prom",
        prompt=422,
        output=40,
        cached=0,
        speculation=DRAFT4,
    )
    assert "not_settled" in ids(m)[1]


def test_llamacpp_of_2025_has_no_cached_counter() -> None:
    cold, replay = (
        between(
            "llamacpp",
            f"others/llamacpp_2025-08_constructed_{before}.prom",
            f"others/llamacpp_2025-08_constructed_{after}.prom",
            prompt=200_128,
            output=256,
            cached=cached,
            condition=condition,
        )
        for before, after, condition, cached in (
            ("before", "after_cold", "cold", 0),
            ("after_cold", "after_replay", "replay", 200_127),
        )
    )
    for m, cached in ((cold, 0), (replay, 200_127)):
        assert m.cached_counter is None and m.cached_usage == m.cached_tokens == cached
        assert m.drafts is None and m.absent["drafts"] == "no speculation on this route"
        assert m.verdict.valid and m.verdict.reuse == "held"


# --- All of them --------------------------------------------------------------------------------------


def test_no_recorded_page_gives_a_restart_against_its_successor() -> None:
    for folder, engine in (
        ("vllm-0.32-mtp4", "vllm"),
        ("vllm-0.32-ngram4", "vllm"),
        ("llamacpp-11549-ngram4", "llamacpp"),
    ):
        pages = [
            scrape(engine, f"{folder}/{path.name}")
            for path in sorted((PAGES / folder).glob("metrics_*.prom"))
        ]
        for before, after in pairwise(pages):
            m = measure(exchange(engine=engine, before=before, after=after), info=run())
            assert not {"restart", "replicas"} & set(ids(m)[0])


def test_facts_of_the_run_win_over_those_of_its_pages() -> None:
    page = scrape("vllm", "vllm-0.32-mtp4/metrics_2_after_salted.prom")
    facts = get("vllm").facts(answers("vllm-0.32-mtp4"), page.values, page.info)
    assert facts.block_size == 128
    one = exchange(
        "replay",
        prompt=4793,
        output=96,
        cached=4608,
        before=page,
        after=scrape("vllm", "vllm-0.32-mtp4/metrics_3_after_replay.prom"),
    )
    assert measure(one, info=run(MTP4, facts)).expected_cached == 4608
    wrong = ServerFacts(engine="vllm", version="0.32.0", block_size=256)
    assert measure(one, info=run(MTP4, wrong)).expected_cached == (18 - 1) * 256


def test_usage_without_counters_is_measured_all_the_same() -> None:
    m = measure(exchange(usage=Usage(prompt_tokens=1000, completion_tokens=64)))
    assert m.prompt_tokens == 1000 and m.output_tokens == 64
    assert m.absent["drafts"] == "no metrics page before the exchange"
    assert "no_metrics" in ids(m)[1]
