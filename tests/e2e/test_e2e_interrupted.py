"""Runs of the real engine that end badly: killed with their servers up, and Ctrl-C at any moment."""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from bench.analysis.verdicts.measure import measure_all
from bench.journal import read_entries, read_info
from bench.plan.variants import Sweep, llama_suite
from bench.records import Exchange
from bench.run.lifecycle.process import identity
from bench.run.lifecycle.routes import SERVERS, Kept
from bench.servers.llama import default_model

LONG_S = 600.0
"""Far longer than anything here takes: a machine may be busy."""
MOMENTS = 10
SPAN_S = 3.5
"""From the first line on: starting a server, its checks, some trials, stopping it."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def write_suite(folder: Path, port: int, drafted: tuple[int, ...] = (0, 4)) -> None:
    sweep = Sweep(name="real", drafted=drafted, tiers=(128,), output_tokens=16, repeats=1, port=port)
    text = llama_suite(sweep).replace("[suite]", '[suite]\nwarmup = "none"\nreplays = 1\nretry_invalid = 3')
    text = text.replace('"ctxbench", ', f'"{sys.executable}", "-m", "bench", ').replace(', "salted"', "")
    (folder / "s.toml").write_text(text)


def begin(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "bench", "run", *arguments, "--no-report"],
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def processes(words: str) -> list[int]:
    """Living processes whose command line holds these words."""
    listed = subprocess.run(
        ["ps", "-A", "-o", "pid=,stat=,args="], capture_output=True, text=True, check=True
    )
    rows = [line.split(None, 2) for line in listed.stdout.splitlines()]
    return [int(pid) for pid, state, args in rows if words in args and state[0] != "Z"]


def wait_for(what: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    end = time.monotonic() + LONG_S
    while not what():
        assert process.poll() is None, "the run ended before"
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_run_killed_with_its_server_up_knows_that_server_again_and_is_completed(tmp_path: Path) -> None:
    default_model()
    port = free_port()
    write_suite(tmp_path, port, drafted=(0,))
    process = begin(tmp_path, "s.toml")

    def in_flight() -> bool:
        journals = (tmp_path / "results").glob("*/journal.jsonl")
        return any('"purpose":"trial"' in path.read_text() for path in journals)

    try:
        wait_for(in_flight, process)
        (run,) = (tmp_path / "results").iterdir()
        (kept,) = msgspec.json.decode((run / SERVERS).read_bytes(), type=list[Kept])
        # The guard would end the server in our place: without it the server stays, as after a bad night.
        for guard in processes(f"ctxbench-guard {kept.process.pid} "):
            os.kill(guard, signal.SIGKILL)
    finally:
        process.kill()
        process.communicate()
    assert identity(kept.process.pid) == kept.process
    again = begin(tmp_path, "--resume", str(run))
    assert again.stderr is not None
    try:
        said, told = "", ""
        waits = "waits for the end of the server of an earlier session"
        while f"{waits}, process {kept.process.pid} of route {kept.route}" not in told:
            line = again.stderr.readline()
            assert line, f"the resumed run ended before: {said}"
            said += line
            told = " ".join(said.split())  # lines may be wrapped
        assert identity(kept.process.pid) == kept.process  # looked at, and left alone
        os.killpg(kept.process.pid, signal.SIGKILL)
        _, rest = again.communicate(timeout=LONG_S)
    finally:
        again.kill()
        again.communicate()
    assert again.returncode == 0, rest
    exchanges = [entry for entry in read_entries(run) if isinstance(entry, Exchange)]
    found = measure_all(read_info(run), exchanges)
    assert {m.trial_id for m in found if m.verdict.valid} == {trial.id for trial in read_info(run).plan}
    assert not (run / SERVERS).exists()
    assert processes(f"--port {port}") == []


@pytest.mark.parametrize("moment", range(MOMENTS))
def test_nothing_of_the_real_engine_is_left_after_ctrl_c(tmp_path: Path, moment: int) -> None:
    default_model()
    port = free_port()
    write_suite(tmp_path, port)
    process = begin(tmp_path, "s.toml")
    assert process.stderr is not None
    try:
        assert "starts: " in process.stderr.readline()  # from here on a server may be up
        part = SPAN_S / MOMENTS
        try:
            process.wait(timeout=part * (moment + random.Random(moment).random()))
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=LONG_S)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode in (0, 1, 130), said
    assert processes(f"--port {port}") == []
    assert list(tmp_path.glob("results/*/servers.json")) == []
