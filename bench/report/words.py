"""Sentences: what the statistics say, in words that carry their own limits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

from bench.analysis.decisions.claims import counted, hedge, many
from bench.analysis.decisions.verified import sentence
from bench.analysis.statistics.cells import merged_tiers
from bench.analysis.statistics.prefill import PrefillLaw
from bench.analysis.statistics.texts import Texts
from bench.analysis.verdicts.ledger import is_cut_off, is_of_cut_off_wave
from bench.records import Crossover, Measurement, Reason, RunInfo
from bench.records.events import TOKENIZED
from bench.report import sources
from bench.report.content import Content, called
from bench.report.escape import visible
from bench.report.labels import labels_for, shown_name
from bench.report.levels import concurrency_line
from bench.report.limit import limit_lines
from bench.report.quantities import QUANTITIES, significant, write
from bench.report.run_pass import Run
from bench.report.told import Told


def reason_text(reason: Reason) -> str:
    """A reason of a verdict as a sentence without its full stop, with the figures of the case."""
    text = bare_reason(reason.id)
    return f"{text} ({visible(reason.detail)})" if reason.detail else text


@lru_cache(maxsize=256)  # asked for every reason of every trial
def bare_reason(name: str) -> str:
    """What a reason means, without figures; a reason that the table lacks is shown as it is."""
    from bench.analysis.verdicts.reasons import REASONS

    entry = REASONS.get(name)
    if entry is None:
        return visible(name)
    text = entry.sentence.rstrip(".")
    # These stand in the middle of a line; an acronym keeps its capitals.
    return text[0].lower() + text[1:] if text[1:2].islower() or text[1:2] == " " else text


def remedies(measurements: Iterable[Measurement]) -> list[str]:
    """What to do about the reasons that excluded measurements, commonest first."""
    from bench.analysis.verdicts.reasons import REASONS

    counts = Counter(reason.id for one in measurements for reason in one.verdict.reasons)
    return [
        Told(
            f"{count} x {bare_reason(name)}" + (f": {REASONS[name].todo}" if name in REASONS else ""),
            sources.COUNTED,
        )
        for name, count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    ]


def verdict_text(one: Measurement) -> str:
    """`ok`, or why the measurement is in no statistic."""
    if one.verdict.valid:
        return "ok"
    reasons = "; ".join(reason_text(reason) for reason in one.verdict.reasons)
    if one.failure is not None and not one.verdict.reasons:
        reasons = visible(one.failure.message)
    return f"invalid: {reasons}" if reasons else "invalid"


def tokens(value: float) -> str:
    """An output length: `1,757`, or `96.4` where a fraction still matters."""
    return f"{value:,.0f}" if value >= 100 else significant(value, 3)


_WHY = ("no difference", "by the points", "straight lines meet", "by these laws they never meet")
"""How the warning begins that says why a pair is undecided."""


def crossover_line(one: Crossover, several_tasks: bool = False) -> str:
    """One crossover as a sentence with its uncertainty and how far it goes beyond the measured."""
    place = f"{one.tier:,} tokens, "
    place += one.condition if one.reused_tokens is None else f"{one.reused_tokens:,} of them cached"
    place += f", {one.task}" if several_tasks else ""
    head = f"{place}: {one.route} against {one.base}: "
    if one.status in ("always", "never"):
        order = "faster" if one.status == "always" else "slower"
        lengths = "at every output length"
        if until := _until(one):
            lengths = f"up to {until} output tokens{ending(one)}"
        return f"{head}{order} {lengths}{_claimed(one)}"
    if one.status == "undecided" or one.output_tokens is None:
        seen = f"; the best guess is {tokens(one.output_tokens)}" if one.output_tokens is not None else ""
        why = next((text for text in one.warnings if text.startswith(_WHY)), "")
        return head + "undecided" + (f": {why}" if why else "") + seen + _partly(one) + _basis(one)
    side = "from" if one.wins == "above" else "up to"
    spread = ""
    if one.low is not None and one.high is not None:
        kind = "95% interval" if one.spread == "interval" else "range"
        spread = f" ({kind} {tokens(one.low)} to {tokens(one.high)})"
    elif one.low is not None:
        spread = f" (at least {tokens(one.low)})"
    elif one.high is not None:
        spread = f" (at most {tokens(one.high)})"
    elif one.basis == "law":
        spread = " (no spread: too few tiers for one)"
    elif max(one.samples) > 1:
        spread = " (no spread is known)"
    else:
        spread = " (a single text: no spread)"
    end = ""
    if until := _until(one):
        end = f" to {until}" if one.wins == "above" else f" and from {until} on"
        end += ending(one)
    where = f"{side} {tokens(one.output_tokens)} output tokens{spread}{end}"
    return head + f"faster {where}{_reach(one)}" + _basis(one)


def _until(one: Crossover) -> str:
    """Where a lead ends, or may end; empty: nowhere."""
    if one.until is not None:
        return tokens(one.until)
    return "" if one.may_end is None else f"perhaps {tokens(one.may_end)}"


def ending(one: Crossover) -> str:
    """The spread of the place where a lead ends, where there is one."""
    if one.until_low is None or one.until_high is None:
        return ""
    return f" ({tokens(one.until_low)} to {tokens(one.until_high)})"


def _reach(one: Crossover) -> str:
    if one.extrapolation is None or one.measured is None:
        return ""
    if one.extrapolation <= 1:
        return f"; inside the measured {one.measured:,}"
    text = f"; extrapolated: {significant(one.extrapolation, 2)}x the longest measured, {one.measured:,}"
    straight = one.line_tokens
    if one.basis == "slowing" and straight is not None and tokens(straight) != tokens(one.output_tokens or 0):
        text += f" (decode slows with context; straight lines give {tokens(straight)})"
    return text


def _partly(one: Crossover) -> str:
    """Where an undecided pair is decided all the same."""
    if one.ahead_from is not None:
        until = _until(one)
        end = f" to {until} output tokens{ending(one)}" if until else " output tokens on"
        return f"; from at most {tokens(one.ahead_from)}{end} {one.ahead} is faster"
    return f"; up to {tokens(one.ahead_to)} output tokens {one.ahead} is faster" if one.ahead_to else ""


def _claimed(one: Crossover) -> str:
    """What a claim about every output length rests on, with what few trials oblige it to say."""
    words = hedge(*one.samples, trials=one.trials)
    return f", {words}" if words else _basis(one)


def _basis(one: Crossover) -> str:
    return f" ({counted(one.samples, one.trials)})"


def crossover_lines(content: Content) -> list[str]:
    """All crossovers as sentences, by tier, condition and route."""
    several = _tasks(content) > 1
    return [Told(crossover_line(one, several), sources.crossover(one)) for one in content.crossovers]


def verified_lines(content: Content) -> list[str]:
    """What follow-up trials say of the crossovers that were extrapolated."""
    return [Told(f"Verified: {sentence(one)}.", sources.crossover(one.crossover)) for one in content.verified]


def reuse_lines(content: Content) -> list[str]:
    """How much of each replayed prompt was cached, beside what the engine's rule expects."""
    lines: list[str] = []
    for cell in content.cells:
        known = [m for m in cell.valid if m.cached_tokens is not None and m.prompt_tokens]
        if cell.summary.condition != "replay" or not known:
            continue
        cached, prompt = map(Texts(known).middle, ("cached_tokens", "prompt_tokens"))
        line = f"{cell.summary.tier:,} tokens, {cell.condition}{_task(content, cell.summary.task)}: "
        line += f"{cell.summary.route} "
        line += f"{cached:,.0f} of {prompt:,.0f} tokens cached"
        expected = {m.expected_cached for m in known if m.expected_cached is not None}
        if expected:
            line += f"; the rule expects {' or '.join(f'{count:,}' for count in sorted(expected))}"
        lines.append(Told(line, sources.reuse(cell.valid)))
    return lines


def tokenisation_lines(content: Content) -> list[str]:
    """Which tokenizer counted the prompts of each route, and how fast the server's own is."""
    lines: list[str] = []
    for run in content.runs:
        for route, one in run.info.tokenizers.items():
            size = f"{one.vocabulary:,} tokens" if one.vocabulary else "vocabulary unknown"
            name = shown_name(content.labels, run.info, route)
            line = f"{name}: {one.kind} {one.name}, {size}, sha256 {one.sha256[:12]}"
            lines.append(Told(line, sources.TOKENIZER))
        lines.extend(
            _tokenize_line(event.data, run.info, content) for event in run.events if event.name == TOKENIZED
        )
    return lines


def _tokenize_line(data: Mapping[str, object], info: RunInfo, content: Content) -> str:
    """How fast the server's own /tokenize is, and what share of TTFT that would be."""
    route, tier, tokens, seconds = (data.get(key) for key in ("route", "tier", "tokens", "seconds"))
    if not (isinstance(tokens, int | float) and isinstance(seconds, int | float) and seconds > 0):
        return f"{route}, {tier} tokens: the timing of /tokenize is damaged"
    labels = labels_for(content.labels, info, str(route))
    name = shown_name(content.labels, info, str(route))
    line = f"{name}: its /tokenize takes {significant(seconds, 3)} s for {tokens:,.0f} tokens "
    line += f"({significant(tokens / seconds, 3)} tok/s)"
    shares = [
        _beside(seconds, summary.estimates["ttft_s"].value, f"TTFT of {called(summary)}")
        for summary in content.summaries
        if summary.route in labels
        and summary.tier == tier
        and summary.condition in ("cold", "replay")
        and "ttft_s" in summary.estimates
    ]
    return Told(line + (f": {', '.join(dict.fromkeys(shares))}" if shares else ""), sources.TOKENIZE)


def _beside(seconds: float, whole: float, name: str) -> str:
    """`34.5% of the TTFT of cold`; what lasts longer is no part of it: `1.4 times as long as the ...`."""
    share = seconds / whole
    part = f"{share:.1%} of" if share <= 1 else f"{significant(share, 2)} times as long as"
    return f"{part} the {name}"


def _task(content: Content, task: str) -> str:
    """The task of a cell behind its condition, where there are several."""
    return f", {visible(task, 60)}" if _tasks(content) > 1 else ""


def _tasks(content: Content) -> int:
    return len({one.task for one in content.measurements})


def excluded(content: Content) -> list[Measurement]:
    """The measurements in no statistic, in run order."""
    return [one for one in content.everything if not one.verdict.valid and not _spoilt(one)]


def excluded_line(one: Measurement) -> str:
    """An excluded trial with what was seen of it."""
    seen = [
        f"{QUANTITIES[key].label} {write(getattr(one, key), QUANTITIES[key].style)}"
        + (f" {QUANTITIES[key].unit}" if QUANTITIES[key].unit else "")
        for key in ("ttft_s", "prefix_reuse", "total_s")
        if getattr(one, key) is not None
    ]
    attempt = f" (attempt {one.attempt})" if one.attempt > 1 else ""
    what = verdict_text(one).removeprefix("invalid: ")
    line = f"{visible(one.trial_id)}{attempt}: {what}" + (f"; {', '.join(seen)}" if seen else "")
    return Told(line, sources.EXCLUDED_LINE)


def _spoilt(one: Measurement) -> bool:
    """Nothing is wrong with it but its wave; the request at fault is listed."""
    return [reason.id for reason in one.verdict.reasons] == ["wave_spoilt"]


def boundary_lines(content: Content) -> list[str]:
    """What was tested and, so, what was not."""
    lines = []
    valid = [one for one in content.everything if one.verdict.valid]
    prompts = [one.prompt_tokens for one in valid if one.prompt_tokens]
    outputs = [one.output_tokens for one in valid if one.output_tokens]
    if not prompts:
        return ["No valid measurement: nothing is claimed."]
    lines.append(_tested_line(content, valid))
    if outputs:
        lines.append(f"Longest output: {max(outputs):,} tokens; longer ones are extrapolated.")
    counts = [(cell.texts, len(cell.valid)) for cell in content.cells if cell.valid]
    if counts:
        texts, trials = min(counts)
        few = f"Fewest {'valid trials' if texts == trials else 'prompt texts'} in a cell: {texts}"
        lines.append(
            few + ("; below five, spreads are ranges and not confidence intervals." if texts < 5 else ".")
        )
    lines.append(concurrency_line(content))
    return [Told(line, sources.BOUNDARY) for line in lines]


def _tested_line(content: Content, valid: Sequence[Measurement]) -> str:
    """The longest prompt beside the limit of the server that had it; route by route where these differ."""
    limits = {
        label: facts.max_model_len
        for run in content.runs
        for route, facts in run.info.facts.items()
        for label in labels_for(content.labels, run.info, route)
    }
    longest: dict[str, int] = {}
    for one in valid:
        longest[one.route] = max(longest.get(one.route, 0), one.prompt_tokens or 0)
    near = merged_tiers(longest.values())  # templates of servers differ by some tokens
    groups: dict[tuple[int, int | None], list[str]] = {}
    for route in content.routes:
        if longest.get(route):
            groups.setdefault((near[longest[route]], limits.get(route)), []).append(route)
    parts = []
    for (_, limit), routes in groups.items():
        most = max(longest[route] for route in routes)
        text = f"{most:,} prompt tokens"
        if limit:
            text += f", {most / limit * 100:.0f}% of the served limit of {limit:,}"
        names = f" ({', '.join(visible(route, 60) for route in routes)})" if len(groups) > 1 else ""
        parts.append(text + names)
    return f"Tested up to {'; '.join(parts)}; nothing was measured above."


def warning_lines(content: Content) -> list[str]:
    """Warnings with their counts as lines."""
    return [Told(f"{text} ({count} x)", sources.COUNTED) for text, count in warnings(content)]


def warnings(content: Content) -> list[tuple[str, int]]:
    """Warnings with how many measurements carry them; those to act upon first, facts last."""
    from bench.analysis.verdicts.reasons import REASONS

    counts = Counter(reason.id for one in content.everything for reason in one.verdict.warnings)

    def weight(item: tuple[str, int]) -> tuple[bool, int, str]:
        entry = REASONS.get(item[0])
        return entry is not None and entry.effect == "informs", -item[1], item[0]

    return [(bare_reason(name), count) for name, count in sorted(counts.items(), key=weight)]


def cell_warnings(content: Content) -> list[str]:
    """What lies past a drafter limit, then what the statistics warn of: drift, outliers, unequal lengths."""
    lines: list[str] = [Told(line, sources.LIMIT) for line in limit_lines(content)]
    told = sources.derived("drift")
    for one in content.summaries:
        where = f"{one.route}, {one.tier:,} tokens, {one.condition}{_task(content, one.task)}"
        lines += [Told(f"{where}: {text}", told) for text in one.warnings if not text.startswith("counts ")]
    routes: dict[str, list[str]] = {}
    for law in laws(content):
        for text in law.warnings:
            # two tiers: what the warning means is seen on the map
            text += _map_of_two_tiers(content) if text.startswith("two tiers") else ""
            routes.setdefault(text, []).append(law.route)
    fitted = sources.derived("prefill")
    return lines + [
        Told(f"prefill law of {', '.join(names)}: {text}", fitted) for text, names in routes.items()
    ]


def _map_of_two_tiers(content: Content) -> str:
    """What laws without a spread mean for the winner map, where there is one."""
    mapped = [law for law in laws(content) if law.route in content.step_laws]
    if len(mapped) < 2:
        return ""
    if sum(law.has_spread for law in mapped) < 2:
        return ", so nothing on the winner map is certain"
    return ", so the winner map is certain nowhere that such a route is among the two fastest"


def laws(content: Content) -> list[PrefillLaw]:
    """The prefill laws of the routes that have one."""
    return [law for law in content.ttft_laws.values() if law.terms]


def state_line(run: Run, measurements: Sequence[Measurement]) -> str:
    """How complete the run is, in one sentence."""
    own = [one for one in measurements if one.source in {"", run.info.id}]
    valid = {one.trial_id for one in own if one.verdict.valid}
    invalid = [one for one in own if not one.verdict.valid]
    excluded = [one for one in invalid if not (is_cut_off(one) or is_of_cut_off_wave(one))]
    line = f"{len(valid)} of {len(run.info.plan)} planned trials measured and valid"
    if excluded:
        line += f"; {many(len(excluded), 'measurement')} excluded"
    if len(excluded) < len(invalid):
        line += f"; {len(invalid) - len(excluded)} cut off"
    if run.left:
        line += f"; left for ctxbench run --resume: {many(run.left, 'trial')}"
    return Told(line + ".", sources.STATE)


def harness_line(run: Run) -> str | None:
    """The tool's own time between exchanges, beside the length of the run."""
    if run.harness_s is None or not run.span_s:
        return None
    share = run.harness_s / run.span_s * 100
    line = f"Harness time between exchanges: {significant(run.harness_s, 3)} s of "
    return Told(line + f"{significant(run.span_s, 4)} s ({share:.2g}%).", sources.derived("harness"))


def join(lines: Iterable[str]) -> str:
    """Lines as a list."""
    return "\n".join(f"- {line}" for line in lines)
