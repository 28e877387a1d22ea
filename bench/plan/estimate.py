"""How long a plan will take: per trial and in total, before it starts and while it runs. Pure.

A route's times come from its earlier measurements, or from a calibration (two small cold prompts
give b and c of the prefill law), and are refined by what the run itself measures. What a tier has
shown counts before any law; a law is asked for tiers not yet seen. The range beside each figure is
what a timing error of 5%, tilted against the extrapolation, would make of it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from statistics import median

from msgspec import Struct, structs

from bench.analysis import decode, prefill
from bench.analysis.decode import DecodeLaw
from bench.analysis.prefill import PrefillLaw
from bench.errors import SuiteError
from bench.records import Measurement, Trial, Verdict

TIMING_ERROR = 0.05
"""Assumed error of a single timing, for the range."""
CACHED_S = 5e-6
"""Seconds a cached token costs where no replay has shown it (tokenising at 200,000 tokens/s)."""
UNCACHED_TOKENS = 2_048
"""Tokens that a replay computes anew where none has shown it: a block or two of a large-block model."""
OVERHEAD_S = 2.0
"""Composing, scraping and settling around one exchange."""
WARMUP_TOKENS = 4_096
_CALIBRATION_MIN, _CALIBRATION_MAX = 8_192, 65_536


class RouteModel(Struct, frozen=True, kw_only=True):
    """What is known of one route's times."""

    route: str
    basis: str
    """Where it is from, in words; empty when nothing is known."""
    law: PrefillLaw | None = None
    tilted: tuple[PrefillLaw, ...] = ()
    """The law had the timings erred by +-5% against each other: its range."""
    decode: DecodeLaw | None = None
    ttft_s: dict[str, float] = {}
    """`condition/tier` -> median TTFT measured there (salted counts as cold)."""
    uncached_tokens: int = UNCACHED_TOKENS
    """What a replay computes anew."""
    scale: float = 1.0
    """Measured / expected in this run so far."""

    @property
    def known(self) -> bool:
        return self.law is not None


class TrialEstimate(Struct, frozen=True, kw_only=True):
    """Expected times of one trial, in seconds; `None` where the route is unknown."""

    trial_id: str
    ttft_s: float | None = None
    decode_s: float | None = None
    total_s: float | None = None
    """With the work around the exchange."""
    low_s: float | None = None
    high_s: float | None = None
    basis: str = ""
    """`measured`, `law`, `law, 8.6x beyond the longest prompt`, ..., or why there is none."""


class PlanEstimate(Struct, frozen=True, kw_only=True):
    """Expected times of a plan, in seconds."""

    trials: tuple[TrialEstimate, ...]
    warmup_s: float = 0.0
    total_s: float | None = None
    """`None` as soon as one trial cannot be estimated."""
    low_s: float | None = None
    high_s: float | None = None
    unknown: tuple[str, ...] = ()
    """Routes of which nothing is known."""

    def left_s(self, done: Collection[str]) -> float | None:
        """Time for the trials that are not in `done` (by id)."""
        left = [t.total_s for t in self.trials if t.trial_id not in done]
        return None if None in left else sum(t for t in left if t is not None)


# --- what is known of a route -----------------------------------------------------------------------


def learn(route: str, measurements: Iterable[Measurement], *, basis: str = "earlier runs") -> RouteModel:
    """A route's model from measurements of it (others are ignored, invalid and failed ones too).

    With one tier only, TTFT is taken as proportional to the prompt: too short for longer prompts.
    """
    rows = [_plain(m) for m in measurements if m.route == route and _usable(m)]
    cold = [m for m in rows if m.condition != "replay"]
    if not cold:
        return RouteModel(route=route, basis="")
    law, words = _law(route, rows)
    shift = (1 + TIMING_ERROR, 1 - TIMING_ERROR)
    tilted = [_law(route, _tilted(rows, first, last))[0] for first, last in (shift, shift[::-1])]
    anew = [m.prompt_tokens - m.cached_tokens for m in rows if m.prompt_tokens and m.cached_tokens]
    seen: dict[str, list[float]] = {}
    for m in rows:
        if m.ttft_s is not None and not (m.condition == "replay" and m.cached_tokens == 0):
            seen.setdefault(_key(m.condition, m.tier), []).append(m.ttft_s)
    return RouteModel(
        route=route,
        basis=f"{basis}{words}",
        law=law,
        tilted=tuple(tilted),
        decode=decode.fit(rows).get(route),
        ttft_s={key: median(times) for key, times in seen.items()},
        uncached_tokens=round(median(anew)) if anew else UNCACHED_TOKENS,
    )


def calibration_lengths(tiers: Sequence[int]) -> tuple[int, int]:
    """Two prompt lengths that show b and c cheaply: an eighth of the largest tier, and a quarter of that.

    Kept within 8,192 and 65,536 tokens (and the largest tier), since attention must show beside the
    weights: at 16,384 tokens it may be 5% of the time, no more than the timing error.
    """
    largest = max(tiers)
    long = min(largest, max(_CALIBRATION_MIN, min(_CALIBRATION_MAX, largest // 8)))
    return max(1, long // 4), long


def calibrated(route: str, points: Sequence[tuple[int, float]], tpot_s: float | None = None) -> RouteModel:
    """A route's model from calibration: (prompt tokens, TTFT in seconds) of cold prompts, and a step time."""
    rows = [
        Measurement(
            trial_id=f"{route}/{tokens}/calibration",
            route=route,
            tier=tokens,
            condition="cold",
            prompt_tokens=tokens,
            output_tokens=1,
            ttft_s=ttft_s,
            tpot_s=tpot_s,
            verdict=Verdict(valid=True),
        )
        for tokens, ttft_s in points
        if ttft_s > 0
    ]
    return learn(route, rows, basis="calibration")


def refined(model: RouteModel, done: Iterable[Measurement]) -> RouteModel:
    """The model after what this run has measured: two tiers make a law of their own, one scales the old."""
    rows = [_plain(m) for m in done if m.route == model.route and _usable(m)]
    cold = [m for m in rows if m.condition != "replay" and m.ttft_s is not None]
    if not cold:
        return model
    mine = learn(model.route, rows, basis="this run")
    if model.law is None or len({m.tier for m in cold}) > 1:
        return mine
    ratios = [
        m.ttft_s / float(model.law.ttft_s(m.prompt_tokens or m.tier)) for m in cold if m.ttft_s is not None
    ]
    return structs.replace(
        model,
        basis=f"{model.basis}, scaled by this run",
        scale=median(ratios),
        decode=_better(mine.decode, model.decode),
        ttft_s={**_rescaled(model.ttft_s, median(ratios)), **mine.ttft_s},
        uncached_tokens=mine.uncached_tokens if any(m.cached_tokens for m in rows) else model.uncached_tokens,
    )


# --- estimates ----------------------------------------------------------------------------------------


def estimate(
    trials: Sequence[Trial],
    models: Mapping[str, RouteModel],
    *,
    overhead_s: float = OVERHEAD_S,
    warmup_tokens: int = WARMUP_TOKENS,
) -> PlanEstimate:
    """Times of all trials and their sum; one warm-up prompt a route (`warmup_tokens=0`: none)."""
    rows = tuple(estimate_trial(trial, models.get(trial.route), overhead_s=overhead_s) for trial in trials)
    routes = dict.fromkeys(trial.route for trial in trials)
    unknown = tuple(route for route in routes if (m := models.get(route)) is None or not m.known)
    warmup = sum(
        _warmup_s(models[route], warmup_tokens, overhead_s) for route in routes if route not in unknown
    )
    if unknown or not rows:
        return PlanEstimate(trials=rows, warmup_s=warmup, unknown=unknown, total_s=None if unknown else 0.0)
    return PlanEstimate(
        trials=rows,
        warmup_s=warmup,
        total_s=warmup + sum(row.total_s or 0.0 for row in rows),
        low_s=warmup + sum(row.low_s or 0.0 for row in rows),
        high_s=warmup + sum(row.high_s or 0.0 for row in rows),
    )


def estimate_trial(
    trial: Trial, model: RouteModel | None, *, overhead_s: float = OVERHEAD_S
) -> TrialEstimate:
    """Times of one trial; without a model an estimate that says so."""
    if model is None or model.law is None:
        return TrialEstimate(trial_id=trial.id, basis=f"nothing is known of route {trial.route}")
    reused = max(0, trial.tier - model.uncached_tokens) if trial.condition == "replay" else 0
    span = [_ttft(law, trial.tier, reused) * model.scale for law in (model.law, *model.tilted)]
    measured = model.ttft_s.get(_key(trial.condition, trial.tier))
    beyond = trial.tier / model.law.longest
    if measured is not None:
        ttft, basis = measured, "measured"
        span = [measured * (1 - TIMING_ERROR), measured * (1 + TIMING_ERROR)]
    else:
        ttft, basis = span[0], "law"
        if beyond > 1.01:
            basis += f", {beyond:.1f}x beyond the longest prompt measured"
    if trial.condition == "replay" and measured is None:
        # A first replay may miss altogether (MTP on hybrid models): then it costs a cold prompt.
        span.append(_ttft(model.law, trial.tier, 0) * model.scale if trial.replay <= 1 else ttft)
    decoding = _decode_s(model, trial)
    # Of a wave: its prompts one after another, then one decode and one overhead, which they share.
    rest = (overhead_s + (decoding or 0.0)) / trial.concurrency
    if decoding is None and trial.output_tokens > 1:
        basis += "; decode speed not known"
    return TrialEstimate(
        trial_id=trial.id,
        ttft_s=ttft,
        decode_s=decoding,
        total_s=ttft + rest,
        low_s=min(span) + rest,
        high_s=max(span) + rest,
        basis=basis,
    )


# --- budget -------------------------------------------------------------------------------------------


class BudgetedPlan(Struct, frozen=True, kw_only=True):
    """What is left of a plan within its budget."""

    trials: tuple[Trial, ...]
    estimate: PlanEstimate
    changes: tuple[str, ...] = ()
    """What was dropped and why, in words; empty when everything fits."""


def within_budget(
    trials: Sequence[Trial],
    models: Mapping[str, RouteModel],
    budget_s: float,
    *,
    overhead_s: float = OVERHEAD_S,
    warmup_tokens: int = WARMUP_TOKENS,
) -> BudgetedPlan:
    """Fit a plan into a budget: drop repeats down to one, then the largest tiers, always on all routes alike.

    The expected time is compared, not its upper end. Raises `SuiteError` when not even one repeat of
    the smallest tier fits, and when a route's times are not known.
    """
    left = tuple(trials)

    def estimated() -> PlanEstimate:
        return estimate(left, models, overhead_s=overhead_s, warmup_tokens=warmup_tokens)

    now = estimated()
    if now.unknown:
        message = f"the budget cannot be judged: nothing is known of {', '.join(now.unknown)}"
        raise SuiteError(f"{message}; calibrate first, or name an earlier run")
    full, asked = now.total_s or 0.0, max((t.repeat for t in left), default=0)
    dropped: list[int] = []
    while (now.total_s or 0.0) > budget_s:
        repeats, tiers = {t.repeat for t in left}, {t.tier for t in left}
        if len(repeats) > 1:
            left = tuple(t for t in left if t.repeat != max(repeats))
        elif len(tiers) > 1:
            dropped.append(max(tiers))
            left = tuple(t for t in left if t.tier != max(tiers))
        else:
            message = (
                f"one repeat of the smallest tier, {max(tiers):,} tokens, takes {words(now.total_s or 0.0)}"
            )
            raise SuiteError(
                f"budget: {message}, more than {words(budget_s)}: raise it, or plan fewer routes"
            )
        now = estimated()
    return BudgetedPlan(
        trials=left, estimate=now, changes=_changes(left, asked, dropped, full, now, budget_s)
    )


def _changes(
    left: Sequence[Trial],
    asked: int,
    dropped: Sequence[int],
    full_s: float,
    now: PlanEstimate,
    budget_s: float,
) -> tuple[str, ...]:
    if len({t.repeat for t in left}) == asked and not dropped:
        return ()
    kept = len({t.repeat for t in left})
    changes = [f"the plan needs {words(full_s)}, the budget is {words(budget_s)}"]
    if kept < asked:
        changes.append(f"repeats: {kept} instead of {asked}")
    changes += [f"tier {tier:,} dropped" for tier in dropped]
    changes.append(f"what is left takes {words(now.total_s or 0.0)}, at most {words(now.high_s or 0.0)}")
    return tuple(changes)


def parse_duration(text: str) -> float:
    """Seconds of `4h`, `90 min`, `1h 30m`, `45s`; `SuiteError` otherwise."""
    units = {"d": 86_400.0, "h": 3_600.0, "m": 60.0, "min": 60.0, "s": 1.0}
    parts = re.findall(r"(\d{1,9}(?:\.\d{1,6})?)\s*(d|h|min|m|s)\s*", text)
    if not parts or re.sub(r"\d{1,9}(?:\.\d{1,6})?\s*(?:d|h|min|m|s)\s*", "", text.strip()):
        raise SuiteError(f"{text[:40]!r} is no duration: write it like '4h', '90min' or '1h 30m'")
    seconds = sum(float(number) * units[unit] for number, unit in parts)
    if seconds <= 0:
        raise SuiteError(f"{text[:40]!r} is no time at all")
    return seconds


def words(seconds: float) -> str:
    """`47 s`, `12 min`, `3 h 05 min`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60:02d} min"


# --- helpers ------------------------------------------------------------------------------------------


def _usable(m: Measurement) -> bool:
    alone = m.concurrency == 1  # a wave's times are those of a loaded server
    return alone and m.verdict.valid and m.failure is None and m.ttft_s is not None and m.ttft_s > 0


def _plain(m: Measurement) -> Measurement:
    """One route, one name: where the numbers are from, and whether drafts stopped, is all one for a clock."""
    speculation = "none" if m.verdict.speculation == "fallback" else m.verdict.speculation
    return structs.replace(m, source="", verdict=structs.replace(m.verdict, speculation=speculation))


def _key(condition: str, tier: int) -> str:
    return f"{'cold' if condition == 'salted' else condition}/{tier}"


def _law(route: str, rows: Sequence[Measurement]) -> tuple[PrefillLaw, str]:
    law = prefill.fit(rows)[route]
    if law.terms:
        return law, ""
    cold = [m for m in rows if m.condition != "replay"]
    lengths = [m.prompt_tokens or m.tier for m in cold]
    slope = median((m.ttft_s or 0.0) / n for m, n in zip(cold, lengths, strict=True))
    proportional = structs.replace(
        law, terms=(1,), coefficients=(0.0, slope, 0.0), longest=max(lengths), absent=None
    )
    return proportional, ", one tier: taken as proportional, too short for longer prompts"


def _tilted(rows: Sequence[Measurement], first: float, last: float) -> list[Measurement]:
    """The rows with the shortest prompt's times multiplied by `first`, the longest's by `last`."""
    lengths = [m.prompt_tokens or m.tier for m in rows if m.condition != "replay"]
    low, high = min(lengths), max(lengths)

    def factor(m: Measurement) -> float:
        share = ((m.prompt_tokens or m.tier) - low) / (high - low) if high > low else 1.0
        return first + (last - first) * min(1.0, max(0.0, share))

    return [structs.replace(m, ttft_s=(m.ttft_s or 0.0) * factor(m)) for m in rows]


def _ttft(law: PrefillLaw, tokens: int, reused: int) -> float:
    extra = CACHED_S * reused if law.cached_s is None else 0.0
    return float(law.ttft_s(tokens, reused)) + extra


def _decode_s(model: RouteModel, trial: Trial) -> float | None:
    if trial.output_tokens <= 1:
        return 0.0
    if model.decode is None:
        return None
    return float(model.decode.at(trial.tier + trial.output_tokens / 2)) * (trial.output_tokens - 1)


def _warmup_s(model: RouteModel, tokens: int, overhead_s: float) -> float:
    if tokens <= 0 or model.law is None:
        return 0.0
    return _ttft(model.law, tokens, 0) * model.scale + overhead_s


def _better(mine: DecodeLaw | None, old: DecodeLaw | None) -> DecodeLaw | None:
    """This run's decode law once it has as many tiers as the old one, else the old one."""
    if mine is None or (old is not None and old.tiers > mine.tiers):
        return old
    return mine


def _rescaled(times: Mapping[str, float], ratio: float) -> dict[str, float]:
    return {key: value * ratio for key, value in times.items()}
