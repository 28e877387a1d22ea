"""Tables of the deciding commands for people: as wide as the terminal, figures with units and sense."""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from bench.cli.layout import columns as terminal

if TYPE_CHECKING:
    from bench.analysis.decisions.advise import Advice, WorkloadAdvice
    from bench.analysis.decisions.gate import Outcome
    from bench.records import Comparison, Crossover, Estimate

_COMFORTABLE, _NARROWEST = 14, 6  # a column of names is not folded below the second
_WORD = re.compile(r"[^ -]+-?|-")
_WHOLE = 20  # words up to here are broken only where nothing else makes room

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
_SCALES = {"s": ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")), "share": ((0.01, "pp"),)}


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns two spaces apart, numbers to the right; the widest text is folded until all fits."""
    columns = list(zip(head, *rows, strict=True))
    right = [all(cell[:1] in "-0123456789~<" or not cell for cell in column[1:]) for column in columns]
    widths = _widths(columns, right)
    lines = []
    for row in (head, *rows):
        folded = [_folded(cell, width) for cell, width in zip(row, widths, strict=True)]
        for part in range(max(map(len, folded))):
            cells = [found[part] if part < len(found) else "" for found in folded]
            sides = zip(cells, right, widths, strict=True)
            lines.append("  ".join(c.rjust(w) if r else c.ljust(w) for c, r, w in sides).rstrip())
    return "\n".join(lines)


def _widths(columns: Sequence[Sequence[str]], right: Sequence[bool]) -> list[int]:
    """Room for each column: names are folded a little, then spreads go under their values, names again, then
    numbers between their words, and at last names anywhere."""
    room = terminal()
    widths = [max(map(len, column)) for column in columns]
    apart = [max(len(part) for cell in column for part in cell.split(" (")) + 1 for column in columns]
    words = [max(map(len, _WORD.findall(" ".join(column)))) for column in columns]
    whole = [min(word, _WHOLE) for word in words]
    for least in (
        [w if r else max(_COMFORTABLE, o) for w, r, o in zip(widths, right, whole, strict=True)],
        [a if r else max(_COMFORTABLE, o) for a, r, o in zip(apart, right, whole, strict=True)],
        [a if r else max(_NARROWEST, o) for a, r, o in zip(apart, right, whole, strict=True)],
        [w if r else max(_NARROWEST, o) for w, r, o in zip(words, right, whole, strict=True)],
        [w if r else _NARROWEST for w, r in zip(words, right, strict=True)],
    ):
        while sum(widths) + 2 * (len(widths) - 1) > room:
            wide = [i for i, width in enumerate(widths) if width > least[i]]
            if not wide:
                break
            widths[max(wide, key=lambda i: widths[i])] -= 1
    return widths


def _folded(cell: str, width: int) -> list[str]:
    return textwrap.wrap(cell, width) if len(cell) > width else [cell]


def filled(line: str) -> str:
    """A sentence over as many lines as it needs."""
    return textwrap.fill(
        line, terminal(), subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    )


def notes(texts: Sequence[tuple[str, str]], rows: int) -> str:
    """What (where, text) pairs say, equal texts once; of more than two places among `rows` their number.

    An empty place is left out: the text then says itself what it speaks of.
    """
    places: dict[str, list[str]] = {}
    for where, text in texts:
        if where not in places.setdefault(text, []):
            places[text].append(where)
    lines = []
    for text, found in places.items():
        many = "all" if len(found) == rows else f"{len(found)} of {rows}"
        where = many if 2 < len(found) <= rows else "; ".join(found)
        lines.append(filled(f"- {where}: {text}" if where else f"- {text}"))
    return "\n\n" + "\n".join(lines) if lines else ""


def span(estimate: Estimate | None, places: int = 2) -> str:
    """`3.61 (3.56 to 3.66)`, or the value alone; `-` where there is none."""
    if estimate is None:
        return "-"
    text = f"{estimate.value:,.{places}f}"
    if estimate.low is None or estimate.high is None:
        return text
    return f"{text} ({estimate.low:,.{places}f} to {estimate.high:,.{places}f})"


def seconds(estimate: Estimate | None) -> str:
    """Four digits or so: milliseconds below 10 s, tenths from 100 s on."""
    value = estimate.value if estimate is not None else 0.0
    return span(estimate, 1 if value >= 100 else 2 if value >= 10 else 3)


def quantity(estimate: Estimate | None, unit: str, *, spread: bool = True) -> str:
    """Value (and spread) in a unit that fits, three digits of the largest of them; `0` where all are."""
    if estimate is None:
        return "-"
    ends = [abs(end) for end in (estimate.value, estimate.low, estimate.high) if end is not None]
    most = max(ends)
    if most == 0 or (estimate.value == 0 and not spread):
        return "0"
    scales = _SCALES.get(unit, ((1.0, unit),))
    factor, name = next((one for one in scales if most >= one[0]), scales[-1])
    places = max(0, 2 - math.floor(math.log10(most / factor)))
    scaled = [end if end is None else end / factor for end in (estimate.value, estimate.low, estimate.high)]
    value, low, high = (None if end is None else f"{end + 0.0:,.{places}f}" for end in scaled)
    # -0.00 is no figure
    value, low, high = (
        end and (end.removeprefix("-") if _is_zero(end) else end) for end in (value, low, high)
    )
    text = f"{value} ({low} to {high})" if spread and low is not None and high is not None else value
    return f"{text} {name}".rstrip()


def _is_zero(text: str) -> bool:
    return not text.strip("-0.,")


def tokens(value: float | None) -> str:
    """Output tokens: whole ones, with a tenth below ten."""
    if value is None:
        return "-"
    return f"{value:,.1f}" if value < 10 else f"{value:,.0f}"


def several(values: Sequence[str]) -> bool:
    """Whether a column for these is worth its room."""
    return len(set(values)) > 1


# --- The commands' own ------------------------------------------------------------------------------


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
        ("" if one.reused_tokens is not None and text in one.warnings else place, text)
        for place, one in zip(where, found, strict=True)
        for text in _texts(one)
    ]
    note = _CROSSOVER_NOTE + (_TEXTS_NOTE if counted == "texts" else "")
    return table(head, rows) + notes(texts, len(rows)) + note


_CROSSOVER_NOTE = (
    "\n\noutput: tokens where both take equally long; wins: the outputs for which route beats base;"
    "\nreach: output in multiples of the longest measured, above 1.00x nothing was measured there"
)
_TEXTS_NOTE = (
    "\ntexts: prompt texts of both routes; cold, salted and replayed trials of one text count as one"
)


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
    names = [one.route, one.base]
    if one.wins == "below" or one.status == "never":
        names.reverse()
    spread = ""
    if one.until_low is not None and one.until_high is not None:
        spread = f" ({tokens(one.until_low)} to {tokens(one.until_high)})"
    again = " again" if one.status == "crosses" else ""
    return f"{names[0]} is faster up to {tokens(until)}{spread} only, then {names[1]}{again}"


def _says_point(texts: Sequence[str]) -> bool:
    return any("no spread is known" in text for text in texts)


def comparison_table(found: Sequence[Comparison]) -> str:
    """New against base, one row a quantity, called as in the rules of `gate`."""
    from bench.analysis.decisions.gate import QUANTITIES
    from bench.analysis.statistics.compare import MARKS, by_chance

    words = {field: word for word, field in QUANTITIES.items()}
    tasks = several([one.task for one in found])
    rows = []
    for one in found:
        names = one.route if one.route == one.base else f"{one.route} / {one.base}"
        row = [
            names,
            f"{one.tier:,}",
            one.condition,
            words.get(one.quantity, one.quantity),
            MARKS[one.lacking] if one.verdict == "~" or one.lacking == "length" else span(one.ratio, 3),
            quantity(one.difference, _UNITS.get(one.quantity, ""), spread=one.ratio is None),
            "-" if one.p_value is None else "<0.001" if one.p_value < 0.001 else f"{one.p_value:.3f}",
            one.verdict,
        ]
        if tasks:
            row.insert(3, one.task)
        rows.append(row)
    head = ["route", "tier", "prompt", "quantity", "new / base", "new - base", "p", "verdict"]
    if tasks:
        head.insert(3, "task")
    cells = len({_cell(one) for one in found})
    keys = [text for mark, text in _KEYS.items() if any(row[-4] == mark for row in rows)]
    if any(row[-3].endswith(" pp") for row in rows):
        keys.append("pp: percentage points")
    chance = by_chance(found)
    keys += [f"{chance}."] if chance else []
    key = "\n\n" + "\n".join(map(filled, keys)) if keys else ""
    return table(head, rows) + notes(_comparison_texts(found, words), cells) + key


_KEYS = {
    "~": "~: no difference, by the test nor by the interval",
    "~t": "~t: no difference by the test; the interval shows one",
    "~i": "~i: no difference by the interval; the test finds one",
    "?n": "?n: outputs of unequal length, so total latencies are not compared",
}


def _cell(one: Comparison) -> str:
    return f"{one.route}, {one.tier:,} {one.condition}"


def _comparison_texts(found: Sequence[Comparison], words: Mapping[str, str]) -> list[tuple[str, str]]:
    """What the comparisons of a cell say, with the quantities of which it is true where not of all."""
    present: dict[str, list[str]] = {}
    saying: dict[tuple[str, str], list[str]] = {}
    for one in found:
        name = words.get(one.quantity, one.quantity)
        present.setdefault(_cell(one), []).append(name)
        for text in one.warnings:
            saying.setdefault((_cell(one), text), []).append(name)
    return [
        (cell, text if names == present[cell] else f"{', '.join(names)}: {text}")
        for (cell, text), names in saying.items()
    ]


def gate_table(outcomes: Sequence[Outcome]) -> str:
    """One row a rule and cell."""
    tasks = several([one.task for one in outcomes])
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
        ranked = sum(other.total_s is not None and other.task == one.task for other in found)
        mark = "" if not one.best else "best" if one.certain else "likely best"
        if one.best and ranked < 2:
            mark = "alone"
        row = [
            one.route,
            *(seconds(e) for e in (one.ttft_s, one.decode_s, one.total_s)),
            _factor(one.prompt_factor),
            _factor(one.output_factor),
            mark,
        ]
        if tasks:
            row.insert(1, one.task)
        rows.append(row)
    head = ["route", "TTFT (s)", "decode (s)", "total (s)", "prompt", "output", ""]
    if tasks:
        head.insert(1, "task")
    where = [f"{one.route} ({one.task})" if tasks else one.route for one in found]
    return table(head, rows) + notes(_advice_texts(found, where), 0) + _REACH_NOTE


_REACH_NOTE = "\n\nprompt, output: in multiples of the longest measured; above 1.00x nothing was measured"


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
