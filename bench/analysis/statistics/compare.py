"""Two routes side by side: ratio and difference of medians, and one test per quantity.

The test is fixed beforehand by the design and not chosen by its result: Wilcoxon's signed-rank test
where both routes were sent the same texts (`texts.in_pairs`) and there are at least six pairs, else
the Mann-Whitney U test, both exact for small samples, two-sided, at 5%. Neither assumes a normal
distribution; both assume that what is ranked is independent, so the trials of a prompt text count as one
(`texts`). A difference needs both: the test, and an interval of the ratio without 1 (of the difference
without 0, where there is no ratio); a warning says which of them is lacking where they disagree. Below
five texts a side there is no test: the verdict is `undecided` and the spread a range. What differs by less
than `DIGITS` significant digits is a tie.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from functools import lru_cache
from typing import Literal

import numpy as np
from msgspec import structs

from bench.analysis.statistics import bootstrap
from bench.analysis.statistics.bootstrap import Floats, Side
from bench.analysis.statistics.cells import FALLBACK, Cell, by_cell, labelled, named, plain_route, routes_of
from bench.analysis.statistics.texts import PAIRS, Texts, in_pairs, left_out, pairs_told, told
from bench.analysis.statistics.totals import Totals, totals
from bench.records import Comparison, Estimate, Measurement, RunInfo

Direction = Literal["higher", "lower", "~", "undecided"]
Lacking = Literal["test", "interval", "both", "trials", "length"]
MARKS: dict[Lacking | None, str] = {
    "test": "~t", "interval": "~i", "both": "~", "trials": "?", "length": "?n", None: "",
}  # fmt: skip
"""How tables show which condition of a difference is not met."""

QUANTITIES = (
    "ttft_s", "decode_tok_s", "total_s", "tpot_s", "acceptance", "acceptance_length", "prefix_reuse",
    "kv_usage_peak",
)  # fmt: skip
"""Measurement fields that are compared, where both routes have them."""
SIGNIFICANT = 0.05
DIGITS = 9
"""Significant digits of a value that count: further ones come from writing and reading
numbers, not from a clock."""


def compare(measurements: Iterable[Measurement], base: str | None = None) -> list[Comparison]:
    """Every route against `base` in every cell both have, quantity by quantity.

    `base=None` takes the first route. Where several sources have a route called `base`, each of them
    is a base. Raises `SuiteError` when no route has that name.
    """
    rows = labelled(measurements)
    routes = routes_of(rows)
    if not routes:
        return []
    bases = named(routes, base) if base is not None else routes[:1]
    found: list[Comparison] = []
    for cell, sides in by_cell(rows).items():
        for one in bases:
            for route in routes:
                if route != one and route in sides and one in sides:
                    found += compare_cell(cell, (route, sides[route]), (one, sides[one]))
    return found


def by_chance(found: Iterable[Comparison]) -> str | None:
    """How many of several comparisons show a difference, beside how many would between equal routes.

    Each comparison keeps its own 5%: corrected for their number (Holm), twelve comparisons of six pairs could
    show nothing, since the smallest p of six pairs is 0.031. `None` where nothing was tested.
    """
    tested = [one for one in found if one.p_value is not None]
    if not tested:
        return None
    shown = sum(one.verdict in ("higher", "lower") for one in tested)
    what = "1 comparison" if len(tested) == 1 else f"{len(tested):,} comparisons"
    return (
        f"{shown:,} of {what} {'shows' if shown == 1 else 'show'} a difference; of as many between equal "
        f"routes up to {SIGNIFICANT * len(tested):.2g} would by chance ({SIGNIFICANT:.0%} each)"
    )


def across(base: Iterable[Measurement], new: Iterable[Measurement]) -> list[Comparison]:
    """Every route of `new` against the route of the same name in `base`, e.g. before and after an upgrade.

    When the two have a single route each, these are compared whatever they are called. A route that fell back
    on one side alone is compared with itself on the other; where it did so in part, either part is compared.
    `route` and `base` of the results carry the plain names, with `(fallback)` where it was so.
    """
    old_rows = [structs.replace(row, source="") for row in base]
    new_rows = [structs.replace(row, source="") for row in new]
    rows = [structs.replace(row, route=f"base:{row.route}") for row in old_rows]
    rows = labelled(rows + [structs.replace(row, route=f"new:{row.route}") for row in new_rows])
    names = {side: [r for r in routes_of(rows) if r.startswith(side)] for side in ("base:", "new:")}
    own = {side: {plain_route(label) for label in labels} for side, labels in names.items()}
    sole = next(iter(own["base:"])) if len(own["base:"]) == len(own["new:"]) == 1 else None
    found: list[Comparison] = []
    for cell, sides in by_cell(rows).items():
        for label in names["new:"]:
            for other in _counterparts(label, sole, sides):
                left = (label.removeprefix("new:"), sides[label])
                found += compare_cell(cell, left, (other.removeprefix("base:"), sides[other]))
    return found


def _counterparts(label: str, sole: str | None, sides: Container[str]) -> list[str]:
    """The bases that a route is compared with: in the same state of speculation; and in the other one where
    either of the two states has nothing else to be compared with."""
    if label not in sides:
        return []
    own = plain_route(label)
    plain = sole or "base:" + own.removeprefix("new:")
    is_plain = label == own
    same, other = (plain, plain + FALLBACK) if is_plain else (plain + FALLBACK, plain)
    twin = own + FALLBACK if is_plain else own
    found = [same] if same in sides else []
    if other in sides and (not found or twin not in sides):
        found.append(other)
    return found


def compare_cell(
    cell: Cell, route: tuple[str, Sequence[Measurement]], base: tuple[str, Sequence[Measurement]]
) -> list[Comparison]:
    """The comparisons of two routes within one cell, one per quantity that both have."""
    found = []
    for quantity in QUANTITIES:
        a = [row for row in route[1] if getattr(row, quantity) is not None]
        b = [row for row in base[1] if getattr(row, quantity) is not None]
        if a and b:
            found.append(_quantity(cell, quantity, (route[0], a), (base[0], b)))
    return found


def _quantity(
    cell: Cell, quantity: str, route: tuple[str, list[Measurement]], base: tuple[str, list[Measurement]]
) -> Comparison:
    one = Comparison(
        route=route[0],
        base=base[0],
        tier=cell.tier,
        condition=cell.condition,
        task=cell.task,
        quantity=quantity,
        verdict="undecided",
    )
    left, right = Texts(route[1]), Texts(base[1])
    pairs = in_pairs(left, right)
    if pairs is not None:
        one = structs.replace(one, left_out=left_out(left, right, pairs))
        left, right = left.only(pairs), right.only(pairs)
    found = totals(left.rows, right.rows) if quantity == "total_s" else None
    if isinstance(found, str):
        return structs.replace(one, lacking="length", warnings=(found,))
    if found is None:
        found = Totals(left.values(quantity), right.values(quantity))
    a, b = _digits(left.medians(found.a)), _digits(right.medians(found.b))
    compared = _compared(one, a, b, pairs is not None, (len(left.rows), len(right.rows)))
    notes = [found.note] if found.note else []
    if one.left_out is not None:
        notes.append(pairs_told(a.size, one.left_out, (route[0], base[0])))
    return structs.replace(compared, output_tokens=found.output_tokens, warnings=(*notes, *compared.warnings))


def _compared(one: Comparison, a: Floats, b: Floats, is_paired: bool, trials: tuple[int, int]) -> Comparison:
    """Adds what the values of two sides, one a text, say of each other."""
    sides = Side((a,), 0), Side((b,), 1)
    p, test = _test(a, b, is_paired)
    fewest = min(trials)
    ratio = _told(bootstrap.two_sides(_ratio, *sides, paired=is_paired), fewest) if (b > 0).all() else None
    difference = _told(bootstrap.two_sides(np.subtract, *sides, paired=is_paired), fewest)
    if p is None:
        verdict: Direction = "undecided"
        lacking: Lacking | None = "trials"
        warnings = [_too_few((a.size, b.size), trials)]
    else:
        apart = _apart(difference, 0.0) if ratio is None else _apart(ratio, 1.0)
        verdict, lacking, warnings = _verdict(p, apart)
    return structs.replace(
        one,
        ratio=ratio,
        paired_ratio=bootstrap.median(a / b) if is_paired and (b > 0).all() else None,
        difference=difference,
        p_value=p,
        test=test,
        paired=is_paired,
        verdict=verdict,
        lacking=lacking,
        samples=(a.size, b.size),
        warnings=tuple(warnings),
    )


def _told(estimate: Estimate | None, trials: int) -> Estimate | None:
    return None if estimate is None else told(estimate, trials)


def _too_few(texts: tuple[int, int], trials: tuple[int, int]) -> str:
    if texts == trials:
        return f"no test below {bootstrap.MINIMUM} trials a side: there are {texts[0]} and {texts[1]}"
    return (
        f"no test below {bootstrap.MINIMUM} texts a side: there are {texts[0]} and {texts[1]} "
        f"({trials[0]} and {trials[1]} trials)"
    )


def _digits(values: Floats) -> Floats:
    return np.array([float(f"{value:.{DIGITS}g}") for value in values])


def _apart(estimate: Estimate | None, middle: float) -> int:
    """-1 or 1 where the whole interval lies below or above `middle`, else 0."""
    if estimate is None or estimate.low is None or estimate.high is None:
        return 0
    return (estimate.low > middle) - (estimate.high < middle)


def _verdict(p: float, apart: int) -> tuple[Direction, Lacking | None, list[str]]:
    """A difference takes the test and the interval; where one of them lacks, the warning says which."""
    if p < SIGNIFICANT and apart:
        return ("higher" if apart > 0 else "lower"), None, []
    if p < SIGNIFICANT:
        text = f"the test finds a difference (p {p:.2g}), the interval of the ratio none: not called one"
        return "~", "interval", [text]
    if apart:
        text = f"the interval of the ratio shows a difference, the test none (p {p:.2g}): not called one"
        return "~", "test", [text]
    return "~", "both", []


def _ratio(a: Floats, b: Floats) -> Floats:
    return np.divide(a, b)


def _test(a: Floats, b: Floats, is_paired: bool) -> tuple[float | None, str | None]:
    """Two-sided p and the test's name; `None` below five texts a side."""
    if min(a.size, b.size) < bootstrap.MINIMUM:
        return None, None
    if is_paired and a.size >= PAIRS:
        return signed_rank(a - b), "Wilcoxon signed-rank"
    return rank_sum(a, b), "Mann-Whitney U"


def rank_sum(a: Floats, b: Floats) -> float:
    """Two-sided p of the Mann-Whitney U test: exact without ties up to 50 a side, else normal with ties.

    H. B. Mann and D. R. Whitney, Annals of Mathematical Statistics 18 (1947).
    """
    both = np.concatenate([a, b])
    ordered, inverse, counts = np.unique(both, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    ranks = (ends - (counts - 1) / 2)[inverse]
    n, m = a.size, b.size
    u = float(ranks[:n].sum()) - n * (n + 1) / 2
    u = max(u, n * m - u)
    if ordered.size == both.size and max(n, m) <= 50:
        tail = _u_counts(n, m)[round(u) :].sum()
        return float(min(1.0, 2 * tail))
    total = n + m
    variance = n * m / 12 * ((total + 1) - float(np.sum(counts**3.0 - counts)) / (total * (total - 1)))
    return _two_sided(u - n * m / 2, variance)


def signed_rank(differences: Floats) -> float:
    """Two-sided p of Wilcoxon's signed-rank test: exact without ties up to 50 pairs, else normal.

    Pairs without a difference are dropped. F. Wilcoxon, Biometrics Bulletin 1 (1945).
    """
    kept = differences[differences != 0]
    n = kept.size
    if n == 0:
        return 1.0
    _, inverse, counts = np.unique(np.abs(kept), return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[inverse]
    w = float(ranks[kept > 0].sum())
    w = max(w, n * (n + 1) / 2 - w)
    if counts.max() == 1 and n <= 50:
        return float(min(1.0, 2 * _w_counts(n)[round(w) :].sum()))
    variance = n * (n + 1) * (2 * n + 1) / 24 - float(np.sum(counts**3.0 - counts)) / 48
    return _two_sided(w - n * (n + 1) / 4, variance)


def _two_sided(distance: float, variance: float) -> float:
    """Normal tail with a continuity correction of a half."""
    from math import erfc, sqrt

    if variance <= 0:
        return 1.0
    return min(1.0, erfc(max(0.0, abs(distance) - 0.5) / sqrt(2 * variance)))


@lru_cache(maxsize=256)
def _u_counts(n: int, m: int) -> Floats:
    """Distribution of U under the null: coefficients of the Gaussian binomial, as probabilities."""
    counts = np.zeros(n * m + 1)
    counts[0] = 1.0
    for k in range(1, n + 1):
        # times (1 - q^(m+k)), then divided by (1 - q^k); both in place
        top = m + k
        if top <= n * m:
            counts[top:] = counts[top:] - counts[:-top]
        for start in range(k):
            counts[start::k] = np.cumsum(counts[start::k])
        counts /= top / k
    return np.maximum(counts, 0)


@lru_cache(maxsize=64)
def _w_counts(n: int) -> Floats:
    """Distribution of the signed-rank sum under the null, as probabilities."""
    counts = np.zeros(n * (n + 1) // 2 + 1)
    counts[0] = 1.0
    for rank in range(1, n + 1):
        moved = counts.copy()
        moved[rank:] += counts[:-rank]
        counts = moved / 2
    return counts


NO_SETTINGS = {"full_length_requests"}
"""Flags that a log tells and nobody sets: what a server reckons from its memory."""


def changed_settings(base: RunInfo, new: RunInfo) -> list[str]:
    """What differs between two runs besides the server's speed: a reader must know before comparing."""
    found: list[str] = []

    def note(what: str, old: object, now: object) -> None:
        if old != now:
            found.append(f"{what}: {_shown(old)} -> {_shown(now)}")

    for name in sorted({r.name for r in base.suite.routes} | {r.name for r in new.suite.routes}):
        here = {r.name: r for r in base.suite.routes}.get(name)
        there = {r.name: r for r in new.suite.routes}.get(name)
        if here is None or there is None:
            found.append(f"{name}: only in the {'base' if there is None else 'new run'}")
            continue
        note(f"{name}, speculation", here.speculation, there.speculation)
        note(f"{name}, request", here.request, there.request)
        for key in sorted(here.setting.keys() | there.setting.keys()):
            note(f"{name}, {key}", here.setting.get(key), there.setting.get(key))
        old, now = base.facts.get(name), new.facts.get(name)
        if old is not None and now is not None:
            for field in ("engine", "version", "model", "max_model_len", "block_size", "kv_capacity_tokens"):
                note(f"{name}, {field}", getattr(old, field), getattr(now, field))
            for key in sorted((old.flags.keys() | now.flags.keys()) - NO_SETTINGS):
                note(f"{name}, flag {key}", old.flags.get(key), now.flags.get(key))
    for field in ("tiers", "output_tokens", "prompt", "interleave", "warmup"):
        note(field.replace("_", " "), getattr(base.suite, field), getattr(new.suite, field))
    for key in sorted(base.environment.keys() | new.environment.keys()):
        note(f"environment, {key}", base.environment.get(key), new.environment.get(key))
    return found


def _shown(value: object) -> str:
    text = "(none)" if value is None else str(value)
    return text if len(text) <= 120 else text[:117] + "..."
