"""How long a plan will take, and what of it fits into the suite's budget."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from bench.plan.durations import words
from bench.plan.estimate import PlanEstimate
from bench.plan.times import RouteModel
from bench.plan.trials import plan
from bench.prompting.compose import Composer
from bench.records import RunInfo, Suite, Trial
from bench.run.forecast.calibrate import calibrate
from bench.run.forecast.chats import expected_chats
from bench.run.forecast.earlier import earlier_runs
from bench.run.forecast.outlook import fitted, forecast
from bench.run.openroute import OpenRoute
from bench.run.order import Order


class Expectation(Struct, frozen=True, kw_only=True):
    """What a run will send, and what is known of its times."""

    plan: tuple[Trial, ...]
    models: dict[str, RouteModel]
    notes: tuple[str, ...] = ()
    """What was dropped for the budget, and what a calibration showed: for the reader of the run."""
    text: str
    """The expected wall time in words, or that nothing is known."""


async def expect(
    order: Order, info: RunInfo, open_routes: Mapping[str, OpenRoute], made: Mapping[str, Composer]
) -> Expectation:
    """Learns from earlier runs, calibrates where it must, and fits the plan into the budget.

    Routes are calibrated only when a budget asks for figures, or the user does. Raises `SuiteError`
    when not even the smallest plan fits, `EngineError` when a calibration prompt fails.
    """
    suite = info.suite
    served = {name: opened.model for name, opened in open_routes.items()}
    earlier = earlier_runs(suite, results=order.results, named=order.earlier, models=served)
    models = earlier.models(suite)
    notes: list[str] = []
    if suite.budget_s is not None or order.calibrate:
        tiers = sorted({trial.tier for trial in info.plan if not trial.turn})
        for name, opened in open_routes.items():
            if not models[name].known:
                done = await calibrate(suite, opened, made[name], tiers)
                models[name] = done.model
                notes.append(done.note)
    trials = info.plan
    if suite.budget_s is not None:
        fit = fitted(suite, trials, models, suite.budget_s)
        trials = fit.trials
        notes += [f"budget: {change}" for change in fit.changes]
    text = in_words(forecast(suite, trials, models), models)
    return Expectation(plan=trials, models=models, notes=tuple(notes), text=text)


class Planned(Struct, frozen=True, kw_only=True):
    """A plan before any server is asked."""

    trials: tuple[Trial, ...]
    estimate: PlanEstimate
    notes: tuple[str, ...] = ()
    text: str
    """The expected wall time in words."""


def planned(suite: Suite, *, results: Path, named: Sequence[Path] = (), folder: Path = Path()) -> Planned:
    """The plan as far as it is known without a server, with times from earlier runs. `folder`: where the
    suite's relative paths start.

    Raises `SuiteError` when the budget is too small, `JournalError` for a named run that is none.
    """
    declared = {route.name: route.drafter_limit for route in suite.routes if route.drafter_limit}
    trials = plan(suite, declared, expected_chats(suite, folder))
    models = earlier_runs(suite, results=results, named=named).models(suite)
    notes: list[str] = []
    open_limits = [r.name for r in suite.routes if r.speculation and r.name not in declared]
    if "over-limit" in suite.conditions and open_limits:
        notes.append(
            f"over-limit: the prompts of {', '.join(open_limits)} follow from the model's config, once the "
            "server is asked"
        )
    if suite.budget_s is not None and all(model.known for model in models.values()):
        fit = fitted(suite, trials, models, suite.budget_s)
        trials = fit.trials
        notes += [f"budget: {change}" for change in fit.changes]
    elif suite.budget_s is not None:
        notes.append(f"budget: {words(suite.budget_s)}; applied once the routes have been calibrated")
    estimate = forecast(suite, trials, models)
    return Planned(trials=trials, estimate=estimate, notes=tuple(notes), text=in_words(estimate, models))


def in_words(estimate: PlanEstimate, models: Mapping[str, RouteModel]) -> str:
    """`about 12 min (11 min to 14 min), from earlier runs (...)`, or what is missing to say so."""
    if estimate.total_s is None or estimate.low_s is None or estimate.high_s is None:
        routes = ", ".join(estimate.unknown)
        return f"wall time not known: no earlier run of {routes} is at hand"
    bases = "; ".join(dict.fromkeys(model.basis for model in models.values() if model.basis))
    low, high = words(estimate.low_s), words(estimate.high_s)
    spread = "" if low == high else f" ({low} to {high})"
    return f"about {words(estimate.total_s)}{spread}, without repetitions; from {bases}"
