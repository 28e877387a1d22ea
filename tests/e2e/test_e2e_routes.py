"""A run that starts and stops its servers, on the real engine: three routes, one killed in mid-trial."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import msgspec

from bench.analysis.verdicts.measure import measure_all
from bench.journal import read_entries, read_info
from bench.plan.suite import parse_suite
from bench.plan.variants import Sweep, llama_suite
from bench.records import Event, Exchange
from bench.run.lifecycle.routes import SERVERS, Kept
from bench.run.progress import Progress
from bench.run.study import Order, start
from bench.servers.llama import default_model

KILLED = "ngram4/128/cold/1"


def suite_text(port: int) -> str:
    sweep = Sweep(name="real", drafted=(0, 4, 8), tiers=(128,), output_tokens=16, repeats=1, port=port)
    text = llama_suite(sweep).replace("[suite]", '[suite]\nwarmup = "none"\nreplays = 1')
    return text.replace('"ctxbench", ', f'"{sys.executable}", "-m", "bench", ').replace(', "salted"', "")


async def run_and_kill(order: Order) -> Path:
    """The run, whose second server is killed (signal 9) while its first trial is in flight."""
    progress, killed = Progress(), False
    work = asyncio.create_task(start(order, progress))
    while not work.done():
        now = progress.trial.id if progress.trial else ""
        if not killed and progress.path and now == KILLED and progress.phase == "prefill":
            kept = msgspec.json.decode((progress.path / SERVERS).read_bytes(), type=list[Kept])
            os.kill(kept[0].process.pid, signal.SIGKILL)
            killed = True
        await asyncio.sleep(0.005)
    assert killed
    return await work


def test_three_routes_one_after_another_and_one_killed_in_mid_trial(tmp_path: Path) -> None:
    default_model()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    text = suite_text(port)
    order = Order(suite=parse_suite(text), suite_text=text, results=tmp_path)
    run = asyncio.run(run_and_kill(order))
    entries = list(read_entries(run))
    exchanges = [entry for entry in entries if isinstance(entry, Exchange)]
    happened = [(e.name, e.data["route"]) for e in entries if isinstance(e, Event) and "server-" in e.name]
    up, fell, down = "server-started", "server-fell", "server-stopped"
    assert happened == [
        (up, "target-only"),
        (down, "target-only"),
        (up, "ngram4"),
        (fell, "ngram4"),
        (up, "ngram4"),
        (down, "ngram4"),
        (up, "ngram8"),
        (down, "ngram8"),
    ]
    found = list(measure_all(read_info(run), exchanges))
    assert {m.trial_id for m in found if m.verdict.valid} == {trial.id for trial in read_info(run).plan}
    assert [m.attempt for m in found if m.trial_id == KILLED] == [1, 2]
    listed = subprocess.run(["ps", "-A", "-o", "stat=,args="], capture_output=True, text=True, check=True)
    assert not [line for line in listed.stdout.splitlines() if f"--port {port}" in line and line[0] != "Z"]
