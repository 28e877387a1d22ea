"""Which route should serve a request, or a whole workload: expected latency per route, with its basis.

What was measured at the prompt length itself is used as it is; elsewhere the prefill and decode laws
speak. Where neither can, the number is absent with the reason, and the route is not ranked.
"""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import Struct, structs

from bench.analysis import bootstrap, decode, prefill
from bench.analysis.cells import column, labelled, merged_tiers, pooled, routes_of, same_tier, usable
from bench.errors import SuiteError
from bench.records import Estimate, Measurement

MAX_REQUESTS = 1_000_000
_NEAR_REUSE = 0.01  # a replay stands for a request whose cached share differs by no more than this


class Request(Struct, frozen=True, kw_only=True, order=True):
    """A request to be served."""

    prompt_tokens: int
    output_tokens: int
    reused_tokens: int = 0
    """Prompt tokens that are in the prefix cache already."""


class Advice(Struct, frozen=True, kw_only=True):
    """What to expect of one route for one request."""

    route: str
    request: Request
    ttft_s: Estimate | None = None
    decode_s: Estimate | None = None
    """First to last token."""
    total_s: Estimate | None = None
    best: bool = False
    """The lowest expected total among the routes that have one."""
    certain: bool = False
    """Best, and its spread stays below every other route's."""
    prompt_factor: float | None = None
    """Prompt / longest prompt measured on this route; above 1 nothing was measured there."""
    output_factor: float | None = None
    """Output / longest output measured on this route."""
    basis: dict[str, str] = {}
    """Field -> what it rests on."""
    absent: dict[str, str] = {}
    """Field -> why there is no number."""
    warnings: tuple[str, ...] = ()


class WorkloadAdvice(Struct, frozen=True, kw_only=True):
    """One route serving every request of a workload, one after another."""

    route: str
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
    """Answers for any number of requests from one set of measurements.

    `observed` are rates seen elsewhere, e.g. in production: they count for decoding at their prompt
    length, and for nothing else.
    """

    def __init__(self, measurements: Iterable[Measurement], observed: Iterable[Measurement] = ()) -> None:
        rows = [row for row in labelled(measurements) if usable(row)]
        self.routes = routes_of(rows)
        if not self.routes:
            raise SuiteError("there is no valid measurement to advise from: look at the report's footnotes")
        self._ttft = prefill.fit(rows)
        self._step = decode.fit(rows)
        self._rows: dict[str, list[Measurement]] = {route: [] for route in self.routes}
        for row in rows:
            self._rows[row.route].append(row)
        self._observed = [row for row in observed if row.route in self._rows and row.tpot_s is not None]

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
        ttft = self._first(route, request, basis, absent, warnings)
        step = self._steps(route, request, basis, absent, warnings)
        if ttft is None or step is None:
            absent["total_s"] = "; ".join(absent.values())
        longest = max(row.prompt_tokens or row.tier for row in self._rows[route])
        outputs = [
            row.output_tokens or 0 for row in (*self._rows[route], *self._observed) if row.route == route
        ]
        return Advice(
            route=route,
            request=request,
            ttft_s=ttft,
            decode_s=step,
            total_s=None if ttft is None or step is None else _sum(ttft, step),
            prompt_factor=request.prompt_tokens / longest,
            output_factor=request.output_tokens / max(outputs) if max(outputs) else None,
            basis=basis,
            absent=absent,
            warnings=tuple(warnings),
        )

    def _first(
        self, route: str, request: Request, basis: dict[str, str], absent: dict[str, str], warnings: list[str]
    ) -> Estimate | None:
        near = [row for row in self._rows[route] if row.ttft_s is not None and _alike(row, request)]
        if near:
            basis["ttft_s"] = f"measured at {near[0].tier:,} tokens ({len(near)} trials)"
            return bootstrap.median(column(near, "ttft_s"))
        law = self._ttft[route]
        found = law.predict(request.prompt_tokens, request.reused_tokens)
        if found is None:
            absent["ttft_s"] = law.absent or "no prefill law"
            return None
        basis["ttft_s"] = f"prefill law over {len(law.tiers)} tiers: {law.formula()}"
        if not prefill.within(law, request.prompt_tokens):
            basis["ttft_s"] += "; beyond the measured prompts"
        if request.reused_tokens and law.cached_s is None:
            warnings.append("no replay was measured: a cached token is reckoned as free")
        warnings += law.warnings
        return found

    def _steps(
        self, route: str, request: Request, basis: dict[str, str], absent: dict[str, str], warnings: list[str]
    ) -> Estimate | None:
        steps = max(request.output_tokens - 1, 0)
        law = self._step.get(route)
        rows = (*self._rows[route], *(row for row in self._observed if row.route == route))
        near = [r for r in rows if r.tpot_s is not None and same_tier(r.tier, request.prompt_tokens)]
        if near:
            seen = sum(row in self._observed for row in near)
            basis["decode_s"] = f"{'observed' if seen else 'measured'} at {near[0].tier:,} tokens"
            longest = max(row.output_tokens or 0 for row in near)
            shift = 0.0
            if request.output_tokens > 2 * longest:
                # past twice what was measured, each further token of context lengthens a step
                shift = law.slope_s * (request.output_tokens - longest) / 2 if law else 0.0
                if law is None or law.tiers < 2:
                    warnings.append("how decode slows over so long an output is unknown (one tier)")
            return _scaled(bootstrap.median(column(near, "tpot_s")), steps, shift)
        if law is None:
            absent["decode_s"] = "no decode rate was measured"
            return None
        context = request.prompt_tokens + request.output_tokens / 2
        value, half = float(law.at(context)), float(law.half_at(context))
        basis["decode_s"] = "decode law over " + (f"{law.tiers} tiers" if law.tiers > 1 else "one tier")
        warnings += law.warnings
        if not np.isfinite(half):
            return _scaled(Estimate(value=value, samples=law.samples), steps, 0.0)
        kind = bootstrap.spread_of(*(len(r) for r in _tiers(self._rows[route])))
        step = Estimate(
            value=value, low=max(0.0, value - half), high=value + half, spread=kind, samples=law.samples
        )
        return _scaled(step, steps, 0.0)


def advise(
    measurements: Iterable[Measurement], request: Request, observed: Iterable[Measurement] = ()
) -> list[Advice]:
    """Expected latency of every route for one request, the best first."""
    return Advisor(measurements, observed).advise(request)


def advise_workload(
    measurements: Iterable[Measurement],
    requests: Sequence[Request],
    observed: Iterable[Measurement] = (),
) -> list[WorkloadAdvice]:
    """Every route serving the whole workload; the lowest total first, incomplete ones last."""
    advisor = Advisor(measurements, observed)
    answers: dict[str, list[tuple[Advice, int]]] = {route: [] for route in advisor.routes}
    for request, count in Counter(requests).items():
        for advice in advisor.advise(request):
            answers[advice.route].append((advice, count))
    found = [_workload(route, given) for route, given in answers.items()]
    return sorted(found, key=lambda one: (one.total_s is None, one.total_s or 0.0))


def _workload(route: str, given: Sequence[tuple[Advice, int]]) -> WorkloadAdvice:
    ready = [(a.total_s, a, n) for a, n in given if a.total_s is not None]
    without = sum(n for a, n in given if a.total_s is None)
    spread = all(t.low is not None and t.high is not None for t, _, _ in ready) and not without
    reasons = list(dict.fromkeys(a.absent["total_s"] for a, _ in given if a.total_s is None))
    return WorkloadAdvice(
        route=route,
        requests=sum(n for _, _, n in ready),
        without=without,
        total_s=None if without else sum(t.value * n for t, _, n in ready),
        low=sum((t.low or 0.0) * n for t, _, n in ready) if spread else None,
        high=sum((t.high or 0.0) * n for t, _, n in ready) if spread else None,
        best_for=sum(n for _, a, n in ready if a.best),
        beyond=sum(n for a, n in given if max(a.prompt_factor or 0, a.output_factor or 0) > 1),
        absent="; ".join(reasons) or None,
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


def _tiers(rows: Sequence[Measurement]) -> list[list[Measurement]]:
    groups: dict[int, list[Measurement]] = {}
    names = merged_tiers(row.tier for row in rows)
    for row in rows:
        if row.tpot_s is not None:
            groups.setdefault(names[row.tier], []).append(row)
    return list(groups.values())


def _scaled(step: Estimate, steps: int, shift: float) -> Estimate:
    return structs.replace(
        step,
        value=(step.value + shift) * steps,
        low=None if step.low is None else (step.low + shift) * steps,
        high=None if step.high is None else (step.high + shift) * steps,
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
        and all(end is not None and end > high for end in ends)
    )
    best = structs.replace(first, best=True, certain=certain)
    return [best, *others, *(a for a in found if a.total_s is None)]


# --- Workloads ------------------------------------------------------------------------------------


def read_workload(text: str, *, source: str) -> list[Request]:
    """Requests of a workload file.

    CSV with columns `prompt_tokens, output_tokens` and optionally `reused_tokens`, `count`; or JSON
    lines, each an object with these names, or a logged OpenAI-style reply with its `usage`.
    Raises `SuiteError` with line, value and what is allowed.
    """
    lines = text.removeprefix("\ufeff").split("\n")
    start = next((line.strip() for line in lines if line.strip()), "")
    rows = _json_lines(lines, source) if start.startswith("{") else _csv_lines(lines, source)
    found: list[Request] = []
    for where, row in rows:
        prompt, output = _count(where, row, "prompt_tokens", 1), _count(where, row, "output_tokens", 1)
        reused, count = _count(where, row, "reused_tokens", 0), _count(where, row, "count", 1, default=1)
        if reused >= prompt:
            raise SuiteError(f"{where}: reused_tokens {reused} is not less than prompt_tokens {prompt}")
        if len(found) + count > MAX_REQUESTS:
            raise SuiteError(f"{where}: more than {MAX_REQUESTS:,} requests: take a sample of the workload")
        request = Request(prompt_tokens=prompt, output_tokens=output, reused_tokens=reused)
        found += [request] * count
    if not found:
        raise SuiteError(f"{source}: there is no request in this workload")
    return found


def _count(where: str, row: Mapping[str, Any], name: str, least: int, default: int = 0) -> int:
    value = row.get(name)
    if value in (None, "") and name not in ("prompt_tokens", "output_tokens"):
        return default
    try:
        number = float(value)  # type: ignore[arg-type]
        whole = int(number)
    except (TypeError, ValueError, OverflowError):
        number, whole = 0.5, 0
    if number != whole or not least <= whole <= 10**12 or isinstance(value, bool):
        raise SuiteError(f"{where}, column {name}: {str(value)[:60]!r} is not a whole number from {least} on")
    return whole


def _csv_lines(lines: Sequence[str], source: str) -> list[tuple[str, dict[str, Any]]]:
    reader = csv.reader([line + "\n" for line in lines if not line.startswith("#")], strict=True)
    try:
        rows = [(reader.line_num, cells) for cells in reader if any(cell.strip() for cell in cells)]
    except csv.Error as error:
        raise SuiteError(f"{source}, line {reader.line_num}: not CSV: {error}") from None
    header = [cell.strip() for cell in rows[0][1]] if rows else []
    for name in ("prompt_tokens", "output_tokens"):
        if name not in header:
            raise SuiteError(f"{source}: a workload needs the columns prompt_tokens and output_tokens")
    return [
        (f"{source}, line {n}", dict(zip(header, (cell.strip() for cell in cells), strict=False)))
        for n, cells in rows[1:]
    ]


def _json_lines(lines: Sequence[str], source: str) -> list[tuple[str, dict[str, Any]]]:
    found: list[tuple[str, dict[str, Any]]] = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        where = f"{source}, line {number}"
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise SuiteError(f"{where}: not JSON: {error}") from None
        if not isinstance(row, dict):
            raise SuiteError(f"{where}: not an object")
        found.append((where, _from_usage(row)))
    return found


def _from_usage(row: dict[str, Any]) -> dict[str, Any]:
    """The counts of a logged reply, wherever its `usage` stands."""
    inner = row.get("response")
    body = inner.get("body", inner) if isinstance(inner, dict) else row
    usage = body.get("usage") if isinstance(body, dict) else None
    if not isinstance(usage, dict):
        return row
    details = usage.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, dict) else None
    return {
        "prompt_tokens": usage.get("prompt_tokens"),
        "output_tokens": usage.get("completion_tokens"),
        "reused_tokens": cached,
    }
