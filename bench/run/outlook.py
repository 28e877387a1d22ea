"""What is still to come, while a run is running: the estimate, refined by every measurement."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from bench.plan.estimate import RouteModel, calibrated, estimate, estimate_trial, learn, refined
from bench.records import Measurement, Trial

_AROUND_S = 0.5  # idle check, scrapes and settling of one exchange


class Outlook:
    """Expected times of a plan's trials. A route not yet measured is expected to be like another."""

    def __init__(self, routes: Sequence[str], earlier: Iterable[Measurement] = ()) -> None:
        known = list(earlier)
        self._models = {route: learn(route, known) for route in routes}
        self._done: list[Measurement] = []

    def warmed_up(self, route: str, tokens: int, ttft_s: float) -> None:
        """A warm-up prompt gives the first idea of a route that nothing is known of."""
        if not self._models[route].known:
            self._models[route] = calibrated(route, [(tokens, ttft_s)])

    def measured(self, measurement: Measurement) -> None:
        """Takes in a finished trial."""
        self._done.append(measurement)

    def ttft_s(self, trial: Trial) -> float | None:
        """Expected time to the first token of a trial; `None` while nothing is known of any route."""
        return estimate_trial(trial, self._now().get(trial.route)).ttft_s

    def left_s(self, trials: Sequence[Trial]) -> float | None:
        """Expected time for all of these trials; `None` while nothing is known of any route."""
        if not trials:
            return 0.0
        return estimate(trials, self._now(), overhead_s=_AROUND_S, warmup_tokens=0).total_s

    def _now(self) -> dict[str, RouteModel]:
        models = {route: refined(model, self._done) for route, model in self._models.items()}
        known = next((model for model in models.values() if model.known), None)
        if known is None:
            return models
        return {
            route: model if model.known else msgspec.structs.replace(known, route=route)
            for route, model in models.items()
        }
