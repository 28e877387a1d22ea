"""What a route's own replays were like: how much of them was cached, and how long they took to begin.

Routes of one server reuse different parts of the same prompt (blocks of different length, blocks that a
drafter drops), and a cached token costs what no law of cold prompts knows of. So replays are described as
they were measured at each tier, and the prefill law only says how it goes on between and beyond the tiers.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from bench.analysis.statistics import bootstrap
from bench.analysis.statistics.bootstrap import Floats
from bench.analysis.statistics.cells import usable
from bench.analysis.statistics.prefill import PrefillLaw
from bench.analysis.statistics.texts import Texts
from bench.records import Measurement


class Replayed(Struct, frozen=True, kw_only=True):
    """One route's replays, tier by tier; (T,) arrays as tuples, tiers ascending."""

    tiers: tuple[int, ...]
    uncached: tuple[float, ...]
    """Prompt tokens that were not cached; median over texts."""
    factor: tuple[float, ...]
    """Measured median TTFT / that of the law for this prompt and cached part."""
    half: tuple[float, ...]
    """Half of the measured TTFT's spread / TTFT; NaN of a single text."""

    def cached(self, prompts: Floats) -> Floats:
        """Cached tokens of prompts of these lengths.

        What stays uncached is some blocks whatever the length, so that part is interpolated and, outside the
        tiers, kept.
        """
        return np.maximum(prompts - self._between(prompts, self.uncached), 0.0)

    def ttft(self, law: PrefillLaw, prompts: Floats) -> tuple[Floats, Floats]:
        """Seconds to the first token, and half of their spread: at the tiers what was measured.

        The law's spread and that of the replays add in squares; NaN where either is unknown.
        """
        cached, factor = self.cached(prompts), self._between(prompts, self.factor)
        value = law.ttft_s(prompts, cached) * factor
        half = np.hypot(law.half_width_s(prompts, cached) * factor, value * self._between(prompts, self.half))
        return value, half

    def _between(self, prompts: Floats, values: Sequence[float]) -> Floats:
        return np.interp(np.log(prompts), np.log(self.tiers), values)


def replayed(rows: Sequence[Measurement], law: PrefillLaw) -> Replayed | None:
    """The replays among the rows of one route, which has a law; `None` where none tells what was cached."""
    known = [row for row in rows if is_replay(row)]
    tiers = sorted({row.tier for row in known})
    if not tiers:
        return None
    found = [_at(tier, Texts([row for row in known if row.tier == tier]), law) for tier in tiers]
    uncached, factor, half = zip(*found, strict=True)
    return Replayed(tiers=tuple(tiers), uncached=uncached, factor=factor, half=half)


def is_replay(row: Measurement) -> bool:
    """Whether it is a replay that counts, with a TTFT and a known cached part."""
    return bool(usable(row) and row.condition == "replay" and row.ttft_s and row.cached_tokens is not None)


def _at(tier: int, texts: Texts, law: PrefillLaw) -> tuple[float, float, float]:
    cached = float(np.median(texts.column("cached_tokens")))
    seconds = bootstrap.median(texts.column("ttft_s"))
    factor = seconds.value / max(float(law.ttft_s(float(tier), cached)), 1e-9)
    half = np.nan
    if seconds.low is not None and seconds.high is not None:
        half = max(seconds.high - seconds.value, seconds.value - seconds.low) / seconds.value
    return max(0.0, tier - cached), factor, half
