"""The HTTP surface: vLLM's forms, checked against recordings of a real vLLM 0.32."""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from simulator_client import NO_TLS, OUTPUT, TEXT, Client, chunks, events, raw_request, simulator, text, usage

import bench.servers.simulator.app as surface

RECORDED = Path(__file__).parent.parent / "recordings"
STREAMS = RECORDED / "streams" / "vllm-0.32-mtp4"
PAGES = RECORDED / "pages" / "vllm-0.32-mtp4"


@pytest.fixture(scope="module")
def server() -> Iterator[Client]:
    with simulator("toy") as client:
        yield client


def shape(value: Any) -> Any:
    """Names and kinds of a JSON value, without its contents."""
    if isinstance(value, dict):
        return {key: shape(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [shape(value[0])] if value else []
    return type(value).__name__


def recorded(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/v1/models", "models.json"),
        ("/version", "version.json"),
        ("/server_info", None),
        ("/props", "props.json"),
    ],
)
def test_pages_have_the_form_of_the_real_ones(server: Client, path: str, name: str | None) -> None:
    reply = server.get(path)
    if name:
        assert shape(reply.json()) == shape(recorded(PAGES / name))
    else:
        assert "num_spec_tokens=2" in reply.json()["vllm_config"]


def test_health_is_an_empty_200(server: Client) -> None:
    reply = server.get("/health")
    assert (reply.status_code, reply.content) == (200, b"")


def test_the_model_list_tells_the_served_length(server: Client) -> None:
    assert server.get("/v1/models").json()["data"][0]["max_model_len"] == 32768


@pytest.mark.parametrize("name", ["chat_cold.sse", "chat_no_usage.sse", "completions_cold.sse"])
def test_every_kind_of_event_has_the_form_of_a_real_one(server: Client, name: str) -> None:
    real = events((STREAMS / name).read_bytes())
    more: dict[str, Any] = {} if name != "chat_no_usage.sse" else {"stream_options": None}
    if name == "completions_cold.sse":
        body = {key: value for key, value in server.body().items() if key != "messages"}
        ours = events(server.post("/v1/completions", body | {"prompt": TEXT}).content)
    else:
        ours = events(server.ask(**more))
    for place in (0, 1, 2, -2, -1):
        mine, theirs = shape(ours[place]), shape(real[place])
        if (mine.get("usage") or {}).get("prompt_tokens_details") and "created_cache_tokens" not in str(
            theirs
        ):
            del mine["usage"]["prompt_tokens_details"]["created_cache_tokens"]
        assert mine == theirs


def test_the_stream_ends_with_done(server: Client) -> None:
    assert server.ask().endswith(b"data: [DONE]\n\n")


def test_a_chunk_carries_a_step_of_one_to_k_and_one_tokens(server: Client) -> None:
    raw = server.ask()
    told = server.truth()
    assert told.chunk_tokens[0] == 1
    assert set(told.chunk_tokens) <= {1, 2, 3}
    assert sum(told.chunk_tokens) == OUTPUT
    assert len(told.chunk_tokens) == len(chunks(raw)) - 1  # but the role


def test_text_is_words_and_no_word_comes_twice_in_a_row(server: Client) -> None:
    words = text(server.ask()).split()
    assert len(words) == OUTPUT
    assert all(one != two for one, two in itertools.pairwise(words))


def test_a_replay_says_the_same_and_tells_what_was_cached(server: Client) -> None:
    body = "Something new for this test. " * 30
    cold, replay = server.ask(body), server.ask(body)
    assert text(cold) == text(replay)
    assert usage(cold)["prompt_tokens_details"]["cached_tokens"] == 0
    length = usage(replay)["prompt_tokens"]
    assert usage(replay)["prompt_tokens_details"]["cached_tokens"] == ((length - 1) // 16 - 1) * 16


def test_another_prompt_or_seed_gets_another_answer(server: Client) -> None:
    answers = {text(server.ask(TEXT)), text(server.ask(TEXT * 2)), text(server.ask(TEXT, seed=7))}
    assert len(answers) == 3


def test_another_cache_salt_is_as_cold_as_cold(server: Client) -> None:
    server.ask(cache_salt="one")
    assert usage(server.ask(cache_salt="two"))["prompt_tokens_details"]["cached_tokens"] == 0


def test_resetting_the_prefix_cache_makes_everything_cold(server: Client) -> None:
    server.ask()
    assert server.post("/reset_prefix_cache", None).json() == {"success": True}
    assert usage(server.ask())["prompt_tokens_details"]["cached_tokens"] == 0


def test_continuous_usage_counts_the_tokens_of_every_chunk(server: Client) -> None:
    raw = server.ask(stream_options={"include_usage": True, "continuous_usage_stats": True})
    told = server.truth()
    shown = [chunk["usage"]["completion_tokens"] for chunk in chunks(raw)]
    assert shown == [0, *(sum(told.chunk_tokens[: i + 1]) for i in range(len(told.chunk_tokens)))]


def test_without_streaming_everything_comes_in_one_reply(server: Client) -> None:
    reply = server.post("/v1/chat/completions", server.body(stream=False)).json()
    assert len(reply["choices"][0]["message"]["content"].split()) == OUTPUT
    assert reply["usage"]["completion_tokens"] == OUTPUT
    assert reply["choices"][0]["finish_reason"] == "length"


def test_an_answer_ends_by_itself_unless_that_is_forbidden(server: Client) -> None:
    raw = server.ask(ignore_eos=False, max_tokens=5000)
    assert chunks(raw)[-1]["choices"][0]["finish_reason"] == "stop"
    assert 40 <= usage(raw)["completion_tokens"] <= 400


def test_tokenize_counts_what_the_server_counts(server: Client) -> None:
    messages = server.body()["messages"]
    shown = server.post("/tokenize", {"model": "toy", "messages": messages}).json()
    assert shape(shown) == shape(recorded(PAGES / "tokenize.json"))
    assert shown["count"] == len(shown["tokens"]) == usage(server.ask())["prompt_tokens"]


def test_the_chat_template_is_chatml_without_a_system_prompt(server: Client) -> None:
    ids = server.post("/tokenize", {"messages": [{"role": "user", "content": "hi"}]}).json()["tokens"]
    shown = server.post("/detokenize", {"tokens": ids}).json()["prompt"]
    assert shown == "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"


def test_tokens_can_be_shown_as_text(server: Client) -> None:
    shown = server.post("/tokenize", {"prompt": "Hello, world", "return_token_strs": True}).json()
    assert "".join(shown["token_strs"]) == "Hello, world"


def test_a_prompt_of_token_ids_is_taken_as_it_stands(server: Client) -> None:
    ids = server.post("/tokenize", {"prompt": TEXT * 10}).json()["tokens"]
    for prompt in (ids, [ids]):
        body = {"model": "toy", "prompt": prompt, "max_tokens": 4, "ignore_eos": True}
        assert server.post("/v1/completions", body).json()["usage"]["prompt_tokens"] == len(ids)


def test_errors_have_the_form_of_the_real_ones(server: Client) -> None:
    cases = {
        "error_model.json": server.body(model="no-such-model"),
        "error_max_tokens.json": server.body(max_tokens=10_000_000),
        "error_too_long.json": server.body("word " * 40_000),
        "error_bad_json.json": "not an object",
    }
    for name, body in cases.items():
        reply = server.post("/v1/chat/completions", body)
        real = recorded(STREAMS / name)
        assert reply.status_code == real["error"]["code"]
        assert shape(reply.json()) == shape(real)
        assert [reply.json()["error"][key] for key in ("type", "param")] == [
            real["error"][key] for key in ("type", "param")
        ]


def test_the_over_length_message_is_the_real_one_with_our_numbers(server: Client) -> None:
    ours = server.post("/v1/chat/completions", server.body("word " * 40_000)).json()["error"]["message"]
    real = recorded(STREAMS / "error_too_long.json")["error"]["message"]
    assert ours == real.replace("16384", "32768").replace("16385", "32769")


def test_output_that_does_not_fit_is_clamped_silently(server: Client) -> None:
    ids = list(range(100, 200)) * 327 + list(range(100, 158))
    body = {"model": "toy", "prompt": ids, "max_tokens": 100, "ignore_eos": True}
    reply = server.post("/v1/completions", body).json()
    assert reply["usage"]["completion_tokens"] == 32768 - len(ids) == 10
    assert reply["choices"][0]["finish_reason"] == "length"
    full = server.post("/v1/completions", body | {"prompt": ids + list(range(300, 310))})
    assert (full.status_code, full.json()["error"]["message"]) == (
        400,
        "max_tokens must be at least 1, got 0.",
    )


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/completions", {"prompt": [1, "two"]}),
        ("/v1/completions", {"prompt": [1.5]}),
        ("/v1/completions", {"prompt": [9000]}),
        ("/v1/completions", {"prompt": [-1]}),
        ("/v1/completions", {"prompt": []}),
        ("/v1/completions", {"prompt": ""}),
        ("/v1/completions", {"prompt": [[1], [2]]}),
        ("/v1/completions", {"prompt": "x" + " " * 200_000}),
        ("/v1/completions", {"prompt": "hi", "max_tokens": 0}),
        ("/v1/chat/completions", {"messages": "hi"}),
        ("/tokenize", {}),
        ("/tokenize", {"prompt": " " * 200_000}),
        ("/detokenize", {"tokens": [123456]}),
    ],
)
def test_a_wrong_request_gets_400_and_a_reason(server: Client, path: str, body: object) -> None:
    reply = server.post(path, body)
    assert reply.status_code == 400
    assert reply.json()["error"]["message"]


def test_broken_json_gets_400(server: Client) -> None:
    reply = server.http.post(server.server.origin + "/v1/completions", content=b'{"prompt": "\xff')
    assert reply.status_code == 400


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions", "/tokenize"])
def test_json_without_a_floor_gets_400(server: Client, path: str) -> None:
    body = b'{"prompt": "a", "nested": ' + b"[" * 100_000
    origin = server.server.origin
    reply = server.http.post(origin.removesuffix("/v1") + path, content=body)
    assert reply.status_code == 400
    assert "nested too deep" in reply.json()["error"]["message"]


def families(page: str) -> dict[str, set[str]]:
    """Sample name -> its label names and bucket bounds, of the engine's own families."""
    found: dict[str, set[str]] = {}
    for line in page.splitlines():
        if line.startswith("vllm:") and "cache_config_info" not in line:
            name, _, rest = line.partition("{")
            labels = [label.split("=") for label in rest.rpartition("}")[0].split(",")]
            known = found.setdefault(name, set())
            known |= {key for key, _ in labels}
            known |= {
                f"{key}={value}"
                for key, value in labels
                if key in ("le", "source", "reason", "finished_reason")
            }
    return found


def test_the_metrics_page_has_the_real_names_labels_and_buckets(server: Client) -> None:
    server.ask()
    ours = families(server.page())
    real = families((PAGES / "metrics_4_end.prom").read_text(encoding="utf-8"))
    for name, labels in ours.items():
        if "le" in labels and ("_tokens_bucket" in name):  # cut at the served length, which differs
            labels, theirs = ({x for x in known if x[:2] != "le"} for known in (labels, real[name]))
            assert labels == theirs
        else:
            assert labels == real[name], name
    missing = {name for name in real if name not in ours}
    assert all(
        any(part in name for part in ("estimated_", "mm_cache", "sleep", "admission")) for name in missing
    )


def test_the_page_counts_what_the_truth_tells(server: Client) -> None:
    names = (
        "prompt_tokens_total",
        "generation_tokens_total",
        "request_success_total",
        "prefix_cache_hits_total",
    )
    drafting = tuple(
        f"spec_decode_num_{part}_total" for part in ("drafts", "draft_tokens", "accepted_tokens")
    )
    before = {name: server.counter(name) for name in names + drafting}
    server.ask()
    told = server.truth()
    moved = [server.counter(name) - before[name] for name in names + drafting]
    counts = [told.drafts, told.draft_tokens, told.accepted_tokens]
    assert moved == [told.prompt_tokens, OUTPUT, 1, told.cached_tokens, *counts]


def test_truth_tells_when_each_chunk_was_due_and_handed_over(server: Client) -> None:
    server.ask()
    told = server.get("/truth").json()["requests"][-1]
    due, sent = told["chunk_due_ns"], told["chunk_sent_ns"]
    assert len(due) == len(sent) == len(told["chunk_tokens"])
    assert all(late >= 0 for late in (s - d for s, d in zip(sent, due, strict=True)))
    assert told["overrun_max_s"] == pytest.approx(max(s - d for s, d in zip(sent, due, strict=True)) / 1e9)
    assert (due[0] - told["arrived_ns"]) / 1e9 == pytest.approx(told["ttft_s"], abs=1e-6)
    assert told["full_ttft_s"] == pytest.approx(told["ttft_s"] * 500)
    assert (due[-1] - told["arrived_ns"]) / 1e9 == pytest.approx(told["total_s"], abs=1e-6)


def test_truth_tells_when_every_other_request_came_and_was_answered() -> None:
    with simulator("toy") as client:
        before_ns = time.monotonic_ns()
        client.get("/v1/models")
        client.get("/metrics")
        client.get("/nowhere")
        after_ns = time.monotonic_ns()
        pages = client.get("/truth").json()["pages"]
    assert [page["path"] for page in pages] == ["/v1/models", "/metrics", "/nowhere"]
    times = [time_ns for page in pages for time_ns in (page["arrived_ns"], page["sent_ns"])]
    assert [before_ns, *times, after_ns] == sorted([before_ns, *times, after_ns])


def test_a_client_that_leaves_frees_its_place() -> None:
    with simulator("toy", speed=1) as client:
        opened = raw_request(client, max_tokens=20_000)
        assert opened.recv(100)
        opened.close()
        while client.counter("num_requests_running"):
            pass
        assert client.counter("kv_cache_usage_perc") == 0
        assert client.counter("request_success_total") == 0


def test_a_crowd_is_served_whole_four_at_a_time() -> None:
    async def crowd(client: Client) -> list[bytes]:
        async with httpx.AsyncClient(trust_env=False, timeout=20, verify=NO_TLS) as http:
            url = client.server.base_url + "/chat/completions"
            bodies = [client.body(f"{index} {TEXT * 10}") for index in range(12)]
            return [
                reply.content for reply in await asyncio.gather(*(http.post(url, json=b) for b in bodies))
            ]

    with simulator("toy", speed=2) as client:
        replies = asyncio.run(crowd(client))
        told = client.server.truth().requests
        assert client.counter("num_requests_running") == client.counter("num_requests_waiting") == 0
    assert [len(text(raw).split()) for raw in replies] == [OUTPUT] * 12
    assert all(sum(one.chunk_tokens) == OUTPUT for one in told)
    # Wherever a request starts, at most four are between their first and last token.
    spans = [(one.chunk_due_ns[0], one.chunk_due_ns[-1]) for one in told]
    assert max(sum(a <= start < b for a, b in spans) for start, _ in spans) <= 4


def test_a_body_without_end_is_refused(server: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(surface, "_BODY_LIMIT", 1000)
    reply = server.http.post(server.server.base_url + "/completions", content=b" " * 1001)
    assert reply.status_code == 413
