"""What one route has shown at the prompt lengths that were measured: medians to answer requests with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from bench.analysis.decisions.workload import Request
from bench.analysis.statistics import bootstrap
from bench.analysis.statistics.cells import merged_tiers, pooled, same_tier
from bench.analysis.statistics.texts import Texts
from bench.records import Estimate, Measurement

_NEAR_REUSE = 0.01  # a replay stands for a request whose cached share differs by no more than this


class Near(NamedTuple):
    """What was measured at a request's own prompt length."""

    tier: int
    rows: int
    median: Estimate
    longest_output: int
    observed: bool
    first_chunk_tokens: float
    """c0: median over texts."""


class Shown:
    """What one route has shown, put in order once: there may be very many requests."""

    def __init__(self, rows: Sequence[Measurement], observed: Sequence[Measurement]) -> None:
        self.longest = max(row.prompt_tokens or row.tier for row in rows)
        self.longest_output = max(row.output_tokens or 0 for row in (*rows, *observed))
        self._tiers: dict[int, list[Measurement]] = {}
        self._steps: dict[int, list[Measurement]] = {}
        self._observed = {id(row) for row in observed}
        for row in rows:
            self._tiers.setdefault(row.tier, []).append(row)
        for row in (*rows, *observed):
            if row.tpot_s is not None:
                self._steps.setdefault(row.tier, []).append(row)
        names = merged_tiers(row.tier for row in rows)
        decoded: dict[int, list[Measurement]] = {}
        for row in rows:
            if row.tpot_s is not None:
                decoded.setdefault(names[row.tier], []).append(row)
        self.spread = bootstrap.spread_of(*(len(Texts(own)) for own in decoded.values())) if decoded else None
        self._medians: dict[tuple[str, tuple[int, ...]], Near] = {}

    def ttft(self, request: Request) -> Near | None:
        """TTFT of prompts of this length with this part cached."""
        tiers = tuple(tier for tier in self._tiers if same_tier(tier, request.prompt_tokens))
        if not tiers:
            return None
        key = ("cold", tiers)
        if request.reused_tokens == 0 and key in self._medians:
            return self._medians[key]
        rows = [row for tier in tiers for row in self._tiers[tier]]
        near = self._near([row for row in rows if row.ttft_s is not None and _alike(row, request)], "ttft_s")
        if request.reused_tokens == 0 and near is not None:
            self._medians[key] = near
        return near

    def tpot(self, prompt: int) -> Near | None:
        """Time per token behind prompts of this length."""
        tiers = tuple(tier for tier in self._steps if same_tier(tier, prompt))
        key = ("tpot", tiers)
        if tiers and key not in self._medians:
            near = self._near([row for tier in tiers for row in self._steps[tier]], "tpot_s")
            if near is not None:
                self._medians[key] = near
        return self._medians.get(key)

    def _near(self, rows: Sequence[Measurement], field: str) -> Near | None:
        texts = Texts(rows)
        median, first = texts.median(field), texts.middle("first_chunk_tokens")
        if median is None or first is None:
            return None
        return Near(
            tier=rows[0].tier,
            rows=len(rows),
            median=median,
            longest_output=max(row.output_tokens or 0 for row in rows),
            observed=any(id(row) in self._observed for row in rows),
            first_chunk_tokens=first,
        )


def _alike(row: Measurement, request: Request) -> bool:
    if not same_tier(row.tier, request.prompt_tokens):
        return False
    if pooled(row.condition) == "cold":
        return request.reused_tokens == 0
    if row.cached_tokens is None or request.reused_tokens == 0:
        return False
    return abs(row.cached_tokens - request.reused_tokens) <= _NEAR_REUSE * (
        request.prompt_tokens - request.reused_tokens
    )
