"""Which route should serve a request, or a whole workload: expected latency per route, with its basis.

What was measured at the prompt length itself is used as it is; elsewhere the prefill and decode laws
speak. Where neither can, the number is absent with the reason, and the route is not ranked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from msgspec import Struct, structs

from bench.analysis.decisions.claims import many
from bench.analysis.decisions.reused import no_whole_blocks
from bench.analysis.decisions.shown import Shown
from bench.analysis.decisions.workload import Request
from bench.analysis.statistics import decode, prefill
from bench.analysis.statistics.bootstrap import Floats
from bench.analysis.statistics.cells import labelled, plain_route, routes_of, usable
from bench.analysis.statistics.latency import steps_to
from bench.errors import SuiteError
from bench.records import Estimate, Measurement


class Limits(Struct, frozen=True, kw_only=True):
    """How long a sequence (prompt and output) a route takes; `None`: not known."""

    served: int | None = None
    """Beyond it the server refuses a request, or clamps its output."""
    drafter: int | None = None
    """Beyond it a speculating route drafts nothing."""


class Advice(Struct, frozen=True, kw_only=True):
    """What to expect of one route for one request."""

    route: str
    task: str = "continue"
    """The task whose trials it rests on."""
    request: Request
    ttft_s: Estimate | None = None
    decode_s: Estimate | None = None
    """First to last chunk."""
    total_s: Estimate | None = None
    best: bool = False
    """The lowest expected total among the routes that have one, for this task."""
    certain: bool = False
    """Best, and its spread stays below every other route's."""
    prompt_factor: float | None = None
    """Prompt / longest prompt measured on this route; above 1 nothing was measured there."""
    output_factor: float | None = None
    """Output / longest output measured on this route."""
    undrafted: int = 0
    """Output tokens past the drafter limit, where the measured speed does not hold."""
    basis: dict[str, str] = {}
    """Field -> what it rests on."""
    absent: dict[str, str] = {}
    """Field -> why there is no number."""
    warnings: tuple[str, ...] = ()


class WorkloadAdvice(Struct, frozen=True, kw_only=True):
    """One route serving every request of a workload, one after another."""

    route: str
    task: str = "continue"
    requests: int
    """Requests it has an expected latency for."""
    without: int
    """Requests it has none for."""
    total_s: float | None
    """Sum of expected latencies; `None` unless every request has one."""
    low: float | None = None
    high: float | None = None
    best_for: int = 0
    """Requests for which this route is the best."""
    beyond: int = 0
    """Requests longer than anything measured on it."""
    absent: str | None = None


class Advisor:
    """Answers for any number of requests from the measurements of one task.

    `observed` are rates seen elsewhere, e.g. in production: they count for decoding at their prompt
    length, and for nothing else. `limits` and `blocks` (tokens of a cache block) are by route, as far as
    known. Raises `SuiteError` when there is no valid measurement, or when they are of several tasks:
    speculation differs between these.
    """

    def __init__(
        self,
        measurements: Iterable[Measurement],
        observed: Iterable[Measurement] = (),
        *,
        limits: Mapping[str, Limits] | None = None,
        blocks: Mapping[str, int] | None = None,
    ) -> None:
        rows = [row for row in labelled(measurements) if usable(row)]
        self.routes = routes_of(rows)
        if not self.routes:
            raise SuiteError("there is no valid measurement to advise from: look at the report's footnotes")
        self.task, *others = dict.fromkeys(row.task for row in rows)
        if others:
            raise SuiteError(f"measurements of several tasks ({self.task}, {', '.join(others)}): choose one")
        self._limits, self._blocks = dict(limits or {}), dict(blocks or {})
        self._ttft = prefill.fit(rows)
        self._step = decode.fit(rows)
        elsewhere = list(observed)
        self._seen = {
            route: Shown(
                [row for row in rows if row.route == route],
                [row for row in elsewhere if row.route == route and row.tpot_s is not None],
            )
            for route in self.routes
        }

    def advise(self, request: Request) -> list[Advice]:
        """Every route for this request, the best first, those without a total last."""
        if request.reused_tokens >= request.prompt_tokens or min(structs.astuple(request)) < 0:
            raise SuiteError(
                f"prompt {request.prompt_tokens}, reused {request.reused_tokens}, output "
                f"{request.output_tokens}: the reused part is shorter than the prompt, nothing is negative"
            )
        return _ranked([self._route(route, request) for route in self.routes])

    def _route(self, route: str, request: Request) -> Advice:
        absent: dict[str, str] = {}
        basis: dict[str, str] = {}
        warnings: list[str] = []
        undrafted, refusal = self._beyond_limits(route, request, warnings)
        ttft = step = None
        if refusal is None:
            ttft = self._first(route, request, basis, absent, warnings)
            step = self._steps(route, request, basis, absent, warnings)
        else:
            absent |= {"ttft_s": refusal, "decode_s": refusal}
        if ttft is None or step is None:
            absent["total_s"] = "; ".join(dict.fromkeys(absent.values()))
        seen = self._seen[route]
        return Advice(
            route=route,
            task=self.task,
            request=request,
            ttft_s=ttft,
            decode_s=step,
            total_s=None if ttft is None or step is None else _sum(ttft, step),
            prompt_factor=request.prompt_tokens / seen.longest,
            output_factor=request.output_tokens / seen.longest_output if seen.longest_output else None,
            undrafted=undrafted,
            basis=basis,
            absent=absent,
            warnings=tuple(warnings),
        )

    def _beyond_limits(self, route: str, request: Request, warnings: list[str]) -> tuple[int, str | None]:
        """Output tokens past the drafter limit, and why the route cannot serve the request at all."""
        plain = plain_route(route)
        limits = self._limits.get(plain, Limits())
        end = request.prompt_tokens + request.output_tokens
        if limits.served is not None and end > limits.served:
            return 0, f"prompt and output pass the served limit of {limits.served:,} tokens"
        if limits.drafter is None:
            return 0, None
        if plain != route:
            inside = end <= limits.drafter
            return 0, f"up to {limits.drafter:,} tokens {plain} drafts" if inside else None
        past = min(request.output_tokens, max(0, end - limits.drafter))
        if past == request.output_tokens:
            return (
                past,
                f"past {limits.drafter:,} tokens nothing is drafted: its measurements do not hold there",
            )
        if past:
            warnings.append(
                f"the drafter stops at {limits.drafter:,} tokens: the last {past:,} tokens of the output are "
                "slower than measured"
            )
        return past, None

    def _first(
        self, route: str, request: Request, basis: dict[str, str], absent: dict[str, str], warnings: list[str]
    ) -> Estimate | None:
        near = self._seen[route].ttft(request)
        if near is not None:
            basis["ttft_s"] = f"measured at {near.tier:,} tokens ({many(near.rows, 'trial')})"
            return near.median
        law = self._ttft[route]
        found = law.predict(request.prompt_tokens, request.reused_tokens)
        if found is None:
            absent["ttft_s"] = law.absent or "no prefill law"
            return None
        basis["ttft_s"] = f"prefill law over {many(len(law.tiers), 'tier')}: {law.formula()}"
        if not prefill.within(law, request.prompt_tokens):
            basis["ttft_s"] += "; beyond the measured prompts"
        if request.reused_tokens and law.cached_s is None:
            warnings.append("no replay was measured: a cached token is reckoned as free")
        broken = no_whole_blocks(request.reused_tokens, self._blocks.get(plain_route(route)))
        warnings += [broken] if broken else []
        warnings += law.warnings
        return found

    def _steps(
        self, route: str, request: Request, basis: dict[str, str], absent: dict[str, str], warnings: list[str]
    ) -> Estimate | None:
        law = self._step.get(route)
        near = self._seen[route].tpot(request.prompt_tokens)
        if near is not None:
            basis["decode_s"] = f"{'observed' if near.observed else 'measured'} at {near.tier:,} tokens"
            shift = 0.0
            if request.output_tokens > 2 * near.longest_output:
                # past twice what was measured, each further token of context lengthens a step
                shift = law.slope_s * (request.output_tokens - near.longest_output) / 2 if law else 0.0
                if law is None or law.tiers < 2:
                    warnings.append("how decode slows over so long an output is unknown (one tier)")
            return _scaled(near.median, steps_to(request.output_tokens, near.first_chunk_tokens), shift)
        if law is None:
            absent["decode_s"] = "no decode rate was measured"
            return None
        steps = steps_to(request.output_tokens, law.first_chunk_tokens)
        context = request.prompt_tokens + request.output_tokens / 2
        value, half = float(law.at(context)), float(law.half_at(context))
        basis["decode_s"] = "decode law over " + (f"{law.tiers} tiers" if law.tiers > 1 else "one tier")
        warnings += law.warnings
        if not np.isfinite(half):
            return _scaled(Estimate(value=value, samples=law.samples), steps, 0.0)
        step = Estimate(
            value=value,
            low=max(0.0, value - half),
            high=value + half,
            spread=self._seen[route].spread,
            samples=law.samples,
        )
        return _scaled(step, steps, 0.0)


def advise(
    measurements: Iterable[Measurement],
    request: Request,
    observed: Iterable[Measurement] = (),
    *,
    limits: Mapping[str, Limits] | None = None,
    blocks: Mapping[str, int] | None = None,
) -> list[Advice]:
    """Expected latency of every route for one request, the best first; several tasks one after another."""
    advisors = _advisors(measurements, observed, limits, blocks)
    return [advice for advisor in advisors for advice in advisor.advise(request)]


def advise_workload(
    measurements: Iterable[Measurement],
    requests: Sequence[Request],
    observed: Iterable[Measurement] = (),
    *,
    limits: Mapping[str, Limits] | None = None,
) -> list[WorkloadAdvice]:
    """Every route serving the whole workload; the lowest total first, incomplete ones last; task by task."""
    counted = Counter(requests)
    found: list[WorkloadAdvice] = []
    for advisor in _advisors(measurements, observed, limits):
        answers: dict[str, list[tuple[Advice, int]]] = {route: [] for route in advisor.routes}
        for request, count in counted.items():
            for advice in advisor.advise(request):
                answers[advice.route].append((advice, count))
        mine = [_workload(route, given) for route, given in answers.items()]
        found += sorted(mine, key=lambda one: (one.total_s is None, one.total_s or 0.0))
    return found


def _advisors(
    measurements: Iterable[Measurement],
    observed: Iterable[Measurement],
    limits: Mapping[str, Limits] | None,
    blocks: Mapping[str, int] | None = None,
) -> list[Advisor]:
    """One for every task that has a valid measurement."""
    rows, seen = labelled(measurements), list(observed)
    tasks = list(dict.fromkeys(row.task for row in rows if usable(row)))
    if not tasks:
        return [Advisor(rows)]  # which says that there is nothing to advise from
    return [
        Advisor(
            (row for row in rows if row.task == task),
            (row for row in seen if row.task == task),
            limits=limits,
            blocks=blocks,
        )
        for task in tasks
    ]


def _workload(route: str, given: Sequence[tuple[Advice, int]]) -> WorkloadAdvice:
    ready = [(a.total_s, a, n) for a, n in given if a.total_s is not None]
    without = sum(n for a, n in given if a.total_s is None)
    spread = all(t.low is not None and t.high is not None for t, _, _ in ready) and not without
    reasons = list(dict.fromkeys(a.absent["total_s"] for a, _ in given if a.total_s is None))
    return WorkloadAdvice(
        route=route,
        task=given[0][0].task if given else "continue",
        requests=sum(n for _, _, n in ready),
        without=without,
        total_s=None if without else sum(t.value * n for t, _, n in ready),
        low=sum((t.low or 0.0) * n for t, _, n in ready) if spread else None,
        high=sum((t.high or 0.0) * n for t, _, n in ready) if spread else None,
        best_for=sum(n for _, a, n in ready if a.best),
        beyond=sum(n for a, n in given if max(a.prompt_factor or 0, a.output_factor or 0) > 1),
        absent="; ".join(reasons) or None,
    )


def _scaled(step: Estimate, steps: Floats, shift: float) -> Estimate:
    return structs.replace(
        step,
        value=float((step.value + shift) * steps),
        low=None if step.low is None else float((step.low + shift) * steps),
        high=None if step.high is None else float((step.high + shift) * steps),
    )


def _sum(a: Estimate, b: Estimate) -> Estimate:
    """Both ends added: at least as wide as the truth needs."""
    known = a.low is not None and a.high is not None and b.low is not None and b.high is not None
    return Estimate(
        value=a.value + b.value,
        low=a.low + b.low if known and a.low is not None and b.low is not None else None,
        high=a.high + b.high if known and a.high is not None and b.high is not None else None,
        spread=None if not known else "interval" if a.spread == b.spread == "interval" else "range",
        samples=min(a.samples, b.samples),
    )


def _ranked(found: list[Advice]) -> list[Advice]:
    ready = sorted((a for a in found if a.total_s is not None), key=lambda a: a.total_s.value)  # type: ignore[union-attr]
    if not ready:
        return found
    first, *others = ready
    ends = [a.total_s.low for a in others if a.total_s is not None]
    high = first.total_s.high if first.total_s is not None else None
    certain = (
        bool(others)
        and len(ready) == len(found)
        and high is not None
        and not first.undrafted
        and all(end is not None and end > high for end in ends)
    )
    best = structs.replace(first, best=True, certain=certain)
    return [best, *others, *(a for a in found if a.total_s is None)]
