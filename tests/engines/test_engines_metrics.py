"""Metrics pages: what is read, what is absent, what a bad page costs."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.engines import DIALECTS, detect, get
from bench.engines.base import CANONICAL
from bench.engines.metrics import MAX_CHARS, read_page

PAGES = Path(__file__).parent.parent / "recordings" / "pages"


def text_of(name: str) -> str:
    return (PAGES / name).read_text(encoding="utf-8")


def values_of(name: str) -> dict[str, float]:
    text = text_of(name)
    page = read_page(text, detect({}, text))
    assert page.problem is None and page.bad_lines == ()
    return page.values


def test_every_family_of_a_real_vllm_page_is_read_under_its_canonical_name() -> None:
    values = values_of("vllm-0.32-mtp4/metrics_3_after_replay.prom")
    # Copied by eye from the page.
    assert {name: value for name, value in values.items() if not name.endswith(("_sum", "_count"))} == {
        "prompt_tokens": 14380,
        "cached_tokens": 4608,
        "external_cached_tokens": 0,
        "prefix_queries": 14380,
        "prefix_hits": 4608,
        "external_prefix_hits": 0,
        "generation_tokens": 288,
        "requests_finished": 3,
        "requests_aborted": 0,
        "requests_failed": 0,
        "drafts": 86,
        "draft_tokens": 344,
        "accepted_tokens": 199,
        "accepted_tokens_per_pos.0": 72,
        "accepted_tokens_per_pos.1": 67,
        "accepted_tokens_per_pos.2": 39,
        "accepted_tokens_per_pos.3": 21,
        "preemptions": 0,
        "running": 0,
        "waiting": 0,
        "kv_usage": 0,
        "process_start": 1.79596392527e9,
    }
    assert values["ttft_count"] == 3 and values["ttft_sum"] == 8.075851440429688
    assert values["prefill_sum"] == 8.024887233999834 and values["decode_sum"] == 2.316444350999518
    assert values["computed_prompt_tokens_sum"] == 9772


def test_configuration_labels_are_kept_as_they_stand() -> None:
    page = read_page(text_of("vllm-0.32-mtp4/metrics_0_before.prom"), get("vllm"))
    assert page.info["block_size"] == "128"
    assert page.info["kv_cache_size_tokens"] == "1398016"
    assert page.info["enable_prefix_caching"] == "True"


def test_the_old_prefix_names_stay_apart_because_their_unit_changed() -> None:
    values = values_of("others/vllm_v1_0.8.5_mtp2_after.prom")
    assert values["prefix_queries_gpu"] == 375  # blocks of 16 in 6,000 tokens
    assert "prefix_queries" not in values
    newer = values_of("others/vllm_v1_0.11.0_mtp2_after.prom")
    assert newer["prefix_queries"] == 6000
    assert "prefix_queries_gpu" not in newer


def test_old_and_new_name_of_a_gauge_on_one_page_count_once() -> None:
    text = 'vllm:gpu_cache_usage_perc{engine="0"} 0.5\nvllm:kv_cache_usage_perc{engine="0"} 0.4\n'
    assert read_page(text, get("vllm")).values == {"kv_usage": 0.4}  # the new name, whatever the old says


def test_metrics_that_a_server_does_not_have_are_absent_and_not_zero() -> None:
    old = values_of("others/llamacpp_2025-08_constructed_after_cold.prom")
    counted = {"prompt_tokens": 200128, "generation_tokens": 256, "running": 0, "waiting": 0}
    assert old == counted | {"prefill_seconds": 161.204, "decode_seconds": 7.338}
    v0 = values_of("others/vllm_v0_0.6.6_after.prom")
    assert v0["accepted_tokens"] == 37 and v0["draft_tokens"] == 52
    assert "drafts" not in v0 and "cached_tokens" not in v0 and "process_start" not in v0


def test_sglang_counts_cache_sources_once_and_keeps_outside_ones_apart() -> None:
    lines = [
        'sglang:cached_tokens_total{cache_source="device",model_name="m"} 100',
        'sglang:cached_tokens_total{cache_source="host",model_name="m"} 20',
        'sglang:cached_tokens_total{cache_source="storage",model_name="m"} 3',
        'sglang:cached_tokens_total{cache_source="total",model_name="m"} 123',
    ]
    values = read_page("\n".join(lines), get("sglang")).values
    assert values == {"cached_tokens": 100, "external_cached_tokens": 23}
    old = read_page('sglang:cached_tokens_total{model_name="m"} 5999', get("sglang")).values
    assert old == {"cached_tokens": 5999}


def test_counters_are_summed_over_engines_and_fractions_are_not() -> None:
    lines = [
        'vllm:generation_tokens_total{engine="0",model_name="m"} 10',
        'vllm:generation_tokens_total{engine="1",model_name="m"} 32',
        'vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.25',
        'vllm:kv_cache_usage_perc{engine="1",model_name="m"} 0.5',
        'vllm:num_requests_running{engine="0",model_name="m"} 1',
        'vllm:num_requests_running{engine="1",model_name="m"} 1',
    ]
    values = read_page("\n".join(lines), get("vllm")).values
    assert values == {"generation_tokens": 42, "kv_usage": 0.5, "running": 2}


def test_ranks_that_report_the_same_request_count_once_and_data_parallel_ranks_add_up() -> None:
    lines = [
        f'sglang:num_running_reqs{{dp_rank="{dp}",tp_rank="{tp}"}} {dp + 1}' for dp in (0, 1) for tp in (0, 1)
    ]
    assert read_page("\n".join(lines), get("sglang")).values == {"running": 3}


def test_aborted_requests_are_not_finished_ones_and_new_reasons_are() -> None:
    lines = [
        f'vllm:request_success_total{{engine="0",finished_reason="{reason}"}} {count}'
        for reason, count in (("stop", 1), ("length", 2), ("abort", 4), ("some_day", 8))
    ]
    values = read_page("\n".join(lines), get("vllm")).values
    assert values == {"requests_finished": 11, "requests_aborted": 4}


def test_openmetrics_spelling_exemplars_and_missing_total_are_understood() -> None:
    text = "\n".join(
        [
            "# TYPE vllm_spec_decode_num_drafts counter",
            'vllm_spec_decode_num_drafts_total{engine="0"} 7.0 # {trace_id="a # {b}"} 1.0 1.7e9',
            'vllm_spec_decode_num_drafts_created{engine="0"} 1.7e+09',
            'vllm:prompt_tokens{engine="0"} 1.048577e+06',
            "# EOF",
        ]
    )
    page = read_page(text, get("vllm"))
    assert page.problem is None
    assert page.values == {"drafts": 7, "prompt_tokens": 1_048_577}


def test_not_a_number_and_infinity_are_absent() -> None:
    text = "vllm:kv_cache_usage_perc NaN\nvllm:num_requests_running +Inf\nvllm:num_requests_waiting 2\n"
    assert read_page(text, get("vllm")).values == {"waiting": 2}


def test_a_line_that_cannot_be_read_leaves_its_family_unknown_and_no_other() -> None:
    text = text_of("vllm-0.32-mtp4/metrics_3_after_replay.prom")
    good = read_page(text, get("vllm")).values
    broken = text.replace(
        'vllm:prompt_tokens_by_source_total{engine="0",model_name="tiny",source="local_compute"} 9772.0',
        'vllm:prompt_tokens_by_source_total{engine="0",model_name="tiny,source= 9772.0',
    )
    assert broken != text
    page = read_page(broken, get("vllm"))
    assert page.unknown == ("cached_tokens", "external_cached_tokens")  # both are read from that family
    assert page.values == {name: good[name] for name in good if name not in page.unknown}
    assert len(page.bad_lines) == 1
    assert "1 line(s)" in (page.problem or "")


def rank(number: int, name: str = "generation_tokens_total", value: str = "5") -> str:
    return f'vllm:{name}{{engine="{number}",model_name="m"}} {value}\n'


def test_a_torn_line_of_one_rank_makes_the_sum_over_ranks_unknown() -> None:
    whole = rank(0) + rank(1) + rank(0, "prompt_tokens_total")
    torn = read_page(whole.replace('engine="1",model_name="m"} 5', 'engine="1",mod'), get("vllm"))
    assert (torn.values, torn.unknown) == ({"prompt_tokens": 5}, ("generation_tokens",))
    value = read_page(whole + rank(10, value="5x"), get("vllm"))  # no copy of rank 1
    assert value.unknown == ("generation_tokens",)


def test_a_torn_copy_of_a_line_that_stands_whole_costs_nothing() -> None:
    copies = rank(1).partition("}")[0] + "\n" + rank(0, value="")
    page = read_page(rank(0) + copies + rank(1), get("vllm"))
    assert (page.values, page.unknown, len(page.bad_lines)) == ({"generation_tokens": 10}, (), 2)


def test_half_a_histogram_is_unknown() -> None:
    text = "vllm:time_to_first_token_seconds_sum 1.x\nvllm:time_to_first_token_seconds_count 3\n"
    page = read_page(text, get("vllm"))
    assert (page.values, page.unknown) == ({}, ("ttft",))


def test_an_older_name_does_not_stand_in_for_one_that_cannot_be_read() -> None:
    both = "vllm:kv_cache_usage_perc {}\nvllm:gpu_cache_usage_perc {}\n"
    torn = read_page(both.format("0.5x", "0.25"), get("vllm"))
    assert (torn.values, torn.unknown) == ({}, ("kv_usage",))
    whole = read_page(both.format("0.5", "0.25x"), get("vllm"))
    assert (whole.values, whole.unknown) == ({"kv_usage": 0.5}, ())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "empty"),
        ('{"error":{"message":"Loading model","code":503}}', "no metrics page"),
        ("<html>502</html>", "no metrics page"),
        ("go_gc_duration_seconds_count 3\n", "no family of vllm"),
        ("# HELP x y\n", "empty"),
        ('vllm:num_requests_running{server="http://a"} 1\n', "router"),
        ("x" * (MAX_CHARS + 1), "more than"),
    ],
)
def test_a_page_that_is_none_says_why(text: str, said: str) -> None:
    assert said in (read_page(text, get("vllm")).problem or "")


def test_what_a_router_repeats_is_not_taken_for_the_engine_s_own_counters() -> None:
    """Constructed after vLLM's production-stack router, not recorded: gauges of what it read elsewhere."""
    text = (
        "# TYPE vllm:num_requests_running gauge\n"
        'vllm:num_requests_running{server="http://10.0.0.1:8000"} 1.0\n'
        "# TYPE vllm:gpu_prefix_cache_hits_total gauge\n"
        'vllm:gpu_prefix_cache_hits_total{server="http://10.0.0.1:8000"} 5984.0\n'
    )
    read = read_page(text, get("vllm"))
    assert read.values == {}
    assert "router" in (read.problem or "") and "metrics_url" in (read.problem or "")
    own = text.replace("{server=", '{model_name="m",server=')  # relabelled by whoever passes the page on
    assert read_page(own, get("vllm")).values == {"running": 1, "prefix_hits_gpu": 5984}


def test_the_start_header_of_llamacpp_is_taken_as_a_constant_to_compare() -> None:
    headers = {"Process-Start-Time-Unix": "2722186556"}
    assert read_page("llamacpp:requests_processing 0\n", get("llamacpp"), headers).values == {
        "running": 0,
        "process_start": 2722186556,
    }
    odd = read_page("llamacpp:requests_processing 0\n", get("llamacpp"), {"process-start-time-unix": "soon"})
    assert odd.values == {"running": 0}


def test_rate_gauges_that_reset_on_reading_are_not_taken_for_counters() -> None:
    first = values_of("others/llamacpp_b11434_real_draft4_after_cold.prom")
    again = values_of("others/llamacpp_b11434_real_draft4_second_scrape.prom")
    assert first == again


@given(st.text(max_size=400))
def test_no_text_makes_the_reader_fail(text: str) -> None:
    page = read_page("vllm:num_requests_running{" + text + "\n" + text, get("vllm"))
    assert all(math.isfinite(value) for value in page.values.values())


@given(st.lists(st.floats(allow_nan=True, allow_infinity=True), min_size=1, max_size=5))
def test_any_printed_float_is_its_value_or_absent(numbers: list[float]) -> None:
    lines = [f'vllm:generation_tokens_total{{engine="{i}"}} {n!r}' for i, n in enumerate(numbers)]
    finite = [n for n in numbers if math.isfinite(n)]
    found = read_page("\n".join(lines), get("vllm")).values.get("generation_tokens")
    expected = None
    for number in finite:
        expected = number if expected is None else expected + number
    assert found == expected


def test_every_alias_has_a_canonical_name_and_every_page_gives_only_such_names() -> None:
    for dialect in DIALECTS.values():
        assert {alias.name for alias in dialect.aliases} <= set(CANONICAL)
    for path in sorted(PAGES.rglob("*.prom")):
        text = path.read_text(encoding="utf-8")
        for name in read_page(text, detect({}, text)).values:
            stem = name.removesuffix("_sum").removesuffix("_count")
            assert stem.partition(".")[0] in CANONICAL, (path.name, name)


def test_a_full_page_is_cut_down_before_it_is_parsed() -> None:
    """The cost of a page is its needed lines: bounded here by counting them, not by a clock."""
    from bench.engines import metrics

    text = text_of("vllm-0.32-mtp4/metrics_4_end.prom")
    groups, others = metrics._needed_lines(text, metrics._wanted(get("vllm")))
    needed = sum(len(lines) for lines in groups.values())
    assert len(text) > 58_000
    assert needed < 50 < others
