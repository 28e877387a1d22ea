"""Rules that a new run must keep against a baseline, for CI.

A rule reads `QUANTITY CONDITION TIER [ROUTE] <= RATIO`, e.g. `ttft cold 564577 <= 1.05`: the new
median may be at most 1.05 times the baseline's. It fails only when the whole interval of the ratio
lies beyond the tolerance and holds only when the whole interval lies within; anything else cannot
be told, and the outcome says how many trials would settle it.

A route that ran without the speculation it declares, in some measurements or in all, fails every rule of its
cell, whatever its figures: it is not what was to be served. A part no larger than the baseline's does not,
and is left out and named, as are single `off` attempts that were repeated with speculation. Where the
baseline never had it, there is nothing to hold the new run against; where it had it in some measurements,
these are the baseline. Where neither had it, figures decide.
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from msgspec import Struct

from bench.analysis.decisions.lacking import NEW, OLD, Lack, Status, lacking, two_sides
from bench.analysis.statistics.bootstrap import MINIMUM
from bench.analysis.statistics.cells import FALLBACK, Cell, plain_route, pooled, same_tier
from bench.analysis.statistics.compare import across
from bench.analysis.statistics.texts import pairs_told
from bench.errors import SuiteError
from bench.records import Comparison, Condition, Estimate, Measurement

QUANTITIES = {
    "ttft": "ttft_s",
    "total": "total_s",
    "decode": "decode_tok_s",
    "tpot": "tpot_s",
    "acceptance": "acceptance",
    "acceptance_length": "acceptance_length",
    "reuse": "prefix_reuse",
    "kv_usage": "kv_usage_peak",
}
"""Name in a rule -> measurement field."""
_CONDITIONS = ("cold", "salted", "replay")
_FORM = "QUANTITY CONDITION TIER [ROUTE] <= RATIO, e.g. 'ttft cold 564577 <= 1.05'"


class Rule(Struct, frozen=True, kw_only=True):
    """One tolerance on the ratio new / baseline."""

    quantity: str
    """A key of `QUANTITIES`."""
    condition: Condition
    tier: int | None
    """`None`: every tier (written `*`)."""
    route: str | None = None
    """`None`: every route."""
    at_most: bool
    """`<=` when true, else `>=`."""
    ratio: float

    def __str__(self) -> str:
        tier = "*" if self.tier is None else str(self.tier)
        route = f" {self.route}" if self.route else ""
        return (
            f"{self.quantity} {self.condition} {tier}{route} {'<=' if self.at_most else '>='} {self.ratio:g}"
        )


class Outcome(Struct, frozen=True, kw_only=True):
    """What a rule says of one cell."""

    rule: Rule
    route: str
    tier: int | None
    task: str = ""
    """Empty where no cell answers the rule."""
    status: Status
    ratio: Estimate | None = None
    samples: int = 0
    """Texts of the smaller side."""
    more: int | None = None
    """Texts (repeats of the suite) to add on each side until the interval should clear the tolerance, or
    on the smaller side until it has an interval; `None`: none needed, or no number of them would help."""
    why: str = ""


def parse_rule(text: str) -> Rule:
    """A rule from its text. Raises `SuiteError` that names the part which is wrong."""
    words = text.replace("<=", " <= ").replace(">=", " >= ").split()
    if len(words) not in (5, 6) or words[-2] not in ("<=", ">="):
        raise SuiteError(f"rule {text!r} is not of the form {_FORM}")
    quantity, condition, tier = words[:3]
    if quantity not in QUANTITIES:
        raise SuiteError(f"rule {text!r}: {quantity!r} is not one of {', '.join(QUANTITIES)}")
    if condition not in _CONDITIONS:
        raise SuiteError(f"rule {text!r}: {condition!r} is not one of {', '.join(_CONDITIONS)}")
    digits = tier.replace(",", "").replace("_", "")
    if tier != "*" and not (re.fullmatch("[0-9]{1,12}", digits) and int(digits) > 0):
        raise SuiteError(f"rule {text[:200]!r}: {tier[:80]!r} is not a tier in tokens, nor * for every tier")
    try:
        ratio = float(words[-1])
    except ValueError:
        ratio = math.nan
    if not 0 < ratio < math.inf:
        raise SuiteError(f"rule {text!r}: {words[-1]!r} is not a ratio above 0, e.g. 1.05")
    return Rule(
        quantity=quantity,
        condition=pooled(condition),  # type: ignore[arg-type]
        tier=None if tier == "*" else int(digits),
        route=words[3] if len(words) == 6 else None,
        at_most=words[-2] == "<=",
        ratio=ratio,
    )


def read_rules(text: str, *, source: str) -> list[Rule]:
    """Rules from TOML: `rules = ["ttft cold 564577 <= 1.05", ...]`. Raises `SuiteError`."""
    try:
        data: dict[str, Any] = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # TOML errors, and integers of thousands of digits
        raise SuiteError(f"{source}: not TOML: {str(error)[:200]}") from None
    rules = data.get("rules")
    unknown = sorted(data.keys() - {"rules"})
    if unknown or not isinstance(rules, list) or not all(isinstance(rule, str) for rule in rules):
        hint = f"; {unknown[0]!r} is unknown" if unknown else ""
        raise SuiteError(f"{source}: a rules file holds one key, rules, a list of texts{hint}")
    return [parse_rule(rule) for rule in rules]


class _Sides(NamedTuple):
    """Both runs, and what is known of the two together."""

    rows: Mapping[str, Sequence[Measurement]]
    """Called as people are told of them, the new run first."""
    found: Sequence[Comparison]
    lacks: Sequence[Lack]


def gate(new: Iterable[Measurement], baseline: Iterable[Measurement], rules: Sequence[Rule]) -> list[Outcome]:
    """What every rule says, cell by cell. A rule that no cell answers cannot be told.

    Routes of the same name are compared; a single route on each side is, whatever it is called, under the
    name that it has in the new run.
    """
    if not rules:
        raise SuiteError("a gate needs at least one rule, e.g. --rule 'ttft cold 564577 <= 1.05'")
    rows = two_sides(new, baseline)
    sides = _Sides(rows, across(rows[OLD], rows[NEW]), lacking(rows))
    return [outcome for rule in rules for outcome in _rule(rule, sides)]


def verdict(outcomes: Iterable[Outcome]) -> Status:
    """One failure fails the gate; else one open rule leaves it open."""
    states = {outcome.status for outcome in outcomes}
    return "fail" if "fail" in states else "cannot tell" if "cannot tell" in states else "pass"


def _rule(rule: Rule, sides: _Sides) -> list[Outcome]:
    def is_meant(route: str, cell: Cell) -> bool:
        return (
            cell.condition == rule.condition
            and (rule.tier is None or same_tier(cell.tier, rule.tier))
            and (rule.route is None or route == rule.route)
        )

    lacks = [
        lack for lack in sides.lacks if any(is_meant(one.route, one.cell) for one in lack.sides.values())
    ]
    outcomes = [_without_speculation(rule, lack, lack.status) for lack in lacks if lack.status is not None]
    for one in sides.found:
        cell, route = Cell(one.tier, one.condition, one.task), plain_route(one.route)
        if one.quantity != QUANTITIES[rule.quantity] or not is_meant(route, cell):
            continue
        lack = next((lack for lack in lacks if lack.is_of(route, cell)), None)
        if _decides(one, lack):
            outcomes.append(_outcome(rule, one, lack))
    if outcomes:
        return outcomes
    why = "no valid measurements of this quantity, condition, tier and route on both sides"
    told = [f"{lack.route} {lack.told()}" for lack in lacks]
    why = "; ".join([_unmeasured(rule.tier, sides.rows) or why, *told])
    return [Outcome(rule=rule, route=rule.route or "*", tier=rule.tier, status="cannot tell", why=why)]


def _decides(one: Comparison, lack: Lack | None) -> bool:
    """Whether a ratio holds a rule: one of like to like, and of what ran without its speculation only where
    that is all there is."""
    if one.route.endswith(FALLBACK) != one.base.endswith(FALLBACK):
        return False
    if lack is None:
        return True
    return lack.status is None and (lack.neither or not one.route.endswith(FALLBACK))


def _without_speculation(rule: Rule, lack: Lack, status: Status) -> Outcome:
    return Outcome(
        rule=rule,
        route=lack.route,
        tier=lack.cell.tier,
        task=lack.cell.task,
        status=status,
        why=lack.told() + (": there are no valid measurements on both sides" if lack.neither else ""),
    )


def _unmeasured(tier: int | None, sides: Mapping[str, Sequence[Measurement]]) -> str | None:
    """Which side did not measure a tier at all, and what it did; `None`: both did, or any tier is meant."""
    if tier is None:
        return None
    tiers = {name: sorted({row.tier for row in rows}) for name, rows in sides.items()}
    lacking = {name: own for name, own in tiers.items() if not any(same_tier(one, tier) for one in own)}
    if not lacking:
        return None
    where = "measured on neither side" if len(lacking) == 2 else f"not measured in {next(iter(lacking))}"
    seen = [f"{name} has {', '.join(f'{one:,}' for one in own)}" for name, own in lacking.items() if own]
    return "; ".join([f"{tier:,} tokens were {where}", *seen])


def _outcome(rule: Rule, cell: Comparison, lack: Lack | None) -> Outcome:
    status, more, why = _judged(rule, cell)
    told = [why] if why else []
    if cell.route.endswith(FALLBACK):
        told.append("both sides ran without their speculation")
    elif lack is not None:
        told.append(f"{lack.told()}: left out")
    if cell.output_tokens is not None:
        told.append(f"at {cell.output_tokens:,} output tokens on both sides, since outputs differ")
    if cell.left_out is not None and cell.samples is not None:
        told.append(pairs_told(cell.samples[0], cell.left_out, (NEW, OLD)))
    return Outcome(
        rule=rule,
        route=plain_route(cell.route),
        tier=cell.tier,
        task=cell.task,
        status=status,
        ratio=cell.ratio,
        samples=cell.ratio.samples if cell.ratio else 0,
        more=more,
        why="; ".join(told),
    )


def _judged(rule: Rule, cell: Comparison) -> tuple[Status, int | None, str]:
    """Status, texts to add and reason."""
    ratio = cell.ratio
    if cell.lacking == "length":
        return "cannot tell", None, cell.warnings[0]
    if ratio is None:
        return "cannot tell", None, "the baseline's median is 0: there is no ratio"
    unit = "trial" if ratio.trials is None else "text"
    if ratio.spread != "interval":
        return "cannot tell", MINIMUM - ratio.samples, _too_few(ratio, cell.samples, unit)
    if ratio.low is None or ratio.high is None:
        return "cannot tell", None, "the interval is open"
    low, high = (ratio.low, ratio.high) if rule.at_most else (-ratio.high, -ratio.low)
    limit = rule.ratio if rule.at_most else -rule.ratio
    if low > limit:
        return "fail", None, "the whole interval lies beyond the tolerance"
    if high <= limit:
        return "pass", None, ""
    settling = _more(ratio, rule.ratio, ratio.samples)
    needed = "it sits on the tolerance"
    if settling:
        needed = f"about {_more_of(settling, unit)} a side would settle it"
    return "cannot tell", settling, f"the interval holds the tolerance: {needed}"


def _too_few(ratio: Estimate, samples: tuple[int, int] | None, unit: str) -> str:
    """What an interval needs, and on which side."""
    new, old = samples or (ratio.samples, ratio.samples)
    spread = "a range is no interval" if ratio.spread else f"one {unit} a side"
    lacking = {NEW: MINIMUM - new, OLD: MINIMUM - old}
    needed = [f"{_more_of(more, unit)} in {side}" for side, more in lacking.items() if more > 0]
    where = f"{_more_of(MINIMUM - new, unit)} a side" if new == old else " and ".join(needed)
    return f"{spread}: it takes {where}"


def _more_of(more: int, unit: str) -> str:
    return f"1 more {unit}" if more == 1 else f"{more:,} more {unit}s"


def _more(ratio: Estimate, limit: float, samples: int) -> int | None:
    """Texts to add a side: an interval shrinks with the root of their number."""
    distance = abs(limit - ratio.value)
    end = ratio.high if limit > ratio.value else ratio.low
    if distance == 0 or end is None:
        return None
    needed = samples * (abs(end - ratio.value) / distance) ** 2
    return max(1, math.ceil(needed) - samples) if needed < 1e6 else None
