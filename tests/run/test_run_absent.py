"""Somebody else's servers that are not there when a session begins: a new run is refused unless that is
allowed, a resumed one measures the others."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import msgspec
import pytest
from run_helpers import ctxbench_here, events, exchanges, only_run, suite_text

from bench.analysis.verdicts.measure import measure_all
from bench.errors import EngineError
from bench.journal import read_info
from bench.plan.suite import parse_suite
from bench.records.events import FORCED, ROUTE_LOST, SERVER_BACK
from bench.run.progress import Phase, Progress
from bench.run.study import Order, resume, start
from bench.servers.simulator import Simulator, load_profile
from bench.servers.simulator import start as simulate

pytestmark = pytest.mark.usefixtures("single_preflight")


@pytest.fixture
def port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def url(port: int) -> str:
    return f"http://127.0.0.1:{port}/v1"


def text_for(urls: dict[str, str]) -> str:
    """One tier, a cold prompt in two repeats."""
    text = suite_text(urls, suite='warmup = "none"\nconditions = ["cold"]')
    return text.replace("[256, 512]", "[256]").replace("output_tokens = 16", "output_tokens = 4")


def order(text: str, results: Path, *, force: bool = False, allow_absent: bool = False) -> Order:
    return Order(
        suite=parse_suite(text), suite_text=text, results=results, force=force, allow_absent=allow_absent
    )


def measured_well(run: Path) -> set[str]:
    return {one.trial_id for one in measure_all(read_info(run), exchanges(run)) if one.verdict.valid}


A, B = {"a/256/cold/1", "a/256/cold/2"}, {"b/256/cold/1", "b/256/cold/2"}


def test_a_new_run_names_every_server_that_is_not_there_and_writes_nothing(tmp_path: Path, port: int) -> None:
    with simulate("toy-target-only") as there:
        text = text_for({"a": there.base_url, "b": url(port), "c": url(port)})
        with pytest.raises(EngineError) as refused:
            asyncio.run(start(order(text, tmp_path), Progress()))
    first, second = str(refused.value).splitlines()
    assert first.startswith("route b: ") and "nobody listens" in first
    assert second.startswith("route c: ") and second.endswith(
        "; to measure the others: --route a, or --allow-absent, which looks for them again later (if they do "
        "not come, the run ends with exit code 3 and names what is left)"
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("force", [False, True])
def test_a_failed_check_that_is_forced_is_another_thing(tmp_path: Path, port: int, *, force: bool) -> None:
    with simulate("toy-target-only") as there:
        text = text_for({"a": there.base_url, "b": url(port)})
        with pytest.raises(
            EngineError, match=r"^route b: .*nobody listens .* --allow-absent, .* for it again"
        ):
            asyncio.run(start(order(text, tmp_path, force=force), Progress()))
    assert list(tmp_path.iterdir()) == []


def test_where_that_is_allowed_it_measures_the_others_and_says_what_is_left(
    tmp_path: Path, port: int
) -> None:
    with simulate("toy-target-only") as there:
        text = text_for({"a": there.base_url, "b": url(port)})
        with pytest.raises(
            EngineError, match=r"route b: .*nobody listens .*; 2 of 4 trials are left: .*--resume"
        ):
            asyncio.run(start(order(text, tmp_path, allow_absent=True), Progress()))
        run = only_run(tmp_path)
        assert measured_well(run) == A
        with simulate("toy-target-only", port=port):
            asyncio.run(resume(run, Progress()))
    assert measured_well(run) == A | B
    assert set(read_info(run).facts) == set(read_info(run).tokenizers) == {"a", "b"}


class Arrives(Progress):
    """The absent server comes up while the first trial of another route is answered."""

    port = 0
    server: Simulator | None = None

    def begin(self, trial: object, now_ns: int) -> None:
        super().begin(trial, now_ns)  # type: ignore[arg-type]
        if self.server is None and self.path is not None:
            self.server = simulate("toy-target-only", port=self.port)


def test_one_that_comes_later_is_found_and_caught_up(tmp_path: Path, port: int) -> None:
    progress = Arrives()
    progress.port = port
    with simulate("toy-target-only") as there:
        text = text_for({"a": there.base_url, "b": url(port)})
        run = asyncio.run(start(order(text, tmp_path, allow_absent=True), progress))
    assert progress.server is not None
    progress.server.stop()
    assert measured_well(run) == A | B
    assert [(one.data["route"]) for one in events(run, ROUTE_LOST)] == ["b"]
    (back,) = events(run, SERVER_BACK)
    assert back.data["route"] == "b" and back.data["facts"]


class Changes(Progress):
    """The server that is there is replaced by one of another block size before its second trial."""

    def __init__(self, server: Simulator) -> None:
        super().__init__()
        self.server = server
        self._waits = 0

    def enter(self, phase: Phase, now_ns: int) -> None:
        super().enter(phase, now_ns)
        self._waits += phase == "waiting until idle"
        if phase == "waiting until idle" and self._waits == 2:
            self.server.stop()
            other = msgspec.structs.replace(load_profile("toy-target-only"), block_size=32)
            self.server = simulate(other, port=self.server.port)


def test_an_absent_server_that_is_allowed_allows_the_others_nothing_else(tmp_path: Path, port: int) -> None:
    progress = Changes(simulate("toy-target-only"))
    text = text_for({"a": progress.server.base_url, "b": url(port)})
    try:
        with pytest.raises(EngineError, match=r"block size was 16, is now 32.*; 3 of 4 trials are left"):
            asyncio.run(start(order(text, tmp_path, allow_absent=True), progress))
        assert [one for one in progress.server.truth().requests if one.prompt_tokens >= 256] == []
    finally:
        progress.server.stop()
    run = only_run(tmp_path)
    assert (events(run, FORCED), len(exchanges(run)), len(measured_well(run))) == ([], 1, 1)


def test_the_command_that_allows_it_ends_with_code_3_and_names_what_is_left(
    tmp_path: Path, port: int
) -> None:
    with simulate("toy-target-only") as there:
        (tmp_path / "s.toml").write_text(text_for({"a": there.base_url, "b": url(port)}))
        refused = ctxbench_here(["run", "s.toml", "--no-report", "-q"], tmp_path)
        done = ctxbench_here(["run", "s.toml", "--allow-absent", "--no-report", "-q"], tmp_path)
    assert (refused.returncode, done.returncode) == (3, 3)
    assert "--allow-absent" in refused.stderr and "nobody listens" in done.stderr
    assert "2 of 4 trials are left: see to it, then ctxbench run --resume" in done.stderr
    assert measured_well(only_run(tmp_path / "results")) == A


def begun(tmp_path: Path, ports: tuple[int, int]) -> Path:
    """A run of two routes as if killed after its first exchange."""
    with simulate("toy-target-only", port=ports[0]), simulate("toy-target-only", port=ports[1]):
        text = text_for({"a": url(ports[0]), "b": url(ports[1])})
        run = asyncio.run(start(order(text, tmp_path / "results"), Progress()))
    journal = run / "journal.jsonl"
    lines = journal.read_bytes().splitlines(keepends=True)
    first = next(n for n, line in enumerate(lines) if b'"kind":"exchange"' in line)
    journal.write_bytes(b"".join(lines[: first + 1]))
    return run


@pytest.fixture
def run_and_ports(tmp_path: Path) -> tuple[Path, int, int]:
    with socket.socket() as one, socket.socket() as other:
        one.bind(("127.0.0.1", 0))
        other.bind(("127.0.0.1", 0))
        ports = int(one.getsockname()[1]), int(other.getsockname()[1])
    return begun(tmp_path, ports), *ports


def test_a_resumed_run_measures_the_routes_that_are_there(
    run_and_ports: tuple[Path, int, int], tmp_path: Path
) -> None:
    run, port_a, port_b = run_and_ports
    with simulate("toy-target-only", port=port_a):
        done = ctxbench_here(["run", "--resume", str(run), "--no-report", "-q"], tmp_path)
        assert done.returncode == 3
        assert "route b: " in done.stderr and "nobody listens" in done.stderr
        assert "trials are left: see to it, then ctxbench run --resume" in done.stderr
        assert A <= measured_well(run) < A | B  # which of them was first is drawn
        with simulate("toy-target-only", port=port_b):
            asyncio.run(resume(run, Progress()))
    assert measured_well(run) == A | B


def test_a_resumed_run_without_any_of_its_servers_writes_nothing(
    run_and_ports: tuple[Path, int, int],
) -> None:
    run, *_ = run_and_ports
    before = (run / "journal.jsonl").read_bytes()
    with pytest.raises(EngineError) as refused:
        asyncio.run(resume(run, Progress()))
    assert [line.split(":")[0] for line in str(refused.value).splitlines()] == ["route a", "route b"]
    assert (run / "journal.jsonl").read_bytes() == before
