"""What a run is doing right now: written by the runner, read by whoever shows it, on its own timer."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from bench.records import Trial
from bench.run.pace import Pace

Phase = Literal[
    "starting the server",
    "stopping the server",
    "connecting",
    "composing",
    "waiting until idle",
    "waiting for the server to come back",
    "prefill",
    "decode",
    "settling",
    "pausing between turns",
    "finished",
]


@dataclass(slots=True)
class Progress:
    """The one mutable record: plain attributes, so that the hot path only assigns."""

    path: Path | None = None
    """The run directory, once there is one."""
    total: int = 0
    """Trials in the plan."""
    done: int = 0
    """Trials that are finished, in earlier sessions of the run too."""
    unmeasured: int = 0
    """Those of them that have no valid measurement: every attempt was invalid."""
    phase: Phase = "connecting"
    phase_since_ns: int = 0
    """Monotonic."""
    trial: Trial | None = None
    trial_since_ns: int = 0
    expected_ttft_s: float | None = None
    """What the estimate says of the request in flight."""
    left_s: float | None = None
    """Estimated time for all that is left, from the start of the trial in flight."""
    kv_usage: float | None = None
    bytes_read: int = 0
    pace: Pace = field(default_factory=Pace)
    """How fast the requests in flight are decoded."""
    together: int = 1
    """Requests in flight: more than one in a wave."""
    with_text: int = 0
    """Those of them that have text already."""
    notes: list[str] = field(default_factory=list)
    """Lines for people, in order; a shower takes those it has not shown yet."""

    def begin(self, trial: Trial, now_ns: int) -> None:
        """Starts a trial; `left_s` counts from here."""
        self.trial = trial
        self.trial_since_ns = now_ns

    def enter(self, phase: Phase, now_ns: int) -> None:
        """Starts a phase of the trial in flight."""
        self.phase = phase
        self.phase_since_ns = now_ns
