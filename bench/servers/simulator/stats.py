"""What a simulated server counts: vLLM's counters and histograms, without their text form."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field

_LATENCY = (0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680)
_TTFT = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75),
    *(1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560),
)
_TOKEN = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80)
_STEP = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
_PREEMPTIONS = (1, 2, 3, 4, 5, 10, 20)
TIMES = ("ttft", "itl", "tpot", "e2e", "queue", "inference", "prefill", "decode")
LENGTHS = ("prompt_tokens", "generation_tokens", "max_generation_tokens", "params_max_tokens", "kv_computed")


def length_buckets(limit: int) -> tuple[float, ...]:
    """1, 2, 5, 10, 20, 50 ... up to `limit`, as vLLM cuts its length histograms."""
    steps = [mantissa * 10**power for power in range(8) for mantissa in (1, 2, 5)]
    return tuple(float(step) for step in steps if step <= limit)


class Histogram:
    """Counts per upper bound, sum and count; `le` bounds are inclusive, as Prometheus wants."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = tuple(float(bound) for bound in bounds)
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    @property
    def count(self) -> int:
        return sum(self.counts)


def _histograms(max_model_len: int) -> dict[str, Histogram]:
    bounds: dict[str, tuple[float, ...]] = {name: _LATENCY for name in TIMES}
    bounds |= {"ttft": _TTFT, "itl": _TOKEN, "tpot": _TOKEN, "step_tokens": _STEP}
    bounds |= {name: length_buckets(max_model_len) for name in LENGTHS}
    bounds |= {"params_n": (1, 2, 5, 10, 20), "preemptions": _PREEMPTIONS}
    return {name: Histogram(edges) for name, edges in bounds.items()}


@dataclass
class Stats:
    """Counters since the start of the server. Durations are in wall seconds (after `--speed`)."""

    k: int
    max_model_len: int
    prompt_tokens: int = 0
    cached_tokens: int = 0
    prefix_queries: int = 0
    prefix_hits: int = 0
    generation_tokens: int = 0
    drafts: int = 0
    draft_tokens: int = 0
    accepted_tokens: int = 0
    preemptions: int = 0
    accepted_per_position: list[int] = field(default_factory=list)
    finished: dict[str, int] = field(default_factory=dict)
    histograms: dict[str, Histogram] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.accepted_per_position = self.accepted_per_position or [0] * self.k
        self.finished = self.finished or dict.fromkeys(("stop", "length", "abort", "error", "repetition"), 0)
        self.histograms = self.histograms or _histograms(self.max_model_len)

    def observe(self, name: str, value: float) -> None:
        self.histograms[name].observe(value)

    def draft(self, drafted: int, accepted: int) -> None:
        """One verify step of one sequence."""
        self.drafts += 1
        self.draft_tokens += drafted
        self.accepted_tokens += accepted
        for position in range(accepted):
            self.accepted_per_position[position] += 1
