"""A server that was away, or has restarted, goes on being measured only if it is the one that it was."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from run_helpers import TOKENIZER, events, exchanges, only_run, suite_text

from bench.analysis.verdicts.measure import measure_all
from bench.errors import EngineError
from bench.journal import read_info
from bench.plan.suite import parse_suite
from bench.records.events import FORCED, ROUTE_LOST, SERVER_BACK, SERVER_FELL, SERVER_STARTED, STARTED
from bench.report.run_pass import RunPass
from bench.run.progress import Phase, Progress
from bench.run.status import status
from bench.run.study import Order, resume, start
from bench.servers import simulator
from bench.servers.simulator import Profile, Simulator, load_profile
from bench.servers.simulator import start as simulate

pytestmark = pytest.mark.usefixtures("single_preflight")

TOY = load_profile("toy-target-only")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing here publishes late."""
    monkeypatch.setattr("bench.run.exchange._STILL_S", 0.0)


class Replaced(Progress):
    """When a phase is reached for the n-th time, the server goes and another one comes to its address."""

    def __init__(self, server: Simulator, comes: Profile, phase: Phase, times: int = 1) -> None:
        super().__init__()
        self.servers = [server]
        self.faults: list[str] = []
        self._comes, self._phase, self._times = comes, phase, times

    def enter(self, phase: Phase, now_ns: int) -> None:
        super().enter(phase, now_ns)
        if phase == self._phase and self.path is not None and len(self.servers) == 1:
            self._times -= 1
            if not self._times:
                self.replace(self._comes)

    def replace(self, comes: Profile) -> None:
        port = self.servers[-1].port
        self.servers[-1].stop()
        self.servers.append(simulate(comes, port=port, faults=self.faults))


def text_for(urls: dict[str, str], *, tokenizer: bool = True) -> str:
    """One tier, two repeats of a cold prompt, no warm-up: the preflight is request 1."""
    text = suite_text(urls, suite='warmup = "none"\nconditions = ["cold"]')
    text = text.replace("[256, 512]", "[256]").replace("retry_invalid = 3", "retry_invalid = 0")
    text = text.replace("output_tokens = 16", "output_tokens = 4")
    return text if tokenizer else text.replace(f"tokenizer = '{TOKENIZER}'", "")


def order(text: str, results: Path, *, force: bool = False) -> Order:
    return Order(suite=parse_suite(text), suite_text=text, results=results, force=force)


def other(**fields: Any) -> Profile:
    return msgspec.structs.replace(TOY, **fields)


def measured_well(run: Path) -> set[str]:
    return {one.trial_id for one in measure_all(read_info(run), exchanges(run)) if one.verdict.valid}


OTHERS = [
    ({"block_size": 32}, "block size was 16, is now 32"),
    ({"max_model_len": TOY.max_model_len // 2}, "context length was "),
    ({"speculation": load_profile("toy").speculation}, "number of speculative tokens was none, is now "),
]


@pytest.mark.parametrize(("fields", "said"), OTHERS)
def test_a_server_that_comes_back_as_another_one_loses_its_route_and_keeps_what_was_measured(
    fields: dict[str, Any], said: str, tmp_path: Path
) -> None:
    server = simulate(TOY, faults=["server-error@3"])  # the second trial
    progress = Replaced(server, other(**fields), "waiting for the server to come back")
    text = text_for({"a": server.base_url})
    try:
        with pytest.raises(EngineError, match=rf"^route a: {said}.*: serve it as it was.* 1 of 2 trials"):
            asyncio.run(start(order(text, tmp_path), progress))
        sent = [one.prompt_tokens for one in progress.servers[-1].truth().requests]
        assert max(sent, default=0) < 256  # nothing was measured on it
        run = only_run(tmp_path)
        (lost,) = events(run, ROUTE_LOST)
        assert lost.message.startswith(said)
        assert (measured_well(run), events(run, SERVER_BACK)) == ({"a/256/cold/1"}, [])
        with pytest.raises(EngineError, match=said):  # as when it is resumed
            asyncio.run(resume(run, Progress()))
        progress.replace(TOY)
        asyncio.run(resume(run, Progress()))
    finally:
        progress.servers[-1].stop()
    assert len(measured_well(run)) == 2


def test_forced_it_goes_on_with_the_other_server_and_tells(tmp_path: Path) -> None:
    server = simulate(TOY, faults=["server-error@3"])
    progress = Replaced(server, other(block_size=32), "waiting for the server to come back")
    try:
        run = asyncio.run(start(order(text_for({"a": server.base_url}), tmp_path, force=True), progress))
    finally:
        progress.servers[-1].stop()
    (told,) = events(run, FORCED)
    assert told.data == {"route": "a", "what": "block size", "was": "16", "now": "32"}
    assert read_info(run).facts["a"].block_size == 32
    assert len(measured_well(run)) == 2
    assert any("by --force: route a: block size was 16" in note for note in RunPass(run).run().info.notes)


def test_another_start_of_the_same_server_goes_on(tmp_path: Path) -> None:
    server = simulate(TOY, faults=["server-error@3"])
    roomier = other(kv_capacity_tokens=65_536)
    progress = Replaced(server, roomier, "waiting for the server to come back")
    try:
        run = asyncio.run(start(order(text_for({"a": server.base_url}), tmp_path), progress))
    finally:
        progress.servers[-1].stop()
    assert len(measured_well(run)) == 2
    assert (len(events(run, SERVER_BACK)), events(run, FORCED), events(run, ROUTE_LOST)) == (1, [], [])


def test_a_restart_that_no_request_met_is_seen_before_the_next_one_is_sent(tmp_path: Path) -> None:
    server = simulate(TOY)
    progress = Replaced(server, other(block_size=32), "waiting until idle", times=2)
    try:
        with pytest.raises(EngineError, match=r"route a: block size was 16, is now 32.* 1 of 2 trials"):
            asyncio.run(start(order(text_for({"a": server.base_url}), tmp_path), progress))
        assert [one for one in progress.servers[-1].truth().requests if one.prompt_tokens >= 256] == []
    finally:
        progress.servers[-1].stop()
    run = only_run(tmp_path)
    assert measured_well(run) == {"a/256/cold/1"}
    assert (status(run).in_flight, len(exchanges(run))) == ((), 1)


def test_after_a_restart_that_no_request_met_the_same_server_goes_on(tmp_path: Path) -> None:
    server = simulate(TOY)
    progress = Replaced(server, TOY, "waiting until idle", times=2)
    try:
        run = asyncio.run(start(order(text_for({"a": server.base_url}), tmp_path), progress))
    finally:
        progress.servers[-1].stop()
    (back,) = events(run, SERVER_BACK)
    assert "restarted" in back.message
    assert len(measured_well(run)) == len(exchanges(run)) == 2  # nothing was sent for nothing
    assert len(events(run, STARTED)) >= 3


def test_without_a_process_start_such_a_restart_is_seen_as_well(tmp_path: Path) -> None:
    server = simulate(TOY, faults=["metrics-no-process"])
    progress = Replaced(server, TOY, "waiting until idle", times=2)
    progress.faults = ["metrics-no-process"]
    try:
        run = asyncio.run(start(order(text_for({"a": server.base_url}), tmp_path), progress))
    finally:
        progress.servers[-1].stop()
    (back,) = events(run, SERVER_BACK)
    assert "restarted between requests (generation_tokens fell from" in back.message
    assert len(measured_well(run)) == len(exchanges(run)) == 2


class Balancer:
    """Requests go to the first of two servers, its metrics pages come from both in turn."""

    def __init__(self, servers: Sequence[Simulator]) -> None:
        self._ports = [one.port for one in servers]
        self._pages = 0
        self._serving: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> str:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/v1"

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        await asyncio.sleep(0)  # what was accepted begins, and is among those that are ended
        for task in self._serving:
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        try:
            with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
                await self._serve_one(reader, writer)
        finally:
            await _closed(writer)

    async def _serve_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request, *fields = (await reader.readuntil(b"\r\n\r\n")).rstrip().split(b"\r\n")
        by_name = {name.lower(): value for name, _, value in (field.partition(b":") for field in fields)}
        body = await reader.readexactly(int(by_name.get(b"content-length", b"0")))
        fields = [field for field in fields if not field.lower().startswith(b"connection:")]
        self._pages += b" /metrics " in request
        port = self._ports[self._pages % 2 if b" /metrics " in request else 0]
        answer, ask = await asyncio.open_connection("127.0.0.1", port)
        try:
            ask.write(b"\r\n".join([request, *fields, b"Connection: close", b"", b""]) + body)
            while part := await answer.read(65_536):
                writer.write(part)
                await writer.drain()
        finally:
            await _closed(ask)


async def _closed(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()


def test_servers_that_take_turns_behind_one_address_are_no_restarts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bench.run.exchange._SETTLE_LIMIT_S", 1.0)  # two pages in turn never stand still
    progress = Progress()

    async def measured(servers: Sequence[Simulator]) -> Path:
        async with Balancer(servers) as url:
            return await start(order(text_for({"a": url}), tmp_path, force=True), progress)

    with simulate(TOY, faults=["metrics-no-process"]) as a, simulate(TOY, faults=["metrics-no-process"]) as b:
        run = asyncio.run(measured([a, b]))
    assert (events(run, SERVER_BACK), events(run, ROUTE_LOST), len(exchanges(run))) == ([], [], 2)
    assert any("route a: several servers take turns behind its address" in note for note in progress.notes)


def test_a_server_whose_own_tokenizer_is_another_one_now_is_another_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from bench.prompting import tokens

    known = tokens.server_identity

    def changed(*arguments: Any, **options: Any) -> Any:
        found = known(*arguments, **options)
        return msgspec.structs.replace(found, sha256="0" * 64) if len(progress.servers) > 1 else found

    monkeypatch.setattr("bench.run.prompts.server_identity", changed)
    server = simulate(TOY, faults=["server-error@3"])
    progress = Replaced(server, TOY, "waiting for the server to come back")
    text = text_for({"a": server.base_url}, tokenizer=False)
    try:
        with pytest.raises(
            EngineError, match=r"route a: tokenizer was server .*, is now server .* 0{12}: se"
        ):
            asyncio.run(start(order(text, tmp_path), progress))
    finally:
        progress.servers[-1].stop()
    assert measured_well(only_run(tmp_path)) == {"a/256/cold/1"}


def test_a_server_that_restarts_within_a_request_and_answers_it_is_recognised_after_it(
    tmp_path: Path,
) -> None:
    with simulate(TOY, faults=["counter-reset@2"]) as server:
        run = asyncio.run(start(order(text_for({"a": server.base_url}), tmp_path), Progress()))
    (back,) = events(run, SERVER_BACK)
    assert "restarted during a request" in back.message
    assert len(exchanges(run)) == 2


class Killed(Progress):
    """The run's own server is killed when the second request is sent, and its profile changed."""

    def __init__(self, profile: Path) -> None:
        super().__init__()
        self._profile = profile
        self._sent = 0

    def enter(self, phase: Phase, now_ns: int) -> None:
        super().enter(phase, now_ns)
        if phase == "prefill" and self.path is not None:
            self._sent += 1
            if self._sent == 2:
                text = self._profile.read_text()
                self._profile.write_text(text.replace("block_size = 16", "block_size = 32"))
                (kept,) = json.loads((self.path / "servers.json").read_bytes())
                os.kill(kept["process"]["pid"], signal.SIGKILL)


def test_a_server_of_ours_that_fell_and_comes_as_another_one_loses_its_route(tmp_path: Path) -> None:
    shipped = Path(simulator.__file__).parent / "profiles" / "toy-target-only.toml"
    profile = tmp_path / "served.toml"
    profile.write_bytes(shipped.read_bytes())
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    up = f"exec {sys.executable} -m bench serve simulator --profile '{profile}' --port {port}"
    text = text_for({"a": f"http://127.0.0.1:{port}/v1"}) + f"[route.server]\nup = '''{up}'''\n"
    with pytest.raises(
        EngineError, match=r"^route a: block size was 16, is now 32: .* 1 of 2 trials are left"
    ):
        asyncio.run(start(order(text, tmp_path), Killed(profile)))
    run = only_run(tmp_path)
    assert measured_well(run) == {"a/256/cold/1"}
    assert (len(events(run, SERVER_FELL)), len(events(run, SERVER_STARTED))) == (1, 1)
    assert not (run / "servers.json").exists()  # the other one was stopped
