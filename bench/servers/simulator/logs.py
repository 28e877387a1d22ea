"""The lines a vLLM server writes to its log, kept in memory and, when asked for, in a file."""

from __future__ import annotations

import time
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .engine import Engine
    from .profiles import Profile

_READY = (
    "Started server process [1]",
    "Waiting for application startup.",
    "Application startup complete.",
)


class ServerLog:
    """Bounded in memory; a file gets every line as it comes."""

    def __init__(self, path: Path | None = None) -> None:
        self.lines: deque[str] = deque(maxlen=10_000)
        self._path = path
        self._warnings = 0
        self._counted = (0, 0, 0, [0])
        self._since = time.monotonic()

    def write(self, level: str, source: str, message: str) -> None:
        stamp = time.strftime("%m-%d %H:%M:%S")
        self._append(f"(EngineCore pid=1) {level} {stamp} [{source}] {message}")

    def ready(self) -> None:
        """What the web server in front of the engine prints, in its own form, once requests are taken.

        Readers of logs go by the last line: what came before it belongs to the start.
        """
        for message in _READY:
            self._append(f"INFO:     {message}")

    def _append(self, line: str) -> None:
        self.lines.append(line)
        if self._path is not None:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(line + "\n")

    def started(self, profile: Profile, engine: Engine) -> None:
        """What a start prints about lengths and cache."""
        self._warnings = 0
        self._counted = (0, 0, 0, [0] * profile.k)
        self.write("INFO", "model.py:2152", f"Using max model len {profile.max_model_len}")
        if speculation := profile.speculation:
            limit = engine.drafter_limit
            self.write("INFO", "model.py:2152", f"Using max model len {limit}")
            method, k = speculation.method, profile.k
            self.write("INFO", "core.py:1", f"SpeculativeConfig(method='{method}', num_spec_tokens={k})")
        self.write(
            "INFO",
            "kv_cache_utils.py:2327",
            f"GPU KV cache size: {profile.kv_capacity_tokens:,} tokens, Maximum concurrency for "
            f"{profile.max_model_len:,} tokens per request: "
            f"{profile.kv_capacity_tokens / profile.max_model_len:.2f}x",
        )

    def collect(self, engine: Engine) -> None:
        """New warnings of the engine, and its speculation since the last line."""
        for _, message in engine.warnings[self._warnings :]:
            self.write("WARNING", "gpu_model_runner.py:1", message)
        self._warnings = len(engine.warnings)
        stats = engine.stats
        before, now = self._counted, (stats.drafts, stats.draft_tokens, stats.accepted_tokens)
        self._counted = (*now, list(stats.accepted_per_position))
        drafts, drafted, accepted = (n - b for n, b in zip(now, before[:3], strict=True))
        if drafts <= 0 or drafted <= 0:
            return
        elapsed = max(1e-9, time.monotonic() - self._since)
        self._since += elapsed
        rates = [(n - b) / drafts for n, b in zip(stats.accepted_per_position, before[3], strict=True)]
        self.write(
            "INFO",
            "metrics.py:101",
            f"SpecDecoding metrics: Mean acceptance length: {1 + accepted / drafts:.2f}, "
            f"Accepted throughput: {accepted / elapsed:.2f} tokens/s, "
            f"Drafted throughput: {drafted / elapsed:.2f} tokens/s, "
            f"Accepted: {accepted} tokens, Drafted: {drafted} tokens, Per-position acceptance rate: "
            f"{', '.join(f'{rate:.3f}' for rate in rates)}, "
            f"Avg Draft acceptance rate: {100 * accepted / drafted:.1f}%",
        )
