"""What is still to come: before a run from what is known of its routes, then refined by every measurement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from bench.plan.estimate import BudgetedPlan, PlanEstimate, estimate, estimate_trial, within_budget
from bench.plan.times import RouteModel, calibrated, refined
from bench.records import Measurement, Suite, Trial

SHORT_WARMUP = 4096
"""Tokens of a warm-up prompt: at least two prefill chunks of the usual 2,048."""
AROUND_S = 0.5
"""Idle check, scrapes and settling of one exchange, where no earlier run tells."""


def forecast(suite: Suite, trials: Sequence[Trial], models: Mapping[str, RouteModel]) -> PlanEstimate:
    """Times of a plan that has not begun: warm-ups included, repetitions of invalid trials not."""
    return estimate(trials, models, overhead_s=AROUND_S, warmup_tokens=warmup_tokens(suite))


def fitted(
    suite: Suite, trials: Sequence[Trial], models: Mapping[str, RouteModel], budget_s: float
) -> BudgetedPlan:
    """The plan within its budget (rule: `plan.estimate.within_budget`). Raises `SuiteError`."""
    return within_budget(trials, models, budget_s, overhead_s=AROUND_S, warmup_tokens=warmup_tokens(suite))


def warmup_tokens(suite: Suite) -> int:
    """Length of the unmeasured prompt of each route; 0 where the suite wants none."""
    longest = max(suite.tiers)
    return {"none": 0, "short": min(SHORT_WARMUP, longest // 2), "tier": longest}[suite.warmup]


class Outlook:
    """Expected times of a plan's trials. A route not yet measured is expected to be like another."""

    def __init__(self, routes: Sequence[str], models: Mapping[str, RouteModel] | None = None) -> None:
        known = models or {}
        self._models = {route: known.get(route, RouteModel(route=route, basis="")) for route in routes}
        self._done: dict[str, list[Measurement]] = {route: [] for route in routes}
        self._refined: dict[str, RouteModel] = {}
        """Models as of the last measurement: a fit costs milliseconds, so only a changed route is fitted."""

    def warmed_up(self, route: str, tokens: int, ttft_s: float) -> None:
        """A warm-up prompt gives the first idea of a route that nothing is known of."""
        if not self._models[route].known:
            self._models[route] = calibrated(route, [(tokens, ttft_s)])
            self._refined.pop(route, None)

    def measured(self, measurement: Measurement) -> None:
        """Takes in a finished trial."""
        self._done[measurement.route].append(measurement)
        self._refined.pop(measurement.route, None)

    def ttft_s(self, trial: Trial) -> float | None:
        """Expected time to the first token of a trial; `None` while nothing is known of any route."""
        return estimate_trial(trial, self._now().get(trial.route), overhead_s=AROUND_S).ttft_s

    def left_s(self, trials: Sequence[Trial]) -> float | None:
        """Expected time for all of these trials; `None` while nothing is known of any route."""
        if not trials:
            return 0.0
        return estimate(trials, self._now(), overhead_s=AROUND_S, warmup_tokens=0).total_s

    def _now(self) -> dict[str, RouteModel]:
        for route, model in self._models.items():
            if route not in self._refined:
                self._refined[route] = refined(model, self._done[route])
        models = self._refined
        known = next((model for model in models.values() if model.known), None)
        if known is None:
            return dict(models)
        return {
            route: model if model.known else msgspec.structs.replace(known, route=route)
            for route, model in models.items()
        }
