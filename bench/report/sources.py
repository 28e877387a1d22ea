"""Where the derived figures of a report come from: a definition, a sample and a witness for each.

The measured quantities have theirs in `quantities.py`; these are of what is computed from them.
"""

from __future__ import annotations

from bench.analysis.decisions.claims import counted
from bench.analysis.statistics.bootstrap import MINIMUM, RESAMPLES
from bench.analysis.statistics.summary import OUTLIER
from bench.records import Comparison, Crossover, Estimate, Measurement
from bench.report.content import Content
from bench.report.quantities import MISSING, QUANTITIES, significant, write
from bench.report.witness import CLOCK, witnesses

COUNTERS = "the server's counters before and after each exchange"
SUITE = "As the suite file says; recorded in run.json."
ENVIRONMENT = "Read by this client on its own machine when the run began; recorded in run.json."
PLANNED = "Prompt length the suite asks for, template included; what the server counted stands under prompt."
CONDITION = (
    "cold: never seen by this server; salted: the same behind another salt; replay: sent before, 1 for the "
    "first time, 2+ for later ones; turn: one of a recorded chat, behind the ones before it."
)
EXCLUDED = "Measurements of the cell whose verdict is invalid, of all; the reasons stand under Excluded."
EXCLUDED_LINE = (
    "The measurement as it stands in measurements.csv; times by the client's clock, reuse by the witnesses "
    "named there."
)
BOUNDARY = (
    "From the valid measurements: prompt and output tokens as the server counted them; the served limit as "
    "the server tells it."
)
COMPARED = (
    "A ratio is route / against; the test is Wilcoxon's signed-rank or Mann-Whitney's, two-sided, at 5%. "
    "Client clock; output tokens as the server counted them. A dash: one of the two has no such number, and "
    "the performance table says why."
)
COUNTED = (
    "Measurements whose verdict carries this reason (docs/verdicts.md says what it means and what to do)."
)
NOTE = "Said by the run itself when it was planned; recorded in run.json."
LIMIT = "Drafts and accepted tokens of the valid over-limit trials, from the server's counters and log."
STATE = (
    "Planned: the trials in run.json. Valid: trials with a measurement whose verdict is valid. Left: trials "
    "that are not valid and were not tried as often as the suite allows (retry_invalid); what was cut off or "
    "failed by the server's fault is no try."
)
TRIAL = "As planned in run.json: route/tier/condition/repeat; the verdict's reasons are in docs/verdicts.md."
UNTOLD = "Neither the server nor the suite tells."
TOKENIZER = "The tokenizer that counted the prompts of this route, recorded in run.json."
TOKENIZE = (
    "The server's own /tokenize on a prompt of this length, timed once by this client after the trials; "
    "the share is of the median TTFT."
)

DERIVED: dict[str, tuple[str, str, str]] = {
    "interval": (
        "95% interval",
        f"Percentile bootstrap over prompt texts, each the median of its trials ({RESAMPLES:,} resamples, "
        f"fixed seed), from {MINIMUM} texts a side on.",
        "the trials of the cell",
    ),
    "range": (
        "range",
        f"Least and greatest over prompt texts: below {MINIMUM} texts a side there is no interval.",
        "the trials of the cell",
    ),
    "ratio": (
        "ratio, as in 1.27x",
        "Median of the route / median of the route it is compared with, valid trials of one cell. ~ and ? "
        "come from one two-sided test at 5%: Wilcoxon's signed-rank with six or more pairs, else "
        "Mann-Whitney.",
        "the two medians' own",
    ),
    "crossover": (
        "crossover",
        "Output length at which the total latencies ttft + (n - c0) x TPOT of two routes meet. Inside the "
        "measured outputs it is read off the measured arrival curves where a server counts tokens in its "
        "stream.",
        CLOCK + "; output tokens as the server counted them",
    ),
    "fastest": (
        "fastest route",
        "The route that no other is faster than, between two crossovers of a cell.",
        "the crossovers'",
    ),
    "prefill": (
        "prefill law",
        "Least squares on relative errors of TTFT = a + b n + c n^2 over the tiers' medians, no term "
        "below 0.",
        CLOCK,
    ),
    "decode": (
        "decode law",
        "Time per token over the mean context (prompt + half the output): medians of the tiers, a line "
        "through.",
        CLOCK + "; output tokens as the server counted them",
    ),
    "position": (
        "accepted at position i",
        "Drafts whose i-th token was accepted / drafts; given those before: divided by the same at i - 1. "
        "From the counts of all valid trials summed up.",
        COUNTERS,
    ),
    "chunk": (
        "tokens/chunk",
        "(output tokens - tokens in the first text chunk) / (text chunks - 1): what the client saw of a "
        "step.",
        CLOCK + "; output tokens as the server counted them",
    ),
    "timeline": (
        "timeline",
        "Text as it arrived, and the gauge of the KV cache as it was sampled meanwhile, of one exchange or "
        "of one wave.",
        "client clock; the server's metrics page",
    ),
    "scrape": (
        "scrapes",
        "Fetching the metrics page during an exchange: median and longest, and their sum / the exchange.",
        "client clock",
    ),
    "client": (
        "loop lag, GC pause, client CPU",
        "How late a timer of this client's event loop fired (99th percentile of an exchange); its CPU "
        "seconds per second. Both show whether the client could keep up.",
        "client clock, the operating system's count",
    ),
    "uncertainty": (
        "uncertainty",
        "What this client's own delays may add to a time of an exchange: the largest of its loop lag (99th "
        "percentile), its longest pause for collecting garbage and 0.3 ms; median over exchanges.",
        "client clock",
    ),
    "harness": (
        "harness time",
        "Time between exchanges that is no wait for the server: composing, reading pages, writing the "
        "journal.",
        "client clock",
    ),
    "drift": (
        "drift, stands out",
        "Drift: rank correlation with the run order, eight trials or more, p below 0.01 and above 1%. "
        "Standing out: "
        f"beyond {OUTLIER:g} robust standard deviations of the cell.",
        "the trials of the cell",
    ),
}
"""Key -> label, definition and witness of everything that is computed from measured quantities."""


def derived(key: str, *more: str) -> str:
    """Definition and witness of a derived figure, with the sample of this one between them."""
    _, definition, witness = DERIVED[key]
    return " ".join([definition, *(text for text in more if text), f"Witness: {witness}."])


def spread(one: Estimate | None, unit: str = "") -> str:
    """The spread of an estimate in a sentence that says what kind it is."""
    if one is None:
        return ""
    ends = [MISSING if end is None else significant(end, 4) + unit for end in (one.low, one.high)]
    if one.spread == "interval":
        return f"95% bootstrap interval {ends[0]} to {ends[1]}, {_unit(one)} resampled {RESAMPLES:,} times."
    if one.spread == "range":
        return f"Range {ends[0]} to {ends[1]} (below {MINIMUM} {_unit(one)} a side there is no interval)."
    return f"A single {_unit(one)[:-1]}: no spread."


def _unit(one: Estimate | None) -> str:
    """`texts` where several trials of a text count as one."""
    return "trials" if one is None or one.trials is None else "texts"


_LACKING = {
    "test": "No difference is shown: the interval is without 1, but the test finds none.",
    "interval": "No difference is shown: the test finds one, but the interval holds 1.",
    "both": "No difference is shown: the test finds none, and the interval holds 1.",
    "length": "Not compared: {1}.",
    "trials": f"No test below {MINIMUM} {{0}} a side.",
    None: "",
}
"""Which condition of a difference is not met."""


def comparison(one: Comparison, content: Content) -> str:
    """Of a ratio of the comparison table."""
    quantity = QUANTITIES[one.quantity]
    both = tuple(m for m in content.measurements if m.route in {one.route, one.base} and m.verdict.valid)
    test = f"p = {one.p_value:.2g} ({one.test})." if one.p_value is not None else ""
    parts = [
        f"{quantity.label} of {one.route} / of {one.base}, medians.",
        "Compared text by text." if one.paired else "",
        quantity.definition,
        spread(one.ratio),
        test,
        _LACKING[one.lacking].format(_unit(one.difference), *one.warnings),
        f"Both at {one.output_tokens:,} output tokens, as outputs differ." if one.output_tokens else "",
        f"Witness: {witnesses(both, one.quantity) or 'the medians of both routes'}.",
    ]
    return " ".join(part for part in parts if part)


def difference(one: Comparison) -> str:
    """Of a difference of the comparison table."""
    quantity = QUANTITIES[one.quantity]
    return (
        f"{quantity.label} of {one.route} minus that of {one.base}, medians. {spread(one.difference, ' s')} "
        f"Witness: {CLOCK}."
    )


_BASES = {
    "curve": "Read off the measured arrival curves.",
    "line": "Straight lines through TTFT with the measured time per token.",
    "slowing": "Lines bent by the decode law, since decode slows with context.",
    "law": "From the prefill and decode laws, for a cached share that was not measured.",
}


def crossover(one: Crossover) -> str:
    """Of a crossover's sentence."""
    return derived("crossover", crossover_sample(one), *(f"{text}." for text in one.warnings))


def crossover_sample(one: Crossover) -> str:
    """What one crossover rests on: the differences of the two routes, and how they were joined."""
    parts = [f"{one.route} against {one.base}, {counted(one.samples, one.trials)}."]
    parts += [text for text in [_BASES.get(one.basis or "")] if text]
    for name, estimate in (("TTFT", one.ttft_difference_s), ("Time per token", one.tpot_difference_s)):
        if estimate is not None:
            parts.append(f"{name} differs by {estimate.value:+.4g} s. {spread(estimate, ' s')}")
    return " ".join(parts)


def reuse(valid: tuple[Measurement, ...]) -> str:
    """Of a line on the reuse of replays."""
    found = witnesses(valid, "prefix_reuse")
    return (
        "Cached prompt tokens, median over prompt texts, beside the whole blocks of the prompt less "
        "those that a drafter drops: max(0, floor((prompt - 1) / block) - dropped) x block."
        + (f" Witness: {found}." if found else "")
    )


def measured(having: tuple[Measurement, ...], key: str, how: str = "Median over the valid trials.") -> str:
    """Of a measured quantity that stands outside the performance table."""
    found = witnesses(having, key)
    return f"{QUANTITIES[key].definition} {how}" + (f" Witness: {found}." if found else "")


def written(value: float | None, key: str) -> str:
    """A measured quantity as the tables write it."""
    return write(value, QUANTITIES[key].style)


_PLOTTED: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "total_latency": (("ttft_s", "tpot_s"), ("crossover", "interval", "range")),
    "winner_map": ((), ("prefill", "decode")),
    "ttft": (("ttft_s",), ("prefill",)),
    "decode": (("decode_tok_s",), ()),
    "acceptance": (("acceptance",), ("position",)),
    "reuse": (("prefix_reuse",), ()),
    "timeline": ((), ("timeline",)),
    "wave": ((), ("timeline",)),
    "gaps": (("icl_p50_s",), ()),
    "order": (("ttft_s",), ("drift",)),
}
"""Plot -> the measured quantities in it, and the derived ones."""


def plotted(content: Content) -> dict[str, str]:
    """Plot -> its sources; see `plot.kind_of` for plots of one task."""
    valid = tuple(one for one in content.measurements if one.verdict.valid)
    found = {}
    for name, (keys, others) in _PLOTTED.items():
        texts = [f"{QUANTITIES[key].label}: {measured(valid, key, '')}".rstrip() for key in keys]
        texts += [f"{DERIVED[key][0]}: {derived(key)}" for key in others]
        found[name] = " ".join(text[0].upper() + text[1:] for text in texts)
    return found
