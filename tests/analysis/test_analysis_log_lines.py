"""Single lines: heads of every server, templates, times."""

from __future__ import annotations

import pytest

from bench.analysis.logs.known import KNOWN, recognise
from bench.analysis.logs.lines import TEMPLATE_CHARS, is_before, read_line, sortable, template

HEADS = [
    # vLLM V1, V0, and without a process
    (
        "(APIServer pid=9988) WARNING 11-29 14:55:33 [vllm.py:725] said 1",
        "WARNING",
        "11-29 14:55:33",
        "said 1",
    ),
    ("INFO 11-29 14:55:33 metrics.py:455] said 1", "INFO", "11-29 14:55:33", "said 1"),
    ("(Worker_TP0 pid=1) ERROR 11-29 14:55:33 [x/y.py:7] said 1", "ERROR", "11-29 14:55:33", "said 1"),
    # SGLang
    ("[2026-11-29 14:55:33 DP0 TP1] said 1", None, "2026-11-29 14:55:33", "said 1"),
    ("[2026-11-29 14:55:33] WARNING: said 1", "WARNING", "2026-11-29 14:55:33", "said 1"),
    # llama.cpp: minutes and seconds since its start
    ("0.54.437.289 W slot print_timing: said 1", "WARNING", "0.54", "slot print_timing: said 1"),
    # LMDeploy
    (
        "2026-11-29 14:55:33,123 - lmdeploy - INFO - turbomind.py:12 - said 1",
        "INFO",
        "2026-11-29 14:55:33",
        "said 1",
    ),
    # uvicorn, Python
    ("INFO:     said 1", "INFO", None, "said 1"),
    ("WARNING:root:said 1", "WARNING", None, "said 1"),
    ("/opt/lib/x.py:138: FutureWarning: said 1", "WARNING", None, "FutureWarning: said 1"),
    # wrapped by docker, compose and journald
    (
        "2026-11-29T14:55:33.123456789Z INFO 11-29 15:55:33 [a.py:1] said 1",
        "INFO",
        "2026-11-29T14:55:33",
        "said 1",
    ),
    ("vllm-1  | INFO 11-29 14:55:33 [a.py:1] said 1", "INFO", "11-29 14:55:33", "said 1"),
    ("Nov  9 14:55:33 gpu7 vllm[12]: INFO:     said 1", "INFO", "Nov  9 14:55:33", "said 1"),
    ("2026-11-29T14:55:33+0100 gpu7 vllm[12]: said 1", None, "2026-11-29T14:55:33", "said 1"),
    # nothing known
    ("said 1", None, None, "said 1"),
    ("INFORMATION said 1", None, None, "INFORMATION said 1"),
]


@pytest.mark.parametrize(("line", "level", "stamp", "message"), HEADS, ids=[h[0][:40] for h in HEADS])
def test_every_head_gives_level_time_and_message(
    line: str, level: object, stamp: object, message: str
) -> None:
    parts = read_line(line.encode())
    assert (parts.level, parts.stamp, parts.message) == (level, stamp, message)


@pytest.mark.parametrize(
    ("message", "masked"),
    [
        ("took 1.25 s, 12,345 tokens, 99.5% at 1e-05", "took # s, # tokens, # at #"),
        ("Added request cmpl-4f3a9b7c-0.", "Added request <id>."),
        ("request 123e4567-e89b-12d3-a456-426614174000 done", "request <id> done"),
        ('127.0.0.1:57112 - "GET /health HTTP/1.1" 200', '<address> - "GET /health HTTP/#" #'),
        ("object at 0x7f574ba40bc8", "object at <address>"),
        ("commit 0a1b2c3d4e5f", "commit <id>"),
        ("Per-position acceptance rate: 0.853, 0.722, 0.5", "Per-position acceptance rate: #, ..."),
        ("max_seq_len=309000, k=4", "max_seq_len=#, k=#"),
        ("fp8_e5m2 on V100 with gpt2", "fp8_e5m2 on V100 with gpt2"),
        ("request-level and rid-less words stay", "request-level and rid-less words stay"),
        ("  many\t spaces ", "many spaces"),
    ],
)
def test_templates_mask_what_varies_and_nothing_else(message: str, masked: str) -> None:
    assert template(message) == masked


def test_a_template_is_cut() -> None:
    assert len(template("word " * 1000)) == TEMPLATE_CHARS


@pytest.mark.parametrize(
    ("stamp", "value"),
    [
        ("2026-11-29T14:55:33", "2026-11-29 14:55:33"),
        ("11-29 14:55:33", "11-29 14:55:33"),
        ("Nov  9 14:55:33", "11-09 14:55:33"),
        ("0.54", None),
        ("Foo  9 14:55:33", None),
    ],
)
def test_times_are_brought_into_one_order(stamp: str, value: str | None) -> None:
    assert sortable(stamp) == value


def test_times_compare_with_and_without_a_year() -> None:
    since = "2026-11-29 14:55:33"
    assert is_before("2026-11-29T14:55:32", since) is True
    assert is_before("2026-11-29 14:55:33", since) is False
    assert is_before("11-29 14:55:32", since) is True
    assert is_before("Nov 30 00:00:00", since) is False
    assert is_before("0.54", since) is None


@pytest.mark.parametrize(
    ("message", "name"),
    [
        ("Using max model len 262144", "vllm_max_model_len"),
        ("Overriding draft model max model len from 32768 to 16384", "vllm_drafter_cut"),
        (
            "Overriding draft model max_position_embeddings from 2048 to the target model's max_model_len",
            "vllm_drafter_positions",
        ),
        (
            "User-specified max_model_len (16384) is greater than the derived max_model_len "
            "(max_position_embeddings=4096 or model_max_length=None in model's config.json)",
            "vllm_long_length",
        ),
        (
            "SpecDecoding metrics: Mean acceptance length: 2.36, Accepted throughput: 1.0 tokens/s",
            "vllm_spec",
        ),
        ("EngineCore encountered a fatal error.", "vllm_dead"),
        ("Prefill batch [12], #new-seq: 1, #new-token: 4096, #cached-token: 0", "sglang_prefill"),
        (
            "Decode batch. #running-req: 1, #token: 500, token usage: 0.10, gen throughput (token/s): 9.0",
            "sglang_decode",
        ),
        ("KV cache pool is full. Retract requests. #retracted_reqs: 1", "sglang_retract"),
        (
            "slot print_timing: id  1 | task 1 | prompt eval time = 40560.53 ms / 4813 tokens",
            "llamacpp_prompt_eval",
        ),
        (
            "slot print_timing: id  1 | task 1 |        eval time =    7742.75 ms /    96 tokens",
            "llamacpp_eval",
        ),
        (
            "slot update_slots: forcing full prompt re-processing due to lack of cache data",
            "llamacpp_reprocess",
        ),
        ("Avg thr (in/out): 10.0 / 9.0 tokens/s, KV cache: 12.0%", "lmdeploy_stats"),
        (
            "Token indices sequence length is longer than the specified maximum sequence length "
            "for this model (564577 > 262144). Running this",
            "transformers_length",
        ),
        ('127.0.0.1:1 - "POST /v1/completions HTTP/1.1" 200 OK', "request"),
        ('127.0.0.1:1 - "POST /tokenize HTTP/1.1" 200 OK', None),
        ("nothing special", None),
    ],
)
def test_known_lines_are_named_by_meaning(message: str, name: str | None) -> None:
    assert recognise(message) == name


def test_every_known_line_says_what_it_means() -> None:
    engines = {"vllm", "1cat-vllm", "sglang", "llamacpp", "lmdeploy", "transformers", "uvicorn", "any"}
    assert {known.engine for known in KNOWN.values()} == engines
    assert all(known.meaning and known.needle for known in KNOWN.values())
