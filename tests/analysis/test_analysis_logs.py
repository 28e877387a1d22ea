"""Logs as a whole: kinds of lines, counts, facts, and inputs that mean harm."""

from __future__ import annotations

import json
import random
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.analysis.logs.analyser import LINE_BYTES_MAX, LogAnalyser, LogReport

TESTS = Path(__file__).resolve().parent.parent
RECORDINGS = TESTS / "recordings" / "logs"
FALLBACK = json.loads((TESTS / "data" / "seed_study.json").read_text())["fallback"]
SKIP = (
    "Skipping speculative drafts because the drafter context limit is reached: "
    "max_seq_len={}, num_spec_tokens=4, effective_drafter_max_model_len={}"
)
ADVISORY = (
    "Token indices sequence length is longer than the specified maximum sequence length "
    "for this model ({} > 262144)"
)
ANSWERED = 'INFO:     127.0.0.1:{} - "POST /v1/chat/completions HTTP/1.1" 200 OK'


def stamp(second: float) -> str:
    s = int(second)
    return f"11-29 {s // 3600 % 24:02d}:{s // 60 % 60:02d}:{s % 60:02d}"


def warning(second: float, message: str) -> str:
    return f"(EngineCore pid=77) WARNING {stamp(second)} [gpu_model_runner.py:4431] {message}"


def info(second: float, message: str) -> str:
    return f"(APIServer pid=7) INFO {stamp(second)} [loggers.py:259] {message}"


def stats(second: float) -> str:
    return info(
        second,
        f"Engine 000: Avg prompt throughput: {second % 900:.1f} tokens/s, "
        f"Avg generation throughput: 9.1 tokens/s, Running: 1 reqs, Waiting: 0 reqs, "
        f"GPU KV cache usage: {second % 35:.1f}%",
    )


def analysed(lines: list[str], **given_: int) -> LogReport:
    analyser = LogAnalyser(**given_)  # type: ignore[arg-type]
    analyser.feed("\n".join(lines).encode() + b"\n")
    return analyser.report()


def long_request(output_tokens: int, warnings: int, *, tok_s: float = 9.0, limit: int = 262_144) -> list[str]:
    """One request past the limit: a warning a step, throughput lines every ten seconds, the answer line."""
    lines = [info(0, "Received request chatcmpl-0f3a9b7c55d14e0d9f6a1b2c3d4e5f60")]
    for step in range(warnings):
        second = step / tok_s
        lines.append(warning(second, SKIP.format(limit + 46_000 + step, limit)))
        if step and int(second) % 10 == 0 and int((step - 1) / tok_s) != int(second):
            lines.append(stats(second))
    lines.append(ANSWERED.format(40_001))
    assert output_tokens > 0
    return lines


# --- the three fallback cases of the published study ------------------------------------------------


@pytest.mark.parametrize("told", [True, False], ids=["tokens known", "from the log alone"])
def test_a_warning_for_every_output_token_is_a_flood(told: bool) -> None:
    case = FALLBACK[0]
    count, tokens = case["over_limit_warnings"], case["output_tokens"]
    assert (count, tokens) == (18_169, 18_167)
    report = analysed(
        long_request(tokens, count), **({"output_tokens": tokens, "requests": 1} if told else {})
    )
    group = report.known("drafter_limit_skip")
    assert group is not None
    assert (group.kind, group.count, group.level) == ("flood", 18_169, "WARNING")
    assert report.groups[0] is group  # what matters most comes first
    assert [g.known for g in report.kind("flood")] == ["drafter_limit_skip"]
    if told:
        assert "18,169 lines for 18,167 output tokens (1.00 a token)" in group.why


@pytest.mark.parametrize("case", FALLBACK[1:], ids=lambda c: c["case"])
def test_one_warning_past_the_limit_is_one_shot(case: dict[str, int]) -> None:
    lines = [stats(s) for s in range(0, 3600, 10)]
    lines.insert(50, warning(500, SKIP.format(case["prompt_tokens"], 262_144)))
    lines.append(ANSWERED.format(40_001))
    for report in (analysed(lines), analysed(lines, output_tokens=128, requests=1)):
        group = report.known("drafter_limit_skip")
        assert group is not None
        assert (group.kind, group.count) == ("one-shot", case["over_limit_warnings"])
        assert not report.kind("flood")


@pytest.mark.parametrize("marked", [True, False], ids=["answers logged", "access log off"])
@pytest.mark.parametrize("count", [3, 60])
def test_an_advisory_once_for_every_cold_request_is_per_request_and_no_flood(
    count: int, marked: bool
) -> None:
    lines: list[str] = []
    for request in range(count):  # each cold request is followed by two replays, without the advisory
        lines.append(ADVISORY.format(564_577 + request))
        lines += [stats(700 * request + s) for s in range(0, 700, 100)]
        lines += [ANSWERED.format(40_000 + request)] * 3 if marked else []
    report = analysed(lines) if marked else analysed(lines, requests=3 * count)
    group = report.known("transformers_length")
    assert group is not None
    assert (group.kind, group.count) == ("per-request", count)
    assert not report.kind("flood")
    assert group.meaning is not None and "advisory" in group.meaning


# --- kinds ------------------------------------------------------------------------------------------


def test_a_flood_is_seen_in_every_later_request_too_and_at_target_only_speed() -> None:
    lines: list[str] = []
    for request in range(5):
        for step in range(400):
            lines.append(warning(1000 * request + step / 8.8, SKIP.format(300_000 + step, 262_144)))
        lines.append(ANSWERED.format(40_000 + request))
    group = analysed(lines).known("drafter_limit_skip")
    assert group is not None and group.kind == "flood" and group.count == 2000


def test_lines_written_on_a_timer_are_no_flood_however_many() -> None:
    report = analysed([stats(10 * n) for n in range(5000)], requests=3)
    assert [(g.kind, g.known) for g in report.groups] == [("periodic", "vllm_stats")]


def test_a_known_number_of_tokens_clears_what_does_not_grow_with_them() -> None:
    lines = [warning(n / 9, "cache block evicted early") for n in range(90)]
    assert analysed(lines).groups[0].kind == "flood"
    assert analysed(lines, output_tokens=100_000, requests=40).groups[0].kind != "flood"


def test_a_list_written_while_starting_is_start_up() -> None:
    lines = [info(1, f"Route: /v{n}/x, Methods: POST") for n in range(60)]
    lines += ["INFO:     Application startup complete.", *[ANSWERED.format(p) for p in range(3)]]
    report = analysed(lines)
    assert {g.kind for g in report.groups if g.template.startswith("Route")} <= {"start-up", "one-shot"}


def test_every_start_of_a_server_is_start_up_though_no_line_shows_its_arguments() -> None:
    def life(second: int) -> list[str]:
        return [
            *[info(second, "Using max model len 4096")] * 2,
            info(second, "GPU KV cache size: 131,072 tokens"),
            "INFO:     Started server process [1]",
            "INFO:     Application startup complete.",
            *[ANSWERED.format(port) for port in range(9)],
        ]

    report = analysed([*life(0), *life(600), *life(1200)])
    kinds = {group.template: group.kind for group in report.groups}
    assert kinds.pop(next(text for text in kinds if "POST" in text)) == "per-request"
    assert set(kinds.values()) == {"start-up"} and len(kinds) == 4


def test_a_flood_before_a_restart_stays_a_flood() -> None:
    lines = [*long_request(600, 600), info(900, "non-default args: {'model': 'm'}")]
    lines += ["INFO:     Application startup complete.", ANSWERED.format(1), ANSWERED.format(2)]
    group = analysed(lines).known("drafter_limit_skip")
    assert group is not None and group.kind == "flood"


def test_lines_at_one_moment_are_not_per_request_though_their_number_would_fit() -> None:
    lines = [ANSWERED.format(port) for port in range(10)]
    lines += [
        x for n in range(12) for x in (warning(500 + 60 * n, "shutting down slowly"), stats(510 + 60 * n))
    ]
    group = next(g for g in analysed(lines).groups if g.template == "shutting down slowly")
    assert (group.kind, group.count) == ("recurring", 12)


def test_counts_first_and_last_lines_and_times_come_out() -> None:
    lines = [info(5, "alpha 1"), warning(6, "beta"), info(3700, "alpha 22"), info(3701, "alpha 333")]
    report = analysed(lines)
    alpha = next(g for g in report.groups if g.template == "alpha #")
    assert (alpha.count, alpha.first_line, alpha.last_line) == (3, 1, 4)
    assert (alpha.first_at, alpha.last_at) == ("11-29 00:00:05", "11-29 01:01:41")
    assert alpha.example.endswith("alpha 1") and alpha.last_example.endswith("alpha 333")
    assert report.lines == 4
    assert report.levels == {"WARNING": 1, "INFO": 3}


def test_a_traceback_is_one_thing_and_no_flood_however_often_it_comes() -> None:
    body = [
        "Traceback (most recent call last):",
        '  File "/opt/a.py", line 1, in f',
        "    call_something()",
        "    ^^^^^^",
    ]
    lines = [
        f"(APIServer pid=7) ERROR {stamp(100 * n)} [async_llm.py:1] {text}"
        for n in range(40)
        for text in [*body, *body]
    ]
    report = analysed(lines)
    assert [(g.known, g.count, g.role) for g in report.groups] == [("traceback", 320, "failure")]
    assert not report.kind("flood")


# --- facts ------------------------------------------------------------------------------------------


def recorded(name: str) -> LogReport:
    analyser = LogAnalyser()
    analyser.feed((RECORDINGS / f"{name}.log").read_bytes())
    return analyser.report()


def test_a_real_log_of_mtp_past_its_limit_gives_both_lengths_and_the_capacity() -> None:
    report = recorded("vllm-0.32-mtp2-over-limit")
    f = report.facts
    assert (f.engine, f.version, f.model) == ("vllm", "0.32.0", "/models/yarn_native")
    assert (f.max_model_len, f.drafter_limit) == (16_384, 4096)
    assert (f.kv_tokens, f.concurrency) == (1_398_016, 85.33)
    assert (f.speculation_method, f.num_speculative_tokens, f.prefix_caching) == ("mtp", 2, True)
    assert f.runner == "v1"
    assert report.requests == 10
    assert report.starts == 1
    assert not report.kind("flood")  # this version says nothing past the limit
    assert report.known("drafter_limit_skip") is None


def test_a_drafter_cut_to_the_target_is_no_longer_than_the_target() -> None:
    f = recorded("vllm-0.32-mtp4").facts
    assert (f.max_model_len, f.drafter_limit, f.num_speculative_tokens) == (16_384, 16_384, 4)


def test_a_drafter_longer_than_its_target_ends_with_it() -> None:
    facts = analysed([info(1, "Using max model len 1000"), info(1, "Using max model len 4000")]).facts
    assert (facts.max_model_len, facts.drafter_limit) == (1000, 1000)


def test_n_gram_has_one_length_and_no_drafter_limit() -> None:
    f = recorded("vllm-0.32-ngram4").facts
    assert (f.max_model_len, f.drafter_limit, f.kv_tokens) == (32_768, None, 4_194_304)
    assert (f.speculation_method, f.num_speculative_tokens) == ("ngram", 4)


def test_a_real_llamacpp_log_gives_slot_context_requests_and_output_tokens() -> None:
    report = recorded("llamacpp-11549-ngram4")
    assert (report.facts.engine, report.facts.max_model_len) == ("llamacpp", 8192)
    assert report.requests == 8
    assert report.output_tokens == 96 * 4 + 8 + 10 + 4  # the "eval time" lines
    assert report.output_tokens_source == "counted in the log"
    refused = report.known("llamacpp_too_long")
    assert refused is not None and refused.level == "ERROR" and refused.kind == "one-shot"


def test_facts_become_server_facts_that_name_their_line() -> None:
    facts = recorded("vllm-0.32-mtp2-over-limit").facts.server_facts()
    assert facts.kv_capacity_tokens == 1_398_016
    assert facts.drafter_limit == 4096
    assert (facts.flags["model_runner"], facts.flags["full_length_requests"]) == ("v1", "85.33")
    assert facts.sources["kv_capacity_tokens"].startswith("server log, line ")
    assert "block_size" not in facts.sources


def test_flags_that_bear_on_speed_are_taken_from_arguments_and_configuration() -> None:
    flags = recorded("vllm-0.32-mtp2-over-limit").facts.flags  # --max-num-seqs 4 --dtype bfloat16, one rank
    assert (flags["max_num_seqs"], flags["enforce_eager"]) == ("4", "True")
    assert (flags["tensor_parallel_size"], flags["quantization"]) == ("1", "None")
    assert flags["dtype"] == "torch.bfloat16"
    assert flags["gpu_memory_utilization"] == "default"  # not among the arguments that were given


def test_of_a_servers_arguments_no_key_is_ever_taken() -> None:
    line = info(1, "non-default args: {'api_key': ['sk-mine'], 'max_num_seqs': 8, 'hf_token': 'hf-mine'}")
    facts = analysed([line]).facts
    assert facts.flags["max_num_seqs"] == "8"
    assert "mine" not in str(facts)


@pytest.mark.parametrize(
    ("line", "field", "value"),
    [
        ("INFO 11-29 14:00:00 [k.py:1] GPU KV cache size: 2,557,299 tokens", "kv_tokens", 2_557_299),
        ("INFO 11-29 14:00:00 [k.py:1] GPU + host KV cache size: 10,000 tokens, Maximum concurrency for "
         "1,000 tokens per request: 10.00x", "concurrency", 10.0),
        ("INFO 11-29 14:00:00 [k.py:1] Maximum concurrency for 1,000,000 tokens per request: 2.56x",
         "concurrency", 2.56),
        ("INFO 11-29 14:00:00 [config.py:1] Setting attention block size to 1616 tokens to ensure that "
         "attention page size is >= mamba page size", "block_size", 1616),
        ("WARNING 11-29 14:00:00 [s.py:1] The draft model's max_model_len (262144) is smaller than the "
         "target model's (1000000) and the V2 model runner can't skip speculation for longer sequences; "
         "reducing max_model_len to 262144", "max_model_len", 262_144),
        ("[2026-11-29 14:00:00 TP0] max_total_num_tokens=555000, chunked_prefill_size=8192, "
         "max_prefill_tokens=16384, max_running_requests=2048, context_len=262144", "kv_tokens", 555_000),
        ("[2026-11-29 14:00:00 TP0] max_total_num_tokens=555000, chunked_prefill_size=-1, context_len=262144",
         "max_model_len", 262_144),
    ],
)  # fmt: skip
def test_facts_of_other_versions_and_engines(line: str, field: str, value: float) -> None:
    assert getattr(analysed([line]).facts, field) == value


def test_a_restart_opens_a_new_page_of_facts() -> None:
    first = [
        info(1, "non-default args: {'model': 'a'}"),
        info(2, "Using max model len 1000"),
        info(2, "Using max model len 500"),
    ]
    second = [info(90, "non-default args: {'model': 'b'}"), info(91, "Using max model len 2000")]
    report = analysed([*first, *second])
    assert report.starts == 2
    assert (report.facts.max_model_len, report.facts.drafter_limit, report.facts.model) == (2000, None, "b")


def test_a_restart_is_seen_without_a_line_that_announces_it() -> None:
    def life(length: int) -> list[str]:
        return [
            info(1, f"Using max model len {length}"),
            info(1, f"Using max model len {length // 4}"),
            info(1, "SpeculativeConfig(method='mtp', num_spec_tokens=4)"),
            info(2, f"GPU KV cache size: {2 * length:,} tokens"),
        ]

    report = analysed([*life(1000), *life(4000)])
    f = report.facts
    assert (f.max_model_len, f.drafter_limit, f.kv_tokens, f.num_speculative_tokens) == (4000, 1000, 8000, 4)
    assert report.starts == 2


# --- time -------------------------------------------------------------------------------------------


def test_since_drops_earlier_lines_and_what_hangs_on_them() -> None:
    lines = [
        "no time yet",
        info(10, "early"),
        "Traceback of the early one",
        info(3600, "late"),
        "of the late one",
    ]
    analyser = LogAnalyser(since="2026-11-29 01:00:00")
    analyser.feed("\n".join(lines).encode())
    report = analyser.report()
    assert {g.template for g in report.groups} == {"late", "of the late one"}
    assert report.skipped_before == 3
    assert report.lines == 5


def test_since_on_a_log_without_calendar_times_says_so() -> None:
    analyser = LogAnalyser(since="2026-11-29 01:00:00")
    analyser.feed(b"0.54.437.289 I slot release: id 1\n")
    (note,) = analyser.report().notes
    assert "no calendar times" in note


# --- hostile input, and memory ----------------------------------------------------------------------


def test_the_report_does_not_depend_on_how_the_bytes_arrive() -> None:
    data = (RECORDINGS / "vllm-0.32-mtp2-over-limit.log").read_bytes()
    whole = LogAnalyser()
    whole.feed(data)
    pieces, rng = LogAnalyser(), random.Random(4)
    at = 0
    while at < len(data):
        size = rng.choice([1, 7, 100, 5000])
        pieces.feed(data[at : at + size])
        at += size
    assert pieces.report() == whole.report()


def test_a_line_of_fifty_megabytes_is_cut_and_the_next_line_is_whole() -> None:
    analyser = LogAnalyser()
    tracemalloc.start()
    for _ in range(50):
        analyser.feed(b"x" * 1_000_000)
    analyser.feed(b"\nERROR 11-29 00:00:01 [a.py:1] after it\n")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    report = analyser.report()
    assert peak < 4_000_000
    assert (report.lines, report.cut_lines) == (2, 1)
    assert report.groups[0].template == "after it"
    assert all(len(g.template) <= 300 and len(g.example) <= 400 for g in report.groups)
    one = LogAnalyser()
    one.feed(b"y" * (LINE_BYTES_MAX + 1) + b"\nnext\n")
    assert (one.report().lines, one.report().cut_lines) == (2, 1)


def test_binary_is_bounded_and_pointed_out() -> None:
    rng = random.Random(1)
    analyser = LogAnalyser(templates_max=100)
    analyser.feed(b"\x00\x01ELF")
    for _ in range(8):
        analyser.feed(rng.randbytes(50_000))
    report = analyser.report()
    assert len(report.groups) <= 100
    assert "text log" in report.notes[0]


def test_random_templates_do_not_hide_a_flood_that_starts_late() -> None:
    rng = random.Random(2)
    words = ["".join(rng.choices("ghijklmnop", k=9)) for _ in range(6000)]
    analyser = LogAnalyser(templates_max=200)
    analyser.feed("\n".join(words).encode() + b"\n")
    analyser.feed("\n".join(warning(n / 9, f"strange {n}") for n in range(900)).encode() + b"\n")
    analyser.feed("\n".join(words[:150]).encode())
    report = analyser.report()
    assert len(report.groups) <= 200
    assert report.groups[0].template == "strange #" and report.groups[0].kind == "flood"
    assert report.groups[0].count == 900
    kept = sum(g.count for g in report.groups)
    assert kept + report.folded_lines == report.lines


def test_secrets_and_escape_sequences_do_not_get_through() -> None:
    key = "sk-proj-abcdefghij0123456789"
    report = analysed(
        [
            info(1, f"args: {{'api_key': ['{key}'], 'port': 8000}}"),
            info(2, f"Authorization: Bearer {key}"),
            "\x1b]0;owned\x07\x1b[31mERROR:root:red \x1b[2Jalert\x1b[0m \u202etxt",
        ]
    )
    text = repr(report)
    assert key not in text and "\\x1b" not in text and "\u202e" not in text
    red = next(g for g in report.groups if "alert" in g.template)
    assert (red.level, red.template) == ("ERROR", "red alert txt")


@settings(max_examples=80, deadline=None)
@given(st.lists(st.binary(max_size=80) | st.text(max_size=60).map(str.encode), max_size=30))
def test_any_bytes_are_counted_and_none_make_it_fail(chunks: list[bytes]) -> None:
    analyser = LogAnalyser(templates_max=16)
    for chunk in chunks:
        analyser.feed(chunk)
    report = analyser.report()
    data = b"".join(chunks)
    assert report.bytes == len(data)
    assert report.lines == data.count(b"\n") + (not data.endswith(b"\n") and bool(data))
