"""Recorded streams of real servers: counts taken from the files by hand, text by another reader."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from bench.records import Endpoint
from bench.wire.said import error_text
from bench.wire.stream import Answer, decode

STREAMS = Path(__file__).resolve().parent.parent / "recordings" / "streams"


def endpoint(name: str) -> Endpoint:
    return "chat" if "/chat" in name else "completions"


def replayed(name: str) -> Answer:
    """The recording, in its recorded reads where they were kept."""
    body = (STREAMS / f"{name}.sse").read_bytes()
    reads_file = STREAMS / f"{name}.reads.json"
    if not reads_file.exists():
        return decode([(0, body)], endpoint(name))
    reads, at = [], 0
    for stamp_ns, size in json.loads(reads_file.read_text())["reads"]:
        reads.append((stamp_ns, body[at : at + size]))
        at += size
    assert at == len(body)
    return decode(reads, endpoint(name))


# name: events with a choice, events with text, prompt, completion, cached tokens, keep-alive comments
COUNTS: dict[str, tuple[int, int, int | None, int | None, int | None, int]] = {
    "vllm-0.32-mtp4/chat_cold": (31, 30, 4793, 96, 0, 0),
    "vllm-0.32-mtp4/chat_salted": (30, 29, 4794, 96, 0, 0),  # one token longer than its cold
    "vllm-0.32-mtp4/chat_replay": (31, 30, 4793, 96, 4608, 0),  # 37 blocks of 128, one dropped: 36
    "vllm-0.32-mtp4/chat_no_usage": (5, 4, None, None, None, 0),
    "vllm-0.32-mtp4/completions_cold": (27, 27, 4784, 96, 0, 0),
    "vllm-0.32-ngram4/chat_cold": (24, 23, 3373, 96, 0, 0),
    "vllm-0.32-ngram4/chat_salted": (24, 23, 3374, 96, 0, 0),
    "vllm-0.32-ngram4/chat_replay": (24, 23, 3373, 96, 3328, 0),  # 26 blocks of 128, none dropped
    "vllm-0.32-ngram4/chat_no_usage": (6, 5, None, None, None, 0),
    "vllm-0.32-ngram4/completions_cold": (23, 23, 3364, 96, 0, 0),
    "vllm-0.32-mtp2-over-limit/p3900_cold": (60, 60, 3900, 128, 0, 0),
    "vllm-0.32-mtp2-over-limit/p4000_cold": (71, 71, 4000, 128, 0, 0),
    "vllm-0.32-mtp2-over-limit/p4090_cold": (126, 126, 4090, 128, 0, 0),
    "vllm-0.32-mtp2-over-limit/p12000_cold": (128, 128, 12000, 128, 0, 0),
    "llamacpp-11549-ngram4/chat_cold": (98, 96, 4813, 96, 0, 1),
    "llamacpp-11549-ngram4/chat_salted": (98, 96, 4813, 96, 0, 1),
    "llamacpp-11549-ngram4/chat_replay": (98, 96, 4813, 96, 4812, 0),
    "llamacpp-11549-ngram4/chat_no_usage": (10, 8, None, None, None, 0),
    "llamacpp-11549-ngram4/completions_cold": (97, 96, 4784, 96, 0, 1),
    "llamacpp-11549-target-only/chat_salted": (98, 96, 4813, 96, 0, 3),
    "llamacpp-11549-target-only/chat_replay": (98, 96, 4813, 96, 0, 3),  # its cold was a 503: no replay
    "llamacpp-11549-target-only/chat_no_usage": (10, 8, None, None, None, 0),
    "llamacpp-11549-target-only/completions_cold": (97, 96, 4784, 96, 0, 1),
    "others/llamacpp_b11434_completions_draft4_cold": (41, 27, 422, 40, 0, 0),
    "others/llamacpp_b11434_completions_draft4_replay": (41, 27, 422, 40, 421, 0),
    "others/vllm_0.32_completions_draft4_replay": (64, 55, 300, 64, 256, 0),
    "others/vllm_0.32_completions_ngram2": (6, 6, 920, 12, 0, 0),
}


@pytest.mark.parametrize("name", COUNTS)
def test_a_recording_parses_to_its_tokens_and_usage(name: str) -> None:
    answer = replayed(name)
    chunks, with_text, prompt, completion, cached, comments = COUNTS[name]
    assert len(answer.chunks.at_ns) == len(answer.chunks.kinds) == chunks
    assert sum(1 for chars in answer.chunks.chars if chars) == with_text
    assert sum(answer.chunks.chars) == len(answer.text)
    usage = answer.usage
    counted = (usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens) if usage else (None,) * 3
    assert counted == (prompt, completion, cached)
    assert (answer.finish_reason, answer.done, answer.failure) == ("length", True, None)
    expected_note = {0: (), 1: ("comment lines (keep-alive)",), 3: ("comment lines (keep-alive): 3",)}
    assert answer.notes == expected_note[comments]


@pytest.mark.parametrize("name", COUNTS)
def test_a_recordings_text_is_what_another_reader_finds(name: str) -> None:
    text = ""
    for line in re.findall(rb"^data: (\{.*\})$", (STREAMS / f"{name}.sse").read_bytes(), re.MULTILINE):
        event: dict[str, Any] = json.loads(line)
        for choice in event["choices"]:
            text += choice.get("text") or choice.get("delta", {}).get("content") or ""
    assert replayed(name).text == text


def test_every_recorded_stream_is_looked_at() -> None:
    found = {str(p.relative_to(STREAMS)).removesuffix(".sse") for p in STREAMS.rglob("*.sse")}
    assert found == set(COUNTS) | {"llamacpp-11549-target-only/chat_cold"}


def test_llama_cpp_tells_reuse_and_acceptance_in_its_last_event() -> None:
    cold = replayed("llamacpp-11549-ngram4/chat_cold").reported
    assert (cold["timings.cache_n"], cold["timings.prompt_n"], cold["timings.predicted_n"]) == (0, 4813, 96)
    assert (cold["timings.draft_n"], cold["timings.draft_n_accepted"]) == (146, 41)
    assert cold["timings.prompt_ms"] == 40560.528
    replay = replayed("llamacpp-11549-ngram4/chat_replay").reported
    assert (replay["timings.cache_n"], replay["timings.prompt_n"]) == (4812, 1)
    without_drafts = replayed("llamacpp-11549-target-only/chat_replay").reported
    assert "timings.draft_n" not in without_drafts


def test_vllm_tells_acceptance_in_its_last_event_where_asked() -> None:
    figures = replayed("others/vllm_0.32_completions_ngram2").reported
    spec = "metrics.speculative_decoding."
    assert figures[spec + "num_spec_steps"] == 4
    assert (figures[spec + "num_draft_tokens"], figures[spec + "num_accepted_draft_tokens"]) == (6, 6)
    assert [figures[f"{spec}acceptance_histogram.{i}"] for i in range(3)] == [0, 2, 2]
    assert figures["metrics.time_to_first_token_ms"] == 2177.1038690001205


def test_the_first_text_comes_after_the_pings_and_the_role() -> None:
    answer = replayed("llamacpp-11549-ngram4/chat_cold")
    # The file's reads: 3 bytes (`:` and a blank line) at 30.0 s, then the role chunk, then text.
    assert answer.chunks.kinds.startswith("ec")
    first_text = answer.chunks.at_ns[answer.chunks.kinds.index("c")]
    assert first_text > 40_000_000_000


def test_accepted_drafts_of_one_read_share_its_stamp() -> None:
    stamps = replayed("llamacpp-11549-ngram4/chat_cold").chunks.at_ns
    reads = json.loads((STREAMS / "llamacpp-11549-ngram4/chat_cold.reads.json").read_text())["reads"]
    assert set(stamps) <= {at for at, _ in reads}


def test_a_server_that_is_loading_says_so() -> None:
    answer = replayed("llamacpp-11549-target-only/chat_cold")
    assert answer.failure is not None
    assert answer.failure.kind == "error_event"
    assert "Loading model" in answer.failure.message


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("vllm-0.32-mtp4/error_too_long", "This model's maximum context length is 16384 tokens."),
        (
            "vllm-0.32-mtp4/error_max_tokens",
            "max_tokens=10000000 cannot be greater than max_model_len=16384.",
        ),
        ("vllm-0.32-mtp4/error_model", "The model `no-such-model` does not exist."),
        ("vllm-0.32-mtp4/error_bad_json", "1 validation error:"),
        (
            "llamacpp-11549-ngram4/error_too_long",
            "request (120031 tokens) exceeds the available context size",
        ),
        ("llamacpp-11549-ngram4/error_bad_json", "'messages' is required"),
    ],
)
def test_recorded_error_bodies_give_their_sentence(name: str, said: str) -> None:
    assert error_text((STREAMS / f"{name}.json").read_text()).startswith(said)
