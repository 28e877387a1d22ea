"""Faults of cache, speculation and metrics, as replies and pages show them."""

from __future__ import annotations

import time

import httpx
import pytest
from simulator_client import OUTPUT, TEXT, simulator, text, usage

LONG = TEXT * 600  # past the toy's quarter, 8,192 tokens


def cached(raw: bytes) -> int:
    details = usage(raw)["prompt_tokens_details"]
    return int(details["cached_tokens"])


def samples(page: str, name: str) -> list[str]:
    return [line for line in page.splitlines() if line.startswith(name + "{")]


# --- cache ---


def test_salt_ignored__a_cold_prompt_hits() -> None:
    for fault, hits in (((), 0), (("salt-ignored",), 1)):
        with simulator(faults=fault) as client:
            ids = client.post("/tokenize", {"prompt": TEXT * 20}).json()["tokens"]
            found = []
            for salt in (range(300, 308), range(400, 408)):
                body = {"prompt": [*salt, *ids], "max_tokens": 1, "cache_salt": f"salt {salt.start}"}
                details = client.post("/v1/completions", body).json()["usage"]["prompt_tokens_details"]
                found.append(details["cached_tokens"])
        assert found == [0, hits * ((len(ids) + 7) // 16 - 1) * 16]


def test_evicts__every_replay_misses() -> None:
    with simulator(faults=("evicts",)) as client:
        assert [cached(client.ask()) for _ in range(3)] == [0, 0, 0]


def test_first_replay_misses__the_second_hits() -> None:
    with simulator(faults=("first-replay-misses",)) as client:
        first, second, third = (cached(client.ask()) for _ in range(3))
    assert (first, second) == (0, 0) and third > 100


def test_block_by_k__real_blocks_are_larger_than_shown() -> None:
    with simulator(faults=("block-by-k",)) as client:
        client.ask()
        raw = client.ask()
        assert client.server.truth().block_size == 16 + 32
        assert cached(raw) == ((usage(raw)["prompt_tokens"] - 1) // 48 - 1) * 48
        assert 'block_size="16"' in client.page()


def test_no_cached_tokens__usage_is_silent_while_counters_move() -> None:
    with simulator(faults=("no-cached-tokens",)) as client:
        client.ask()
        assert usage(client.ask())["prompt_tokens_details"] is None
        assert client.counter("prefix_cache_hits_total") > 100


def test_counters_stuck__while_the_first_token_comes_sooner() -> None:
    with simulator(faults=("counters-stuck",)) as client:
        client.ask(LONG)
        client.ask(LONG)
        cold, replay = client.server.truth().requests
        assert client.counter("prefix_cache_hits_total") == client.counter("prompt_tokens_cached_total") == 0
        assert replay.full_ttft_s is not None and cold.full_ttft_s is not None
        assert replay.full_ttft_s < cold.full_ttft_s / 2


# --- speculation ---


def test_speculation_off__counters_exist_and_stay_at_zero() -> None:
    with simulator(faults=("speculation-off",)) as client:
        assert len(text(client.ask()).split()) == OUTPUT
        assert client.counter("spec_decode_num_drafts_total") == 0
        assert set(client.truth().chunk_tokens) == {1}


def test_over_limit_no_drafts__past_a_quarter_with_one_warning() -> None:
    with simulator(faults=("over-limit-no-drafts",)) as client:
        client.ask()
        short = client.counter("spec_decode_num_drafts_total")
        client.ask(LONG)
        assert client.counter("spec_decode_num_drafts_total") == short > 0
        assert sum("Skipping speculative drafts" in line for line in client.server.log_lines) == 1


def test_over_limit_zero_accepted__drafts_go_on_without_a_word() -> None:
    with simulator(faults=("over-limit-zero-accepted",)) as client:
        client.ask(LONG)
        told = client.truth()
        assert (told.drafts, told.draft_tokens, told.accepted_tokens) == (OUTPUT - 1, 2 * (OUTPUT - 1), 0)
        assert client.counter("spec_decode_num_drafts_total") == OUTPUT - 1
        assert not any("Skipping" in line for line in client.server.log_lines)


def test_warning_per_step__one_line_a_step() -> None:
    with simulator(faults=("warning-per-step",)) as client:
        client.ask(LONG)
        assert sum("Skipping speculative drafts" in line for line in client.server.log_lines) == OUTPUT - 1


def test_two_engines__sums_are_the_truth() -> None:
    with simulator(faults=("two-engines",)) as client:
        client.ask()
        told, page = client.truth(), client.page()
        assert len(samples(page, "vllm:spec_decode_num_drafts_total")) == 2
        assert client.counter("spec_decode_num_drafts_total") == told.drafts
        assert client.counter("generation_tokens_total") == OUTPUT


def test_positions_incomplete__positions_do_not_add_up() -> None:
    with simulator(faults=("positions-incomplete",)) as client:
        client.ask()
        shown = client.counter("spec_decode_num_accepted_tokens_per_pos_total")
        assert 0 < shown < client.counter("spec_decode_num_accepted_tokens_total")


# --- metrics ---


def test_metrics_404__there_is_no_page() -> None:
    with simulator(faults=("metrics-404",)) as client:
        assert client.get("/metrics").status_code == 404


def test_metrics_slow__takes_longer_than_a_short_deadline() -> None:
    with simulator(faults=("metrics-slow@1",)) as client:
        with pytest.raises(httpx.ReadTimeout):
            client.http.get(client.server.origin + "/metrics", timeout=0.2)
        assert client.get("/metrics").status_code == 200


def test_metrics_empty__has_no_byte() -> None:
    with simulator(faults=("metrics-empty",)) as client:
        assert client.page() == ""


def test_metrics_nan__where_numbers_belong() -> None:
    with simulator(faults=("metrics-nan",)) as client:
        assert [line.split()[-1] for line in samples(client.page(), "vllm:kv_cache_usage_perc")] == ["NaN"]


def test_metrics_malformed__broken_lines_between_good_ones() -> None:
    with simulator(faults=("metrics-malformed",)) as client:
        page = client.page()
        assert 'vllm:broken{engine="0" 3' in page
        assert 'vllm:spec_decode_num_accepted_tokens_total{engine="0",model_name="toy"\n' in page
        assert samples(page, "vllm:generation_tokens_total") and samples(page, "vllm:cache_config_info")


def test_metrics_openmetrics__underscores_and_an_end_mark() -> None:
    with simulator(faults=("metrics-openmetrics",)) as client:
        reply = client.get("/metrics")
        assert reply.headers["content-type"].startswith("application/openmetrics-text")
        assert samples(reply.text, "vllm_spec_decode_num_drafts_total")
        assert "# TYPE vllm:spec_decode_num_drafts counter" in reply.text
        assert reply.text.endswith("# EOF\n")


def test_metrics_no_process__as_in_multi_process_mode() -> None:
    for faults, shown in ((), True), (("metrics-no-process",), False):
        with simulator(faults=faults) as client:
            assert ("process_start_time_seconds" in client.page()) is shown


def test_metrics_late__the_page_is_stale_and_then_right() -> None:
    with simulator(faults=("metrics-late",)) as client:
        asked, seen = 0.0, 0.0
        while seen == asked:  # the page may be made anew right behind an answer
            client.ask(max_tokens=3)
            asked, seen = asked + 3, client.counter("generation_tokens_total")
        assert seen < asked
        until = time.monotonic() + 60
        while seen < asked and time.monotonic() < until:
            seen = client.counter("generation_tokens_total")
    assert seen == asked


def test_counter_reset__counters_fall_without_a_restart() -> None:
    with simulator(faults=("counter-reset@2",)) as client:
        started = [line for line in client.page().splitlines() if line.startswith("process_start_time")]
        client.ask()
        client.ask()
        assert client.counter("generation_tokens_total") < OUTPUT
        assert started[0] in client.page()
        assert client.server.truth().restarts == 0


def test_restart__in_the_middle_of_a_request() -> None:
    with simulator(faults=("restart@2",)) as client:
        client.ask()
        before = [line for line in client.page().splitlines() if line.startswith("process_start_time")]
        with pytest.raises(httpx.TransportError):
            client.ask()
        assert before[0] not in client.page()
        assert client.counter("generation_tokens_total") == 0
        assert cached(client.ask()) == 0, "the cache is lost too"


def test_foreign_traffic__somebody_elses_request_is_counted_too() -> None:
    with simulator(faults=("foreign-traffic",)) as client:
        raw = client.ask(max_tokens=200)
        assert client.counter("request_success_total") == 2
        assert client.counter("prompt_tokens_total") == usage(raw)["prompt_tokens"] + 1000
