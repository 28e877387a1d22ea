"""How long a plan will take: per trial and in total, before it starts and while it runs. Pure.

What is known of a route's times is in `times`. What a tier has shown counts before any law; a law is
asked for tiers not yet seen. The range beside each figure is what a timing error of 5%, tilted against
the extrapolation, would make of it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from msgspec import Struct, structs

from bench.analysis.statistics.latency import steps_to
from bench.analysis.statistics.prefill import PrefillLaw
from bench.errors import SuiteError
from bench.plan.durations import told_apart, words
from bench.plan.times import TIMING_ERROR, RouteModel
from bench.records import Trial

CACHED_S = 5e-6
"""Seconds a cached token costs where no replay has shown it (tokenising at 200,000 tokens/s)."""


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


# --- estimates ----------------------------------------------------------------------------------------


def estimate(
    trials: Sequence[Trial],
    models: Mapping[str, RouteModel],
    *,
    overhead_s: float,
    warmup_tokens: int,
) -> PlanEstimate:
    """Times of all trials and their sum; one warm-up prompt a route (`warmup_tokens=0`: none).

    `overhead_s`: time around an exchange, for routes whose model does not know it.
    """
    rows = _estimates(trials, models, overhead_s)
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


def estimate_trial(trial: Trial, model: RouteModel | None, *, overhead_s: float) -> TrialEstimate:
    """Times of one trial; without a model an estimate that says so."""
    if model is None or model.law is None:
        return TrialEstimate(trial_id=trial.id, basis=f"nothing is known of route {trial.route}")
    reused = max(0, trial.tier - model.uncached_tokens) if trial.condition == "replay" else trial.shared
    span = [_ttft(law, trial.tier, reused) * model.scale for law in (model.law, *model.tilted)]
    measured = model.seen_s(trial.condition, trial.tier)
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
    rest = trial.pause_s + (_around_s(model, overhead_s) + (decoding or 0.0)) / trial.concurrency
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
    overhead_s: float,
    warmup_tokens: int,
) -> BudgetedPlan:
    """Fit a plan into a budget: drop repeats down to one, then the largest tiers, always on all routes alike.

    The expected time is compared, not its upper end. Raises `SuiteError` when not even one repeat of
    the smallest tier fits, and when a route's times are not known.
    """
    left = tuple(trials)  # of chats only repeats are dropped: a turn needs those before it

    def estimated() -> PlanEstimate:
        return estimate(left, models, overhead_s=overhead_s, warmup_tokens=warmup_tokens)

    now = estimated()
    if now.unknown:
        message = f"the budget cannot be judged: nothing is known of {', '.join(now.unknown)}"
        raise SuiteError(f"{message}; calibrate first, or name an earlier run")
    full, asked = now.total_s or 0.0, max((t.repeat for t in left), default=0)
    dropped: list[int] = []
    while (now.total_s or 0.0) > budget_s:
        repeats, tiers = {t.repeat for t in left}, {t.tier for t in left if not t.turn}
        if len(repeats) > 1:
            left = tuple(t for t in left if t.repeat != max(repeats))
        elif len(tiers) > 1:
            dropped.append(max(tiers))
            left = tuple(t for t in left if t.turn or t.tier != max(tiers))
        else:
            chats = " and of the chats" if any(t.turn for t in left) else ""
            needed, budget = told_apart(now.total_s or 0.0, budget_s)
            message = f"one repeat of the smallest tier, {max(tiers):,} tokens,{chats} takes {needed}"
            raise SuiteError(f"budget: {message}, more than {budget}: raise it, or plan fewer routes")
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
    needed, budget = told_apart(full_s, budget_s)
    changes = [f"the plan needs {needed}, the budget is {budget}"]
    if kept < asked:
        changes.append(f"repeats: {kept} instead of {asked}")
    changes += [f"tier {tier:,} dropped" for tier in dropped]
    changes.append(f"what is left takes {words(now.total_s or 0.0)}, at most {words(now.high_s or 0.0)}")
    return tuple(changes)


# --- helpers ------------------------------------------------------------------------------------------


def _estimates(
    trials: Sequence[Trial], models: Mapping[str, RouteModel], overhead_s: float
) -> tuple[TrialEstimate, ...]:
    """Trials that differ in name and place alone are reckoned once: a plan of thousands has few kinds, and a
    run asks anew after every exchange."""
    known: dict[Trial, TrialEstimate] = {}
    rows = []
    for trial in trials:
        kind = structs.replace(trial, id="", repeat=1, replay=min(trial.replay, 2), task="", stream=0)
        if kind not in known:
            known[kind] = estimate_trial(kind, models.get(trial.route), overhead_s=overhead_s)
        rows.append(structs.replace(known[kind], trial_id=trial.id))
    return tuple(rows)


def _ttft(law: PrefillLaw, tokens: int, reused: int) -> float:
    extra = CACHED_S * reused if law.cached_s is None else 0.0
    return float(law.ttft_s(tokens, reused)) + extra


def _decode_s(model: RouteModel, trial: Trial) -> float | None:
    if trial.output_tokens <= 1:
        return 0.0
    if model.decode is None:
        return None
    tpot_s = model.decode.at(trial.tier + trial.output_tokens / 2)
    return float(tpot_s * steps_to(trial.output_tokens, model.decode.first_chunk_tokens))


def _warmup_s(model: RouteModel, tokens: int, overhead_s: float) -> float:
    if tokens <= 0 or model.law is None:
        return 0.0
    return _ttft(model.law, tokens, 0) * model.scale + _around_s(model, overhead_s)


def _around_s(model: RouteModel, otherwise_s: float) -> float:
    return otherwise_s if model.around_s is None else model.around_s
