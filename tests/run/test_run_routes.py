"""Servers that a run starts and stops itself: whole runs on simulated ones."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import socket
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from run_helpers import TOKENIZER, ctxbench_here, events, exchanges, only_run

from bench.analysis.verdicts.measure import measure_all
from bench.errors import EngineError
from bench.journal import read_info
from bench.plan.suite import parse_suite
from bench.records import Measurement
from bench.run.lifecycle.routes import SERVERS, Kept
from bench.run.progress import Progress
from bench.run.study import Order, resume, start


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def serve(tmp_path: Path, port: int, profile: str = "toy-target-only", speed: float = 1.0) -> str:
    """A command for the shell; its log file tells this test's servers from all others."""
    log = tmp_path / "simulator.log"
    arguments = f"--profile {profile} --speed {speed} --port {port} --log {log}"
    return f"exec {sys.executable} -m bench serve simulator {arguments}"


def suite(routes: dict[str, tuple[int, str]], *, more: str = "", replays: int = 1) -> str:
    """Routes by name with port and command; `more` goes into every server table."""
    tables = "".join(
        f"""
[[route]]
name = "{name}"
base_url = "http://127.0.0.1:{port}/v1"
[route.server]
up = '''{up}'''
{more}
"""
        for name, (port, up) in routes.items()
    )
    return f"""
[suite]
name = "served"
tiers = [256]
output_tokens = 16
repeats = 1
replays = {replays}
warmup = "none"
[prompt]
corpus = "synthetic"
tokenizer = '{TOKENIZER}'
{tables}
"""


def order(text: str, tmp_path: Path) -> Order:
    return Order(suite=parse_suite(text), suite_text=text, results=tmp_path / "results", folder=tmp_path)


def left_running(tmp_path: Path) -> list[str]:
    """Processes whose command line names this test's folder."""
    listed = subprocess.run(["ps", "-A", "-o", "stat=,args="], capture_output=True, text=True, check=True)
    return [line for line in listed.stdout.splitlines() if str(tmp_path) in line and line[0] != "Z"]


def valid(run: Path) -> set[str]:
    found: list[Measurement] = list(measure_all(read_info(run), exchanges(run)))
    return {one.trial_id for one in found if one.verdict.valid}


def test_routes_on_one_address_are_served_one_after_another(tmp_path: Path) -> None:
    port = free_port()
    up = serve(tmp_path, port)
    text = suite({"a": (port, up), "b": (port, up)}, more='env = { TOKEN_A = "a-very-secret", SPACE = "0" }')
    run = asyncio.run(start(order(text, tmp_path), Progress()))
    happened = [e for name in ("server-started", "server-stopped") for e in events(run, name)]
    told = [(e.name, e.data["route"]) for e in sorted(happened, key=lambda e: e.at)]
    assert told == [(f"server-{what}", route) for route in "ab" for what in ("started", "stopped")]
    info = read_info(run)
    assert valid(run) == {trial.id for trial in info.plan}
    assert set(info.facts) == set(info.tokenizers) == {"a", "b"}
    # New servers have new caches, so both may be sent the same prompts: pairs.
    sent = {e.trial.id: e.prompt.sha256 for e in exchanges(run)}
    assert sent["a/256/cold/1"] == sent["b/256/cold/1"]
    assert left_running(tmp_path) == []
    assert not (run / SERVERS).exists()
    kept = [path.read_bytes() for path in run.rglob("*") if path.is_file()]
    assert not any(b"a-very-secret" in data for data in kept)


async def run_and_kill(text: str, tmp_path: Path, trial: str) -> Path:
    """Runs a suite and kills its server (signal 9) while this trial is in flight, once."""
    progress = Progress()
    work = asyncio.create_task(start(order(text, tmp_path), progress))
    killed = False
    while not work.done():
        now = progress.trial.id if progress.trial else ""
        if not killed and progress.path and now == trial and progress.phase in ("prefill", "decode"):
            kept = msgspec.json.decode((progress.path / SERVERS).read_bytes(), type=list[Kept])
            os.kill(kept[0].process.pid, signal.SIGKILL)
            killed = True
        await asyncio.sleep(0.002)
    assert killed
    return await work


def test_a_server_killed_in_mid_trial_is_started_again_and_the_trial_repeated(tmp_path: Path) -> None:
    port = free_port()
    text = suite({"a": (port, serve(tmp_path, port, speed=0.1))}, replays=2)
    text = text.replace("[suite]", "[suite]\nretry_invalid = 0")
    run = asyncio.run(run_and_kill(text, tmp_path, "a/256/replay/1.1"))
    (fall,) = events(run, "server-fell")
    assert fall.message == "was ended by signal 9"
    assert isinstance(fall.data["log"], str) and (run / fall.data["log"]).is_file()
    assert valid(run) == {trial.id for trial in read_info(run).plan}
    sent = [(e.trial.condition, e.trial.replay, e.attempt, e.purpose) for e in exchanges(run)]
    # The new server's cache is empty: nothing is replayed before a new cold prompt was sent.
    assert sent[:2] == [("cold", 0, 1, "trial"), ("replay", 1, 1, "trial")]
    assert sent[2:] == [
        ("salted", 0, 1, "trial"),
        ("cold", 0, 2, "prime"),
        ("replay", 1, 2, "trial"),
        ("replay", 2, 1, "trial"),
    ]
    salts = {e.prompt.salt for e in exchanges(run) if e.trial.condition == "cold"}
    assert len(salts) == 2
    assert left_running(tmp_path) == []


def test_a_route_whose_server_falls_for_good_waits_and_the_others_go_on(tmp_path: Path) -> None:
    port = free_port()
    text = suite(
        {"a": (port, serve(tmp_path, port, speed=0.1)), "b": (port, serve(tmp_path, port))},
        more="restart = 0",
    )
    with pytest.raises(
        EngineError, match=r"route a: its server was ended by signal 9 .*3 of 6 trials are left"
    ):
        asyncio.run(run_and_kill(text, tmp_path, "a/256/cold/1"))
    run = only_run(tmp_path / "results")
    assert {trial.partition("/")[0] for trial in valid(run)} == {"b"}
    assert left_running(tmp_path) == []
    asyncio.run(resume(run, Progress()))
    assert valid(run) == {trial.id for trial in read_info(run).plan}
    assert [e.data["route"] for e in events(run, "server-started")] == ["a", "b", "a"]
    assert left_running(tmp_path) == []


@pytest.mark.parametrize(("number", "seed"), [(signal.SIGINT, 1), (signal.SIGINT, 2), (signal.SIGTERM, 3)])
def test_nothing_is_left_running_whenever_a_run_is_interrupted(
    tmp_path: Path, number: signal.Signals, seed: int
) -> None:
    port = free_port()
    up = serve(tmp_path, port)
    (tmp_path / "s.toml").write_text(suite({"a": (port, up), "b": (port, up)}))
    process = subprocess.Popen(
        [sys.executable, "-m", "bench", "run", "s.toml", "--no-report"],
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    assert process.stderr is not None
    process.stderr.readline()  # the commands are shown: from here on servers may be up
    try:
        process.wait(timeout=random.Random(f"{number}/{seed}").uniform(0, 3))
    except subprocess.TimeoutExpired:
        process.send_signal(number)
    process.communicate(timeout=300)
    assert process.returncode in (0, 1, 130)
    assert left_running(tmp_path) == []


def test_a_command_that_ends_before_the_server_is_ready_says_its_last_words(tmp_path: Path) -> None:
    text = suite(
        {"a": (free_port(), "echo loading; echo no GPU for $WHO >&2; exit 7")}, more='env.WHO = "secret-me"'
    )
    (tmp_path / "s.toml").write_text(text)
    result = ctxbench_here(["run", "s.toml", "--quiet"], tmp_path)
    assert result.returncode == 3
    shown, error = result.stderr.splitlines()
    assert shown.startswith("route a: starts: echo loading") and "with: WHO (from the suite)" in shown
    assert "route a: its server ended with exit code 7 before it was ready: loading | no GPU for ***" in error
    assert "secret-me" not in result.stderr.replace(shown, "")
    assert not (tmp_path / "results").exists()


def test_a_server_that_never_gets_ready_is_stopped_again(tmp_path: Path) -> None:
    up = f"echo waiting {tmp_path}; sleep 1000 & sleep 1000"
    (tmp_path / "s.toml").write_text(suite({"a": (free_port(), up)}, more="ready_timeout_s = 0.3"))
    result = ctxbench_here(["run", "s.toml", "--quiet"], tmp_path)
    assert result.returncode == 3
    assert "was not ready in 0.3 s" in result.stderr and "waiting" in result.stderr
    assert left_running(tmp_path) == []


def test_an_address_that_is_taken_is_not_started_upon(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        (tmp_path / "s.toml").write_text(suite({"a": (port, f"touch {tmp_path}/started")}))
        result = ctxbench_here(["run", "s.toml", "--quiet"], tmp_path)
    assert result.returncode == 3
    assert f"something answers at http://127.0.0.1:{port}/v1 already" in result.stderr
    assert not (tmp_path / "started").exists()


def test_a_dry_run_prints_everything_and_does_nothing(tmp_path: Path) -> None:
    up = f"touch {tmp_path}/started"
    more = "down = ['docker', 'stop', 'it']\nenv = { A = 'hidden', B = { from_env = 'CTX_TEST_NONE' } }"
    (tmp_path / "s.toml").write_text(suite({"a": (free_port(), up)}, more=more))
    result = ctxbench_here(["run", "s.toml", "--dry-run"], tmp_path)
    assert result.returncode == 0, result.stderr
    for expected in (
        f"starts: touch {tmp_path}/started",
        "stops: docker stop it",
        "A (from the suite), B (from CTX_TEST_NONE)",
        "missing: the environment variable CTX_TEST_NONE, which is not set",
        "a/256/cold/1: 256 prompt tokens, 16 output tokens",
        "results/<utc>-served/",
        "journal.jsonl",
        "measurements.parquet",
    ):
        assert expected in result.stdout
    assert "hidden" not in result.stdout + result.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["s.toml"]
    assert "in one line" not in result.stdout
    (tmp_path / "s.toml").write_text(
        suite({"a": (free_port(), up)}).replace("[suite]", "[suite]\nconcurrency = [2]")
    )
    waves = ctxbench_here(["run", "s.toml", "--dry-run"], tmp_path).stdout
    listed = [line for line in waves.splitlines() if "2 at once, each" in line]
    assert f"trials: {2 * len(listed)} (those of a wave in one line)" in waves
