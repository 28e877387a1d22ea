"""Tables of the deciding commands for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from .decide_layout import filled, fits, notes, quantity, seconds, several, span, table, tokens

if TYPE_CHECKING:
    from bench.analysis.decisions.advise import Advice, WorkloadAdvice
    from bench.analysis.decisions.gate import Outcome
    from bench.records import Comparison, Crossover

_UNITS = {
    "ttft_s": "s",
    "total_s": "s",
    "tpot_s": "s",
    "decode_tok_s": "tok/s",
    "acceptance": "share",
    "acceptance_length": "tokens",
    "prefix_reuse": "share",
    "kv_usage_peak": "share",
}


def crossover_table(found: Sequence[Crossover]) -> str:
    """One row a pair and cell: where they meet, how sure that is, and how far beyond what was measured."""
    tasks = several([one.task for one in found])
    rows = [_crossover_row(one, tasks) for one in found]
    counted = "trials" if all(one.trials is None for one in found) else "texts"
    head = ["route", "base", "tier", "prompt", "wins", "output", "spread", "reach", counted]
    if tasks:
        head.insert(3, "task")
    where = [f"{o.route} against {o.base}, {_place(o)}" for o in found]
    if tasks:
        where = [f"{place}, {one.task}" for place, one in zip(where, found, strict=True)]
    texts = [
        # a law's warning names its route, and holds for all of its pairs
        ("" if text.startswith((f"{one.route}: ", f"{one.base}: ")) else place, text)
        for place, one in zip(where, found, strict=True)
        for text in _texts(one)
    ]
    keys = [*_CROSSOVER_KEYS, *([_TEXTS_KEY] if counted == "texts" else [])]
    shown = table(head, rows, spare=("reach", counted))
    return shown + notes(texts, len(rows)) + _below(keys)


_CROSSOVER_KEYS = (
    "output: tokens where both take equally long; wins: the outputs for which route beats base;",
    "reach: output in multiples of the longest measured, above 1.00x nothing was measured there",
)
_TEXTS_KEY = "texts: prompt texts of both routes; cold, salted and replayed trials of one text count as one"


def _below(keys: Sequence[str]) -> str:
    """What the words of a table mean, behind it."""
    return "\n\n" + "\n".join(map(filled, keys)) if keys else ""


def _crossover_row(one: Crossover, tasks: bool) -> list[str]:
    spread = "-"
    kind = "95%" if one.spread == "interval" else "range"
    if one.low is not None and one.high is not None:
        spread = f"{tokens(one.low)} to {tokens(one.high)} {kind}"
    elif one.low is not None:
        spread = f"at least {tokens(one.low)} {kind}"
    elif one.high is not None:
        spread = f"at most {tokens(one.high)} {kind}"
    wins = {"above": "longer", "below": "shorter"}.get(one.wins or "", one.status)
    row = [
        one.route,
        one.base,
        f"{one.tier:,}",
        _prompt(one),
        wins,
        tokens(one.output_tokens),
        spread,
        _factor(one.extrapolation),
        f"{one.samples[0]} + {one.samples[1]}",
    ]
    if tasks:
        row.insert(3, one.task)
    return row


def _prompt(one: Crossover) -> str:
    """Condition, or the cached tokens it is reckoned for."""
    return one.condition if one.reused_tokens is None else f"{one.reused_tokens:,} cached"


def _place(one: Crossover) -> str:
    """`2,048 cold`, or `2,048 tokens, 1,024 cached`."""
    return f"{one.tier:,}{'' if one.reused_tokens is None else ' tokens,'} {_prompt(one)}"


def _texts(one: Crossover) -> list[str]:
    found = [text for text in one.warnings if not text.startswith("extrapolated ")]  # has a column
    if one.until is not None:
        found.append(_end(one, one.until))
    if one.ahead is not None:
        part = f"from at most {tokens(one.ahead_from)}" if one.ahead_from is not None else ""
        part = part or f"up to {tokens(one.ahead_to)} at least"
        found.append(f"not everywhere undecided: {one.ahead} is faster {part}")
    if one.status == "crosses" and one.low is None and one.high is None and not _says_point(found):
        found.append("a point: no spread is known")
    if one.line_tokens is not None and one.output_tokens is not None:
        why = {
            "curve": "the measured arrival curves",
            "slowing": "decode that slows with context",
            "law": "decode that slows with context",
        }.get(one.basis or "", "")
        if tokens(one.line_tokens) != tokens(one.output_tokens):
            found.append(
                f"straight lines alone give {tokens(one.line_tokens)}, {why} {tokens(one.output_tokens)}"
            )
    return found


def _end(one: Crossover, until: float) -> str:
    """Where the lead of one of the two ends."""
    from bench.analysis.decisions.claims import leader

    names = [one.route, one.base] if leader(one) == one.route else [one.base, one.route]
    spread = ""
    if one.until_low is not None and one.until_high is not None:
        spread = f" ({tokens(one.until_low)} to {tokens(one.until_high)})"
    again = " again" if one.status == "crosses" else ""
    return f"the lead of {names[0]} ends at {tokens(until)}{spread}: then {names[1]} is faster{again}"


def _says_point(texts: Sequence[str]) -> bool:
    return any("no spread is known" in text for text in texts)


def comparison_table(found: Sequence[Comparison]) -> str:
    """New against base, one row a quantity, called as in the rules of `gate`; shorter on narrow terminals."""
    from bench.analysis.decisions.gate import QUANTITIES
    from bench.analysis.statistics.compare import MARKS, by_chance

    words = {field: word for word, field in QUANTITIES.items()}
    tasks = several([one.task for one in found])
    cells = [_cell(one, tasks) for one in found]
    rows = [_comparison_row(one, words.get(one.quantity, one.quantity)) for one in found]
    head = ["quantity", "new / base", "new - base", "p", "verdict"]
    keys = [_KEYS[mark] for mark in _KEYS if any(MARKS[one.lacking] == mark for one in found)]
    if any(row[2].endswith(" pp") for row in rows):
        keys.append("pp: percentage points")
    spare: tuple[str, ...] = ()
    if not fits(head, rows, indent=2):
        short = {row[0]: _SHORT[row[0]] for row in rows if row[0] in _SHORT}
        rows = [[short.get(row[0], row[0]), *row[1:]] for row in rows]
        keys += ["; ".join(f"{name}: {word}" for word, name in short.items())] if short else []
        spare = ("verdict", "p", "new - base")
    chance = by_chance(found)
    keys += [f"{chance}."] if chance else []
    shown = table(head, rows, spare=spare, groups=cells)
    return shown + notes(_comparison_texts(found, cells, words), len(set(cells))) + _below(keys)


_KEYS = {
    "~": "~: no difference, by the test nor by the interval",
    "~t": "~t: no difference by the test; the interval shows one",
    "~i": "~i: no difference by the interval; the test finds one",
    "?": "?: too few texts for a test",
    "?n": "?n: outputs of unequal length, so total latencies are not compared",
}
_SHORT = {"acceptance": "accept", "acceptance_length": "length", "kv_usage": "kv"}
"""Quantities on a narrow terminal: as the report's table calls them."""


def _comparison_row(one: Comparison, name: str) -> list[str]:
    """The ratio stands behind the mark of what a difference lacks: how wide it is tells tight from vague."""
    from bench.analysis.statistics.compare import MARKS

    ratio = "" if one.ratio is None else span(one.ratio, 3)
    return [
        name,
        f"{MARKS[one.lacking]} {ratio}".strip() or "-",
        quantity(one.difference, _UNITS.get(one.quantity, ""), spread=one.ratio is None),
        "-" if one.p_value is None else "<0.001" if one.p_value < 0.001 else f"{one.p_value:.3f}",
        one.verdict,
    ]


def _cell(one: Comparison, tasks: bool) -> str:
    names = one.route if one.route == one.base else f"{one.route} / {one.base}"
    return f"{names}, {one.tier:,} {one.condition}" + (f", {one.task}" if tasks else "")


def _comparison_texts(
    found: Sequence[Comparison], cells: Sequence[str], words: Mapping[str, str]
) -> list[tuple[str, str]]:
    """What the comparisons of a cell say, with the quantities of which it is true where not of all."""
    present: dict[str, list[str]] = {}
    saying: dict[tuple[str, str], list[str]] = {}
    for one, cell in zip(found, cells, strict=True):
        name = words.get(one.quantity, one.quantity)
        present.setdefault(cell, []).append(name)
        for text in one.warnings:
            saying.setdefault((cell, text), []).append(name)
    return [
        (cell, text if names == present[cell] else f"{', '.join(names)}: {text}")
        for (cell, text), names in saying.items()
    ]


def gate_table(outcomes: Sequence[Outcome]) -> str:
    """One row a rule and cell."""
    tasks = several([one.task for one in outcomes if one.task])
    rows = []
    for one in outcomes:
        row = [
            str(one.rule),
            one.route,
            "-" if one.tier is None else f"{one.tier:,}",
            span(one.ratio, 3),
            one.status.upper() if one.status == "fail" else one.status,
        ]
        if tasks:
            row.insert(3, one.task)
        rows.append(row)
    head = ["rule", "route", "tier", "new / base", "outcome"]
    if tasks:
        head.insert(3, "task")
    texts = [(f"{o.rule}, {o.route}" + (f", {o.tier:,}" if o.tier else ""), o.why) for o in outcomes if o.why]
    return table(head, rows) + notes(texts, len(rows))


def advice_table(found: Sequence[Advice]) -> str:
    """One row a route: expected times, how far beyond what was measured, and which is best."""
    tasks = several([one.task for one in found])
    rows = []
    for one in found:
        row = [
            one.route,
            *(seconds(e) for e in (one.ttft_s, one.decode_s, one.total_s)),
            _factor(one.prompt_factor),
            _factor(one.output_factor),
            _mark(one, found),
        ]
        if tasks:
            row.insert(1, one.task)
        rows.append(row)
    head = ["route", "TTFT (s)", "decode (s)", "total (s)", "prompt", "output", ""]
    if tasks:
        head.insert(1, "task")
    where = [f"{one.route} ({one.task})" if tasks else one.route for one in found]
    marks = [f"{mark}: {text}" for mark, text in _MARKS.items() if any(row[-1] == mark for row in rows)]
    return table(head, rows) + notes(_advice_texts(found, where), 0) + _below([*marks, _REACH_KEY])


_MARKS = {
    "best": "the lowest expected total, below all others by its whole spread",
    "likely best": "the lowest expected total, but spreads overlap or are not known, another route has no "
    "answer, or its own output goes past its drafter's limit",
    "only answer": "no other route has an expected total",
}


def _mark(one: Advice, found: Sequence[Advice]) -> str:
    """What a route is among those of its task."""
    if not one.best:
        return ""
    ranked = sum(other.total_s is not None and other.task == one.task for other in found)
    return "only answer" if ranked < 2 else "best" if one.certain else "likely best"


_REACH_KEY = "prompt, output: in multiples of the longest measured; above 1.00x nothing was measured"


def _advice_texts(found: Sequence[Advice], where: Sequence[str]) -> list[tuple[str, str]]:
    pairs = list(zip(found, where, strict=True))
    texts = []
    for one, place in pairs:
        absent = {name: why for name, why in one.absent.items() if name != "total_s"}
        if len(absent) > 1 and len(set(absent.values())) == 1:
            absent = {"no answer": next(iter(absent.values()))}
        texts += [
            (f"{place}, {name}" if name != "no answer" else place, f"absent, {why}")
            for name, why in absent.items()
        ]
    texts += [(f"{place}, {name}", text) for one, place in pairs for name, text in one.basis.items()]
    texts += [(place, text) for one, place in pairs for text in one.warnings]
    return texts


def _factor(value: float | None) -> str:
    """`4.17x`; further out than a thousand times it does not matter how far."""
    if value is None:
        return "-"
    return f"{value:.2f}x" if value <= 1000 else ">1,000x"


def workload_table(found: Sequence[WorkloadAdvice], requests: int) -> str:
    """One row a route: the whole workload, one request after another."""
    from bench.analysis.decisions.claims import many

    tasks = several([one.task for one in found])
    rows = []
    for one in found:
        total = "-" if one.total_s is None else f"{one.total_s:,.0f}"
        if one.low is not None and one.high is not None:
            total += f" ({one.low:,.0f} to {one.high:,.0f})"
        row = [one.route, total, f"{one.best_for:,}", f"{one.beyond:,}", f"{one.without:,}"]
        if tasks:
            row.insert(1, one.task)
        rows.append(row)
    texts = [(f"{one.route} ({one.task})" if tasks else one.route, one.absent) for one in found if one.absent]
    head = ["route", f"{many(requests, 'request')} in a row (s)", "best for", "beyond measured", "no answer"]
    if tasks:
        head.insert(1, "task")
    return table(head, rows) + notes(texts, len(rows))
