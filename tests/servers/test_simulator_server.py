"""Starting, stopping, refusing; the same run twice; a million tokens; independence."""

from __future__ import annotations

import ast
import json
import socket
from pathlib import Path

import httpx
import pytest
from simulator_client import NO_TLS, OUTPUT, TEXT, Client, simulator, text

import bench.servers.simulator as package
from bench.errors import EngineError, SuiteError
from bench.servers.simulator import profile_names, serve_forever, start
from bench.servers.simulator.server import Simulator
from bench.servers.simulator.store import PromptStore
from bench.servers.simulator.tokens import shipped_tokenizer


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.1.1", "::", "example.org", "", "8.8.8.8"])  # noqa: S104
def test_only_loopback_addresses_are_bound(host: str) -> None:
    with pytest.raises(SuiteError, match="loopback only"):
        start("toy", host=host)
    with pytest.raises(SuiteError, match="loopback only"):
        serve_forever("toy", host=host)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "127.0.0.2"])
def test_every_loopback_address_will_do(host: str) -> None:
    with start("toy", host=host) as server:
        assert httpx.get(server.origin + "/health", trust_env=False, verify=NO_TLS).status_code == 200


@pytest.mark.parametrize("speed", [0, -1, float("nan"), float("inf")])
def test_a_speed_that_is_none_is_refused(speed: float) -> None:
    with pytest.raises(SuiteError, match="above 0"):
        start("toy", speed=speed)


def test_a_taken_port_is_an_engine_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(
            EngineError, match=f"port {port}: Address already in use; choose another with --port"
        ):
            start("toy", port=port)


def test_an_unknown_profile_names_the_known_ones() -> None:
    with pytest.raises(SuiteError, match=r"qwen3\.8-27b-v100-mtp4"):
        start("no-such-profile")


def test_after_stopping_nobody_listens_and_stopping_again_is_harmless() -> None:
    server = start("toy")
    server.stop()
    server.stop()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", server.port), timeout=5)


def test_stopping_breaks_off_streams_that_hang() -> None:
    with start("toy", speed=500, faults=["hang-stream"]) as server:
        client = Client(server)
        with (
            client.http,
            client.http.stream("POST", server.base_url + "/chat/completions", json=client.body()) as reply,
        ):
            pieces = reply.iter_raw()
            next(pieces)
            server.stop()
            with pytest.raises(httpx.TransportError):
                list(pieces)


def test_the_log_says_when_requests_are_taken_and_again_after_a_restart() -> None:
    ready = "INFO:     Application startup complete."
    with simulator(faults=("restart",)) as client:
        started = client.server.log_lines
        assert started[-1] == ready and started.count(ready) == 1
        assert any("GPU KV cache size" in line for line in started[:-1])
        with pytest.raises(httpx.TransportError):
            client.ask()
        assert client.server.log_lines == 2 * started


@pytest.mark.parametrize("name", profile_names())
def test_every_shipped_profile_serves(name: str) -> None:
    with simulator(name, speed=20_000) as client:
        assert len(text(client.ask()).split()) == OUTPUT


def plan(server: Simulator) -> list[float]:
    """All that must not differ between runs, one number after another."""
    numbers: list[float] = []
    for told in server.truth().requests:
        numbers += [told.prompt_tokens, told.cached_tokens, told.drafts, told.accepted_tokens]
        numbers += [told.full_ttft_s or 0.0, told.full_total_s or 0.0, *told.chunk_tokens]
        numbers += [(due - told.arrived_ns) / 1e9 for due in told.chunk_due_ns]
    return numbers


def test_two_runs_give_the_same_tokens_counts_and_times() -> None:
    answers, plans = [], []
    for _ in range(2):
        with simulator("toy") as client:
            answers.append([text(client.ask(f"{index} {TEXT * 10}")) for index in (1, 2, 1, 3)])
            plans.append(plan(client.server))
    assert answers[0] == answers[1]
    assert plans[0] == pytest.approx(plans[1], rel=1e-6, abs=2e-9)  # due times are whole nanoseconds


def test_a_million_tokens_are_tokenised_once_cached_and_replayed() -> None:
    tokenizer = shipped_tokenizer()
    ids = tokenizer.encode(TEXT * 60_000)[:999_000]
    body = tokenizer.decode(ids.tolist())
    with simulator("qwen3.8-27b-v100-mtp4", speed=1e5) as client:
        request = json.dumps(client.body(body, max_tokens=8)).encode()
        url = client.server.base_url + "/chat/completions"
        for _ in range(2):
            assert client.http.post(url, content=request).status_code == 200
        cold, replay = client.server.truth().requests
        assert client.server.core.prompts.misses == 1, "the repeated body is remembered"
    assert cold.prompt_tokens > 999_000
    assert (cold.cached_tokens, replay.cached_tokens) == (0, ((replay.prompt_tokens - 1) // 1616 - 1) * 1616)


def test_remembered_prompts_are_bounded() -> None:
    tokenizer = shipped_tokenizer()
    store = PromptStore(kept_tokens=100)
    for word in ("one", "two", "three", "one"):
        store.of_text(word + TEXT * 3, tokenizer.encode)
    assert store.misses == 4


def test_the_simulator_imports_nothing_of_the_client() -> None:
    folder = Path(package.__file__).parent
    used = set()
    for path in folder.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                used |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                used.add(node.module or "")
    ours = {
        name for name in used if name.startswith("bench.") and not name.startswith("bench.servers.simulator.")
    }
    assert ours == {"bench.errors"}
