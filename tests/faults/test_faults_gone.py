"""A server that goes away in the middle of a run: it ends soon, keeps what it has, says what is left."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from fault_runs import suite_text

from bench.errors import EngineError
from bench.journal import read_entries
from bench.plan.suite import parse_suite
from bench.records import Event, Exchange
from bench.records.events import FINISHED
from bench.run.progress import Phase, Progress
from bench.run.study import Order, start
from bench.servers import simulator
from bench.servers.simulator import Simulator

IDLE_LIMIT_S = 60.0


class Ends(Progress):
    """Stops the server when the replay is about to be sent."""

    server: Simulator | None = None

    def enter(self, phase: Phase, now_ns: int) -> None:
        super().enter(phase, now_ns)
        replay = self.trial is not None and self.trial.condition == "replay"
        if self.server is not None and replay and phase == "waiting until idle":
            self.server.stop()


def test_a_server_that_went_away_ends_the_run_with_what_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bench.run.exchange._IDLE_LIMIT_S", IDLE_LIMIT_S)
    monkeypatch.setattr("bench.run.exchange._SETTLE_LIMIT_S", 0.2)
    monkeypatch.setattr("bench.run.lifecycle.care.RETURN_LIMIT_S", 0.5)
    with simulator.start("toy") as server:
        text = suite_text(
            server.base_url, tier=256, k=2, conditions='"cold", "replay", "salted"', replays=1, output=16
        )
        progress = Ends()
        progress.server = server
        with pytest.raises(
            EngineError, match=r"r: its server did not come back .*; 2 of 3 trials are left: .*--resume"
        ):
            order = Order(suite=parse_suite(text), suite_text=text, results=tmp_path, force=True)
            asyncio.run(start(order, progress))
    assert progress.path is not None
    why = f"nobody listens at {server.base_url.removeprefix('http://').removesuffix('/v1')}"
    (invalid,) = [note for note in progress.notes if "is invalid" in note]
    assert invalid.endswith(f"is invalid: failed (refused: {why})")
    assert any(note.startswith(f"route r: {why}; waiting up to 0 s for it (GET ") for note in progress.notes)
    (account,) = [e for e in read_entries(progress.path) if isinstance(e, Event) and e.name == FINISHED]
    assert float(str(account.data["server_s"])) >= 0.5  # the wait for it to come back is the server's time
    cold, replay = (entry for entry in read_entries(progress.path) if isinstance(entry, Exchange))
    assert cold.failure is None
    assert replay.failure is not None and replay.failure.kind == "refused"
    # Not the fifteen minutes that a server may be busy for.
    assert replay.idle_wait_s is not None and replay.idle_wait_s < IDLE_LIMIT_S
