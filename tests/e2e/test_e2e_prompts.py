"""Prompts on the real engine: exact at every endpoint, and recorded chats that find what they share.

These tests fail when the engine cannot be started; they are never skipped.
"""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.engines import llamacpp
from bench.journal import read_entries, read_info
from bench.prompting.borders import index_corpus
from bench.prompting.compose import Composer
from bench.prompting.conversation import Conversation, TurnPrompt, parse_conversations, replay, turn_prompt
from bench.prompting.corpus import load_corpus
from bench.prompting.template import TOKEN_IDS, Message, measure_template, measure_text
from bench.prompting.tokens import ServerTokenizer, server_identity
from bench.records import Exchange, PromptSettings, Trial
from bench.servers.child import serving
from bench.servers.llama import default_model

TIERS = (100, 113, 128, 160, 200)
ANSWER = 8
"""Tokens of the server's own answers in a chat."""
SUITE = """
[suite]
name = "prompts"
tiers = {tiers}
conditions = {conditions}
output_tokens = {output}
repeats = 1
replays = 1
retry_invalid = 2
warmup = "none"
[prompt]
corpus = "python"
task = {task}
"""
ROUTE = """
[[route]]
name = "{name}"
base_url = "{url}"
request = {{ endpoint = "{name}" }}
"""


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    default_model()
    with serving(["llama", "--context", "2048"]) as child:
        yield child.base_url


def run_suite(folder: Path, text: str) -> Path:
    (folder / "suite.toml").write_text(text)
    command = [
        sys.executable,
        "-m",
        "bench",
        "run",
        str(folder / "suite.toml"),
        "--results",
        str(folder / "r"),
    ]
    result = subprocess.run(command, capture_output=True, text=True, timeout=1200, check=False)
    assert result.returncode == 0, result.stderr
    (path,) = (folder / "r").iterdir()
    return path


def exchanges(run: Path) -> list[Exchange]:
    return [one for one in read_entries(run) if isinstance(one, Exchange) and one.purpose == "trial"]


class Served:
    """The engine as a chat program sees it, asked without this package's client."""

    def __init__(self, base_url: str) -> None:
        self.base_url = base_url
        self.root = base_url.removesuffix("/v1")

    def post(self, url: str, body: dict[str, Any]) -> Any:
        data = json.dumps(body).encode()
        request = urllib.request.Request(url, data, {"Content-Type": "application/json"})  # noqa: S310
        with urllib.request.urlopen(request, timeout=120) as answer:  # noqa: S310 - loopback
            return json.loads(answer.read())

    def count(self, messages: list[Message]) -> list[int]:
        prompt = self.post(f"{self.root}/apply-template", {"messages": messages})["prompt"]
        body = {"content": prompt, "add_special": True, "parse_special": True}
        tokens: list[int] = self.post(f"{self.root}/tokenize", body)["tokens"]
        return tokens

    def tokens(self, text: str) -> tuple[list[int], list[bytes] | None]:
        answer = self.post(f"{self.root}/tokenize", {"content": text, "with_pieces": True})
        return [token["id"] for token in answer["tokens"]], llamacpp.read_pieces(answer)

    def count_text(self, text: str) -> int:
        counted: int = self.send({"prompt": text}, 1)["usage"]["prompt_tokens"]
        return counted

    def send(self, fields: dict[str, object], tokens: int) -> Any:
        path = "/chat/completions" if "messages" in fields else "/completions"
        return self.post(self.base_url + path, {**fields, "max_tokens": tokens, "temperature": 0})

    def answer(self, turn: TurnPrompt, tokens: int) -> tuple[int, int, str]:
        """Prompt tokens, those of them that were cached, and the answer."""
        reply = self.send(turn.prompt.fields(), tokens)
        usage = reply["usage"]
        cached = usage["prompt_tokens_details"]["cached_tokens"]
        return usage["prompt_tokens"], cached, reply["choices"][0]["message"]["content"]


def test_the_server_counts_five_tiers_exactly_at_every_endpoint(server: str, tmp_path: Path) -> None:
    served = Served(server)
    tokenizer = ServerTokenizer(served.tokens, server_identity(served.tokens, "smollm2"))
    corpus = load_corpus("synthetic", base=tmp_path, cache=tmp_path)
    index = index_corpus(corpus, tokenizer, need_tokens=max(TIERS) * 3, cache=tmp_path)
    templates = (
        measure_template(served.count, tokenizer),
        measure_text(served.count_text, tokenizer),
        TOKEN_IDS,
    )
    counted = {}
    for template in templates:
        endpoint = template.endpoint
        settings = {"nonce": endpoint, "seed": 1, "cache": tmp_path}
        composer = Composer(tokenizer, index, PromptSettings(), template=template, **settings)
        for tier in TIERS:
            prompt = composer.compose(Trial(id="x", route="r", tier=tier, condition="cold", repeat=1))
            counted[endpoint, tier] = served.send(prompt.fields(), 1)["usage"]["prompt_tokens"]
    assert counted == {(name, tier): tier for name in ("chat", "completions", "tokens") for tier in TIERS}


def test_several_tasks_are_exact_recorded_with_their_class_graded_and_compared(
    server: str, tmp_path: Path
) -> None:
    text = SUITE.format(
        tiers=[330], conditions='["cold", "replay"]', output=12, task='["edit-code", "needle"]'
    )
    run = run_suite(tmp_path, text + ROUTE.format(name="chat", url=server))
    found = exchanges(run)
    assert {one.trial.id for one in found} == {
        f"chat/330/{what}~{task}" for what in ("cold/1", "replay/1.1") for task in ("edit-code", "needle")
    }
    assert {one.usage.prompt_tokens for one in found if one.usage} == {330}
    assert {one.trial.task: one.prompt.acceptance_class for one in found} == {
        "edit-code": "high",
        "needle": "middle",
    }
    assert {one.trial.task: len(one.prompt.needles) for one in found} == {"edit-code": 0, "needle": 5}
    report = (run / "report.md").read_text()
    assert all(f"## {title}" in report for title in ("Needles", "Greedy answers", "Tasks"))
    assert read_info(run).suite.prompt.tasks == ("edit-code", "needle")


# --- recorded chats -------------------------------------------------------------------------------


def chat(turns: int) -> Conversation:
    """A chat of so many turns; every message says something that no other says."""
    messages = [{"role": "system", "content": "You keep the log of a harbour."}]
    for number in range(1, turns + 1):
        ship = f"ship number {number * 37}"
        messages.append({"role": "user", "content": f"At {number} o'clock {ship} came in. What is next?"})
        messages.append({"role": "assistant", "content": f"Berth {number * 3} is free; send {ship} there."})
    (found,) = parse_conversations(json.dumps({"messages": messages}).encode(), "harbour.jsonl")
    return found


def test_ten_recorded_turns_each_find_the_whole_turn_before_in_the_cache(server: str) -> None:
    served = Served(server)
    turns = replay(chat(10), salt="amber violet copper", count_chat=served.count)
    assert [turn.number for turn in turns] == list(range(1, 11))
    for turn in turns:
        prompt, cached, _ = served.answer(turn, 1)
        assert prompt == turn.prompt.recipe.tokens
        if turn.shared:  # blocks of this engine are single tokens; the one it answered may fit too
            assert turn.shared <= cached <= turn.shared + 1


def test_turns_on_the_servers_own_answers_find_these_too(server: str) -> None:
    served, recorded = Served(server), chat(4)
    answers: list[str] = []
    before: TurnPrompt | None = None
    for number in range(1, recorded.turns + 1):
        turn = turn_prompt(
            recorded,
            number,
            salt="ivory walnut signal",
            count_chat=served.count,
            previous=before,
            answers=answers,
        )
        prompt, cached, text = served.answer(turn, ANSWER)
        assert prompt == turn.prompt.recipe.tokens
        if before is not None:
            # All of the answer but its last token, which no cache holds: nothing came after it.
            assert cached == turn.shared + ANSWER - 1
        answers.append(text)
        before = turn
