"""Outages of simulated servers in mid-run: no attempt is lost, nothing is sent for nothing, and all of it
is told."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import os
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from run_helpers import TOKENIZER, events, exchanges, only_run, suite_text

from bench.analysis.verdicts.measure import measure_all
from bench.engines import get
from bench.errors import EngineError
from bench.journal import read_info
from bench.plan.suite import parse_suite
from bench.prompting.compose import Composer, Prompt
from bench.records import Failure, Route, ServerFacts, Trial
from bench.records.events import NOT_IDLE, ROUTE_LOST, SERVER_AWAY, SERVER_BACK, SERVER_FELL, TRIAL_LEFT
from bench.run.lifecycle import outage
from bench.run.openroute import OpenRoute
from bench.run.progress import Phase, Progress
from bench.run.status import Status, status
from bench.run.study import Order, resume, start
from bench.servers.simulator import Simulator
from bench.servers.simulator import start as simulate
from bench.wire.client import Client
from bench.wire.failures import StatusError

pytestmark = pytest.mark.usefixtures("single_preflight")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing here publishes late."""
    monkeypatch.setattr("bench.run.exchange._STILL_S", 0.0)


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that stays away is not looked for long."""
    monkeypatch.setattr("bench.run.lifecycle.care.RETURN_LIMIT_S", 0.2)


def suite(base_urls: dict[str, str], *, conditions: str = '"cold"', more: str = "") -> str:
    """Two tiers, one repeat, no warm-up: the preflight is request 1, and the first trial request 2. Answers
    are so short that a machine which pauses spoils none."""
    text = suite_text(base_urls, suite=f'warmup = "none"\nconditions = [{conditions}]\n{more}')
    text = text.replace("repeats = 2", "repeats = 1").replace("retry_invalid = 3", "retry_invalid = 0")
    return text.replace("output_tokens = 16", "output_tokens = 4")


def order(text: str, results: Path) -> Order:
    return Order(suite=parse_suite(text), suite_text=text, results=results, force=True)


def measured_well(run: Path) -> set[str]:
    found = measure_all(read_info(run), exchanges(run))
    return {one.trial_id for one in found if one.verdict.valid}


def planned(run: Path) -> set[str]:
    return {trial.id for trial in read_info(run).plan}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def long_prompts(server: Simulator) -> list[int]:
    """Numbers of the requests with a prompt of a tier."""
    return [one.number for one in server.truth().requests if one.prompt_tokens >= 256]


def test_after_an_outage_a_resumed_run_does_all_that_is_left(tmp_path: Path, hasty: None) -> None:
    with simulate("toy-target-only", faults=["server-error@5-"]) as server:
        text = suite({"a": server.base_url}, conditions='"cold", "salted", "replay"')
        with pytest.raises(
            EngineError, match=r"route a: its server did not .*; 3 of 6 trials are left: .*--resume"
        ):
            asyncio.run(start(order(text, tmp_path), Progress()))
        port = server.port
    run = only_run(tmp_path)
    now = status(run)
    assert (now.state, now.done, now.left, now.unmeasured, now.failed) == ("interrupted", 3, 3, 0, 1)
    (lost,) = events(run, ROUTE_LOST)
    assert "HTTP 500: EngineCore encountered an issue." in lost.message
    with simulate("toy-target-only", port=port):
        asyncio.run(resume(run, Progress()))
    assert measured_well(run) == planned(run)
    assert status(run).state == "finished"


def test_a_server_that_comes_back_is_waited_for_and_costs_no_attempt(tmp_path: Path) -> None:
    # Request 2 is the first cold prompt, 3 the first look, 4 the second.
    with simulate("toy-target-only", faults=["server-error@2-3"]) as server:
        progress = Progress()
        run = asyncio.run(start(order(suite({"a": server.base_url}), tmp_path), progress))
        assert [one.status for one in server.truth().requests][:4] == [200, 500, 500, 200]
    assert measured_well(run) == planned(run)  # although invalid trials are not repeated
    assert [(e.trial.id, e.attempt, e.failure is None) for e in exchanges(run)] == [
        ("a/256/cold/1", 1, False),
        ("a/512/cold/1", 1, True),
        ("a/256/cold/1", 2, True),
    ]
    assert len({e.prompt.salt for e in exchanges(run)}) == 3
    (back,) = events(run, SERVER_BACK)
    assert back.data["route"] == "a"
    assert any("waiting up to" in note for note in progress.notes)
    assert any("answers again" in note for note in progress.notes)


def test_a_server_that_asks_to_be_left_alone_is_left_alone_and_that_is_said(
    tmp_path: Path, hasty: None
) -> None:
    # 429 with `Retry-After: 1`; no server is waited for longer than `hasty` has it.
    with simulate("toy-target-only", faults=["rate-limited@2"]) as server:
        progress = Progress()
        run = asyncio.run(start(order(suite({"a": server.base_url}), tmp_path), progress))
    assert measured_well(run) == planned(run)
    said = [note for note in progress.notes if "asks to be left alone" in note]
    assert said == ["route a: its server asks to be left alone for 1 s (Retry-After)"]


def test_nothing_long_is_sent_to_a_server_that_hangs(tmp_path: Path, hasty: None) -> None:
    with simulate("toy-target-only", faults=["hang-headers@2-"]) as server:
        text = suite({"a": server.base_url}) + "[request.timeouts]\nfirst_token_s = 1.5\n"
        with pytest.raises(EngineError, match="2 of 2 trials are left"):
            asyncio.run(start(order(text, tmp_path), Progress()))
        assert len(server.truth().requests) >= 3  # it was looked for
    assert len(exchanges(only_run(tmp_path))) == 1


def test_a_prompt_that_brings_the_server_down_is_left_and_the_others_go_on(tmp_path: Path) -> None:
    # 2: the cold prompt of 256; 3: the look; 4: that of 512; 5: again that of 256.
    with simulate("toy-target-only", faults=["server-error@2", "server-error@5"]) as server:
        text = suite({"a": server.base_url})
        with pytest.raises(EngineError, match=r"^a/256/cold/1 failed 2 times .* 1 of 2 trials are left"):
            asyncio.run(start(order(text, tmp_path), Progress()))
        run = only_run(tmp_path)
        assert measured_well(run) == {"a/512/cold/1"}
        assert long_prompts(server) == [4]  # those refused were not looked at
        (left,) = events(run, TRIAL_LEFT)
        assert "does this prompt bring it down?" in left.message
        assert not events(run, ROUTE_LOST)
        asyncio.run(resume(run, Progress()))
    assert measured_well(run) == planned(run)


def test_a_route_with_three_faults_in_a_row_is_lost_though_it_answers_and_the_others_go_on(
    tmp_path: Path,
) -> None:
    # Even requests are long prompts, odd ones looks.
    faults = ["reset-stream@2", "reset-stream@4", "reset-stream@6"]
    with simulate("toy-target-only", faults=faults) as bad, simulate("toy-target-only") as good:
        text = suite({"bad": bad.base_url, "good": good.base_url})
        with pytest.raises(EngineError, match=r"route bad: 3 requests in a row failed by the server's fault"):
            asyncio.run(start(order(text, tmp_path), Progress()))
    run = only_run(tmp_path)
    assert measured_well(run) == {"good/256/cold/1", "good/512/cold/1"}
    assert sum(e.trial.route == "bad" for e in exchanges(run)) == 3


def test_a_lost_route_is_looked_for_while_others_are_measured_and_caught_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def in_vain(*_: object, **__: object) -> outage.Return:
        return outage.Return(back=False, waited_s=0.0, last="gone")

    monkeypatch.setattr("bench.run.lifecycle.care.wait_back", in_vain)
    with simulate("toy-target-only", faults=["server-error@2"]) as away, simulate("toy-target-only") as there:
        text = suite({"a": away.base_url, "b": there.base_url}).replace("repeats = 1", "repeats = 2")
        run = asyncio.run(start(order(text, tmp_path), Progress()))
    assert len(events(run, ROUTE_LOST)) == len(events(run, SERVER_BACK)) == 1
    assert measured_well(run) == planned(run)
    sent = [(e.trial.route, e.trial.repeat, e.failure is None) for e in exchanges(run)]
    # In the first repeat a fails and b goes on; the second has both; then comes the rest of a's first.
    assert sorted(sent[:3]) == [("a", 1, False), *[("b", 1, True)] * 2]
    assert sorted(sent[3:7]) == [*[("a", 2, True)] * 2, *[("b", 2, True)] * 2]
    assert sent[7:] == [("a", 1, True)] * 2


@pytest.mark.parametrize(("failures", "lost"), [(1, False), (9, True)])
def test_a_server_whose_tokenizer_fails_for_a_while_ends_no_run(
    failures: int, lost: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    progress, left, compose = Progress(), [failures], Composer.compose

    def fails_at_first(self: Composer, trial: Trial, **options: Any) -> Prompt:
        if progress.path is not None and trial.route == "a" and left[0]:
            left[0] -= 1
            raise EngineError("POST /tokenize: HTTP 502: bad gateway")
        return compose(self, trial, **options)

    monkeypatch.setattr(Composer, "compose", fails_at_first)
    with simulate("toy-target-only") as one, simulate("toy-target-only") as other:
        work = start(order(suite({"a": one.base_url, "b": other.base_url}), tmp_path), progress)
        if lost:
            with pytest.raises(
                EngineError, match=r"route a: 3 requests in a row .* bad gateway; 2 of 4 trials"
            ):
                asyncio.run(work)
        else:
            asyncio.run(work)
    run = only_run(tmp_path)
    assert measured_well(run) == {trial for trial in planned(run) if not lost or trial.startswith("b/")}


def test_a_tokenizer_that_is_away_for_a_while_is_waited_for_and_the_wait_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    progress, left, seen, post_json = Progress(), [5], list[Status](), Client.post_json

    async def away_at_first(self: Client, path: str, body: object, **options: Any) -> Any:
        if progress.path is not None and path.endswith("/tokenize") and left[0]:
            left[0] -= 1
            seen.append(status(progress.path))
            raise StatusError("POST /tokenize: HTTP 503: loading", 503)
        return await post_json(self, path, body, **options)

    monkeypatch.setattr(Client, "post_json", away_at_first)
    monkeypatch.setattr(outage, "_FIRST_PAUSE_S", 0.01)
    with simulate("toy-target-only") as server:
        text = suite({"a": server.base_url}).replace(f"tokenizer = '{TOKENIZER}'", "")
        run = asyncio.run(start(order(text, tmp_path), progress))
    assert measured_well(run) == planned(run)
    assert len(events(run, SERVER_AWAY)) == len(events(run, SERVER_BACK)) == 1
    (away,) = seen[-1].away
    assert (away.route, away.problem) == ("a", "POST /tokenize: HTTP 503: loading")
    assert seen[0].away == status(run).away == ()


def test_a_server_of_ours_that_falls_while_a_prompt_is_composed_is_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    progress, compose, killed = Progress(), Composer.compose, list[int]()

    def killed_before(self: Composer, trial: Trial, **options: Any) -> Prompt:
        if progress.path is not None and not killed:
            (kept,) = json.loads((progress.path / "servers.json").read_bytes())
            killed.append(kept["process"]["pid"])
            os.kill(killed[0], signal.SIGKILL)
        return compose(self, trial, **options)

    monkeypatch.setattr(Composer, "compose", killed_before)
    port = free_port()
    serve = f"exec {sys.executable} -m bench serve simulator --profile toy-target-only --port {port}"
    table = f"[route.server]\nup = '{serve}'\n"
    text = suite_text(
        dict.fromkeys(("a", "b"), f"http://127.0.0.1:{port}/v1"),
        suite='warmup = "none"\nconditions = ["cold"]',
        route=table,
    )
    text = text.replace(f"tokenizer = '{TOKENIZER}'", "").replace("repeats = 2", "repeats = 1")
    run = asyncio.run(start(order(text, tmp_path), progress))
    (fall,) = events(run, SERVER_FELL)
    assert fall.data == {"route": "a"}
    assert any("while a prompt was composed" in note for note in progress.notes)
    assert measured_well(run) == planned(run)


def test_a_request_that_is_refused_itself_is_an_answer(tmp_path: Path) -> None:
    with simulate("toy-target-only", faults=["too-large@2"]) as server:
        run = asyncio.run(start(order(suite({"a": server.base_url}), tmp_path), Progress()))
        assert len(server.truth().requests) == 3  # no look
    assert not events(run, SERVER_BACK)
    now = status(run)
    assert (now.state, now.unmeasured) == ("finished", 1)


def test_no_request_of_a_wave_has_had_its_attempt_when_the_server_failed_one_of_them(tmp_path: Path) -> None:
    with simulate("toy-target-only", speed=0.25, faults=["reset-stream@3"]) as server:
        text = suite({"a": server.base_url}, more="concurrency = [2]").replace("[256, 512]", "[512]")
        run = asyncio.run(start(order(text, tmp_path), Progress()))
    assert [(e.attempt, e.failure is None) for e in exchanges(run)].count((1, False)) == 1
    assert {one.attempt for one in exchanges(run)} == {1, 2}
    assert measured_well(run) == planned(run)


def test_a_server_of_ours_that_stays_silent_is_started_again(tmp_path: Path, hasty: None) -> None:
    port = free_port()
    # Of the first server, request 3 is the replay and 4 the look; the second one never gets so far.
    serve = f"exec {sys.executable} -m bench serve simulator --profile toy-target-only --port {port}"
    text = f"""
[suite]
name = "served"
tiers = [256]
conditions = ["cold", "replay"]
output_tokens = 4
repeats = 1
replays = 1
retry_invalid = 0
warmup = "none"
[prompt]
corpus = "synthetic"
tokenizer = '{TOKENIZER}'
[[route]]
name = "a"
base_url = "http://127.0.0.1:{port}/v1"
[route.server]
up = "{serve} --fault server-error@3-"
"""
    run = asyncio.run(start(order(text, tmp_path), Progress()))
    (fall,) = events(run, SERVER_FELL)
    assert fall.message.startswith("did not come back")
    assert measured_well(run) == planned(run)


class Intrudes(Progress):
    """Somebody else sends a long request just before the first trial."""

    port = 0
    intruder: http.client.HTTPConnection | None = None

    def enter(self, phase: Phase, now_ns: int) -> None:
        super().enter(phase, now_ns)
        if phase == "waiting until idle" and self.trial is not None and self.intruder is None:
            self.intruder = http.client.HTTPConnection("127.0.0.1", self.port)
            body = {"prompt": "a long story", "max_tokens": 20_000, "ignore_eos": True, "stream": True}
            self.intruder.request("POST", "/v1/completions", json.dumps(body))
            self.intruder.getresponse().read(1)  # by now it is running


@contextlib.contextmanager
def intruded(server: Simulator) -> Iterator[Intrudes]:
    progress = Intrudes()
    progress.port = server.port
    try:
        yield progress
    finally:
        if progress.intruder is not None:
            progress.intruder.close()


def test_nothing_is_sent_to_a_server_that_works_for_somebody_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bench.run.exchange._IDLE_LIMIT_S", 0.3)
    with simulate("toy-target-only") as server:
        with intruded(server) as progress:
            with pytest.raises(
                EngineError, match=r"still at work for somebody .*1 running.* 2 of 2 trials are left"
            ):
                asyncio.run(start(order(suite({"a": server.base_url}), tmp_path), progress))
            assert long_prompts(server) == []
        run = only_run(tmp_path)
        (told,) = events(run, NOT_IDLE)
        assert "ctxbench watch" in told.message
        now = status(run)
        assert (now.state, now.left, now.in_flight, now.failed) == ("interrupted", 2, (), 0)
        monkeypatch.setattr("bench.run.exchange._IDLE_LIMIT_S", 60.0)
        asyncio.run(resume(run, Progress()))
    assert measured_well(run) == planned(run)


def test_what_is_in_the_way_is_said_once_and_the_wait_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    problems = iter(["nobody listens", "still loading", None, "gone", "gone for good"])

    async def missing(opened: OpenRoute, *, counts: bool) -> str | None:
        return next(problems)

    monkeypatch.setattr(outage, "missing", missing)
    monkeypatch.setattr(outage, "_FIRST_PAUSE_S", 0.0)
    times = iter([0.0, 1.0, 2.0, 3.0, 0.0, 1.0, 10.0])
    said: list[str] = []
    opened = _opened(Client("http://127.0.0.1:1/v1"))

    async def say(problem: str) -> None:
        said.append(problem)

    def wait() -> outage.Return:
        return asyncio.run(outage.wait_back(opened, limit_s=10, say=say, clock=lambda: next(times)))

    assert wait() == outage.Return(back=True, waited_s=3.0)
    assert said == ["nobody listens"]
    assert wait() == outage.Return(back=False, waited_s=10.0, last="gone for good")
    assert said == ["nobody listens", "gone"]


def _opened(client: Client, model: str = "m") -> OpenRoute:
    route = Route(name="a", base_url=client.base_url)
    return OpenRoute(
        route=route, client=client, dialect=get("vllm"), facts=ServerFacts(), model=model, metrics_url=None
    )


def test_a_server_that_serves_another_model_now_is_not_back() -> None:
    async def look() -> str | None:
        with simulate("toy-target-only") as server:
            async with Client(server.base_url) as client:
                return await outage.missing(_opened(client, "what-was-there"))

    problem = asyncio.run(look())
    assert problem is not None and problem.endswith("not what-was-there")


def test_a_server_that_answers_with_a_refusal_is_there() -> None:
    async def look() -> str | None:
        with simulate("toy-target-only", faults=["unauthorized"]) as server:
            async with Client(server.base_url) as client:
                opened = _opened(client, server.profile.model)
                assert isinstance(await outage._ask(opened), Failure)
                return await outage.missing(opened)

    assert asyncio.run(look()) is None
