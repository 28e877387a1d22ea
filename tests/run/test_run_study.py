"""Whole runs against simulated servers: order, proof, cutting off and resuming."""

from __future__ import annotations

import asyncio
import gzip
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from run_helpers import ctxbench, events, exchanges, only_run, suite_text

from bench.analysis.verdicts.measure import measure_all
from bench.errors import JournalError, SuiteError
from bench.journal import Journal, read_entries, read_info
from bench.plan.suite import parse_suite
from bench.records import Exchange, Measurement
from bench.records.events import STARTED
from bench.run.progress import Progress
from bench.run.same import earlier
from bench.run.study import Order, resume, start
from bench.servers.simulator import Simulator
from bench.servers.simulator import start as simulate
from bench.wire.scrape import scrape


@pytest.fixture
def server() -> Iterator[Simulator]:
    with simulate("toy-target-only") as running:
        yield running


def measure(text: str, results: Path) -> Path:
    order = Order(suite=parse_suite(text), suite_text=text, results=results)
    return asyncio.run(start(order, Progress()))


def one_group(base_url: str) -> str:
    """One cold prompt, its replay and its salted twin."""
    text = suite_text({"a": base_url})
    text = text.replace("[256, 512]", "[256]").replace("repeats = 2", "repeats = 1")
    return text.replace("retry_invalid = 3", "retry_invalid = 1")


def measured(run: Path) -> list[Measurement]:
    return list(measure_all(read_info(run), exchanges(run)))


def test_every_trial_is_measured_with_its_exact_length_and_proven_condition(
    server: Simulator, tmp_path: Path
) -> None:
    run = measure(suite_text({"a": server.base_url}), tmp_path)
    found = measured(run)
    plan = [trial.id for trial in read_info(run).plan]
    assert [m.trial_id for m in found if m.attempt == 1] == plan
    assert {m.trial_id for m in found if m.verdict.valid} == set(plan)
    assert all(m.prompt_tokens == m.tier for m in found)
    by_condition = {m.condition: m.cached_tokens for m in found if m.tier == 512}
    # Blocks of 16, and at least one token is computed: floor(511 / 16) * 16.
    assert by_condition == {"cold": 0, "salted": 0, "replay": 496}


def test_the_page_that_shows_an_idle_server_is_the_one_that_stands_before_the_exchange(
    server: Simulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[int] = []

    async def seen(*args: Any, **kwargs: Any) -> Any:
        found, page = await scrape(*args, **kwargs)
        looks.append(found.at_ns)
        return found, page

    monkeypatch.setattr("bench.run.exchange.scrape", seen)
    run = measure(one_group(server.base_url), tmp_path)
    first, *others = exchanges(run)
    previous = first
    for exchange in others:
        assert exchange.before is not None and exchange.before.file and previous.after is not None
        between = [at_ns for at_ns in looks if previous.after.at_ns < at_ns < exchange.sent_ns]
        assert between == [exchange.before.at_ns]
        assert gzip.decompress((run / exchange.before.file).read_bytes()).startswith(b"# HELP")
        previous = exchange


def test_a_run_says_where_its_time_went(server: Simulator, tmp_path: Path) -> None:
    run = measure(suite_text({"a": server.base_url}), tmp_path)
    (account,) = events(run, "finished")
    wall, served, own = (account.data[key] for key in ("wall_s", "server_s", "harness_s"))
    assert isinstance(wall, float) and isinstance(served, float) and isinstance(own, float)
    assert wall == pytest.approx(served + own)
    assert sum(e.ended_ns for e in exchanges(run)) / 1e9 <= served


def test_a_corpus_that_is_lost_beside_the_checks_is_one_error_with_its_cause(
    server: Simulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(*_: object) -> None:
        raise SuiteError("the corpus is gone") from OSError("stale handle")

    monkeypatch.setattr("bench.run.study.corpus_of", lost)
    with pytest.raises(SuiteError, match="the corpus is gone") as caught:
        measure(suite_text({"a": server.base_url}), tmp_path / "results")
    assert isinstance(caught.value.__cause__, OSError)
    assert not (tmp_path / "results").exists()


def test_routes_with_servers_of_their_own_get_equal_prompts(tmp_path: Path) -> None:
    with simulate("toy-target-only") as one, simulate("toy-target-only") as two:
        run = measure(suite_text({"a": one.base_url, "b": two.base_url}), tmp_path)
    sent = [e for e in exchanges(run) if e.attempt == 1]
    hashes = {(e.trial.route, e.trial.id.partition("/")[2]): e.prompt.sha256 for e in sent}
    keys = {key for _, key in hashes}
    assert len(keys) == 12
    assert all(hashes["a", key] == hashes["b", key] for key in keys)


def test_routes_on_one_server_never_share_a_prompt(server: Simulator, tmp_path: Path) -> None:
    run = measure(suite_text({"a": server.base_url, "b": server.base_url}), tmp_path)
    first = {e.prompt.sha256 for e in exchanges(run) if e.trial.route == "a"}
    second = {e.prompt.sha256 for e in exchanges(run) if e.trial.route == "b"}
    assert not first & second
    assert any("unpaired" in note for note in read_info(run).notes)
    assert {m.trial_id for m in measured(run) if m.verdict.valid} == {t.id for t in read_info(run).plan}


@pytest.mark.usefixtures("single_preflight")
def test_an_invalid_cold_is_repeated_behind_a_fresh_salt_at_the_end_of_its_block(tmp_path: Path) -> None:
    # Request 1 is the preflight's, 2 the warm-up.
    with simulate("toy-target-only", faults=["reset-stream@3"]) as server:
        run = measure(one_group(server.base_url), tmp_path)
    sent = exchanges(run)
    assert [(e.trial.condition, e.attempt, e.failure is None) for e in sent] == [
        ("cold", 1, False),
        ("cold", 2, True),
        ("replay", 1, True),
        ("salted", 1, True),
    ]
    assert len({e.prompt.salt for e in sent}) == 3  # the replay repeats the second cold
    assert sent[1].prompt.sha256 == sent[2].prompt.sha256


def test_a_missed_replay_is_repeated_behind_a_new_cold(tmp_path: Path) -> None:
    with simulate("toy-target-only", faults=["first-replay-misses"]) as server:
        run = measure(one_group(server.base_url), tmp_path)
    sent = [(e.trial.condition, e.purpose, e.attempt) for e in exchanges(run)]
    assert sent[:3] == [("cold", "trial", 1), ("replay", "trial", 1), ("salted", "trial", 1)]
    assert sent[3:5] == [("cold", "prime", 2), ("replay", "trial", 2)]
    verdicts = {m.attempt: m.verdict for m in measured(run) if m.condition == "replay"}
    assert "replay_missed" in [reason.id for reason in verdicts[1].reasons]


@pytest.mark.usefixtures("single_preflight")
def test_salted_by_cache_salt_alone_every_prompt_but_a_replay_is_as_cold_as_cold(tmp_path: Path) -> None:
    # Request 1 is the preflight's, 2 the warm-up; the first cold is cut off and sent again.
    with simulate("toy-target-only", faults=["reset-stream@3"]) as server:
        text = suite_text({"a": server.base_url}, prompt='salt = "cache_salt"')
        run = measure(text.replace("[256, 512]", "[256]").replace("repeats = 2", "repeats = 1"), tmp_path)
    sent = exchanges(run)
    assert [(e.trial.condition, e.attempt) for e in sent] == [
        ("cold", 1),
        ("cold", 2),
        ("replay", 1),
        ("salted", 1),
    ]
    assert len({e.prompt.sha256 for e in sent}) == 1  # the text is the same for all
    assert len({e.prompt.cache_salt for e in sent}) == 3
    cached = [m.cached_tokens for m in measured(run) if m.verdict.valid]
    assert cached == [0, 240, 0]  # blocks of 16, and at least one token is computed: floor(255 / 16) * 16


def _start_and_kill(arguments: list[str], results: Path, *, after_s: float) -> None:
    """Starts a run and kills it some time after the journal has begun to grow."""
    before = sum(path.stat().st_size for path in results.glob("*/journal.jsonl"))
    process = subprocess.Popen(
        [sys.executable, "-m", "bench", "run", *arguments, "--no-report", "--quiet"],
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 120
    while process.poll() is None and time.monotonic() < deadline:
        if sum(path.stat().st_size for path in results.glob("*/journal.jsonl")) > before:
            time.sleep(after_s)
            process.kill()
        time.sleep(0.01)
    process.kill()
    process.wait()


def test_killed_at_ten_random_moments_a_run_completes_with_nothing_done_twice(tmp_path: Path) -> None:
    moments = random.Random(5)
    with simulate("toy-target-only", speed=0.2) as server:
        suite = tmp_path / "s.toml"
        suite.write_text(suite_text({"a": server.base_url}))
        results = tmp_path / "results"
        lines: list[bytes] = []
        for kill in range(10):
            known = list(results.iterdir()) if results.exists() else []
            command = ["--resume", str(known[0])] if known else [str(suite), "--results", str(results)]
            _start_and_kill(command, results, after_s=moments.random() * 0.4)
            whole = (only_run(results) / "journal.jsonl").read_bytes().split(b"\n")[:-1]
            assert whole[: len(lines)] == lines, f"kill {kill} lost a line"
            lines = whole
        run = only_run(results)
        done = ctxbench(["run", "--resume", str(run), "--no-report", "--quiet"], tmp_path)
    assert done.returncode == 0, done.stderr
    valid = Counter(m.trial_id for m in measured(run) if m.verdict.valid)
    assert valid == Counter(trial.id for trial in read_info(run).plan)
    assert len(events(run, "session")) >= 5
    # Every attempt has a salt of its own, cut-off ones too.
    starts = [(event.data["trial"], event.data["attempt"]) for event in events(run, STARTED)]
    assert len(starts) == len(set(starts))


def _interrupted(folder: Path, *, in_request: int) -> tuple[int, str]:
    """Exit code and stderr of a run that gets Ctrl-C while its n-th request waits for its answer.

    No answer ever comes to that request, so that no signal is too late for it.
    """
    with simulate("toy-target-only", faults=[f"hang-headers@{in_request}"]) as server:
        suite = folder / "s.toml"
        suite.write_text(suite_text({"a": server.base_url}))
        command = ["run", str(suite), "--results", str(folder / "r"), "--no-report"]
        process = subprocess.Popen(
            [sys.executable, "-m", "bench", *command], stderr=subprocess.PIPE, text=True
        )
        deadline = time.monotonic() + 120
        while len(server.truth().requests) < in_request and process.poll() is None:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        ended = process.poll()
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=120)
        assert ended is None, said
    return process.returncode, said


def test_ctrl_c_keeps_the_request_in_flight_and_leaves_with_130(tmp_path: Path) -> None:
    code, said = _interrupted(tmp_path, in_request=2)
    assert code == 130
    assert "--resume" in said and "Traceback" not in said
    cut = [e for e in read_entries(only_run(tmp_path / "r")) if isinstance(e, Exchange)][-1]
    assert cut.failure is not None and cut.failure.kind == "cancelled"


def test_ctrl_c_in_the_preflight_is_no_failed_check(tmp_path: Path) -> None:
    code, said = _interrupted(tmp_path, in_request=1)
    assert (code, "Traceback" in said, (tmp_path / "r").exists()) == (130, False, False)
    assert "failed" not in said


def test_a_resumed_run_replays_a_cold_that_an_earlier_session_sent(server: Simulator, tmp_path: Path) -> None:
    run = measure(suite_text({"a": server.base_url}), tmp_path)
    journal = run / "journal.jsonl"
    lines = journal.read_bytes().splitlines(keepends=True)
    first_cold = next(n for n, line in enumerate(lines) if b'"id":"a/256/cold/1"' in line)
    journal.write_bytes(b"".join(lines[: first_cold + 1]))  # as if killed right after it
    asyncio.run(resume(run, Progress()))
    sent = exchanges(run)
    assert [(e.trial.condition, e.purpose) for e in sent[:2]] == [("cold", "trial"), ("replay", "trial")]
    assert sent[0].prompt.sha256 == sent[1].prompt.sha256
    assert {m.trial_id for m in measured(run) if m.verdict.valid} == {t.id for t in read_info(run).plan}


def test_a_server_that_restarted_since_gets_a_new_cold_before_the_replay(tmp_path: Path) -> None:
    with simulate("toy-target-only") as server:
        run = measure(one_group(server.base_url), tmp_path)
        port = server.port
    journal = run / "journal.jsonl"
    lines = journal.read_bytes().splitlines(keepends=True)
    first_cold = next(n for n, line in enumerate(lines) if b'"id":"a/256/cold/1"' in line)
    journal.write_bytes(b"".join(lines[: first_cold + 1]))
    with simulate("toy-target-only", port=port):
        asyncio.run(resume(run, Progress()))
    assert [(e.trial.condition, e.purpose) for e in exchanges(run)][:3] == [
        ("cold", "trial"),
        ("cold", "prime"),
        ("replay", "trial"),
    ]
    assert {m.trial_id for m in measured(run) if m.verdict.valid} == {t.id for t in read_info(run).plan}


def test_the_salts_of_earlier_sessions_are_those_of_every_exchange_warm_ups_too(
    server: Simulator, tmp_path: Path
) -> None:
    run = measure(one_group(server.base_url), tmp_path)
    sent = [entry for entry in read_entries(run) if isinstance(entry, Exchange)]
    assert {one.purpose for one in sent} == {"warmup", "trial"}
    before = earlier(run)
    assert before.salts == {"a": [one.prompt.salt for one in sent]}
    assert before.corpus_sha256 == sent[0].prompt.corpus_sha256


def test_a_page_that_cannot_be_kept_ends_the_run_and_costs_no_answer(
    server: Simulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Journal.store_scrape

    def full(self: Journal, name: str, page: str) -> str:
        if name == "a-256-cold-1-trial1-after":
            raise JournalError("scrapes/p.prom.gz: cannot be written: No space left on device")
        return store(self, name, page)

    text = one_group(server.base_url)
    monkeypatch.setattr(Journal, "store_scrape", full)
    with pytest.raises(JournalError, match="No space left"):
        measure(text, tmp_path)
    run = only_run(tmp_path)
    (cold,) = measured(run)
    assert (cold.trial_id, cold.verdict.valid) == ("a/256/cold/1", True)
    (kept,) = exchanges(run)
    assert kept.after is not None and kept.after.values and kept.after.file is None
    monkeypatch.setattr(Journal, "store_scrape", store)
    asyncio.run(resume(run, Progress()))
    assert [one.trial.condition for one in exchanges(run)] == ["cold", "replay", "salted"]  # no cold again
