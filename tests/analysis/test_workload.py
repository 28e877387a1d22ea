from __future__ import annotations

import pytest

from bench.analysis.decisions.workload import Request, read_workload
from bench.errors import SuiteError


def requests(text: str) -> list[Request]:
    found = read_workload(text, source="w")
    assert not found.notes
    return list(found.requests)


def test_workloads_are_read_from_csv_and_logged_replies() -> None:
    text = "# a day\nprompt_tokens,output_tokens,reused_tokens,count\n1000,10,,2\n2000,20,500,\n"
    one = Request(prompt_tokens=1000, output_tokens=10)
    two = Request(prompt_tokens=2000, output_tokens=20, reused_tokens=500)
    assert requests(text) == [one, one, two]
    usage = (
        '{"prompt_tokens": 2000, "completion_tokens": 20, "prompt_tokens_details": {"cached_tokens": 500}}'
    )
    lines = f'{{"id": "x", "usage": {usage}}}\n\n{{"response": {{"body": {{"usage": {usage}}}}}}}\n'
    assert requests(lines) == [two, two]
    assert requests('{"prompt_tokens": 1000, "output_tokens": 10}') == [one]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "a workload needs the columns"),
        ("prompt,output\n1,2\n", "a workload needs the columns prompt_tokens and output_tokens"),
        ("prompt_tokens,output_tokens\n", "no request"),
        ("just text\nprompt_tokens=1\n", "or a log whose lines name prompt_tokens and completion_tokens"),
        ("prompt_tokens,output_tokens\n10,x\n", "w, line 2, column output_tokens: 'x' is not a whole"),
        ("prompt_tokens,output_tokens\n10\n", "column output_tokens: 'None'"),
        ("prompt_tokens,output_tokens,reused_tokens\n10,1,10\n", "reused_tokens 10 is not less"),
        ("prompt_tokens,output_tokens,count\n10,1,9999999\n", "more than 1,000,000 requests"),
        ('{"prompt_tokens": 1}', "column output_tokens"),
        ("{bad", "w, line 1: not JSON"),
        ('{"usage": {"prompt_tokens": true, "completion_tokens": 1}}', "column prompt_tokens: 'True'"),
    ],
)
def test_a_bad_workload_is_refused_with_its_place(text: str, message: str) -> None:
    with pytest.raises(SuiteError, match=message):
        read_workload(text, source="w")


ONE = Request(prompt_tokens=812, output_tokens=90)
TWO = Request(prompt_tokens=3, output_tokens=2)


@pytest.mark.parametrize(
    "line",
    [
        "2026-11-29 10:00:00 POST /v1/chat/completions 200 prompt_tokens=812 completion_tokens=90",
        "INFO done: usage CompletionUsage(completion_tokens=90, prompt_tokens=812, total_tokens=902)",
        'gateway | {"usage": {"prompt_tokens": 812, "completion_tokens": 90, "prompt_tokens_details": null}}',
        "req 7: input tokens: 812, output tokens: 90, max_completion_tokens=4096",
    ],
)
def test_a_log_line_that_names_both_counts_is_a_request(line: str) -> None:
    assert requests(f"starting up\n{line}\nAvg prompt throughput: 3.0 tokens/s\n{line}\n") == [ONE, ONE]


def test_cached_tokens_of_a_log_leave_at_least_one_to_compute() -> None:
    line = "prompt_tokens=812 completion_tokens=90 cached_tokens={}\n"
    found = requests("log\n" + line.format(500) + line.format(812))
    assert [one.reused_tokens for one in found] == [500, 811]


def test_the_request_log_of_vllm_is_read_by_the_ids_of_its_requests() -> None:
    log = (
        "INFO [logger.py:39] Received request cmpl-a-0: prompt: 'x', params: SamplingParams(max_tokens=9), "
        "prompt_token_ids: [1, 2, 3], lora_request: None.\n"
        "INFO [logger.py:39] Received request cmpl-b-0: prompt: 'y', params: None, prompt_token_ids: [5], x\n"
        "INFO [logger.py:60] Generated response cmpl-a-0: output: 'z', output_token_ids: [7, 8], "
        "finish_reason: length\n"
        "INFO [logger.py:60] Generated response cmpl-c-0 (streaming complete): output: 'z', "
        "output_token_ids: None, finish_reason: stop\n"
    )
    found = read_workload(log, source="w")
    assert found.requests == (TWO,)
    # b was never answered, and the answer of c is not counted
    assert found.notes == ("w: left out 2 requests without both counts",)


def test_an_aborted_request_of_a_log_is_left_out_and_counted() -> None:
    log = "x\nprompt_tokens=5 completion_tokens=0\nprompt_tokens=3 completion_tokens=2\n"
    found = read_workload(log, source="w")
    assert (found.requests, found.notes) == ((TWO,), ("w: left out 1 request without both counts",))
