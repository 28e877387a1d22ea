"""Recorded chats on a simulated server: what is sent, what is kept of it, and what comes of misses."""

from __future__ import annotations

import asyncio
import itertools
import json
import urllib.request
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from chat_files import SECRET, recorded, write
from run_helpers import ctxbench_here, exchanges, only_run, suite_text

from bench.analysis.verdicts.blame import is_servers_fault
from bench.analysis.verdicts.measure import measure_all
from bench.engines import DIALECTS
from bench.errors import EngineError, SuiteError
from bench.journal import read_info
from bench.plan.suite import parse_suite
from bench.prompting.conversation import ChatMessage, Conversation
from bench.records import Exchange, Failure, Measurement, PromptRecipe, ServerFacts, Trial
from bench.report.content import collect
from bench.run.forecast.chats import planned_chat
from bench.run.openroute import OpenRoute
from bench.run.order import Order, read_usable
from bench.run.preflight.chats import chat_findings
from bench.run.private import without_words, wordless
from bench.run.progress import Progress
from bench.run.status import status
from bench.run.study import resume, start
from bench.servers.simulator import start as simulate
from bench.wire.failures import StatusError


def suite(base_url: str, chats: str = "", *, retry: int = 1, prompt: str = "", head: str = "") -> str:
    text = suite_text({"a": base_url}, suite='conditions = ["cold"]\n' + head, prompt=prompt)
    text = text.replace("[256, 512]", "[256]").replace("output_tokens = 16", "output_tokens = 4")
    text = text.replace("repeats = 2", "repeats = 1").replace("retry_invalid = 3", f"retry_invalid = {retry}")
    return f'{text}\n[chats]\nfiles = ["harbour.jsonl"]\n{chats}\n'


def run_of(text: str, folder: Path) -> Path:
    order = Order(suite=parse_suite(text), suite_text=text, results=folder / "r", folder=folder, force=True)
    return asyncio.run(start(order, Progress()))


def measured(run: Path) -> list[Measurement]:
    return [one for one in measure_all(read_info(run), exchanges(run)) if one.turn]


def sent(run: Path) -> list[tuple[str, str, int]]:
    return [(e.trial.id, e.purpose, e.attempt) for e in exchanges(run) if e.trial.turn]


def truth(base_url: str) -> list[dict[str, Any]]:
    with urllib.request.urlopen(base_url.removesuffix("/v1") + "/truth", timeout=30) as answer:  # noqa: S310
        found: list[dict[str, Any]] = json.loads(answer.read())["requests"]
    return found


@pytest.mark.parametrize("answers", ["recorded", "own"])
def test_every_turn_finds_the_turn_before_it_as_the_server_itself_tells(answers: str, tmp_path: Path) -> None:
    write(tmp_path, recorded(1, 3), recorded(2, 2))
    with simulate("toy-target-only") as server:
        run = run_of(suite(server.base_url, f'answers = "{answers}"'), tmp_path)
        true = truth(server.base_url)[-5:]
    rows = measured(run)
    assert [one.trial_id for one in rows] == [
        f"a/chat-{chat}/turn-{turn}/1" for chat, turn in ((1, 1), (1, 2), (1, 3), (2, 1), (2, 2))
    ]
    assert all(one.verdict.valid and one.verdict.reuse == "held" for one in rows)
    assert [one.cached_tokens for one in rows] == [one["cached_tokens"] for one in true]
    assert [one.prompt_tokens for one in rows] == [one["prompt_tokens"] for one in true]
    for before, now in itertools.pairwise(rows):
        if now.turn == 1:
            assert now.cached_tokens == 0
            continue
        # Blocks of 16 tokens: at least all whole ones of the turn before, at most those of its answer too.
        held = (before.prompt_tokens or 0, (before.prompt_tokens or 0) + 4)
        assert now.expected_cached == held[0] // 16 * 16
        assert now.cached_tokens in {tokens // 16 * 16 for tokens in held}
    texts = [e for e in exchanges(run) if e.trial.turn]
    assert [e.prompt.shared is None for e in texts] == [True, False, False, True, False]
    assert [e.prompt.follows for e in texts[1:3]] == [e.prompt.sha256 for e in texts[:2]]
    assert len({e.prompt.salt for e in texts}) == 2
    assert status(run).state == "finished"


def test_no_word_of_a_chat_is_kept_unless_texts_are(tmp_path: Path) -> None:
    write(tmp_path, recorded(1, 2))
    (tmp_path / "s.toml").write_text(suite("http://127.0.0.1:1/v1"))
    with simulate("toy-target-only") as server:
        (tmp_path / "s.toml").write_text(suite(server.base_url))
        told = ctxbench_here(["run", "s.toml"], tmp_path)
        assert told.returncode == 0, told.stderr
        run = only_run(tmp_path / "results")
        kept = run_of(suite(server.base_url, prompt="keep_text = true"), tmp_path)
    files = [path for path in run.rglob("*") if path.is_file() and path.suffix not in {".gz", ".png"}]
    assert {"run.json", "journal.jsonl", "report.html", "report.md"} <= {path.name for path in files}
    assert not [path.name for path in files if SECRET.encode() in path.read_bytes()]
    assert SECRET not in told.stdout + told.stderr
    assert all(not (e.text or e.reasoning) for e in exchanges(run) if e.trial.turn)
    assert all(e.text and SECRET in (e.prompt.text or "") for e in exchanges(kept) if e.trial.turn)


@pytest.mark.usefixtures("single_preflight")
def test_a_chat_with_a_turn_that_failed_is_sent_again_from_its_start_behind_a_fresh_salt(
    tmp_path: Path,
) -> None:
    write(tmp_path, recorded(1, 3))
    # Requests: 1 the preflight's, 2 the warm-up, 3 cold, 4 to 6 the turns.
    with simulate("toy-target-only", faults=["empty-answer@5"]) as server:
        run = run_of(suite(server.base_url), tmp_path)
    first, second, third = (f"a/chat-1/turn-{turn}/1" for turn in (1, 2, 3))
    assert sent(run) == [
        (first, "trial", 1),
        (second, "trial", 1),
        (first, "prime", 2),
        (second, "trial", 2),
        (third, "trial", 2),
    ]
    salts = [e.prompt.salt for e in exchanges(run) if e.trial.turn]
    assert len(set(salts[:2])) == len(set(salts[2:])) == 1 and salts[0] != salts[2]
    assert [(one.turn, one.verdict.valid) for one in measured(run)] == [
        (1, True),
        (2, False),
        (2, True),
        (3, True),
    ]
    now = status(run)
    assert (now.state, now.unmeasured) == ("finished", 0)


def test_turns_that_miss_are_told_and_repeated_no_more_often_than_allowed(tmp_path: Path) -> None:
    write(tmp_path, recorded(1, 3))
    with simulate("toy-target-only", faults=["evicts"]) as server:
        run = run_of(suite(server.base_url), tmp_path)
    rows = measured(run)
    missed = [one for one in rows if not one.verdict.valid]
    assert {reason.id for one in missed for reason in one.verdict.reasons} == {"turn_missed"}
    assert [(one.turn, one.attempt) for one in missed] == [(2, 1), (3, 1), (2, 2), (3, 2)]
    assert [purpose for _, purpose, _ in sent(run)].count("prime") == 1
    assert status(run).unmeasured == 2
    (chat,) = collect([run]).chats
    assert chat.whole == 0 and chat.total_s is None and [turn.valid for turn in chat.turns] == [1, 0, 0]


def test_a_chat_that_was_cut_off_is_begun_again_when_its_run_goes_on(tmp_path: Path) -> None:
    write(tmp_path, recorded(1, 3))
    with simulate("toy-target-only") as server:
        run = run_of(suite(server.base_url), tmp_path)
        journal = run / "journal.jsonl"
        lines = journal.read_bytes().splitlines(keepends=True)
        (second,) = [n for n, line in enumerate(lines) if b'"exchange"' in line and b'"turn":2' in line]
        journal.write_bytes(b"".join(lines[: second + 1]))  # as if killed before the third turn
        assert status(run).left == 1
        asyncio.run(resume(run, Progress(), folder=tmp_path))
        first, second_id, third = (f"a/chat-1/turn-{turn}/1" for turn in (1, 2, 3))
        assert sent(run)[2:] == [(first, "prime", 2), (second_id, "prime", 2), (third, "trial", 2)]
        assert [one.turn for one in measured(run) if one.verdict.valid] == [1, 2, 3]
        before = len(exchanges(run))
        asyncio.run(resume(run, Progress(), folder=tmp_path))
        assert len(exchanges(run)) == before
        with pytest.raises(SuiteError, match=r"cannot be read.*give the suite file beside --resume"):
            asyncio.run(resume(run, Progress(), folder=tmp_path / "elsewhere"))
        write(tmp_path, recorded(5, 3))
        with pytest.raises(SuiteError, match=r"harbour.jsonl line 1: this chat is not the one"):
            asyncio.run(resume(run, Progress(), folder=tmp_path))


def test_recorded_pauses_are_waited_for_and_belong_to_nobody(tmp_path: Path) -> None:
    write(tmp_path, recorded(1, 2, pause_s=50.0))  # 50 s between the answer and the second message
    with simulate("toy-target-only") as server:
        run = run_of(suite(server.base_url, "think = 0.004"), tmp_path)
    assert [trial.pause_s for trial in read_info(run).plan if trial.turn] == [0.0, pytest.approx(0.2)]
    first, second = [e for e in exchanges(run) if e.trial.turn]
    assert second.sent_ns - first.sent_ns - first.ended_ns >= 0.2e9
    content = collect([run])
    assert content.runs[0].span_s is not None and content.runs[0].harness_s is not None
    account = [event.data for event in content.runs[0].events if "paused_s" in event.data]
    assert [data["paused_s"] for data in account] == [pytest.approx(0.2)]
    told = float(str(account[0]["harness_s"])) + float(str(account[0]["server_s"]))
    assert told == pytest.approx(float(str(account[0]["wall_s"])) - 0.2)


def test_what_cannot_be_sent_is_refused_before_anything_is(tmp_path: Path) -> None:
    def refused(text: str) -> str:
        (tmp_path / "s.toml").write_text(text)
        told = ctxbench_here(["run", "s.toml"], tmp_path)
        assert told.returncode == 2 and not (tmp_path / "results").exists()
        return told.stderr

    with simulate("toy-target-only") as server:
        url = server.base_url
        assert "[chats] harbour.jsonl: cannot be read: No such file" in refused(suite(url))
        write(tmp_path, recorded(1, 2), recorded(2, 2, words=15_000))
        assert "line 2: its last turn has" in refused(suite(url))
        assert "more than the served 32,768: lower most_turns" in refused(suite(url))
        write(tmp_path, *(recorded(1, 300) for _ in range(4)))
        assert "4 chats with 1,200 turns, and 1,000 are sent at most" in refused(suite(url))
        other = suite(url) + '[request]\nendpoint = "completions"\n'
        assert "[chats] needs endpoint = \"chat\": route a has 'completions'" in refused(other)
        assert len(truth(url)) <= 4  # the tiny requests of the checks


def test_a_server_that_does_not_count_chats_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def counts_none(*_: object) -> None:
        return None

    write(tmp_path, recorded(1, 2))
    monkeypatch.setattr("bench.run.preflight.chats.server_ids", counts_none)
    with (
        simulate("toy-target-only") as server,
        pytest.raises(SuiteError, match="cannot tell how many tokens a chat has"),
    ):
        run_of(suite(server.base_url), tmp_path)


def test_a_suite_without_chats_reads_no_file(tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text(suite("http://127.0.0.1:1/v1").partition("[chats]")[0])
    assert read_usable(tmp_path / "s.toml")[0].chats is None


# --- lengths, and what is kept ----------------------------------------------------------------------


def test_turns_are_expected_to_be_as_long_as_their_characters_and_as_the_server_counts_the_last() -> None:
    messages = [("user", "a" * 400), ("assistant", "b" * 200), ("user", "c" * 40)]
    chat = Conversation(
        name="x", sha256="h", messages=tuple(ChatMessage(role=role, content=text) for role, text in messages)
    )
    asked = parse_suite(suite("http://h:1/v1").replace("output_tokens = 4", "output_tokens = 100"))
    own = parse_suite(suite("http://h:1/v1", 'answers = "own"').replace("_tokens = 4", "_tokens = 100"))
    # 16 around all, 8 around each message, 4 characters a token: 16 + 108, and 58 + 18 more.
    assert planned_chat(asked, chat, None).tokens == (124, 200)
    assert planned_chat(asked, chat, 400).tokens == (248, 400)
    # Without the recorded answer 16 + 108 and 8 + 18 more; the server's own is up to 100 tokens long.
    assert planned_chat(own, chat, None).tokens == (124, 150 + 100)


def test_of_an_exchange_everything_but_the_words_is_kept() -> None:
    trial = Trial(id="t", route="r", tier=1, condition="turn", repeat=1, turn=1)
    recipe = PromptRecipe(
        sha256="h", tokens=1, endpoint="chat", corpus="x", corpus_sha256="h", task="conversation", start=1
    )
    whole = Exchange(
        trial=trial,
        prompt=recipe,
        url="u",
        sent_ns=1,
        ended_ns=2,
        text="t",
        reasoning="r",
        tool_text="c",
        finish_reason="length",
    )
    kept = without_words(whole)
    assert (kept.text, kept.reasoning, kept.tool_text, kept.finish_reason) == ("", "", "", "length")


@pytest.mark.parametrize(
    ("kind", "status_code", "body", "at_fault"),
    [
        ("status", 400, '{"error": "quince is too long"}', False),
        ("status", 503, "quince later", True),
        ("error_event", 200, '{"error": {"message": "quince", "code": 400}}', False),
        ("error_event", 200, '{"error": {"message": "quince"}}', True),
        ("malformed", 200, "quince", False),
        ("reset", None, None, True),
    ],
)
def test_a_failure_keeps_whose_fault_it_was_and_none_of_what_was_said(
    kind: Any, status_code: int | None, body: str | None, at_fault: bool
) -> None:
    failure = Failure(kind=kind, message=f"HTTP: {body}", status=status_code, body=body)
    kept = wordless(failure)
    assert is_servers_fault(kept) is is_servers_fault(failure) is at_fault
    assert SECRET not in repr(kept) and (kept.kind, kept.status) == (kind, status_code)


def test_of_a_log_only_counts_are_kept_where_its_words_may_be_the_chat(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text("")
    write(tmp_path, recorded(1, 1))
    with simulate("toy-target-only") as server:
        text = suite(server.base_url).replace(
            f'base_url = "{server.base_url}"', f'base_url = "{server.base_url}"\nlog = "{log}"'
        )
        run = run_of(text, tmp_path)
    kept = {e.trial.id: e.log for e in exchanges(run)}
    cold, first = kept["a/256/cold/1"], kept["a/chat-1/turn-1/1"]
    assert cold is not None and cold.file is not None and (run / cold.file).is_file()
    assert first is not None and first.file is None and first.problem is None
    assert not [path for path in (run / "logs").iterdir() if "chat" in path.name]


def test_a_refusal_of_a_chat_is_told_without_what_the_server_said_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuses(*_: object) -> None:
        raise StatusError(f"HTTP 400: cannot tokenise {SECRET}", 400)

    write(tmp_path, recorded(1, 2))
    monkeypatch.setattr("bench.run.preflight.chats.server_ids", refuses)
    with simulate("toy-target-only") as server, pytest.raises(EngineError) as told:
        run_of(suite(server.base_url), tmp_path)
    assert SECRET not in str(told.value) and "answers a chat with HTTP 400" in str(told.value)


# --- routes side by side, and the checks ------------------------------------------------------------


def test_routes_on_servers_of_their_own_get_identical_chats_and_those_that_share_one_do_not(
    tmp_path: Path,
) -> None:
    write(tmp_path, recorded(1, 2))
    with simulate("toy-target-only") as one, simulate("toy-target-only") as two:
        for second, alike in ((two.base_url, True), (one.base_url, False)):
            text = suite(one.base_url) + f'[[route]]\nname = "b"\nbase_url = "{second}"\n'
            run = run_of(text, tmp_path)
            prompts: dict[str, list[str]] = {"a": [], "b": []}
            for exchange in exchanges(run):
                if exchange.trial.turn:
                    prompts[exchange.trial.route].append(exchange.prompt.sha256)
            assert all(len(found) == 2 for found in prompts.values())
            assert (prompts["a"] == prompts["b"]) is alike
            assert {(row.route, row.verdict.reuse) for row in measured(run)} == {("a", "held"), ("b", "held")}


def findings(folder: Path, text: str, **facts: Any) -> list[tuple[str, str]]:
    """States and texts of the check of a vLLM server that counts 1,000 tokens for the last turn."""

    async def counted(*_: object) -> list[int]:
        return [0] * 1000

    asked = parse_suite(text)
    opened = OpenRoute(
        route=asked.routes[0],
        client=None,  # type: ignore[arg-type]
        dialect=DIALECTS["vllm"],
        facts=ServerFacts(engine="vllm", version="0.32.0", **facts),
        model="m",
        metrics_url=None,
    )
    with mock.patch("bench.run.preflight.chats.server_ids", counted):
        found = asyncio.run(chat_findings(asked, opened, folder))
    return [(state, told) for state, _, told in found]


def test_a_check_says_how_long_chats_become_and_what_stands_in_their_way(tmp_path: Path) -> None:
    write(tmp_path, recorded(1, 3))
    text = suite("http://h:1/v1")
    fits = "1 with 3 turns; the longest becomes a prompt of 1,000 tokens"
    assert findings(tmp_path, text, block_size=16, max_model_len=1004) == [("ok", fits)]
    ((state, told),) = findings(tmp_path, text, block_size=16, max_model_len=1003)
    assert state == "fail" and "1,000 + 4 output tokens, more than the served 1,003" in told
    ((state, told),) = findings(tmp_path, text, block_size=16, kv_capacity_tokens=1003)
    assert state == "fail" and "more than the KV cache's 1,003: it cannot be reused" in told
    ((state, told),) = findings(tmp_path, text, prefix_caching=False)
    assert state == "fail" and told.startswith("prefix caching is off")
    # Turns of about 380 and 690 tokens come before others: one of them has no whole block of 512.
    short = ("warn", "1 of 2 turns are too short to prove their reuse (block of 512 tokens)")
    assert findings(tmp_path, text, block_size=512) == [("ok", fits), short]
    own = suite("http://h:1/v1", 'answers = "own"')
    assert "a prompt of 1,008 tokens" in findings(tmp_path, own)[0][1]  # two answers of 4 tokens more
    assert findings(tmp_path, text.partition("[chats]")[0]) == []
