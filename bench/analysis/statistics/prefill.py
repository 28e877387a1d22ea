"""What a prompt costs before its first token, per route: ttft_cold(n) = a + b n + c n^2.

b is the work per token (weights), c the attention of a token over those before it. A prompt of n
tokens of which m are cached leaves the work of the tokens m..n, each attending to all before it:
ttft(n, m) = a + b (n - m) + c (n^2 - m^2) + e m, where e is what even a cached token costs
(tokenising, hashing, upload), taken from the route's replays.

Fitted by least squares on relative errors to the tiers' medians over valid cold and salted trials: a
timing varies in proportion to its length, and a median is not moved by one slow trial nor by delays
that only ever add. Intervals are Student's t with the spread of the trials around the law.
None of the three costs can be negative: a term that comes out so is left out, and so is `a` when
there are two tiers only (over long prompts it is the smallest): the law then goes through both, and
intervals know of the scatter of the trials alone. One tier gives no law, and says so.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from msgspec import Struct, structs

from bench.analysis.statistics import bootstrap
from bench.analysis.statistics.bootstrap import Floats
from bench.analysis.statistics.cells import SAME_TIER, labelled, pooled, usable
from bench.analysis.statistics.texts import Texts
from bench.records import Estimate, Measurement

_OFF = 0.05  # a tier that the law misses by more than this is named


class PrefillLaw(Struct, frozen=True, kw_only=True):
    """TTFT of one route over the prompt length, with its error."""

    route: str
    terms: tuple[int, ...] = ()
    """Powers of n that were fitted, of 0 (a), 1 (b) and 2 (c); empty: no law."""
    coefficients: tuple[float, float, float] = (0.0, 0.0, 0.0)
    """a seconds, b seconds per token, c seconds per token squared."""
    covariance: tuple[tuple[float, ...], ...] = ()
    """Of (a, b n0, c n0^2) with n0 = `longest`; empty when the fit leaves no degrees of freedom."""
    freedom: int = 0
    """Texts minus coefficients."""
    tiers: tuple[int, ...] = ()
    longest: int = 1
    """Longest prompt measured."""
    samples: int = 0
    """Prompt texts, those of each tier counted."""
    trials: int = 0
    """Their trials."""
    residuals: dict[int, float] = {}
    """Tier -> the median that was fitted / law - 1: 0 where the law goes through its tiers."""
    prefill_tok_s: dict[int, float] = {}
    """Tier -> prompt tokens / TTFT of its cold trials, the median over its texts."""
    cached_s: float | None = None
    """e: seconds per cached token, median over texts with replays whose cached prefix is known; `None`:
    no such replay, and 0 is reckoned with."""
    replays: dict[int, float] = {}
    """Tier -> median of measured / law - 1 over these texts."""
    absent: str | None = None
    """Why there is no law; then every prediction is `None`."""
    warnings: tuple[str, ...] = ()

    def ttft_s(self, tokens: float | Floats, reused: float | Floats = 0.0) -> Floats:
        """Seconds to the first token for prompts of `tokens`, the first `reused` of them cached.

        Vectorised; NaN everywhere when there is no law, so that nothing can be compared with it.
        """
        if not self.terms:
            return np.full(np.broadcast(tokens, reused).shape, np.nan)
        rows = _design(np.asarray(tokens, dtype=float), np.asarray(reused, dtype=float))
        value: Floats = rows @ np.array(self.coefficients) + (self.cached_s or 0.0) * np.asarray(reused)
        return value

    @property
    def has_spread(self) -> bool:
        """Whether an interval can be told: from the scatter of the trials, of a law that a third tier tests.

        Between two tiers, 0.1 s that every prompt costs besides suffice for the scatter to hold the truth in
        5 of 100 studies instead of 95.
        """
        return bool(self.covariance) and len(self.tiers) > 2

    def half_width_s(self, tokens: float | Floats, reused: float | Floats = 0.0) -> Floats:
        """Half of the 95% interval there, from the scatter of the trials; NaN without one (`has_spread`)."""
        rows = _design(np.asarray(tokens, dtype=float), np.asarray(reused, dtype=float))
        if not self.has_spread:
            return np.full(rows.shape[:-1], np.nan)
        rows = rows / np.array([1.0, self.longest, self.longest**2])
        variance = np.einsum("...i,ij,...j->...", rows, np.array(self.covariance), rows)
        width: Floats = student_t(self.freedom) * np.sqrt(np.maximum(variance, 0.0))
        return width

    def predict(self, tokens: int, reused: int = 0) -> Estimate | None:
        """TTFT as an estimate, with its interval where `has_spread`; `None` without a law (`absent`: why)."""
        if not self.terms:
            return None
        # plain numbers: a workload asks this very often, and arrays of one are ten times slower
        row = (1.0, float(tokens - reused), float(tokens) ** 2 - float(reused) ** 2)
        value = sum(map(operator.mul, row, self.coefficients)) + (self.cached_s or 0.0) * reused
        if not self.has_spread:
            return Estimate(value=value, samples=self.samples)
        scaled = (row[0], row[1] / self.longest, row[2] / self.longest**2)
        variance = sum(scaled[i] * scaled[j] * self.covariance[i][j] for i in range(3) for j in range(3))
        half = student_t(self.freedom) * math.sqrt(max(variance, 0.0))
        return Estimate(
            value=value,
            low=max(0.0, value - half),
            high=value + half,
            spread="interval",
            samples=self.samples,
        )

    def formula(self) -> str:
        """The law in words of digits, e.g. `0.12 s + 0.45 ms/token + 1.3e-09 s/token^2`."""
        if not self.terms:
            return f"no law: {self.absent}"
        a, b, c = self.coefficients
        texts = (f"{a:.3g} s", f"{b * 1000:.4g} ms/token", f"{c:.3g} s/token^2")
        return " + ".join(texts[power] for power in self.terms)


def prefill_laws(measurements: Iterable[Measurement]) -> list[PrefillLaw]:
    """The laws of the routes that have one."""
    return [law for law in fit(measurements).values() if law.terms]


def fit(measurements: Iterable[Measurement]) -> dict[str, PrefillLaw]:
    """The law of every route; a route without enough tiers gets one without terms that says why."""
    rows = labelled(measurements)
    cold: dict[str, list[Measurement]] = {row.route: [] for row in rows}
    replays: dict[str, list[Measurement]] = {row.route: [] for row in rows}
    for row in rows:
        if usable(row) and row.ttft_s:
            kind = cold if pooled(row.condition) == "cold" else replays
            kind[row.route].append(row)
    return {route: _law(route, cold[route], replays[route]) for route in cold}


def _law(route: str, cold: Sequence[Measurement], replays: Sequence[Measurement]) -> PrefillLaw:
    tiers = tuple(sorted({row.tier for row in cold}))
    by_tier = [Texts([row for row in cold if row.tier == tier]) for tier in tiers]
    rates = {
        tier: bootstrap.middle(texts.medians(_lengths(texts.rows) / texts.values("ttft_s")))
        for tier, texts in zip(tiers, by_tier, strict=True)
    }
    samples = sum(map(len, by_tier))
    if len(tiers) < 2:
        why = f"one tier ({tiers[0]:,} tokens) gives no law" if tiers else "no valid cold trial"
        return PrefillLaw(
            route=route, tiers=tiers, samples=samples, trials=len(cold), prefill_tok_s=rates, absent=why
        )
    points = _points(by_tier)
    terms, coefficients, covariance, freedom = _non_negative(points)
    law = PrefillLaw(
        route=route,
        terms=terms,
        coefficients=coefficients,
        covariance=covariance,
        freedom=freedom,
        tiers=tiers,
        longest=max(row.prompt_tokens or row.tier for row in cold),
        samples=samples,
        trials=len(cold),
        prefill_tok_s=rates,
    )
    residuals = points.tier_times / np.maximum(law.ttft_s(points.tier_lengths), 1e-9) - 1
    law = structs.replace(law, residuals=dict(zip(tiers, residuals.tolist(), strict=True)))
    law = _with_replays(law, [row for row in replays if row.cached_tokens])
    return structs.replace(law, warnings=_warnings(law))


def _design(tokens: Floats, reused: Floats) -> Floats:
    tokens, reused = np.broadcast_arrays(tokens, reused)
    return np.stack([np.ones_like(tokens), tokens - reused, tokens**2 - reused**2], axis=-1)


_Fit = tuple[tuple[int, ...], tuple[float, float, float], tuple[tuple[float, ...], ...], int]


class _Points(NamedTuple):
    """The texts of a route, and their medians by tier."""

    lengths: Floats
    times: Floats
    tier_lengths: Floats
    tier_times: Floats
    texts: Floats
    """Number behind each median."""


def _lengths(rows: Sequence[Measurement]) -> Floats:
    return np.array([row.prompt_tokens or row.tier for row in rows], dtype=float)


def _points(tiers: Sequence[Texts]) -> _Points:
    lengths = [texts.medians(_lengths(texts.rows)) for texts in tiers]
    times = [texts.column("ttft_s") for texts in tiers]
    return _Points(
        np.concatenate(lengths),
        np.concatenate(times),
        np.array([bootstrap.middle(one) for one in lengths]),
        np.array([bootstrap.middle(one) for one in times]),
        np.array([one.size for one in times], dtype=float),
    )


def _non_negative(points: _Points) -> _Fit:
    """The fit with the most terms none of which is negative."""
    choices: list[tuple[int, ...]] = [(0, 1, 2)] if points.tier_times.size >= 3 else []
    for terms in [*choices, (1, 2), (0, 1), (1,)]:
        found = _least_squares(points, terms)
        if min(found[1]) >= 0:
            break
    return found


def _least_squares(points: _Points, terms: tuple[int, ...]) -> _Fit:
    """Least squares of the medians, weighted by their texts and by 1/law^2.

    The first round weighs with what was measured, the others with the law, which is less noisy.
    """
    longest = float(points.lengths.max())
    design = _powers(points.tier_lengths / longest, terms)
    # relative variance of a median, in units of a single trial's
    variance = _median_variance(points.texts)
    weights = 1 / (points.tier_times * np.sqrt(variance))
    for _ in range(3):
        solution, *_ = np.linalg.lstsq(design * weights[:, None], points.tier_times * weights, rcond=None)
        law = np.maximum(design @ solution, 0.2 * points.tier_times)
        weights = 1 / (law * np.sqrt(variance))
    full = np.zeros(3)
    full[list(terms)] = solution
    a, b, c = full.tolist()
    coefficients = (a, b / longest, c / longest**2)
    freedom = points.times.size - len(terms)
    if freedom < 1:
        return terms, coefficients, (), freedom
    expected = _powers(points.lengths / longest, terms) @ solution
    noise = float(np.sum((points.times / np.maximum(expected, 0.2 * points.times) - 1) ** 2)) / freedom
    weighted = design * weights[:, None]
    covariance = np.zeros((3, 3))
    covariance[np.ix_(terms, terms)] = noise * np.linalg.pinv(weighted.T @ weighted)
    return terms, coefficients, tuple(tuple(map(float, row)) for row in covariance), freedom


def _powers(lengths: Floats, terms: tuple[int, ...]) -> Floats:
    return np.stack([lengths**power for power in terms], axis=1)


def _median_variance(trials: Floats) -> Floats:
    """Variance of a median of n normal values over that of one value; exact at 1 and 2, within 3% above.

    pi / 2n for many, with the usual finite-sample shift (odd and even n differ).
    """
    found: Floats = np.pi / (2 * (trials + np.where(trials % 2 == 1, 1, 2) * (np.pi / 2 - 1)))
    return found


def _warnings(law: PrefillLaw) -> tuple[str, ...]:
    found = [
        f"the law misses the {tier:,} tier by {miss:+.1%}"
        for tier, miss in law.residuals.items()
        if abs(miss) > _OFF
    ]
    if len(law.tiers) < 3:
        # a term that would be negative is left out: one alone need not go through both
        fit = "fit a law exactly" if len(law.terms) == len(law.tiers) else "hardly test a law"
        found.append(f"two tiers {fit}: its spread is not known, a third would test it")
    if 2 not in law.terms:
        found.append("no cost of attention shows among these tiers: do not extrapolate beyond them")
    if law.freedom < 1:
        found.append("as many coefficients as texts: the law has no error estimate")
    return tuple(found)


def _with_replays(law: PrefillLaw, replays: Sequence[Measurement]) -> PrefillLaw:
    """The law with e, from replays whose cached prefix is known, and how well these then lie on it."""
    if not replays:
        return law
    texts = Texts(replays)
    cached = texts.values("cached_tokens")
    spare = texts.values("ttft_s") - law.ttft_s(_lengths(replays), cached)
    law = structs.replace(law, cached_s=max(0.0, bootstrap.middle(texts.medians(spare / cached))))
    tiers = sorted({row.tier for row in replays})
    misses = {tier: _miss(law, Texts([row for row in replays if row.tier == tier])) for tier in tiers}
    return structs.replace(law, replays=misses)


def _miss(law: PrefillLaw, texts: Texts) -> float:
    expected = law.ttft_s(_lengths(texts.rows), texts.values("cached_tokens"))
    return bootstrap.middle(texts.medians(texts.values("ttft_s") / np.maximum(expected, 1e-9))) - 1


def within(law: PrefillLaw, tokens: int) -> bool:
    """Whether a prompt length lies among the measured ones."""
    return bool(law.tiers) and law.tiers[0] * (1 - SAME_TIER) <= tokens <= law.longest * (1 + SAME_TIER)


# Two-sided 95% quantiles of Student's t for 1 to 30 degrees of freedom.
_T = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip


def student_t(freedom: int) -> float:
    """Two-sided 95% quantile; beyond 30 degrees of freedom by Cornish-Fisher (error below 0.001)."""
    if freedom <= len(_T):
        return _T[freedom - 1]
    z = 1.959964
    return z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
